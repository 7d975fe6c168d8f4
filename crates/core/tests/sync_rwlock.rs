//! The raw reader-writer lock: who goes in, in which order, and that nobody is forgotten.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "unlocks by hand, and guards a cell by the lock")]

mod party;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::RawRwLock;
use sinew_core::wait::{Reason, Suspend};

fn unlock_read<K: Sharing>(lock: &RawRwLock<K>) {
    assert!(lock.holders().0 > 0);
    // SAFETY: the tests call this only for readers.
    unsafe { lock.unlock_read() };
}

fn unlock_write<K: Sharing>(lock: &RawRwLock<K>) {
    assert_eq!(lock.holders(), (0, true));
    // SAFETY: the tests call this only for writers.
    unsafe { lock.unlock_write() };
}

fn downgrade<K: Sharing>(lock: &RawRwLock<K>) {
    assert_eq!(lock.holders(), (0, true));
    // SAFETY: the tests call this only for writers.
    unsafe { lock.downgrade() };
}

// contract: Y2
#[test]
fn many_read_or_one_writes() {
    static LOCK: RawRwLock = RawRwLock::new();
    assert!(LOCK.try_read() && LOCK.try_read());
    assert!(!LOCK.try_write(7));
    assert_eq!((LOCK.holders(), LOCK.owner()), ((2, false), 0));
    unlock_read(&LOCK);
    unlock_read(&LOCK);
    assert!(LOCK.try_write(7));
    assert_eq!((LOCK.holders(), LOCK.owner()), ((0, true), 7));
    assert!(!LOCK.try_read() && !LOCK.try_write(8));
    downgrade(&LOCK);
    assert_eq!((LOCK.holders(), LOCK.owner()), ((1, false), 0));
    assert!(LOCK.try_read() && !LOCK.try_write(8));
    unlock_read(&LOCK);
    unlock_read(&LOCK);
    assert_eq!(LOCK.holders(), (0, false));
}

// contract: Y2
#[test]
fn a_free_lock_wins_over_a_cancel_and_who_gave_up_is_not_in() {
    let lock = RawRwLock::new();
    let party = ThreadParty::with(Limit::Refused);
    assert_eq!(lock.read(&party), Ok(()));
    assert_eq!(lock.read(&party), Ok(()));
    assert_eq!(lock.write(&party, 1), Err(Reason::Cancelled));
    unlock_read(&lock);
    unlock_read(&lock);
    assert_eq!(lock.write(&party, 1), Ok(()));
    assert_eq!(lock.write(&party, 1), Err(Reason::Cancelled));
    for reason in [Reason::Timeout, Reason::Cancelled] {
        party.limit.set(Limit::After(3, reason));
        assert_eq!(lock.read(&party), Err(reason));
        assert_eq!(lock.write(&party, 2), Err(reason));
    }
    assert_eq!((lock.holders(), lock.owner()), ((0, true), 1));
    unlock_write(&lock);
    assert_eq!(lock.holders(), (0, false));
}

/// Readers come and go without end; a writer gets in when those are out that were in when it came.
// contract: Y2
#[test]
fn readers_do_not_starve_a_writer() {
    let lock = RawRwLock::new();
    assert!(lock.try_read() && lock.try_read());
    let writer = ScriptParty::new(|now| {
        assert!(!lock.try_read(), "past the writer");
        unlock_read(&lock);
        assert!(!lock.try_read(), "past the writer");
        unlock_read(&lock);
        assert_eq!(lock.holders(), (0, true), "handed over");
        assert!(!now.strike(Reason::Timeout), "a claim stands");
    });
    assert_eq!(lock.write(&writer, 2), Ok(()));
    assert_eq!(lock.owner(), 2);
}

/// Two writers wait in front of two readers; those go in after the first writer.
// contract: Y2
#[test]
fn writers_do_not_starve_readers() {
    let lock = RawRwLock::new();
    assert!(lock.try_write(1));
    let went = RefCell::new(Vec::new());
    let first = ScriptParty::new(|_| {
        let second = ScriptParty::new(|_| {
            let one = ScriptParty::new(|_| {
                let other = ScriptParty::new(|_| {
                    unlock_write(&lock);
                    assert_eq!(lock.holders(), (2, false), "the readers' turn");
                    assert!(!lock.try_read(), "past the writers");
                });
                assert_eq!(lock.read(&other), Ok(()));
                went.borrow_mut().push("other");
            });
            assert_eq!(lock.read(&one), Ok(()));
            went.borrow_mut().push("one");
            unlock_read(&lock);
            unlock_read(&lock);
            assert_eq!((lock.holders(), lock.owner()), ((0, true), 2));
            unlock_write(&lock);
            assert_eq!((lock.holders(), lock.owner()), ((0, true), 3));
        });
        assert_eq!(lock.write(&second, 3), Ok(()));
        went.borrow_mut().push("second");
    });
    assert_eq!(lock.write(&first, 2), Ok(()));
    assert_eq!(*went.borrow(), ["other", "one", "second"]);
}

// contract: Y2
#[test]
fn a_downgrade_lets_waiting_readers_in_but_no_writer() {
    let lock = RawRwLock::new();
    assert!(lock.try_write(1));
    let writer = ScriptParty::new(|_| {
        let reader = ScriptParty::new(|_| {
            downgrade(&lock);
            assert_eq!(lock.holders(), (2, false));
        });
        assert_eq!(lock.read(&reader), Ok(()));
        unlock_read(&lock);
        assert_eq!(lock.holders(), (1, false));
        unlock_read(&lock);
    });
    assert_eq!(lock.write(&writer, 2), Ok(()));
}

// contract: Y2
#[test]
fn a_writer_that_gives_up_is_not_in_the_way() {
    let lock = RawRwLock::new();
    assert!(lock.try_read());
    let readers = Cell::new(0);
    let writer = ScriptParty::new(|now| {
        let reader = ScriptParty::new(|reader| {
            assert!(now.strike(Reason::Cancelled));
            assert!(lock.try_read(), "nobody is in the way");
            assert!(!reader.strike(Reason::Timeout), "it was let in by that");
        });
        assert_eq!(lock.read(&reader), Ok(()));
        readers.set(lock.holders().0);
    });
    assert_eq!(lock.write(&writer, 2), Err(Reason::Cancelled));
    assert_eq!(readers.get(), 3);
}

/// Nobody comes who would put it right: the writer that gives up does.
// contract: Y2
#[test]
fn readers_behind_a_writer_that_gives_up_are_let_in_by_it() {
    let lock = RawRwLock::new();
    assert!(lock.try_read());
    thread::scope(|scope| {
        let reader = Cell::new(None);
        let writer = ScriptParty::new(|now| {
            let (tell, told) = mpsc::channel();
            let lock = &lock;
            reader.set(Some(scope.spawn(move || {
                // It fails, instead of hanging, if it is forgotten.
                let party = ThreadParty::with(Limit::After(1_000_000, Reason::Timeout));
                tell.send(party.signals()).unwrap();
                lock.read(&party)
            })));
            told.recv().unwrap().wait_until_waiting(1);
            assert!(now.strike(Reason::Timeout));
        });
        assert_eq!(lock.write(&writer, 1), Err(Reason::Timeout));
        assert_eq!(reader.take().unwrap().join().unwrap(), Ok(()));
    });
    assert_eq!(lock.holders(), (2, false));
}

/// What the lock should do, written down naively.
#[derive(Default)]
struct Model {
    readers: usize,
    writer: Option<u64>,
    waiting_readers: VecDeque<usize>,
    waiting_writers: VecDeque<usize>,
    writes: Vec<bool>,
    ended: Vec<Option<Result<(), Reason>>>,
}

impl Model {
    fn let_readers_in(&mut self) {
        while let Some(one) = self.waiting_readers.pop_front() {
            self.readers += 1;
            self.ended[one] = Some(Ok(()));
        }
    }

    fn admit(&mut self, readers_first: bool) {
        if self.writer.is_some() {
            return;
        }
        if readers_first {
            self.let_readers_in();
        }
        if self.readers == 0
            && let Some(one) = self.waiting_writers.pop_front()
        {
            self.writer = Some(one as u64);
            self.ended[one] = Some(Ok(()));
        } else if self.waiting_writers.is_empty() {
            self.let_readers_in();
        }
    }

    fn try_read(&mut self) -> bool {
        self.admit(false);
        let enters = self.writer.is_none() && self.waiting_writers.is_empty();
        self.readers += usize::from(enters);
        enters
    }

    fn try_write(&mut self, owner: u64) -> bool {
        let enters = self.writer.is_none() && self.readers == 0;
        if enters {
            self.writer = Some(owner);
        }
        enters
    }
}

struct Both<K: Sharing> {
    lock: RawRwLock<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Both<K> {
    fn compare(&self, model: &Model) {
        assert_eq!(self.lock.holders(), (model.readers, model.writer.is_some()));
        assert_eq!(self.lock.owner(), model.writer.unwrap_or(0));
    }
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let writes = self.below(2) == 0;
        let mut model = self.model.borrow_mut();
        let me = model.ended.len();
        let enters = if writes {
            model.try_write(me as u64)
        } else {
            model.try_read()
        };
        model.writes.push(writes);
        model.ended.push(enters.then_some(Ok(())));
        if !enters && writes {
            model.waiting_writers.push_back(me);
        } else if !enters {
            model.waiting_readers.push_back(me);
        }
        me
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().ended[one].is_some()
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let mut model = self.model.borrow_mut();
        let was_waiting = model.ended[one].is_none();
        if was_waiting {
            model.ended[one] = Some(Err(reason));
            model.waiting_readers.retain(|&waiting| waiting != one);
            model.waiting_writers.retain(|&waiting| waiting != one);
        }
        was_waiting
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let writes = self.model.borrow().writes[one];
        let result = if writes {
            self.lock.write(party, one as u64)
        } else {
            self.lock.read(party)
        };
        let mut model = self.model.borrow_mut();
        assert_eq!(Some(result), model.ended[one]);
        if writes && result.is_err() {
            model.admit(false);
        }
        self.compare(&model);
    }

    fn call(&self) {
        let kind = self.below(8);
        let mut model = self.model.borrow_mut();
        match kind {
            0 => assert_eq!(self.lock.try_read(), model.try_read()),
            1 => assert_eq!(self.lock.try_write(9), model.try_write(9)),
            2 if model.writer.is_some() => {
                downgrade(&self.lock);
                model.writer = None;
                model.let_readers_in();
                model.readers += 1;
            }
            _ if model.writer.is_some() => {
                unlock_write(&self.lock);
                model.writer = None;
                model.admit(true);
            }
            _ if model.readers > 0 => {
                unlock_read(&self.lock);
                model.readers -= 1;
                if model.readers == 0 {
                    model.admit(false);
                }
            }
            _ => {}
        }
        self.compare(&model);
    }
}

// contract: Y2, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for _ in 0..rounds(3_000) {
        let both = Both {
            lock: RawRwLock::<K>::of_kind(),
            model: RefCell::default(),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
    }
}

/// A value that is consistent unless somebody reads while another writes.
struct Guarded {
    lock: RawRwLock,
    value: UnsafeCell<[u64; 2]>,
}

// SAFETY: the value is written by writers only, and read by those who are in.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn write(&self, mut between: impl FnMut()) {
        let value = self.value.get();
        // SAFETY: a writer is in, alone.
        let [first, second] = unsafe { *value };
        assert_eq!(first, second);
        // SAFETY: as above.
        unsafe { (*value)[0] += 1 };
        between();
        // SAFETY: as above.
        unsafe { (*value)[1] += 1 };
    }

    fn read(&self) {
        // SAFETY: a reader is in, so no writer.
        let [first, second] = unsafe { *self.value.get() };
        assert_eq!(first, second);
    }
}

// contract: Y2, Y11
#[test]
fn threads_count_exactly_under_timeouts_and_cancels() {
    let guarded = Guarded {
        lock: RawRwLock::new(),
        value: UnsafeCell::new([0; 2]),
    };
    let written = AtomicU64::new(0);
    let mut chance = Chance::new();
    thread::scope(|scope| {
        for owner in 1..=4 {
            let mut chance = chance.fork();
            let (guarded, written) = (&guarded, &written);
            scope.spawn(move || {
                let party = ThreadParty::new();
                for _ in 0..rounds(30_000) {
                    party.limit.set(chance.limit());
                    let pause = chance.below(4) == 0;
                    let pause = move || {
                        if pause {
                            thread::yield_now();
                        }
                    };
                    match chance.below(4) {
                        0 => {
                            if guarded.lock.write(&party, owner).is_ok() {
                                assert_eq!(guarded.lock.owner(), owner);
                                guarded.write(pause);
                                written.fetch_add(1, SeqCst);
                                unlock_write(&guarded.lock);
                            }
                        }
                        1 => {
                            if guarded.lock.write(&party, owner).is_ok() {
                                guarded.write(pause);
                                written.fetch_add(1, SeqCst);
                                downgrade(&guarded.lock);
                                guarded.read();
                                unlock_read(&guarded.lock);
                            }
                        }
                        _ => {
                            if guarded.lock.read(&party).is_ok() {
                                guarded.read();
                                pause();
                                guarded.read();
                                unlock_read(&guarded.lock);
                            }
                        }
                    }
                }
            });
        }
    });
    let total = written.into_inner();
    assert_eq!(guarded.value.into_inner(), [total; 2]);
    assert_eq!(guarded.lock.holders(), (0, false));
}

/// Readers never leave the lock free, and a writer gets in nevertheless, a hundred times; the same the other way round.
// contract: Y2
#[test]
fn neither_side_starves_the_other_among_threads() {
    for starved_writes in [true, false] {
        let lock = RawRwLock::new();
        let is_over = AtomicBool::new(false);
        let (lock, is_over) = (&lock, &is_over);
        thread::scope(|scope| {
            for owner in 1..=3 {
                scope.spawn(move || {
                    let party = ThreadParty::new();
                    while !is_over.load(SeqCst) {
                        if starved_writes {
                            lock.read(&party).unwrap();
                            thread::yield_now();
                            unlock_read(lock);
                        } else {
                            lock.write(&party, owner).unwrap();
                            thread::yield_now();
                            unlock_write(lock);
                        }
                    }
                });
            }
            let party = ThreadParty::new();
            for _ in 0..100 {
                if starved_writes {
                    lock.write(&party, 9).unwrap();
                    unlock_write(lock);
                } else {
                    lock.read(&party).unwrap();
                    unlock_read(lock);
                }
            }
            is_over.store(true, SeqCst);
        });
    }
}
