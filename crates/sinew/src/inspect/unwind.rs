//! The walk: the return addresses on a suspended coroutine's stack, from what was saved when it stopped.
//!
//! Owns: the unwind tables of the process's images, as read from their files. Thread: any for the tables, which are shared and do not
//! change; a walk is made by the coroutine's owner thread, while the coroutine does not run.
//!
//! Invariants
//! - I1. A walk reads memory of the coroutine's stack only, between its stack pointer and the stack's base, whatever the
//!   tables say. (Where a stand-alone coroutine is entered in it, also of that one's stack; the record that leads from the
//!   one to the other is read by the kernel, which refuses a wrong address.)
//! - I2. It goes up: each frame's stack pointer is above the one before, and [`FRAMES_MAX`] is the most. So it ends.
//! - I3. It takes no lock, and calls nothing of the dynamic linker: not even one that the code which it looks at holds could
//!   stop it.
//!
//! The tables come from the files and not from the mapped images, so that an image which is unloaded meanwhile is no danger.
#![expect(
    unsafe_code,
    reason = "reads the stacks and contexts of suspended coroutines"
)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};
use sinew_context::arch::{is_in_start, peek};
use sinew_context::{Context, stack};

use crate::inspect::backtrace::Frame;
use crate::inspect::survey::Trace;
use crate::scheduler::Scheduler;
use crate::scheduler::block::{Block, flag};
use crate::sys::memory;

/// How many frames of one coroutine are walked at most.
pub const FRAMES_MAX: usize = 256;

const WORD: usize = size_of::<usize>();

/// A mapped file with code in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Where its code is mapped.
    pub(super) code: Range<usize>,
    /// The offset of that in the file.
    offset: usize,
    /// Device and inode, as the kernel writes them.
    identity: (String, u64),
    /// By which the file can be opened.
    pub(super) path: PathBuf,
    /// What to add to an address of the file to get one of the process; `None` if the file could not be read.
    pub(super) bias: Option<usize>,
}

/// The images of the process, at one time, with their unwind tables.
pub(super) struct Images {
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    /// Ordered by address.
    list: Vec<Image>,
    /// The calls at the addresses that were looked up.
    known: Mutex<HashMap<usize, Arc<[Frame]>>>,
}

impl Images {
    /// The images as of now. Reads files, unless nothing has changed since the last call.
    pub(super) fn now() -> Arc<Self> {
        static LAST: Mutex<Option<(Vec<Image>, Arc<Images>)>> = Mutex::new(None);
        let mapped = mapped();
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, images)) if *of == mapped => images.clone(),
            _ => {
                let images = Arc::new(Self::load(mapped.clone()));
                *last = Some((mapped, images.clone()));
                images
            }
        }
    }

    fn load(mut list: Vec<Image>) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for image in &mut list {
            if let Some((bias, module)) = load(image) {
                image.bias = Some(bias);
                unwinder.add_module(module);
            }
        }
        Self {
            unwinder,
            list,
            known: Mutex::new(HashMap::new()),
        }
    }

    /// The calls at the addresses that were looked up before.
    pub(super) fn known(&self) -> MutexGuard<'_, HashMap<usize, Arc<[Frame]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image that has code at this address.
    pub(super) fn find(&self, address: usize) -> Option<&Image> {
        let after = self.list.partition_point(|image| image.code.end <= address);
        self.list
            .get(after)
            .filter(|image| image.code.contains(&address))
    }
}

/// The executable mappings of files. Empty where the kernel does not tell.
fn mapped() -> Vec<Image> {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut list: Vec<Image> = maps
        .lines()
        .filter_map(|line| image_of(line, &program))
        .collect();
    list.sort_unstable_by_key(|image| image.code.start);
    list
}

/// Reads a line such as `7f01c000-7f02a000 r-xp 00002000 fe:01 1234   /lib/libc.so.6`.
fn image_of(line: &str, program: &Path) -> Option<Image> {
    let (head, path) = line.split_at(line.find('/')?);
    let mut fields = head.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()?.contains('x');
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()?)?;
    let identity = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    let path = Path::new(path);
    // The program's own file can be opened even if its name leads to another one now.
    let path = if path == program {
        Path::new("/proc/self/exe")
    } else {
        path
    };
    is_code.then_some(Image {
        code: hex(start)?..hex(end)?,
        offset,
        identity,
        path: path.to_owned(),
        bias: None,
    })
}

/// A file that is read as far as is needed.
type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// Reads the unwind tables of an image, if its file is the one that is mapped.
fn load(image: &Image) -> Option<(usize, Module<Arc<[u8]>>)> {
    let file = File::open(&image.path).ok()?;
    if file.metadata().ok()?.ino() != image.identity.1 {
        return None;
    }
    let cache = ReadCache::new(file);
    let elf = Box::new(Elf::parse(&cache).ok()?);
    let bias = bias_of(image, &elf)?;
    let code = image.code.start as u64..image.code.end as u64;
    let name = image.path.display().to_string();
    let module = Module::new(name, code, bias, tables_of(&elf));
    Some((bias as usize, module))
}

/// What to add to an address of the file to get one of the process.
fn bias_of(image: &Image, elf: &Elf<'_>) -> Option<u64> {
    let endian = elf.endian();
    let offset = image.offset as u64;
    // The segment of which the mapping is: its bytes in the file, from the start of a page on.
    let segment = elf.elf_program_headers().iter().find(|header| {
        let start = header.p_offset(endian) & !0xfff;
        let end = header
            .p_offset(endian)
            .saturating_add(header.p_filesz(endian));
        header.p_type(endian) == object::elf::PT_LOAD
            && (start..end).contains(&offset)
            && header.p_flags(endian) & object::elf::PF_X != 0
    })?;
    let in_process = (image.code.start as u64).wrapping_sub(offset);
    let in_file = segment
        .p_vaddr(endian)
        .wrapping_sub(segment.p_offset(endian));
    Some(in_process.wrapping_sub(in_file))
}

/// The addresses of a section.
fn place_of(elf: &Elf<'_>, name: &str) -> Option<Range<u64>> {
    let section = elf.section_by_name(name)?;
    Some(section.address()..section.address().checked_add(section.size())?)
}

fn bytes_of(elf: &Elf<'_>, name: &str) -> Option<Arc<[u8]>> {
    Some(elf.section_by_name(name)?.uncompressed_data().ok()?.into())
}

fn tables_of(elf: &Elf<'_>) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    ExplicitModuleSectionInfo {
        text_svma: place_of(elf, ".text"),
        got_svma: place_of(elf, ".got"),
        eh_frame_svma: place_of(elf, ".eh_frame"),
        eh_frame: bytes_of(elf, ".eh_frame"),
        eh_frame_hdr_svma: place_of(elf, ".eh_frame_hdr"),
        eh_frame_hdr: bytes_of(elf, ".eh_frame_hdr"),
        ..Default::default()
    }
}

/// The three words that a walk starts from.
#[derive(Debug, Clone, Copy)]
struct Registers {
    fp: usize,
    ip: usize,
    sp: usize,
}

/// Walks stacks, one after the other.
pub(super) struct Walker {
    images: Arc<Images>,
    cache: CacheX86_64,
    addresses: Vec<usize>,
}

impl Walker {
    pub(super) fn new(images: Arc<Images>) -> Self {
        Self {
            images,
            cache: CacheX86_64::new(),
            addresses: Vec::with_capacity(FRAMES_MAX),
        }
    }

    /// Walks a coroutine's stack; `None` if it has none, runs, or is not of this scheduler, which is the calling thread's.
    pub(super) fn walk(&mut self, block: &Block, scheduler: &Scheduler) -> Option<Trace> {
        // Whoever was not started has a stack neither; a stack is bound right before the start.
        let is_stopped = scheduler.has(block)
            && block.has(flag::STARTED)
            && !ptr::eq(scheduler.current(), block);
        if !is_stopped {
            return None;
        }
        // SAFETY: a scheduler is on its own thread only, which is the coroutine's: nobody changes it meanwhile.
        let stack = unsafe { &*block.stack.get() }.as_ref()?;
        let own = stack.limit().addr().get()..stack.base().addr().get();
        // SAFETY: the same, and the coroutine does not run: its context is what was saved when it stopped.
        let context = unsafe { *block.context.get() };
        // SAFETY: the same.
        Some(unsafe { self.walk_from(context, own) })
    }

    /// Walks from where a flow was suspended to the first frame of `own`, which is the stack that it belongs to.
    ///
    /// # Safety
    ///
    /// What the context was saved of is suspended, and stays so, and so does whatever resumed it up to the one on `own`.
    pub(super) unsafe fn walk_from(&mut self, context: Context, own: Range<usize>) -> Trace {
        let registers = Registers {
            fp: context.fp,
            ip: context.ip,
            sp: context.sp,
        };
        self.addresses.clear();
        let is_whole = self.follow(registers, &own);
        Trace {
            addresses: self.addresses.as_slice().into(),
            is_whole,
        }
    }

    /// From the stack on which it stopped to its own; says whether the first frame of that was reached.
    fn follow(&mut self, mut from: Registers, own: &Range<usize>) -> bool {
        loop {
            let Some(slot) = stack::lookup(from.sp) else {
                return false;
            };
            // I1.
            let readable = from.sp..slot.base().addr().get();
            if from.sp < slot.limit().addr().get() {
                return false;
            }
            let Some(first_fp) = self.climb(from, &readable) else {
                return false;
            };
            if own.contains(&from.sp) {
                return true;
            }
            // On the stack of a stand-alone coroutine that was resumed in this one.
            let resumer = read(&readable, first_fp).and_then(|link| memory::read_words(link).ok());
            let Some([fp, ip, sp]) = resumer else {
                return false;
            };
            from = Registers { fp, ip, sp };
        }
    }

    /// From a stack pointer to the first frame of the stack. Returns the frame pointer there, if it was reached.
    fn climb(&mut self, from: Registers, readable: &Range<usize>) -> Option<usize> {
        let mut at = FrameAddress::from_instruction_pointer(from.ip as u64);
        let mut registers = UnwindRegsX86_64::new(from.ip as u64, from.sp as u64, from.fp as u64);
        let mut read = |address: u64| {
            usize::try_from(address)
                .ok()
                .and_then(|address| read(readable, address))
                .map(|word| word as u64)
                .ok_or(())
        };
        while !is_in_start(at.address() as usize) {
            let lookup = at.address_for_lookup() as usize;
            if self.addresses.len() == FRAMES_MAX {
                return None;
            }
            self.addresses.push(lookup);
            self.images.find(lookup)?.bias?;
            let below = registers.sp();
            let found =
                self.images
                    .unwinder
                    .unwind_frame(at, &mut registers, &mut self.cache, &mut read);
            at = FrameAddress::from_return_address(found.ok()??)?;
            // I2.
            if registers.sp() <= below || registers.sp() as usize > readable.end {
                return None;
            }
        }
        Some(registers.bp() as usize)
    }
}

/// A word of the stack. I1.
fn read(readable: &Range<usize>, address: usize) -> Option<usize> {
    let is_inside = address.is_multiple_of(WORD)
        && readable.start <= address
        && address.checked_add(WORD)? <= readable.end;
    // SAFETY: aligned, and between the stack pointer of a suspended coroutine and its stack's base: mapped, and readable.
    is_inside.then(|| unsafe { peek(address) })
}

#[cfg(test)]
mod tests;
