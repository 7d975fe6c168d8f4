//! Processes of itself: a sample is taken, and a server runs, in a process of its own.
//!
//! A program that measures calls [`take_over`] first. Its children are the same program with the same arguments
//! and the variable `SINEW_BENCH_CHILD` in their environment; what they say is on lines with a mark, so that
//! whatever else the program prints does no harm.
//!
//! Invariants
//! - I1. No child outlives its use: a server ends with its input, a sample when it has been taken.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::{env, fmt};

use crate::machine;
use crate::meter::Sample;
use crate::server::{self, Protocol};
use crate::workload::{Load, workloads};

/// Names the job of a child.
const JOB: &str = "SINEW_BENCH_CHILD";
/// Begins each line that a child says to its parent.
const MARK: &str = "sinew-bench: ";

/// How this program is started again.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launcher {
    /// This program, with the arguments that lead it to [`take_over`].
    ///
    /// # Errors
    ///
    /// The kernel does not say where the program is.
    pub fn new(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<Self> {
        Ok(Self {
            program: env::current_exe()?,
            arguments: arguments.into_iter().map(Into::into).collect(),
        })
    }

    /// For a child: the way it was started itself.
    fn inherited() -> io::Result<Self> {
        Self::new(env::args_os().skip(1))
    }

    fn start(&self, job: &Job) -> io::Result<Conversation> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env(JOB, job.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().map(BufReader::new);
        Ok(Conversation {
            child,
            input,
            output,
        })
    }

    /// Takes one sample of one side.
    ///
    /// # Errors
    ///
    /// What kept the child from its work.
    pub(crate) fn sample(&self, workload: &str, side: &str, load: Load) -> Result<Sample, String> {
        let job = Job::Sample {
            workload: workload.into(),
            side: side.into(),
            load,
        };
        let text = |error: io::Error| error.to_string();
        let mut conversation = self.start(&job).map_err(text)?;
        let said = conversation.hear();
        let said = said.map_err(|error| conversation.last_words(&error))?;
        parse_sample(&said).ok_or(said)
    }
}

/// What a child is told to do; fields are separated by semicolons.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Job {
    Sample {
        workload: String,
        side: String,
        load: Load,
    },
    Serve {
        protocol: Protocol,
        side: String,
    },
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sample {
                workload,
                side,
                load,
            } => write!(f, "sample;{workload};{side};{};{}", load.tasks, load.rounds),
            Self::Serve { protocol, side } => write!(f, "serve;{};{side}", protocol.name()),
        }
    }
}

impl Job {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split(';').collect();
        match fields[..] {
            ["sample", workload, side, tasks, rounds] => Some(Self::Sample {
                workload: workload.into(),
                side: side.into(),
                load: Load {
                    tasks: tasks.parse().ok()?,
                    rounds: rounds.parse().ok()?,
                },
            }),
            ["serve", protocol, side] => Some(Self::Serve {
                protocol: Protocol::parse(protocol)?,
                side: side.into(),
            }),
            _ => None,
        }
    }
}

/// A child and both directions of talk with it; ends it when dropped.
#[derive(Debug)]
pub(crate) struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Conversation {
    /// Starts a server in a child of this child.
    pub(crate) fn serve(protocol: Protocol, side: &str) -> io::Result<Self> {
        Launcher::inherited()?.start(&Job::Serve {
            protocol,
            side: side.into(),
        })
    }

    /// Waits for the next line that is meant for the parent.
    pub(crate) fn hear(&mut self) -> io::Result<String> {
        if let Some(output) = &mut self.output {
            for line in output.lines() {
                let line = line?;
                if let Some(at) = line.find(MARK) {
                    return Ok(line[at + MARK.len()..].to_owned());
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the child ended without a word",
        ))
    }

    /// Says a line to the child.
    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        match &mut self.input {
            Some(input) => writeln!(input, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Why the child ended, with the last line of its error output.
    fn last_words(&mut self, error: &io::Error) -> String {
        self.input = None;
        let status = self
            .child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let stderr = self.child.stderr.take().map(io::read_to_string);
        let stderr = stderr.and_then(Result::ok).unwrap_or_default();
        let last = stderr.lines().rfind(|line| !line.trim().is_empty());
        format!("{error} ({status}): {}", last.unwrap_or(""))
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // It has said all that is wanted of it, or has ended already.
        let _ended_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Says a line to the parent.
pub(crate) fn report(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // The mark begins a line whatever was printed before.
    writeln!(out, "\n{MARK}{line}")?;
    out.flush()
}

fn format_sample(sample: &Sample) -> String {
    let values: Vec<String> = sample.values.iter().map(f64::to_string).collect();
    format!("done {} values {}", sample.done, values.join(" "))
}

fn parse_sample(line: &str) -> Option<Sample> {
    let (done, values) = line.strip_prefix("done ")?.split_once(" values ")?;
    Some(Sample {
        done: done.parse().ok()?,
        values: values
            .split(' ')
            .map(|value| value.parse().ok())
            .collect::<Option<_>>()?,
    })
}

/// In a child: does its job and returns its exit status. Otherwise `None`, and nothing has happened.
#[must_use]
pub fn take_over() -> Option<ExitCode> {
    let job = env::var(JOB).ok()?;
    let said = match Job::parse(&job) {
        Some(Job::Sample {
            workload,
            side,
            load,
        }) => take_sample(&workload, &side, load).map(|sample| format_sample(&sample)),
        Some(Job::Serve { protocol, side }) => {
            server::serve(protocol, &side).map(|()| "served".into())
        }
        None => Err(format!("{JOB}={job} is no job")),
    };
    let (line, code) = match said {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err(error) => (error, ExitCode::FAILURE),
    };
    match report(&line) {
        Ok(()) => Some(code),
        Err(_parent_is_gone) => Some(ExitCode::FAILURE),
    }
}

fn take_sample(workload: &str, side: &str, load: Load) -> Result<Sample, String> {
    let cpus = machine::allowed_cpus().map_err(|error| error.to_string())?;
    let workload = workloads()
        .into_iter()
        .find(|known| known.name == workload)
        .ok_or("no such workload")?;
    let side = workload
        .sides
        .iter()
        .find(|known| known.name == side)
        .ok_or("no such side")?;
    // A server pins itself elsewhere.
    if !workload.on_all_cpus {
        machine::pin(cpus[0]).map_err(|error| error.to_string())?;
    }
    let sample = (side.run)(load)?;
    if sample.done != load.operations() {
        return Err(format!(
            "{} operations were done instead of {}",
            sample.done,
            load.operations()
        ));
    }
    Ok(sample)
}
