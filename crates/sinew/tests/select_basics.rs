//! `select!` and the selector: every kind of arm, from coroutines and from plain threads.

mod io_rig;

use std::cell::Cell;
use std::future::{IntoFuture, poll_fn};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use io_rig::{bare, place_at, watchdog};
use sinew::event::Event;
use sinew::future::Promise;
use sinew::io::Interest;
use sinew::sync::WaitGroup;
use sinew::sync::channel::{bounded, rendezvous, unbounded};
use sinew::sync::select::{self, Arm, Selector};
use sinew::time::now;
use sinew::{
    CancelToken, WaitError, current, go_local, run, select, sleep, spawn_local, yield_now,
};

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(1);

/// Runs a test in a coroutine, and on a plain thread beside a scheduler's.
fn everywhere(test: impl Fn() + Copy + Send + 'static) {
    let _watchdog = watchdog();
    run(test);
    std::thread::spawn(test).join().unwrap();
}

fn in_the_background(f: impl FnOnce() + Send + 'static) {
    if sinew::in_coroutine() {
        go_local(f);
    } else {
        std::thread::spawn(f);
    }
}

fn write_byte(fd: &impl AsFd) {
    assert_eq!(rustix::io::write(fd, &[1]), Ok(1));
}

// contract: Y10
#[test]
fn a_time_needs_no_pattern() {
    everywhere(|| {
        let (_sender, receiver) = bounded::<u32>(1);
        let over = select! {
            after(SOON) => "after",
            _ = receiver.recv() => "received",
        };
        assert_eq!(over, Ok("after"));
        let over = select! {
            _ = receiver.recv() => "received",
            at(now()) => { "at" }
            _ = after(HOUR) => "late",
        };
        assert_eq!(over, Ok("at"));
        let over = select! {
            after(HOUR) => "after",
            default => "nothing",
        };
        assert_eq!(over, "nothing");
        let over = select! { after(Duration::ZERO) => "alone" };
        assert_eq!(over, Ok("alone"));
    });
}

// contract: Y10
#[test]
fn every_kind_of_arm_takes_effect_at_once() {
    everywhere(|| {
        let (sender, receiver) = bounded(1);
        let never = Event::manual();
        let sent = select! {
            r = sender.send(5) => r.is_ok(),
            _ = never.wait() => false,
        };
        assert_eq!(sent, Ok(true));
        let got = select! {
            _ = never.wait() => 0,
            v = receiver.recv() => v.unwrap(),
        };
        assert_eq!(got, Ok(5));

        let mut slot = Some(6);
        let sent = select! { r = sender.send_from(&mut slot) => r };
        assert_eq!((sent, slot), (Ok(Ok(())), None));

        let event = Event::auto();
        event.set();
        assert_eq!(select! { r = event.wait() => r }, Ok(Ok(())));
        assert!(!event.is_set(), "it took the signal");

        let group = WaitGroup::new();
        assert_eq!(select! { r = group.wait() => r }, Ok(Ok(())));
        let token = CancelToken::new();
        token.cancel("now");
        assert_eq!(select! { r = token.wait() => r }, Ok(Ok(())));

        let (promise, future) = Promise::new();
        let there = select! { r = future.wait() => r.is_ok(), default => false };
        assert!(!there);
        promise.resolve(7).unwrap();
        let ended = select! { r = future.wait() => r.is_ok(), default => false };
        assert!(ended && matches!(future.get(), Some(Ok(7))));

        assert_eq!(select! { () = after(Duration::ZERO) => 1 }, Ok(1));
        assert_eq!(select! { () = at(now()) => 1, }, Ok(1));

        let (reader, writer) = sinew::io::pipe().unwrap();
        let ready = select! { r = ready(&writer, Interest::Write) => r.is_ok() };
        assert_eq!(ready, Ok(true));
        let ready = select! { _ = ready(&reader, Interest::Read) => true, default => false };
        assert!(!ready);
    });
}

// contract: Y10, Y11
#[test]
fn every_kind_of_arm_takes_effect_later() {
    everywhere(|| {
        let never = Arc::new(Event::manual());
        let (sender, receiver) = rendezvous();
        {
            let sender = sender.clone();
            in_the_background(move || sender.send(1).unwrap());
        }
        let got = select! { _ = never.wait() => None, v = receiver.recv() => v.ok() };
        assert_eq!(got, Ok(Some(1)));

        in_the_background(move || assert_eq!(receiver.recv(), Ok(2)));
        let sent = select! { _ = never.wait() => None, r = sender.send(2) => r.ok() };
        assert_eq!(sent, Ok(Some(())));

        let event = Arc::new(Event::auto());
        let later = event.clone();
        in_the_background(move || later.set());
        let got = select! { _ = never.wait() => 0, _ = event.wait() => 1, _ = after(HOUR) => 2 };
        assert_eq!(got, Ok(1));

        let group = WaitGroup::new();
        group.add(1);
        let done = group.clone();
        in_the_background(move || done.done());
        assert_eq!(
            select! { _ = group.wait() => 1, _ = never.wait() => 0 },
            Ok(1)
        );

        let token = CancelToken::new();
        let fire = token.clone();
        in_the_background(move || fire.cancel("later"));
        assert_eq!(
            select! { _ = token.wait() => 1, _ = never.wait() => 0 },
            Ok(1)
        );

        // Each end of a promise, the last one's drop included.
        for end in 0..3 {
            let (promise, future) = Promise::<u32>::new();
            in_the_background(move || match end {
                0 => promise.resolve(1).unwrap(),
                1 => drop(promise),
                _ => assert!(promise.cancel()),
            });
            let got = select! { _ = never.wait() => 0, r = future.wait() => { r.unwrap(); 1 } };
            assert_eq!(got, Ok(1));
            assert_eq!(future.get().unwrap().is_ok(), end == 0);
        }

        let start = now();
        let got = select! { _ = never.wait() => 0, () = after(HOUR) => 1, () = after(SOON) => 2 };
        assert_eq!(got, Ok(2));
        assert!(now() - start >= SOON);

        let (reader, writer) = sinew::io::pipe().unwrap();
        in_the_background(move || write_byte(&writer));
        let got = select! {
            _ = never.wait() => 0,
            r = ready(&reader, Interest::Read) => { r.unwrap(); 1 }
            () = after(HOUR) => 2,
        };
        assert_eq!(got, Ok(1));
    });
}

// contract: Y10, Y11
#[test]
fn beside_a_descriptor_everything_else_takes_effect_too() {
    everywhere(|| {
        let (reader, _writer) = sinew::io::pipe().unwrap();
        let event = Arc::new(Event::auto());
        for _ in 0..100 {
            let later = event.clone();
            in_the_background(move || later.set());
            let got = select! { _ = ready(&reader, Interest::Read) => 0, _ = event.wait() => 1 };
            assert_eq!(got, Ok(1));
        }
        let got = select! { _ = ready(&reader, Interest::Read) => 0, () = after(SOON) => 1 };
        assert_eq!(got, Ok(1));
    });
}

// contract: Y10
#[test]
fn a_join_consumes_its_handle_only_if_it_happens() {
    let _watchdog = watchdog();
    run(|| {
        let gate = Rc::new(Event::manual());
        let inner = gate.clone();
        let handle = spawn_local(move || inner.wait().map(|()| 7));
        let mut rounds = 0;
        let got = loop {
            // In the first round the handle is still there afterwards; in the second its end comes during the wait.
            select! {
                r = handle.join() => break r,
                () = after(SOON) => {
                    rounds += 1;
                    let opener = gate.clone();
                    go_local(move || opener.set());
                }
            }
            .unwrap();
        };
        assert_eq!((got.unwrap(), rounds), (Ok(7), 1));

        let handle = spawn_local(|| panic!("on purpose"));
        let got = select! { r = handle.join() => r.unwrap_err().is_panic() };
        assert_eq!(got, Ok(true));

        struct Held {
            handle: sinew::JoinHandle<u8>,
        }
        let held = Held {
            handle: spawn_local(|| 3),
        };
        assert_eq!(select! { r = held.handle.join() => r.unwrap() }, Ok(3));
    });
}

#[test]
fn a_coroutine_waits_for_its_own_end_only_beside_others() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = bounded::<sinew::JoinHandle<bool>>(1);
        let handle = spawn_local(move || {
            let me = receiver.recv().unwrap();
            let got = select! { _ = me.wait() => false, () = after(SOON) => true };
            got.unwrap()
        });
        let id = handle.id();
        sender.send(handle).unwrap();
        while sinew::inspect::find(id).is_some() {
            sleep(SOON).unwrap();
        }
    });
}

// contract: Y10
#[test]
fn what_did_not_happen_has_consumed_nothing() {
    everywhere(|| {
        let (sender, receiver) = rendezvous::<Box<u32>>();
        let (other, others) = unbounded();
        other.send(1).unwrap();
        let event = Event::auto();
        let mut slot = Some(Box::new(9));
        for _ in 0..10 {
            let got = select! {
                _ = sender.send_from(&mut slot) => 0,
                v = receiver.recv() => *v.unwrap(),
                _ = event.wait() => 0,
                v = others.recv() => v.unwrap(),
            };
            assert_eq!(got, Ok(1), "it never meets itself");
            assert_eq!(slot.as_deref(), Some(&9));
            other.send(1).unwrap();
        }
        event.set();
        let got = select! { _ = sender.send_from(&mut slot) => 0, () = after(Duration::ZERO) => 1 };
        assert_eq!(got, Ok(1));
        assert!(event.try_wait(), "the signal is still there");
        // Nobody is left in a queue.
        assert!(sender.try_send(Box::new(1)).is_err());
        assert!(receiver.try_recv().is_err());
    });
}

// contract: Y10
#[test]
fn it_never_meets_itself_while_it_waits() {
    everywhere(|| {
        let (sender, receiver) = rendezvous::<u32>();
        let got = select! {
            _ = sender.send(1) => 1,
            _ = receiver.recv() => 2,
            () = after(SOON) => 3,
        };
        assert_eq!(got, Ok(3));
        // Two of the kind meet.
        let (sender, receiver) = (Arc::new(sender), Arc::new(receiver));
        let (s, r) = (sender.clone(), receiver.clone());
        let (tell, told) = bounded(1);
        in_the_background(move || {
            let got = select! { _ = s.send(1) => 1, v = r.recv() => v.unwrap() + 1 };
            tell.send(got).unwrap();
        });
        let got = select! { _ = sender.send(1) => 1, v = receiver.recv() => v.unwrap() + 1 };
        let mut both = [got.unwrap(), told.recv().unwrap().unwrap()];
        both.sort_unstable();
        assert_eq!(both, [1, 2], "one sends, one receives");
    });
}

// contract: Y10
#[test]
fn of_two_ready_arms_each_has_its_turn() {
    everywhere(|| {
        let (a_sender, a) = unbounded();
        let (b_sender, b) = unbounded();
        let never = Event::manual();
        for n in 0..4000 {
            a_sender.send(n).unwrap();
            b_sender.send(n).unwrap();
        }
        let mut counts = [0_u32; 2];
        for _ in 0..2000 {
            let index: usize = select! {
                _ = a.recv() => 0,
                _ = never.wait() => 9,
                _ = never.wait() => 9,
                _ = b.recv() => 1,
            }
            .unwrap();
            counts[index] += 1;
        }
        assert!(counts.iter().all(|&count| count > 800), "{counts:?}");

        // Two that take their turns in lock-step: each gets both.
        let arms = [a.recv_arm(), b.recv_arm()];
        let mut selector: Selector = arms.iter().collect();
        for round in 0..100 {
            let chosen = selector.wait().unwrap();
            assert_eq!(chosen, round % 2, "strictly in turn");
            assert!(arms[chosen].take().unwrap().is_ok());
        }
    });
}

#[test]
fn in_lock_step_nobody_gets_the_same_arm_for_ever() {
    let _watchdog = watchdog();
    run(|| {
        let event = Rc::new(Event::manual());
        event.set();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let event = event.clone();
                spawn_local(move || {
                    let mut counts = [0; 2];
                    for _ in 0..300 {
                        let index: usize =
                            select! { _ = event.wait() => 0, _ = event.wait() => 1 }.unwrap();
                        counts[index] += 1;
                        yield_now().unwrap();
                    }
                    counts
                })
            })
            .collect();
        for worker in workers {
            let counts: [u32; 2] = worker.join().unwrap();
            assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
        }
    });
}

// contract: Y10
#[test]
fn a_closed_channel_ends_its_arms() {
    everywhere(|| {
        let (sender, receiver) = rendezvous::<u32>();
        let closer = receiver.clone();
        in_the_background(move || {
            closer.close();
        });
        let mut slot = Some(4);
        let got = select! { r = sender.send_from(&mut slot) => r, () = after(HOUR) => Ok(()) };
        assert_eq!(got, Ok(Err(WaitError::Closed)));
        assert_eq!(slot, Some(4), "it comes back");
        let error = select! { r = sender.send(5) => r.unwrap_err() }.unwrap();
        assert_eq!((error.value, error.reason), (5, WaitError::Closed));
        let got = select! { v = receiver.recv() => v };
        assert_eq!(got, Ok(Err(WaitError::Closed)));

        let (sender, receiver) = rendezvous::<u32>();
        in_the_background(move || drop(sender));
        let got = select! { v = receiver.recv() => v, () = after(HOUR) => Ok(1) };
        assert_eq!(got, Ok(Err(WaitError::Closed)));
    });
}

// contract: Y10
#[test]
fn a_cancel_ends_it_and_nothing_has_happened() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = rendezvous::<u32>();
        let wait = move || select! { v = receiver.recv() => v.is_ok(), () = after(HOUR) => true };
        let handle = spawn_local(wait);
        yield_now().unwrap();
        handle.cancel("enough");
        assert_eq!(handle.join().unwrap(), Err(WaitError::Cancelled));
        assert!(
            sender.is_closed(),
            "the receiver is gone, and was in no queue"
        );

        // Requested before: at once, unless an arm can happen.
        let handle = spawn_local(|| {
            current().unwrap().cancel_token().cancel("before");
            let (sender, receiver) = bounded(1);
            assert_eq!(
                select! { _ = receiver.recv() => () },
                Err(WaitError::Cancelled)
            );
            assert_eq!(select! { r = sender.send(1) => r.is_ok() }, Ok(true));
            assert_eq!(select! { _ = sender.send(1) => 1, default => 2 }, 2);
        });
        handle.join().unwrap();

        // A limit around it is a cancel too.
        let (_sender, receiver) = rendezvous::<u32>();
        let limited = sinew::timeout(SOON, || {
            select! { _ = receiver.recv() => (), () = after(HOUR) => () }
        });
        assert!(limited.is_err());
    });
}

#[test]
fn bodies_are_code_of_the_place() {
    fn search(receiver: &sinew::sync::channel::Receiver<u32>) -> Result<u32, WaitError> {
        loop {
            select! {
                value = receiver.recv() => {
                    let value = value?;
                    if value == 1 {
                        continue;
                    }
                    return Ok(value)
                }
                () = after(HOUR) => break Err(WaitError::Timeout),
            }?
        }
    }
    run(|| {
        let (sender, receiver) = unbounded();
        for n in [1, 1, 3] {
            sender.send(n).unwrap();
        }
        assert_eq!(search(&receiver), Ok(3));
        drop(sender);
        assert_eq!(search(&receiver), Err(WaitError::Closed));
        // Expressions of any form, a moved end, and a body that uses what an arm has borrowed.
        let pair = (unbounded::<String>(), 0);
        let mut slot = Some("x".to_owned());
        let sent = select! {
            r = pair.0.0.send_from(&mut slot) => r.map(|()| slot.is_none()),
            default => Ok(slot.is_some()),
        };
        assert_eq!(sent, Ok(true));
        let ends = [&pair.0.1];
        let got = select! { _ = ends[0].recv() => drop(pair), () = after(HOUR) => () };
        assert_eq!(got, Ok(()));
    });
}

#[test]
fn a_score_of_arms_fits() {
    everywhere(|| {
        let (e, f) = (Event::auto(), Event::auto());
        for _ in 0..3 {
            f.set();
            let got = select! {
                _ = e.wait() => 0, _ = e.wait() => 1, _ = e.wait() => 2, _ = e.wait() => 3, _ = e.wait() => 4,
                _ = e.wait() => 5, _ = e.wait() => 6, _ = e.wait() => 7, _ = e.wait() => 8, _ = e.wait() => 9,
                _ = e.wait() => 10, _ = e.wait() => 11, _ = e.wait() => 12, _ = e.wait() => 13, _ = e.wait() => 14,
                _ = e.wait() => 15, _ = e.wait() => 16, _ = e.wait() => 17, _ = e.wait() => 18, _ = f.wait() => 19,
            };
            assert_eq!(got, Ok(19));
        }
    });
}

/// Made in the order of the source, each once.
#[test]
fn what_arms_are_made_of_is_evaluated_once_in_order() {
    let _watchdog = watchdog();
    run(|| {
        let log = std::cell::RefCell::new(Vec::new());
        let note = |name| log.borrow_mut().push(name);
        let ((sender, receiver), event) = (bounded::<u8>(1), Event::manual());
        event.set();
        let got = select! {
            _ = { note("receiver"); &receiver }.recv() => 0,
            _ = { note("sender"); &sender }.send({ note("value"); 1 }) => 1,
            _ = { note("event"); &event }.wait() => 2,
            () = after({ note("time"); HOUR }) => 3,
        };
        assert!(got == Ok(1) || got == Ok(2));
        assert_eq!(
            *log.borrow(),
            ["receiver", "value", "sender", "event", "time"]
        );
    });
}

#[test]
fn a_selector_waits_for_a_set_made_at_run_time() {
    everywhere(|| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..50).map(|_| rendezvous::<u32>()).unzip();
        let far = senders.clone();
        in_the_background(move || {
            for (n, sender) in (0..).zip(far) {
                sender.send(n).unwrap();
            }
        });
        let arms: Vec<_> = receivers.iter().map(|r| r.recv_arm()).collect();
        let time = select::after(HOUR);
        let mut selector = Selector::new();
        assert!(selector.is_empty());
        selector.extend(&arms);
        assert_eq!((selector.add(&time), selector.len()), (50, 51));
        for (n, arm) in arms.iter().enumerate() {
            assert_eq!(selector.wait(), Ok(n));
            assert_eq!(arm.take(), Some(Ok(u32::try_from(n).unwrap())));
        }
        assert_eq!(selector.try_wait(), None);
        drop(senders);
        assert_eq!(selector.wait(), Ok(0), "behind the one that was last");
        assert_eq!(arms[0].take(), Some(Err(WaitError::Closed)));
    });
}

#[test]
fn a_selector_has_the_wait_forms() {
    everywhere(|| {
        let event = Event::auto();
        let arm = event.wait_arm();
        let mut selector = Selector::new();
        selector.add(&arm);
        assert_eq!(selector.try_wait(), None);
        assert_eq!(
            selector.wait_timeout(Duration::ZERO),
            Err(WaitError::Timeout)
        );
        assert_eq!(selector.wait_timeout(SOON), Err(WaitError::Timeout));
        assert_eq!(
            selector.wait_deadline(now() - SOON),
            Err(WaitError::Timeout)
        );
        event.set();
        assert_eq!(
            selector.wait_deadline(now() - SOON),
            Ok(0),
            "what is there wins"
        );
        assert_eq!(selector.try_wait(), Some(0), "its outcome was not taken");
        assert_eq!(arm.take(), Some(Ok(())));
        assert_eq!(arm.take(), None);
        let mut empty = Selector::new();
        assert_eq!(empty.wait_timeout(SOON), Err(WaitError::Timeout));
        // An arm without a value never happens.
        let (sender, _receiver) = bounded::<u32>(1);
        let mut slot = None;
        let arm = sender.send_arm(&mut slot);
        let mut selector = Selector::new();
        selector.add(&arm);
        assert_eq!(selector.wait_timeout(SOON), Err(WaitError::Timeout));
        sender.close();
        assert_eq!(selector.wait_timeout(SOON), Err(WaitError::Timeout));
    });
}

#[test]
fn an_arm_that_is_waited_for_twice_is_refused() {
    let _watchdog = watchdog();
    run(|| {
        let event = Event::auto();
        let arm = event.wait_arm();
        let mut twice = Selector::new();
        twice.add(&arm);
        twice.add(&arm);
        assert!(catch_unwind(AssertUnwindSafe(|| twice.try_wait())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| twice.wait())).is_err());
        let mut once = Selector::new();
        once.add(&arm);
        assert_eq!(once.try_wait(), None, "nothing is left of that");

        // By two coroutines at the same time.
        let event: &'static Event = Box::leak(Box::new(Event::auto()));
        let arm: &'static _ = Box::leak(Box::new(event.wait_arm()));
        let wait = move || {
            let arm: &'static dyn Arm = arm;
            let mut selector = Selector::new();
            selector.add(arm);
            selector.wait()
        };
        let first = spawn_local(wait);
        yield_now().unwrap();
        let second = spawn_local(wait);
        assert!(second.join().unwrap_err().is_panic());
        event.set();
        assert_eq!(first.join().unwrap(), Ok(0));
    });
}

#[test]
fn a_bad_descriptor_is_its_arm_s_outcome() {
    everywhere(|| {
        let file = std::fs::File::open("Cargo.toml").unwrap();
        let error = select! { r = ready(&file, Interest::Read) => r.unwrap_err().kind() };
        assert_eq!(error, Ok(std::io::ErrorKind::InvalidInput));
    });
    let _watchdog = watchdog();
    run(|| {
        let (reader, _writer) = sinew::io::pipe().unwrap();
        let reader = place_at(reader, 917);
        let wait = || {
            let end = select! {
                r = ready(&bare(917), Interest::Read) => r.unwrap_err().kind(),
                () = after(HOUR) => std::io::ErrorKind::TimedOut,
            };
            end.unwrap()
        };
        let waits = [spawn_local(wait), spawn_local(wait)];
        yield_now().unwrap();
        sinew::io::close(reader).unwrap();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), std::io::ErrorKind::NotConnected);
        }
    });
}

#[test]
fn on_a_scheduler_s_frame_it_does_not_wait() {
    let event = Event::auto();
    sinew::Scheduler::anchor(|_| {
        assert_eq!(select! { _ = event.wait() => 1 }, Err(WaitError::State));
        event.set();
        assert_eq!(select! { _ = event.wait() => 1 }, Ok(1));
    });
}

/// What a waiting select looks like from outside, and that its arms are made anew without leaving anything.
#[test]
fn it_can_be_listed_and_repeated() {
    let _watchdog = watchdog();
    run(|| {
        let (ping, pings) = rendezvous::<u32>();
        let (pong, pongs) = rendezvous::<u32>();
        let rounds = 10_000;
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let never = Rc::new(Event::manual());
        let other = never.clone();
        let handle = spawn_local(move || {
            for _ in 0..rounds {
                let n = select! { v = pings.recv() => v.unwrap(), _ = other.wait() => 0 }.unwrap();
                select! { r = pong.send(n + 1) => r.unwrap(), _ = other.wait() => () }.unwrap();
                counted.set(counted.get() + 1);
            }
        });
        yield_now().unwrap();
        let info = sinew::inspect::find(handle.id()).unwrap();
        assert_eq!(info.wait.unwrap().what, "select");
        for n in 0..rounds {
            ping.send(n).unwrap();
            let got = select! { v = pongs.recv() => v.unwrap(), _ = never.wait() => 0 };
            assert_eq!(got, Ok(n + 1));
        }
        handle.join().unwrap();
        assert_eq!(count.get(), rounds);
    });
}

// contract: Y10, A2
#[test]
fn a_std_future_is_an_arm() {
    everywhere(|| {
        let never = Event::manual();
        // At once, later, and given up and gone on with.
        let at_once = select! {
            _ = never.wait() => 0,
            v = future(pin!(async { 7 })) => v,
        };
        assert_eq!(at_once, Ok(7));
        let (sender, receiver) = rendezvous();
        let mut pair = pin!(async {
            let first: u32 = receiver.recv_async().await.unwrap();
            first + receiver.recv_async().await.unwrap()
        });
        let mut sent = Some(1);
        let mut given_up = 0;
        let sum = loop {
            if let Some(number) = sent.take() {
                let sender = sender.clone();
                in_the_background(move || sender.send(number).unwrap());
            }
            let sum = select! {
                sum = future(pair.as_mut()) => Some(sum),
                () = after(SOON) => None,
                _ = never.wait() => unreachable!(),
            };
            if let Some(sum) = sum.unwrap() {
                break sum;
            }
            given_up += 1;
            sent = (given_up == 1).then_some(2);
        };
        assert_eq!(sum, 3);

        // A JoinHandle, and a future beside another of the same channel.
        let handle = sinew::in_coroutine().then(|| spawn_local(|| 5));
        if let Some(handle) = handle {
            let five = select! { r = future(handle.into_future()) => r.unwrap() };
            assert_eq!(five, Ok(5));
        }
    });
}

/// A future that always wakes itself is pending for ever: others have their turns, and deadlines their time.
// contract: Y10, A2
#[test]
fn a_future_that_wakes_itself_holds_up_nobody() {
    everywhere(|| {
        let polls = Cell::new(0_u64);
        let restless = || {
            poll_fn(|context| {
                polls.set(polls.get() + 1);
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        let event = Arc::new(Event::auto());
        let later = event.clone();
        in_the_background(move || later.set());
        let got = select! { () = future(restless()) => 0, _ = event.wait() => 1 };
        assert_eq!(got, Ok(1));
        let got = select! { () = future(restless()) => 0, () = after(SOON) => 1 };
        assert_eq!(got, Ok(1));
        let arm = select::future(restless());
        let mut selector = Selector::new();
        selector.add(&arm);
        assert_eq!(selector.wait_timeout(SOON), Err(WaitError::Timeout));
        let limited = sinew::timeout(SOON, || select! { () = future(restless()) => {} });
        assert!(limited.is_err() || limited == Ok(Err(WaitError::Cancelled)));
        assert!(polls.get() > 4);
    });
}

// contract: Y10
#[test]
fn a_future_that_panics_leaves_the_select_in_order() {
    everywhere(|| {
        let event = Arc::new(Event::auto());
        let arm = select::future(Box::pin(async {
            sinew::future::SharedFuture::ready(Ok(())).await.unwrap();
            assert!(std::hint::black_box(false), "the future's");
        }));
        let wait = event.wait_arm();
        let mut selector = Selector::new();
        selector.add(&arm);
        selector.add(&wait);
        let panicked = catch_unwind(AssertUnwindSafe(|| selector.wait()));
        assert!(panicked.is_err());
        event.set();
        assert_eq!(selector.wait(), Ok(1));
        assert_eq!((arm.take(), wait.take()), (None, Some(Ok(()))));
        assert_eq!(selector.wait_timeout(SOON), Err(WaitError::Timeout));
    });
}

/// A waker that is kept rings when the select is long gone, and one that rings on another thread is not missed.
// contract: Y10, A2
#[test]
fn an_arm_s_wakers_outlive_it() {
    everywhere(|| {
        let kept = std::sync::Mutex::new(Vec::new());
        for round in 0..200_usize {
            let is_ready = Arc::new(AtomicBool::new(false));
            let mut is_first = true;
            let waiting = poll_fn(|context| {
                if is_ready.load(SeqCst) {
                    return Poll::Ready(());
                }
                if std::mem::take(&mut is_first) {
                    let (is_ready, waker) = (is_ready.clone(), context.waker().clone());
                    kept.lock().unwrap().push(waker.clone());
                    std::thread::spawn(move || {
                        is_ready.store(true, SeqCst);
                        waker.wake();
                    });
                }
                Poll::Pending
            });
            let got = select! { () = future(waiting) => round };
            assert_eq!(got, Ok(round));
        }
        for waker in kept.into_inner().unwrap() {
            waker.wake();
        }
    });
}
