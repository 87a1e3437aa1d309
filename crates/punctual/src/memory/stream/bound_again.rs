//! Ports that are bound again: a communicator takes nothing of a sealed ring that the one before it at its port had taken.
//!
//! A ring's control words say where a reader that joins begins, and others may write them. So a new communicator can be shown again what
//! its port has had, unless somebody remembers that. When something was sealed does not tell: a message may have been claimed long
//! before it was sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_machine::event_fd::EventFd;
use punctual_proto::Port;
use punctual_proto::limits::SEAL_SENDERS_MAX;
use punctual_proto::seal::TakenStream;

use super::images::Images;
use super::{StreamError, Streams};

/// Rings that are remembered, counted for each port: as many as four communicators know. Beyond that, those noted first are forgotten.
const REMEMBERED_MAX: usize = 4 * SEAL_SENDERS_MAX;

/// Sealed rings that were taken at ports that were closed, each up to a number, the last closed last.
#[derive(Debug, Default)]
pub(super) struct TakenAtPorts(Mutex<VecDeque<(Port, TakenStream)>>);

impl TakenAtPorts {
    fn change<T>(&self, work: impl FnOnce(&mut VecDeque<(Port, TakenStream)>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, port: Port, taken: impl Iterator<Item = TakenStream>) {
        let taken: Vec<TakenStream> = taken.collect();
        self.change(|remembered| {
            let is_new = |known: &TakenStream| taken.iter().any(|it| it.stream_name() == known.stream_name());
            remembered.retain(|(at, known)| *at != port || !is_new(known));
            remembered.extend(taken.iter().map(|&stream| (port, stream)));
            remembered.drain(..remembered.len().saturating_sub(REMEMBERED_MAX));
        });
    }

    /// Those of one port, the last closed first.
    fn at(&self, port: Port) -> Vec<TakenStream> {
        self.change(|remembered| {
            remembered.iter().rev().filter(|(at, _)| *at == port).map(|&(_, stream)| stream).collect()
        })
    }
}

impl Streams {
    /// The subscription of a communicator, which has its port alone.
    pub(crate) fn bind(self: &Arc<Self>, port: Port, event: &Arc<EventFd>) -> Result<Images, StreamError> {
        let mut images = self.subscribe(port, event)?;
        if let Some(opening) = images.opening() {
            opening.go_on_after(self.taken_at_ports.at(port));
        }
        Ok(images)
    }
}

impl Images {
    /// Its communicator ends, and takes nothing any more.
    pub(crate) fn leave_port(&mut self) {
        let (streams, port) = (Arc::clone(self.streams()), self.address().port);
        if let Some(opening) = self.opening() {
            streams.taken_at_ports.note(port, opening.taken());
        }
    }
}
