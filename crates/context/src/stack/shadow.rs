//! User shadow stacks (Intel CET): found out, and refused.
//!
//! Where the kernel gives a thread a shadow stack the processor compares each return address with a copy there. A switch of stacks
//! would have to switch the shadow stack too, which ours does not: the first return on the other stack would be a
//! `SIGSEGV` with `si_code` 10 (`SEGV_CPERR`). So a thread that has one is told so before its first coroutine.
//!
//! A process gets shadow stacks only if its executable and all its libraries are marked for them (`-z shstk`, and every object
//! compiled with `-fcf-protection`), or if it asks for them itself. Rust's standard library is not marked, so an ordinary Rust
//! program never does; a C program that links this library and forces the mark may. Code generation for them is refused when this
//! crate is compiled: by its build script, which looks for `+shstk` and `cf-protection` among the compiler's flags.
//!
//! Any thread, about itself.
//!
//! Not here: indirect-branch tracking, the other half of CET, which is kept: see `arch`.

#![expect(unsafe_code, reason = "a system call")]

use super::error::StackError;

/// From the kernel's `asm/prctl.h`.
#[cfg(target_arch = "x86_64")]
const ARCH_SHSTK_STATUS: libc::c_int = 0x5005;
const ARCH_SHSTK_SHSTK: u64 = 1;

/// Refuses a thread that has a shadow stack.
///
/// # Errors
///
/// `ShadowStack`.
pub(super) fn refuse() -> Result<(), StackError> {
    judge(status())
}

/// What the kernel says of the calling thread; `None` if it knows nothing of shadow stacks (before Linux 6.6, or without hardware).
#[cfg(target_arch = "x86_64")]
fn status() -> Option<u64> {
    let mut features = 0_u64;
    // SAFETY: the kernel writes one word there, or nothing.
    let status =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    (status == 0).then_some(features)
}

/// The shadow stacks of other processors (Arm's GCS) are not looked for.
#[cfg(not(target_arch = "x86_64"))]
fn status() -> Option<u64> {
    None
}

fn judge(features: Option<u64>) -> Result<(), StackError> {
    if features.is_some_and(|features| features & ARCH_SHSTK_SHSTK != 0) {
        return Err(StackError::ShadowStack);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: C22
    #[test]
    fn a_shadow_stack_is_refused_and_nothing_else() {
        assert_eq!(judge(None), Ok(()));
        assert_eq!(judge(Some(0)), Ok(()));
        // Writing to shadow stacks is allowed, but there is none.
        assert_eq!(judge(Some(2)), Ok(()));
        for features in [1, 3] {
            let error = judge(Some(features)).unwrap_err();
            assert!(error.to_string().contains("shadow stack"), "{error}");
        }
    }

    #[test]
    fn this_thread_has_none_or_is_refused() {
        // Whatever this machine has, /proc says the same.
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("x86_Thread_features:"));
        let has_one =
            line.is_some_and(|features| features.split_whitespace().any(|f| f == "shstk"));
        assert_eq!(refuse().is_err(), has_one, "{line:?}");
    }
}
