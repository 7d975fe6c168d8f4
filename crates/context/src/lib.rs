//! Machine state of the sinew runtime.
