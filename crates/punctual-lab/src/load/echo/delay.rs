//! A delay that is made on purpose, to see in which stage and at which side it shows.

use std::str::FromStr;
use std::time::Duration;

use punctual::Clock;
use serde::{Deserialize, Serialize};

use crate::load::pace::spin_until;
use crate::units;

/// Where a delay is made, by the stage in which it must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DelayPoint {
    /// `request.sent`: the client sends late. Open load only.
    Sent,
    /// `request.elsewhere`: the responder does something else before it listens again.
    Elsewhere,
    /// `responder`: its application takes longer.
    Responder,
    /// `reply.elsewhere`: the client does something else before it listens for the reply.
    ReplyElsewhere,
}

/// A delay of every trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    place: DelayPoint,
    time: Duration,
}

impl Delay {
    /// Computes for so long, if this is the place.
    #[inline]
    pub fn make(delay: Option<Self>, place: DelayPoint) {
        if let Some(delay) = delay.filter(|delay| delay.place == place) {
            delay.compute();
        }
    }

    #[cold]
    fn compute(self) {
        let clock = Clock::get();
        spin_until(clock.now().plus(clock.ticks(self.time)));
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, time) = text.split_once('=').ok_or("STAGE=TIME is needed")?;
        let place = match place {
            "request.sent" => DelayPoint::Sent,
            "request.elsewhere" => DelayPoint::Elsewhere,
            "responder" => DelayPoint::Responder,
            "reply.elsewhere" => DelayPoint::ReplyElsewhere,
            _ => return Err("request.sent, request.elsewhere, responder or reply.elsewhere".to_owned()),
        };
        Ok(Self { place, time: units::duration(time)? })
    }
}
