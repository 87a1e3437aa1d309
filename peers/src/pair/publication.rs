//! Punctual, through a publication each way: numbers, accounts and doorbells included.

use std::time::Duration;

use punctual::memory::WhenFull;
use punctual::publication::{OfferError, StampChoice};
use punctual::{
    Bus, Keys, Node, Publication, PublicationOptions, Subscription, SubscriptionOptions, Target, Wake,
};

use super::{PATIENCE, Pair, STREAM_RING_SIZE};
use crate::Outcome;
use crate::meeting::Meeting;

const PORT: u16 = 1;

/// As large as a node's ring by default, and as the bare ring's, bytes. Runs are fastest while it stays in the cache.
const RING_SIZE: usize = 1 << 20;

/// Of a publication that says nothing, bytes.
const IDLE_RING_SIZE: usize = 1 << 12;

/// Both processes have it.
const KEY: &str = "1 1 000102030405060708090a0b0c0d0e0f";

pub(super) struct Publications {
    publication: Publication,
    /// To the same subscription, which follows them too.
    _idle: Vec<Publication>,
    subscription: Subscription,
    runs: bool,
}

impl Publications {
    /// `punctual publication/WAKE [stamped] [stages] [sealed] [runs] [of N]`: of so many publications the last is busy.
    pub(super) fn open(kind: &str, meeting: &Meeting, held: bool) -> Outcome<Self> {
        let mut words = kind.trim_start_matches("punctual publication/").split(' ');
        let wake: Wake = words.next().unwrap_or_default().parse()?;
        let (mut stamps, mut runs, mut sealed, mut count) = (StampChoice::Never, false, false, 1_usize);
        while let Some(word) = words.next() {
            match word {
                "stamped" => stamps = StampChoice::Ends,
                "stages" => stamps = StampChoice::All,
                "sealed" => sealed = true,
                "runs" => runs = true,
                "of" => count = words.next().unwrap_or_default().parse()?,
                _ => return Err(format!("unknown kind {kind:?}").into()),
            }
        }
        let (own, other) = if meeting.here { ("here", "there") } else { ("there", "here") };
        let bus = Bus::shared(&meeting.name);
        let bus = if sealed { bus.sealed(&Keys::parse(KEY)?) } else { bus };
        let node = Node::open(&bus, own)?;
        let subscription = node.subscription(PORT, &SubscriptionOptions { wake })?;
        let when_full = Some(if held { WhenFull::HoldBack } else { WhenFull::Overrun });
        let ring_size = if held && !runs { STREAM_RING_SIZE } else { RING_SIZE };
        let options = PublicationOptions { ring_size, when_full, stamps, ..PublicationOptions::default() };
        let idle = PublicationOptions { ring_size: IDLE_RING_SIZE, ..options.clone() };
        let idle = (1..count).map(|_| node.publication(Target::port(other, PORT), &idle));
        let idle = idle.collect::<Result<Vec<_>, _>>()?;
        let publication = node.publication(Target::port(other, PORT), &options)?;
        Ok(Self { publication, _idle: idle, subscription, runs })
    }
}

impl Pair for Publications {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        loop {
            match self.publication.offer(message) {
                Ok(()) => return Ok(()),
                Err(OfferError::Full) => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        self.subscription.receive(message)?;
        Ok(())
    }

    fn send_run(&mut self, first: u64, count: u64, message: &mut [u8]) -> Outcome<()> {
        if !self.runs {
            for number in first..first + count {
                message[..8].copy_from_slice(&number.to_le_bytes());
                self.send(message)?;
            }
            return Ok(());
        }
        let mut run = self.publication.run();
        for number in first..first + count {
            message[..8].copy_from_slice(&number.to_le_bytes());
            loop {
                match run.offer(message) {
                    Ok(()) => break,
                    Err(OfferError::Full) => std::hint::spin_loop(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn receive_run(&mut self, limit: u64, message: &mut [u8], show: &mut dyn FnMut(&[u8])) -> Outcome<u64> {
        if !self.runs {
            self.receive(message)?;
            show(message);
            return Ok(1);
        }
        loop {
            let mut overrun = false;
            let found = self.subscription.poll(limit as usize, |shown| match shown.copy_to(message) {
                Ok(size) => show(&message[..size]),
                Err(_) => overrun = true,
            });
            if overrun {
                return Err("the ring was overrun".into());
            }
            if found > 0 {
                return Ok(found as u64);
            }
            std::hint::spin_loop();
        }
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        let begin = std::time::Instant::now();
        while !self.publication.wait_for_readers(1, Duration::from_micros(100)) {
            // Each finds the other's publication when it looks.
            self.subscription.poll(0, |_| ());
            if begin.elapsed() > PATIENCE {
                return Err("nobody reads".into());
            }
        }
        Ok(())
    }
}
