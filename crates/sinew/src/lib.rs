//! Stackful coroutines and structured tasks.
