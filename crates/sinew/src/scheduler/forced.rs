//! Forced unwinding: the last resort against a coroutine that must end and will not.
//!
//! Owns: the private payload. It is raised by `resume_unwind`, so no panic hook sees it.

use std::any::Any;
use std::panic::resume_unwind;

use crate::scheduler::block::Block;

/// The payload of a forced unwind. Private: nobody can make one, and who catches one does not know it.
struct Forced;

/// Unwinds the current coroutine.
pub(crate) fn unwind() -> ! {
    resume_unwind(Box::new(Forced))
}

/// Whether a caught payload is that of a forced unwind.
pub(crate) fn is_forced(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Forced>()
}

/// Ends the process: a coroutine that must end swallows every forced unwind.
#[cold]
pub(crate) fn report_and_abort(block: &Block) -> ! {
    let name = block.name();
    let name = name.as_deref().unwrap_or("unnamed");
    // Written by hand: this is the last thing that the process does, and a panic would be swallowed too.
    let text = format!(
        "sinew: coroutine {} ({name}) must end, for its scheduler is ending, but it caught every unwind and waited \
         again; no coroutine may outlive its scheduler, so the process ends\n",
        block.id()
    );
    let _nobody_listens = rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).is_err();
    std::process::abort()
}
