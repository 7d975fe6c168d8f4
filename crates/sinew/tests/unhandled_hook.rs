//! The hook for failures that nobody joined. It is the process's, so this file has one test.

use std::sync::{Arc, Mutex};

use sinew::inspect::{Unhandled, on_unhandled};
use sinew::{go_local, run, spawn_local, yield_now};

// contract: S3
#[test]
fn each_failure_that_nobody_joins_reaches_the_hook_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let inside = told.clone();
    on_unhandled(Some(Box::new(move |failure| {
        let text = match failure {
            Unhandled::Panic { payload, .. } => match payload.downcast_ref::<&str>() {
                Some(text) => format!("panic: {text}"),
                None => "panic".into(),
            },
            Unhandled::Error { error, .. } => format!("error: {error}"),
            other => format!("{other:?}"),
        };
        inside.lock().unwrap().push(text);
    })));
    run(|| {
        go_local(|| -> () { std::panic::resume_unwind(Box::new("detached")) });
        go_local(|| Err::<(), _>(std::io::Error::other("returned")));
        go_local(|| Ok::<(), std::io::Error>(()));
        drop(spawn_local(|| -> () {
            std::panic::resume_unwind(Box::new("dropped before"))
        }));
        let late = spawn_local(|| -> () { std::panic::resume_unwind(Box::new("dropped after")) });
        let joined = spawn_local(|| -> () { std::panic::resume_unwind(Box::new("joined")) });
        yield_now().unwrap();
        drop(late);
        assert!(joined.join().unwrap_err().is_panic());
    });
    let expected = [
        "error: returned",
        "panic: detached",
        "panic: dropped after",
        "panic: dropped before",
    ];
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable();
    assert_eq!(told, expected);
    // A hook that panics does not bring the runtime down: its panic is raised by `run`.
    on_unhandled(Some(Box::new(|_| {
        std::panic::resume_unwind(Box::new("the hook itself"))
    })));
    let payload = std::panic::catch_unwind(|| {
        run(|| go_local(|| -> () { std::panic::resume_unwind(Box::new("detached")) }));
    })
    .unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"the hook itself"));
    on_unhandled(None);
}
