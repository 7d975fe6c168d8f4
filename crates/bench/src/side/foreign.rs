//! Peers in other languages: Go, and C++ with Boost.Fiber. Each is a program of its own, built by that language's compiler at its first use
//! and kept beside this program; where the compiler is not installed, there is no such side.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::meter::{Sample, per};
use crate::workload::Load;

/// A program in another language.
pub(crate) struct Foreign {
    compiler: &'static str,
    /// Comes between the compiler and the paths of the program and the source.
    arguments: &'static [&'static str],
    /// Comes at the end.
    libraries: &'static [&'static str],
    /// A file that has to be there besides the compiler.
    header: Option<&'static str>,
    file: &'static str,
    source: &'static str,
}

/// Goroutines, as many at a time as there are CPUs to run on.
pub(crate) static GO: Foreign = Foreign {
    compiler: "go",
    arguments: &["build", "-o"],
    libraries: &[],
    header: None,
    file: "peer.go",
    source: include_str!("../../peers/peer.go"),
};

/// Fibers of one thread.
pub(crate) static BOOST: Foreign = Foreign {
    compiler: "g++",
    arguments: &["-std=c++17", "-O3", "-DNDEBUG", "-Wl,-z,now", "-o"],
    libraries: &["-lboost_fiber", "-lboost_context", "-pthread"],
    header: Some("/usr/include/boost/fiber/all.hpp"),
    file: "peer.cpp",
    source: include_str!("../../peers/peer.cpp"),
};

impl Foreign {
    /// Whether it can be built here.
    pub(crate) fn is_there(&self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(self.compiler).is_file())
            && self.header.is_none_or(|header| Path::new(header).exists())
    }

    /// Has it do a workload.
    pub(crate) fn run(&self, workload: &str, load: Load) -> Result<Sample, String> {
        let program = self.program()?;
        let numbers = [load.tasks.to_string(), load.rounds.to_string()];
        let said = output(Command::new(program).arg(workload).args(numbers))?;
        let mut numbers = said.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(done)), Some(Ok(spent_ns))) => Ok(Sample {
                done,
                values: vec![per(Duration::from_nanos(spent_ns), done)],
            }),
            _ => Err(format!("it said: {said}")),
        }
    }

    /// The program, built if it is not there. Its name tells the source, so that an old one is not taken for this one.
    fn program(&self) -> Result<PathBuf, String> {
        let text = |error: std::io::Error| error.to_string();
        let own = env::current_exe().map_err(text)?;
        let folder = own.with_file_name("sinew-bench-peers");
        let mut hasher = DefaultHasher::new();
        (self.source, self.arguments, self.libraries).hash(&mut hasher);
        let program = folder.join(format!("{}-{:016x}", self.compiler, hasher.finish()));
        if program.exists() {
            return Ok(program);
        }
        // Others may be at it too, in threads of this process and in other processes: each builds in a folder of its own, and the last to
        // finish puts its program in the place of another that is the same.
        static BUILDS: AtomicU32 = AtomicU32::new(0);
        let build = BUILDS.fetch_add(1, Ordering::Relaxed);
        let own_folder = folder.join(format!("build-{}-{build}", process::id()));
        fs::create_dir_all(&own_folder).map_err(text)?;
        let source = own_folder.join(self.file);
        fs::write(&source, self.source).map_err(text)?;
        let unfinished = own_folder.join("program");
        output(
            Command::new(self.compiler)
                .args(self.arguments)
                .args([&unfinished, &source])
                .args(self.libraries)
                .env("GOCACHE", folder.join("go-cache"))
                .env("CGO_ENABLED", "0"),
        )?;
        fs::rename(&unfinished, &program).map_err(text)?;
        fs::remove_dir_all(&own_folder).map_err(text)?;
        Ok(program)
    }
}

/// What a program says, if it succeeds.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}: {said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::{BOOST, Foreign, GO};

    /// Eight at once find nothing built; each gets a program that runs, and nothing is left of the builds.
    fn built_by_many_at_once(peer: &Foreign) {
        if !peer.is_there() {
            println!("left out: {} is not installed", peer.compiler);
            return;
        }
        let program = peer.program().expect("it builds");
        fs::remove_file(&program).expect("it was there");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(peer.program().expect("it builds"), program));
            }
        });
        let folder = program.parent().expect("a folder");
        let left = fs::read_dir(folder).expect("it is there").filter(|entry| {
            let name = entry.as_ref().expect("an entry").file_name();
            name.to_string_lossy()
                .starts_with(&format!("build-{}", std::process::id()))
        });
        assert_eq!(left.count(), 0);
        assert!(program.is_file());
    }

    #[test]
    fn many_that_build_a_peer_at_once_do_not_take_each_others_files() {
        // One after the other: each looks for what is left of all builds of this process.
        built_by_many_at_once(&GO);
        built_by_many_at_once(&BOOST);
    }
}
