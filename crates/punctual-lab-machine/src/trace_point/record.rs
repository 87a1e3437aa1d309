//! Decoding of a ring's bytes. Pure: any bytes are read, and none are believed unchecked.

use std::collections::HashMap;

use super::TraceDump;
use super::deferred::Done;
use super::event::{BIRTH, CpuTrace, Task, TaskState, TraceEvent, TracedEvent, WakingFrom};
use super::ring::{HEADER_SIZE, RingCopy};

/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;

/// Where a field lies in a tracepoint's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

/// One tracepoint: its number, and its fields by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    id: u16,
    fields: HashMap<String, Field>,
}

impl Layout {
    /// From a `format` file of tracefs.
    fn read(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("field:"));
        let fields = lines.map(Self::field).collect::<Option<_>>()?;
        Some(Self { id, fields })
    }

    /// `pid_t prev_pid; offset:24; size:4; signed:1;`, with tabs between
    fn field(line: &str) -> Option<(String, Field)> {
        let mut parts = line.split(';').map(str::trim);
        let declared = parts.next()?.split('[').next()?;
        // `__data_loc char[] name` has its brackets in the middle.
        let whole = line.split(';').next()?;
        let name = if whole.trim_end().ends_with(']') { declared } else { whole };
        let name = name.split_whitespace().last()?.to_owned();
        let number = |prefix: &str, part: Option<&str>| part?.strip_prefix(prefix)?.parse().ok();
        let offset = number("offset:", parts.next())?;
        let size = number("size:", parts.next())?;
        Some((name, Field { offset, size }))
    }
}

/// Bytes of one event, and where its fields lie.
struct Fields<'a> {
    layout: &'a Layout,
    data: &'a [u8],
}

impl Fields<'_> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        let Field { offset, size } = *self.layout.fields.get(name)?;
        self.data.get(offset..offset.checked_add(size)?)
    }

    /// A number, with its sign where it has one.
    fn number(&self, name: &str) -> Option<i64> {
        let bytes = self.bytes(name)?;
        Some(match *bytes {
            [byte] => byte.into(),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
            _ => i64::from_le_bytes(bytes.try_into().ok()?),
        })
    }

    fn unsigned(&self, name: &str) -> Option<u32> {
        self.number(name).map(|number| number as u32)
    }

    /// Text of fixed size, which ends at its first zero.
    fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(text)
    }

    /// Text elsewhere in the event: the field says where, and how long.
    fn text_elsewhere(&self, name: &str) -> Option<String> {
        let place = self.unsigned(name)?;
        let (offset, size) = (place as usize & 0xffff, place as usize >> 16);
        self.data.get(offset..offset.checked_add(size)?).map(text)
    }

    fn task(&self, [thread, priority, name]: [&str; 3]) -> Option<Task> {
        let priority = i32::try_from(self.number(priority)?).ok()?;
        Some(Task { thread: self.unsigned(thread)?, priority, name: self.text(name)? })
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Tracepoints, each with its place among [`super::event::NAMES`] and behind them [`super::event::CALL_NAMES`].
#[derive(Clone, Debug)]
pub(super) struct Layouts(Vec<(usize, Layout)>);

/// The places of the tracepoints of deferred work.
const DEFERRED: std::ops::Range<usize> = 4..6;

impl Layouts {
    /// From their `format` files in that order, without those that are absent.
    pub(super) fn read(texts: &[Option<String>]) -> Result<Self, String> {
        let numbered = texts.iter().enumerate();
        Self::of(numbered.filter_map(|(kind, text)| Some((kind, text.as_deref()?))))
    }

    /// Of some of them, by their places.
    pub(super) fn of<'a>(texts: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, String> {
        let read = |(kind, text): (usize, &str)| {
            let layout = Layout::read(text).ok_or_else(|| {
                let name = super::event::NAMES.iter().chain(&super::event::CALL_NAMES).nth(kind);
                format!("the format of {} is not understood", name.unwrap_or(&"a tracepoint"))
            });
            layout.map(|layout| (kind, layout))
        };
        texts.map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Their numbers, with or without those of deferred work.
    pub(super) fn ids(&self, with_deferred: bool) -> Vec<u16> {
        let is_wanted = |kind: usize| with_deferred || !DEFERRED.contains(&kind);
        self.0.iter().filter(|(kind, _)| is_wanted(*kind)).map(|(_, layout)| layout.id).collect()
    }

    /// The event that these bytes are, if it is one of these.
    pub(super) fn event(&self, data: &[u8]) -> Option<TraceEvent> {
        let id = u16::from_le_bytes(*data.first_chunk()?);
        let (kind, layout) = self.0.iter().find(|(_, layout)| layout.id == id)?;
        let fields = Fields { layout, data };
        match *kind {
            0 => switch(&fields),
            1 => waking(&fields),
            2 => Some(TraceEvent::InterruptEntry {
                number: fields.unsigned("irq")?,
                name: fields.text_elsewhere("name")?,
            }),
            3 => Some(TraceEvent::InterruptExit { number: fields.unsigned("irq")? }),
            4 => Some(TraceEvent::SoftInterruptEntry { vector: fields.unsigned("vec")? }),
            5 => Some(TraceEvent::SoftInterruptExit { vector: fields.unsigned("vec")? }),
            6 => Some(TraceEvent::Signal {
                thread: fields.unsigned("common_pid")?,
                number: fields.unsigned("sig")?,
            }),
            7 => reclaim(&fields, true),
            9 | 11 => reclaim(&fields, false),
            8 | 10 | 12 => Some(TraceEvent::ReclaimExit { thread: fields.unsigned("common_pid")? }),
            BIRTH => Some(TraceEvent::Birth {
                parent: fields.unsigned("common_pid")?,
                born: fields.task(["pid", "prio", "comm"])?,
            }),
            14 => Some(TraceEvent::Placed {
                task: fields.task(["pid", "prio", "comm"])?,
                from_cpu: fields.unsigned("orig_cpu")?,
                to_cpu: fields.unsigned("dest_cpu")?,
            }),
            15 => Some(TraceEvent::CallEntry {
                thread: fields.unsigned("common_pid")?,
                number: fields.unsigned("id")?,
            }),
            _ => Some(TraceEvent::CallExit { thread: fields.unsigned("common_pid")? }),
        }
    }
}

fn reclaim(fields: &Fields<'_>, is_limited: bool) -> Option<TraceEvent> {
    Some(TraceEvent::ReclaimEntry { thread: fields.unsigned("common_pid")?, is_limited })
}

fn switch(fields: &Fields<'_>) -> Option<TraceEvent> {
    Some(TraceEvent::Switch {
        previous: fields.task(["prev_pid", "prev_prio", "prev_comm"])?,
        state: state(fields.number("prev_state")?),
        next: fields.task(["next_pid", "next_prio", "next_comm"])?,
    })
}

/// Of a thread that leaves its CPU: the bits are those that the tracepoint prints, and the kernel keeps them.
fn state(bits: i64) -> TaskState {
    const STOPPED: i64 = 0x4;
    const TRACED: i64 = 0x8;
    const DEAD_OR_ZOMBIE: i64 = 0x10 | 0x20;
    match bits & 0xff {
        0 => TaskState::Ready,
        bits if bits & TRACED != 0 => TaskState::Traced,
        bits if bits & STOPPED != 0 => TaskState::Stopped,
        bits if bits & DEAD_OR_ZOMBIE != 0 => TaskState::Ended,
        bits if bits & 1 != 0 => TaskState::Asleep,
        _ => TaskState::Uninterruptible,
    }
}

fn waking(fields: &Fields<'_>) -> Option<TraceEvent> {
    /// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`, `TRACE_FLAG_NMI`.
    const IN_INTERRUPT: u32 = 0x08 | 0x10 | 0x40;
    let flags = fields.unsigned("common_flags")?;
    let from = if flags & IN_INTERRUPT == 0 { WakingFrom::Thread } else { WakingFrom::Interrupt };
    Some(TraceEvent::Waking {
        waker: fields.unsigned("common_pid")?,
        from,
        woken: fields.task(["pid", "prio", "comm"])?,
        target_cpu: fields.unsigned("target_cpu")?,
    })
}

/// When a whole record was written: a sample's first field, and the last of a count of what was lost.
pub(super) fn time_of(record: &[u8]) -> Option<u64> {
    let word = |bytes: Option<&[u8]>| Some(u64::from_le_bytes(bytes?.try_into().ok()?));
    match kind_of(record)? {
        SAMPLE => word(record.get(HEADER_SIZE..HEADER_SIZE + 8)),
        LOST => word(record.get(24..32)),
        _ => None,
    }
}

fn kind_of(record: &[u8]) -> Option<u32> {
    record.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// One record, understood.
enum Record {
    Event(TracedEvent),
    /// Deferred work that ended then.
    Deferred(u64, Done),
    /// So many events were lost before the record that follows it here, which is older than it.
    Lost(u64),
}

fn understand(record: &[u8], layouts: &Layouts) -> Option<Record> {
    let at_ns = time_of(record)?;
    if kind_of(record)? == LOST {
        return Some(Record::Lost(u64::from_le_bytes(record.get(16..24)?.try_into().ok()?)));
    }
    let size = u32::from_le_bytes(record.get(16..20)?.try_into().ok()?);
    let data = record.get(20..)?.get(..usize::try_from(size).ok()?)?;
    if let Some(done) = Done::read(data) {
        return Some(Record::Deferred(at_ns, done));
    }
    Some(Record::Event(TracedEvent { at_ns, event: layouts.event(data)? }))
}

/// Reads a copy of a CPU's ring. A record that cannot be understood ends the reading: everything older is unknown then.
pub(super) fn read(cpu: u32, copy: &RingCopy, dump: &TraceDump, layouts: &Layouts) -> CpuTrace {
    let (since_ns, until_ns) = (dump.started_ns, dump.until_ns);
    let mut trace = CpuTrace { cpu, since_ns, until_ns, ..CpuTrace::default() };
    let mut rest = &copy.bytes[..];
    // The instant after which events were lost is that of the next older record but one: the next was written with the count.
    let mut lost_before: Option<u64> = None;
    let mut is_lost = false;
    let mut made = Vec::new();
    while !rest.is_empty() {
        let size = rest.get(6..8).map_or(0, |size| usize::from(u16::from_le_bytes([size[0], size[1]])));
        let record = rest.get(..size).filter(|record| record.len() >= HEADER_SIZE);
        let Some(understood) = record.and_then(|record| understand(record, layouts)) else {
            trace.is_damaged = true;
            break;
        };
        rest = &rest[size..];
        let event = match understood {
            Record::Lost(count) => {
                trace.lost = trace.lost.saturating_add(count);
                is_lost = true;
                continue;
            }
            Record::Event(event) => event,
            Record::Deferred(at_ns, done) => {
                made.extend(pieces(done, at_ns));
                TracedEvent { at_ns, event: TraceEvent::SoftInterruptExit { vector: done.vector } }
            }
        };
        if let Some(end_ns) = lost_before.take() {
            trace.gaps.push((event.at_ns.min(end_ns), end_ns));
        }
        if std::mem::take(&mut is_lost) {
            lost_before = Some(event.at_ns);
        }
        trace.events.push(event);
    }
    // An interrupt may note its events before one that it came into the middle of.
    trace.events.sort_by_key(|event| event.at_ns);
    trace.gaps.reverse();
    if let Some(end_ns) = lost_before {
        trace.gaps.insert(0, (dump.started_ns.min(end_ns), end_ns));
    }
    if copy.is_cut || trace.is_damaged {
        let first_ns = trace.events.first().map_or(dump.until_ns, |first| first.at_ns);
        trace.since_ns = first_ns.max(dump.started_ns).min(dump.until_ns);
    }
    trace.gaps.extend(silent_pauses(&trace, dump));
    // Work that is recorded when it ends began before other records, and may have before the oldest: then it stands before that one.
    let (mut early, late): (Vec<_>, Vec<_>) =
        made.into_iter().partition(|event: &TracedEvent| event.at_ns <= trace.since_ns);
    early.iter_mut().for_each(|event| event.at_ns = trace.since_ns);
    trace.events.splice(..0, early);
    trace.events.extend(late);
    trace.events.sort_by_key(|event| event.at_ns);
    // Rings that were paused before it lack what others have from then on.
    trace.events.retain(|event| event.at_ns <= dump.until_ns);
    trace.gaps.retain(|gap| gap.0 < dump.until_ns);
    trace.gaps.iter_mut().for_each(|gap| gap.1 = gap.1.min(dump.until_ns));
    trace
}

/// Events of deferred work that one record tells of, but for the end of the last piece.
fn pieces(done: Done, ended_ns: u64) -> Vec<TracedEvent> {
    let vector = done.vector;
    let of_piece = |(from_ns, to_ns): (u64, u64)| {
        [
            TracedEvent { at_ns: from_ns, event: TraceEvent::SoftInterruptEntry { vector } },
            TracedEvent { at_ns: to_ns, event: TraceEvent::SoftInterruptExit { vector } },
        ]
    };
    let mut events: Vec<TracedEvent> = done.spans(ended_ns).into_iter().flat_map(of_piece).collect();
    events.pop();
    events
}

/// Pauses behind the newest event. The first event after a pause comes with a count of what was lost in it; without one nobody knows.
fn silent_pauses(trace: &CpuTrace, dump: &TraceDump) -> Vec<(u64, u64)> {
    let newest_ns = trace.events.last().map_or(0, |event| event.at_ns);
    dump.pauses.iter().copied().filter(|&(_, resumed_ns)| resumed_ns > newest_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;

print fmt: \"prev_comm=%s\"
";

    fn layouts() -> Layouts {
        let of = |id: u16, more: &str| {
            format!(
                "ID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n{more}"
            )
        };
        let waking = "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;\n\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n";
        let irq = "\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n";
        let vector = "\tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;\n";
        let texts = [
            SWITCH.to_owned(),
            of(375, waking),
            of(225, irq),
            of(224, irq),
            of(223, vector),
            of(222, vector),
            of(190, "\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;\n"),
        ];
        let absent = [None, None];
        let reclaim = [Some(of(480, "")), Some(of(481, ""))];
        let texts: Vec<Option<String>> = texts.into_iter().map(Some).chain(absent).chain(reclaim).collect();
        Layouts::read(&texts).expect("formats as the kernel writes them")
    }

    fn sample(at_ns: u64, data: &[u8]) -> Vec<u8> {
        let size = (HEADER_SIZE + 8 + 4 + data.len()).next_multiple_of(8);
        let mut record = header(SAMPLE, size);
        record.extend(at_ns.to_le_bytes());
        record.extend(((size - 20) as u32).to_le_bytes());
        record.extend(data);
        record.resize(size, 0);
        record
    }

    fn header(kind: u32, size: usize) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[0, 0], &(size as u16).to_le_bytes()].concat()
    }

    fn lost(at_ns: u64, count: u64) -> Vec<u8> {
        [header(LOST, 32), vec![7; 8], count.to_le_bytes().to_vec(), at_ns.to_le_bytes().to_vec()].concat()
    }

    fn switch(at_ns: u64, previous: u32, state: u64, next: u32) -> Vec<u8> {
        let mut data = vec![0; 64];
        data[..2].copy_from_slice(&372_u16.to_le_bytes());
        data[8..11].copy_from_slice(b"one");
        data[24..28].copy_from_slice(&previous.to_le_bytes());
        data[28..32].copy_from_slice(&120_i32.to_le_bytes());
        data[32..40].copy_from_slice(&state.to_le_bytes());
        data[40..43].copy_from_slice(b"two");
        data[56..60].copy_from_slice(&next.to_le_bytes());
        data[60..64].copy_from_slice(&49_i32.to_le_bytes());
        sample(at_ns, &data)
    }

    fn soft(at_ns: u64, id: u16, vector: u32) -> Vec<u8> {
        let mut data = vec![0; 12];
        data[..2].copy_from_slice(&id.to_le_bytes());
        data[8..].copy_from_slice(&vector.to_le_bytes());
        sample(at_ns, &data)
    }

    fn done(at_ns: u64, vector: u32, lasted_ns: u64) -> Vec<u8> {
        sum(at_ns, vector, lasted_ns, 0)
    }

    fn sum(at_ns: u64, vector: u32, lasted_ns: u64, within_ns: u64) -> Vec<u8> {
        let words = [lasted_ns.to_le_bytes(), within_ns.to_le_bytes()].concat();
        sample(at_ns, &[&[0; 4], &vector.to_le_bytes()[..], &words].concat())
    }

    fn read_bytes(bytes: Vec<u8>, is_cut: bool) -> CpuTrace {
        read_until(1000, Vec::new(), bytes, is_cut)
    }

    fn read_until(until_ns: u64, pauses: Vec<(u64, u64)>, bytes: Vec<u8>, is_cut: bool) -> CpuTrace {
        let dump = TraceDump { copies: Vec::new(), pauses, started_ns: 5, until_ns };
        read(3, &RingCopy { bytes, is_cut }, &dump, &layouts())
    }

    fn times(trace: &CpuTrace) -> Vec<u64> {
        trace.events.iter().map(|event| event.at_ns).collect()
    }

    /// Goal: records of a ring from the time when others were paused already are left out.
    #[test]
    fn nothing_is_told_of_later_than_the_dump() {
        let late = [done(1_015, 3, 20), switch(1_012, 8, 1, 0), lost(1_010, 4), soft(1_010, 222, 1)].concat();
        let trace = read_bytes([late, switch(990, 8, 1, 0)].concat(), false);
        assert_eq!(times(&trace), [990, 995], "a piece of work had begun");
        assert_eq!((trace.until_ns, trace.lost, &trace.gaps[..]), (1_000, 4, &[(990, 1_000)][..]));
        let only_late = read_bytes(switch(1_020, 8, 1, 0), true);
        assert_eq!((only_late.since_ns, only_late.until_ns, only_late.events.len()), (1_000, 1_000, 0));
    }

    /// Goal: every kind of record is read as the kernel writes it, the oldest first.
    #[test]
    fn records_are_understood() {
        let mut waking = vec![0; 36];
        waking[..2].copy_from_slice(&375_u16.to_le_bytes());
        waking[2] = 0x10;
        waking[4..8].copy_from_slice(&77_u32.to_le_bytes());
        waking[24..28].copy_from_slice(&8_u32.to_le_bytes());
        waking[32..36].copy_from_slice(&1_u32.to_le_bytes());
        let mut interrupt = vec![0; 21];
        interrupt[..2].copy_from_slice(&225_u16.to_le_bytes());
        interrupt[8..12].copy_from_slice(&24_u32.to_le_bytes());
        interrupt[12..16].copy_from_slice(&(5_u32 << 16 | 16).to_le_bytes());
        interrupt[16..20].copy_from_slice(b"eth0");
        let newest_first =
            [switch(40, 8, 1, 0), soft(30, 223, 3), sample(20, &interrupt), sample(10, &waking)].concat();
        let trace = read_bytes(newest_first, false);
        assert_eq!((trace.cpu, trace.since_ns, trace.until_ns, trace.is_damaged), (3, 5, 1000, false));
        assert_eq!(times(&trace), [10, 20, 30, 40]);
        let [first, second, third, fourth] = &trace.events[..] else { panic!("{trace:?}") };
        assert!(
            matches!(&first.event, TraceEvent::Waking { waker: 77, from: WakingFrom::Interrupt, woken, target_cpu: 1 } if woken.thread == 8),
            "{first:?}"
        );
        let named = "eth0".to_owned();
        assert_eq!(second.event, TraceEvent::InterruptEntry { number: 24, name: named });
        assert_eq!(third.event, TraceEvent::SoftInterruptEntry { vector: 3 });
        let previous = Task { thread: 8, priority: 120, name: "one".to_owned() };
        let next = Task { thread: 0, priority: 49, name: "two".to_owned() };
        assert_eq!(fourth.event, TraceEvent::Switch { previous, state: TaskState::Asleep, next });
    }

    #[test]
    fn a_signal_is_understood() {
        let mut data = vec![0; 12];
        data[..2].copy_from_slice(&190_u16.to_le_bytes());
        data[4..8].copy_from_slice(&77_u32.to_le_bytes());
        data[8..].copy_from_slice(&29_u32.to_le_bytes());
        let trace = read_bytes(sample(10, &data), false);
        assert_eq!(trace.events[0].event, TraceEvent::Signal { thread: 77, number: 29 });
    }

    #[test]
    fn a_reclaim_is_understood() {
        let of = |at_ns, id: u16| {
            let mut data = vec![0; 8];
            data[..2].copy_from_slice(&id.to_le_bytes());
            data[4..8].copy_from_slice(&77_u32.to_le_bytes());
            sample(at_ns, &data)
        };
        let trace = read_bytes([of(20, 481), of(10, 480)].concat(), false);
        let begins = TraceEvent::ReclaimEntry { thread: 77, is_limited: false };
        assert_eq!(trace.events[0].event, begins);
        assert_eq!(trace.events[1].event, TraceEvent::ReclaimExit { thread: 77 });
    }

    #[test]
    fn the_state_says_why_a_thread_left() {
        let states = [0, 0x100, 1, 2, 4, 8, 0x10, 0x20, 0x80].map(state);
        use TaskState::{Asleep, Ended, Ready, Stopped, Traced, Uninterruptible};
        let expected =
            [Ready, Ready, Asleep, Uninterruptible, Stopped, Traced, Ended, Ended, Uninterruptible];
        assert_eq!(states, expected);
    }

    /// Goal: lost records are a gap from the last event before them to the first one after.
    #[test]
    fn lost_records_leave_a_gap() {
        let bytes = [switch(90, 1, 0, 2), lost(80, 6), soft(80, 222, 1), soft(50, 223, 1), soft(40, 222, 1)];
        let trace = read_bytes(bytes.concat(), false);
        assert_eq!((times(&trace), trace.lost, trace.gaps), (vec![40, 50, 80, 90], 6, vec![(50, 80)]));
        let trace = read_bytes([lost(80, 2), soft(80, 222, 1)].concat(), false);
        assert_eq!((trace.lost, trace.gaps), (2, vec![(5, 80)]), "lost before the oldest that is left");
    }

    /// Goal: work that is recorded at its end has a beginning, which is no older than what the ring knows.
    #[test]
    fn filtered_work_has_a_beginning() {
        let bytes = [done(90, 3, 30), switch(70, 1, 0, 2), done(50, 1, 40)].concat();
        let trace = read_bytes(bytes.clone(), false);
        assert_eq!((times(&trace), trace.since_ns), (vec![10, 50, 60, 70, 90], 5));
        assert_eq!(trace.events[0].event, TraceEvent::SoftInterruptEntry { vector: 1 });
        assert_eq!(trace.events[1].event, TraceEvent::SoftInterruptExit { vector: 1 });
        assert_eq!(trace.events[2].event, TraceEvent::SoftInterruptEntry { vector: 3 });
        let cut = read_bytes(bytes, true);
        assert_eq!((times(&cut), cut.since_ns), (vec![50, 50, 60, 70, 90], 50));
        let begins = |event: &TracedEvent| matches!(event.event, TraceEvent::SoftInterruptEntry { .. });
        let kinds: Vec<bool> = cut.events.iter().map(begins).collect();
        assert_eq!(kinds, [true, false, true, false, false], "an end stands behind its beginning");
        assert!(read_bytes(sample(40, &[0; 12]), false).is_damaged, "half of what it says");
    }

    /// Goal: of a sum nobody knows when its pieces were. They are spread over its time: each half of that has half of the work, and no
    /// piece is as long as one that is recorded by itself.
    #[test]
    fn a_sum_of_work_is_no_single_interval() {
        const US: u64 = 1000;
        let trace = read_until(5_000 * US, Vec::new(), sum(3_000 * US, 3, 210 * US, 1_800 * US), false);
        assert!(trace.events.is_sorted_by_key(|event| event.at_ns), "{trace:?}");
        let mut spans = Vec::new();
        for pair in trace.events.chunks(2) {
            let [entry, exit] = pair else { panic!("{trace:?}") };
            assert_eq!(entry.event, TraceEvent::SoftInterruptEntry { vector: 3 });
            assert_eq!(exit.event, TraceEvent::SoftInterruptExit { vector: 3 });
            spans.push((entry.at_ns, exit.at_ns));
        }
        let within = |from: u64, to: u64| -> u64 {
            spans.iter().map(|span| span.1.min(to).saturating_sub(span.0.max(from))).sum()
        };
        let (whole, half) = (within(1_200 * US, 3_000 * US), within(2_100 * US, 3_000 * US));
        assert!(whole.abs_diff(210 * US) < US && half.abs_diff(105 * US) < 20 * US, "{whole} {half}");
        assert!(spans.iter().all(|span| span.1 - span.0 < 20 * US), "{spans:?}");
        let busy = read_until(5_000 * US, Vec::new(), sum(3_000 * US, 3, 210 * US, 210 * US), false);
        assert_eq!(times(&busy), [2_790 * US, 3_000 * US], "there was nothing between its pieces");
    }

    /// Goal: a pause after which a CPU told nothing may have hidden anything, and is a gap. Of one after which it told of something the
    /// count of what was lost is there, or nothing was lost.
    #[test]
    fn a_pause_that_ended_in_silence_is_a_gap() {
        let gaps = |pauses: &[(u64, u64)], bytes| read_until(1000, pauses.to_vec(), bytes, false).gaps;
        let pauses = [(100, 200), (500, 600)];
        assert_eq!(gaps(&pauses, switch(300, 8, 1, 0)), [(500, 600)]);
        assert_eq!(gaps(&pauses, switch(50, 8, 1, 0)), pauses);
        assert_eq!(
            gaps(&pauses, [lost(700, 1), switch(700, 8, 1, 0), switch(300, 1, 0, 8)].concat()),
            [(300, 700)]
        );
        assert_eq!(gaps(&pauses, switch(700, 8, 1, 0)), []);
    }

    #[test]
    fn a_cut_ring_begins_with_its_oldest_record() {
        let bytes = [soft(50, 223, 1), soft(40, 222, 1)].concat();
        assert_eq!(read_bytes(bytes, true).since_ns, 40);
        assert_eq!(read_bytes(Vec::new(), true).since_ns, 1000, "nothing is known");
        assert_eq!(read_bytes(Vec::new(), false).since_ns, 5, "nothing happened");
    }

    /// Goal: bytes that are no record end the reading and are never believed; younger records stay.
    #[test]
    fn damage_ends_the_reading() {
        let good = soft(50, 223, 1);
        let mut unknown = soft(40, 999, 1);
        for (damage, what) in [
            (vec![0; 40], "no size"),
            (header(SAMPLE, 7), "a size below its header"),
            (header(SAMPLE, 64), "a size beyond the copy"),
            (unknown.clone(), "an unknown tracepoint"),
            (header(5, 8), "an unknown record"),
            (sample(40, &372_u16.to_le_bytes()), "a switch without its fields"),
            (good[..20].to_vec(), "half a record"),
        ] {
            let trace = read_bytes([good.clone(), damage].concat(), false);
            assert!(trace.is_damaged, "{what}");
            assert_eq!((times(&trace), trace.since_ns), (vec![50], 50), "{what}");
        }
        unknown[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read_bytes(unknown, false).is_damaged, "raw data longer than its record");
    }

    /// Goal: no bytes bring the reader down. Method: every byte of a good copy is changed in turn.
    #[test]
    fn any_bytes_are_read() {
        let good = [switch(90, 1, 0, 2), lost(80, 6), soft(80, 222, 1), soft(50, 223, 1)].concat();
        for place in 0..good.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[place] ^= change;
                let trace = read_bytes(bytes, false);
                assert!(trace.events.len() <= 3, "{place} {change}: {trace:?}");
            }
        }
    }

    #[test]
    fn a_format_that_is_none_is_refused() {
        for text in ["", "ID: x", "ID: 7\n\tfield:int a;\toffset:x;\tsize:4;"] {
            assert!(Layouts::read(&[Some(text.to_owned())]).is_err(), "{text}");
        }
    }
}
