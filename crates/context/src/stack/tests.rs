//! Unit tests of `stack`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;

#[test]
fn sizes_are_checked() {
    let found = |result: Result<StackConfig, StackError>| match result {
        Err(StackError::Invalid {
            what,
            found,
            min,
            max,
        }) => (what, found, min, max),
        other => panic!("{other:?}"),
    };
    for size in [
        1,
        4096,
        SIZE_BYTES_MIN - 1,
        SIZE_BYTES_MAX + 1,
        isize::MAX as usize,
        usize::MAX,
    ] {
        let (what, value, min, max) = found(StackConfig::new(size, 0));
        assert_eq!(
            (what, value, min, max),
            ("stack size", size, SIZE_BYTES_MIN, SIZE_BYTES_MAX)
        );
    }
    for guard in [GUARD_BYTES_MAX + 1, usize::MAX] {
        let (what, value, ..) = found(StackConfig::new(0, guard));
        assert_eq!((what, value), ("guard size", guard));
    }
    let text = StackConfig::new(100, 0).unwrap_err().to_string();
    assert_eq!(
        text,
        "stack size of 100 bytes is outside the allowed 32768 to 1073741824 bytes (0 means the default)"
    );
}

// contract: C17
#[test]
fn zero_is_the_default_and_reserves_256_kib() {
    let config = StackConfig::new(0, 0).unwrap();
    assert_eq!(config, StackConfig::default());
    assert_eq!(config.reserved_bytes(), 256 * 1024);
    assert_eq!(config.guard_bytes(), page_bytes());
}

#[test]
fn rounding_never_takes_away_and_makes_few_classes() {
    let mut layouts = std::collections::BTreeSet::new();
    for size in (SIZE_BYTES_MIN..64 << 20).step_by(4093) {
        let config = StackConfig::new(size, 1 + size % 16_384).unwrap();
        let usable = config.reserved_bytes() - config.guard_bytes() - page_bytes();
        assert!(usable >= size, "{size}: {config:?}");
        assert!(config.guard_bytes() > size % 16_384);
        assert!(config.guard_bytes().is_power_of_two());
        assert!(config.reserved_bytes() <= (size + 16_384 + 8192).div_ceil(4) * 5 + 4096);
        layouts.insert((config.reserved_bytes(), config.guard_bytes()));
    }
    assert!(layouts.len() < 160, "{}", layouts.len());
    for extreme in [
        (SIZE_BYTES_MAX, GUARD_BYTES_MAX),
        (SIZE_BYTES_MIN, GUARD_BYTES_MAX),
    ] {
        StackConfig::new(extreme.0, extreme.1).unwrap();
    }
}

// contract: O3
#[test]
fn high_water_is_exact_to_a_page() {
    let mut stack = Stack::new(&StackConfig::default()).unwrap();
    stack.clean();
    assert_eq!(stack.high_water_bytes(), 0);
    let base = stack.base().addr().get();
    for depth in [1, 100, 5000, 5001, 70_000, 200_000, stack.size_bytes()] {
        let place = stack.base().as_ptr().wrapping_sub(depth);
        // SAFETY: usable bytes of a stack of ours.
        unsafe { place.write_volatile(1) };
        let page_start = (base - depth) / page_bytes() * page_bytes();
        assert_eq!(stack.high_water_bytes(), base - page_start, "depth {depth}");
    }
    assert_eq!(stack.high_water_bytes(), stack.size_bytes());
    stack.clean();
    assert_eq!(stack.high_water_bytes(), 0);
}

unsafe fn say_owner(owner: *const (), out: &mut dyn fmt::Write) {
    let _ = write!(out, "number {}", owner.addr());
}

fn owner_text(stack: &Stack) -> Option<String> {
    let (owner, describe) = owner_of(stack.slot.place())?;
    let mut text = String::new();
    // SAFETY: these tests only set `say_owner`, which does not look behind the pointer.
    unsafe { describe(owner, &mut text) };
    Some(text)
}

#[test]
fn owners_last_until_cleared_and_survive_cleaning() {
    let config = StackConfig::default();
    let mut cache = StackCache::default();
    let mut stack = cache.get(&config).unwrap();
    assert_eq!(owner_text(&stack), None);
    // SAFETY: `say_owner` does not look behind the pointer.
    unsafe { stack.set_owner(ptr::without_provenance(40), say_owner) };
    stack.clean();
    assert_eq!(owner_text(&stack).as_deref(), Some("number 40"));
    stack.clear_owner();
    assert_eq!(owner_text(&stack), None);
    // SAFETY: as above.
    unsafe { stack.set_owner(ptr::without_provenance(41), say_owner) };
    cache.put(stack);
    assert_eq!(
        owner_text(&cache.get(&config).unwrap()),
        None,
        "a cached stack has no owner"
    );
}

/// A size of its own for each test that watches a certain slot: no other test takes it.
fn config_of_one_test(size_bytes: usize) -> StackConfig {
    StackConfig::new(size_bytes, 2 * page_bytes()).unwrap()
}

#[test]
fn a_dropped_stack_gives_its_memory_back() {
    let stack = Stack::new(&config_of_one_test(5 << 20)).unwrap();
    let slot = stack.slot;
    for place in [
        stack.limit().as_ptr(),
        stack.base().as_ptr().wrapping_sub(1),
    ] {
        // SAFETY: usable bytes of a stack of ours.
        unsafe { place.write_volatile(1) };
    }
    assert_eq!(residency::resident_bytes(slot.place()), 2 * page_bytes());
    drop(stack);
    assert_eq!(residency::resident_bytes(slot.place()), 0);
}

/// Locked memory cannot be discarded, so the owner must be cleared by hand.
#[test]
fn a_dropped_stack_in_locked_memory_has_no_owner() {
    let config = config_of_one_test(6 << 20);
    let stack = Stack::new(&config).unwrap();
    let slot = stack.slot;
    let page = stack
        .base()
        .as_ptr()
        .map_addr(|addr| addr / page_bytes() * page_bytes());
    // SAFETY: a page of ours.
    if unsafe { libc::mlock(page.cast(), page_bytes()) } != 0 {
        println!("skipped: mlock is not permitted");
        return;
    }
    // SAFETY: `say_owner` does not look behind the pointer.
    unsafe { stack.set_owner(ptr::without_provenance(42), say_owner) };
    drop(stack);
    let again = Stack::new(&config).unwrap();
    assert_eq!(again.slot, slot);
    assert_eq!(owner_text(&again), None);
    // SAFETY: as above.
    unsafe { libc::munlock(page.cast(), page_bytes()) };
}

#[test]
fn stacks_are_owned_and_may_change_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Stack>();
    assert_send::<StackCache>();
    let stack = Stack::new(&StackConfig::default()).unwrap();
    std::thread::scope(|scope| scope.spawn(move || drop(stack)).join()).unwrap();
}

// contract: O1
#[test]
fn totals_count_reserved_and_committed_bytes() {
    // Other tests run beside this one, so only what must hold throughout.
    let stack = Stack::new(&StackConfig::new(777 * 1024, 0).unwrap()).unwrap();
    // SAFETY: usable bytes of a stack of ours.
    unsafe { stack.base().as_ptr().wrapping_sub(1).write_volatile(1) };
    let stats = stats();
    assert!(stats.stacks_in_use >= 1);
    assert!(stats.in_use_bytes >= stack.reserved_bytes());
    assert!(stats.reserved_bytes >= 16 * stack.reserved_bytes());
    assert!(committed_bytes() >= page_bytes());
}

#[test]
fn errors_name_the_limit() {
    let error = |limit| StackError::NoMemory {
        call: "mmap",
        bytes: 4096,
        errno: libc::ENOMEM,
        limit,
    };
    let text = error(Limit::MapCount { value: 65530 }).to_string();
    assert!(
        text.starts_with("no memory for a stack: mmap of 4096 bytes: "),
        "{text}"
    );
    assert!(
        text.contains("65530 mappings") && text.contains("vm.max_map_count"),
        "{text}"
    );
    assert!(
        error(Limit::AddressSpace { value: 7 })
            .to_string()
            .contains("RLIMIT_AS")
    );
    assert!(
        error(Limit::Data { value: 7 })
            .to_string()
            .contains("RLIMIT_DATA")
    );
    assert!(
        error(Limit::Overcommit)
            .to_string()
            .contains("vm.overcommit_memory")
    );
}

// contract: C17
#[test]
fn a_stack_without_a_guard_has_its_whole_size_and_no_guard() {
    // SAFETY: nothing runs there.
    let config = unsafe { StackConfig::unguarded(100_000) }.unwrap();
    assert_eq!(config.guard_bytes(), 0);
    let [lower, upper] = [(); 2].map(|()| Stack::new(&config).unwrap());
    assert!(lower.guard().is_empty());
    assert!(lower.size_bytes() >= 100_000);
    // The neighbour's last byte is mapped: nothing lies between.
    assert_eq!(
        lower.guard().start + config.reserved_bytes(),
        upper.limit().addr().get()
    );
    for place in [
        upper.limit().as_ptr(),
        upper.limit().as_ptr().wrapping_sub(1),
    ] {
        // SAFETY: inside of either stack, of which nobody uses the other's last byte.
        unsafe { place.write_volatile(1) };
    }
    let found = lookup(lower.limit().addr().get()).unwrap();
    assert!(found.guard().is_empty() && !found.is_provided());
    // SAFETY: nothing is made.
    assert!(unsafe { StackConfig::unguarded(100) }.is_err());
    assert_ne!(config, StackConfig::new(100_000, 0).unwrap());
}

// contract: C17
#[test]
fn a_stack_that_is_not_pooled_is_never_kept() {
    let config = config_of_one_test(7 << 20).pooled(false);
    let mut cache = StackCache::default();
    for _ in 0..3 {
        let stack = cache.get(&config).unwrap();
        let slot = stack.slot;
        assert_eq!(stack.high_water_bytes(), 0);
        // SAFETY: usable bytes of a stack of ours.
        unsafe { stack.base().as_ptr().wrapping_sub(1).write_volatile(1) };
        cache.put(stack);
        assert_eq!(cache.stats().stacks, 0);
        assert_eq!(residency::resident_bytes(slot.place()), 0);
    }
    let pooled = config.pooled(true);
    assert_eq!(pooled, config_of_one_test(7 << 20));
    let stack = cache.get(&pooled).unwrap();
    assert!(!config.is_of(&stack));
    cache.put(stack);
    assert_eq!(cache.stats().stacks, 1);
}

/// What the kernel prints of the mapping that `addr` lies in.
fn smaps_of(addr: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let range_of = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).ok();
        Some(parse(start)?..parse(end)?)
    };
    let mut text = String::new();
    let mut inside = false;
    for line in smaps.lines() {
        if let Some(range) = range_of(line) {
            inside = range.contains(&addr);
        }
        if inside {
            text += line;
            text += "\n";
        }
    }
    text
}

// contract: C17
#[test]
fn huge_pages_are_kept_away_from_stacks() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        println!("skipped: this kernel has no huge pages");
        return;
    }
    // Large enough for a huge page, with and without a guard that would be in its way.
    for config in [
        StackConfig::new(9 << 20, 0).unwrap(),
        // SAFETY: nothing runs there.
        unsafe { StackConfig::unguarded(9 << 20) }.unwrap(),
    ] {
        let stack = Stack::new(&config).unwrap();
        for offset in (0..stack.size_bytes()).step_by(page_bytes()) {
            // SAFETY: usable bytes of a stack of ours.
            unsafe {
                stack
                    .limit()
                    .as_ptr()
                    .wrapping_add(offset)
                    .write_volatile(1)
            };
        }
        let text = smaps_of(stack.limit().addr().get());
        assert!(text.contains("AnonHugePages:         0 kB"), "{text}");
        let flags = text.lines().find(|line| line.starts_with("VmFlags:"));
        assert!(flags.is_some_and(|flags| flags.contains(" nh")), "{text}");
    }
}

// contract: C17
#[test]
fn the_bounds_of_a_cache_are_those_of_the_process_when_it_was_made() {
    let before = CacheLimits::of_process();
    assert_eq!(before, CacheLimits::default());
    let few = CacheLimits {
        stacks_max: 2,
        ..before
    };
    few.set_for_process();
    let mut cache = StackCache::default();
    before.set_for_process();
    let config = StackConfig::default();
    let stacks = [(); 5].map(|()| cache.get(&config).unwrap());
    stacks.into_iter().for_each(|stack| cache.put(stack));
    let stats = cache.stats();
    assert!(
        stats.stacks <= 2 && stats.stacks as u64 + stats.spilled == 5,
        "{stats:?}"
    );
}
