//! Accepting where a call of the tests' own stands for the kernel: what is passed over, waited out, told.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use super::{SHORTAGE, accept};
use crate::io::{Limits, Watched};
use crate::time::now;

fn watched() -> Watched {
    let (reader, _writer) = crate::io::pipe().unwrap();
    Watched::new(reader.into())
}

fn os<T>(code: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(code))
}

fn both(f: impl Fn()) {
    f();
    crate::run(f);
}

// contract: I2
#[test]
fn connections_that_are_gone_are_passed_over() {
    both(|| {
        let gone = [libc::ECONNABORTED, libc::EPROTO, libc::ENETUNREACH];
        let calls = Cell::new(0);
        let accepted = accept(&watched(), &Limits::new(), |_| {
            calls.set(calls.get() + 1);
            gone.get(calls.get() - 1).map_or(Ok(7), |code| os(*code))
        });
        assert_eq!((accepted.unwrap(), calls.get()), (7, 4));
    });
}

// contract: I2
#[test]
fn a_short_shortage_is_waited_out_without_spinning() {
    both(|| {
        let (calls, start) = (Cell::new(0), now());
        let accepted = accept(&watched(), &Limits::new(), |_| {
            calls.set(calls.get() + 1);
            if now() < start + Duration::from_millis(50) {
                return os(libc::EMFILE);
            }
            Ok(7)
        });
        assert_eq!(accepted.unwrap(), 7);
        assert!(calls.get() < 10, "{} calls in 50 ms", calls.get());
    });
}

// contract: I2
#[test]
fn a_long_shortage_is_reported() {
    let start = now();
    let error = accept(&watched(), &Limits::new(), |_| os::<()>(libc::ENFILE)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENFILE));
    assert!(now() - start >= SHORTAGE);
}

// contract: I2
#[test]
fn a_shortage_outlasts_no_limit_and_no_cancel() {
    crate::run(|| {
        let limits = Limits::new();
        limits.set_timeout(Some(Duration::from_millis(5))).unwrap();
        let start = now();
        let error = accept(&watched(), &limits, |_| os::<()>(libc::EMFILE)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        assert!(now() - start < SHORTAGE, "the limit counts");

        let accepting = crate::spawn_local(|| {
            accept(&watched(), &Limits::new(), |_| os::<()>(libc::EMFILE)).unwrap_err()
        });
        crate::yield_now().unwrap();
        accepting.cancel("enough");
        let error = accepting.join().unwrap();
        assert!(crate::is_cancelled(&error), "{error}");
        assert!(now() - start < SHORTAGE);
    });
}

// contract: I2
#[test]
fn other_errors_are_told_at_once() {
    for code in [libc::EINVAL, libc::EOPNOTSUPP, libc::EPERM] {
        let calls = Cell::new(0);
        let error = accept(&watched(), &Limits::new(), |_| {
            calls.set(calls.get() + 1);
            os::<()>(code)
        })
        .unwrap_err();
        assert_eq!((error.raw_os_error(), calls.get()), (Some(code), 1));
    }
}
