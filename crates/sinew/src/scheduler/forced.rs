//! Forced unwinding: the last resort against a coroutine that must end and will not.
//!
//! Owns: the private payload. It is raised by `resume_unwind`, so no panic hook sees it.

use std::any::Any;
use std::panic::resume_unwind;

use sinew_context::unwind::can_unwind;

use crate::inspect::Deadlock;

/// The payload of a forced unwind. Private: nobody can make one, and who catches one does not know it.
struct Forced;

/// Whether every frame between here and the end of the coroutine's body, on the stack with this base, can be unwound. Not by foreign code without unwind
/// tables, a Rust function that is `extern "C"`, or at all under `panic = "abort"`: then the coroutine has to run on.
pub(crate) fn is_possible(base: usize) -> bool {
    cfg!(panic = "unwind") && can_unwind(base)
}

/// Unwinds the current coroutine. To be asked before: [`is_possible`].
pub(crate) fn unwind() -> ! {
    resume_unwind(Box::new(Forced))
}

/// Whether a caught payload is that of a forced unwind.
pub(crate) fn is_forced(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Forced>()
}

/// Ends the process: a coroutine that must end swallows every forced unwind. `keeper` is what it may not
/// outlive.
#[cold]
pub(crate) fn report_and_abort(id: u64, name: Option<&str>, keeper: &str) -> ! {
    let name = name.unwrap_or("unnamed");
    // Written by hand: this is the last thing that the process does, and a panic would be swallowed too.
    let text = format!(
        "sinew: coroutine {id} ({name}) must end, for its {keeper} is ending, but it caught every unwind and waited \
         again; no coroutine may outlive its {keeper}, so the process ends\n",
    );
    abort_with(&text)
}

/// Ends the process: a scope ends on a scheduler's own frame, where it cannot wait for its children.
#[cold]
pub(crate) fn report_stranded_scope() -> ! {
    abort_with(
        "sinew: a stand-alone coroutine was dropped on a scheduler's own frame while a scope in it had children; they \
         borrow from it and cannot be waited for there, so the process ends\n",
    )
}

/// Ends the process: on the way to a scheduler's end all that are left wait for each other, or for nobody, where no cancel
/// reaches them.
#[cold]
pub(crate) fn report_standstill_and_abort(deadlock: &Deadlock) -> ! {
    abort_with(&format!(
        "sinew: a scheduler is ending, but what is left on it can neither go on nor be cancelled, so the process ends\n{deadlock}\n"
    ))
}

fn abort_with(text: &str) -> ! {
    let _nobody_listens = rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).is_err();
    std::process::abort()
}
