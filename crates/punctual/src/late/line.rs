//! Lines of a log of late messages, as JSON: the formats of `docs/explain.md`.

use std::fmt::{self, Write};

use punctual_machine::clock::{Clock, Ticks, monotonic_ns, realtime_ns};
use punctual_machine::cpu::{allowed_to, count_online};
use punctual_machine::fault_cost::fault_ns;
use punctual_machine::scheduling::urgency_of;
use punctual_machine::window::{Evidence, Window};
use punctual_machine::withheld::Freezer;
use punctual_proto::Address;

use super::LateAccount;
use crate::trace::{Record, Stage, Stages};

/// The first line: the process, its host and its clocks.
pub(super) fn head(made_ns: u64, threshold_ns: u64, counts_continuations: bool) -> String {
    let counts_frozen = Freezer::of_this_thread().frozen_ns().is_some();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let (pid, cpus, domain) = (std::process::id(), count_online(), Clock::get().domain());
    let name = rustix::system::uname();
    let kernel = name.release().to_string_lossy();
    format!(
        "{{\"schema\":\"punctual.late.v1\",\"program\":{},\"pid\":{pid},\"cpus\":{cpus},\"kernel\":{},\
         \"clock\":{domain},\"monotonic_ns\":{made_ns},\"realtime_ns\":{},\"threshold_ns\":{threshold_ns},\
         \"fault_ns\":{},\"counts_continuations\":{counts_continuations},\"counts_frozen\":{counts_frozen}}}\n",
        Quoted(&program),
        Quoted(&kernel),
        realtime_ns(),
        fault_ns(),
    )
}

/// Text as JSON has it.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// Instants of our clock as those of `CLOCK_MONOTONIC`, by a reading of both.
struct Instants {
    clock: &'static Clock,
    now: Ticks,
    now_ns: u64,
}

impl Instants {
    fn read() -> Self {
        let clock = Clock::get();
        let (now, now_ns) = clock.beside(monotonic_ns);
        Self { clock, now, now_ns }
    }

    fn ns(&self, instant: Ticks) -> u64 {
        self.now_ns.saturating_sub(self.clock.nanos(self.now.since(instant)))
    }
}

/// Data that a line of the log gives about one late message.
pub(super) struct LateMessage<'a> {
    /// Name and port.
    pub(super) receiver: &'a str,
    pub(super) record: &'a Record,
    pub(super) thread: u32,
    /// Tracer of that thread when it looked.
    pub(super) tracer: Option<&'a str>,
    /// Stages of messages that were in time.
    pub(super) usual: &'a [Stages],
    /// In the order of time; spans are ticks.
    pub(super) windows: &'a [Window],
    /// The end of a stop would be counted, as far as the thread that looked can tell.
    pub(super) counts_continuations: bool,
}

/// Latest instant from which a message counts as under way, and those of its stages that this clock knows.
pub(super) fn began(stages: &Stages) -> (Ticks, &'static [Stage]) {
    if stages.one_clock {
        (Ticks(stages.sender.due_at_latest()), &Stage::ALL)
    } else {
        (stages.receiver.kernel, &Stage::ALL[4..])
    }
}

/// When it was under way, nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn span_ns(stages: &Stages) -> (u64, u64) {
    let instants = Instants::read();
    (instants.ns(began(stages).0), instants.ns(stages.receiver.delivered))
}

/// Least time that it took, as far as this clock knows; `None` if no instant before the delivery is of this clock.
#[inline]
pub(super) fn took(stages: &Stages) -> Option<Ticks> {
    let by_kernel = || match stages.receiver.kernel {
        Ticks(0) => None,
        kernel => Some(stages.receiver.delivered.since(kernel)),
    };
    stages.total_at_least().or_else(by_kernel)
}

/// Time that a tenth of these stayed below.
fn usual_ns(clock: &Clock, ticks: impl Iterator<Item = Ticks>) -> u64 {
    let mut all: Vec<u64> = ticks.map(|ticks| clock.nanos(ticks)).collect();
    all.sort_unstable();
    all.get(all.len() / 10).copied().unwrap_or(0)
}

pub(super) fn write(text: &mut String, late: &LateMessage<'_>, account: LateAccount) {
    // A string takes everything that is written to it.
    let _always = try_write(text, late, account);
}

/// The line that says, once, that a message came whose time nobody knows.
pub(super) fn untimed(receiver: &str, source: Address) -> String {
    format!("{{\"untimed\":{{\"receiver\":{},\"source\":\"{source}\"}}}}\n", Quoted(receiver))
}

fn try_write(text: &mut String, late: &LateMessage<'_>, account: LateAccount) -> fmt::Result {
    let instants = Instants::read();
    let (clock, stages) = (instants.clock, &late.record.stages);
    write!(
        text,
        "{{\"number\":{},\"receiver\":{},\"source\":\"{}\",\"sequence\":{},\"total_ns\":{},{}\"usual_ns\":{},\
         \"kernel_stamp\":{},\"stages\":[",
        account.written,
        Quoted(late.receiver),
        late.record.source,
        late.record.sequence,
        clock.nanos(took(stages).unwrap_or_default()),
        if stages.one_clock && stages.total().is_none() { "\"at_least\":true," } else { "" },
        usual_ns(clock, late.usual.iter().filter_map(took)),
        stages.receiver.kernel.0 != 0,
    )?;
    let (began, known) = began(stages);
    let mut at_ns = instants.ns(began);
    // Stages behind a sender's interval that did not fit are known from the end only. The medium has what the others leave.
    let told: u64 = known.iter().filter_map(|&stage| stages.time_in(stage)).map(|ticks| ticks.0).sum();
    let left = Ticks(stages.receiver.delivered.since(began).0.saturating_sub(told));
    for (place, &stage) in known.iter().enumerate() {
        let in_stage = stages.time_in(stage);
        let ns = clock.nanos(in_stage.unwrap_or(if stage == Stage::Medium { left } else { Ticks(0) }));
        let usual = usual_ns(clock, late.usual.iter().filter_map(|stages| stages.time_in(stage)));
        let comma = if place == 0 { "" } else { "," };
        write!(text, "{comma}{{\"stage\":\"{}\",\"from_ns\":{at_ns},", stage.name())?;
        at_ns += ns;
        write!(text, "\"to_ns\":{at_ns},\"usual_ns\":{usual}}}")?;
    }
    write!(
        text,
        "],\"thread\":{},\"cpus\":{:?},\"urgency\":\"{}\"",
        late.thread,
        allowed_to(late.thread),
        urgency_of(late.thread)
    )?;
    late.tracer.map_or(Ok(()), |tracer| write!(text, ",\"tracer\":{}", Quoted(tracer)))?;
    if !late.counts_continuations {
        text.push_str(",\"counts_continuations\":false");
    }
    text.push_str(",\"windows\":[");
    let delivered = stages.receiver.delivered;
    let is_around = |window: &&Window| window.span.1 > began.0 && window.span.0 < delivered.0;
    for (place, window) in late.windows.iter().filter(is_around).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let [from, to] = [window.span.0, window.span.1].map(|ticks| instants.ns(Ticks(ticks)));
        write!(text, "{comma}{{\"from_ns\":{from},\"to_ns\":{to}")?;
        write_counters(text, &window.evidence)?;
        text.push('}');
    }
    let LateAccount { skipped, unwritten, untimed, .. } = account;
    writeln!(text, "],\"skipped\":{skipped},\"unwritten\":{unwritten},\"untimed\":{untimed}}}")
}

/// Writes the counters that are not 0.
fn write_counters(text: &mut String, evidence: &Evidence) -> fmt::Result {
    // Every field: a field that is added to windows is asked for here.
    let Evidence {
        number,
        wall_us,
        cpu_us,
        wait_us,
        idle_us,
        control_late_us,
        throttled_us,
        throttled_also_us,
        frozen_us,
        stolen_us,
        continued_age_us,
        faults_minor,
        faults_major,
        switches_voluntary,
        switches_involuntary,
        migrations,
    } = *evidence;
    for (name, count) in [
        ("number", number),
        ("wall_us", wall_us),
        ("cpu_us", cpu_us),
        ("wait_us", wait_us),
        ("idle_us", idle_us),
        ("control_late_us", control_late_us),
        ("throttled_us", throttled_us),
        ("throttled_also_us", throttled_also_us),
        ("frozen_us", frozen_us),
        ("stolen_us", stolen_us),
        ("faults_minor", faults_minor),
        ("faults_major", faults_major.into()),
        ("switches_voluntary", switches_voluntary.into()),
        ("switches_involuntary", switches_involuntary.into()),
        ("migrations", migrations.into()),
    ] {
        if count > 0 {
            write!(text, ",\"{name}\":{count}")?;
        }
    }
    // Just now is an age too.
    continued_age_us.map_or(Ok(()), |age_us| write!(text, ",\"continued_age_us\":{age_us}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::{NodeId, Port, Stamps};

    /// A late message of which nothing more is known.
    fn late(record: &Record) -> LateMessage<'_> {
        LateMessage {
            receiver: "r",
            record,
            thread: 1,
            tracer: None,
            usual: &[],
            windows: &[],
            counts_continuations: true,
        }
    }

    /// Goal: a record says where nobody would have noticed the end of a stop.
    #[test]
    fn a_stop_that_nobody_would_notice_is_said() {
        let source = Address { node: NodeId::named("here"), port: Port::from(1) };
        let receiver = crate::trace::ReceiverStamps::default();
        let stages = Stages { sender: Stamps::default(), receiver, one_clock: true };
        let record = Record { source, sequence: 0, stages };
        for counts_continuations in [true, false] {
            let mut text = String::new();
            write(&mut text, &LateMessage { counts_continuations, ..late(&record) }, LateAccount::default());
            assert_eq!(text.contains(",\"counts_continuations\":false,"), !counts_continuations, "{text}");
        }
    }

    /// Goal: of a message that was due before what its stamps can tell, the total is said to be the least that it took.
    #[test]
    fn a_total_that_is_not_known_is_called_the_least() {
        // A machine that has just started has no instant so long ago.
        let now = Clock::get().now().plus(Ticks(u64::from(u32::MAX) * 2));
        for (due_to_sent, is_least) in [(1_000, false), (u32::MAX, true)] {
            let sender = Stamps { sent: now.0, due_to_sent, ..Stamps::default() };
            let receiver = crate::trace::ReceiverStamps { delivered: now, ..Default::default() };
            let source = Address { node: NodeId::named("here"), port: Port::from(1) };
            let stages = Stages { sender, receiver, one_clock: true };
            let record = Record { source, sequence: 0, stages };
            let late = LateMessage { usual: &[stages], ..late(&record) };
            let mut text = String::new();
            write(&mut text, &late, LateAccount::default());
            assert_eq!(text.contains("\"at_least\":true,"), is_least, "{text}");
            let took = Clock::get().nanos(Ticks(due_to_sent.into()));
            assert!(text.contains(&format!("\"total_ns\":{took},")), "{text}");
        }
    }

    /// Goal: stages end when the message was delivered, even if its sender took longer than its stamps can tell.
    #[test]
    fn stages_end_with_the_delivery() {
        let (clock, long) = (Clock::get(), Ticks(u64::from(u32::MAX) * 2));
        // A machine that has just started has no such instants behind it.
        let sent = clock.now().0;
        let delivered = Ticks(sent + long.0);
        let receiver = crate::trace::ReceiverStamps {
            read: delivered,
            opened: delivered,
            delivered,
            ..Default::default()
        };
        for sender in [
            Stamps { sent, sealed_to_posted: 1_000, ..Stamps::default() },
            Stamps { sent, sealed_to_posted: u32::MAX, ..Stamps::default() },
            Stamps { sent, sent_to_sealed: u32::MAX, ..Stamps::default() },
        ] {
            let source = Address { node: NodeId::named("here"), port: Port::from(1) };
            let record = Record { source, sequence: 0, stages: Stages { sender, receiver, one_clock: true } };
            let mut text = String::new();
            write(&mut text, &late(&record), LateAccount::default());
            let stages = text.split_once("],\"thread\"").expect("stages end there").0;
            let numbers = |name: &str| -> Vec<u64> {
                let behind = stages.split(name).skip(1);
                behind
                    .map(|rest| rest.split([',', '}']).next().and_then(|word| word.parse().ok()).expect(name))
                    .collect()
            };
            let (from, to) = (numbers("\"from_ns\":")[0], *numbers("\"to_ns\":").last().expect("stages"));
            // Each stage is rounded down to nanoseconds.
            assert!((to - from).abs_diff(clock.nanos(long)) < 10, "{text}");
        }
    }

    #[test]
    fn text_is_quoted() {
        assert_eq!(Quoted("a\"b\\c\n").to_string(), "\"a\\\"b\\\\c\\u000a\"");
    }
}
