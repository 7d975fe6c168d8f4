//! `sinew tour`: what the runtime can do, each thing shown by a small program that checks itself.
//!
//! Owns: the list of steps and their order. A step is a function that gets a [`Stage`]: it says what
//! it shows, does it, and returns a [`Failure`] unless the outcome is exactly what it had to be.
//!
//! Invariants:
//! - I1: a step leaves nothing running behind: its schedulers and threads have ended when it returns.
//! - I2: whatever a step does (it fails, panics or hangs), the tour ends, and its exit status tells.
//!
//! | file | steps |
//! |---|---|
//! | `turns` | interleaving, timers |
//! | `channels` | rendezvous, bounded, unbounded |
//! | `together` | a mutex held across a yield, a wait group |
//! | `cancelling` | a sleeper told to stop |
//! | `sockets` | an echo |
//! | `foreign` | suspending inside a C library |
//! | `typed` | coroutines resumed by hand |
//! | `crowd` | a hundred thousand at once |
//! | `dumped` | a dump with backtraces |
//! | `mishaps` | one that never yields, one that panics |
//! | `web` | the server and the load generator |

pub mod command;

mod cancelling;
mod channels;
mod crowd;
mod dumped;
mod figures;
mod foreign;
mod mishaps;
mod runner;
mod sockets;
mod stage;
mod together;
mod turns;
mod typed;
mod watchdog;
mod web;

pub use figures::Figures;
pub use runner::{Outcome, run};
pub use stage::{Check, Failure, Size, Stage};
pub use watchdog::Watchdog;

/// One thing that the tour shows.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What it is called, in one line and by the verdict at the end.
    pub name: &'static str,
    /// What it shows, in plain words.
    pub shows: &'static str,
    /// Shows it.
    pub act: fn(&mut Stage<'_>) -> Check,
}

/// The steps of the tour, in order.
pub const STEPS: &[Step] = &[
    Step {
        name: "interleaving",
        shows: "Three coroutines on one thread print letters; after each letter they yield.",
        act: turns::interleaving,
    },
    Step {
        name: "timers",
        shows: "Sleeping coroutines wake in the order of their deadlines, and never early.",
        act: turns::timers,
    },
    Step {
        name: "channels",
        shows: "A rendezvous returns when the value is taken; a bounded pipeline waits when it is \
                full; an unbounded channel never waits, and what it holds outlives its closing.",
        act: channels::channels,
    },
    Step {
        name: "mutex",
        shows: "A lock may be held across a yield: others wait for it and no update is lost.",
        act: together::mutex,
    },
    Step {
        name: "wait group",
        shows: "One coroutine waits until many others are done.",
        act: together::wait_group,
    },
    Step {
        name: "cancel",
        shows: "A coroutine that sleeps for an hour is told to stop, and why. It cleans up and ends.",
        act: cancelling::cancel,
    },
    Step {
        name: "echo",
        shows: "Three coroutines on one thread talk through a pair of sockets by std's blocking calls.",
        act: sockets::echo,
    },
    Step {
        name: "C callback",
        shows: "The C library's qsort calls back into Rust, and the comparison suspends, with the C \
                frames on its stack, while another coroutine runs.",
        act: foreign::sorting,
    },
    Step {
        name: "generator",
        shows: "Coroutines without a scheduler, resumed by hand: a recursion becomes an iterator, and                 typed values go both ways.",
        act: typed::resuming,
    },
    Step {
        name: "crowd",
        shows: "A chain of coroutines, each blocked on a channel of its own and each with a guarded \
                stack of its own. Then one number goes through all of them.",
        act: crowd::crowd,
    },
    Step {
        name: "listing",
        shows: "A coroutine keeps its thread busy and never yields. Another thread lists it, and the \
                ones that it holds up, all the same.",
        act: mishaps::listing,
    },
    Step {
        name: "dump",
        shows: "A thousand coroutines wait at the same place. A dump has the place once, by name and line, \
                with all that wait there.",
        act: dumped::dump,
    },
    Step {
        name: "panic",
        shows: "One of three coroutines panics. The panic is the outcome of its join; the others go on.",
        act: mishaps::panic,
    },
    Step {
        name: "files over HTTP",
        shows: "The server of this program serves the files of a folder; every one is fetched over \
                TCP, many at a time, and compared with the disk.",
        act: web::fetching,
    },
    Step {
        name: "load",
        shows: "The load generator of this program keeps the server busy from another thread, and \
                checks the status and the length of every answer.",
        act: web::loading,
    },
];
