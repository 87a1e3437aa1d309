//! Writes every frame that is sent or arrives into a file that Wireshark opens ([`punctual_proto::pcapng`]).
//! Capture is a layer around an engine, never a flag inside one.
//!
//! Times are `CLOCK_REALTIME`. A disk that is full ends the capture, not the traffic.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::clock::{Ticks, realtime_ns};
use punctual_machine::process::Maker;
use punctual_proto::limits::PREFIX_SIZE_MAX;
use punctual_proto::pcapng::{self, Packet};
use punctual_proto::{Header, NodeId, Stamps};

use super::layer::ReceiveLayer;
use super::{Engine, Event, Flow, OpenError, Receive, SendError, Transmit};

pub(crate) use punctual_proto::pcapng::Direction;

/// Bytes of one frame that are kept.
const SNAP_SIZE: usize = 65_535;

/// A capture that several threads write to.
#[derive(Clone, Debug)]
pub(crate) struct Capture(Arc<Mutex<CaptureFile>>);

impl Capture {
    /// A capture into a new file.
    pub(crate) fn create(path: &Path) -> Result<Self, OpenError> {
        let file = CaptureFile::create(path).map_err(|error| OpenError::System {
            error: SystemError::new("create capture", path.display().to_string(), error),
            advice: "the folder must exist and be writable, and each node needs a file of its own",
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

    /// Everything that was written until now stands in the file.
    pub(crate) fn flush(&self) {
        self.lock().flush();
    }
}

#[derive(Debug)]
struct CaptureFile {
    /// None once writing has failed.
    file: Option<BufWriter<File>>,
    block: Vec<u8>,
    maker: Maker,
}

impl Drop for CaptureFile {
    /// A forked process has a copy of what is not written yet: it is its parent's to write.
    fn drop(&mut self) {
        if !self.maker.is_this_process() {
            let _unwritten = self.file.take().map(BufWriter::into_parts);
        }
    }
}

impl CaptureFile {
    fn create(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        // Two captures would write over each other. A pipe or a device may not know locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(std::io::Error::other("another capture is writing it"));
        }
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let (mut file, mut block) = (BufWriter::new(file), Vec::new());
        pcapng::write_start(&mut block, SNAP_SIZE as u32, None);
        file.write_all(&block)?;
        file.flush()?;
        Ok(Self { file: Some(file), block, maker: Maker::this_process() })
    }

    fn frame(&mut self, direction: Direction, parts: &[&[u8]]) {
        let Self { file: Some(file), block, .. } = self else { return };
        block.clear();
        let direction = Some(direction);
        let packet = Packet { ns: realtime_ns(), direction, missed: 0, comment: None, frame: &[], size: 0 };
        pcapng::write_packet(block, &packet, parts, SNAP_SIZE);
        if file.write_all(block).is_err() {
            // The disk is full or gone: frames captured so far stay readable, the traffic goes on.
            self.file = None;
        }
    }

    fn flush(&mut self) {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
    }
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

    fn flush(&mut self) -> bool {
        self.inner.flush()
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

    fn copies(&self) -> usize {
        self.inner.copies()
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

impl ReceiveLayer for TapReceive {
    fn inner(&self) -> &dyn Receive {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Receive {
        &mut *self.inner
    }

    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        let Self { inner, capture } = self;
        inner.poll(limit, &mut |event| {
            if let Event::Frame(arrival) = event {
                capture.headed(Direction::In, arrival.header, arrival.stamps, arrival.payload);
            }
            visit(event)
        })
    }
}
