//! The same for one that is borrowed: a task owns what it captures, for as long as it likes.

use sinew::task::{Finalizer, TaskPool};

fn main() {
    let pool = TaskPool::new().unwrap();
    let borrowed = &pool;
    let finalizer: Finalizer = pool.finalizer(|| ()).unwrap();
    let _refused = pool.try_submit(move |_| {
        drop(finalizer);
        borrowed.close();
    });
    let submitter = pool.under(&sinew::CancelToken::new());
    pool.destroy().unwrap();
    let _refused = submitter.try_submit(|_| ());
}
