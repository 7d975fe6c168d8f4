//! Machine state of the sinew runtime.

pub mod stack;
