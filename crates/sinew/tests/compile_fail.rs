//! What the types promise not to compile.
//!
//! Each case in `compile_fail/` has the compiler's words beside it. That a type is neither `Send` nor `Sync` is held here
//! instead, since the compiler's words on that name private fields.

use sinew::coroutine::arena::Arena;
use sinew::coroutine::cleanup::Node;
use sinew::coroutine::{Anchor, Builder, Coroutine, Generator, Suspender, Yielder};

/// Holds at compile time that a type does not implement a trait: if it does, the call below has two meanings.
macro_rules! assert_not {
    ($trait:path: $($type:ty),+ $(,)?) => {{
        trait Ambiguous<Which> {
            fn holds() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $trait> Ambiguous<u8> for T {}
        $(<$type as Ambiguous<_>>::holds();)+
    }};
}

// contract: C1
#[test]
fn coroutines_stay_on_their_thread() {
    assert_not!(Send:
        Coroutine<'static, (), (), ()>, Suspender<(), ()>, Anchor<'static, 'static>, Generator<'static, ()>,
        Yielder<'static, ()>, &'static Suspender<(), ()>, &'static Anchor<'static, 'static>,
        Builder<'static, 'static, (), (), ()>,
    );
    assert_not!(Sync:
        Coroutine<'static, (), (), ()>, Suspender<(), ()>, Anchor<'static, 'static>, Generator<'static, ()>,
        Yielder<'static, ()>, Builder<'static, 'static, (), (), ()>,
    );
}

// contract: S1
#[test]
fn a_scheduler_stays_on_its_thread() {
    assert_not!(Send: sinew::Scheduler, &'static sinew::Scheduler);
    assert_not!(Sync: sinew::Scheduler);
}

// contract: C12, C15
#[test]
fn arenas_and_nodes_stay_on_their_thread() {
    assert_not!(Send: Arena, &'static Arena, Node);
    assert_not!(Sync: Arena, Node);
}

// contract: A2, T1
#[test]
fn futures_go_where_their_values_may() {
    use std::cell::Cell;
    use std::rc::Rc;

    use sinew::future::{Async, JoinFuture, Promise, PromiseFuture, RecvFuture, SharedFuture};

    fn is_send<T: Send>() {}
    assert_not!(Send:
        Async<sinew::net::TcpStream>, JoinFuture<Rc<u8>>, RecvFuture<'static, Rc<u8>>, Promise<Rc<u8>>,
        SharedFuture<Rc<u8>>, SharedFuture<Cell<u8>>, PromiseFuture<Cell<u8>>,
    );
    is_send::<JoinFuture<Cell<u8>>>();
    is_send::<RecvFuture<'static, Cell<u8>>>();
    is_send::<Promise<Cell<u8>>>();
    is_send::<SharedFuture<u8>>();
    is_send::<PromiseFuture<u8>>();
}

// contract: Y12
#[test]
fn what_is_local_stays_on_its_thread() {
    use sinew::sync::{kinds, local};
    assert_not!(Send:
        local::Mutex<u8>, local::MutexGuard<'static, u8>, local::Event, local::Semaphore, local::Permit<'static>,
        local::WaitGroup, local::channel::Sender<u8>, local::channel::Receiver<u8>, &'static local::Mutex<u8>,
        &'static local::Event, kinds::Mutex<u8, kinds::Local>,
        local::RwLock<u8>, local::RwLockReadGuard<'static, u8>, local::RwLockWriteGuard<'static, u8>, local::Condvar,
        local::Barrier, local::Once, local::OnceCell<u8>, local::channel::WeakSender<u8>,
        local::channel::oneshot::Sender<u8>, local::channel::oneshot::Receiver<u8>,
        local::channel::broadcast::Sender<u8>, local::channel::broadcast::Receiver<u8>,
        local::channel::watch::Sender<u8>, local::channel::watch::Receiver<u8>,
    );
    assert_not!(Sync:
        local::Mutex<u8>, local::MutexGuard<'static, u8>, local::Event, local::Semaphore, local::Permit<'static>,
        local::WaitGroup, local::channel::Sender<u8>, local::channel::Receiver<u8>,
        local::RwLock<u8>, local::RwLockReadGuard<'static, u8>, local::RwLockWriteGuard<'static, u8>, local::Condvar,
        local::Barrier, local::Once, local::OnceCell<u8>, local::channel::WeakSender<u8>,
        local::channel::oneshot::Sender<u8>, local::channel::oneshot::Receiver<u8>,
        local::channel::broadcast::Sender<u8>, local::channel::broadcast::Receiver<u8>,
        local::channel::watch::Sender<u8>, local::channel::watch::Receiver<u8>,
    );
    fn is_shared<T: Send + Sync>() {}
    is_shared::<(
        sinew::sync::Mutex<u8>,
        sinew::event::Event,
        sinew::sync::Semaphore,
    )>();
    is_shared::<(sinew::sync::WaitGroup, sinew::sync::channel::Sender<u8>)>();
    is_shared::<(
        sinew::sync::RwLock<u8>,
        sinew::sync::Condvar,
        sinew::sync::Barrier,
    )>();
    is_shared::<(sinew::sync::Once, sinew::sync::OnceCell<u8>)>();
    fn is_sent<T: Send>() {}
    is_sent::<(
        sinew::sync::channel::broadcast::Receiver<u8>,
        sinew::sync::channel::watch::Receiver<u8>,
    )>();
}

// contract: Y9, Y10
#[test]
fn ends_that_keep_a_place_and_arms_are_one_party_s_at_a_time() {
    use sinew::sync::channel::{broadcast, watch};
    use sinew::sync::select::{EventArm, ReadyArm, RecvArm, SendArm};
    assert_not!(Sync:
        broadcast::Receiver<u8>, watch::Receiver<u8>, RecvArm<'static, u8>, SendArm<'static, u8>, EventArm<'static>,
        ReadyArm<'static>,
    );
    fn is_send<T: Send>() {}
    is_send::<(broadcast::Receiver<u8>, watch::Receiver<u8>)>();
}

// contract: C1, C12, C14, C16, S4, T11, Y10
#[test]
fn what_must_not_compile_does_not() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
