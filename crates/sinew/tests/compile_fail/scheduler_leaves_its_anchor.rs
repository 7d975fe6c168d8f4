//! A scheduler does not outlive its anchor.

fn main() {
    let scheduler = sinew::Scheduler::anchor(|s| s);
    scheduler.close();
}
