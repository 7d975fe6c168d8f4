//! The forms of a wait beside each other at one channel, without any deadline: calls, futures (some given up at any moment), selects
//! and iterators. A value on its way to a future that goes must reach somebody else; a wake that were lost would hang.
//! And schedulers that end with forms of all kinds in them, while others wait for their coroutines.
//!
//! `SINEW_STRESS` multiplies the rounds; `SINEW_SEED` repeats a run, as far as threads can be repeated.

mod chance_rig;
mod io_rig;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::event::Event;
use sinew::future::{Promise, SharedFuture};
use sinew::sync::channel::{Receiver, Sender, bounded, rendezvous, unbounded};
use sinew::{
    JoinHandle, Scheduler, block_on, go_local, in_coroutine, run, select, spawn_local, yield_now,
};

fn pause(chance: &mut Chance) {
    match chance.below(3) {
        0 if in_coroutine() => {
            let _cancelled = yield_now().is_err();
        }
        0 => thread::yield_now(),
        _ => {}
    }
}

/// Polls a future once.
async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        Poll::Ready(match pin!(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

type Ends = (Sender<Box<usize>>, Receiver<Box<usize>>);

/// Sends all numbers, each in a form that chance decides.
fn send_all(sender: &Sender<Box<usize>>, numbers: std::ops::Range<usize>, chance: &mut Chance) {
    let never = Event::manual();
    let (_promise, nothing) = Promise::<()>::new();
    for number in numbers {
        let mut slot = Some(Box::new(number));
        while let Some(value) = slot.take() {
            match chance.below(6) {
                5 => select! {
                    sent = future(sender.send_async(value)) => sent.unwrap(),
                    _ = never.wait() => unreachable!(),
                }
                .unwrap(),
                0 => sender.send(value).unwrap(),
                1 => block_on(sender.send_async(value)).unwrap().unwrap(),
                2 => {
                    let mut sending = sender.send_async(value);
                    match block_on(once(&mut sending)).unwrap() {
                        Some(sent) => sent.unwrap(),
                        None => {
                            pause(chance);
                            slot = sending.give_up();
                        }
                    }
                }
                3 => {
                    slot = Some(value);
                    select! {
                        r = sender.send_from(&mut slot) => r.unwrap(),
                        _ = never.wait() => unreachable!(),
                        _ = nothing.wait() => unreachable!(),
                    }
                    .unwrap();
                }
                _ => slot = sender.try_send(value).err().map(|error| error.into_inner()),
            }
        }
    }
}

/// Receives until the channel is closed, each value in a form that chance decides.
fn receive_all(receiver: &Receiver<Box<usize>>, chance: &mut Chance) -> Vec<usize> {
    let (never, mut got) = (Event::manual(), Vec::new());
    let (_promise, nothing) = Promise::<()>::new();
    loop {
        let received = match chance.below(6) {
            // Of the two the one that does not happen is dropped, with or without a value.
            5 => select! {
                received = future(receiver.recv_async()) => received,
                received = future(receiver.recv_async()) => received,
                received = receiver.recv() => received,
            }
            .unwrap(),
            0 => receiver.recv(),
            1 => block_on(receiver.recv_async()).unwrap(),
            2 | 3 => {
                // Dropped with or without a value handed over to it.
                let mut receiving = receiver.recv_async();
                let polled = block_on(once(&mut receiving)).unwrap();
                pause(chance);
                match polled {
                    Some(received) => received,
                    None => continue,
                }
            }
            _ => select! {
                received = receiver.recv() => received,
                _ = never.wait() => unreachable!(),
                _ = nothing.wait() => unreachable!(),
            }
            .unwrap(),
        };
        match received {
            Ok(number) => got.push(*number),
            Err(_) => return got,
        }
    }
}

const EACH: usize = 1_500;

fn forms(channel: fn() -> Ends, chance: &mut Chance) {
    let each = EACH * stress();
    let (sender, receiver) = channel();
    let (give, take) = mpsc::channel();
    let mut threads = Vec::new();
    for place in 0..2 {
        // Coroutines of one scheduler, and plain threads.
        let (sender, receiver, give) = (sender.clone(), receiver.clone(), give.clone());
        let mut chance = chance.fork();
        threads.push(thread::spawn(move || {
            run(move || {
                for party in 0..3 {
                    let first = (place * 4 + party) * each;
                    let (sender, mut chances) = (sender.clone(), chance.fork());
                    go_local(move || send_all(&sender, first..first + each, &mut chances));
                    let (receiver, give) = (receiver.clone(), give.clone());
                    let mut chances = chance.fork();
                    go_local(move || give.send(receive_all(&receiver, &mut chances)).unwrap());
                }
            });
        }));
    }
    for place in 0..2 {
        let first = (place * 4 + 3) * each;
        let (sender, mut chances) = (sender.clone(), chance.fork());
        threads.push(thread::spawn(move || {
            send_all(&sender, first..first + each, &mut chances);
        }));
        let (receiver, give, mut chances) = (receiver.clone(), give.clone(), chance.fork());
        threads.push(thread::spawn(move || {
            give.send(receive_all(&receiver, &mut chances)).unwrap();
        }));
    }
    drop((sender, receiver, give));
    let mut got: Vec<usize> = take.into_iter().flatten().collect();
    for thread in threads {
        thread.join().unwrap();
    }
    got.sort_unstable();
    assert!(got.into_iter().eq(0..8 * each), "lost or doubled");
}

// contract: Y9, Y10, A2
#[test]
fn all_forms_at_one_channel_lose_and_double_nothing() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for channel in [
        || rendezvous(),
        || bounded(1),
        || bounded(3),
        || unbounded(),
    ] as [fn() -> Ends; 4]
    {
        forms(channel, &mut chance);
    }
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(made: &AtomicUsize, dropped: &Arc<AtomicUsize>) -> Self {
        made.fetch_add(1, SeqCst);
        Self(dropped.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

struct Shared {
    ends: [(Sender<Counted>, Receiver<Counted>); 2],
    event: Event,
    never: SharedFuture<()>,
    made: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

/// Waits in some form, with a value in its hands, and knows no end but its scheduler's.
fn dwell(shared: &Shared, chance: &mut Chance) {
    let mut held = Some(Counted::new(&shared.made, &shared.dropped));
    loop {
        let [first, second] = &shared.ends;
        let failed = match chance.below(7) {
            0 => first.1.recv().is_err(),
            1 => block_on(first.1.recv_async()).is_err(),
            2 => match first.0.send(Counted::new(&shared.made, &shared.dropped)) {
                Ok(()) => false,
                Err(error) => {
                    drop(error);
                    true
                }
            },
            3 => block_on(
                first
                    .0
                    .send_async(Counted::new(&shared.made, &shared.dropped)),
            )
            .is_err(),
            4 => shared.never.wait().is_err(),
            5 => shared.event.wait().is_err(),
            _ => select! {
                _ = first.0.send_from(&mut held) => {}
                value = second.1.recv() => held = held.take().or(value.ok()),
                _ = shared.event.wait() => {}
                _ = shared.never.wait() => {}
            }
            .is_err(),
        };
        // Every third one is deaf, and unwound by force.
        if failed && chance.below(3) > 0 {
            return;
        }
    }
}

/// Waits for the end of coroutines of schedulers that end, in some form.
fn attend(handle: JoinHandle<()>, shared: &Shared, chance: &mut Chance) {
    match chance.below(5) {
        0 => drop(handle.join()),
        1 => drop(block_on(handle.into_future())),
        2 => {
            let mut ending = handle.into_future();
            drop(block_on(once(&mut ending)));
            pause(chance);
        }
        3 => loop {
            let ended = select! {
                r = handle.wait() => { r.unwrap(); true }
                value = shared.ends[1].1.recv() => { drop(value); false }
                r = shared.ends[1].0.send(Counted::new(&shared.made, &shared.dropped)) => { drop(r); false }
            };
            if ended.unwrap() {
                assert!(handle.is_finished());
                break drop(handle.join());
            }
        },
        _ => {
            handle.cancel("not needed");
            handle.wait().unwrap();
        }
    }
}

// contract: Y10, Y11, A2
#[test]
fn schedulers_end_while_others_wait_for_what_is_in_them() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let (promise, never) = Promise::new();
    let shared = Arc::new(Shared {
        ends: [bounded(1), rendezvous()],
        event: Event::auto(),
        never,
        made: AtomicUsize::new(0),
        dropped: Arc::default(),
    });
    let (give, take) = mpsc::sync_channel::<JoinHandle<()>>(8);
    let attending = thread::spawn({
        let (shared, mut chance) = (shared.clone(), chance.fork());
        move || {
            run(|| {
                for (round, handle) in take.into_iter().enumerate() {
                    let (shared_, mut chances) = (shared.clone(), chance.fork());
                    if round % 2 == 0 {
                        thread::spawn(move || attend(handle, &shared_, &mut chances))
                            .join()
                            .unwrap();
                    } else {
                        spawn_local(move || attend(handle, &shared_, &mut chances))
                            .join()
                            .unwrap();
                    }
                }
            });
        }
    });
    for _ in 0..500 * stress() {
        Scheduler::anchor(|scheduler| {
            for _ in 0..4 {
                let (shared, mut chances) = (shared.clone(), chance.fork());
                let handle = spawn_local(move || dwell(&shared, &mut chances));
                let _unattended = give.try_send(handle).is_err();
            }
            for _ in 0..chance.below(20) {
                scheduler.step().unwrap();
            }
        });
    }
    drop(give);
    attending.join().unwrap();
    drop(promise);
    let shared = Arc::into_inner(shared).expect("nobody has it any more");
    let (made, dropped) = (shared.made.load(SeqCst), shared.dropped.clone());
    drop(shared);
    assert_eq!(dropped.load(SeqCst), made);
}
