//! Corrupt registers and stacks.
