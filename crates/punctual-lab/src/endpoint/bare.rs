//! The machine's own mechanisms, with nothing around them: the reference of all other measurements.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use punctual::{Clock, Ticks, Wake};
use punctual_machine::SystemError;
use punctual_machine::async_io::AsyncIo;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::packet::{BROADCAST, PacketOptions, PacketSocket};
use punctual_machine::slot::SlotPair;
use punctual_machine::socket::{UdpOptions, UdpSocket};

use super::{Endpoint, EndpointCounts, Received, poll_until, time_left};

/// One shared slot each way.
#[derive(Debug)]
pub struct SlotEndpoint {
    pair: SlotPair,
    size: usize,
    asleep: bool,
}

impl SlotEndpoint {
    /// The end that makes the file. `asleep`: waits by a bare futex, else spins.
    pub fn create(path: &Path, size: usize, asleep: bool) -> Result<Self, SystemError> {
        Ok(Self { pair: SlotPair::create(path)?, size, asleep })
    }

    /// The other end.
    pub fn open(path: &Path, size: usize, asleep: bool) -> Result<Self, SystemError> {
        Ok(Self { pair: SlotPair::open(path)?, size, asleep })
    }
}

impl Endpoint for SlotEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        if self.asleep {
            self.pair.put_and_wake(message);
        } else {
            self.pair.put(message);
        }
        true
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let buffer = &mut buffer[..self.size];
        let got = if self.asleep {
            self.pair.get_asleep(buffer, time_left(deadline))
        } else {
            poll_until(&mut self.pair, deadline, |pair| pair.try_get(buffer).then_some(()), |_, _| ())
                .is_some()
        };
        got.then_some(Received { size: self.size, stages: None })
    }
}

/// A connected UDP socket and the bare calls.
#[derive(Debug)]
pub struct UdpEndpoint {
    socket: UdpSocket,
    blocking: bool,
}

impl UdpEndpoint {
    /// `blocking`: waits in the kernel, else polls.
    pub fn open(local: SocketAddr, remote: SocketAddr, blocking: bool) -> Result<Self, SystemError> {
        let socket = UdpSocket::bind(local, &UdpOptions::default())?;
        socket.connect(remote)?;
        let set = socket.set_blocking(blocking).and_then(|()| {
            // A watchdog, not a deadline: set once, so that no call more than needed is measured.
            socket.set_receive_timeout(blocking.then_some(Duration::from_millis(300)))
        });
        set.map_err(|error| SystemError::new("set up socket", local.to_string(), error))?;
        Ok(Self { socket, blocking })
    }
}

impl Endpoint for UdpEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.socket.send_bare(message).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let Self { socket, blocking } = self;
        let size = if *blocking {
            loop {
                match socket.recv_bare_blocking(buffer) {
                    Ok(size) => break Some(size),
                    Err(_) if Clock::get().now() >= deadline => break None,
                    // A time-out before the deadline, a signal, or news of an earlier datagram of ours.
                    Err(error) => debug_assert_ne!(error.kind(), ErrorKind::InvalidInput),
                }
            }
        } else {
            poll_until(socket, deadline, |socket| socket.recv_bare(buffer).ok(), |_, _| ())
        };
        size.map(|size| Received { size, stages: None })
    }
}

/// Way in which the end of a packet socket passes the time without frames.
#[derive(Debug)]
enum PacketSleep {
    /// In a signal's sleep, with an event that nobody rings.
    Signal(AsyncIo, EventFd),
    Epoll(EpollSet),
    /// It polls.
    Never,
}

impl PacketSleep {
    fn of(socket: &PacketSocket, wake: Wake) -> Result<Self, SystemError> {
        Ok(match wake {
            Wake::Spin => Self::Never,
            Wake::Signal => {
                let mut signals = AsyncIo::default();
                signals.claim(&[socket.as_fd()])?;
                Self::Signal(signals, EventFd::new()?)
            }
            _ => {
                let set = EpollSet::new()?;
                set.add(socket.as_fd())?;
                Self::Epoll(set)
            }
        })
    }

    /// Until there are news, or so long; polls that found nothing are followed by more.
    fn until_news(&self, limit: Duration) {
        match self {
            Self::Signal(signals, event) => {
                // One that fails returns at once: the socket is polled then.
                let _slept = signals.sleep(event.as_fd(), Some(limit));
            }
            Self::Epoll(set) => {
                set.wait(Some(limit));
            }
            Self::Never => {}
        }
    }
}

/// A packet socket's rings, polled, or waited for by a signal or epoll.
#[derive(Debug)]
pub struct PacketEndpoint {
    socket: PacketSocket,
    size: usize,
    /// Everybody, until the other end was heard.
    peer: [u8; 6],
    sleep: PacketSleep,
}

impl PacketEndpoint {
    /// On an interface, with an EtherType of its own. Waits by a signal or by epoll, or polls.
    pub fn open(interface: &str, ethertype: u16, size: usize, wake: Wake) -> Result<Self, SystemError> {
        let socket = PacketSocket::open(interface, ethertype, &PacketOptions::default())?;
        Ok(Self { sleep: PacketSleep::of(&socket, wake)?, socket, size, peer: BROADCAST })
    }
}

impl Endpoint for PacketEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        let Some(slot) = self.socket.sender.claim(message.len()) else { return false };
        slot[..message.len()].copy_from_slice(message);
        self.socket.sender.commit(self.peer);
        // A frame for which the device has no room now goes with the next flush: sent again, it would go twice.
        let _now_or_later = self.socket.sender.flush();
        true
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let Self { socket, size, peer, sleep } = self;
        let size = *size;
        let mut poll = |socket: &mut PacketSocket| {
            let frame = socket.receiver.recv()?;
            // Real wires pad short frames; the size is agreed.
            let bytes = frame.bytes.get(..size);
            *peer = frame.source_mac;
            let whole = bytes.is_some_and(|bytes| {
                buffer[..size].copy_from_slice(bytes);
                true
            });
            socket.receiver.release();
            Some(whole.then_some(Received { size, stages: None }))
        };
        if matches!(sleep, PacketSleep::Never) {
            return poll_until(socket, deadline, |socket| poll(socket).flatten(), |_, _| ());
        }
        // A frame that came before news were asked for raised none: a look comes before each sleep.
        loop {
            match poll(socket) {
                Some(None) => {}
                Some(received) => return received,
                None if Clock::get().now() >= deadline => return None,
                None => sleep.until_news(time_left(deadline)),
            }
        }
    }

    fn counts(&mut self) -> EndpointCounts {
        EndpointCounts { broadcast: None, lost: ("buffer_drops", self.socket.drops().unwrap_or(0)) }
    }
}
