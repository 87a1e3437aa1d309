//! Recordings as pcapng: the frames of `docs/wire.md`, as captures have them.
//!
//! The instant of a packet is when its message was sent, where that is known, else when it was seen. The first packet of a node has the
//! node's name for a comment. The first one behind a setting of the clock has its amount for a comment. The section names the
//! bus. Missing messages stand before the packet behind them (`epb_dropcount`), and all of them in the interface's statistics.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::PREFIX_SIZE_MAX;
use punctual_proto::pcapng::{
    BLOCK_HEAD_SIZE, Block, Packet, Statistics, block_size, read_block, write_packet, write_start,
    write_statistics,
};
use punctual_proto::{Frame, FrameError, Header, Kind, NodeId};

use super::reading::{RecordingError, Told};
use super::sink::Sink;
use super::{Entry, RECORDING_OF, Totals};

/// Whole frames are kept.
const SNAP_SIZE: u32 = 0;

/// A recording that is written.
#[derive(Debug)]
pub struct PcapngWriter {
    sink: Sink,
    /// Nodes whose name stands in the file, or is not known.
    told: HashSet<NodeId>,
}

impl PcapngWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(mut sink: Sink, bus: &str) -> io::Result<Self> {
        write_start(sink.buffer(), SNAP_SIZE, Some(&format!("{RECORDING_OF}{bus}")));
        sink.commit()?;
        Ok(Self { sink, told: HashSet::new() })
    }

    /// Puts a message behind the others.
    pub fn write(&mut self, entry: &Entry, bytes: &[u8], names: &HashMap<NodeId, String>) {
        let header = Header {
            kind: if entry.is_fragment { Kind::Fragment } else { Kind::Data },
            incarnation: 0,
            source: entry.source,
            target: entry.target,
            sequence: entry.sequence as u32,
            payload_size: entry.message_size() as u32,
            stamped: entry.stamps.is_some(),
            sealed: entry.is_unopened,
        };
        let mut prefix = [0; PREFIX_SIZE_MAX];
        if let Some((head, rest)) = prefix.split_first_chunk_mut::<HEADER_SIZE>() {
            header.write(head);
            if let (Some(stamps), Some(rest)) = (entry.stamps, rest.first_chunk_mut()) {
                stamps.write(rest);
            }
        }
        let node = entry.source.node;
        let is_new = self.told.insert(node);
        let name = names.get(&node).filter(|_| is_new).map(|name| name_comment(node, name));
        let set = Some(entry.clock_set_ns).filter(|&ns| ns != 0).map(set_comment);
        let comment = match (name, set) {
            (Some(name), Some(set)) => Some(format!("{name}\n{set}")),
            (name, set) => name.or(set),
        };
        let packet = Packet {
            ns: entry.instant_ns(),
            direction: None,
            missed: entry.missed,
            comment: comment.as_deref(),
            frame: &[],
            size: 0,
        };
        let parts = [&prefix[..header.prefix_size()], bytes];
        write_packet(self.sink.buffer(), &packet, &parts, SNAP_SIZE as usize);
    }

    /// Says what has become of messages up to an instant.
    pub fn tell(&mut self, ns: u64, totals: &Totals) {
        short_end(self.sink.buffer(), ns, totals);
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.sink.size()
    }

    /// Writing is over: the file.
    pub fn into_sink(self) -> Sink {
        self.sink
    }

    /// The file, and what has yet to be written to it.
    pub fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }
}

/// Writes an account of the messages up to an instant. A file may end there.
pub(super) fn short_end(to: &mut Vec<u8>, ns: u64, totals: &Totals) {
    let words = totals.words();
    let missed = totals.missed();
    let statistics = Statistics { ns, received: totals.recorded + missed, missed, comment: Some(&words) };
    write_statistics(to, &statistics);
}

fn name_comment(node: NodeId, name: &str) -> String {
    format!("node {node} is {name}")
}

fn set_comment(ns: i64) -> String {
    format!("the clock was set by {ns} ns")
}

/// Amount by which the clock was set, as a comment says.
fn read_set(comment: &str) -> Option<i64> {
    comment.strip_prefix("the clock was set by ")?.strip_suffix(" ns")?.parse().ok()
}

/// The node and the name of a comment.
fn read_name(comment: &str) -> Option<(NodeId, String)> {
    let (node, name) = comment.strip_prefix("node ")?.split_once(" is ")?;
    let node = NodeId::new(u64::from_str_radix(node, 16).ok()?)?;
    Some((node, name.to_owned()))
}

/// A recording, or a capture of one node, that is read.
#[derive(Debug)]
pub struct PcapngReader<R> {
    input: R,
    block: Vec<u8>,
    /// Where the next block begins.
    at: u64,
    has_interface: bool,
}

impl<R: Read> PcapngReader<R> {
    /// Of a file that begins as pcapng does.
    pub fn new(input: R) -> Self {
        Self { input, block: Vec::new(), at: 0, has_interface: false }
    }

    /// The next message, whose bytes are put into `bytes`; none at the end.
    ///
    /// # Errors
    /// It is no recording, is damaged, or cannot be read.
    pub fn next(&mut self, told: &mut Told, bytes: &mut Vec<u8>) -> Result<Option<Entry>, RecordingError> {
        loop {
            let at = self.at;
            if !self.read(told)? {
                return Ok(None);
            }
            let damaged = |what: String| RecordingError::Damaged { at, what };
            match read_block(&self.block).map_err(|error| damaged(error.to_string()))? {
                Block::Section { comment } => {
                    self.has_interface = false;
                    let bus = comment.and_then(|comment| comment.strip_prefix(RECORDING_OF));
                    told.bus = told.bus.take().or_else(|| bus.map(str::to_owned));
                }
                Block::Interface => self.has_interface = true,
                Block::Packet(_) if !self.has_interface => {
                    return Err(damaged("a frame before its interface".to_owned()));
                }
                Block::Packet(packet) => {
                    if let Some(entry) = take(&packet, told, bytes).map_err(damaged)? {
                        return Ok(Some(entry));
                    }
                }
                // The last ones count: sums of all that went before.
                Block::Statistics(statistics) => told.missed = statistics.missed,
                Block::Other => {}
            }
        }
    }

    /// Reads a whole block. Returns true if there was one.
    fn read(&mut self, told: &mut Told) -> Result<bool, RecordingError> {
        let mut head = [0; BLOCK_HEAD_SIZE];
        let found = fill(&mut self.input, &mut head)?;
        if found < head.len() {
            told.is_cut |= found > 0;
            return Ok(false);
        }
        let size = block_size(&head)
            .map_err(|error| RecordingError::Damaged { at: self.at, what: error.to_string() })?;
        self.block.clear();
        self.block.extend_from_slice(&head);
        // As much as is there, not as much as it says.
        let rest = (size - head.len()) as u64;
        (&mut self.input).take(rest).read_to_end(&mut self.block)?;
        told.is_cut |= self.block.len() < size;
        self.at += size as u64;
        Ok(self.block.len() == size)
    }
}

/// As many bytes as there are.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < bytes.len() {
        match input.read(&mut bytes[found..]) {
            Ok(0) => break,
            Ok(size) => found += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The message of a packet, or a part of one; none if it is another frame, or was cut.
fn take(packet: &Packet<'_>, told: &mut Told, bytes: &mut Vec<u8>) -> Result<Option<Entry>, String> {
    let mut clock_set_ns = 0;
    for line in packet.comment.into_iter().flat_map(str::lines) {
        if let Some((node, name)) = read_name(line) {
            told.name(node, name);
        }
        clock_set_ns = read_set(line).unwrap_or(clock_set_ns);
    }
    told.clock_set_ns = told.clock_set_ns.saturating_add(clock_set_ns);
    let frame = match Frame::parse(packet.frame) {
        Ok(frame) => frame,
        Err(FrameError::Short { .. }) if packet.frame.len() < packet.size => {
            told.incomplete += 1;
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    let header = frame.header;
    // Nodes that come and go say so in frames that are no messages.
    if !header.kind.is_numbered() {
        return Ok(None);
    }
    bytes.clear();
    bytes.extend_from_slice(frame.payload);
    if let Some(seal) = frame.seal {
        bytes.extend_from_slice(seal);
    }
    Ok(Some(Entry {
        source: header.source,
        target: header.target,
        sequence: header.sequence.into(),
        missed: packet.missed,
        sent_ns: None,
        seen_ns: packet.ns,
        stamps: frame.stamps,
        is_unopened: header.sealed,
        is_fragment: header.kind == Kind::Fragment,
        clock_set_ns,
        size: bytes.len(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        let node = NodeId::named("brakes");
        assert_eq!(read_name(&name_comment(node, "brakes")), Some((node, "brakes".to_owned())));
        for other in ["", "node", "node 0 is nobody", "node x is y", "brakes"] {
            assert_eq!(read_name(other), None, "{other}");
        }
    }
}
