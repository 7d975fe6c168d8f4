//! The TLS stream polled, for async code that runs in a coroutine.
//!
//! Owns: nothing. Thread: that of the scheduler on which it is polled.
//!
//! A poll keeps no lock when it is over. It finds one taken only if others use the stream at the same time by calls that wait: what such
//! a call holds for a computation is tried again in the next turn, and what it may hold for ever is an error.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use super::{Incoming, Outgoing, Session, TlsStream, Transport};
use crate::future::AsyncStream;
use crate::future::sealed::Sealed;
use crate::io::Watch;
use crate::sync::{Mutex, MutexGuard};

impl<S: AsyncStream + Transport> AsyncStream for TlsStream<S> {}

/// A direction, for which another call may be waiting.
fn alone<T>(direction: &Mutex<T>) -> io::Result<MutexGuard<'_, T>> {
    let busy = || {
        io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another call uses the TLS stream",
        )
    };
    direction.try_lock().ok_or_else(busy)
}

/// Makes a call that is polled where one is wanted that does not wait; pending is `WouldBlock` there.
fn in_place<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// And back. The polled calls themselves never fail with `WouldBlock`.
fn as_polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

impl<S: AsyncStream + Transport> TlsStream<S> {
    /// The session; somebody else may compute with it.
    fn poll_session(&self, context: &Context<'_>) -> Poll<MutexGuard<'_, Box<Session>>> {
        match self.session.try_lock() {
            Some(session) => Poll::Ready(session),
            None => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn poll_fill(
        &self,
        incoming: &mut Incoming,
        watch: &mut Watch,
        context: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        as_polled(
            incoming.fill(|buffer| in_place(self.transport.poll_read(watch, context, buffer))),
        )
    }

    /// Sends all that there is to send.
    fn poll_drain(
        &self,
        outgoing: &mut Outgoing,
        watch: &mut Watch,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let send = |bytes: &[u8]| in_place(self.transport.poll_write(watch, context, bytes));
            ready!(as_polled(outgoing.send(send)))?;
            if !ready!(self.poll_session(context)).collect(outgoing)? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends all that there is to send, and lets go of the right to. What a reader of another thread has left for that meanwhile goes too;
    /// if not all has been sent, the next call sees to it.
    fn poll_out(
        &self,
        mut outgoing: MutexGuard<'_, Outgoing>,
        watch: &mut Watch,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(&mut outgoing, watch, context))?;
        self.let_go(outgoing);
        Poll::Ready(Ok(()))
    }
}

#[expect(private_interfaces, reason = "sealed: nobody else can name it")]
impl<S: AsyncStream + Transport> Sealed for TlsStream<S> {
    fn poll_read(
        &self,
        watch: &mut Watch,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut incoming = alone(&self.incoming)?;
        loop {
            let mut session = ready!(self.poll_session(context));
            session.feed(&mut incoming);
            let taken = session.take(buffer);
            let has_to_say = session.connection.wants_write();
            drop(session);
            if has_to_say {
                self.push();
            }
            match taken {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof
                        && self.is_deaf.load(Relaxed) =>
                {
                    return Poll::Ready(Ok(0));
                }
                result => return Poll::Ready(result),
            }
            if ready!(self.poll_fill(&mut incoming, watch, context))? == 0 {
                ready!(self.poll_session(context)).feed_end();
            }
        }
    }

    fn poll_write(
        &self,
        watch: &mut Watch,
        context: &Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut outgoing = alone(&self.outgoing)?;
        if outgoing.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // What an earlier call has taken on goes first; only then there is room.
        ready!(self.poll_drain(&mut outgoing, watch, context))?;
        let mut session = ready!(self.poll_session(context));
        session.check()?;
        let len = session.put(buffer)?;
        drop(session);
        match self.poll_out(outgoing, watch, context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // It is taken on: a flush, or the write that comes next, sends the rest.
            _ => Poll::Ready(Ok(len)),
        }
    }

    fn poll_flush(&self, watch: &mut Watch, context: &Context<'_>) -> Poll<io::Result<()>> {
        let outgoing = alone(&self.outgoing)?;
        self.poll_out(outgoing, watch, context)
    }

    fn poll_close(&self, watch: &mut Watch, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = alone(&self.outgoing)?;
        outgoing.is_ended = true;
        ready!(self.poll_drain(&mut outgoing, watch, context))?;
        // It is said once.
        ready!(self.poll_session(context))
            .connection
            .send_close_notify();
        ready!(self.poll_drain(&mut outgoing, watch, context))?;
        drop(outgoing);
        self.take_in();
        self.transport.poll_close(watch, context)
    }
}
