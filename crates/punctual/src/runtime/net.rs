//! TCP and UDP for tasks. A call is tried when its descriptor was reported, on the task's turn. When the runtime is gone, a call that
//! would wait is an error.

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;

use punctual_machine::counter::Counter;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::shared::Shared;
use super::source::{Side, Source};
use super::{Handle, context};

/// A descriptor in a runtime's reactor.
#[derive(Debug)]
struct Io<T: AsFd> {
    io: T,
    source: Arc<Source>,
    number: u64,
    shared: Arc<Shared>,
    /// By side, calls that did not wait since it last looked whether the turn is over. Tasks that share a side may lose some.
    in_row: [Counter; 2],
}

impl<T: AsFd> Io<T> {
    fn new(handle: &Handle, io: T) -> io::Result<Self> {
        let shared = Arc::clone(&handle.shared);
        let source = Arc::new(Source::default());
        let number = shared.add_descriptor(io.as_fd(), Arc::clone(&source) as _)?;
        Ok(Self { io, source, number, shared, in_row: Default::default() })
    }

    /// True if others have their turn first: after many calls in a row, if the task's turn is over.
    fn is_due(&self, side: Side) -> bool {
        let in_row = &self.in_row[side as usize];
        if in_row.get() < context::IN_ROW_MAX.into() {
            return false;
        }
        in_row.set(0);
        context::is_due()
    }

    /// Tries until the call does not say that it would block. `is_all` says that there is no more for the moment.
    async fn call<R>(
        &self,
        side: Side,
        mut call: impl FnMut(&T) -> io::Result<R>,
        is_all: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        let mut waiter = self.source.waiter(side);
        poll_fn(move |context| {
            // Before the call, so that nothing is taken that is not returned.
            if self.is_due(side) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            loop {
                let Poll::Ready(reports) = waiter.poll_ready(context) else {
                    // Behind the waker that it has left.
                    let is_over = self.shared.reactor.is_over();
                    return if is_over { Poll::Ready(Err(gone())) } else { Poll::Pending };
                };
                match call(&self.io) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.source.spend(side, reports);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => {
                        // One that failed at once counts, too: a loop that tries again would never end its turn.
                        self.in_row[side as usize].add_alone(1);
                        if outcome.as_ref().is_ok_and(&is_all) {
                            self.source.spend_by_less(side, reports);
                        }
                        return Poll::Ready(outcome);
                    }
                }
            }
        })
        .await
    }
}

/// Nobody waits for descriptors any more.
fn gone() -> io::Error {
    io::Error::other("the runtime is gone")
}

impl<T: AsFd> Drop for Io<T> {
    fn drop(&mut self) {
        self.shared.remove_descriptor(self.io.as_fd(), self.number);
    }
}

/// Accepts TCP connections. Any number of tasks may wait for them.
///
/// ```
/// use std::io::{Read, Write};
/// use punctual::runtime::{Runtime, RuntimeOptions, TaskOptions, TcpListener};
///
/// let runtime = Runtime::start(&RuntimeOptions::default())?;
/// let listener = TcpListener::bind(runtime.handle(), "127.0.0.1:0".parse()?)?;
/// let address = listener.local_addr()?;
/// let echo = runtime.spawn(TaskOptions::of_class(0), async move {
///     let (stream, _peer) = listener.accept().await?;
///     let mut buffer = [0; 64];
///     let count = stream.read(&mut buffer).await?;
///     stream.write_all(&buffer[..count]).await
/// })?;
/// let mut client = std::net::TcpStream::connect(address)?;
/// client.write_all(b"hello")?;
/// let mut back = [0; 5];
/// client.read_exact(&mut back)?;
/// assert_eq!(&back, b"hello");
/// runtime.block_on(echo)??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpListener {
    io: Io<std::net::TcpListener>,
    handle: Handle,
}

impl TcpListener {
    /// Listens at an address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(handle: &Handle, address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { io: Io::new(handle, listener)?, handle: handle.clone() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io.local_addr()
    }

    /// The next connection.
    ///
    /// # Errors
    /// The kernel's; one that a connection ended of itself meanwhile is no reason to stop. Where there are too many descriptors
    /// (EMFILE), each call fails until one is closed: wait a while before the next.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.io.call(Side::Read, std::net::TcpListener::accept, |_| false).await?;
        Ok((TcpStream::from_std(&self.handle, stream)?, peer))
    }
}

/// A TCP connection. One task may read while another writes.
#[derive(Debug)]
pub struct TcpStream {
    io: Io<std::net::TcpStream>,
}

impl TcpStream {
    /// Connects to an address.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn connect(handle: &Handle, address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = Self::from_std(handle, socket.into())?;
        let is_there = |stream: &std::net::TcpStream| match stream.take_error()? {
            Some(error) => Err(error),
            // Not connected yet: wait for the report.
            None => stream.peer_addr().map(drop).map_err(|error| match error.kind() {
                io::ErrorKind::NotConnected => io::ErrorKind::WouldBlock.into(),
                _ => error,
            }),
        };
        stream.io.call(Side::Write, is_there, |()| false).await?;
        Ok(stream)
    }

    /// A connection that was made elsewhere.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_std(handle: &Handle, stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { io: Io::new(handle, stream)? })
    }

    /// Reads bytes that have come, as far as there is room; returns 0 at the end.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        self.io.call(Side::Read, |mut stream| stream.read(buffer), |&count| count < room).await
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.call(Side::Write, |mut stream| stream.write(bytes), |&count| count < bytes.len()).await
    }

    /// Writes all.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.io.io.shutdown(how)
    }

    /// The connection, for options of its socket.
    #[must_use]
    pub fn as_std(&self) -> &std::net::TcpStream {
        &self.io.io
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    io: Io<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Binds to an address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(handle: &Handle, address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { io: Io::new(handle, socket)? })
    }

    /// The next datagram, cut off where there is no more room, and its sender.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.call(Side::Read, |socket| socket.recv_from(buffer), |_| false).await
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn send_to(&self, bytes: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.io.call(Side::Write, |socket| socket.send_to(bytes, target), |_| false).await
    }

    /// The socket, for its options and its address.
    #[must_use]
    pub fn as_std(&self) -> &std::net::UdpSocket {
        &self.io.io
    }
}
