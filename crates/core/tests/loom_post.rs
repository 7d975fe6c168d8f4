//! Posts under loom: an offer against a close, and posters against an owner that goes to sleep.
#![cfg(loom)]
#![expect(unsafe_code, reason = "raises a call by hand")]

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use sinew_core::inbox::{Call, Inbox, Push};
use sinew_core::post::{PostQueue, Refusal};

const TAG: usize = 4;

// contract: S4
#[test]
fn an_item_is_taken_or_comes_back() {
    loom::model(|| {
        let queue = Arc::new(PostQueue::new(8));
        let posters: Vec<_> = [1, 2]
            .into_iter()
            .map(|item| {
                let queue = queue.clone();
                thread::spawn(move || match queue.offer(item) {
                    Ok(()) => 0,
                    Err((why, back)) => {
                        assert_eq!(why, Refusal::Closed);
                        assert_eq!(back, item);
                        back
                    }
                })
            })
            .collect();
        queue.close();
        let mut sum = 0;
        while let Some(item) = queue.take() {
            sum += item;
        }
        for poster in posters {
            sum += poster.join().unwrap();
        }
        assert_eq!(sum, 3, "taken once or back once");
        assert!(queue.is_empty(), "nothing is accepted after the close");
    });
}

// contract: S8
#[test]
fn a_queue_is_closed_with_nothing_in_it_or_not_at_all() {
    loom::model(|| {
        let queue = Arc::new(PostQueue::new(8));
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || queue.offer(()).is_ok())
        };
        let closed = queue.close_if_empty();
        let accepted = poster.join().unwrap();
        assert!(closed != accepted, "either the post or the close was first");
        assert_eq!(queue.take().is_some(), accepted);
    });
}

// contract: S10
#[test]
fn a_place_is_given_away_once() {
    loom::model(|| {
        let queue = Arc::new(PostQueue::new(1));
        queue.offer(0).unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                let accepted = accepted.clone();
                thread::spawn(move || match queue.offer(1) {
                    Ok(()) => {
                        accepted.fetch_add(1, Relaxed);
                    }
                    Err((why, _)) => assert_eq!(why, Refusal::Full),
                })
            })
            .collect();
        assert_eq!(queue.take(), Some(0), "the oldest first");
        for poster in posters {
            poster.join().unwrap();
        }
        let accepted = accepted.load(Relaxed);
        assert!(accepted <= 1, "one place for two");
        assert_eq!(queue.len(), accepted as u64);
    });
}

/// The owner of a queue of posts: its inbox, and how to wake it.
struct Owner {
    inbox: Inbox,
    call: Call,
    posts: PostQueue<usize>,
    thread: thread::Thread,
}

fn post(owner: &Owner, item: usize) {
    owner.posts.offer(item).unwrap();
    // SAFETY: the call lives as long as its inbox.
    if unsafe { owner.call.raise(&owner.inbox, TAG) } == Push::WakeOwner {
        owner.thread.unpark();
    }
}

// contract: S4
#[test]
fn no_post_is_slept_over() {
    loom::model(|| {
        let owner = Arc::new(Owner {
            inbox: Inbox::new(),
            call: Call::new(),
            posts: PostQueue::new(8),
            thread: thread::current(),
        });
        let posters: Vec<_> = [1, 2]
            .into_iter()
            .map(|item| {
                let owner = owner.clone();
                thread::spawn(move || post(&owner, item))
            })
            .collect();
        let mut sum = 0;
        while sum < 3 {
            let mut called = false;
            for (_, tag) in owner.inbox.drain() {
                assert_eq!(tag, TAG);
                assert!(!called, "the link is in the chain once");
                called = true;
                owner.call.answer();
            }
            if called {
                while let Some(item) = owner.posts.take() {
                    sum += item;
                }
            } else if owner.inbox.announce_sleep() {
                while owner.inbox.is_asleep() {
                    thread::park();
                }
                owner.inbox.awake();
            }
        }
        for poster in posters {
            poster.join().unwrap();
        }
    });
}
