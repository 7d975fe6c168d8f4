//! How a child is to be started.
//!
//! Owns: std's description of it. Thread: any.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use crate::io::named;
use crate::process::child::Child;
use crate::process::{ExitStatus, Output, Stdio};

/// A process to be started, as [`std::process::Command`].
///
/// Starting one is a system call or two, and does not suspend. What is missing here can be set on std's, by
/// [`Command::as_std_mut`] or `From`.
///
/// # Examples
///
/// ```
/// use sinew::process::Command;
///
/// let output = sinew::run(|| Command::new("echo").arg("hello").output())?;
/// assert!(output.status.success());
/// assert_eq!(output.stdout, b"hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Command {
    command: std::process::Command,
    /// Which of input, output and error output were set.
    is_set: [bool; 3],
    kill_on_drop: bool,
}

impl From<std::process::Command> for Command {
    /// [`Command::output`] takes its standard output and error output to be those of the default.
    fn from(command: std::process::Command) -> Self {
        Self {
            command,
            is_set: [false; 3],
            kill_on_drop: false,
        }
    }
}

impl Command {
    /// A program, looked for in `PATH`, without arguments; it inherits the environment and the standard streams.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        std::process::Command::new(program).into()
    }

    /// std's description, for what is missing here. Streams that are set there may be replaced by [`Command::output`].
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.command
    }

    /// Adds an argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Sets a variable of the environment.
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Self {
        self.command.env(key, value);
        self
    }

    /// Sets variables of the environment.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.command.envs(vars);
        self
    }

    /// Removes a variable of the environment.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Self {
        self.command.env_remove(key);
        self
    }

    /// Removes all variables of the environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.command.env_clear();
        self
    }

    /// Sets the directory it starts in.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets its standard input.
    pub fn stdin<T: Into<Stdio>>(&mut self, stdin: T) -> &mut Self {
        self.command.stdin(stdin);
        self.is_set[0] = true;
        self
    }

    /// Sets its standard output.
    pub fn stdout<T: Into<Stdio>>(&mut self, stdout: T) -> &mut Self {
        self.command.stdout(stdout);
        self.is_set[1] = true;
        self
    }

    /// Sets its standard error output.
    pub fn stderr<T: Into<Stdio>>(&mut self, stderr: T) -> &mut Self {
        self.command.stderr(stderr);
        self.is_set[2] = true;
        self
    }

    /// Whether the process is killed when its [`Child`] is dropped before its end: because of a cancel, for one. Not by default.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// Starts the process.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such program; the kernel's.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let child = self.command.spawn().map_err(|error| {
            let program = Path::new(self.command.get_program()).display();
            named(error, || format!("starting {program}"))
        })?;
        Child::adopt(child, self.kill_on_drop)
    }

    /// Starts the process and waits for its end.
    ///
    /// # Suspends
    ///
    /// Until it has ended.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; the process goes on, unless [`Command::kill_on_drop`] was
    /// asked for.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`] and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the process, waits for its end, and returns what it has written. Its input is empty, unless it was set.
    ///
    /// # Suspends
    ///
    /// As [`Child::wait_with_output`].
    ///
    /// # Cancellation
    ///
    /// As for [`Command::status`].
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`] and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = self.is_set;
        if !stdin {
            self.command.stdin(Stdio::null());
        }
        if !stdout {
            self.command.stdout(Stdio::piped());
        }
        if !stderr {
            self.command.stderr(Stdio::piped());
        }
        let child = self.spawn();
        if !stdin {
            self.command.stdin(Stdio::inherit());
        }
        if !stdout {
            self.command.stdout(Stdio::inherit());
        }
        if !stderr {
            self.command.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }
}
