//! Async mode over Ethernet: plain sockets, and one receiver that sleeps until a signal, or epoll, tells it of frames.
//!
//! As the original, but for its lost wake-ups: a signal that comes between the last look and the sleep ends the sleep.

use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Clock, Wake};
use punctual_machine::async_io::AsyncIo;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::packet::{BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketOptions, PacketSocket};

use super::alone::{Mechanism, Taken, Totals};
use super::protocol::{Assignment, Part};
use super::value::Value;
use crate::endpoint::{BusPlan, VALUE_SIZE};

/// How often a receiver without news looks at the clock.
const LOOK: Duration = Duration::from_millis(100);

/// A plain socket.
pub(super) struct Plain {
    socket: PacketSocket,
    part: Part,
    /// Of who receives.
    sleep: Sleep,
}

impl Plain {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let BusPlan::Ethernet { interface, .. } = &assignment.bus else {
            return Err("plain sockets are of Ethernet".to_owned());
        };
        let socket = PacketSocket::open(interface, ETHERTYPE_EXPERIMENTAL, &PacketOptions::default());
        let socket = socket.map_err(|error| error.to_string())?;
        let part = assignment.part;
        let receives = !matches!(part, Part::Vehicle(_));
        let wake = if receives { assignment.wake.parse()? } else { Wake::Spin };
        Ok(Self { sleep: Sleep::of(&socket, wake)?, socket, part })
    }
}

impl Mechanism for Plain {
    fn node(&self) -> u64 {
        match self.part {
            Part::Vehicle(number) | Part::Roadside(number) => u64::from(number) + 1,
            Part::Listener => 0,
        }
    }

    fn send(&mut self, value: &[u8; VALUE_SIZE]) -> bool {
        let Some(slot) = self.socket.claim(VALUE_SIZE) else { return false };
        slot[..VALUE_SIZE].copy_from_slice(value);
        self.socket.commit(BROADCAST);
        self.socket.flush().is_ok()
    }

    fn take(&mut self, taken: &mut dyn FnMut(Taken)) {
        let clock = Clock::get();
        while let Some(frame) = self.socket.recv() {
            let received = clock.now();
            let value = frame.bytes.get(..VALUE_SIZE).and_then(Value::parse);
            self.socket.release();
            let node = value.map_or(0, |value| u64::from(value.origin.vehicle) + 1);
            taken(Taken { node, value, received });
        }
    }

    fn rest(&mut self) -> Result<(), String> {
        self.sleep.until_news()
    }

    fn counters(&mut self, totals: &Totals) -> (u64, Vec<(&'static str, u64)>) {
        let dropped = self.socket.drops().unwrap_or(0);
        (totals.sent, vec![("copies", totals.delivered), ("buffer_drops", dropped)])
    }
}

/// How the receiver passes the time without frames.
enum Sleep {
    Signal(AsyncIo, EventFd),
    Epoll(EpollSet),
    Never,
}

impl Sleep {
    fn of(socket: &PacketSocket, wake: Wake) -> Result<Self, String> {
        let made = match wake {
            Wake::Signal => EventFd::new().and_then(|nobody_rings| {
                let mut signals = AsyncIo::default();
                signals.claim(&[socket.as_fd()])?;
                Ok(Self::Signal(signals, nobody_rings))
            }),
            Wake::Spin => Ok(Self::Never),
            _ => EpollSet::new().and_then(|set| {
                set.add(socket.as_fd())?;
                Ok(Self::Epoll(set))
            }),
        };
        made.map_err(|error| error.to_string())
    }

    fn until_news(&mut self) -> Result<(), String> {
        match self {
            Self::Signal(signals, event) => {
                signals.sleep(event.as_fd(), Some(LOOK)).map_err(|error| error.to_string())?;
            }
            Self::Epoll(set) => {
                set.wait(Some(LOOK));
            }
            Self::Never => std::hint::spin_loop(),
        }
        Ok(())
    }
}
