//! A child process.
//!
//! Owns: the child until it is reaped, and a descriptor that tells of its end. Thread: any, one at a time.
//!
//! Invariants
//! - I1. The child is reaped exactly once, by a wait or by the reaper: its number means nobody else before that.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::io::{Direction, Limits, Watched};
use crate::process::collect::collect;
use crate::process::pipe::{ChildStderr, ChildStdin, ChildStdout};
use crate::process::reaper;
use crate::process::{ExitStatus, Output};

/// A child process, as [`std::process::Child`]; made by [`Command::spawn`](crate::process::Command::spawn).
///
/// Dropping it leaves the process alone, unless [`Command::kill_on_drop`](crate::process::Command::kill_on_drop) says
/// otherwise; unlike with std's it is reaped all the same when it ends.
#[derive(Debug)]
pub struct Child {
    /// The pipe to its standard input, if there is one.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if there is one.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error output, if there is one.
    pub stderr: Option<ChildStderr>,
    /// There until the drop.
    running: Option<Running>,
    kill_on_drop: bool,
}

/// The process and its descriptor.
#[derive(Debug)]
struct Running {
    child: std::process::Child,
    /// Readable once the process has ended.
    end: Watched,
}

impl Child {
    /// Takes on a child that was just started.
    pub(super) fn adopt(mut child: std::process::Child, kill_on_drop: bool) -> io::Result<Self> {
        let opened = Pid::from_raw(child.id().cast_signed())
            .ok_or(Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) => {
                // It cannot be waited for without blocking: it is not to run unwatched.
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let end = Watched::new(fd);
        let mut this = Self {
            stdin: None,
            stdout: None,
            stderr: None,
            running: Some(Running { child, end }),
            kill_on_drop,
        };
        this.stdin = stdin.map(ChildStdin::new).transpose()?;
        this.stdout = stdout.map(ChildStdout::new).transpose()?;
        this.stderr = stderr.map(ChildStderr::new).transpose()?;
        Ok(this)
    }

    fn running(&mut self) -> io::Result<&mut Running> {
        self.running.as_mut().ok_or_else(|| Errno::CHILD.into())
    }

    /// The number of the process. Once it has been waited for, the number may be another's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running
            .as_ref()
            .map_or(0, |running| running.child.id())
    }

    /// Ends the process by `SIGKILL`. It is still to be waited for.
    ///
    /// # Errors
    ///
    /// The kernel's. Killing one that has ended is none.
    pub fn kill(&mut self) -> io::Result<()> {
        self.running()?.child.kill()
    }

    /// How the process has ended, if it has. Never waits.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.running()?.child.try_wait()
    }

    /// Waits for the process to end. Its standard input is closed first, as in std: it might wait for it. After the end
    /// another wait returns the same at once.
    ///
    /// # Suspends
    ///
    /// Until it has ended.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; the process goes on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.wait_within(&Limits::new())
    }

    /// As [`Child::wait`], for at most `timeout`. Of zero it is not an error.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`]; `TimedOut` when the time is up, and the process goes on.
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        self.wait_within(&Limits::until_ns(crate::sys::clock::after_ns(timeout)))
    }

    /// As [`Child::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`]; `TimedOut` at the deadline, and the process goes on.
    pub fn wait_deadline(&mut self, deadline: Instant) -> io::Result<ExitStatus> {
        let limits = Limits::new();
        limits.set_deadline(Some(deadline));
        self.wait_within(&limits)
    }

    fn wait_within(&mut self, limits: &Limits) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let Running { child, end } = self.running()?;
        end.call(Direction::Read, limits, |_| match child.try_wait()? {
            Some(status) => Ok(status),
            None => Err(Errno::AGAIN.into()),
        })
    }

    /// Waits for the process to end and for all that it writes to its pipes, both at the same time.
    ///
    /// # Suspends
    ///
    /// Until it has ended, and its standard output and error output have, which processes of its own may hold open.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; what was read is lost, and the child is dropped.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let [stdout, stderr] = collect([
            self.stdout.take().map(Into::into),
            self.stderr.take().map(Into::into),
        ])?;
        let status = self.wait()?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(Running { mut child, end }) = self.running.take() else {
            return;
        };
        if self.kill_on_drop {
            let _has_ended = child.kill().is_err();
        }
        // A child that cannot be asked for has been reaped by somebody else.
        if matches!(child.try_wait(), Ok(None)) {
            reaper::reap(child, end.into_fd());
        }
    }
}
