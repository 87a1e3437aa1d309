//! libzmq: a PAIR of sockets over a Unix socket (its `ipc`), with its own I/O thread at each end.

use punctual_machine::cpu;

use super::{Pair, Temporary, is_whole, path};
use crate::Outcome;
use crate::meeting::Meeting;

/// Messages that may be on their way in each direction.
const HELD_MESSAGES: i32 = 16_384;

pub(super) struct Zmq {
    socket: zmq::Socket,
    _context: zmq::Context,
    _file: Option<Temporary>,
}

impl Zmq {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let path = path(meeting, "zmq");
        let context = zmq::Context::new();
        let socket = beside_every_cpu(|| context.socket(zmq::PAIR))??;
        socket.set_sndhwm(HELD_MESSAGES)?;
        socket.set_rcvhwm(HELD_MESSAGES)?;
        let address = format!("ipc://{}", path.display());
        if meeting.here {
            socket.bind(&address)?;
        } else {
            socket.connect(&address)?;
        }
        Ok(Self { socket, _context: context, _file: meeting.here.then(|| Temporary(path)) })
    }
}

/// The first socket starts libzmq's I/O thread, which inherits where its maker may run. Pinned with it, both would share one CPU.
fn beside_every_cpu<T>(make: impl FnOnce() -> T) -> Outcome<T> {
    let pinned = cpu::allowed();
    cpu::pin_to_any(&(0..cpu::count_online()).collect::<Vec<_>>())?;
    let made = make();
    cpu::pin_to_any(&pinned)?;
    Ok(made)
}

impl Pair for Zmq {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.socket.send(message, 0)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        is_whole(self.socket.recv_into(message, 0)?, message)
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // It queues what is sent before the other end is there.
        Ok(())
    }
}
