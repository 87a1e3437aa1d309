//! Drops of the kernel, less those that it was asked for.

use std::sync::Arc;

use punctual_machine::counter::Counter;
use punctual_machine::socket::UdpSocket;

use crate::engine::Drops;

/// Drops of the kernel at a node's sockets.
#[derive(Debug)]
pub(super) struct DatagramDrops {
    /// Each socket, and its count when it was last asked.
    sockets: Vec<(Arc<UdpSocket>, u32)>,
    /// Datagrams of our own that came back: the kernel filters them out, and counts them as dropped.
    echoed: Option<Arc<Counter>>,
    /// Of these, how many we have found among the dropped.
    echoes_seen: u64,
    longest_run: Arc<Counter>,
}

impl DatagramDrops {
    pub(super) fn new(
        sockets: impl Iterator<Item = Arc<UdpSocket>>,
        echoed: Option<Arc<Counter>>,
        longest_run: Arc<Counter>,
    ) -> Self {
        Self { sockets: sockets.map(|socket| (socket, 0)).collect(), echoed, echoes_seen: 0, longest_run }
    }
}

impl Drops for DatagramDrops {
    fn take(&mut self) -> u64 {
        let mut dropped = 0;
        for (socket, seen) in &mut self.sockets {
            let count = socket.dropped().unwrap_or(*seen);
            dropped += u64::from(count.wrapping_sub(std::mem::replace(seen, count)));
        }
        let echoed = self.echoed.as_ref().map_or(0, |echoed| echoed.get_published());
        let echoes = echoed.saturating_sub(self.echoes_seen).min(dropped);
        self.echoes_seen += echoes;
        dropped - echoes
    }

    fn frames_max(&self) -> u64 {
        self.longest_run.get().max(1)
    }
}
