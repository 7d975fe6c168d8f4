//! Counts the words of all text files below a folder, in a pool of threads, with a progress bar.
//!
//!     cargo run --example word_count -- docs
//!
//! A group holds the tasks: the first file that cannot be read cancels the rest. The pool's queue is short, so that listing a huge folder
//! does not run ahead of the counting: `submit` waits for room.
#![allow(dead_code, reason = "a test runs parts of it")]
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use sinew::task::{CancelOn, TaskGroup, TaskPool};
use sinew::{Error, WaitError};

/// How often each word occurs.
pub(crate) type Words = BTreeMap<String, u64>;

/// All files below a folder with one of these endings.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|end| end == "md" || end == "txt")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn words_of(path: &Path) -> io::Result<Words> {
    let mut words = Words::new();
    for word in fs::read_to_string(path)?.split(|c: char| !c.is_alphanumeric()) {
        if !word.is_empty() {
            *words.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    Ok(words)
}

/// Counts; `show` is told from time to time how many files of how many are done.
///
/// # Errors
///
/// The first file or folder that could not be read.
pub(crate) fn count(
    folder: PathBuf,
    pool: &TaskPool,
    mut show: impl FnMut(u64, u64),
) -> Result<Words, Error> {
    let files = pool.run_blocking(move || files(&folder))??;
    let total = files.len() as u64;
    let group = TaskGroup::builder().cancel_on(CancelOn::FAILED).build();
    let mut counted = Vec::new();
    for file in files {
        match group.submit(pool, move |_| words_of(&file)) {
            Ok(future) => counted.push(future),
            // A failure has closed the group: it is told below.
            Err(_) => break,
        }
        show(group.stats().completed, total);
    }
    while group.wait_timeout(Duration::from_millis(50)) == Err(WaitError::Timeout) {
        show(group.stats().completed, total);
    }
    if let Some(error) = group.first_error() {
        return Err(error);
    }
    show(total, total);
    let mut all = Words::new();
    for words in counted.iter().filter_map(|future| future.get()?.ok()) {
        for (word, times) in words {
            *all.entry(word.clone()).or_default() += times;
        }
    }
    Ok(all)
}

fn bar(done: u64, total: u64) {
    const WIDTH: u64 = 40;
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH) as usize;
    print!("\r[{:<40}] {done} of {total}", "#".repeat(filled));
    // A terminal that is gone is not this program's affair.
    let _gone = io::stdout().flush();
}

fn main() -> Result<(), Error> {
    let folder = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let pool = TaskPool::builder().queue_limit(64).build()?;
    let is_shown = io::stdout().is_terminal();
    let words = sinew::run(|| {
        count(folder, &pool, |done, total| {
            if is_shown {
                bar(done, total);
            }
        })
    })?;
    let mut most: Vec<_> = words.into_iter().collect();
    most.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    println!();
    for (word, times) in most.into_iter().take(10) {
        println!("{times:>8} {word}");
    }
    Ok(())
}
