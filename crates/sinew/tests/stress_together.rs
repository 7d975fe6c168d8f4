//! All primitives at once: tokens wander through channels, futures, promises, selects, bags and hands, under random deadlines,
//! limits, cancels and shields, over schedulers and plain threads. At the end each token is in one place, and every count is exact.
//!
//! `SINEW_STRESS` multiplies the rounds; `SINEW_SEED` repeats a run, as far as threads can be repeated.

mod chance_rig;
mod io_rig;

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::event::Event;
use sinew::future::{Promise, SharedFuture};
use sinew::sync::channel::{self, Receiver, Sender, bounded, oneshot, rendezvous, unbounded};
use sinew::sync::{Barrier, Condvar, Mutex, OnceCell, RwLock, Semaphore, WaitGroup};
use sinew::{
    block_on, block_on_timeout, go_local, in_coroutine, run, select, spawn_local, yield_now,
};

/// Where tokens come to that were dropped, by whomever.
#[derive(Default)]
struct Lost {
    numbers: std::sync::Mutex<Vec<usize>>,
    /// Whether drops panic now and then.
    is_rude: bool,
}

/// One of a fixed number of things, of which each is always in exactly one place.
struct Token {
    number: usize,
    lost: Arc<Lost>,
    event: Arc<Event>,
}

impl Drop for Token {
    fn drop(&mut self) {
        let count = {
            let mut lost = self.lost.numbers.lock().unwrap();
            lost.push(self.number);
            lost.len()
        };
        // Where a primitive's lock is held, that would hang.
        self.event.set();
        let is_rude = self.lost.is_rude && count.is_multiple_of(3);
        assert!(!is_rude || thread::panicking(), "rude");
    }
}

type Hand = Option<Token>;
type Ends<T> = (Sender<T>, Receiver<T>);

const TOKENS: usize = 24;
const PERMITS: usize = 3;
const PARTIES: usize = 3;

/// All that the actors meet at.
struct World {
    lost: Arc<Lost>,
    event: Arc<Event>,
    ends: [Ends<Token>; 3],
    bag: Mutex<Vec<Token>>,
    filled: Condvar,
    promises: Ends<Promise<Token>>,
    oneshots: Ends<channel::oneshot::Sender<Token>>,
    permits: Semaphore,
    inside: AtomicUsize,
    pair: RwLock<(usize, usize)>,
    written: AtomicUsize,
    barrier: Barrier,
    passed: AtomicUsize,
    led: AtomicUsize,
    news: channel::broadcast::Sender<usize>,
    told: AtomicUsize,
    latest: channel::watch::Sender<usize>,
    cell: OnceCell<usize>,
    filled_cells: AtomicUsize,
    busy: WaitGroup,
}

impl World {
    fn new(is_rude: bool) -> Arc<Self> {
        Arc::new(Self {
            lost: Arc::new(Lost {
                numbers: std::sync::Mutex::new((0..TOKENS).collect()),
                is_rude,
            }),
            event: Arc::new(Event::auto()),
            ends: [rendezvous(), bounded(2), unbounded()],
            bag: Mutex::new(Vec::new()),
            filled: Condvar::new(),
            promises: unbounded(),
            oneshots: unbounded(),
            permits: Semaphore::new(PERMITS),
            inside: AtomicUsize::new(0),
            pair: RwLock::new((0, 0)),
            written: AtomicUsize::new(0),
            barrier: Barrier::new(PARTIES),
            passed: AtomicUsize::new(0),
            led: AtomicUsize::new(0),
            news: channel::broadcast::broadcast(4).0,
            told: AtomicUsize::new(0),
            latest: channel::watch::watch(0).0,
            cell: OnceCell::new(),
            filled_cells: AtomicUsize::new(0),
            busy: WaitGroup::new(),
        })
    }

    fn find(&self) -> Hand {
        let number = self.lost.numbers.lock().unwrap().pop()?;
        Some(Token {
            number,
            lost: self.lost.clone(),
            event: self.event.clone(),
        })
    }

    fn ends(&self, chance: &mut Chance) -> &Ends<Token> {
        &self.ends[chance.below(self.ends.len())]
    }
}

/// Lets others run, whatever is held.
fn pause(chance: &mut Chance) {
    match chance.below(4) {
        0 if in_coroutine() => {
            let _cancelled = yield_now().is_err();
        }
        0 => thread::yield_now(),
        _ => {}
    }
}

/// Gives the token away, or keeps it, or loses it.
fn put(world: &World, hand: &mut Hand, chance: &mut Chance) {
    let Some(token) = hand.take() else { return };
    let (sender, _) = world.ends(chance);
    match chance.below(7) {
        0 => {
            let sent = sender.send_timeout(token, chance.moment());
            *hand = sent.err().map(channel::SendError::into_inner);
        }
        1 => {
            *hand = sender
                .try_send(token)
                .err()
                .map(channel::TrySendError::into_inner)
        }
        2 => {
            // A future that is dropped has sent the token, or drops it.
            if let Ok(Err(error)) = block_on_timeout(sender.send_async(token), chance.moment()) {
                *hand = Some(error.into_inner());
            }
        }
        3 => {
            let mut sending = sender.send_async(token);
            let polled = block_on(smol::future::poll_once(&mut sending));
            pause(chance);
            if !matches!(polled, Ok(Some(_))) {
                *hand = sending.give_up();
            }
        }
        4 => {
            *hand = Some(token);
            if let Ok(mut bag) = world.bag.lock_timeout(chance.moment()) {
                pause(chance);
                bag.extend(hand.take());
                drop(bag);
                world.filled.notify_one();
            }
        }
        5 => match world.promises.1.try_recv() {
            Ok(promise) => *hand = promise.resolve(token).err(),
            Err(_) => *hand = Some(token),
        },
        _ => match world.oneshots.1.try_recv() {
            Ok(oneshot) => {
                let sent = oneshot.send(token);
                *hand = sent.err().map(channel::SendError::into_inner);
            }
            Err(_) => *hand = Some(token),
        },
    }
}

/// Takes a token from somewhere, perhaps.
fn take(world: &World, hand: &mut Hand, chance: &mut Chance) {
    let (_, receiver) = world.ends(chance);
    *hand = match chance.below(7) {
        0 => receiver.recv_timeout(chance.moment()).ok(),
        1 => receiver.try_recv().ok(),
        2 => match block_on_timeout(receiver.recv_async(), chance.moment()) {
            Ok(received) => received.ok(),
            Err(_) => None,
        },
        3 => {
            // Dropped at any moment, also after a token was handed over to it: that goes back.
            let mut receiving = receiver.recv_async();
            let polled = block_on(smol::future::poll_once(&mut receiving));
            pause(chance);
            polled.ok().flatten().and_then(Result::ok)
        }
        4 => take_from_bag(world, chance),
        5 => return take_promised(world, hand, chance),
        _ => {
            let (sender, receiver) = oneshot();
            world.oneshots.0.send(sender).ok();
            *hand = match chance.below(2) {
                0 => receiver.recv_timeout(chance.moment()).ok(),
                _ => select! {
                    token = receiver.recv() => token.ok(),
                    token = world.ends[0].1.recv() => token.ok(),
                    () = after(chance.moment()) => None,
                }
                .ok()
                .flatten(),
            };
            return;
        }
    };
}

fn take_from_bag(world: &World, chance: &mut Chance) -> Hand {
    let mut bag = world.bag.lock_timeout(chance.moment()).ok()?;
    // Whatever ended the wait, the lock is held.
    let is_over = world
        .filled
        .wait_timeout_while(&mut bag, chance.moment(), |bag| bag.is_empty());
    let token = bag.pop();
    assert!(is_over.is_err() || token.is_some());
    token
}

/// (What a function returns is lost if a local's drop panics then, so this returns nothing; a second token may come with the future.)
fn take_promised(world: &World, hand: &mut Hand, chance: &mut Chance) {
    let (promise, future) = Promise::new();
    world.promises.0.send(promise).ok();
    let is_there = match chance.below(3) {
        0 => future.wait_timeout(chance.moment()).is_ok(),
        1 => block_on_timeout(async { future.wait_async().await.is_ok() }, chance.moment())
            .unwrap_or(false),
        _ => {
            let other = world.ends(chance).1.clone();
            let chosen = select! {
                r = future.wait() => { r.unwrap(); true }
                token = other.recv() => {
                    *hand = token.ok();
                    return;
                }
                () = after(chance.moment()) => false,
            };
            chosen.unwrap_or(false)
        }
    };
    assert!(!is_there || future.is_done());
    // The promise may be on its way out of its completer.
    *hand = future.try_take().ok().and_then(Result::ok);
}

/// Gives or takes, whichever comes first.
fn choose(world: &World, hand: &mut Hand, chance: &mut Chance) {
    let (to, from) = (&world.ends(chance).0, &world.ends(chance).1);
    let before = hand.as_ref().map(|token| token.number);
    let mut got = None;
    let future = SharedFuture::<()>::clone(&Promise::new().1);
    let (_promise, never) = Promise::<()>::new();
    let ready = if chance.below(8) == 0 { future } else { never };
    let chosen = select! {
        r = to.send_from(hand) => { r.unwrap(); 0 }
        token = from.recv() => { got = Some(token.unwrap()); 1 }
        r = world.event.wait() => { r.unwrap(); 2 }
        r = ready.wait() => { r.unwrap(); 3 }
        () = after(chance.moment()) => 4,
    };
    let after = hand.as_ref().map(|token| token.number);
    match chosen {
        Ok(0) => assert!(before.is_some() && after.is_none()),
        _ => assert_eq!(before, after),
    }
    assert_eq!(got.is_some(), chosen == Ok(1));
    if hand.is_none() {
        *hand = got;
    }
}

/// What needs no token.
fn meet(world: &World, chance: &mut Chance) {
    match chance.below(6) {
        0 => {
            let wanted = 1 + chance.below(PERMITS);
            if let Ok(permit) = world.permits.acquire_many_timeout(wanted, chance.moment()) {
                assert!(world.inside.fetch_add(wanted, SeqCst) + wanted <= PERMITS);
                pause(chance);
                world.inside.fetch_sub(wanted, SeqCst);
                drop(permit);
            }
        }
        1 => {
            if let Ok(mut pair) = world.pair.write_timeout(chance.moment()) {
                pair.0 += 1;
                pause(chance);
                pair.1 += 1;
                world.written.fetch_add(1, SeqCst);
            }
        }
        2 => {
            if let Ok(pair) = world.pair.read_timeout(chance.moment()) {
                pause(chance);
                assert_eq!(pair.0, pair.1);
            }
        }
        3 => {
            if let Ok(result) = world.barrier.wait_timeout(chance.moment()) {
                world.passed.fetch_add(1, SeqCst);
                world.led.fetch_add(usize::from(result.is_leader()), SeqCst);
            }
        }
        4 => {
            let number = world.told.fetch_add(1, SeqCst);
            // Nobody may listen any more.
            let _ = world.news.send(number).is_ok();
            world.latest.replace(number);
        }
        _ => {
            let fails = chance.below(4) > 0;
            let filled = world.cell.get_or_try_init_timeout(chance.moment(), || {
                pause(chance);
                if fails {
                    return Err(());
                }
                Ok(world.filled_cells.fetch_add(1, SeqCst))
            });
            assert!(!matches!(filled, Ok(number) if *number != 0));
        }
    }
}

fn deed(world: &World, hand: &mut Hand, chance: &mut Chance) {
    match chance.below(4) {
        0 => choose(world, hand, chance),
        1 => meet(world, chance),
        _ if hand.is_none() => {
            take(world, hand, chance);
            if hand.is_none() {
                *hand = world.find();
            }
        }
        _ => put(world, hand, chance),
    }
}

/// One deed, as it is or with something that ends it early.
fn act(world: &Arc<World>, hand: &mut Hand, chance: &mut Chance) {
    match chance.below(if in_coroutine() { 7 } else { 3 }) {
        0 | 1 => deed(world, hand, chance),
        2 => {
            let limit = chance.moment();
            let _in_time = sinew::timeout(limit, || deed(world, hand, chance)).is_ok();
        }
        3 => sinew::shield(|| deed(world, hand, chance)),
        4 => {
            let mut other = chance.fork();
            let mut held = hand.take();
            sinew::scope(|scope| {
                let child = scope.spawn(|| deed(world, &mut held, &mut other));
                pause(chance);
                if chance.below(2) == 0 {
                    child.cancel("by chance");
                }
                meet(world, chance);
            });
            *hand = held;
        }
        _ => {
            let (mut held, mut other, shared) = (hand.take(), chance.fork(), world.clone());
            let child = spawn_local(move || {
                shared.busy.add(1);
                let _busy = Done(&shared.busy);
                deed(&shared, &mut held, &mut other);
                held
            });
            for _ in 0..chance.below(4) {
                let _cancelled = yield_now().is_err();
            }
            if chance.below(2) == 0 {
                child.cancel("by chance");
            }
            let mut waits = 0;
            let joined = loop {
                let ended = select! {
                    r = child.wait() => { r.unwrap(); true }
                    () = after(chance.moment()) => false,
                };
                waits += 1;
                if ended == Ok(true) || waits > 3 {
                    break child.join();
                }
            };
            // Cancelled before it began: the token was dropped with the closure.
            *hand = joined.unwrap_or_else(|error| {
                assert!(error.is_cancelled() || world.lost.is_rude, "{error:?}");
                None
            });
        }
    }
}

struct Done<'a>(&'a WaitGroup);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// An actor: a number of deeds; what it holds at the end is dropped.
fn live(world: &Arc<World>, chance: &mut Chance, rounds: usize) {
    let mut hand = None;
    for _ in 0..rounds {
        if world.lost.is_rude {
            let acted = catch_unwind(AssertUnwindSafe(|| act(world, &mut hand, chance)));
            let _rude = acted.is_err();
        } else {
            act(world, &mut hand, chance);
        }
    }
    let _rude = catch_unwind(AssertUnwindSafe(|| drop(hand))).is_err();
}

/// Counts what it is told, and what it is told that it missed.
fn listen(receiver: &channel::broadcast::Receiver<usize>) -> usize {
    let mut count = 0;
    loop {
        match receiver.recv() {
            Ok(_) => count += 1,
            Err(channel::broadcast::RecvError::Lagged(missed)) => {
                count += usize::try_from(missed).unwrap()
            }
            Err(_) => return count,
        }
    }
}

fn storm(is_rude: bool, rounds: usize) {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let world = World::new(is_rude);
    let rounds = rounds * stress();
    let listeners: Vec<_> = (0..2)
        .map(|index| {
            let receiver = world.news.subscribe();
            thread::spawn(move || match index {
                0 => listen(&receiver),
                _ => run(move || listen(&receiver)),
            })
        })
        .collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut on_scheduler, mut on_thread) = (chance.fork(), chance.fork());
            let world = &world;
            scope.spawn(move || {
                run(|| {
                    for _ in 0..5 {
                        let (mut chance, world) = (on_scheduler.fork(), world.clone());
                        go_local(move || live(&world, &mut chance, rounds));
                    }
                });
            });
            scope.spawn(move || live(world, &mut on_thread, rounds));
        }
    });
    world.news.close();
    for listener in listeners {
        assert_eq!(listener.join().unwrap(), world.told.load(SeqCst));
    }
    check(&world);
}

/// Everything is over: where is it all?
fn check(world: &Arc<World>) {
    let taken = |tokens: &mut dyn Iterator<Item = Token>| {
        for token in tokens {
            let _rude = catch_unwind(AssertUnwindSafe(|| drop(token))).is_err();
        }
    };
    for (_, receiver) in &world.ends {
        taken(&mut std::iter::from_fn(|| receiver.try_recv().ok()));
    }
    let bag = mem::take(&mut *world.bag.try_lock().expect("nobody holds it"));
    taken(&mut bag.into_iter());
    let _rude = catch_unwind(AssertUnwindSafe(|| world.promises.1.close())).is_err();
    while let Ok(promise) = world.promises.1.try_recv() {
        let _rude = catch_unwind(AssertUnwindSafe(|| drop(promise))).is_err();
    }
    while world.oneshots.1.try_recv().is_ok() {}
    let mut numbers = mem::take(&mut *world.lost.numbers.lock().unwrap());
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(0..TOKENS),
        "lost or doubled: {numbers:?}"
    );
    assert_eq!(world.permits.value(), PERMITS);
    assert_eq!(world.inside.load(SeqCst), 0);
    let pair = *world.pair.try_write().expect("nobody holds it");
    let written = world.written.load(SeqCst);
    if world.lost.is_rude {
        assert!(pair.0 >= written);
    } else {
        assert_eq!(pair, (written, written));
    }
    assert_eq!(
        world.passed.load(SeqCst),
        PARTIES * world.led.load(SeqCst),
        "a barrier lets whole parties through"
    );
    assert!(world.filled_cells.load(SeqCst) <= 1);
    assert_eq!(world.busy.wait_timeout(Duration::ZERO), Ok(()));
}

// contract: Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y9, Y10, Y11, A2, T1
#[test]
fn all_primitives_together_count_exactly() {
    storm(false, 1_000);
}

/// The same where tokens panic as they are dropped, in channels, futures, promises and closures.
#[test]
fn all_primitives_together_with_rude_destructors() {
    storm(true, 500);
}
