//! The survey: each scheduler is asked to describe its own coroutines, in its frame, where none of them runs.
//!
//! Owns: the questions and the answers. Whoever asks waits for the answers, for so long as it likes; the work is done by
//! the owner threads, in slices.
//!
//! Invariants
//! - I1. In one visit no more than [`LOOKS_PER_VISIT`] control blocks are looked at and [`WALKS_PER_VISIT`] stacks are walked:
//!   that is how long a scheduler is held up. Between two visits it makes a round of its loop, of up to 64 switches.
//! - I2. A visit changes nothing of a coroutine.
//! - I3. An answer is handed over whole; a visitor that is dropped says so, whether it has answered or not. So whoever waits is
//!   told when nobody is left who could answer.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::WaitError;
use crate::event::Event;
use crate::inspect::listing::{self, Info};
use crate::scheduler::block::Block;
use crate::scheduler::current::{self, place};
use crate::scheduler::door::Door;
use crate::scheduler::visit::{Then, Visitor};
use crate::scheduler::{Scheduler, slab};

#[cfg(feature = "backtrace")]
use crate::inspect::unwind::{Images, Walker};

/// How many control blocks a scheduler looks at in one visit, those of other schedulers and of ended coroutines included.
pub const LOOKS_PER_VISIT: usize = 1024;
/// How many stacks a scheduler walks in one visit.
pub const WALKS_PER_VISIT: usize = 64;

/// A walked stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Trace {
    /// The innermost first; each good for a question to the debug information.
    pub(super) addresses: Box<[usize]>,
    /// Whether the first frame was reached.
    pub(super) is_whole: bool,
}

/// What is asked.
#[derive(Clone)]
pub(super) struct Question {
    /// One coroutine's id; all, if there is none.
    pub(super) only: Option<u64>,
    #[cfg(feature = "backtrace")]
    pub(super) images: Arc<Images>,
}

impl Question {
    pub(super) fn about(only: Option<u64>) -> Self {
        Self {
            only,
            #[cfg(feature = "backtrace")]
            images: Images::now(),
        }
    }
}

/// What a scheduler says of its coroutines.
#[derive(Default)]
pub(super) struct Answer {
    /// Each with the number of its backtrace, if it was walked.
    pub(super) coroutines: Vec<(Info, Option<usize>)>,
    /// The different backtraces.
    pub(super) traces: Vec<Trace>,
    /// In how many visits.
    pub(super) visits: usize,
}

/// What those who ask and those who answer share.
struct Survey {
    /// The answers that are in, each with the number of its scheduler.
    answers: Mutex<Vec<(usize, Answer)>>,
    /// How many visitors there are.
    outstanding: AtomicUsize,
    /// None is left.
    over: Event,
    /// Nobody waits any more.
    abandoned: AtomicBool,
}

impl Survey {
    fn answers(&self) -> MutexGuard<'_, Vec<(usize, Answer)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks these schedulers, and waits for their answers for up to `patience`. Where the caller may not wait, only the scheduler of
/// the calling thread is asked, if it is one of them, and all at once. That is also how it is asked about one coroutine.
///
/// The error is of the waiting; the answers are those that came.
pub(super) fn ask(
    question: &Question,
    doors: &[(usize, &'static Door)],
    patience: Duration,
) -> (Vec<(usize, Answer)>, Result<(), WaitError>) {
    let survey = Arc::new(Survey {
        answers: Mutex::new(Vec::new()),
        outstanding: AtomicUsize::new(doors.len()),
        over: Event::manual(),
        abandoned: AtomicBool::new(false),
    });
    let visitors = doors
        .iter()
        .map(|&(number, door)| (door, Box::new(Asker::new(&survey, number, question))));
    let waited = if doors.is_empty() {
        Ok(())
    } else if place().may_wait() && !(question.only.is_some() && are_here(doors)) {
        visitors.for_each(|(door, visitor)| door.send_visitor(visitor));
        survey.over.wait_timeout(patience)
    } else {
        visitors.for_each(|(door, mut visitor)| {
            current::with_scheduler(|scheduler| {
                if ptr::eq(scheduler.door(), door) {
                    while visitor.visit(scheduler) == Then::Return {}
                }
            });
        });
        Err(WaitError::State)
    };
    survey.abandoned.store(true, Relaxed);
    let answers = std::mem::take(&mut *survey.answers());
    (answers, waited)
}

/// Whether it is the calling thread's scheduler alone.
fn are_here(doors: &[(usize, &'static Door)]) -> bool {
    current::with_scheduler(|scheduler| {
        doors
            .iter()
            .all(|(_, door)| ptr::eq(*door, scheduler.door()))
    }) == Some(true)
}

/// The visitor that puts the question to a scheduler.
struct Asker {
    survey: Arc<Survey>,
    number: usize,
    only: Option<u64>,
    blocks: slab::Cursor,
    answer: Answer,
    #[cfg(feature = "backtrace")]
    walker: Walker,
    /// Where in the answer's list each backtrace is.
    places: HashMap<Trace, usize>,
}

impl Asker {
    fn new(survey: &Arc<Survey>, number: usize, question: &Question) -> Self {
        Self {
            survey: survey.clone(),
            number,
            only: question.only,
            blocks: slab::Cursor::new(),
            answer: Answer::default(),
            #[cfg(feature = "backtrace")]
            walker: Walker::new(question.images.clone()),
            places: HashMap::new(),
        }
    }

    /// Describes a coroutine of the scheduler. Says whether its stack was walked.
    fn describe(&mut self, block: &Block, scheduler: &Scheduler) -> bool {
        let Some(info) = listing::info(block) else {
            return false;
        };
        let trace = self.walk(block, scheduler);
        let was_walked = trace.is_some();
        let place = trace.map(|trace| self.place_of(trace));
        self.answer.coroutines.push((info, place));
        was_walked
    }

    #[cfg(feature = "backtrace")]
    fn walk(&mut self, block: &Block, scheduler: &Scheduler) -> Option<Trace> {
        self.walker.walk(block, scheduler)
    }

    #[cfg(not(feature = "backtrace"))]
    #[expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        reason = "the other one needs it"
    )]
    fn walk(&mut self, _block: &Block, _scheduler: &Scheduler) -> Option<Trace> {
        None
    }

    fn place_of(&mut self, trace: Trace) -> usize {
        if let Some(place) = self.places.get(&trace) {
            return *place;
        }
        let place = self.answer.traces.len();
        self.answer.traces.push(trace.clone());
        self.places.insert(trace, place);
        place
    }
}

impl Visitor for Asker {
    fn visit(&mut self, scheduler: &Scheduler) -> Then {
        if self.survey.abandoned.load(Relaxed) {
            return Then::Leave;
        }
        self.answer.visits += 1;
        // I1.
        let mut walks = 0;
        for _ in 0..LOOKS_PER_VISIT {
            // Of one coroutine there is one block.
            let is_over = self.only.is_some() && !self.answer.coroutines.is_empty();
            let next = if is_over { None } else { self.blocks.next() };
            let Some(block) = next else {
                let answer = std::mem::take(&mut self.answer);
                self.survey.answers().push((self.number, answer));
                return Then::Leave;
            };
            let is_asked_for = self.only.is_none_or(|only| only == block.id());
            if is_asked_for && scheduler.has(block) && self.describe(block, scheduler) {
                walks += 1;
                if walks == WALKS_PER_VISIT {
                    break;
                }
            }
        }
        Then::Return
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // ORDERING: the last one's answer is seen by whoever the event lets go on, through the event and the lock.
        if self.survey.outstanding.fetch_sub(1, AcqRel) == 1 {
            self.survey.over.set();
        }
    }
}
