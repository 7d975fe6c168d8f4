//! Nor what is in the arena of a task.

use sinew::task::{Outcome, Task, TaskContext};

// contract: C12
fn main() {
    let (task, _future) = Task::new(|context: &TaskContext<'_>| {
        let text: &'static str = context.arena().alloc_str("temporary");
        Outcome::Success(text)
    });
    task.run();
}
