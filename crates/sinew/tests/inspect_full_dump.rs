//! Dumps for which every scheduler is asked.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sinew::inspect::{
    Dump, Group, LOOKS_PER_VISIT, State, WALKS_PER_VISIT, find, for_each, full_dump, stats,
};
use sinew::sync::Mutex;
use sinew::{Builder, Progress, Scheduler, park, run, spawn_local, yield_now};

#[path = "inspect_json/mod.rs"]
mod json;

const PATIENCE: Duration = Duration::from_secs(120);

#[inline(never)]
fn waits_for(mutex: &Mutex<()>) {
    _ = mutex.lock().map(drop);
    black_box(());
}

#[track_caller]
fn group_of(dump: &Dump, id: u64) -> &Group {
    let mut groups = dump.groups().iter();
    groups
        .find(|group| group.members().iter().any(|info| info.id == id))
        .unwrap_or_else(|| panic!("no {id} in\n{dump}"))
}

/// Ends the parked ones.
fn wake(ids: &[u64]) {
    for &id in ids {
        sinew::cancel_id(id, "end").unwrap();
    }
}

// contract: O4, O5
#[test]
fn identical_backtraces_are_folded_whatever_is_waited_for() {
    run(|| {
        let mutexes: Vec<_> = (0..20).map(|_| Rc::new(Mutex::new(()))).collect();
        let held: Vec<_> = mutexes.iter().map(|mutex| mutex.lock().unwrap()).collect();
        let lockers: Vec<_> = mutexes
            .iter()
            .map(|mutex| {
                let mutex = mutex.clone();
                spawn_local(move || waits_for(&mutex)).id()
            })
            .collect();
        // A function of its own: those of other tests are folded in where the calls are the same.
        let waits_alone = || _ = park();
        let parked = Builder::new()
            .name("parked")
            .spawn_local(waits_alone)
            .unwrap();
        yield_now().unwrap();
        let unstarted = spawn_local(|| ());
        let dump = full_dump(PATIENCE);
        // The caller was parked while it waited for the answer.
        let me = sinew::current().unwrap().id();
        let mine = group_of(&dump, me).backtrace().unwrap();
        assert!(mine.to_string().contains("full_dump"), "{mine}");

        let group = group_of(&dump, lockers[0]);
        assert_eq!(group.members().len(), 20);
        let trace = group.backtrace().unwrap();
        assert!(
            trace.is_whole() && trace.to_string().contains("waits_for"),
            "{trace}"
        );
        assert_eq!(group_of(&dump, parked.id()).members().len(), 1);
        let objects: std::collections::HashSet<_> = group
            .members()
            .iter()
            .map(|info| info.wait.unwrap().object)
            .collect();
        assert_eq!(objects.len(), 20, "each is told with its own mutex");

        let text = dump.to_string();
        assert!(
            text.contains("20 coroutines suspended in mutex, spawned at"),
            "{text}"
        );
        assert_eq!(
            text.matches("inspect_full_dump::waits_for at").count(),
            1,
            "{text}"
        );
        assert!(!text.contains("did not answer"), "{text}");
        let json = dump.to_json();
        assert_eq!(json::check(&json), Ok(""), "{json}");
        assert_eq!(
            json.matches("inspect_full_dump::waits_for\"").count(),
            1,
            "{json}"
        );
        assert!(json.contains("\"is_whole\":true"), "{json}");
        // It was not started when it was seen, or has ended since.
        assert!(find(unstarted.id()).is_none());
        drop(held);
        parked.cancel("end");
    });
}

// contract: O2, O5
#[test]
fn what_has_not_started_is_listed_as_such() {
    Scheduler::anchor(|s| {
        let parked = spawn_local(park);
        while s.step().unwrap() == Progress::Made {}
        let unstarted = spawn_local(|| ()).id();
        // On a scheduler's frame nothing may wait: its own coroutines are described there and then, the others not.
        let dump = full_dump(PATIENCE);
        let group = group_of(&dump, unstarted);
        assert_eq!(group.members().len(), 1);
        let info = &group.members()[0];
        assert_eq!(
            (info.state, info.stack_bytes, info.stack_used_bytes),
            (State::Ready, None, None)
        );
        assert!(group.backtrace().is_none());
        assert!(
            dump.to_string()
                .contains("1 coroutine ready, not started, spawned at"),
            "{dump}"
        );
        assert!(group_of(&dump, parked.id()).backtrace().unwrap().is_whole());
        parked.cancel("end");
        s.run().unwrap();
    });
}

/// A scheduler on a thread of its own, with some parked coroutines, that spins until it is told to stop.
struct Busy {
    stop: Arc<AtomicBool>,
    parked: Vec<u64>,
    spinner: u64,
    thread: std::thread::JoinHandle<()>,
}

impl Busy {
    fn new(parked: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                run(move || {
                    let ids: Vec<_> = (0..parked).map(|_| spawn_local(park).id()).collect();
                    yield_now().unwrap();
                    tell.send((ids.clone(), sinew::current().unwrap().id()))
                        .unwrap();
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                    wake(&ids);
                });
            }
        });
        let (parked, spinner) = told.recv().unwrap();
        Self {
            stop,
            parked,
            spinner,
            thread,
        }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

// contract: O2, O5
#[test]
fn who_does_not_answer_is_named_and_its_coroutines_are_listed_from_the_records() {
    let busy = Busy::new(7);
    let dump = full_dump(Duration::from_millis(50));
    let silent: Vec<_> = dump
        .answered()
        .iter()
        .filter(|one| one.running == Some(busy.spinner))
        .collect();
    assert_eq!(silent.len(), 1);
    assert_eq!((silent[0].coroutines, silent[0].visits), (None, 0));
    let group = group_of(&dump, busy.parked[0]);
    assert!(group.backtrace().is_none());
    assert!(group.members().len() >= 7);
    let info = group.members()[0].clone();
    assert_eq!(
        (info.state, info.wait.unwrap().what),
        (State::Suspended, "park")
    );
    assert_eq!(
        group_of(&dump, busy.spinner).members()[0].state,
        State::Running
    );
    let text = dump.to_string();
    let said = format!(
        "did not answer within 50ms (#{} has its thread)",
        busy.spinner
    );
    assert!(text.contains(&said), "{text}");
    let json = dump.to_json();
    assert_eq!(json::check(&json), Ok(""), "{json}");
    assert!(
        json.contains(&format!(
            "\"coroutines\":null,\"visits\":0,\"running\":{}",
            busy.spinner
        )),
        "{json}"
    );
    busy.end();
}

// contract: O5
#[test]
fn all_schedulers_of_the_process_are_asked() {
    let (stop, stopped) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (stop, stopped, tell) = (stop.clone(), stopped.clone(), tell.clone());
            std::thread::spawn(move || {
                run(move || {
                    let parked = spawn_local(park);
                    yield_now().unwrap();
                    tell.send(parked.id()).unwrap();
                    while !stop.load(Relaxed) {
                        yield_now().unwrap();
                    }
                    stopped.fetch_add(1, Relaxed);
                    parked.cancel("end");
                });
            })
        })
        .collect();
    let ids: Vec<u64> = (0..3).map(|_| told.recv().unwrap()).collect();
    let dump = full_dump(PATIENCE);
    for id in ids {
        assert!(group_of(&dump, id).backtrace().unwrap().is_whole());
    }
    assert!(
        dump.answered()
            .iter()
            .filter(|one| one.coroutines >= Some(2))
            .count()
            >= 3
    );
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(stopped.load(Relaxed), 3);
}

/// A scheduler with a crowd that is parked, and a load beside it, until it is done.
fn crowded(crowd: usize, done: &AtomicBool, turns: &AtomicU64, tell: &mpsc::Sender<Vec<u64>>) {
    run(|| {
        let woken = Rc::new(Cell::new(0));
        let parked: Vec<_> = (0..crowd)
            .map(|_| {
                let woken = woken.clone();
                let body = move || {
                    _ = park();
                    woken.set(woken.get() + 1);
                };
                spawn_local(body)
            })
            .collect();
        yield_now().unwrap();
        tell.send(parked.iter().map(sinew::JoinHandle::id).collect::<Vec<_>>())
            .unwrap();
        // The load: it never stops for longer than a yield, and counts its turns.
        while !done.load(Relaxed) {
            turns.fetch_add(1, Relaxed);
            yield_now().unwrap();
        }
        assert_eq!(woken.get(), 0, "a dump wakes nobody");
        for handle in &parked {
            handle.unparker().unpark();
        }
        for handle in parked {
            handle.join().unwrap();
        }
        assert_eq!(woken.get(), crowd, "each can go on as if nothing had been");
    });
}

// contract: O4, O5
#[test]
fn dumps_of_a_crowd_in_a_loop_change_nothing_and_hold_the_scheduler_up_for_a_slice_at_a_time() {
    const ROUNDS: usize = 2;
    let crowd = 100_000;
    let done = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let turns = Arc::new(AtomicU64::new(0));
    let thread = std::thread::spawn({
        let (done, turns) = (done.clone(), turns.clone());
        move || crowded(crowd, &done, &turns, &tell)
    });
    let ids = told.recv().unwrap();
    let state_of_all = || {
        let mut all = Vec::new();
        for_each(|info| {
            if info.state == State::Suspended && info.wait.unwrap().what == "park" {
                all.push((info.id, info.wait, info.stack_used_bytes));
            }
        });
        all.sort_unstable_by_key(|(id, ..)| *id);
        all.retain(|(id, ..)| ids.binary_search(id).is_ok());
        all
    };
    assert!(ids.is_sorted());
    let before = state_of_all();
    assert_eq!(before.len(), crowd);
    for _ in 0..ROUNDS {
        let turns_before = turns.load(Relaxed);
        let dump = full_dump(PATIENCE);
        let turns_during = turns.load(Relaxed) - turns_before;
        let group = group_of(&dump, ids[0]);
        assert_eq!(group.members().len(), crowd);
        assert!(group.backtrace().unwrap().is_whole());
        let answered = dump
            .answered()
            .iter()
            .max_by_key(|one| one.coroutines)
            .unwrap();
        // The bound: so many walks and looks in one visit, and at least one turn of everyone's between two.
        assert!(answered.visits >= crowd / WALKS_PER_VISIT, "{answered:?}");
        assert!(
            turns_during as usize + 1 >= answered.visits,
            "{turns_during} turns in {answered:?}"
        );
    }
    const { assert!(WALKS_PER_VISIT <= 64 && LOOKS_PER_VISIT <= 1024) };
    assert!(before == state_of_all(), "what a dump sees is as before");
    done.store(true, Relaxed);
    thread.join().unwrap();
    assert!(stats().total.created >= crowd as u64);
}
