//! Recordings as MCAP ([mcap.dev](https://mcap.dev)), by its crate: the format that tools of robotics open.
//!
//! A channel for each pair of source and target, whose metadata say both. The time of publication is when a message was sent, where
//! that is known. Otherwise it is when the message was seen, which is the time of the log. Chunks are whole records on the disk: of a
//! recorder that is killed all of them can be read.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};

use mcap::records::{self, MessageHeader, Metadata, Record, op};
use mcap::sans_io::linear_reader::{LinearReadEvent, LinearReader, LinearReaderOptions};
use mcap::write::NoSeek;
use mcap::{McapError, WriteOptions, Writer};
use punctual_proto::{Address, NodeId, Port, Target};

use super::reading::{RecordingError, Told};
use super::sink::Sink;
use super::{Entry, MESSAGE_SIZE_MAX, SOURCES_MAX, Totals};

/// The encoding of messages: the application's own.
const ENCODING: &str = "application/octet-stream";

/// The name of what says which bus was recorded, and of what says what is missing.
const RECORDING: &str = "punctual.recording";
const TOTALS: &str = "punctual.totals";

/// The name of what says that the clock was set just before the next message, and its field.
const CLOCK: &str = "punctual.clock";
const SET_NS: &str = "set_ns";

/// Longest record that is read, bytes: a chunk of ours ends with the message that fills it. Those of other writers are a few
/// MiB.
const RECORD_SIZE_MAX: usize = 64 << 20;
const _: () = assert!(RECORD_SIZE_MAX > 2 * MESSAGE_SIZE_MAX);

/// Channels that are read.
const CHANNELS_MAX: usize = 4 * SOURCES_MAX;

/// The end of a file without a summary: the totals of messages up to an instant, the end of the data, a footer without a summary, and
/// the magic.
pub(super) fn short_end(end: &mut Vec<u8>, ns: u64, totals: &Totals) {
    let mut map = Vec::new();
    for (name, number) in totals_pairs(ns, totals) {
        push_text(&mut map, &name);
        push_text(&mut map, &number);
    }
    let mut record = Vec::new();
    push_text(&mut record, TOTALS);
    record.extend_from_slice(&(map.len() as u32).to_le_bytes());
    record.extend_from_slice(&map);
    end.push(op::METADATA);
    end.extend_from_slice(&(record.len() as u64).to_le_bytes());
    end.extend_from_slice(&record);
    end.push(op::DATA_END);
    end.extend_from_slice(&4_u64.to_le_bytes());
    end.extend_from_slice(&[0; 4]);
    end.push(op::FOOTER);
    end.extend_from_slice(&20_u64.to_le_bytes());
    end.extend_from_slice(&[0; 20]);
    end.extend_from_slice(mcap::MAGIC);
}

fn push_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&(text.len() as u32).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

/// Totals of a recording's messages, by name.
fn totals_pairs(ns: u64, totals: &Totals) -> BTreeMap<String, String> {
    let own = [
        ("until_ns", ns),
        ("recorded", totals.recorded),
        ("missed", totals.missed()),
        ("publications_left_out", totals.left_out),
    ];
    let causes = totals.missed.iter().map(|missed| (missed.cause, missed.messages));
    own.into_iter().chain(causes).map(|(name, number)| (name.to_owned(), number.to_string())).collect()
}

/// Properties that the messages of a channel share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ChannelKey {
    source: Address,
    target: Target,
    is_unopened: bool,
    is_fragment: bool,
}

/// A recording that is written.
pub struct McapWriter {
    writer: Writer<NoSeek<Sink>>,
    channels: HashMap<ChannelKey, u16>,
    bus: String,
    /// The file that is written to: the writer does not say how large that is.
    file: File,
}

impl std::fmt::Debug for McapWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McapWriter").field("channels", &self.channels.len()).finish_non_exhaustive()
    }
}

fn failed(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other),
    }
}

fn metadata(name: &str, pairs: impl IntoIterator<Item = (String, String)>) -> Metadata {
    Metadata { name: name.to_owned(), metadata: pairs.into_iter().collect() }
}

impl McapWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(sink: Sink, bus: &str) -> io::Result<Self> {
        let options = WriteOptions::new()
            .compression(None)
            .profile("")
            .library(format!("punctual {}", env!("CARGO_PKG_VERSION")))
            // The caller of this writer ends chunks, by size and by time.
            .chunk_size(None)
            .disable_seeking(true)
            .calculate_data_section_crc(false);
        let file = sink.same_file()?;
        let mut writer = options.create(NoSeek::new(sink)).map_err(failed)?;
        let about = metadata(RECORDING, [("bus".to_owned(), bus.to_owned())]);
        writer.write_metadata(&about).map_err(failed)?;
        writer.flush().map_err(failed)?;
        Ok(Self { writer, channels: HashMap::new(), bus: bus.to_owned(), file })
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        // A device or a pipe has none.
        self.file.metadata().map_or(0, |about| about.len())
    }

    /// Puts a message behind the others.
    ///
    /// # Errors
    /// There are more channels than a file can have.
    pub fn write(&mut self, entry: &Entry, bytes: &[u8], names: &HashMap<NodeId, String>) -> io::Result<()> {
        let &Entry { source, target, is_unopened, is_fragment, .. } = entry;
        let key = ChannelKey { source, target, is_unopened, is_fragment };
        let channel_id = match self.channels.get(&key) {
            Some(&known) => known,
            None => self.open_channel(key, names)?,
        };
        if entry.clock_set_ns != 0 {
            let set = (SET_NS.to_owned(), entry.clock_set_ns.to_string());
            self.writer.write_metadata(&metadata(CLOCK, [set])).map_err(failed)?;
        }
        let header = MessageHeader {
            channel_id,
            sequence: entry.sequence as u32,
            log_time: entry.seen_ns,
            publish_time: entry.instant_ns(),
        };
        self.writer.write_to_known_channel(&header, bytes).map_err(failed)
    }

    fn open_channel(&mut self, key: ChannelKey, names: &HashMap<NodeId, String>) -> io::Result<u16> {
        let ChannelKey { source, target, is_unopened, is_fragment } = key;
        let name = |node: NodeId| names.get(&node).cloned();
        let word = |node: NodeId| name(node).unwrap_or_else(|| node.to_string());
        let to = match (target.node, target.port) {
            (None, None) => "everybody".to_owned(),
            (None, Some(port)) => format!("everybody/{port}"),
            (Some(node), None) => word(node),
            (Some(node), Some(port)) => format!("{}/{port}", word(node)),
        };
        let sealed = if is_unopened { "/sealed" } else { "" };
        let fragments = if is_fragment { "/fragments" } else { "" };
        let topic = format!("/{}/{}/to/{to}{sealed}{fragments}", word(source.node), source.port);
        let mut about = BTreeMap::from([
            ("bus".to_owned(), self.bus.clone()),
            ("source_node".to_owned(), source.node.to_string()),
            ("source_port".to_owned(), source.port.to_string()),
        ]);
        about.extend(name(source.node).map(|name| ("source_name".to_owned(), name)));
        about.extend(target.node.map(|node| ("target_node".to_owned(), node.to_string())));
        about.extend(target.port.map(|port| ("target_port".to_owned(), port.to_string())));
        if is_unopened {
            about.insert("sealed".to_owned(), "unopened".to_owned());
        }
        if is_fragment {
            about.insert("fragments".to_owned(), "true".to_owned());
        }
        let id = self.writer.add_channel(0, &topic, ENCODING, &about).map_err(failed)?;
        self.channels.insert(key, id);
        Ok(id)
    }

    /// Says what has become of messages up to an instant.
    ///
    /// # Errors
    /// There is no room.
    pub fn tell(&mut self, ns: u64, totals: &Totals) -> io::Result<()> {
        self.writer.write_metadata(&metadata(TOTALS, totals_pairs(ns, totals))).map_err(failed)
    }

    /// Ends the chunk, and writes what there is.
    ///
    /// # Errors
    /// There is no room.
    pub fn commit(&mut self) -> io::Result<()> {
        self.writer.flush().map_err(failed)
    }

    /// Ends the file with its summary.
    ///
    /// # Errors
    /// There is no room.
    pub fn finish(&mut self) -> io::Result<()> {
        self.writer.finish().map_err(failed)?;
        Ok(())
    }

    /// Writing has failed, or is over: the file, which ends with a whole record.
    pub fn into_sink(self) -> Sink {
        self.writer.into_inner().into_inner()
    }
}

/// A recording that is read.
pub struct McapReader<R> {
    input: R,
    reader: LinearReader,
    channels: HashMap<u16, ChannelKey>,
    /// The records of a chunk, and how far they were read.
    chunk: Vec<u8>,
    taken: usize,
    /// Bytes read from the file, and those of them that are whole records.
    at: u64,
    whole: u64,
}

impl<R> std::fmt::Debug for McapReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McapReader").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<R: Read> McapReader<R> {
    /// Of a file that begins as MCAP does.
    pub fn new(input: R) -> Self {
        let options = LinearReaderOptions::default()
            .with_emit_chunks(true)
            .with_skip_end_magic(true)
            .with_record_length_limit(RECORD_SIZE_MAX);
        let (reader, whole) = (LinearReader::new_with_options(options), mcap::MAGIC.len() as u64);
        Self { input, reader, channels: HashMap::new(), chunk: Vec::new(), taken: 0, at: 0, whole }
    }

    /// The next message, whose bytes are put into `bytes`; none at the end.
    ///
    /// # Errors
    /// It is no recording, is damaged, or cannot be read.
    pub fn next(&mut self, told: &mut Told, bytes: &mut Vec<u8>) -> Result<Option<Entry>, RecordingError> {
        loop {
            let damaged = |what: String| RecordingError::Damaged { at: self.at, what };
            if let Some((opcode, size)) = next_of_chunk(&self.chunk[self.taken..]).map_err(damaged)? {
                let body = self.taken + RECORD_HEAD_SIZE;
                self.taken = body + size;
                let record = &self.chunk[body..body + size];
                match take(opcode, record, &mut self.channels, told, bytes).map_err(damaged)? {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                }
            }
            let Some(event) = self.reader.next_event() else {
                // It may end behind the head of a record, of which its reader thinks that nothing follows.
                told.is_cut |= self.at != self.whole;
                return Ok(None);
            };
            if let Ok(LinearReadEvent::Record { data, .. }) = &event {
                self.whole += (RECORD_HEAD_SIZE + data.len()) as u64;
            }
            match event {
                Ok(LinearReadEvent::ReadRequest(size)) => {
                    let found = self.input.read(self.reader.insert(size))?;
                    self.reader.notify_read(found);
                    self.at += found as u64;
                }
                Ok(LinearReadEvent::Record { opcode: op::CHUNK, data }) => {
                    self.taken = 0;
                    open_chunk(data, &mut self.chunk).map_err(damaged)?;
                }
                // The records after this one repeat what was read.
                Ok(LinearReadEvent::Record { opcode: op::DATA_END, .. }) => return Ok(None),
                Ok(LinearReadEvent::Record { opcode, data }) => {
                    if let Some(entry) =
                        take(opcode, data, &mut self.channels, told, bytes).map_err(damaged)?
                    {
                        return Ok(Some(entry));
                    }
                }
                Err(McapError::UnexpectedEof) => {
                    told.is_cut = true;
                    return Ok(None);
                }
                Err(error) => return Err(damaged(error.to_string())),
            }
        }
    }
}

/// Size of the head of a record, bytes: its kind, and its size.
const RECORD_HEAD_SIZE: usize = 9;

/// The kind and the size of the next record of a chunk.
fn next_of_chunk(rest: &[u8]) -> Result<Option<(u8, usize)>, String> {
    let Some((&opcode, rest)) = rest.split_first() else { return Ok(None) };
    let wrong = || "a record that does not fit into its chunk".to_owned();
    let (size, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let size = usize::try_from(u64::from_le_bytes(*size)).map_err(|_| wrong())?;
    if size > rest.len() { Err(wrong()) } else { Ok(Some((opcode, size))) }
}

/// Copies the records of a chunk, if they are whole.
fn open_chunk(data: &[u8], records: &mut Vec<u8>) -> Result<(), String> {
    let Ok(Record::Chunk { header, data }) = mcap::parse_record(op::CHUNK, data) else {
        return Err("a chunk that is none".to_owned());
    };
    if !header.compression.is_empty() {
        return Err(format!("compressed by {}, which punctual record does not do", header.compression));
    }
    if header.uncompressed_crc != 0 && crc32fast::hash(&data) != header.uncompressed_crc {
        return Err("a chunk whose check value is wrong".to_owned());
    }
    records.clear();
    records.extend_from_slice(&data);
    Ok(())
}

/// Takes in a record; returns the message, if it is one.
fn take(
    opcode: u8,
    data: &[u8],
    channels: &mut HashMap<u16, ChannelKey>,
    told: &mut Told,
    bytes: &mut Vec<u8>,
) -> Result<Option<Entry>, String> {
    if !matches!(opcode, op::CHANNEL | op::MESSAGE | op::METADATA) {
        return Ok(None);
    }
    match mcap::parse_record(opcode, data).map_err(|error| error.to_string())? {
        Record::Channel(channel) => {
            if channels.len() == CHANNELS_MAX && !channels.contains_key(&channel.id) {
                return Err(format!("more than {CHANNELS_MAX} channels"));
            }
            let key = read_channel(&channel, told)
                .ok_or_else(|| format!("channel {} does not say who sent to whom", channel.topic))?;
            channels.insert(channel.id, key);
            Ok(None)
        }
        Record::Metadata(found) if found.name == RECORDING => {
            told.bus = told.bus.take().or_else(|| found.metadata.get("bus").cloned());
            Ok(None)
        }
        Record::Metadata(found) if found.name == TOTALS => {
            let missed = found.metadata.get("missed").and_then(|missed| missed.parse().ok());
            told.missed = missed.unwrap_or(told.missed);
            Ok(None)
        }
        Record::Metadata(found) if found.name == CLOCK => {
            let set_ns = found.metadata.get(SET_NS).and_then(|ns| ns.parse().ok()).unwrap_or(0);
            told.clock_set_ns = told.clock_set_ns.saturating_add(set_ns);
            Ok(None)
        }
        Record::Message { header, data } => {
            let key = channels.get(&header.channel_id).copied();
            let ChannelKey { source, target, is_unopened, is_fragment } =
                key.ok_or_else(|| format!("a message of channel {}, which there is not", header.channel_id))?;
            bytes.clear();
            bytes.extend_from_slice(&data);
            Ok(Some(Entry {
                sequence: header.sequence.into(),
                sent_ns: Some(header.publish_time),
                seen_ns: header.log_time,
                is_unopened,
                is_fragment,
                ..Entry::new(source, target, bytes.len())
            }))
        }
        _ => Ok(None),
    }
}

fn read_channel(channel: &records::Channel, told: &mut Told) -> Option<ChannelKey> {
    let about = &channel.metadata;
    let node = |name: &str| NodeId::new(u64::from_str_radix(about.get(name)?, 16).ok()?);
    let port = |name: &str| {
        let port: u16 = about.get(name)?.parse().ok()?;
        Some(Port::from(port)).filter(|port| !port.is_reserved())
    };
    let source = Address { node: node("source_node")?, port: port("source_port")? };
    // A field that is present must be right: without it the message would go to everybody.
    let one = |name: &str| about.contains_key(name);
    let target = Target { node: node("target_node"), port: port("target_port") };
    if one("target_node") != target.node.is_some() || one("target_port") != target.port.is_some() {
        return None;
    }
    if let Some(name) = about.get("source_name") {
        told.name(source.node, name.clone());
    }
    let is = |name: &str, what: &str| about.get(name).is_some_and(|said| said == what);
    let (is_unopened, is_fragment) = (is("sealed", "unopened"), is("fragments", "true"));
    Some(ChannelKey { source, target, is_unopened, is_fragment })
}
