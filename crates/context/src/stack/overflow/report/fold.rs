//! Folding of repeated frames, in constant memory.
//!
//! A recursion repeats a cycle of one or a few frames. Once the last two cycles of some length up
//! to `CYCLE_MAX` were equal, frames are only counted for as long as they continue it.
//!
//! Invariants:
//! - I1: every frame is either written or counted in exactly one "… more" line.
//! - I2: at most `WRITTEN_MAX` frames are written.

use super::writer::Stderr;
use std::fmt::{self, Write};

/// The longest cycle that is recognised.
const CYCLE_MAX: usize = 8;
const HISTORY: usize = 2 * CYCLE_MAX;
/// The most frames that are written; all others are counted.
const WRITTEN_MAX: usize = 128;

/// The state of folding one sequence of frames.
pub(super) struct Fold {
    /// Keys of the last frames; frame `n` at `n % HISTORY`.
    keys: [u64; HISTORY],
    frames: usize,
    /// The length of the cycle being folded; zero if none is.
    cycle: usize,
    /// Frames counted but not written.
    folded: usize,
    written: usize,
}

impl Fold {
    pub(super) fn new() -> Fold {
        Fold {
            keys: [0; HISTORY],
            frames: 0,
            cycle: 0,
            folded: 0,
            written: 0,
        }
    }

    /// Takes the next frame, equal to others of the same key; writes it by `write` or counts it.
    pub(super) fn frame<W: Write>(
        &mut self,
        key: u64,
        out: &mut W,
        write: &mut dyn FnMut(usize, &mut W),
    ) {
        let index = self.frames;
        let repeats = self.cycle != 0 && self.key(index - self.cycle) == key;
        if self.cycle != 0 && !repeats {
            self.end_cycle(out);
        }
        self.keys[index % HISTORY] = key;
        self.frames += 1;
        if repeats || self.written == WRITTEN_MAX {
            self.folded += 1;
            return;
        }
        write(index, out);
        self.written += 1;
        self.cycle = (1..=CYCLE_MAX)
            .find(|&cycle| {
                self.frames >= 2 * cycle
                    && (0..cycle).all(|at| self.key(index - at) == self.key(index - at - cycle))
            })
            .unwrap_or(0);
    }

    /// Writes the last count.
    pub(super) fn finish(&mut self, out: &mut impl Write) {
        self.end_cycle(out);
    }

    fn end_cycle(&mut self, out: &mut impl Write) {
        if self.folded > 0 {
            let what = match self.cycle {
                0 => "",
                1 => " of the same",
                _ => " of the same cycle",
            };
            let _ = writeln!(out, "     … {} more frames{what}", self.folded);
        }
        self.folded = 0;
        self.cycle = 0;
    }

    fn key(&self, index: usize) -> u64 {
        self.keys[index % HISTORY]
    }
}

/// Folds std's rendering of a backtrace: lines "  N: name", each followed by lines "at file".
pub(super) struct FrameText {
    out: Stderr,
    fold: Fold,
    /// The frame being collected, without its number.
    text: [u8; 1024],
    used: usize,
    /// Bytes of the present line before its text are skipped: the number.
    line: Line,
    /// Frames of the handler and of the capture come first; they say nothing.
    leading: bool,
}

/// By what the first frames are known, with full names and with line tables only.
const OURS: [&str; 4] = [
    "sinew_context::stack::overflow",
    "src/stack/overflow",
    "std::backtrace",
    "std/src/backtrace",
];

/// Where in a line the writer is.
#[derive(PartialEq)]
enum Line {
    /// Before anything but blanks.
    Start,
    /// In a frame's number.
    Number,
    Text,
}

impl FrameText {
    pub(super) fn new(out: Stderr) -> FrameText {
        FrameText {
            out,
            fold: Fold::new(),
            text: [0; 1024],
            used: 0,
            line: Line::Start,
            leading: true,
        }
    }

    pub(super) fn finish(&mut self) {
        self.end_frame();
        self.fold.finish(&mut self.out);
        self.out.flush();
    }

    fn byte(&mut self, byte: u8) {
        match (&self.line, byte) {
            (Line::Start, b' ' | b'\n') => {}
            (Line::Start, b'0'..=b'9') => {
                self.end_frame();
                self.line = Line::Number;
            }
            (Line::Start, _) => {
                self.keep_all(b"\n          ");
                self.line = Line::Text;
                self.keep(byte);
            }
            (Line::Number, b':') => self.line = Line::Text,
            (Line::Number, _) => {}
            (Line::Text, b'\n') => self.line = Line::Start,
            (Line::Text, _) => self.keep(byte),
        }
    }

    fn keep_all(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.keep(byte);
        }
    }

    /// Adds a byte to the frame's text; what does not fit is left out.
    fn keep(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.used) {
            *place = byte;
            self.used += 1;
        }
    }

    fn end_frame(&mut self) {
        let text = &self.text[..self.used];
        self.used = 0;
        if text.is_empty() {
            return;
        }
        let text = std::str::from_utf8(text).unwrap_or(" (not text)");
        self.leading = self.leading && OURS.iter().any(|ours| text.contains(ours));
        if self.leading {
            return;
        }
        self.fold
            .frame(hash(text), &mut self.out, &mut |index, out| {
                let _ = writeln!(out, "  {index:>4}:{text}");
                out.flush();
            });
    }
}

impl Write for FrameText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.byte(byte);
        }
        Ok(())
    }
}

/// FNV-1a; a collision merges two lines of a report, no more.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(keys: &[u64]) -> String {
        let mut fold = Fold::new();
        let mut out = String::new();
        for &key in keys {
            fold.frame(key, &mut out, &mut |_, out| {
                let _ = write!(out, "{key} ");
            });
        }
        fold.finish(&mut out);
        out.replace("     … ", "+").replace('\n', " ")
    }

    #[test]
    fn recursion_is_folded_and_what_follows_is_written() {
        assert_eq!(
            folded(&[9, 1, 1, 1, 1, 1, 2, 3]),
            "9 1 1 +3 more frames of the same 2 3 "
        );
        assert_eq!(
            folded(&[9, 1, 2, 1, 2, 1, 2, 1, 5, 5, 6]),
            "9 1 2 1 2 +3 more frames of the same cycle 5 5 6 "
        );
        assert_eq!(folded(&[1, 2, 3]), "1 2 3 ");
        assert_eq!(folded(&[]), "");
    }

    /// I1, I2: whatever the sequence, written and counted frames add up.
    #[test]
    fn no_frame_is_lost() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        println!("seed {state:#x}");
        for round in 0..2000 {
            let mut keys = Vec::new();
            for _ in 0..(round % 300) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                keys.push(state % (1 + round % 4));
            }
            let text = folded(&keys);
            let mut written = 0;
            let mut counted = 0;
            let mut words = text.split_ascii_whitespace();
            for word in words.by_ref() {
                match word.strip_prefix('+') {
                    Some(count) => counted += count.parse::<usize>().unwrap(),
                    None if word.parse::<u64>().is_ok() => written += 1,
                    None => {}
                }
            }
            assert_eq!(written + counted, keys.len(), "{keys:?}: {text}");
            assert!(written <= WRITTEN_MAX);
        }
    }
}
