//! No descriptors left. A program of its own, for the limit is the process's.

mod io_rig;

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use io_rig::{read_byte, watchdog};
use sinew::net::{TcpListener, TcpStream, UnixStream};
use sinew::{run, spawn_local, yield_now};

/// Opens descriptors until there are no more.
fn exhaust() -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

// contract: I1
// contract: I2
#[test]
fn accept_fails_while_there_are_none_and_comes_back() {
    let _watchdog = watchdog();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(64);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let client = socket.unwrap();
        let accepting = spawn_local(move || {
            // Waiting when the descriptors go, and for a while after it.
            let error = listener.accept().unwrap_err();
            assert!(is_out_of_descriptors(&error), "{error}");
            // And again: the connection stays where it is.
            let error = listener.accept().unwrap_err();
            assert!(is_out_of_descriptors(&error), "{error}");
            let error = sinew::io::accept(&listener, None).unwrap_err();
            assert!(is_out_of_descriptors(&error), "{error}");
            listener
        });
        yield_now().unwrap();
        let mut files = exhaust();
        assert!(!accepting.is_finished());
        client.connect(&address.into()).unwrap();
        let listener = accepting.join().unwrap();
        let error = TcpListener::bind("127.0.0.1:0").unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:0"), "{error}");
        assert!(TcpStream::connect(address).is_err());
        assert!(UnixStream::pair().is_err());
        // One that pauses when a descriptor comes back goes on.
        let pausing = spawn_local(move || (listener.accept(), listener));
        sinew::sleep(Duration::from_millis(10)).unwrap();
        assert!(!pausing.is_finished(), "it neither fails nor spins");
        files.pop();
        let (accepted, listener) = pausing.join().unwrap();
        let (stream, _) = accepted.unwrap();
        (&client).write_all(b"x").unwrap();
        assert_eq!(read_byte(&stream).unwrap(), b'x');
        drop((stream, files));
        // And it goes on waiting well.
        listener
            .set_accept_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let error = listener.accept().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    });
}
