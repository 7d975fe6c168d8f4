//! The arguments of `sinew serve`, and Ctrl-C.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use super::{AccessLog, Config, Server, Summary};
use crate::duration;
use crate::rt::{self, CancelToken, UnixStream};

/// What a person can say to `sinew serve`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder to serve
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    addr: SocketAddr,
    /// How long a connection may be idle between requests
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    idle_timeout: Duration,
    /// How long a request's head may take, from first byte to last
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    header_timeout: Duration,
    /// How long a client may take for each 64 KiB of an answer
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    write_timeout: Duration,
    /// The largest head of a request, in bytes
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(128..=1_048_576))]
    max_header_bytes: u32,
    /// The most header lines of a request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    max_headers: u32,
    /// The most connections at a time; clients beyond it get 503
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// How long requests in flight may take to end after Ctrl-C
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    grace: Duration,
    /// List the entries of folders that have no index.html
    #[arg(long)]
    listing: bool,
    /// Follow symbolic links that lead out of DIR
    #[arg(long)]
    follow: bool,
    /// Log each answer in the combined format, to FILE or to standard output, which has nothing else then
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    access_log: Option<PathBuf>,
}

impl Arguments {
    fn into_config(self) -> Config {
        Config {
            folder: self.folder,
            address: self.addr,
            idle_timeout: self.idle_timeout,
            header_timeout: self.header_timeout,
            write_timeout: self.write_timeout,
            header_bytes_max: self.max_header_bytes as usize,
            headers_max: self.max_headers as usize,
            connections_max: self.max_connections as usize,
            grace: self.grace,
            listing: self.listing,
            follow: self.follow,
            access_log: self.access_log.map(|to| match to.as_os_str() == "-" {
                true => AccessLog::Stdout,
                false => AccessLog::File(to),
            }),
        }
    }
}

/// Serves until Ctrl-C; returns the exit status.
#[must_use]
pub fn execute(arguments: Arguments) -> ExitCode {
    let config = arguments.into_config();
    let voice = match config.access_log {
        Some(AccessLog::Stdout) => say_beside,
        _ => say,
    };
    match rt::run(move || serve(config, voice)) {
        Ok(summary) => voice(&farewell(&summary)),
        Err(error) => complain(&error),
    }
}

fn serve(config: Config, voice: fn(&str) -> ExitCode) -> io::Result<Summary> {
    let folder = config.folder.display().to_string();
    let server = Server::bind(config)?;
    let shutdown = CancelToken::new();
    let watcher = watch_signals(shutdown.clone())?;
    voice(&format!(
        "serving {folder} on http://{}",
        server.local_addr()
    ));
    let summary = server.run(&shutdown);
    watcher.cancel("the server has ended");
    summary
}

/// Starts a coroutine that fires `shutdown` at the first signal and ends the process at the second.
fn watch_signals(shutdown: CancelToken) -> io::Result<rt::JoinHandle<()>> {
    let (mut signals, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        let end = sender.as_fd().try_clone_to_owned()?;
        signal_hook::low_level::pipe::register(signal, end)?;
    }
    Ok(rt::spawn_local(move || {
        // Kept until here: without the last sender the reading end would report its end.
        let _sender = sender;
        let mut one = [0];
        if signals.read_exact(&mut one).is_err() {
            return;
        }
        shutdown.cancel("interrupted");
        if signals.read_exact(&mut one).is_ok() {
            end_at_once();
        }
    }))
}

/// The status a shell gives for a process that Ctrl-C ended.
#[expect(
    clippy::exit,
    reason = "the second Ctrl-C means now, whatever is in flight"
)]
fn end_at_once() {
    std::process::exit(130);
}

fn farewell(summary: &Summary) -> String {
    let Summary {
        connections,
        answers,
        cut,
        panics,
        log_dropped,
    } = summary;
    let mut text = format!("served {answers} requests on {connections} connections");
    if *cut > 0 {
        text.push_str(&format!("; cut {cut} that outlasted the grace"));
    }
    if *log_dropped > 0 {
        text.push_str(&format!("; {log_dropped} answers are not in the log"));
    }
    if *panics > 0 {
        text.push_str(&format!("; {panics} panics"));
    }
    text
}

/// Writes a line to standard output; a reader that is gone is no failure of the server.
fn say(line: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Writes a line to standard error: standard output is the log, and nothing else.
fn say_beside(line: &str) -> ExitCode {
    match writeln!(io::stderr(), "{line}") {
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

fn complain(error: &io::Error) -> ExitCode {
    match writeln!(io::stderr(), "sinew serve: {error}") {
        Ok(()) | Err(_) => ExitCode::from(2),
    }
}
