//! Writes every frame that is sent or arrives into a file that Wireshark opens (pcapng, IETF draft-ietf-opsawg-pcapng).
//! Capture is a layer around an engine, never a flag inside one.
//!
//! Frames stand as the link type *user 0* (147): the bytes of `docs/wire.md`, without the medium's own headers. Times
//! are `CLOCK_REALTIME`, in nanoseconds. A disk that is full ends the capture, not the traffic.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::clock::{Ticks, realtime_ns};
use punctual_proto::limits::PREFIX_SIZE_MAX;
use punctual_proto::{Header, NodeId, Stamps};

use super::{Bell, Descriptors, Drops, Engine, Event, Flow, OpenError, Receive, SendError, Transmit};

/// Bytes of one frame that are kept.
const SNAP_SIZE: usize = 65_535;

const LINK_TYPE_USER_0: u16 = 147;
const BLOCK_SECTION: u32 = 0x0A0D_0D0A;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET: u32 = 6;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;

/// Which way a frame went, as pcapng's flags say it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    In = 1,
    Out = 2,
}

/// A capture that several threads write to.
#[derive(Clone, Debug)]
pub(crate) struct Capture(Arc<Mutex<CaptureFile>>);

impl Capture {
    /// A capture into a new file.
    pub(crate) fn create(path: &Path) -> Result<Self, OpenError> {
        let file = CaptureFile::create(path).map_err(|error| OpenError::System {
            error: SystemError::new("create capture", path.display().to_string(), error),
            advice: "the folder must exist and be writable",
        })?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn lock(&self) -> MutexGuard<'_, CaptureFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a frame that consists of these parts.
    #[cold]
    pub(crate) fn frame(&self, direction: Direction, parts: &[&[u8]]) {
        self.lock().frame(direction, parts);
    }

    /// As [`Self::frame`], of a frame with this head.
    #[cold]
    pub(crate) fn headed(&self, direction: Direction, header: &Header, stamps: Option<Stamps>, rest: &[u8]) {
        let (prefix, size) = prefix(header, stamps);
        self.frame(direction, &[&prefix[..size], rest]);
    }

    /// What was written until now stands in the file.
    pub(crate) fn flush(&self) {
        self.lock().flush();
    }
}

#[derive(Debug)]
struct CaptureFile {
    /// None once writing has failed.
    file: Option<BufWriter<File>>,
}

impl CaptureFile {
    fn create(path: &Path) -> std::io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&section_block())?;
        file.write_all(&interface_block())?;
        file.flush()?;
        Ok(Self { file: Some(file) })
    }

    fn frame(&mut self, direction: Direction, parts: &[&[u8]]) {
        let Some(file) = &mut self.file else { return };
        if file.write_all(&packet_block(direction, realtime_ns(), parts)).is_err() {
            // The disk is full or gone: what was captured stays readable, the traffic goes on.
            self.file = None;
        }
    }

    fn flush(&mut self) {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
    }
}

/// Type, body and length as every pcapng block has them, padded to four bytes.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (12 + body.len().next_multiple_of(4)) as u32;
    let mut bytes = Vec::with_capacity(size as usize);
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(size as usize - 4, 0);
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes
}

fn section_block() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&0x1A2B_3C4D_u32.to_le_bytes());
    body.extend_from_slice(&1_u16.to_le_bytes());
    body.extend_from_slice(&0_u16.to_le_bytes());
    body.extend_from_slice(&(-1_i64).to_le_bytes());
    block(BLOCK_SECTION, &body)
}

fn interface_block() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&LINK_TYPE_USER_0.to_le_bytes());
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(&(SNAP_SIZE as u32).to_le_bytes());
    body.extend_from_slice(&OPTION_RESOLUTION.to_le_bytes());
    body.extend_from_slice(&1_u16.to_le_bytes());
    // Ten to the minus nine.
    body.extend_from_slice(&[9, 0, 0, 0]);
    body.extend_from_slice(&[0; 4]);
    block(BLOCK_INTERFACE, &body)
}

fn packet_block(direction: Direction, ns: u64, parts: &[&[u8]]) -> Vec<u8> {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let kept = size.min(SNAP_SIZE);
    let mut body = Vec::with_capacity(32 + kept);
    body.extend_from_slice(&0_u32.to_le_bytes());
    body.extend_from_slice(&((ns >> 32) as u32).to_le_bytes());
    body.extend_from_slice(&(ns as u32).to_le_bytes());
    body.extend_from_slice(&(kept as u32).to_le_bytes());
    body.extend_from_slice(&(size as u32).to_le_bytes());
    let data_at = body.len();
    for part in parts {
        let room = kept - (body.len() - data_at);
        body.extend_from_slice(&part[..part.len().min(room)]);
    }
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend_from_slice(&OPTION_FLAGS.to_le_bytes());
    body.extend_from_slice(&4_u16.to_le_bytes());
    body.extend_from_slice(&(direction as u32).to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    block(BLOCK_PACKET, &body)
}

/// The engine with a capture of all its frames.
pub(crate) fn wrap(engine: Engine, path: &Path) -> Result<Engine, OpenError> {
    let capture = Capture::create(path)?;
    let transmit = TapTransmit { inner: engine.transmit, capture: capture.clone() };
    let receive = TapReceive { inner: engine.receive, capture };
    Ok(Engine { transmit: Box::new(transmit), receive: Box::new(receive) })
}

#[derive(Debug)]
struct TapTransmit {
    inner: Box<dyn Transmit>,
    capture: Capture,
}

impl Transmit for TapTransmit {
    fn payload_size_max(&self) -> usize {
        self.inner.payload_size_max()
    }

    fn claim(&mut self, target: Option<NodeId>, size: usize) -> Result<u32, SendError> {
        self.inner.claim(target, size)
    }

    fn claimed(&mut self) -> &mut [u8] {
        self.inner.claimed()
    }

    fn commit(&mut self) {
        let frame = self.inner.claimed();
        self.capture.frame(Direction::Out, &[frame]);
        self.inner.commit();
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn housekeep(&mut self, now: Ticks) {
        self.inner.housekeep(now);
        self.capture.flush();
    }

    fn sent_to(&self, target: Option<NodeId>) -> u64 {
        self.inner.sent_to(target)
    }

    fn refused(&self) -> u64 {
        self.inner.refused()
    }
}

#[derive(Debug)]
struct TapReceive {
    inner: Box<dyn Receive>,
    capture: Capture,
}

fn prefix(header: &Header, stamps: Option<Stamps>) -> ([u8; PREFIX_SIZE_MAX], usize) {
    let mut bytes = [0; PREFIX_SIZE_MAX];
    if let Some((head, rest)) = bytes.split_first_chunk_mut() {
        header.write(head);
        if let (Some(stamps), Some(rest)) = (stamps, rest.first_chunk_mut()) {
            stamps.write(rest);
        }
    }
    (bytes, header.prefix_size())
}

impl Receive for TapReceive {
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        let Self { inner, capture } = self;
        inner.poll(limit, &mut |event| {
            if let Event::Frame(arrival) = event {
                capture.headed(Direction::In, arrival.header, arrival.stamps, arrival.payload);
            }
            visit(event)
        })
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn next_due(&self) -> Option<Ticks> {
        self.inner.next_due()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        self.inner.drops()
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.inner.bell()
    }

    fn looks_suffice(&self) -> bool {
        self.inner.looks_suffice()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inner.descriptors()
    }

    fn handle_awake(&mut self) {
        self.inner.handle_awake();
    }

    fn look_everywhere(&mut self) {
        self.inner.look_everywhere();
    }

    fn handle_woken(&mut self) {
        self.inner.handle_woken();
    }

    fn housekeep(&mut self, now: Ticks) {
        self.inner.housekeep(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        for block in [section_block(), interface_block(), packet_block(Direction::In, 7, &[b"abc", b"defgh"])]
        {
            let size = block.len() as u32;
            assert_eq!(size % 4, 0);
            assert_eq!(block[4..8], size.to_le_bytes());
            assert_eq!(block[block.len() - 4..], size.to_le_bytes());
        }
    }

    #[test]
    fn a_long_frame_is_cut_and_says_so() {
        let long = vec![1; SNAP_SIZE + 10];
        let block = packet_block(Direction::Out, 0, &[b"ab", &long]);
        assert_eq!(block[20..24], (SNAP_SIZE as u32).to_le_bytes());
        assert_eq!(block[24..28], (SNAP_SIZE as u32 + 12).to_le_bytes());
    }
}
