//! Formatted text to standard error by `write(2)`, from a fixed buffer: async-signal-safe.

#![expect(unsafe_code, reason = "write(2)")]

use std::fmt;

/// A buffer in front of descriptor 2. Text is lost unless it is flushed.
pub(super) struct Stderr {
    bytes: [u8; 512],
    used: usize,
}

impl Stderr {
    pub(super) fn new() -> Stderr {
        Stderr {
            bytes: [0; 512],
            used: 0,
        }
    }

    /// Writes out what is buffered; gives up silently if the descriptor does.
    pub(super) fn flush(&mut self) {
        let mut rest = &self.bytes[..self.used];
        while !rest.is_empty() {
            // SAFETY: `rest` is readable for its length.
            let written =
                unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) => rest = &rest[written..],
                Err(_) if crate::stack::errno() == libc::EINTR => {}
                Err(_) => break,
            }
        }
        self.used = 0;
    }
}

impl fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.used == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}
