//! Whoever submits borrows the pool, and what a purge drops was submitted: the pool cannot go meanwhile.

use sinew::task::TaskPool;

fn main() {
    let pool = TaskPool::new().unwrap();
    let _refused = pool.try_submit(move |_| drop(pool));
}
