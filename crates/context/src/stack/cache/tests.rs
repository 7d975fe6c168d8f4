//! Unit tests of `cache`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;

fn new_cache(stacks_max: usize, bytes_max: usize) -> StackCache {
    let depot = Box::leak(Box::new(Depot::new(None)));
    StackCache::in_depot(
        depot,
        CacheLimits {
            stacks_max,
            bytes_max,
        },
    )
}

#[test]
fn the_warmest_stack_comes_first() {
    let mut cache = new_cache(8, usize::MAX);
    let config = StackConfig::default();
    let [a, b] = [cache.get(&config).unwrap(), cache.get(&config).unwrap()];
    let bases = [a.base(), b.base()];
    // SAFETY: usable bytes of a stack of ours.
    unsafe { b.base().as_ptr().wrapping_sub(1).write(7) };
    cache.put(a);
    cache.put(b);
    let again = cache.get(&config).unwrap();
    assert_eq!(again.base(), bases[1]);
    // SAFETY: as above; written before.
    let kept = unsafe { again.base().as_ptr().wrapping_sub(1).read() };
    assert_eq!(kept, 7, "a warm stack keeps its memory");
    assert_eq!(cache.get(&config).unwrap().base(), bases[0]);
    let stats = cache.stats();
    assert_eq!(
        (stats.hits, stats.misses, stats.stacks, stats.reserved_bytes),
        (2, 2, 0, 0)
    );
}

#[test]
fn the_colder_half_is_spilled_without_memory() {
    let mut cache = new_cache(8, usize::MAX);
    let config = StackConfig::default();
    let stacks: Vec<_> = (0..9).map(|_| cache.get(&config).unwrap()).collect();
    let bases: Vec<_> = stacks.iter().map(Stack::base).collect();
    for stack in stacks {
        // SAFETY: usable bytes of a stack of ours.
        unsafe { stack.base().as_ptr().wrapping_sub(1).write(7) };
        cache.put(stack);
    }
    assert_eq!((cache.stats().stacks, cache.stats().spilled), (4, 5));
    // Warm ones first, then the spilled ones, refilled from the depot.
    let again: Vec<_> = (0..9).map(|_| cache.get(&config).unwrap()).collect();
    for (n, stack) in again.iter().enumerate() {
        let warm = n < 4;
        assert_eq!(
            bases[4..].contains(&stack.base()) && warm,
            bases[5..].contains(&stack.base())
        );
        // SAFETY: as above; fresh memory is zero.
        let kept = unsafe { stack.base().as_ptr().wrapping_sub(1).read() };
        assert_eq!(kept == 7, warm, "stack {n}");
    }
}

#[test]
fn the_bound_on_bytes_holds_across_classes() {
    let mut cache = new_cache(1000, 1 << 20);
    for size_bytes in [0, 32 << 10, 0, 900_000, 0, 2 << 20, 40_000] {
        let config = StackConfig::new(size_bytes, 0).unwrap();
        let stacks: Vec<_> = (0..5).map(|_| cache.get(&config).unwrap()).collect();
        stacks.into_iter().for_each(|stack| cache.put(stack));
        assert!(
            cache.stats().reserved_bytes <= 1 << 20,
            "{:?}",
            cache.stats()
        );
    }
    assert!(cache.stats().stacks > 0);
    let totals = cache.depot.totals();
    assert_eq!(totals.cached, cache.stats().stacks);
    assert_eq!(totals.cached_bytes, cache.stats().reserved_bytes);
    assert_eq!(totals.out_bytes, totals.cached_bytes);
}

#[test]
fn a_cache_of_none_keeps_none() {
    for (stacks_max, bytes_max) in [(0, usize::MAX), (usize::MAX, 0)] {
        let mut cache = new_cache(stacks_max, bytes_max);
        let config = StackConfig::default();
        for _ in 0..3 {
            let stack = cache.get(&config).unwrap();
            cache.put(stack);
            assert_eq!(cache.stats().stacks, 0);
        }
        assert_eq!(cache.depot.totals().free, 1);
    }
}

#[test]
fn a_dropped_cache_gives_everything_back() {
    let mut cache = new_cache(100, usize::MAX);
    let depot = cache.depot;
    let config = StackConfig::default();
    let stacks: Vec<_> = (0..20).map(|_| cache.get(&config).unwrap()).collect();
    stacks.into_iter().for_each(|stack| cache.put(stack));
    assert_eq!((depot.totals().cached, depot.totals().free), (20, 0));
    drop(cache);
    assert_eq!(
        (
            depot.totals().cached,
            depot.totals().free,
            depot.totals().out
        ),
        (0, 20, 0)
    );
}
