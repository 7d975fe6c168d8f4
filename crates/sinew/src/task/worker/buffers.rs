//! A worker's memory for reading and writing: buffers that are used again.
//!
//! Owns: those that nobody uses now, no more than [`KEPT_MAX`]. Thread: the worker's.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// How many are kept.
const KEPT_MAX: usize = 16;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Buffers {
    bytes: usize,
    kept: RefCell<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// Buffers of this size.
    pub(super) fn new(bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes,
            kept: RefCell::new(Vec::with_capacity(KEPT_MAX)),
        })
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.borrow().len()
    }

    pub(super) fn take(self: &Rc<Self>) -> IoBuffer {
        let kept = self.kept.borrow_mut().pop();
        IoBuffer {
            memory: kept.unwrap_or_else(|| vec![0; self.bytes].into_boxed_slice()),
            home: self.clone(),
        }
    }
}

/// A buffer of a worker's. Dropping it gives it back.
///
/// What is in it is what the last user left there: nothing is cleared.
pub struct IoBuffer {
    memory: Box<[u8]>,
    home: Rc<Buffers>,
}

impl Deref for IoBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        let mut kept = self.home.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(mem::take(&mut self.memory));
        }
    }
}

impl fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoBuffer")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
