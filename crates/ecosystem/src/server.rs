//! Database servers of the system's packages, each started for one test alone.
//!
//! Owns: the servers' processes and folders. Thread: any; a server ends with the thread that started it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// A database server that listens on a Unix socket in a folder of its own, and ends with this value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ends_by: Signal,
    folder: Folder,
    socket: PathBuf,
}

impl Server {
    /// PostgreSQL. The user `postgres` needs no password.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not installed; what kept it from starting.
    pub fn postgres() -> io::Result<Self> {
        let programs = postgres_programs()?;
        let folder = Folder::new("postgres")?;
        let data = folder.path.join("data");
        let made = folder
            .command(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=postgres"])
            .args(["--encoding=UTF8", "--locale=C"])
            .arg("--pgdata")
            .arg(&data)
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr)));
        }
        let mut command = folder.command(&programs.join("postgres"));
        command
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-c", "max_connections=20", "-c", "shared_buffers=4MB"])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", folder.path.display()));
        let socket = folder.path.join(".s.PGSQL.5432");
        Self::start(
            command,
            "ready to accept connections",
            Signal::QUIT,
            folder,
            socket,
        )
    }

    /// Redis.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not installed; what kept it from starting.
    pub fn redis() -> io::Result<Self> {
        let program = find("redis-server").ok_or_else(|| missing("redis-server"))?;
        let folder = Folder::new("redis")?;
        let socket = folder.path.join("redis.sock");
        let mut command = folder.command(&program);
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder.path)
            .arg("--unixsocket")
            .arg(&socket);
        Self::start(
            command,
            "eady to accept connections",
            Signal::TERM,
            folder,
            socket,
        )
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts it, and waits until it says that it is ready.
    fn start(
        mut command: Command,
        ready: &str,
        ends_by: Signal,
        folder: Folder,
        socket: PathBuf,
    ) -> io::Result<Self> {
        let (told, tell) = io::pipe()?;
        command.stdout(tell.try_clone()?).stderr(tell);
        let child = command.spawn()?;
        // With it go the ends of the pipe that are this process's.
        drop(command);
        let server = Self {
            child,
            ends_by,
            folder,
            socket,
        };
        let mut lines = BufReader::new(told).lines();
        let mut said = Vec::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line.contains(ready) => break,
                Some(Ok(line)) => said.push(line),
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::other(said.join("\n"))),
            }
        }
        // It would stop at a full pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = kill_process(Pid::from_child(&self.child), self.ends_by);
        // It is this value's child and not waited for: it has a number, and ends by the signal.
        let _ended = asked.is_ok() && self.child.wait().is_ok();
        // In the folder nothing is needed any more; what cannot be removed stays in the system's place for such things.
        let _removed = fs::remove_dir_all(&self.folder.path).is_ok();
    }
}

/// A folder of a server's, which runs as its owner.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Who the server is to be, where this process is root: databases refuse that.
    owner: Option<(u32, u32)>,
}

impl Folder {
    fn new(name: &str) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: the path of a socket has 107 bytes at most.
        let path =
            std::env::temp_dir().join(format!("sinew-{name}-{}-{count}", std::process::id()));
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        let owner = match is_root {
            true => Some(user("postgres").or_else(|| user("nobody")).ok_or_else(|| {
                io::Error::other("no user but root: neither `postgres` nor `nobody`")
            })?),
            false => None,
        };
        if let Some((uid, gid)) = owner {
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(Self { path, owner })
    }

    /// A command that runs as the folder's owner, and that is killed with the thread that starts it.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some((uid, gid)) = self.owner {
            command
                .args(["--reuid", &uid.to_string(), "--regid", &gid.to_string()])
                .arg("--clear-groups");
        }
        command
            .arg(program)
            .current_dir(&self.path)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }
}

/// A user's numbers.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = BufReader::new(File::open("/etc/passwd").ok()?);
    users.lines().map_while(Result::ok).find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        is_it.then_some((uid, gid))
    })
}

/// Where the programs of PostgreSQL are: Debian keeps them out of the search path, by version.
fn postgres_programs() -> io::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<_> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    found.sort();
    let in_path = || Some(find("initdb")?.parent()?.to_path_buf());
    found
        .pop()
        .or_else(in_path)
        .ok_or_else(|| missing("postgresql"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{what} is not installed"))
}
