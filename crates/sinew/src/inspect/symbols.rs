//! Names and lines for addresses, from the debug information of the images.
//!
//! Owns: nothing that outlives a call; what was found is kept with the images. Any thread, but not a scheduler's frame: it
//! reads files.
//!
//! The debug information itself is not kept: it is mapped and read anew, lazily, when an address comes up that was not seen before.

use std::collections::HashMap;
use std::sync::Arc;

use addr2line::Loader;

use crate::inspect::backtrace::{Backtrace, Frame};
use crate::inspect::survey::Trace;
use crate::inspect::unwind::Images;

/// Resolves addresses.
pub(super) struct Resolver<'a> {
    images: &'a Images,
    /// By the start of the image's code.
    loaders: HashMap<usize, Option<Loader>>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(images: &'a Images) -> Self {
        Self {
            images,
            loaders: HashMap::new(),
        }
    }

    pub(super) fn resolve(&mut self, trace: &Trace) -> Backtrace {
        let mut frames = Vec::with_capacity(trace.addresses.len());
        for &address in &trace.addresses {
            let known = self.images.known().get(&address).cloned();
            let these = known.unwrap_or_else(|| {
                let found: Arc<[Frame]> = self.frames_at(address).into();
                self.images.known().insert(address, found.clone());
                found
            });
            frames.extend_from_slice(&these);
        }
        Backtrace::new(frames, trace.is_whole)
    }

    /// The functions whose code is at the address: what was inlined there, and what it was inlined into.
    fn frames_at(&mut self, address: usize) -> Vec<Frame> {
        let unknown = Frame::unknown(address);
        let Some(image) = self.images.find(address) else {
            return vec![unknown];
        };
        let Some(bias) = image.bias else {
            return vec![unknown.in_image(&image.path)];
        };
        let loader = self
            .loaders
            .entry(image.code.start)
            .or_insert_with(|| Loader::new(&image.path).ok());
        let found = loader
            .as_ref()
            .map(|loader| frames_in(loader, address, address.wrapping_sub(bias) as u64))
            .unwrap_or_default();
        if found.is_empty() {
            vec![unknown.in_image(&image.path)]
        } else {
            found
        }
    }
}

fn frames_in(loader: &Loader, address: usize, in_file: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    if let Ok(mut frames) = loader.find_frames(in_file) {
        while let Ok(Some(frame)) = frames.next() {
            let mut this = Frame::unknown(address);
            if let Some(function) = &frame.function
                && let Ok(name) = function.demangle()
            {
                this.name = Some(Arc::from(&*name));
            }
            if let Some(location) = &frame.location {
                this.file = location.file.map(Arc::from);
                this.line = location.line;
                this.column = location.column;
            }
            found.push(this);
        }
    }
    // All but the outermost were inlined into the next.
    if let Some((_, inlined)) = found.split_last_mut() {
        for frame in inlined {
            frame.is_inlined = true;
        }
    }
    // Line tables alone name a function without its path, or not at all: the symbol table has the outermost one's in full.
    if found.is_empty() {
        found.push(Frame::unknown(address));
    }
    if let Some(outermost) = found.last_mut()
        && !outermost
            .name
            .as_ref()
            .is_some_and(|name| name.contains("::"))
        && let Some(symbol) = loader.find_symbol(in_file)
    {
        outermost.name = Some(Arc::from(&*addr2line::demangle_auto(symbol.into(), None)));
    }
    found.retain(|frame| frame.name.is_some() || frame.file.is_some());
    found
}
