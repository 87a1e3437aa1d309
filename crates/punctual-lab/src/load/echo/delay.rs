//! A delay that is made on purpose, to see in which stage and at which side it shows.

use std::fmt;
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

/// As options name them.
const PLACES: [(&str, DelayPoint); 4] = [
    ("request.sent", DelayPoint::Sent),
    ("request.elsewhere", DelayPoint::Elsewhere),
    ("responder", DelayPoint::Responder),
    ("reply.elsewhere", DelayPoint::ReplyElsewhere),
];

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PLACES.iter().filter(|(_, place)| *place == self.place);
        names.map(|(name, _)| name).try_for_each(|name| write!(f, "{name}={}", units::written(self.time)))
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = text.split_once('=').ok_or("STAGE=TIME is needed")?;
        let found = PLACES.iter().find(|(one, _)| *one == name);
        let (_, place) = *found.ok_or("request.sent, request.elsewhere, responder or reply.elsewhere")?;
        Ok(Self { place, time: units::duration(time)? })
    }
}
