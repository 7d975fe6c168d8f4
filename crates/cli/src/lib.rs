//! What the `sinew` command is made of: a file server and a load generator on coroutines, and a tour.
//!
//! The binary is a thin layer of arguments over these modules, so that the tour and the tests start
//! the same server and the same generator inside their own process.

pub mod bench;
pub mod duration;
pub mod load;
pub mod rt;
pub mod serve;
pub mod tour;
