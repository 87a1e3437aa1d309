//! `punctual explain --pid A,B`, and of a trace on file: the causes of delay in threads that know nothing of Punctual.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde::Serialize;
use serde_json::{Value, json};

use super::{print, try_json};
use crate::error::Failure;
use crate::explain::of_run::json_of;
use crate::explain::outside::live::{Counted, counted, record, threads_of};
use crate::explain::outside::text::{Notes, sections};
use crate::explain::outside::{Answer, Question, explain};
use crate::explain::seen::Seen;
use crate::explain::trace::{IDLE, Trace, What};
use crate::explain::trace_file::TraceFile;
use crate::report::section::{Cell, Column, Section, Table};
use crate::report::text::{self, Screen};
use crate::units::{count, duration};
use crate::verify::advice::Advice;

/// Options of an explanation from outside.
#[derive(Debug, Args)]
pub(super) struct OutsideArguments {
    /// Processes to look at from outside, of any kind (root)
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub(super) pid: Vec<u32>,
    /// With --pid: duration of the recording [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// From outside: shortest time that is late [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) threshold: Option<Duration>,
    /// With --pid: keep the trace, for punctual explain FILE
    #[arg(long, value_name = "FILE", requires = "pid")]
    pub(super) out: Option<PathBuf>,
}

/// Time of recording, and threshold of lateness, where nothing else is said.
const DURATION: Duration = Duration::from_secs(10);
const THRESHOLD: Duration = Duration::from_millis(1);

impl OutsideArguments {
    fn lasts(&self) -> Duration {
        self.duration.unwrap_or(DURATION)
    }
}

/// Form in which it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) json: bool,
    pub(super) shown_max: usize,
}

const NO_CALLS: &str =
    "System calls were not recorded: a wait for events cannot be told from a wait for a lock.";

/// Records these processes, and says what kept them.
pub(super) fn live(arguments: &OutsideArguments, tier: u8, shown: Shown) -> Result<(), Failure> {
    for &pid in &arguments.pid {
        if threads_of(&[pid]).is_empty() {
            return Err(Failure::Usage(format!("--pid {pid}: there is no such process")));
        }
    }
    try_json(arguments.out.as_deref())?;
    catch_interrupts()?;
    if tier == 0 {
        return counters(arguments, shown);
    }
    let recorded = record(&arguments.pid, arguments.lasts(), interrupted).map_err(|reason| {
        Failure::Machine(format!("{reason}; --tier 0 sums up what the kernel counts without a trace"))
    })?;
    let trace = &recorded.trace;
    let mut others = Vec::new();
    if !recorded.has_calls {
        others.push(NO_CALLS.to_owned());
    }
    others.extend(unseen_note(recorded.unseen));
    let short = short_note(&trace.known(), recorded.began_ns, arguments.lasts(), interrupted());
    let notes = Notes { short, others };
    // The recording is evaluated also where it cannot be kept.
    let kept = arguments.out.as_ref().map_or(Ok(()), |path| {
        let span = trace.known().last().map_or((0, 0), |last| (trace.known()[0].0, last.1));
        let file = TraceFile { program: pids(&arguments.pid), log: None, span, trace: trace.clone() };
        file.write(path)
    });
    let withheld = |thread: u32, span: (u64, u64)| {
        let process = trace.processes.get(&thread)?;
        recorded.withheld.get(process)?.over(span)
    };
    let threads: Vec<u32> = trace.processes.keys().copied().collect();
    answer(trace, &threads, arguments, &withheld, notes, &pids(&arguments.pid), shown)?;
    Ok(kept?)
}

/// The same of a trace on file; of all its programs if no process is named.
pub(super) fn of_file(path: &Path, arguments: &OutsideArguments, shown: Shown) -> Result<(), Failure> {
    let off = |reason: String| Failure::Usage(format!("{}: {reason}", path.display()));
    let file = TraceFile::read(path).map_err(off)?;
    let trace = &file.trace;
    let threads: Vec<u32> = if arguments.pid.is_empty() {
        let is_program = |thread: &u32| {
            let is_kernel = trace.tasks.get(thread).and_then(|task| task.is_kernel);
            *thread != IDLE && is_kernel != Some(true)
        };
        let has_processes = !trace.processes.is_empty();
        let is_one =
            |thread: &u32| is_program(thread) && (!has_processes || trace.processes.contains_key(thread));
        trace.tasks.keys().copied().filter(is_one).collect()
    } else {
        let is_asked = |(thread, process): (&u32, &u32)| arguments.pid.contains(process).then_some(*thread);
        trace.processes.iter().filter_map(is_asked).collect()
    };
    if threads.is_empty() {
        return Err(off(match (arguments.pid.is_empty(), trace.processes.is_empty()) {
            (true, _) => "it has no thread of a program".to_owned(),
            (false, true) => "it does not say which process a thread is of: leave out --pid".to_owned(),
            (false, false) => format!("--pid {}: it has no thread of them", pids(&arguments.pid)),
        }));
    }
    let notes = Notes { short: None, others: call_notes(trace) };
    answer(trace, &threads, arguments, &|_, _| None, notes, &file.program, shown)
}

/// Shorter lacks than this are those of beginning and ending.
const SHORT_NS: u64 = 200_000_000;

/// Why less is known than was asked for: a ring overwrites its oldest events, and a recording may end early.
fn short_note(known: &[(u64, u64)], began_ns: u64, asked: Duration, is_ended: bool) -> Option<String> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let since_ns = known.first().map_or(0, |first| first.0).saturating_sub(began_ns);
    let cover_ns = known.iter().map(|(from, to)| to - from).sum::<u64>();
    if since_ns > SHORT_NS {
        let gone = seconds(since_ns);
        return Some(format!(
            "The first {gone:.3} s were overwritten: more happened than the recorder's rings hold."
        ));
    }
    let is_short = Duration::from_nanos(cover_ns + SHORT_NS) < asked;
    is_short.then(|| match (is_ended, cover_ns) {
        (true, _) => format!("It was ended after {:.3} s.", seconds(cover_ns)),
        (false, 0) => {
            "No time is known of all CPUs: more happened than the recorder's rings hold.".to_owned()
        }
        (false, _) => "The processes ended, or events of the rest were lost.".to_owned(),
    })
}

/// A note on threads that were begun and that no look found.
fn unseen_note(unseen: u64) -> Option<String> {
    (unseen > 0).then(|| {
        format!(
            "Begun by these threads and not shown: {}. Each was a thread that ended before a look found it, or a process of its own.",
            count(unseen)
        )
    })
}

/// Notes on facts that are not known of a trace on file.
fn call_notes(trace: &Trace) -> Vec<String> {
    let mut events = trace.cpus.iter().flat_map(|cpu| &cpu.events);
    let has_calls = events.any(|event| matches!(event.1, What::Call { .. }));
    if has_calls { Vec::new() } else { vec![NO_CALLS.to_owned()] }
}

fn pids(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn answer(
    trace: &Trace,
    threads: &[u32],
    arguments: &OutsideArguments,
    withheld: &dyn Fn(u32, (u64, u64)) -> Option<Seen>,
    mut notes: Notes,
    program: &str,
    shown: Shown,
) -> Result<(), Failure> {
    let threshold_ns = u64::try_from(arguments.threshold.unwrap_or(THRESHOLD).as_nanos()).unwrap_or(u64::MAX);
    let answer = explain(trace, &Question { threads, threshold_ns, withheld });
    if answer.lost > 0 {
        notes
            .others
            .push(format!("The recorder lost {} events: nothing is said of that time.", count(answer.lost)));
    }
    if answer.left_out > 0 {
        notes
            .others
            .push(format!("{} shorter ones were left out: raise --threshold.", count(answer.left_out)));
    }
    if shown.json {
        return print(&format!("{:#}\n", value(&answer, program, 1, &notes.all())));
    }
    print(&text::page(&sections(&answer, &notes, shown.shown_max), Screen::stdout()))
}

fn value(answer: &Answer, program: &str, tier: u8, notes: &[&String]) -> Value {
    let finding = |late: &crate::explain::outside::Lateness| {
        let of_thread = json!({
            "thread": late.thread, "process": late.process, "may_be_idle": late.may_be_idle, "call": late.call,
        });
        Advice::WITHOUT_RUN.advised(json_of(&late.explained, &of_thread))
    };
    json!({
        "schema": "punctual.explain.v1",
        "program": program,
        "tier": tier,
        "findings": answer.late.iter().map(finding).collect::<Vec<Value>>(),
        "threads": answer.threads,
        "known_ns": answer.known_ns,
        "lost": answer.lost,
        "notes": notes,
    })
}

/// Between two looks at the counters: the last of these of a thread is lost when it ends.
const COUNTED_EVERY: Duration = Duration::from_millis(50);

/// Shows the kernel's counters of each thread, without a trace: the times that it ran and was ready.
fn counters(arguments: &OutsideArguments, shown: Shown) -> Result<(), Failure> {
    const NOTE: &str = "Sums over all that time, from /proc: what a thread waited for, who ran instead, and how long at once, only the \
                        kernel's trace tells (--tier 1, as root).";
    let before = counted(&arguments.pid);
    check_counted(&threads_of(&arguments.pid), &before)?;
    let begin = std::time::Instant::now();
    let lasts = arguments.lasts();
    // Of a thread that ends before the end, the last counts that were seen.
    let mut last = before.clone();
    while begin.elapsed() < lasts && !interrupted() {
        let now = counted(&arguments.pid);
        if now.is_empty() {
            break;
        }
        last.extend(now);
        std::thread::sleep(COUNTED_EVERY.min(lasts.saturating_sub(begin.elapsed())));
    }
    last.extend(counted(&arguments.pid));
    let none = Counted::default();
    let since = |(thread, (process, now)): (u32, (u32, Counted))| {
        let was = before.get(&thread).map_or(&none, |(_, was)| was);
        let (ran_ns, ready_ns) =
            (now.ran_ns.saturating_sub(was.ran_ns), now.ready_ns.saturating_sub(was.ready_ns));
        CountedThread { thread, process, name: now.name, ran_ns, ready_ns }
    };
    let mut all: Vec<CountedThread> = last.into_iter().map(since).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.ready_ns), one.thread));
    if shown.json {
        let whole = json!({
            "schema": "punctual.explain.v1", "program": pids(&arguments.pid), "tier": 0, "findings": [],
            "threads": all, "notes": [NOTE],
        });
        return print(&format!("{whole:#}\n"));
    }
    let mut table =
        Table::new(vec![Column::name("thread"), Column::number("ran, ms"), Column::number("ready, ms")]);
    let ms = |ns: u64| Cell::from(format!("{:.1}", ns as f64 / 1e6));
    for one in all.iter().take(shown.shown_max.max(20)) {
        table.row([Cell::from(format!("{} ({})", one.name, one.thread)), ms(one.ran_ns), ms(one.ready_ns)]);
    }
    print(&text::page(&[Section::new("Threads").note(NOTE).table(table)], Screen::stdout()))
}

/// Checks that the kernel counts at all: a table of nothing would look like threads that did nothing.
fn check_counted(
    threads: &BTreeMap<u32, u32>,
    counted: &BTreeMap<u32, (u32, Counted)>,
) -> Result<(), Failure> {
    match threads.first_key_value().filter(|_| counted.is_empty()) {
        None => Ok(()),
        Some((thread, process)) => Err(Failure::Machine(format!(
            "/proc/{process}/task/{thread}/schedstat cannot be read: take a kernel with CONFIG_SCHED_INFO, or --tier 1 as root"
        ))),
    }
}

/// The kernel's counts of a thread meanwhile.
#[derive(Debug, Serialize)]
struct CountedThread {
    thread: u32,
    process: u32,
    name: String,
    ran_ns: u64,
    ready_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::trace::{CpuEvents, Event};

    /// Goal: where the kernel counts nothing of threads that are there, the missing file is named. Threads that have gone are no reason.
    #[test]
    fn a_kernel_that_does_not_count_is_said() {
        let (threads, none) = (BTreeMap::from([(8, 7)]), BTreeMap::new());
        let said = check_counted(&threads, &none);
        assert!(matches!(&said, Err(Failure::Machine(words)) if words.contains("/proc/7/task/8/schedstat")));
        let counts = BTreeMap::from([(8, (7, Counted::default()))]);
        assert!(check_counted(&threads, &counts).is_ok() && check_counted(&BTreeMap::new(), &none).is_ok());
    }

    /// Goal: the head of the page says why less is known than was asked for, and nothing where all is.
    #[test]
    fn less_time_than_asked_has_a_reason() {
        let second = 1_000_000_000;
        let said =
            |known: &[(u64, u64)], is_ended| short_note(known, second, Duration::from_secs(2), is_ended);
        assert_eq!(said(&[(second, 3 * second)], false), None);
        let overwritten = said(&[(2 * second, 3 * second)], false).expect("half is gone");
        assert!(overwritten.contains("The first 1.000 s were overwritten"), "{overwritten}");
        let ended = said(&[(second, 2 * second)], true).expect("half was not recorded");
        assert!(ended.contains("ended after 1.000 s"), "{ended}");
        assert!(said(&[(second, 2 * second)], false).is_some_and(|words| words.contains("processes ended")));
    }

    /// Goal: a trace on file without system calls says so, for then more is perhaps idle.
    #[test]
    fn calls_that_are_not_there_are_said() {
        let with = |what| {
            let cpu = CpuEvents { events: vec![Event(1, what)], ..CpuEvents::default() };
            call_notes(&Trace { cpus: vec![cpu], ..Trace::default() })
        };
        assert_eq!(with(What::CallEnd(7)), [NO_CALLS]);
        assert_eq!(with(What::Call { thread: 7, number: 1 }), Vec::<String>::new());
    }
}
