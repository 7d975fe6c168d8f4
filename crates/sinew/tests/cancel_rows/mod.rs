//! The rows of the table of cancels that are about input and output.

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use sinew::io::Interest;
use sinew::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram};

use super::io_rig::{fill_fd, hanging, tcp_pair, unix_pair};
use super::{Duration, HOUR, Operation, Until, now, of_io, timeout_of};

pub(super) fn write_byte(fd: &impl AsFd) {
    assert_eq!(rustix::io::write(fd, &[1]), Ok(1));
}

pub(super) fn reading() -> Operation {
    let (reader, writer) = sinew::io::pipe().unwrap();
    let wait = move |until| of_io(sinew::io::read(&reader, &mut [0], timeout_of(until)));
    Operation::new(wait).by(move || write_byte(&writer)).io()
}

pub(super) fn readying() -> Operation {
    let (reader, writer) = sinew::io::pipe().unwrap();
    let wait = move |until| of_io(sinew::io::ready(&reader, Interest::Read, timeout_of(until)));
    Operation::new(wait).by(move || write_byte(&writer)).io()
}

/// A file that is no matter of the disk's.
pub(super) fn reading_fifo() -> Operation {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let number = NAMES.fetch_add(1, Relaxed);
    let name = format!("sinew-cancel-table-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut file = sinew::fs::File::open(&path).unwrap();
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let wait = move |_| of_io(file.read(&mut [0]));
    let mut operation = Operation::new(wait).by(move || write_byte(&writer)).io();
    operation.has_limit = false;
    operation
}

pub(super) fn writing() -> Operation {
    let (near, far) = unix_pair();
    fill_fd(near.as_fd());
    let wait = move |until| of_io(sinew::io::write(&near, &[1], timeout_of(until)));
    let drain = move || {
        let mut buffer = vec![0; 1 << 16];
        while rustix::io::read(&far, &mut buffer).is_ok() {}
    };
    Operation::new(wait).by(drain).io()
}

pub(super) fn listening() -> (OwnedFd, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

pub(super) fn accepting() -> Operation {
    let (listener, address) = listening();
    let wait = move |until| of_io(sinew::io::accept(&listener, timeout_of(until)));
    let connect = move || drop(std::net::TcpStream::connect(address).unwrap());
    Operation::new(wait).by(connect).io()
}

pub(super) fn connecting() -> Operation {
    let hanging = hanging();
    let wait = move |until| {
        // All of it, which keeps the address hanging.
        let hanging = &hanging;
        let stream = socket2::Type::STREAM.nonblocking();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, stream, None).unwrap();
        of_io(sinew::io::connect(
            &socket,
            &hanging.address,
            timeout_of(until),
        ))
    };
    Operation::new(wait).io()
}

pub(super) fn reading_stream() -> Operation {
    let (mut near, far) = tcp_pair();
    let far: OwnedFd = far.into();
    let wait = move |until: Until| {
        near.set_read_timeout(timeout_of(until)).unwrap();
        of_io(near.read(&mut [0]))
    };
    let mut operation = Operation::new(wait).by(move || write_byte(&far)).io();
    // As with std's, a timeout of zero cannot be set.
    operation.has_limit = false;
    operation
}

pub(super) fn accepting_stream() -> Operation {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let wait = move |until: Until| {
        listener.set_accept_timeout(timeout_of(until)).unwrap();
        of_io(listener.accept())
    };
    let connect = move || drop(std::net::TcpStream::connect(address).unwrap());
    let mut operation = Operation::new(wait).by(connect).io();
    operation.has_limit = false;
    operation
}

/// To several addresses, none of which answers.
pub(super) fn connecting_stream() -> Operation {
    let addresses = [hanging(), hanging()];
    let wait = move |_| {
        let addresses = [addresses[0].address, addresses[1].address];
        of_io(TcpStream::connect(&addresses[..]))
    };
    let mut operation = Operation::new(wait).io();
    operation.has_limit = false;
    operation
}

pub(super) fn receiving_datagram() -> Operation {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = near.local_addr().unwrap();
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let wait = move |until: Until| {
        near.set_read_timeout(timeout_of(until)).unwrap();
        of_io(near.recv_from(&mut [0]))
    };
    let send = move || assert_eq!(far.send_to(&[1], address).unwrap(), 1);
    let mut operation = Operation::new(wait).by(send).io();
    operation.has_limit = false;
    operation
}

pub(super) fn receiving_unix_datagram() -> Operation {
    let (near, far) = UnixDatagram::pair().unwrap();
    let far: OwnedFd = far.into();
    let wait = move |until: Until| {
        near.set_read_timeout(timeout_of(until)).unwrap();
        of_io(near.recv(&mut [0]))
    };
    let mut operation = Operation::new(wait).by(move || write_byte(&far)).io();
    operation.has_limit = false;
    operation
}

pub(super) fn sending_unix_datagram() -> Operation {
    let (near, far) = UnixDatagram::pair().unwrap();
    fill_fd(near.as_fd());
    let wait = move |until: Until| {
        near.set_write_timeout(timeout_of(until)).unwrap();
        of_io(near.send(&[1]))
    };
    let drain = move || {
        let mut buffer = vec![0; 1 << 16];
        while rustix::io::read(&far, &mut buffer).is_ok() {}
    };
    let mut operation = Operation::new(wait).by(drain).io();
    operation.has_limit = false;
    operation
}

/// To an address whose socket is full: nobody tells when there is room.
pub(super) fn sending_to_unix_datagram() -> Operation {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let number = NAMES.fetch_add(1, Relaxed);
    let name = format!("sinew-cancel-table-{}-{number}", std::process::id());
    let address = unix::SocketAddr::from_abstract_name(name).unwrap();
    let near = UnixDatagram::unbound().unwrap();
    let far = UnixDatagram::bind_addr(&address).unwrap();
    near.connect_addr(&address).unwrap();
    while rustix::io::write(&near, &[7]).is_ok() {}
    let wait = move |until: Until| {
        let (near, _far) = (UnixDatagram::unbound().unwrap(), &far);
        near.set_write_timeout(timeout_of(until)).unwrap();
        of_io(near.send_to_addr(&[1], &address))
    };
    let mut operation = Operation::new(wait).io();
    operation.has_limit = false;
    operation
}

pub(super) fn awaiting_child() -> Operation {
    let mut command = sinew::process::Command::new("cat");
    command
        .stdin(sinew::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let input = Cell::new(child.stdin.take());
    let id = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    let wait = move |until| of_io(call!(until, child, wait, wait_timeout, wait_deadline));
    let end = move || {
        drop(input.take());
        let left = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(id), left).unwrap();
    };
    Operation::new(wait).by(end).io()
}

/// The signal is told by another thread, so only what ends the wait otherwise is tried.
pub(super) fn awaiting_interrupt() -> Operation {
    let mut operation = Operation::new(|_| of_io(sinew::signal::ctrl_c())).io();
    operation.has_limit = false;
    operation
}
