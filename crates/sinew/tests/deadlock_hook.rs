//! The hook that is told of deadlocks while the program goes on. Alone in its file: the hook is the process's.

use std::rc::Rc;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use sinew::inspect::{Cycle, on_deadlock};
use sinew::sync::Mutex;
use sinew::{WaitError, cancel_id, go_local, run, sleep, spawn_local, yield_now};

// contract: S25
#[test]
fn each_cycle_is_told_of_once_while_others_go_on() {
    let told: Arc<StdMutex<Vec<Cycle>>> = Arc::default();
    let tell = told.clone();
    on_deadlock(Some(Box::new(move |cycle| {
        tell.lock().unwrap().push(cycle.clone())
    })));
    run(|| {
        // Never idle, and with a listener and a timer beside.
        let listener = sinew::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let accepting = spawn_local(move || listener.accept().map(drop));
        let busy = spawn_local(|| while yield_now().is_ok() {});
        let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
        let embrace: Vec<_> = [(&left, &right), (&right, &left)]
            .into_iter()
            .map(|(first, second)| {
                let (first, second) = (first.clone(), second.clone());
                spawn_local(move || {
                    let _first = first.lock()?;
                    yield_now()?;
                    second.lock().map(drop)
                })
            })
            .collect();
        while told.lock().unwrap().is_empty() {
            yield_now().unwrap();
        }
        // Several looks later it has not been told of again.
        sleep(Duration::from_millis(350)).unwrap();
        let cycles = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(cycles.len(), 1, "{cycles:?}");
        let mut ids: Vec<u64> = cycles[0].members().iter().map(|member| member.id).collect();
        ids.sort_unstable();
        assert_eq!(
            ids,
            embrace.iter().map(|handle| handle.id()).collect::<Vec<_>>()
        );
        assert!(cycles[0].to_string().contains("deadlock_hook.rs"));

        cancel_id(ids[0], "gives way").unwrap();
        let results: Vec<_> = embrace
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect();
        assert!(results.contains(&Err(WaitError::Cancelled)) && results.contains(&Ok(())));
        // What only waits long is none.
        let held = left.clone();
        go_local(move || {
            let _held = held.lock()?;
            sleep(Duration::from_millis(300))
        });
        yield_now().unwrap();
        drop(left.lock().unwrap());
        assert!(told.lock().unwrap().is_empty());
        busy.cancel("end");
        accepting.cancel("end");
    });
    on_deadlock(None);
}
