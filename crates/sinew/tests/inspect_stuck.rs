//! What a dump calls possibly stuck. Alone in its process: all schedulers of that are in a dump.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sinew::inspect::{Dump, State, deadlocks, find, full_dump};
use sinew::sync::channel::{Sender, bounded};
use sinew::{current, exit_all, go_local, run_code, sleep};

const PATIENCE: Duration = Duration::from_secs(120);

/// A scheduler whose first coroutine waits in a channel, and perhaps a second one for an hour.
struct Waiting {
    thread: thread::JoinHandle<i32>,
    sender: Sender<()>,
}

impl Waiting {
    fn new(beside_a_sleeper: bool) -> Self {
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            run_code(|| {
                let (sender, receiver) = bounded(1);
                if beside_a_sleeper {
                    go_local(|| _ = sleep(Duration::from_secs(3_600)));
                }
                tell.send((sender, current().unwrap().id())).unwrap();
                receiver.recv().unwrap_err();
                exit_all(7).unwrap();
                0
            })
        });
        let (sender, id) = told.recv().unwrap();
        while find(id).unwrap().state != State::Suspended {
            thread::yield_now();
        }
        Self { thread, sender }
    }

    fn end(self) {
        drop(self.sender);
        assert_eq!(self.thread.join().unwrap(), 7);
    }
}

fn stuck_in(dump: &Dump) -> usize {
    let answered = dump.answered().iter();
    answered.filter(|one| one.is_possibly_stuck).count()
}

// contract: S25
#[test]
fn a_scheduler_on_which_nobody_may_ever_run_is_called_possibly_stuck() {
    let timed = Waiting::new(true);
    let dump = full_dump(PATIENCE);
    assert_eq!(stuck_in(&dump), 0, "{dump}");
    assert!(!dump.to_string().contains("possibly stuck"), "{dump}");

    let stuck = Waiting::new(false);
    let dump = full_dump(PATIENCE);
    assert_eq!(stuck_in(&dump), 1, "{dump}");
    assert!(
        dump.to_string().contains("is possibly stuck: nobody"),
        "{dump}"
    );
    let json = dump.to_json();
    assert_eq!(
        json.matches("\"is_possibly_stuck\":true").count(),
        1,
        "{json}"
    );

    // It is not said to be so: somebody outside ends it.
    assert!(deadlocks().is_empty());
    stuck.end();
    timed.end();
}
