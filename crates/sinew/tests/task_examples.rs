//! The examples of tasks do what they say.

#[path = "../examples/crawl.rs"]
mod crawl;
#[path = "../examples/fan_out.rs"]
mod fan_out;
#[path = "../examples/word_count.rs"]
mod word_count;

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, process};

use sinew::ErrorKind;
use sinew::task::TaskPool;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("sinew-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

// contract: T6, T17
#[test]
fn the_words_of_a_folder_are_counted() {
    let folder = Folder::new("words");
    fs::create_dir(folder.0.join("deep")).unwrap();
    for n in 0..100 {
        let text = format!("One two, two; file{n}\n");
        fs::write(folder.0.join(format!("{n}.txt")), &text).unwrap();
        fs::write(folder.0.join(format!("deep/{n}.md")), &text).unwrap();
    }
    fs::write(folder.0.join("left.out"), "one").unwrap();
    let pool = TaskPool::builder()
        .threads(2)
        .queue_limit(4)
        .build()
        .unwrap();
    let mut shown = Vec::new();
    let words = sinew::run(|| {
        word_count::count(folder.0.clone(), &pool, |done, total| {
            shown.push((done, total))
        })
    })
    .unwrap();
    assert_eq!((words["one"], words["two"], words["file7"]), (200, 400, 2));
    assert_eq!(shown.last(), Some(&(200, 200)));
    assert!(shown.is_sorted(), "{shown:?}");
    // A file that is not text, and a folder that is not there.
    fs::write(folder.0.join("0.txt"), [0xff, 0xfe]).unwrap();
    assert!(word_count::count(folder.0.clone(), &pool, |_, _| ()).is_err());
    let missing = word_count::count(folder.0.join("none"), &pool, |_, _| ()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

// contract: T18
#[test]
fn a_site_is_crawled_and_the_first_failure_ends_it() {
    let (pages, stats) = crawl::serve_and_crawl(crawl::site(60), 5).unwrap();
    assert_eq!((pages.len(), stats.succeeded), (60, 60));
    let mut broken = crawl::site(60);
    broken.remove("/17");
    let error = crawl::serve_and_crawl(broken, 5).unwrap_err();
    assert_eq!(error.message(), "no page /17");
}

// contract: T19
#[test]
fn ten_thousand_timers_run_on_two_workers() {
    let report = fan_out::fan_out(10_000, Duration::from_millis(50), Duration::from_secs(60));
    let report = report.unwrap();
    assert_eq!((report.stats.succeeded, report.early), (10_000, 0));
    // Those that are left when it takes too long are cancelled, and nothing of them stays.
    let report = fan_out::fan_out(1_000, Duration::from_secs(3600), Duration::ZERO).unwrap();
    assert_eq!(report.stats.completed, 1_000);
    assert!(report.stats.cancelled > 900, "{report:?}");
}
