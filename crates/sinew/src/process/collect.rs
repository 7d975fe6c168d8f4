//! Reading several pipes to their ends at the same time.
//!
//! Owns: the pipes while it reads. Thread: the caller's.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::io::Interest;
use crate::sync::select::{self, Selector};

/// How much is read at once; on the heap, for stacks are small.
const CHUNK: usize = 16 * 1024;

/// A pipe that is read to its end.
struct Pipe {
    fd: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Pipe {
    /// Reads what is there; false at the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(fd) = &self.fd else {
            return Ok(false);
        };
        loop {
            match rustix::io::read(fd, &mut *buffer) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.bytes.extend_from_slice(&buffer[..len]);
                    // One that is written to without end is not to keep others waiting.
                    return Ok(true);
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn close(&mut self) {
        if let Some(fd) = self.fd.take() {
            // Only read: there is nothing that closing could lose.
            let _nothing_to_lose = crate::io::close(fd).is_err();
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.close();
    }
}

/// All that comes out of these pipes, which are in non-blocking mode, until both have ended.
pub(super) fn collect(pipes: [Option<OwnedFd>; 2]) -> io::Result<[Vec<u8>; 2]> {
    let mut pipes = pipes.map(|fd| Pipe {
        fd,
        bytes: Vec::new(),
    });
    let mut buffer = vec![0; CHUNK];
    loop {
        let open: Vec<_> = (0..pipes.len())
            .filter(|index| pipes[*index].fd.is_some())
            .collect();
        if open.is_empty() {
            return Ok(pipes.each_mut().map(|pipe| std::mem::take(&mut pipe.bytes)));
        }
        let fds = open.iter().filter_map(|index| pipes[*index].fd.as_ref());
        let arms: Vec<_> = fds.map(|fd| select::ready(fd, Interest::Read)).collect();
        let mut selector: Selector<'_> = arms.iter().collect();
        let chosen = selector.wait()?;
        arms[chosen].take().unwrap_or(Ok(()))?;
        drop(arms);
        let pipe = &mut pipes[open[chosen]];
        if !pipe.read(&mut buffer)? {
            pipe.close();
        }
    }
}
