//! The rows of the cancel table for input and output.

use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use sinew::io::Interest;

use crate::io_rig::{fill_fd, hanging, tcp_pair, unix_pair};
use crate::{Operation, Until, of_io, timeout_of, write_byte};

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

fn listening() -> (OwnedFd, SocketAddr) {
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
