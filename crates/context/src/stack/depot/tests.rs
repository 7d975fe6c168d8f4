//! Unit tests of `depot`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;
use crate::stack::{CacheLimits, Stack, StackCache, StackConfig, lookup};
use std::collections::BTreeSet;

fn new_depot(kind: Option<GuardKind>) -> &'static Depot {
    Box::leak(Box::new(Depot::new(kind)))
}

fn start_of(stack: &Stack) -> usize {
    stack.guard().start
}

/// A small generator of our own; the seed is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// The naive model: which slots live where, against random takes, puts, drops and clears in two
/// caches with small bounds; each stack carries a mark that nobody else may overwrite.
fn agrees_with_the_model(kind: Option<GuardKind>, seed: u64, steps: usize) {
    println!("seed {seed:#x}, {kind:?}");
    let depot = new_depot(kind);
    let mut random = Random(seed);
    let limits = CacheLimits {
        stacks_max: 10,
        bytes_max: 1 << 20,
    };
    let mut caches = [
        StackCache::in_depot(depot, limits),
        StackCache::in_depot(depot, limits),
    ];
    let configs = [(0, 0), (32 << 10, 0), (100_000, 10_000)];
    let configs = configs.map(|(size, guard)| StackConfig::new(size, guard).unwrap());
    let mut live: Vec<(Stack, usize)> = Vec::new();
    let mut seen = BTreeSet::new();
    for step in 0..steps {
        let cache = &mut caches[random.below(2)];
        match random.below(100) {
            0 => cache.clear(),
            1..=49 if live.len() < 150 => {
                let stack = cache.get(&configs[random.below(3)]).unwrap();
                let clash = live
                    .iter()
                    .any(|(other, _)| start_of(other) == start_of(&stack));
                assert!(!clash, "handed out twice at step {step}");
                assert_eq!(lookup(start_of(&stack)), Some(stack.slot.place()));
                assert!(
                    super::super::owner_of(stack.slot.place()).is_none(),
                    "an old owner"
                );
                seen.insert(start_of(&stack));
                // SAFETY: usable bytes of a stack of ours.
                unsafe {
                    stack
                        .base()
                        .as_ptr()
                        .cast::<usize>()
                        .wrapping_sub(1)
                        .write(step)
                };
                live.push((stack, step));
            }
            _ if live.is_empty() => {}
            roll => {
                let (stack, mark) = live.swap_remove(random.below(live.len()));
                // SAFETY: as above.
                let found = unsafe { stack.base().as_ptr().cast::<usize>().wrapping_sub(1).read() };
                assert_eq!(found, mark);
                // SAFETY: never described: no fault happens.
                unsafe { stack.set_owner(std::ptr::dangling(), |_, _| {}) };
                if roll < 60 {
                    drop(stack)
                } else {
                    cache.put(stack)
                }
            }
        }
        let cached: usize = caches.iter().map(|cache| cache.stats().stacks).sum();
        let totals = depot.totals();
        assert_eq!(totals.cached, cached, "at step {step}");
        assert_eq!(totals.out, live.len() + cached, "at step {step}");
        // Every slot ever handed out is somewhere; refills move only slots seen before.
        assert_eq!(totals.free + totals.out, seen.len(), "at step {step}");
        for cache in &caches {
            assert!(cache.stats().stacks <= 10);
            assert!(cache.stats().reserved_bytes <= 1 << 20);
        }
    }
    drop(live);
    drop(caches);
    let totals = depot.totals();
    assert_eq!((totals.out, totals.cached, totals.out_bytes), (0, 0, 0));
    assert_eq!(totals.free, seen.len());
}

#[test]
fn random_sequences_agree_with_a_naive_model() {
    for seed in 1..=8 {
        agrees_with_the_model(None, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed), 4000);
    }
    agrees_with_the_model(Some(GuardKind::Protected), 77, 4000);
}

#[test]
fn slabs_grow_geometrically() {
    let depot = new_depot(None);
    let class = depot.class(StackConfig::default().layout());
    let mut slots = Vec::new();
    let mut sizes = Vec::new();
    for _ in 0..1000 {
        slots.push(class.take().unwrap());
        let reserved = depot.totals().reserved_bytes / class.layout().stride_bytes();
        if sizes.last() != Some(&reserved) {
            sizes.push(reserved);
        }
    }
    assert_eq!(sizes, [16, 48, 112, 240, 496, 1008]);
    class.give(&slots);
}

#[test]
fn huge_stacks_get_small_slabs() {
    let depot = new_depot(None);
    let class = depot.class(StackConfig::new(1 << 30, 1 << 30).unwrap().layout());
    let slot = class.take().unwrap();
    assert!(depot.totals().reserved_bytes <= SLAB_BYTES_MAX);
    assert!(slot.size_bytes() >= 1 << 30);
    class.give(&[slot]);
}

/// Writes into the guard by way of the kernel, which answers instead of faulting.
fn guard_is_closed(stack: &Stack) -> bool {
    let guard = stack.guard();
    [guard.start, guard.end - 8].into_iter().all(|addr| {
        let place = std::ptr::with_exposed_provenance_mut::<libc::c_void>(addr);
        // SAFETY: the kernel checks the pointer; only the old signal mask would be written.
        let status = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                std::ptr::null::<libc::c_void>(),
                place,
                8,
            )
        };
        status == -1 && super::super::errno() == libc::EFAULT
    })
}

fn recycled_stacks_keep_guards(kind: Option<GuardKind>) {
    let depot = new_depot(kind);
    let limits = CacheLimits {
        stacks_max: 8,
        bytes_max: usize::MAX,
    };
    let mut cache = StackCache::in_depot(depot, limits);
    let config = StackConfig::new(0, 3 * 4096).unwrap();
    for _ in 0..4 {
        let stacks: Vec<_> = (0..50).map(|_| cache.get(&config).unwrap()).collect();
        assert!(stacks.iter().all(guard_is_closed), "{kind:?}");
        for (n, stack) in stacks.into_iter().enumerate() {
            if n % 5 == 0 {
                drop(stack)
            } else {
                cache.put(stack)
            }
        }
    }
    // Recycled, not made anew.
    assert_eq!(depot.totals().reserved_bytes, 112 * config.reserved_bytes());
    assert!(depot.totals().free <= 50);
}

#[test]
fn recycled_stacks_keep_their_guards_of_either_kind() {
    recycled_stacks_keep_guards(None);
    recycled_stacks_keep_guards(Some(GuardKind::Protected));
}

#[test]
fn threads_that_exchange_stacks_lose_none() {
    let depot = new_depot(None);
    let config = StackConfig::new(32 << 10, 0).unwrap();
    let (give, take) = std::sync::mpsc::channel::<Stack>();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let give = give.clone();
            scope.spawn(move || {
                let mut cache = StackCache::in_depot(depot, CacheLimits::default());
                for n in 0..5000 {
                    let stack = cache.get(&config).unwrap();
                    // SAFETY: usable bytes of a stack of ours.
                    unsafe { stack.base().as_ptr().wrapping_sub(1).write(1) };
                    if n % 3 == 0 {
                        give.send(stack).unwrap()
                    } else {
                        cache.put(stack)
                    }
                }
            });
        }
        drop(give);
        let mut cache = StackCache::in_depot(
            depot,
            CacheLimits {
                stacks_max: 100,
                ..Default::default()
            },
        );
        take.iter().for_each(|stack| cache.put(stack));
        assert!(cache.stats().stacks <= 100);
    });
    assert_eq!(depot.totals().out, 0);
}
