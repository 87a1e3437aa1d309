//! A recording of `perf sched record`: the same tracepoints, in its own file. Pure: any bytes are read, and none are believed
//! unchecked.

use std::collections::BTreeMap;

use super::event::{CALL_NAMES, CpuTrace, NAMES, TracedEvent};
use super::record::Layouts;

/// A thread that the file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfThread {
    /// Its process.
    pub process: u32,
    /// The process that began it.
    pub parent: Option<u32>,
}

/// Contents of such a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfData {
    /// A trace for each CPU, by the clock that perf used.
    pub cpus: Vec<CpuTrace>,
    /// Threads by their numbers.
    pub threads: BTreeMap<u32, PerfThread>,
}

/// `PERF_RECORD_LOST`, `_COMM`, `_FORK`, `_SAMPLE`, `_LOST_SAMPLES`, and perf's own `_COMPRESSED` and `_COMPRESSED2`.
const LOST: u32 = 2;
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const COMPRESSED: [u32; 2] = [81, 83];

/// Samples that a filter of perf's own left out are not lost, by this bit of their record.
const LEFT_OUT: u32 = 1 << 15;

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// Bits of `perf_event_attr::sample_type`.
mod field {
    pub(super) const IP: u64 = 1;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// The feature of the file that holds the formats of tracepoints.
const TRACING_DATA: u32 = 1;

/// Bytes, read from their beginning.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// Text up to its zero.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = self.take(end)?;
        self.take(1).map(|_| text)
    }

    /// As many bytes as the number before them says.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = usize::try_from(self.u64()?).ok()?;
        self.take(size)
    }

    /// A part of the file, as a section of it is described: offset and size.
    fn section(whole: &'a [u8], description: &mut Self) -> Option<&'a [u8]> {
        let (offset, size) = (description.u64()?, description.u64()?);
        let offset = usize::try_from(offset).ok()?;
        whole.get(offset..offset.checked_add(usize::try_from(size).ok()?)?)
    }
}

/// Size of the header of what perf writes to a pipe: nothing but the magic number and this.
const PIPE_HEADER_SIZE: u64 = 16;

/// Reads such a file.
///
/// # Errors
/// The error says what the file is instead, or what it lacks, and what to do.
pub fn read_perf_data(bytes: &[u8]) -> Result<PerfData, String> {
    let mut header = Bytes(bytes);
    if header.take(8) != Some(b"PERFILE2") {
        return Err("it is no file of perf on a little-endian machine: perf sched record -o FILE makes one"
            .to_owned());
    }
    let cut = || "it is cut off: perf has to end before its file is whole".to_owned();
    let header_size = header.u64().ok_or_else(cut)?;
    if header_size == PIPE_HEADER_SIZE {
        return Err("it was written to a pipe: perf sched record -o FILE writes to a file".to_owned());
    }
    let attribute_size = header.u64().ok_or_else(cut)?;
    let attributes = Bytes::section(bytes, &mut header).ok_or_else(cut)?;
    let mut data_description = header;
    let data = Bytes::section(bytes, &mut header).filter(|data| !data.is_empty()).ok_or_else(cut)?;
    let data_end =
        data_description.u64().zip(data_description.u64()).map(|(offset, size)| offset.saturating_add(size));
    let _event_types = header.u64().zip(header.u64()).ok_or_else(cut)?;
    let features = header.u64().ok_or_else(cut)?;
    if features & 1 << TRACING_DATA == 0 {
        return Err("it holds no tracepoints: perf sched record records those that are needed".to_owned());
    }
    // A section for each feature, in the order of their bits.
    let place = (features & ((1 << TRACING_DATA) - 1)).count_ones() as usize;
    let table = data_end
        .and_then(|end| bytes.get(usize::try_from(end).ok()?.checked_add(16 * place)?..))
        .ok_or_else(cut)?;
    let tracing = Bytes::section(bytes, &mut Bytes(table)).ok_or_else(cut)?;
    let layouts = formats(tracing).ok_or("its formats of tracepoints are not understood")??;
    let samples =
        Samples::read(bytes, attributes, attribute_size).ok_or("its events are not understood")??;
    samples.records(data, &layouts)
}

/// The tracepoints that are known here, from a copy of their descriptions.
fn formats(tracing: &[u8]) -> Option<Result<Layouts, String>> {
    const MAGIC: &[u8] = b"\x17\x08\x44tracing";
    let mut bytes = Bytes(tracing);
    if bytes.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let _version = bytes.text()?;
    let _big_endian_and_long_size = bytes.take(2)?;
    let _page_size = bytes.u32()?;
    for _ in ["header_page", "header_event"] {
        bytes.text()?;
        bytes.sized()?;
    }
    for _ in 0..bytes.u32()? {
        bytes.sized()?;
    }
    let (mut known, mut names): (Vec<(usize, String)>, Vec<String>) = (Vec::new(), Vec::new());
    for _ in 0..bytes.u32()? {
        let system = String::from_utf8_lossy(bytes.text()?).into_owned();
        for _ in 0..bytes.u32()? {
            let text = String::from_utf8_lossy(bytes.sized()?).into_owned();
            let name = text.lines().next().and_then(|line| line.strip_prefix("name: ")).unwrap_or_default();
            let name = format!("{system}/{}", name.trim());
            if let Some(kind) = NAMES.iter().chain(&CALL_NAMES).position(|one| *one == name) {
                known.push((kind, text));
                names.push(name);
            }
        }
    }
    if let Some(missing) = NAMES[..2].iter().find(|one| !names.iter().any(|name| name == *one)) {
        let name = missing.replace('/', ":");
        return Some(Err(format!("it holds no {name}: perf sched record of Linux 4.2 or later records it")));
    }
    Some(Layouts::of(known.iter().map(|(kind, text)| (*kind, text.as_str()))))
}

/// An event that was recorded.
#[derive(Clone, Copy)]
struct Recorded {
    is_tracepoint: bool,
    /// Fields of its records.
    fields: u64,
}

/// Layout of records.
struct Samples {
    /// Of each event by its number.
    events: BTreeMap<u64, Recorded>,
    /// Of the first, which all share where records have no number.
    first: Recorded,
}

impl Samples {
    fn read(whole: &[u8], attributes: &[u8], size: u64) -> Option<Result<Self, String>> {
        let size = usize::try_from(size).ok().filter(|size| *size >= 64)?;
        let (mut events, mut all) = (BTreeMap::new(), Vec::new());
        for one in attributes.chunks_exact(size) {
            let is_tracepoint = Bytes(one).u32()? == TRACEPOINT;
            let event = Recorded { is_tracepoint, fields: Bytes(&one[24..]).u64()? };
            let ids = Bytes::section(whole, &mut Bytes(&one[size - 16..]))?;
            events.extend(ids.chunks_exact(8).filter_map(|id| Some((Bytes(id).u64()?, event))));
            all.push(event);
        }
        let first = *all.first()?;
        let needed = field::TIME | field::CPU | field::RAW;
        let lacks = |fields: u64| fields & needed != needed || fields & field::READ != 0;
        // perf adds an event of its own, which tells of processes and has no data.
        if all.iter().any(|event| event.is_tracepoint && lacks(event.fields)) {
            return Some(Err(
                "its records have no time, CPU or data: perf sched record asks for them".to_owned()
            ));
        }
        let is_unnumbered = all.iter().any(|event| event.fields & field::IDENTIFIER == 0);
        if is_unnumbered && all.iter().any(|event| event.fields != first.fields) {
            return Some(Err(
                "its events differ and have no number: perf sched record asks for one".to_owned()
            ));
        }
        Some(Ok(Self { events, first }))
    }

    fn is_numbered(&self) -> bool {
        self.first.fields & field::IDENTIFIER != 0
    }

    /// A sample of a tracepoint.
    fn sample<'a>(&self, body: &'a [u8]) -> Option<Sample<'a>> {
        let mut bytes = Bytes(body);
        let id = if self.is_numbered() { Some(bytes.u64()?) } else { None };
        let event = id.map_or(Some(self.first), |id| self.events.get(&id).copied())?;
        let fields = Some(event.fields).filter(|_| event.is_tracepoint)?;
        let skip = |bytes: &mut Bytes<'_>, bits: u64| {
            bytes.take(8 * (fields & bits).count_ones() as usize).map(|_| ())
        };
        skip(&mut bytes, field::IP | field::TID)?;
        let at_ns = bytes.u64()?;
        skip(&mut bytes, field::ADDR | field::ID | field::STREAM_ID)?;
        let cpu = bytes.u32()?;
        bytes.take(4)?;
        skip(&mut bytes, field::PERIOD)?;
        if fields & field::CALLCHAIN != 0 {
            let count = usize::try_from(bytes.u64()?).ok()?;
            bytes.take(count.checked_mul(8)?)?;
        }
        let size = usize::try_from(bytes.u32()?).ok()?;
        Some(Sample { id, at_ns, cpu, raw: bytes.take(size)? })
    }

    /// The number of the event at the end of a record that is no sample.
    fn id_of(&self, body: &[u8]) -> Option<u64> {
        let at = body.len().checked_sub(8).filter(|_| self.is_numbered())?;
        Bytes(&body[at..]).u64()
    }

    /// The CPU there.
    fn cpu_of(&self, body: &[u8]) -> Option<u32> {
        let at = body.len().checked_sub(8 + 8 * usize::from(self.is_numbered()))?;
        Bytes(&body[at..]).u32()
    }

    fn records(&self, data: &[u8], layouts: &Layouts) -> Result<PerfData, String> {
        let (mut cpus, mut threads) = (BTreeMap::<u32, PerfCpu>::new(), BTreeMap::<u32, PerfThread>::new());
        // Each event of a whole machine has a number for each CPU.
        let mut cpu_of = BTreeMap::new();
        // Of events whose CPU no sample tells.
        let mut lost_anywhere = 0_u64;
        let mut rest = Bytes(data);
        while !rest.0.is_empty() {
            let damaged = || "a record of it is damaged".to_owned();
            let kind = rest.u32().ok_or_else(damaged)?;
            let bits_and_size = rest.u32().ok_or_else(damaged)?;
            let size = (bits_and_size as usize >> 16).checked_sub(8).ok_or_else(damaged)?;
            let body = rest.take(size).ok_or_else(damaged)?;
            let mut words = Bytes(body);
            match kind {
                SAMPLE => {
                    if let Some(Sample { id, at_ns, cpu, raw }) = self.sample(body) {
                        cpu_of.extend(id.map(|id| (id, cpu)));
                        cpus.entry(cpu).or_default().add(at_ns, raw, layouts);
                    }
                }
                LOST => {
                    let lost = words.u64().and(words.u64()).zip(self.cpu_of(body));
                    let (count, cpu) = lost.ok_or_else(damaged)?;
                    cpus.entry(cpu).or_default().lose(count);
                }
                LOST_SAMPLES if bits_and_size & LEFT_OUT == 0 => {
                    let count = words.u64().ok_or_else(damaged)?;
                    // perf writes it at the end, and knows the number alone: the CPU that stands there is 0.
                    let cpu = match self.id_of(body) {
                        Some(id) => cpu_of.get(&id).copied(),
                        None => Some(self.cpu_of(body).ok_or_else(damaged)?),
                    };
                    let total = match cpu {
                        Some(cpu) => &mut cpus.entry(cpu).or_default().lost_in_all,
                        None => &mut lost_anywhere,
                    };
                    *total = total.saturating_add(count);
                }
                COMM => {
                    let (process, thread) = words.u32().zip(words.u32()).ok_or_else(damaged)?;
                    threads.entry(thread).or_default().process = process;
                }
                FORK => {
                    let numbers: Vec<u32> = std::iter::from_fn(|| words.u32()).take(3).collect();
                    let [process, parent, thread] = numbers[..] else { return Err(damaged()) };
                    threads.insert(thread, PerfThread { process, parent: Some(parent) });
                }
                kind if COMPRESSED.contains(&kind) => {
                    return Err("it is compressed: record it without -z".to_owned());
                }
                _ => {}
            }
        }
        let all = || cpus.values().flat_map(|cpu| &cpu.events).map(|event| event.at_ns);
        let (Some(since_ns), Some(until_ns)) = (all().min(), all().max()) else {
            return Err("it holds no event that is known here: perf sched record records them".to_owned());
        };
        let finish = |(number, mut cpu): (u32, PerfCpu)| {
            cpu.lost_in_all = cpu.lost_in_all.saturating_add(lost_anywhere);
            cpu.finish(number, since_ns, until_ns)
        };
        Ok(PerfData { cpus: cpus.into_iter().map(finish).collect(), threads })
    }
}

/// A sample of a tracepoint: the event's number, where it has one, instant, CPU and data.
struct Sample<'a> {
    id: Option<u64>,
    at_ns: u64,
    cpu: u32,
    raw: &'a [u8],
}

/// perf enables and disables its events CPU by CPU, within this. A CPU that has none for longer at an end of the recording was idle.
const ENABLING_NS: u64 = 100_000_000;

/// Contents of the file for one CPU.
#[derive(Default)]
struct PerfCpu {
    events: Vec<TracedEvent>,
    gaps: Vec<(u64, u64)>,
    /// As records say that stand where events are missing.
    lost: u64,
    /// As the events' own counts say, which hold those too.
    lost_in_all: u64,
    last_ns: u64,
    /// Events are missing since then.
    gap_from: Option<u64>,
}

impl PerfCpu {
    fn add(&mut self, at_ns: u64, raw: &[u8], layouts: &Layouts) {
        if let Some(from_ns) = self.gap_from.take() {
            self.gaps.push((from_ns.min(at_ns), at_ns));
        }
        self.last_ns = at_ns;
        // Of those that are not known here nothing follows.
        if let Some(event) = layouts.event(raw) {
            self.events.push(TracedEvent { at_ns, event });
        }
    }

    fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
        self.gap_from.get_or_insert(self.last_ns);
    }

    /// `since_ns` and `until_ns` are of all CPUs.
    fn finish(mut self, cpu: u32, since_ns: u64, until_ns: u64) -> CpuTrace {
        self.events.sort_by_key(|event| event.at_ns);
        let (first_ns, last_ns) = (since_ns, until_ns);
        let of = |event: Option<&TracedEvent>, none_ns| event.map_or(none_ns, |event| event.at_ns);
        let since_ns = of(self.events.first(), last_ns).min(first_ns.saturating_add(ENABLING_NS));
        let until_ns = of(self.events.last(), first_ns).max(last_ns.saturating_sub(ENABLING_NS));
        if self.lost_in_all > self.lost {
            // No record followed them that could say so.
            self.lose(self.lost_in_all - self.lost);
        }
        if let Some(from_ns) = self.gap_from {
            self.gaps.push((from_ns, last_ns.max(from_ns)));
        }
        let Self { events, gaps, lost, .. } = self;
        CpuTrace { cpu, since_ns, until_ns, lost, gaps, is_damaged: false, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_point::{TaskState, TraceEvent};

    /// `perf sched record` of perf 6.1 on Linux 6.18: 140 ms of a shell called late beside one called hog, both on CPU 1. All other
    /// records were taken out, and all other names.
    const RECORDED: &[u8] = include_bytes!("perf_data/sched.data");

    /// Goal: a recording of perf is read: every event that is known here, in order, with threads and their processes.
    #[test]
    fn a_recording_of_perf_is_read() {
        let found = read_perf_data(RECORDED).expect("a recording");
        assert_eq!(found.cpus.len(), 2);
        let events = || found.cpus.iter().flat_map(|cpu| &cpu.events);
        let switches = events().filter(|event| matches!(event.event, TraceEvent::Switch { .. })).count();
        let wakings = events().filter(|event| matches!(event.event, TraceEvent::Waking { .. })).count();
        let births = events().filter(|event| matches!(event.event, TraceEvent::Birth { .. })).count();
        let counted = (SWITCHES, WAKINGS, BIRTHS);
        assert_eq!((switches, wakings, births), counted, "as perf script counts them");
        assert!(
            found.cpus.iter().all(|cpu| cpu.lost == 0 && cpu.events.is_sorted_by_key(|event| event.at_ns))
        );
        let slept = events().find_map(|event| match &event.event {
            TraceEvent::Switch { previous, state: TaskState::Asleep, .. } if previous.name == "sleep" => {
                Some(previous.thread)
            }
            _ => None,
        });
        let thread = found.threads.get(&slept.expect("a sleep")).expect("its process");
        assert!(thread.parent.is_some_and(|parent| parent > 2));
    }

    const SWITCHES: usize = 129;
    const WAKINGS: usize = 40;
    const BIRTHS: usize = 3;

    /// The first sample of a CPU.
    fn sample_of(cpu: u32) -> (u64, u64) {
        let mut head = Bytes(RECORDED);
        head.take(16).expect("a head");
        let size = head.u64().expect("a head");
        let attributes = Bytes::section(RECORDED, &mut head).expect("attributes");
        let samples = Samples::read(RECORDED, attributes, size).expect("attributes").expect("understood");
        let mut rest = Bytes(Bytes::section(RECORDED, &mut head).expect("data"));
        loop {
            let (kind, size) = rest.u32().zip(rest.u32()).expect("a record");
            let body = rest.take((size >> 16) as usize - 8).expect("a record");
            let sample = Some(body).filter(|_| kind == SAMPLE).and_then(|body| samples.sample(body));
            if let Some(sample) = sample.filter(|sample| sample.cpu == cpu) {
                return (sample.id.expect("numbered"), sample.at_ns);
            }
        }
    }

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend((8 + 8 * words.len() as u16).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// The recording with an event of perf's own, as perf 6.7 and later add to those of a whole machine, and with these records more.
    fn with_dummy(dummy: u64, more: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = RECORDED.to_vec();
        let word = |at: usize| u64::from_le_bytes(*RECORDED[at..].first_chunk().expect("a head")) as usize;
        let [attribute_size, attributes_at, attributes_size, data_at, data_size] =
            [16, 24, 32, 40, 48].map(word);
        let ids_at = bytes.len();
        bytes.extend(dummy.to_le_bytes());
        let mut attribute = RECORDED[attributes_at..attributes_at + attribute_size].to_vec();
        let fields = field::IP | field::TID | field::TIME | field::CPU | field::IDENTIFIER;
        attribute[..4].copy_from_slice(&1_u32.to_le_bytes());
        attribute[24..32].copy_from_slice(&fields.to_le_bytes());
        attribute[attribute_size - 16..][..8].copy_from_slice(&(ids_at as u64).to_le_bytes());
        attribute[attribute_size - 8..].copy_from_slice(&8_u64.to_le_bytes());
        let attributes = [&attribute[..], &RECORDED[attributes_at..attributes_at + attributes_size]].concat();
        let data = [&RECORDED[data_at..data_at + data_size], &more.concat()].concat();
        for (place, section) in [(24, attributes), (40, data)] {
            let at = bytes.len() as u64;
            bytes[place..place + 8].copy_from_slice(&at.to_le_bytes());
            bytes[place + 8..place + 16].copy_from_slice(&(section.len() as u64).to_le_bytes());
            bytes.extend(section);
        }
        // The table of other sections follows the data.
        let table = data_at + data_size;
        bytes.extend(&RECORDED[table..table + 16 * 8]);
        bytes
    }

    /// Goal: of a CPU whose events perf enabled later nothing is known before. One that was idle for long is known nevertheless, but for the
    /// time that enabling takes.
    #[test]
    fn a_cpu_is_known_from_its_first_event() {
        let known = |events: &[u64]| {
            let event = |&at_ns: &u64| {
                let event = TraceEvent::SoftInterruptExit { vector: 1 };
                TracedEvent { at_ns, event }
            };
            let cpu = PerfCpu { events: events.iter().map(event).collect(), ..PerfCpu::default() };
            let made = cpu.finish(0, 1_000_000_000, 9_000_000_000);
            (made.since_ns / 1_000_000, made.until_ns / 1_000_000)
        };
        assert_eq!(known(&[1_000_000_000, 5_000_000_000, 9_000_000_000]), (1_000, 9_000));
        assert_eq!(known(&[1_040_000_000, 8_970_000_000]), (1_040, 8_970));
        assert_eq!(known(&[5_000_000_000]), (1_100, 8_900));
        assert_eq!(known(&[]), (1_100, 8_900));
    }

    /// Goal: an event without data is no reason to refuse the others, wherever it stands; its samples are passed over.
    #[test]
    fn an_event_of_perfs_own_is_passed_over() {
        const DUMMY: u64 = 1 << 40;
        let (_, at_ns) = sample_of(1);
        let sample = record(SAMPLE, 0, &[DUMMY, 0xffff, 7 << 32 | 7, at_ns, 1]);
        let with = read_perf_data(&with_dummy(DUMMY, &[sample])).expect("a recording");
        assert_eq!(with, read_perf_data(RECORDED).expect("a recording"));
    }

    /// Goal: samples that an event counts as lost are told, once, of the CPU whose number it is, or of each where no sample tells that;
    /// those that were left out are not.
    #[test]
    fn samples_that_were_lost_are_told() {
        let (id, _) = sample_of(1);
        let trailing = [0, 0, 0, id];
        let with = |kind, misc, words: &[u64]| record(kind, misc, &[words, &trailing].concat());
        let lost = |more: &[Vec<u8>]| {
            let found = read_perf_data(&with_dummy(1 << 40, more)).expect("a recording");
            let of = |cpu: &CpuTrace| (cpu.cpu, cpu.lost, cpu.gaps.len());
            found.cpus.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(lost(&[]), [(0, 0, 0), (1, 0, 0)]);
        assert_eq!(lost(&[with(LOST_SAMPLES, 0, &[9])]), [(0, 0, 0), (1, 9, 1)]);
        assert_eq!(lost(&[with(LOST_SAMPLES, 1 << 15, &[9])]), [(0, 0, 0), (1, 0, 0)]);
        // No sample says of which CPU that number is: each may have lost them.
        let unseen = record(LOST_SAMPLES, 0, &[9, 0, 0, 0, id ^ 1 << 50]);
        assert_eq!(lost(&[unseen]), [(0, 9, 1), (1, 9, 1)]);
        let here = record(LOST, 0, &[id, 9, 0, 0, 1, id]);
        assert_eq!(lost(&[here, with(LOST_SAMPLES, 0, &[9])]), [(0, 0, 0), (1, 9, 1)]);
    }

    /// Goal: system calls that were recorded are read, by the description that the file holds of them.
    #[test]
    fn calls_are_read_where_they_were_recorded() {
        let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
        let describe =
            |name: &str, id: u16, more: &str| format!("name: {name}\nID: {id}\nformat:\n{common}{more}");
        let entry = describe("sys_enter", 21, "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n");
        let sched = [describe("sched_switch", 1, ""), describe("sched_waking", 2, "")];
        let calls = [entry, describe("sys_exit", 22, "")];
        let mut tracing = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0".to_vec();
        let sized = |bytes: &mut Vec<u8>, text: &[u8]| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text);
        };
        for page in ["header_page\0", "header_event\0"] {
            tracing.extend(page.as_bytes());
            sized(&mut tracing, b"");
        }
        tracing.extend(0_u32.to_le_bytes());
        tracing.extend(2_u32.to_le_bytes());
        for (system, texts) in [("sched\0", sched), ("raw_syscalls\0", calls)] {
            tracing.extend(system.as_bytes());
            tracing.extend(2_u32.to_le_bytes());
            texts.iter().for_each(|text| sized(&mut tracing, text.as_bytes()));
        }
        let layouts = formats(&tracing).expect("a description").expect("understood");
        let raw = |id: u16| {
            let mut bytes = vec![0; 16];
            bytes[..2].copy_from_slice(&id.to_le_bytes());
            (bytes[4], bytes[8]) = (77, 9);
            bytes
        };
        let event = |id| layouts.event(&raw(id));
        assert_eq!(event(21), Some(TraceEvent::CallEntry { thread: 77, number: 9 }));
        assert_eq!((event(22), event(23)), (Some(TraceEvent::CallExit { thread: 77 }), None));
    }

    /// Goal: a file that is no recording, is cut off, or lacks something necessary is refused in words.
    #[test]
    fn a_file_that_is_no_recording_is_refused() {
        let reason = |bytes: &[u8]| read_perf_data(bytes).map(|_| ()).expect_err("refused");
        assert!(reason(b"").contains("no file of perf"));
        assert!(reason(&RECORDED[..RECORDED.len() / 2]).contains("cut off"));
        let piped = [&b"PERFILE2"[..], &PIPE_HEADER_SIZE.to_le_bytes(), &[7; 90]].concat();
        assert!(reason(&piped).contains("pipe"), "{}", reason(&piped));
        let mut without = RECORDED.to_vec();
        without[72] &= !2;
        assert!(reason(&without).contains("no tracepoints"));
        let mut other = RECORDED.to_vec();
        for at in 0..other.len() - 18 {
            if &other[at..at + 18] == b"name: sched_waking" {
                other[at + 12..at + 18].copy_from_slice(b"others");
            }
        }
        assert!(reason(&other).contains("no sched:sched_waking"), "{}", reason(&other));
    }

    /// Goal: bytes from outside are refused, or read; nothing of them makes it panic.
    #[test]
    fn no_bytes_make_it_panic() {
        for seed in 1..4000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let mut bytes = RECORDED.to_vec();
            // The head says where all else is: it is changed in every second.
            let reach = if seed % 2 == 0 { 1300 } else { bytes.len() };
            for _ in 0..=random(6) {
                bytes[random(reach)] = random(256) as u8;
            }
            let _read = read_perf_data(&bytes);
            bytes.truncate(random(RECORDED.len()));
            let _cut = read_perf_data(&bytes);
        }
    }
}
