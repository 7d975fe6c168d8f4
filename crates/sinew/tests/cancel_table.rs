//! One rule for a cancel at every operation that waits: asked for before the wait, the wait fails at once with `Cancelled`,
//! unless what it waits for is there already; during the wait, it ends promptly; when the wait is complete, that stands.
//! A shield defers the cancel, and a deadline that has passed is a `Timeout` where nothing else is the case.
//!
//! The rows are [`operations`]; each is put through every test below.

/// Calls the form of an operation that an [`Until`] asks for.
macro_rules! call {
    ($until:expr, $on:expr, $plain:ident, $timeout:ident, $deadline:ident $(, $arg:expr)?) => {
        match $until {
            Until::Forever => $on.$plain($($arg)?),
            Until::Hour => $on.$timeout($($arg,)? HOUR),
            Until::Zero => $on.$timeout($($arg,)? Duration::ZERO),
            Until::Past => $on.$deadline($($arg,)? now() - Duration::from_millis(1)),
        }
    };
}

mod cancel_futures;
mod cancel_rows;
mod cancel_tasks;
mod cancel_tls;
mod io_rig;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use cancel_rows::*;
use io_rig::watchdog;
use sinew::event::{Event, EventTable, TableWaitError};
use sinew::future::Promise;
use sinew::io::Interest;
use sinew::sync::channel::broadcast::RecvError;
use sinew::sync::channel::{
    Receiver, Sender, bounded, broadcast, oneshot, rendezvous, unbounded, watch,
};
use sinew::sync::kinds;
use sinew::sync::local;
use sinew::sync::select::{self, Selector};
use sinew::sync::{Barrier, Condvar, Mutex, Once, OnceCell as SyncCell, RwLock, Semaphore};
use sinew::time::now;
use sinew::{
    CancelToken, JoinHandle, Unparker, WaitError, block_on, block_on_deadline, block_on_timeout,
    current, park, run, shield, sleep, spawn_local, yield_now,
};

const HOUR: Duration = Duration::from_secs(3600);

/// How long the operation may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Forever,
    /// A timeout that is not reached.
    Hour,
    /// A timeout of zero.
    Zero,
    /// A deadline before the call.
    Past,
}

const NOT_OVER: [Until; 2] = [Until::Forever, Until::Hour];
const OVER: [Until; 2] = [Until::Zero, Until::Past];

/// How the operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Cancelled,
    TimedOut,
}

impl From<Result<(), WaitError>> for End {
    fn from(result: Result<(), WaitError>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(WaitError::Cancelled) => Self::Cancelled,
            Err(WaitError::Timeout) => Self::TimedOut,
            Err(other) => panic!("ended with {other:?}"),
        }
    }
}

fn of_io<T>(result: io::Result<T>) -> End {
    match result {
        Ok(_) => End::Done,
        Err(error) if sinew::is_cancelled(&error) => End::Cancelled,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => End::TimedOut,
        Err(error) => panic!("ended with {error}"),
    }
}

fn timeout_of(until: Until) -> Option<Duration> {
    match until {
        Until::Forever => None,
        Until::Hour => Some(HOUR),
        Until::Zero | Until::Past => Some(Duration::ZERO),
    }
}

/// Does the operation.
type Wait = Box<dyn FnOnce(Until) -> End>;
/// Brings about what it waits for; given the waiter's unparker.
type Bring = Box<dyn FnOnce(&Unparker)>;
/// A name, and how the operation is set up.
type Row = (&'static str, fn() -> Operation);

/// One operation, set up so that it has to wait.
struct Operation {
    wait: Wait,
    /// Brings about what is waited for, while nobody waits yet; `None` if it can only come during the wait.
    before: Option<Bring>,
    /// Brings it about while it is waited for; the waiter does not run in this. `None` if the test cannot.
    during: Option<Bring>,
    /// Whether it is the kernel that brings it about: the scheduler takes note of that when it next looks.
    is_io: bool,
    /// Whether there is a form with a limit of its own.
    has_limit: bool,
}

impl Operation {
    fn new(wait: impl FnOnce(Until) -> End + 'static) -> Self {
        Self {
            wait: Box::new(wait),
            before: None,
            during: None,
            is_io: false,
            has_limit: true,
        }
    }

    fn before(mut self, f: impl FnOnce() + 'static) -> Self {
        self.before = Some(Box::new(|_| f()));
        self
    }

    fn during(mut self, f: impl FnOnce() + 'static) -> Self {
        self.during = Some(Box::new(|_| f()));
        self
    }

    /// The same brings it about at any time.
    fn by(self, f: impl Fn() + 'static) -> Self {
        let before = Rc::new(f);
        let during = Rc::clone(&before);
        self.before(move || before()).during(move || during())
    }

    fn io(mut self) -> Self {
        self.is_io = true;
        self
    }
}

fn parking() -> Operation {
    use sinew::{park_deadline, park_timeout};
    let mut operation = Operation::new(|until| {
        let result = match until {
            Until::Forever => park(),
            Until::Hour => park_timeout(HOUR),
            Until::Zero => park_timeout(Duration::ZERO),
            Until::Past => park_deadline(now() - Duration::from_millis(1)),
        };
        result.into()
    });
    operation.before = Some(Box::new(Unparker::unpark));
    operation.during = Some(Box::new(Unparker::unpark));
    operation
}

/// Its own time is what a sleep waits for; see [`a_sleep_that_is_over_stands`].
fn sleeping() -> Operation {
    let mut operation = Operation::new(|_| sleep(HOUR).into());
    operation.has_limit = false;
    operation
}

/// A coroutine that is not to outlast the operation that waits for it.
struct Target(JoinHandle<Result<(), WaitError>>);

impl Drop for Target {
    fn drop(&mut self) {
        self.0.cancel("the operation is over");
    }
}

fn joining() -> Operation {
    let target = Target(spawn_local(park));
    let unparker = target.0.unparker();
    let end = move || {
        unparker.unpark();
        // The target ends, and the one who waits for it is queued behind this one.
        yield_now().unwrap();
    };
    let wait = move |until| {
        let target = target;
        call!(until, target.0, wait, wait_timeout, wait_deadline).into()
    };
    Operation::new(wait).by(end)
}

fn locking<K: kinds::Sharing>() -> Operation {
    let mutex: &'static kinds::Mutex<(), K> = Box::leak(Box::default());
    let guard = Rc::new(std::cell::RefCell::new(Some(mutex.lock().unwrap())));
    let wait = move |until| {
        let locked = call!(until, mutex, lock, lock_timeout, lock_deadline);
        locked.map(drop).into()
    };
    Operation::new(wait).by(move || drop(guard.take()))
}

fn sending<K: kinds::Sharing>(
    (sender, receiver): (Sender<u8, K>, Receiver<u8, K>),
    is_rendezvous: bool,
) -> Operation {
    let receiver = Rc::new(receiver);
    let wait = move |until| {
        let sent = call!(until, sender, send, send_timeout, send_deadline, 1);
        sent.map_err(|error| error.reason).into()
    };
    let taker = Rc::clone(&receiver);
    let operation = Operation::new(wait).during(move || {
        taker.try_recv().unwrap();
    });
    operation.before(move || {
        if is_rendezvous {
            sinew::go_local(move || receiver.recv().map(drop));
            yield_now().unwrap();
        } else {
            receiver.try_recv().unwrap();
        }
    })
}

fn full<K: kinds::Sharing>(
    (sender, receiver): (Sender<u8, K>, Receiver<u8, K>),
) -> (Sender<u8, K>, Receiver<u8, K>) {
    sender.try_send(0).unwrap();
    (sender, receiver)
}

fn receiving<K: kinds::Sharing>(
    (sender, receiver): (Sender<u8, K>, Receiver<u8, K>),
    is_rendezvous: bool,
) -> Operation {
    let sender = Rc::new(sender);
    let wait = move |until| {
        let received = call!(until, receiver, recv, recv_timeout, recv_deadline);
        received.map(drop).into()
    };
    let giver = Rc::clone(&sender);
    let operation = Operation::new(wait).during(move || giver.try_send(1).unwrap());
    operation.before(move || {
        if is_rendezvous {
            sinew::go_local(move || sender.send(1).map_err(|error| error.reason));
            yield_now().unwrap();
        } else {
            sender.try_send(1).unwrap();
        }
    })
}

fn receiving_once() -> Operation {
    let (sender, receiver) = oneshot();
    let sender = Cell::new(Some(sender));
    let wait = move |until| {
        let received = call!(until, receiver, recv, recv_timeout, recv_deadline);
        received.map(drop).into()
    };
    Operation::new(wait).by(move || sender.take().unwrap().send(1).unwrap())
}

fn receiving_news() -> Operation {
    let (sender, receiver) = broadcast(1);
    let wait = move |until| {
        let received = call!(until, receiver, recv, recv_timeout, recv_deadline);
        let received = received.map(drop).map_err(|error| match error {
            RecvError::Wait(error) => error,
            other => panic!("{other}"),
        });
        received.into()
    };
    Operation::new(wait).by(move || assert_eq!(sender.send(1).unwrap(), 1))
}

fn watching() -> Operation {
    let (sender, receiver) = watch(0);
    let wait =
        move |until| call!(until, receiver, changed, changed_timeout, changed_deadline).into();
    Operation::new(wait).by(move || sender.send(1).unwrap())
}

/// Receives, sends, waits for an event, all that never comes; and for an event that does.
fn selecting() -> Operation {
    let event = Rc::new(Event::auto());
    let waited = Rc::clone(&event);
    let wait = move |until| {
        let ((sender, receiver), never) = (rendezvous(), Event::manual());
        let mut slot = Some(1);
        let arms = (
            sender.send_arm(&mut slot),
            receiver.recv_arm(),
            never.wait_arm(),
            waited.wait_arm(),
            select::after(2 * HOUR),
        );
        let mut selector = Selector::new();
        selector.add(&arms.0);
        selector.add(&arms.1);
        selector.add(&arms.2);
        selector.add(&arms.3);
        selector.add(&arms.4);
        let end = call!(until, selector, wait, wait_timeout, wait_deadline);
        if let Ok(chosen) = end {
            assert_eq!(chosen, 3);
            assert_eq!(arms.3.take(), Some(Ok(())));
        }
        assert_eq!((arms.0.take(), arms.1.take()), (None, None));
        assert_eq!(slot, Some(1), "nothing else has happened");
        end.map(drop).into()
    };
    Operation::new(wait).by(move || event.set())
}

fn selecting_readiness() -> Operation {
    let (reader, writer) = sinew::io::pipe().unwrap();
    let wait = move |until| {
        let never = Event::manual();
        let arms = (select::ready(&reader, Interest::Read), never.wait_arm());
        let mut selector = Selector::new();
        selector.add(&arms.0);
        selector.add(&arms.1);
        let end = call!(until, selector, wait, wait_timeout, wait_deadline);
        end.map(drop).into()
    };
    Operation::new(wait).by(move || write_byte(&writer)).io()
}

fn grouping<K: kinds::Sharing>() -> Operation {
    let group = Rc::new(kinds::WaitGroup::<K>::new());
    group.add(1);
    let waited = Rc::clone(&group);
    Operation::new(move |until| call!(until, waited, wait, wait_timeout, wait_deadline).into())
        .by(move || group.done())
}

fn reading_lock() -> Operation {
    let lock: &'static RwLock<()> = Box::leak(Box::default());
    let guard = Rc::new(std::cell::RefCell::new(Some(lock.write().unwrap())));
    let wait = move |until| {
        let locked = call!(until, lock, read, read_timeout, read_deadline);
        locked.map(drop).into()
    };
    Operation::new(wait).by(move || drop(guard.take()))
}

fn writing_lock() -> Operation {
    let lock: &'static RwLock<()> = Box::leak(Box::default());
    let guard = Rc::new(std::cell::RefCell::new(Some(lock.read().unwrap())));
    let wait = move |until| {
        let locked = call!(until, lock, write, write_timeout, write_deadline);
        locked.map(drop).into()
    };
    Operation::new(wait).by(move || drop(guard.take()))
}

fn downing<K: kinds::Sharing>() -> Operation {
    let semaphore = Rc::new(kinds::Semaphore::<K>::new(0));
    let waited = Rc::clone(&semaphore);
    Operation::new(move |until| call!(until, waited, down, down_timeout, down_deadline).into())
        .by(move || semaphore.up())
}

fn acquiring_many() -> Operation {
    let semaphore = Rc::new(Semaphore::new(1));
    let waited = Rc::clone(&semaphore);
    let wait = move |until| {
        let permits = call!(
            until,
            waited,
            acquire_many,
            acquire_many_timeout,
            acquire_many_deadline,
            3
        );
        permits.map(drop).into()
    };
    Operation::new(wait).by(move || semaphore.up_many(2))
}

/// Only a notification during the wait counts.
fn awaiting_notification() -> Operation {
    let shared = Rc::new((Mutex::new(()), Condvar::new()));
    let waited = Rc::clone(&shared);
    let wait = move |until| {
        let mut guard = waited.0.try_lock().unwrap();
        let guard = &mut guard;
        let end = match until {
            Until::Forever => waited.1.wait(guard),
            Until::Hour => waited.1.wait_timeout(guard, HOUR),
            Until::Zero => waited.1.wait_timeout(guard, Duration::ZERO),
            Until::Past => waited
                .1
                .wait_deadline(guard, now() - Duration::from_millis(1)),
        };
        assert!(waited.0.try_lock().is_none(), "it returns holding the lock");
        end.into()
    };
    Operation::new(wait).during(move || assert!(shared.1.notify_one()))
}

fn awaiting_condition() -> Operation {
    let shared = Rc::new((Mutex::new(true), Condvar::new()));
    let waited = Rc::clone(&shared);
    let wait = move |until| {
        let mut guard = waited.0.try_lock().unwrap();
        let guard = &mut guard;
        let holds = |holds: &mut bool| *holds;
        let past = now() - Duration::from_millis(1);
        let end = match until {
            Until::Forever => waited.1.wait_while(guard, holds),
            Until::Hour => waited.1.wait_timeout_while(guard, HOUR, holds),
            Until::Zero => waited.1.wait_timeout_while(guard, Duration::ZERO, holds),
            Until::Past => waited.1.wait_deadline_while(guard, past, holds),
        };
        assert!(waited.0.try_lock().is_none(), "it returns holding the lock");
        end.into()
    };
    Operation::new(wait).by(move || {
        *shared.0.try_lock().unwrap() = false;
        shared.1.notify_one();
    })
}

fn meeting() -> Operation {
    let barrier = Rc::new(Barrier::new(2));
    let other = Rc::clone(&barrier);
    let waited = Rc::clone(&barrier);
    let wait = move |until| {
        let met = call!(until, waited, wait, wait_timeout, wait_deadline);
        met.map(drop).into()
    };
    let operation = Operation::new(wait).during(move || assert!(other.try_wait().is_some()));
    operation.before(move || {
        // It is there whenever others run, and goes when there is nothing to wait for any more.
        sinew::go_local(move || {
            let moment = Duration::from_millis(1);
            while Rc::strong_count(&barrier) > 1 && barrier.wait_timeout(moment).is_err() {}
        });
        yield_now().unwrap();
    })
}

/// Another is at it, until it is told to end; it succeeds.
fn initialising(
    wait: impl FnOnce(Rc<SyncCell<u8>>, Until) -> Result<(), WaitError> + 'static,
) -> Operation {
    let cell = Rc::new(SyncCell::new());
    let filled = Rc::clone(&cell);
    let target = Target(spawn_local(move || {
        filled
            .get_or_try_init(|| park().map(|()| 7))
            .map(drop)
            .map_err(|_| WaitError::Cancelled)
    }));
    while sinew::inspect::find(target.0.id()).is_none_or(|info| info.wait.is_none()) {
        yield_now().unwrap();
    }
    let unparker = target.0.unparker();
    let end = move || {
        unparker.unpark();
        yield_now().unwrap();
    };
    let wait = move |until| {
        let _target = target;
        wait(cell, until).into()
    };
    Operation::new(wait).by(end)
}

fn getting_or_initialising() -> Operation {
    initialising(|cell, until| {
        let past = now() - Duration::from_millis(1);
        let f = || panic!("another succeeds");
        let got = match until {
            Until::Forever => cell.get_or_init(f),
            Until::Hour => cell.get_or_init_timeout(HOUR, f),
            Until::Zero => cell.get_or_init_timeout(Duration::ZERO, f),
            Until::Past => cell.get_or_init_deadline(past, f),
        };
        got.map(|&value| assert_eq!(value, 7))
    })
}

fn awaiting_cell() -> Operation {
    initialising(|cell, until| {
        let got = call!(until, cell, wait, wait_timeout, wait_deadline);
        got.map(|&value| assert_eq!(value, 7))
    })
}

fn awaiting_once() -> Operation {
    let once = Rc::new(Once::new());
    let waited = Rc::clone(&once);
    Operation::new(move |until| call!(until, waited, wait, wait_timeout, wait_deadline).into())
        .by(move || assert!(once.try_call_once(|| ())))
}

fn awaiting_event<K: kinds::Sharing>(event: kinds::Event<K>) -> Operation {
    let event = Rc::new(event);
    let waited = Rc::clone(&event);
    Operation::new(move |until| call!(until, waited, wait, wait_timeout, wait_deadline).into())
        .by(move || event.set())
}

/// A numbered event has no memory: only a trigger during the wait counts.
fn awaiting_number() -> Operation {
    let table = Rc::new(EventTable::<u8>::new(4));
    let id = table
        .create(None, |_, _: &u8| {})
        .unwrap_or_else(|_| panic!("no event"));
    let waited = Rc::clone(&table);
    let wait = move |until| {
        let triggered = call!(until, waited, wait, wait_timeout, wait_deadline, id);
        let result = triggered.map(drop).map_err(|error| match error {
            TableWaitError::Wait(error) => error,
            other => panic!("{other}"),
        });
        result.into()
    };
    Operation::new(wait).during(move || {
        table.trigger(id, 1).unwrap();
    })
}

fn awaiting_token() -> Operation {
    let token = CancelToken::new();
    let waited = token.clone();
    Operation::new(move |until| call!(until, waited, wait, wait_timeout, wait_deadline).into())
        .by(move || token.cancel("waited for"))
}

/// A future that waits for an event.
fn blocking_on() -> Operation {
    let event = Rc::new(Event::auto());
    let waited = Rc::clone(&event);
    let wait = move |until| {
        let future = waited.wait_async();
        let result = match until {
            Until::Forever => block_on(future),
            Until::Hour => block_on_timeout(future, HOUR),
            Until::Zero => block_on_timeout(future, Duration::ZERO),
            Until::Past => block_on_deadline(future, now() - Duration::from_millis(1)),
        };
        result.into()
    };
    Operation::new(wait).by(move || event.set())
}

fn awaiting_promise() -> Operation {
    let (promise, future) = Promise::new();
    let promise = RefCell::new(Some(promise));
    Operation::new(move |until| call!(until, future, wait, wait_timeout, wait_deadline).into())
        .by(move || promise.take().unwrap().resolve(()).unwrap())
}

/// The rows of the table.
fn operations() -> Vec<Row> {
    vec![
        ("park", parking),
        ("sleep", sleeping),
        ("join wait", joining),
        ("mutex lock", locking::<kinds::Shared>),
        ("rendezvous send", || sending(rendezvous(), true)),
        ("bounded send", || sending(full(bounded(1)), false)),
        ("rendezvous recv", || receiving(rendezvous(), true)),
        ("bounded recv", || receiving(bounded(1), false)),
        ("unbounded recv", || receiving(unbounded(), false)),
        ("oneshot recv", receiving_once),
        ("broadcast recv", receiving_news),
        ("watch changed", watching),
        ("select", selecting),
        ("select with readiness", selecting_readiness),
        ("wait group", grouping::<kinds::Shared>),
        ("rwlock read", reading_lock),
        ("rwlock write", writing_lock),
        ("semaphore down", downing::<kinds::Shared>),
        ("semaphore acquire_many", acquiring_many),
        ("condvar wait", awaiting_notification),
        ("condvar wait_while", awaiting_condition),
        ("barrier", meeting),
        ("once cell get_or_init", getting_or_initialising),
        ("once cell wait", awaiting_cell),
        ("once wait", awaiting_once),
        ("auto-reset event", || awaiting_event(Event::auto())),
        ("manual-reset event", || awaiting_event(Event::manual())),
        ("local mutex lock", locking::<kinds::Local>),
        ("local rendezvous send", || {
            sending(local::channel::rendezvous(), true)
        }),
        ("local bounded send", || {
            sending(full(local::channel::bounded(1)), false)
        }),
        ("local rendezvous recv", || {
            receiving(local::channel::rendezvous(), true)
        }),
        ("local unbounded recv", || {
            receiving(local::channel::unbounded(), false)
        }),
        ("local auto-reset event", || {
            awaiting_event(local::Event::auto())
        }),
        ("local manual-reset event", || {
            awaiting_event(local::Event::manual())
        }),
        ("local wait group", grouping::<kinds::Local>),
        ("local semaphore down", downing::<kinds::Local>),
        ("numbered event", awaiting_number),
        ("token wait", awaiting_token),
        ("block_on", blocking_on),
        ("promise wait", awaiting_promise),
        ("io::read", reading),
        ("fs read of a fifo", reading_fifo),
        ("io::write", writing),
        ("io::ready", readying),
        ("io::accept", accepting),
        ("io::connect", connecting),
        ("TcpStream::read", reading_stream),
        ("TcpStream::connect to several", connecting_stream),
        ("TcpListener::accept", accepting_stream),
        ("UdpSocket::recv_from", receiving_datagram),
        ("Child::wait", awaiting_child),
        ("ctrl_c", awaiting_interrupt),
        ("UnixDatagram::recv", receiving_unix_datagram),
        ("UnixDatagram::send", sending_unix_datagram),
        ("UnixDatagram::send_to_addr", sending_to_unix_datagram),
    ]
}

/// Puts each operation, with each of these limits, through a test inside of a scheduler of its own. The test says what went
/// wrong, and the table is reported as a whole.
fn for_each(untils: &[Until], test: impl Fn(Operation, Until) -> Result<(), String>) {
    let _watchdog = watchdog();
    let mut wrong = Vec::new();
    for (name, make) in operations()
        .into_iter()
        .chain(cancel_tasks::ROWS)
        .chain(cancel_futures::ROWS)
        .chain(cancel_tls::ROWS)
    {
        for &until in untils {
            let result = run(|| {
                let operation = make();
                if until != Until::Forever && !operation.has_limit {
                    return Ok(());
                }
                test(operation, until)
            });
            if let Err(error) = result {
                wrong.push(format!("{name}, {until:?}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn expect(what: &str, end: End, expected: End) -> Result<(), String> {
    if end == expected {
        Ok(())
    } else {
        Err(format!("{what}: {end:?}, not {expected:?}"))
    }
}

fn cancel_me() {
    current().unwrap().cancel_token().cancel("the table");
}

/// Starts the wait in a coroutine of its own and lets it come to its wait.
fn start(wait: Wait, until: Until, is_shielded: bool) -> JoinHandle<End> {
    let handle = spawn_local(move || {
        if is_shielded {
            shield(|| wait(until))
        } else {
            wait(until)
        }
    });
    let is_waiting = || sinew::inspect::find(handle.id()).is_some_and(|info| info.wait.is_some());
    while !is_waiting() {
        assert!(!handle.is_finished(), "it does not wait");
        yield_now().unwrap();
    }
    handle
}

#[test]
fn cancelled_before_it_starts_it_never_runs() {
    for_each(&[Until::Forever, Until::Zero], |operation, until| {
        let handle = spawn_local(move || (operation.wait)(until));
        handle.cancel("the table");
        if let Some(before) = operation.before {
            before(&handle.unparker());
        }
        match handle.join() {
            Err(error) if error.is_cancelled() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn cancelled_before_the_wait_it_fails_at_once() {
    for until in [NOT_OVER, OVER] {
        for_each(&until, |operation, until| {
            cancel_me();
            expect("unshielded", (operation.wait)(until), End::Cancelled)
        });
    }
}

#[test]
fn what_is_there_already_wins_over_a_cancel_and_a_deadline() {
    for untils in [NOT_OVER, OVER] {
        for_each(&untils, |operation, until| {
            let Some(before) = operation.before else {
                return Ok(());
            };
            before(&current().unwrap().unparker());
            cancel_me();
            expect("there", (operation.wait)(until), End::Done)
        });
        for_each(&untils, |operation, until| {
            let Some(before) = operation.before else {
                return Ok(());
            };
            before(&current().unwrap().unparker());
            expect("there, not cancelled", (operation.wait)(until), End::Done)
        });
    }
}

#[test]
fn a_limit_that_is_over_is_a_timeout_if_shielded_or_not_cancelled() {
    for_each(&OVER, |operation, until| {
        expect("not cancelled", (operation.wait)(until), End::TimedOut)
    });
    for_each(&OVER, |operation, until| {
        cancel_me();
        let end = shield(|| (operation.wait)(until));
        expect("shielded", end, End::TimedOut)
    });
}

// contract: S12
// contract: S13
#[test]
fn cancelled_during_the_wait_it_ends_promptly() {
    for_each(&NOT_OVER, |operation, until| {
        let handle = start(operation.wait, until, false);
        handle.cancel("the table");
        // It is ready: this one's next turn comes after its.
        yield_now().unwrap();
        if !handle.is_finished() {
            return Err("still waits after a turn".to_owned());
        }
        expect("cancelled", handle.join().unwrap(), End::Cancelled)
    });
}

// contract: C28
#[test]
fn a_shield_defers_a_cancel_before_and_during_the_wait() {
    for is_before in [false, true] {
        for_each(&NOT_OVER, |operation, until| {
            let wait = operation.wait;
            let can_end = operation.during.is_some();
            let wait: Wait = Box::new(move |until| {
                if is_before {
                    cancel_me();
                }
                if can_end {
                    wait(until)
                } else {
                    // Only this ends it, and says so; a cancel would come out as what `wait` returns.
                    let limit = Duration::from_millis(5);
                    sinew::timeout(limit, || wait(until)).unwrap_or(End::TimedOut)
                }
            });
            let handle = start(wait, until, true);
            handle.cancel("the table");
            let Some(during) = operation.during else {
                return expect("shielded", handle.join().unwrap(), End::TimedOut);
            };
            for _ in 0..100 {
                yield_now().unwrap();
            }
            if handle.is_finished() {
                return Err("the shield did not hold".to_owned());
            }
            during(&handle.unparker());
            expect("shielded", handle.join().unwrap(), End::Done)
        });
    }
}

#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn cancelled_after_the_wait_is_complete_that_stands() {
    for_each(&NOT_OVER, |operation, until| {
        let Some(during) = operation.during else {
            return Ok(());
        };
        let handle = start(operation.wait, until, false);
        let unparker = handle.unparker();
        let cancel = {
            let token = handle.cancel_token();
            let id = handle.id();
            move || {
                let is_there = sinew::inspect::find(id).is_some();
                token.cancel("the table");
                is_there
            }
        };
        let was_in_time = if operation.is_io {
            // The one who cancels is made ready by the kernel first, by the same look of the scheduler's.
            let (reader, writer) = sinew::io::pipe().unwrap();
            let rival = spawn_local(move || {
                sinew::io::ready(&reader, Interest::Read, None).unwrap();
                cancel()
            });
            // Both wait, and the kernel has nothing left to report.
            sleep(Duration::from_nanos(1)).unwrap();
            write_byte(&writer);
            during(&unparker);
            rival.join().unwrap()
        } else {
            during(&unparker);
            cancel()
        };
        if !was_in_time {
            return Err("it had ended before the cancel".to_owned());
        }
        expect("complete", handle.join().unwrap(), End::Done)
    });
}

/// Of two sleepers that are due at the same look at the clock, the first cancels the other.
// contract: S13
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_sleep_that_is_over_stands() {
    let _watchdog = watchdog();
    run(|| {
        let start = now();
        let slept: Rc<OnceCell<JoinHandle<_>>> = Rc::default();
        let late = Rc::clone(&slept);
        let first = spawn_local(move || {
            sinew::sleep_until(start + Duration::from_millis(1)).unwrap();
            let second = late.get().unwrap();
            assert!(!second.is_finished(), "not the first");
            second.cancel("the table");
        });
        let second = spawn_local(move || sinew::sleep_until(start + Duration::from_millis(2)));
        assert!(slept.set(second).is_ok());
        yield_now().unwrap();
        // Both are due before the scheduler looks again.
        while now() < start + Duration::from_millis(3) {
            std::hint::spin_loop();
        }
        first.join().unwrap();
        let second = Rc::into_inner(slept).unwrap().into_inner().unwrap();
        assert_eq!(second.join().unwrap(), Ok(()));
    });
}
