//! Names to addresses, by the system's blocking resolver on a few threads.
//!
//! Owns: the queue of requests and the threads that serve it. They start as needed, [`THREADS_MAX`] at most, and end when they
//! have had nothing to do for a while. There are [`REQUESTS_MAX`] requests at most; who comes then waits for room.
//! Thread: any.
//!
//! Invariants
//! - I1. A request that nobody waits for any more is not begun, and takes no room unless it was begun before.
//! - I2. A queued request has a thread that will come to it: none is queued if there is no thread and none can be started.
#![expect(unsafe_code, reason = "waits in a request's queue")]

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, ptr};

use sinew_core::lock::Lock;
use sinew_core::wait::{Kind, Queue, Reason, Record, wait_in};

use crate::error::WaitError;
use crate::scheduler::current::{Place, place};
use crate::scheduler::waiting::Waiting;
use crate::sync::{Permit, Semaphore};

#[cfg(test)]
mod tests;

/// How many lookups run at the same time.
const THREADS_MAX: usize = 8;
/// How many lookups run or wait for a thread.
const REQUESTS_MAX: usize = 1_024;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(5);

type Answer = io::Result<Vec<SocketAddr>>;

/// One lookup.
struct Request {
    host: String,
    port: u16,
    /// Who knows the answer: the system.
    ask: fn(&str, u16) -> Answer,
    state: Lock<State>,
    /// It takes room until it goes.
    _room: Permit<'static>,
}

struct State {
    answer: Option<Answer>,
    /// The one who asked.
    asker: Queue,
}

struct Pool {
    requests: VecDeque<Arc<Request>>,
    threads: usize,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    requests: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static WORK: Condvar = Condvar::new();
static ROOM: Semaphore = Semaphore::new(REQUESTS_MAX);

fn lock() -> MutexGuard<'static, Pool> {
    // No foreign code runs under the lock.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses of a name. A plain thread asks for itself, unless there is a limit to how long that may take.
pub(super) fn resolve(host: &str, port: u16) -> Answer {
    match place() {
        Place::Thread if Waiting::new(None)?.deadline_ns().is_none() => ask_system(host, port),
        Place::Thread => resolve_elsewhere(host, port, ask_system),
        Place::Frame => Err(WaitError::State.into()),
        Place::Coroutine(..) => resolve_elsewhere(host, port, ask_system),
    }
}

/// Has a resolver thread ask, and waits for the answer.
fn resolve_elsewhere(host: &str, port: u16, ask: fn(&str, u16) -> Answer) -> Answer {
    let room = ROOM.acquire()?;
    let request = Arc::new(Request {
        host: host.to_owned(),
        port,
        ask,
        state: Lock::new(State {
            answer: None,
            asker: Queue::new(),
        }),
        _room: room,
    });
    submit(&request)?;
    let asker = Asker(request);
    asker.0.wait()
}

/// The one who waits for a request: takes it out of the queue when he goes.
struct Asker(Arc<Request>);

impl Drop for Asker {
    fn drop(&mut self) {
        let mut pool = lock();
        let is_mine = |request: &Arc<Request>| Arc::ptr_eq(request, &self.0);
        // The last ones are those that are still there.
        if let Some(index) = pool.requests.iter().rposition(is_mine) {
            let mine = pool.requests.remove(index);
            drop(pool);
            drop(mine);
        }
    }
}

fn ask_system(host: &str, port: u16) -> Answer {
    let addresses = (host, port).to_socket_addrs();
    let addresses = addresses
        .map_err(|error| io::Error::new(error.kind(), format!("resolving {host}: {error}")))?;
    Ok(addresses.collect())
}

fn submit(request: &Arc<Request>) -> io::Result<()> {
    let mut pool = lock();
    pool.requests.push_back(Arc::clone(request));
    if pool.requests.len() > pool.idle && pool.threads < THREADS_MAX {
        let builder = std::thread::Builder::new().name("sinew-resolver".into());
        match builder.spawn(serve) {
            Ok(_detached) => pool.threads += 1,
            Err(error) if pool.threads == 0 => {
                pool.requests.pop_back();
                return Err(error);
            }
            // Those that there are will come to it.
            Err(_) => {}
        }
    }
    drop(pool);
    WORK.notify_one();
    Ok(())
}

/// A resolver thread.
fn serve() {
    let mut pool = lock();
    loop {
        if let Some(request) = pool.requests.pop_front() {
            drop(pool);
            // I1: the asker's count is the other one.
            if Arc::strong_count(&request) > 1 {
                request.answer((request.ask)(&request.host, request.port));
            }
            drop(request);
            pool = lock();
            continue;
        }
        pool.idle += 1;
        let (guard, waited) = WORK
            .wait_timeout(pool, IDLE)
            .unwrap_or_else(PoisonError::into_inner);
        pool = guard;
        pool.idle -= 1;
        if waited.timed_out() && pool.requests.is_empty() {
            pool.threads -= 1;
            return;
        }
    }
}

impl Request {
    fn answer(&self, answer: Answer) {
        let mut state = self.state.lock();
        state.answer = Some(answer);
        let asker = state.asker.claim_front(Reason::Woken);
        drop(state);
        if let Some(asker) = asker {
            asker.wake();
        }
    }

    fn wait(&self) -> Answer {
        let waiting = Waiting::new(None)?;
        let mut guard = self.state.lock();
        if let Some(answer) = guard.answer.take() {
            return answer;
        }
        let record = Record {
            kind: Kind::Errand,
            object: 0,
            owner: 0,
        };
        // SAFETY: always the same queue; the asker's slot is not used.
        let reason = unsafe {
            wait_in(
                &self.state,
                guard,
                |state| &mut state.asker,
                ptr::null_mut(),
                &waiting,
                record,
            )
        };
        let answer = self.state.lock().answer.take();
        match answer {
            Some(answer) => answer,
            None => {
                waiting.result(reason)?;
                Err(WaitError::Closed.into())
            }
        }
    }
}
