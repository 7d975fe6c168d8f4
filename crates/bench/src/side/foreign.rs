//! Peers in other languages: Go, and C++ with Boost.Fiber. Each is a program of its own, built by that language's compiler at its first use
//! and kept beside this program; where the compiler is not installed, there is no such side.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
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
        fs::create_dir_all(&folder).map_err(text)?;
        let source = folder.join(self.file);
        fs::write(&source, self.source).map_err(text)?;
        let unfinished = program.with_extension("unfinished");
        output(
            Command::new(self.compiler)
                .args(self.arguments)
                .args([&unfinished, &source])
                .args(self.libraries)
                .env("GOCACHE", folder.join("go-cache"))
                .env("CGO_ENABLED", "0"),
        )?;
        fs::rename(&unfinished, &program).map_err(text)?;
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
