//! Workloads, peers and budgets: what `sinew bench` measures.
//!
//! A *workload* is one kind of work; its *sides* are the programs that do it: sinew's own, its peers, and
//! sometimes a yardstick. Each *sample* is taken in a process of its own, pinned to one CPU unless the workload is about several; the sides of a workload
//! take turns (A B A B …), and a figure is the median of its samples.
//!
//! | file | owns |
//! |---|---|
//! | `workload` | the table of workloads, sides and budgets |
//! | `side/*` | how each runtime does each workload |
//! | `server` | how servers are loaded, and their conversation |
//! | `echo/*` | the echo servers, the client that loads them |
//! | `http/*` | the same for HTTP |
//! | `meter` | the clock and the CPU time; one sample |
//! | `child` | processes of itself, and what they say to each other |
//! | `run` | which samples are taken, in which order |
//! | `figure` | medians, spreads, ratios, verdicts |
//! | `report` | text and Markdown |
//! | `machine` | what the figures were taken on |
//!
//! Invariants
//! - I1. A sample counts the operations that were done; a side that does not do its work has no figure.
//! - I2. Nothing here decides by the clock whether a test passes.

pub mod child;
mod echo;
mod figure;
mod http;
mod machine;
mod meter;
mod report;
mod run;
mod server;
mod side;
mod workload;

pub use figure::{Comparison, Figure, Outcome, Row, Verdict};
pub use machine::Machine;
pub use meter::Sample;
pub use run::{Config, Report, Step, run};
pub use workload::{Budget, Limit, Load, Metric, Role, Side, Workload, workloads};
