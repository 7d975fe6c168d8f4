//! Unit tests of `epoll`: both calls wait, neither is early, both deliver.
#![expect(clippy::disallowed_methods, reason = "measures the waits")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll as make;

use super::{Event, wait_coarsely, wait_precisely};

type Wait = fn(std::os::fd::BorrowedFd<'_>, &mut Vec<Event>, Option<Duration>) -> i64;

#[test]
fn neither_call_is_early_and_both_deliver() {
    for wait in [wait_precisely as Wait, wait_coarsely] {
        let epoll = make::create(make::CreateFlags::CLOEXEC).unwrap();
        let mut events = Vec::with_capacity(4);
        let timeout = Duration::from_micros(1500);
        let before = Instant::now();
        assert_eq!(wait(epoll.as_fd(), &mut events, Some(timeout)), 0);
        assert!(before.elapsed() >= timeout);
        assert_eq!(wait(epoll.as_fd(), &mut events, Some(Duration::ZERO)), 0);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        make::add(
            &epoll,
            &reader,
            make::EventData::new_u64(7),
            make::EventFlags::IN,
        )
        .unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(wait(epoll.as_fd(), &mut events, None), 1);
    }
}
