//! Suspending with the frames of a C library on the stack.
#![expect(unsafe_code, reason = "calls a C function that calls back")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use sinew::{spawn_local, yield_now};

use super::figures::grouped;
use super::stage::ensure;
use super::{Check, Failure, Stage};

/// How often the C library has called back, all threads together.
static COMPARISONS: AtomicU64 = AtomicU64::new(0);

type Compare = unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C-unwind" {
    /// The C library's own; it has no state that two calls share.
    fn qsort(base: *mut c_void, count: usize, size: usize, compare: Compare);
}

/// Compares two numbers, and lets other coroutines run before.
unsafe extern "C-unwind" fn compare(a: *const c_void, b: *const c_void) -> c_int {
    COMPARISONS.fetch_add(1, Ordering::Relaxed);
    // What comes of it is the same if the coroutine is asked to stop: the sorting goes on to its end.
    let _stopping = yield_now();
    // SAFETY: `qsort` passes pointers to elements, and `sort` gave it an array of `u32`.
    let a = unsafe { a.cast::<u32>().read() };
    // SAFETY: as above.
    let b = unsafe { b.cast::<u32>().read() };
    a.cmp(&b) as c_int
}

fn sort(numbers: &mut [u32]) {
    let base = numbers.as_mut_ptr().cast();
    let size = size_of::<u32>();
    // SAFETY: the array is `numbers`, borrowed for as long as the call takes, suspended or not; `compare`
    // is a total order of its elements.
    unsafe { qsort(base, numbers.len(), size, compare) };
}

/// The numbers below `count` in a scattered order.
fn scattered(count: u32) -> Vec<u32> {
    // 7919 is prime, and no count here is a multiple of it.
    (0..count).map(|number| number * 7919 % count).collect()
}

/// Two sort by `qsort` at the same time on one thread, and a third counts the turns it gets meanwhile.
pub(super) fn sorting(stage: &mut Stage<'_>) -> Check {
    let count: u32 = stage.choose(100, 5_000);
    let before = COMPARISONS.load(Ordering::Relaxed);
    let turns = sinew::run(|| {
        let sorters = [(); 2].map(|()| {
            spawn_local(move || {
                let mut numbers = scattered(count);
                sort(&mut numbers);
                numbers
            })
        });
        let over = Rc::new(Cell::new(false));
        let counter = spawn_local({
            let over = Rc::clone(&over);
            move || {
                let mut turns = 0_u64;
                while !over.get() {
                    turns += 1;
                    yield_now()?;
                }
                Ok::<u64, Failure>(turns)
            }
        });
        let sorted: Vec<u32> = (0..count).collect();
        for sorter in sorters {
            let numbers = sorter.join()?;
            ensure(numbers == sorted, || "the numbers are not sorted".into())?;
        }
        over.set(true);
        counter.join()?
    })?;
    let comparisons = COMPARISONS.load(Ordering::Relaxed) - before;
    stage.say(format!(
        "two coroutines inside qsort at the same time suspended {} times in all; a third had {} \
         turns meanwhile",
        grouped(comparisons),
        grouped(turns)
    ));
    ensure(turns * 2 >= comparisons, || {
        format!("only {turns} turns during {comparisons} comparisons")
    })
}
