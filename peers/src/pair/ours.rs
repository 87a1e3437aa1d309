//! Punctual, through communicators: header, counters and doorbells included.

use punctual::memory::{SharedOptions, WhenFull};
use punctual::{Bus, Communicator, CommunicatorOptions, Node, SendError, Target, Wake};
use punctual_machine::block;

use super::network::INTERFACES;
use super::{PATIENCE, Pair, STREAM_RING_SIZE, patiently};
use crate::Outcome;
use crate::meeting::Meeting;

/// Port of both communicators.
const PORT: u16 = 1;

/// Messages whose stages the recorder keeps.
const RECORDED: usize = 1024;

pub(super) struct Ours {
    communicator: Communicator,
    target: Target,
    /// It sends and receives by the calls that wait for so long at most.
    is_timed: bool,
}

impl Ours {
    /// `punctual MEDIUM/WAKE [timed] [stamped]`.
    pub(super) fn open(kind: &str, meeting: &Meeting, held: bool) -> Outcome<Self> {
        let name = kind.trim_start_matches("punctual ");
        let (way, stamped) = name.strip_suffix(" stamped").map_or((name, false), |way| (way, true));
        let (way, is_timed) = way.strip_suffix(" timed").map_or((way, false), |way| (way, true));
        let (medium, wake) = way.split_once('/').ok_or_else(|| format!("unknown kind {kind:?}"))?;
        let wake: Wake = wake.parse()?;
        // The recorder is on for all; a message without stamps has nothing to record.
        let mut options = CommunicatorOptions::waiting(wake).recording(RECORDED);
        if stamped {
            options = options.stamped();
        }
        let (own, other) = if meeting.here { ("here", "there") } else { ("there", "here") };
        let communicator = Node::open(&bus(medium, meeting, held)?, own)?.bind_with(PORT, &options)?;
        Ok(Self { communicator, target: Target::port(other, PORT), is_timed })
    }
}

fn bus(medium: &str, meeting: &Meeting, held: bool) -> Outcome<Bus> {
    Ok(match medium {
        "shared" => {
            let options = SharedOptions::new(&meeting.name);
            Bus::Shared(if held {
                SharedOptions { when_full: WhenFull::HoldBack, ring_size: STREAM_RING_SIZE, ..options }
            } else {
                SharedOptions { when_full: WhenFull::Overrun, ..options }
            })
        }
        "datagram" => {
            let [own, other] = meeting.addresses();
            Bus::peers(own, &[other])
        }
        "packet" => Bus::ethernet(INTERFACES[usize::from(!meeting.here)]),
        _ => return Err(format!("unknown medium {medium:?}").into()),
    })
}

impl Pair for Ours {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        if self.is_timed {
            return Ok(self.communicator.send_timeout(self.target, message, PATIENCE)?);
        }
        loop {
            match self.communicator.try_send(self.target, message) {
                Ok(()) => return Ok(()),
                Err(SendError::Full) => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        let Self { communicator, is_timed, .. } = self;
        let received =
            if *is_timed { communicator.receive_timeout(PATIENCE)? } else { communicator.receive()? };
        block::copy(received.payload, message);
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        let Self { communicator, target, .. } = self;
        // A claim that is dropped sends nothing: it says whether the peer is there.
        patiently(|| communicator.claim(*target, 1).map(drop))
    }
}
