//! Registers and stacks with anything in them: no read outside, and an end.
#![expect(unsafe_code, reason = "writes to a stack that nobody runs on")]

use sinew_context::stack::{Stack, StackConfig};

use super::{FRAMES_MAX, Images, Registers, Walker};

/// A generator of numbers, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end
    }
}

/// The addresses of functions and of the bytes behind them.
fn code(numbers: &mut Numbers) -> usize {
    let functions = [
        Images::now as fn() -> std::sync::Arc<Images> as usize,
        super::mapped as fn() -> Vec<super::Image> as usize,
        libc::qsort as *const () as usize,
        libc::printf as *const () as usize,
        sinew_context::arch::start as *const () as usize,
    ];
    functions[numbers.below(functions.len())] + numbers.below(4096)
}

#[test]
fn whatever_the_stack_holds_the_walk_stays_inside_and_ends() {
    let stack = Stack::new(&StackConfig::default()).unwrap();
    let own = stack.limit().addr().get()..stack.base().addr().get();
    let mut walker = Walker::new(Images::now());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut longest = 0;
    for _ in 0..2_000 {
        let words = 1 + numbers.below(512);
        let sp = own.end - words * 8;
        for index in 0..words {
            let word = match numbers.below(4) {
                0 => numbers.next(),
                1 => own.start.wrapping_add(numbers.below(own.len() + 4096)),
                _ => code(&mut numbers),
            };
            let place = stack
                .base()
                .as_ptr()
                .cast::<usize>()
                .wrapping_sub(words - index);
            // SAFETY: between the stack's limit and its base, and nobody runs there.
            unsafe { place.write(word) };
        }
        for sp in [
            sp,
            sp + numbers.below(64),
            numbers.next(),
            own.end,
            own.start,
            own.end - 8,
        ] {
            let fp = if numbers.below(2) == 0 {
                numbers.next()
            } else {
                sp
            };
            let from = Registers {
                fp,
                ip: code(&mut numbers),
                sp,
            };
            walker.addresses.clear();
            let _whole = walker.follow(from, &own);
            assert!(walker.addresses.len() <= FRAMES_MAX);
            longest = longest.max(walker.addresses.len());
        }
    }
    // Otherwise nothing was tried.
    assert!(longest > 3, "{longest}");
}

#[test]
fn a_place_that_is_no_stack_is_not_read() {
    let stack = Stack::new(&StackConfig::default()).unwrap();
    let own = stack.limit().addr().get()..stack.base().addr().get();
    let guarded = stack.guard().start + 8;
    let mut walker = Walker::new(Images::now());
    for sp in [0, 8, guarded, own.end + (1 << 40), usize::MAX - 7] {
        let from = Registers {
            fp: sp,
            ip: libc::qsort as *const () as usize,
            sp,
        };
        assert!(!walker.follow(from, &own), "{sp:#x}");
    }
}

#[test]
fn the_program_and_the_c_library_are_found() {
    let images = Images::now();
    for address in [
        libc::qsort as *const () as usize,
        super::mapped as *const () as usize,
    ] {
        let image = images.find(address).unwrap();
        assert!(image.bias.is_some(), "{image:?}");
    }
    assert!(images.find(8).is_none());
}
