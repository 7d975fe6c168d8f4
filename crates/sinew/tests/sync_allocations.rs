//! Nothing is allocated by a wait for a lock, a permit, a notification, a barrier or an initialisation.

mod memory_rig;

use std::rc::Rc;
use std::time::Duration;

use memory_rig::calls_of;
use sinew::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore};
use sinew::{run, spawn_local, yield_now};

const MOMENT: Duration = Duration::from_nanos(1);

#[derive(Default)]
struct All {
    lock: RwLock<()>,
    mutex: Mutex<()>,
    changed: Condvar,
    once: Once,
}

// contract: Y2, Y3, Y4, Y6, Y7
#[test]
fn waiting_allocates_nothing() {
    let all = Rc::new(All::default());
    let up = Rc::new([Semaphore::new(0), Semaphore::new(0)]);
    let barrier = Rc::new(Barrier::new(2));
    run(|| {
        let partner = spawn_local({
            let (all, up, barrier) = (all.clone(), up.clone(), barrier.clone());
            move || {
                while up[0].down().is_ok() {
                    // The other waits for each of these.
                    up[1].up();
                    let guard = all.lock.write();
                    let _still_ends = yield_now().is_ok();
                    drop(guard);
                    let _still_ends = yield_now().is_ok();
                    all.changed.notify_one();
                    let _leads = barrier.wait().is_ok();
                }
            }
        });
        yield_now().unwrap();
        let calls = calls_of(|| {
            up[0].up();
            up[1].down().unwrap();
            drop(all.lock.read().unwrap());
            let mut guard = all.mutex.lock().unwrap();
            all.changed.wait(&mut guard).unwrap();
            drop(guard);
            barrier.wait().unwrap();
        });
        assert_eq!(calls, 0, "a wait went through the allocator");
        let calls = calls_of(|| time_out(&all, &barrier));
        assert_eq!(calls, 0, "a wait that times out went through the allocator");
        partner.cancel("end");
    });
    // The same by a plain thread.
    let calls = calls_of(|| time_out(&all, &barrier));
    assert_eq!(calls, 0, "a wait went through the allocator");
}

/// Every wait, in vain.
fn time_out(all: &All, barrier: &Barrier) {
    let reading = all.lock.read().unwrap();
    assert!(all.lock.write_timeout(MOMENT).is_err());
    drop(reading);
    let mut guard = all.mutex.lock().unwrap();
    assert!(all.changed.wait_timeout(&mut guard, MOMENT).is_err());
    drop(guard);
    assert!(barrier.wait_timeout(MOMENT).is_err());
    assert!(all.once.wait_timeout(MOMENT).is_err());
    let semaphore = Semaphore::new(1);
    assert!(semaphore.acquire_many_timeout(2, MOMENT).is_err());
    drop(semaphore.acquire().unwrap());
}
