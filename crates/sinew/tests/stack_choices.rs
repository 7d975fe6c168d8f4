//! What can be chosen about stacks, through the public builders: size, guard or none, pooled or not, memory of one's own.
#![expect(unsafe_code, reason = "does without guards, provides memory")]

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

use sinew::coroutine::{self, Coroutine, State, Step, Suspender, anchor};
use sinew::stack::{
    CacheLimits, GUARD_BYTES_MAX, SIZE_BYTES_DEFAULT, SIZE_BYTES_MAX, SIZE_BYTES_MIN, Stack,
};
use sinew::{Builder, ErrorKind, Progress, RunError, Scheduler, inspect, run, spawn_local};

/// The usable size of the stack that the calling coroutine of a scheduler runs on.
fn own_stack_bytes() -> usize {
    let id = sinew::current().unwrap().id();
    // What the listing knows is from the last switch.
    sinew::yield_now().unwrap();
    inspect::find(id).unwrap().stack_bytes.unwrap()
}

/// Addresses of the pages that are mapped right below `place` and cannot be read: the size of the guard.
fn guard_bytes_below(place: usize, stack_bytes: usize) -> usize {
    let is_readable = |addr: usize| {
        let mut answer = 0_u8;
        let from = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr),
            iov_len: 1,
        };
        let to = libc::iovec {
            iov_base: (&raw mut answer).cast(),
            iov_len: 1,
        };
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: the kernel checks the address and writes one byte.
        let read = unsafe { libc::process_vm_readv(process, &to, 1, &from, 1, 0) };
        read == 1
    };
    let page = place / 4096 * 4096;
    let mut below = (0..stack_bytes / 4096 + 2).map(|n| page - n * 4096);
    let Some(first) = below.find(|&addr| !is_readable(addr)) else {
        return 0;
    };
    let pages = (0..1024).take_while(|n| !is_readable(first - n * 4096));
    pages.count() * 4096
}

/// The same of three stacks that exist at once, of the calling scheduler: below the lowest there may be nothing at all.
fn guard_bytes_of(builder: &Builder, stack_bytes: usize) -> usize {
    let handles = [(); 3].map(|()| {
        let body = move || {
            let seen = guard_bytes_below(here(), stack_bytes);
            sinew::yield_now().unwrap();
            seen
        };
        builder.spawn_local(body).unwrap()
    });
    let seen = handles.map(|handle| handle.join().unwrap());
    *seen.iter().min().unwrap()
}

/// The same of three stand-alone coroutines.
fn guard_bytes_alone<'a, 'env: 'a>(
    builder: impl Fn() -> coroutine::Builder<'a, 'env, (), usize, ()>,
    stack_bytes: usize,
) -> usize {
    let body = move |s: &Suspender<(), usize>, ()| {
        s.suspend(guard_bytes_below(here(), stack_bytes)).unwrap();
    };
    let mut all = [(); 3].map(|()| builder().build(body).unwrap());
    let seen = all.each_mut().map(|c| c.resume(()).unwrap().suspended());
    seen.into_iter().flatten().min().unwrap()
}

/// Where the stack pointer is. (A sanitizer may keep local variables elsewhere.)
#[inline(always)]
fn here() -> usize {
    sinew_context::arch::stack_pointer()
}

// contract: C17
#[test]
fn sizes_of_one_coroutine_and_of_a_scheduler() {
    let run_with = |scheduler: sinew::SchedulerBuilder, of_one: Builder| {
        scheduler.anchor(|s| {
            let general = spawn_local(own_stack_bytes);
            let own = of_one.spawn_local(own_stack_bytes).unwrap();
            assert_eq!(s.run(), Ok(Progress::Closed));
            (general.join().unwrap(), own.join().unwrap())
        })
    };
    let near = |found: usize, asked: usize| found + 2048 >= asked && found <= asked * 5 / 4 + 8192;
    let (general, own) = run_with(Scheduler::builder(), Builder::new().stack_size(1 << 20));
    assert!(near(general, SIZE_BYTES_DEFAULT), "{general}");
    assert!(near(own, 1 << 20) && own >= 1 << 20, "{own}");
    let scheduler = Scheduler::builder().stack_size(64 * 1024);
    let (general, own) = run_with(scheduler.clone(), Builder::new().stack_size(0));
    assert!(
        near(general, 64 * 1024) && general >= 64 * 1024,
        "{general}"
    );
    assert!(
        near(own, 64 * 1024),
        "zero is the scheduler's default: {own}"
    );
    // What one does not say is as the scheduler said.
    let (_, own) = run_with(scheduler, Builder::new().guard_size(16 * 1024));
    assert!(near(own, 64 * 1024), "{own}");
}

// contract: C17
#[test]
fn sizes_out_of_range_are_invalid_everywhere() {
    let sizes = [1, SIZE_BYTES_MIN - 1, SIZE_BYTES_MAX + 1, usize::MAX];
    let guards = [GUARD_BYTES_MAX + 1, usize::MAX];
    let choices = sizes
        .map(|bytes| (bytes, 0))
        .into_iter()
        .chain(guards.map(|bytes| (0, bytes)));
    for (size, guard) in choices {
        let scheduler = Scheduler::builder().stack_size(size).guard_size(guard);
        let refused = scheduler
            .try_anchor(|_| unreachable!("it has run"))
            .unwrap_err();
        assert!(matches!(refused, RunError::Invalid(_)), "{refused:?}");
        assert!(refused.to_string().contains("outside the allowed"));
        assert_eq!(sinew::Error::from(refused).kind(), ErrorKind::Invalid);
        let kept = Rc::new(());
        run(|| {
            let inside = kept.clone();
            let builder = Builder::new().stack_size(size).guard_size(guard);
            let refused = builder.spawn_local(move || drop(inside)).unwrap_err();
            assert!(refused.is_invalid());
            assert_eq!(Rc::strong_count(&kept), 2, "the closure comes back");
            let refused = builder.go_local(refused.into_inner()).unwrap_err();
            assert!(refused.is_invalid());
        });
        anchor(|a| {
            let inside = kept.clone();
            let builder = Coroutine::builder(a).stack_size(size).guard_size(guard);
            let refused = builder
                .build(move |_: &Suspender<(), ()>, ()| drop(inside))
                .unwrap_err();
            assert!(refused.is_invalid());
        });
        assert_eq!(Rc::strong_count(&kept), 1);
    }
    // Without a guard, too.
    // SAFETY: it never runs.
    let builder = unsafe { Scheduler::builder().stack_size(100).unguarded() };
    assert!(matches!(
        builder.try_anchor(|_| ()),
        Err(RunError::Invalid(_))
    ));
}

// contract: C17
#[test]
fn guards_have_the_size_asked_for() {
    let size = 64 * 1024;
    for (asked, found) in [(0, 4096), (1, 4096), (5000, 8192), (1 << 20, 1 << 20)] {
        let builder = Builder::new().stack_size(size).guard_size(asked);
        assert_eq!(
            run(|| guard_bytes_of(&builder, 8 * size)),
            found,
            "asked for {asked}"
        );
        let scheduler = Scheduler::builder().stack_size(size).guard_size(asked);
        let seen = scheduler.anchor(|s| {
            let handle = spawn_local(move || guard_bytes_of(&Builder::new(), 8 * size));
            let _closed = s.run();
            handle.join().unwrap()
        });
        assert_eq!(seen, found, "asked a scheduler for {asked}");
        let seen = anchor(|a| {
            let builder = || Coroutine::builder(a).stack_size(size).guard_size(asked);
            guard_bytes_alone(builder, 8 * size)
        });
        assert_eq!(seen, found, "asked for {asked}, stand-alone");
    }
}

// contract: C17
#[test]
fn without_a_guard_there_is_none() {
    let size = 96 * 1024;
    // SAFETY: the body needs a few hundred bytes.
    let builder = unsafe { Builder::new().stack_size(size).unguarded() };
    assert_eq!(run(|| guard_bytes_of(&builder, size)), 0);
    // SAFETY: as above.
    let scheduler = unsafe { Scheduler::builder().stack_size(size).unguarded() };
    let seen = scheduler.anchor(|s| {
        let handle = spawn_local(move || guard_bytes_of(&Builder::new(), size));
        let _closed = s.run();
        handle.join().unwrap()
    });
    assert_eq!(seen, 0);
    let seen = anchor(|a| {
        // SAFETY: as above.
        let builder = || unsafe { Coroutine::builder(a).stack_size(size).unguarded() };
        guard_bytes_alone(builder, size)
    });
    assert_eq!(seen, 0);
}

/// Uses the stack down to `bytes` below the caller's frame.
fn dig(bytes: usize) {
    #[inline(never)]
    fn down_to(place: usize) {
        let block = [0_u8; 256];
        std::hint::black_box(&block);
        if here() > place {
            down_to(place);
        }
        std::hint::black_box(&block);
    }
    down_to(here() - bytes);
}

/// The high-water mark of the calling coroutine's stack.
fn high_water() -> usize {
    let id = sinew::current().unwrap().id();
    sinew::yield_now().unwrap();
    inspect::find(id).unwrap().stack_high_water_bytes().unwrap()
}

// contract: C17
#[test]
fn stacks_that_are_not_pooled_come_clean_and_go() {
    // A size that no other test of this file has, so that the stacks are these.
    let size = 300 * 1024;
    run(|| {
        let builder = Builder::new().stack_size(size);
        builder
            .spawn_local(|| dig(200 * 1024))
            .unwrap()
            .join()
            .unwrap();
        let warm = builder.spawn_local(high_water).unwrap().join().unwrap();
        assert!(warm >= 200 * 1024, "pooled: {warm}");
        let builder = builder.pooled(false);
        for _ in 0..3 {
            let deed = move || {
                let before = high_water();
                dig(200 * 1024);
                (before, high_water())
            };
            let (before, after) = builder.spawn_local(deed).unwrap().join().unwrap();
            assert!(before < 64 * 1024, "it was clean: {before}");
            assert!(after >= 200 * 1024, "{after}");
        }
    });
}

// contract: C17
#[test]
fn whether_stacks_are_pooled_is_the_scheduler_s_unless_a_builder_says() {
    let size = 350 * 1024;
    let seen_by_the_second = |scheduler: sinew::SchedulerBuilder, builder: Builder| {
        scheduler.anchor(|s| {
            let builder = builder.stack_size(size);
            let first = builder.spawn_local(|| dig(200 * 1024)).unwrap();
            let _closed = s.run();
            first.join().unwrap();
            let second = builder.spawn_local(high_water).unwrap();
            let _closed = s.run();
            second.join().unwrap()
        })
    };
    let (kept, clean) = (200 * 1024, 64 * 1024);
    let not_pooled = Scheduler::builder().pooled(false);
    let any = Builder::new();
    assert!(seen_by_the_second(Scheduler::builder(), any.clone()) >= kept);
    assert!(seen_by_the_second(not_pooled.clone(), any.clone()) < clean);
    assert!(seen_by_the_second(not_pooled, any.clone().pooled(true)) >= kept);
    assert!(seen_by_the_second(Scheduler::builder(), any.pooled(false)) < clean);
}

// contract: C17
#[test]
fn a_cache_keeps_no_more_than_it_may() {
    let many = 100;
    let cached_after = |limits: CacheLimits| {
        Scheduler::builder().stack_cache(limits).anchor(|s| {
            let handles: Vec<_> = (0..many)
                .map(|_| spawn_local(|| sinew::yield_now().unwrap()))
                .collect();
            let _closed = s.run();
            drop(handles);
            let text = format!("{:?}", inspect::stats());
            (inspect::stats().stacks_cached, text)
        })
    };
    let limits = CacheLimits::default();
    let few = CacheLimits {
        stacks_max: 7,
        ..limits
    };
    let bytes = CacheLimits {
        bytes_max: 5 * 256 * 1024,
        ..limits
    };
    let none = CacheLimits {
        stacks_max: 0,
        ..limits
    };
    // Tests beside this one have caches, too: so differences from what there is otherwise cannot be taken; but in a
    // process of its own they can.
    if std::env::var_os("SINEW_ALONE").is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_cache_keeps_no_more_than_it_may", "--exact"])
            .env("SINEW_ALONE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        return;
    }
    for (limits, most) in [(few, 7), (bytes, 5), (none, 0)] {
        let (cached, text) = cached_after(limits);
        assert!(cached <= most, "{cached} of {limits:?}: {text}");
        limits.set_for_process();
        anchor(|a| {
            let body = |s: &Suspender<(), ()>, ()| s.suspend(()).unwrap();
            let mut all: Vec<_> = (0..many).map(|_| Coroutine::new(a, body)).collect();
            for c in &mut all {
                c.resume(()).unwrap();
            }
            for c in &mut all {
                c.resume(()).unwrap();
            }
            assert!(inspect::stats().stacks_cached <= most);
        });
        CacheLimits::default().set_for_process();
    }
    let (cached, text) = cached_after(limits);
    assert!(cached >= many - 1, "the check can fail: {cached}, {text}");
}

/// A mapping with a guard, which counts what it is asked and its drops.
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
    guard_bytes: usize,
    log: Rc<RefCell<Vec<&'static str>>>,
}

impl Mapped {
    fn new(bytes: usize, guard_bytes: usize, log: &Rc<RefCell<Vec<&'static str>>>) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = bytes + guard_bytes;
        // SAFETY: a fresh mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: its low end, not in use.
        let status = unsafe { libc::mprotect(start, guard_bytes, libc::PROT_NONE) };
        assert_eq!(status, 0);
        Self {
            start: NonNull::new(start.cast()).unwrap(),
            bytes,
            guard_bytes,
            log: log.clone(),
        }
    }
}

// SAFETY: the mapping is this value's, and stays until the drop; its low end cannot be accessed.
unsafe impl Stack for Mapped {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: one past the end.
        unsafe { self.start.add(self.guard_bytes + self.bytes) }
    }

    fn limit(&self) -> NonNull<u8> {
        // SAFETY: inside.
        unsafe { self.start.add(self.guard_bytes) }
    }

    fn guard_bytes(&self) -> usize {
        self.guard_bytes
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.log.borrow_mut().push("unmapped");
        // SAFETY: its own mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes + self.guard_bytes) };
    }
}

// contract: C17
#[test]
fn a_provided_stack_is_run_on_and_dropped_at_the_end() {
    let log = Rc::new(RefCell::new(Vec::new()));
    anchor(|a| {
        let memory = Mapped::new(128 * 1024, 4096, &log);
        let range = memory.limit().addr().get()..memory.base().addr().get();
        let mut c = Coroutine::builder(a)
            .stack(memory)
            .unwrap()
            .build(|s: &Suspender<u32, usize>, first| {
                let again = s.suspend(here()).unwrap();
                assert!(matches!(sinew::try_run(|| ()), Err(RunError::State)));
                dig(64 * 1024);
                coroutine::arena::with(|_| ());
                coroutine::error::set(sinew::Error::new(ErrorKind::Invalid, "kept"));
                assert!(coroutine::error::take().is_some());
                first + again
            })
            .unwrap();
        assert_eq!(c.state(), State::Ready);
        let inside = c.resume(1).unwrap().suspended().unwrap();
        assert!(range.contains(&inside));
        assert!(log.borrow().is_empty());
        assert_eq!(c.resume(2).unwrap(), Step::Done(3));
        assert_eq!(
            *log.borrow(),
            ["unmapped"],
            "at the end, not with the handle"
        );
    });
}

// contract: C17
#[test]
fn a_provided_stack_goes_on_every_way_to_an_end() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        struct Note(&'static str, Rc<RefCell<Vec<&'static str>>>);
        impl Drop for Note {
            fn drop(&mut self) {
                self.1.borrow_mut().push(self.0);
            }
        }
        Note(what, log.clone())
    };
    let memory = || Mapped::new(64 * 1024, 4096, &log);
    // Not built; built and never run; suspended and dropped; forgotten; panicked.
    anchor(|a| drop(Coroutine::<(), (), ()>::builder(a).stack(memory()).unwrap()));
    assert_eq!(log.take(), ["unmapped"]);
    for deed in ["unrun", "dropped", "forgotten", "panicked"] {
        anchor(|a| {
            let frame = note("frame");
            let mut c = Coroutine::builder(a)
                .stack(memory())
                .unwrap()
                .build(move |s: &Suspender<(), ()>, ()| {
                    let _frame = frame;
                    assert_ne!(deed, "panicked");
                    s.suspend(()).unwrap_err();
                })
                .unwrap();
            match deed {
                "unrun" => drop(c),
                "dropped" => {
                    c.resume(()).unwrap();
                    drop(c);
                }
                "forgotten" => {
                    c.resume(()).unwrap();
                    std::mem::forget(c);
                }
                _ => assert!(catch_unwind(AssertUnwindSafe(|| c.resume(()))).is_err()),
            }
        });
        assert_eq!(log.take(), ["frame", "unmapped"], "{deed}");
    }
}

// contract: C17
#[test]
fn memory_that_is_too_small_comes_back() {
    let log = Rc::new(RefCell::new(Vec::new()));
    anchor(|a| {
        let memory = Mapped::new(16 * 1024, 4096, &log);
        let start = memory.start;
        let refused = Coroutine::<(), (), ()>::builder(a)
            .stack(memory)
            .unwrap_err();
        assert!(refused.to_string().contains("16384"), "{refused}");
        let memory = refused.into_inner();
        assert_eq!(memory.start, start);
        assert!(log.borrow().is_empty());
    });
}

/// Borrowed memory can be used again and again.
struct Lent<'s>(&'s mut [MaybeUninit<u8>], &'s Cell<u32>);

// SAFETY: borrowed for as long; there is no guard, and the bodies below need little.
unsafe impl Stack for Lent<'_> {
    fn base(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_ptr_range().end.cast_mut().cast()).unwrap()
    }

    fn limit(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_ptr().cast_mut().cast()).unwrap()
    }

    fn guard_bytes(&self) -> usize {
        0
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

// contract: C17
#[test]
fn borrowed_memory_is_free_again_after_the_anchor() {
    let mut memory = Box::new_uninit_slice(256 * 1024 + 5);
    let drops = Cell::new(0);
    for round in 0..3 {
        // Not aligned to anything.
        let memory = Lent(&mut memory[round..], &drops);
        anchor(|a| {
            let mut c = Coroutine::builder(a)
                .stack(memory)
                .unwrap()
                .build(|s: &Suspender<usize, usize>, n| s.suspend(n + 1).unwrap())
                .unwrap();
            assert_eq!(c.resume(round).unwrap(), Step::Suspended(round + 1));
            // A coroutine of another kind on its stack: everything that asks "where am I" finds the inner one.
            let inner = anchor(|b| {
                let mut inner = Coroutine::new(b, |_: &Suspender<(), ()>, ()| 7);
                inner.resume(()).unwrap()
            });
            assert_eq!(inner, Step::Done(7));
        });
        assert_eq!(drops.get() as usize, round + 1);
    }
    // And one stack, lent by reference, serves one coroutine after the other.
    let mut memory = Lent(&mut memory, &drops);
    for _ in 0..3 {
        anchor(|a| {
            let builder = Coroutine::builder(a).stack(&mut memory).unwrap();
            let mut c = builder.build(|_: &Suspender<(), ()>, ()| 5).unwrap();
            assert_eq!(c.resume(()).unwrap(), Step::Done(5));
        });
    }
    assert_eq!(drops.get(), 3);
}

/// A stack whose drop panics: the coroutine's result is not lost, and the anchor tells.
#[test]
fn a_panic_of_the_memory_s_drop_is_the_anchor_s() {
    struct Bomb(Box<[MaybeUninit<u8>]>);
    // SAFETY: the box is its own; there is no guard, and the body needs little.
    unsafe impl Stack for Bomb {
        fn base(&self) -> NonNull<u8> {
            NonNull::new(self.0.as_ptr_range().end.cast_mut().cast()).unwrap()
        }
        fn limit(&self) -> NonNull<u8> {
            NonNull::new(self.0.as_ptr().cast_mut().cast()).unwrap()
        }
        fn guard_bytes(&self) -> usize {
            0
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the memory's drop");
        }
    }
    for deed in ["run", "unrun", "forgotten"] {
        let seen = Cell::new(0);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            anchor(|a| {
                let memory = Bomb(Box::new_uninit_slice(128 * 1024));
                let builder = Coroutine::builder(a).stack(memory).unwrap();
                let mut c = builder.build(|_: &Suspender<(), ()>, ()| 9).unwrap();
                match deed {
                    "run" => seen.set(c.resume(()).unwrap().done().unwrap()),
                    "unrun" => drop(c),
                    _ => std::mem::forget(c),
                }
                seen.set(seen.get() + 1);
            });
        }));
        assert_eq!(seen.get(), if deed == "run" { 10 } else { 1 }, "{deed}");
        let payload = ended.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"the memory's drop"), "{deed}");
    }
}

/// The memory holds the handle of the very coroutine that runs on it, so the handle's drop comes while the coroutine is being ended.
#[test]
fn memory_that_holds_the_handle_of_its_own_coroutine() {
    struct Holding<'a> {
        bytes: Box<[MaybeUninit<u8>]>,
        slot: Rc<Cell<Option<Coroutine<'a, (), (), ()>>>>,
        drops: &'a Cell<u32>,
        panics: bool,
    }
    // SAFETY: the box is its own; there is no guard, and the body needs little.
    unsafe impl Stack for Holding<'_> {
        fn base(&self) -> NonNull<u8> {
            NonNull::new(self.bytes.as_ptr_range().end.cast_mut().cast()).unwrap()
        }
        fn limit(&self) -> NonNull<u8> {
            NonNull::new(self.bytes.as_ptr().cast_mut().cast()).unwrap()
        }
        fn guard_bytes(&self) -> usize {
            0
        }
    }
    impl Drop for Holding<'_> {
        fn drop(&mut self) {
            self.drops.set(self.drops.get() + 1);
            let mut handle = self.slot.take().unwrap();
            // It has not quite ended: nothing can be done with it, and the record outlives this.
            assert_eq!(handle.state(), State::Running);
            assert!(handle.resume(()).is_err());
            drop(handle);
            assert!(!self.panics, "the memory's drop");
        }
    }
    for (resumes, panics) in [(0, false), (0, true), (1, false), (1, true)] {
        let drops = Cell::new(0);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            anchor(|a| {
                let slot = Rc::new(Cell::new(None));
                let memory = Holding {
                    bytes: Box::new_uninit_slice(128 * 1024),
                    slot: slot.clone(),
                    drops: &drops,
                    panics,
                };
                // Too large for a spare block: what is freed goes to the allocator.
                let ballast = [1_u8; 4096];
                let mut c = Coroutine::builder(a)
                    .stack(memory)
                    .unwrap()
                    .build(move |s: &Suspender<(), ()>, ()| {
                        let _ballast = ballast;
                        let _unwound = s.suspend(());
                    })
                    .unwrap();
                for _ in 0..resumes {
                    assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
                }
                slot.set(Some(c));
            });
        }));
        assert_eq!(drops.get(), 1);
        let message = ended
            .err()
            .and_then(|payload| payload.downcast::<&str>().ok());
        assert_eq!(
            message.map(|text| *text),
            panics.then_some("the memory's drop")
        );
    }
}

/// Limits and scopes rely on being found on a provided stack, too: inside of them a stand-alone coroutine cannot suspend.
#[test]
fn a_fence_stands_on_a_provided_stack() {
    let log = Rc::new(RefCell::new(Vec::new()));
    run(|| {
        anchor(|a| {
            let mut c = Coroutine::builder(a)
                .stack(Mapped::new(256 * 1024, 4096, &log))
                .unwrap()
                .build(|s: &Suspender<(), ()>, ()| {
                    let refused = sinew::scope(|_| s.suspend(()).is_err());
                    s.suspend(()).unwrap();
                    refused
                })
                .unwrap();
            assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
            assert_eq!(c.resume(()).unwrap(), Step::Done(true));
        });
    });
    assert_eq!(*log.borrow(), ["unmapped"]);
}
