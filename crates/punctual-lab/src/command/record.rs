//! `punctual record`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use punctual::{Bus, Keys, NodeOptions, Wake};
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde_json::{Map, Value, json};

use super::{print, refuse_json_over, try_json, write_json};
use crate::endpoint::{BusPlan, any_bus};
use crate::error::Failure;
use crate::recording::recorder::{
    Account, NAP_MAX, Plan, RecordError, record as record_bus, why_not_created,
};
use crate::recording::written::Output;
use crate::recording::{Format, WHOLE_SIZE_MAX, why_not_open};
use crate::scheduling::Urgency;
use crate::terminal::say;
use crate::units::{count, duration, plural};

/// Options of the recorder.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The bus: shared:NAME, udp:OWN:PORT,PEER:PORT, multicast:GROUP:PORT@INTERFACE-ADDRESS, ethernet:INTERFACE
    #[arg(value_name = "BUS", value_parser = any_bus)]
    bus: BusPlan,
    /// A new file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// pcapng (Wireshark) or mcap (robotics) [default: by the ending of FILE]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// End after so long; else at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Way of waiting. In memory it looks now and then unless spin; elsewhere epoll if not given
    #[arg(long, value_name = "WAKE")]
    wake: Option<Wake>,
    /// In memory, look so often at least; more often while much is said [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    every: Option<Duration>,
    /// Urgency of its reader; others go first
    #[arg(long, value_name = "CLASS", default_value = "nice:10")]
    sched: Urgency,
    #[command(flatten)]
    sealing: SealingArguments,
    /// Its name on the bus
    #[arg(long, value_name = "NAME", default_value = "record")]
    name: String,
    /// Write the result, as JSON, to a file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Keys of a sealed bus.
#[derive(Debug, Args)]
pub(super) struct SealingArguments {
    /// The bus is sealed: a file of keys
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Name of the bus under the seal, where that is not what the medium tells
    #[arg(long, value_name = "NAME", requires = "keys")]
    sealed_as: Option<String>,
}

impl SealingArguments {
    /// The bus, sealed if there are keys.
    pub(super) fn seal(&self, bus: Bus) -> Result<Bus, Failure> {
        let Some(path) = &self.keys else { return Ok(bus) };
        let keys = Keys::from_file(path).map_err(|error| Failure::Usage(format!("--keys: {error}")))?;
        Ok(match &self.sealed_as {
            Some(name) => bus.sealed_as(&keys, name),
            None => bus.sealed(&keys),
        })
    }
}

/// Writes down what is said on a bus.
pub fn record(arguments: &RecordArguments) -> Result<(), Failure> {
    let RecordArguments { bus, out, .. } = arguments;
    let format = arguments.format.or_else(|| Format::of(out)).ok_or_else(|| {
        Failure::Usage(format!(
            "--out {}: ends neither with .pcapng nor with .mcap: name a --format",
            out.display()
        ))
    })?;
    try_json(arguments.json.as_deref())?;
    catch_interrupts()?;
    let sealed = arguments.sealing.seal(bus.stamped_bus())?;
    let created = Output::create(out, format, &bus.to_string());
    let output = created.map_err(|error| match why_not_created(out, &error) {
        (true, text) => Failure::Usage(text),
        (false, text) => Failure::Machine(text),
    })?;
    // Only now that the file is there links show that they lead to it.
    refuse_json_over(arguments.json.as_deref(), out).inspect_err(|_| drop(std::fs::remove_file(out)))?;
    let is_in_memory = matches!(bus, BusPlan::Shared(_));
    let wake = match arguments.wake {
        Some(wake) => wake,
        None if is_in_memory => Wake::Futex,
        None => Wake::Epoll,
    };
    let plan = Plan {
        wake,
        is_in_memory,
        every: arguments.every.unwrap_or(NAP_MAX),
        urgency: arguments.sched,
        duration: arguments.duration,
        count: arguments.count,
    };
    let node = NodeOptions::new(&arguments.name).message_size_max(WHOLE_SIZE_MAX).open(&sealed);
    let recorded = node
        .map_err(|error| {
            let advice = "take another name (--name)";
            RecordError::NotBegun(why_not_open(&error, &arguments.name, advice))
        })
        .and_then(|node| record_bus(&node, &plan, output, || announce(arguments), interrupted));
    let account = recorded.map_err(|error| failed(out, error))?;
    tell(arguments, format, &account)
}

/// Takes away the file of a recording that did not begin, and no other.
fn failed(out: &Path, error: RecordError) -> Failure {
    Failure::Machine(match error {
        RecordError::NotBegun(reason) => {
            let _removed = std::fs::remove_file(out);
            reason
        }
        RecordError::WriterPanicked => format!(
            "{}: the writer panicked; the file has what it wrote before; report it, with the text before",
            out.display()
        ),
    })
}

/// On standard error, where progress goes: from now on everything is recorded.
fn announce(arguments: &RecordArguments) {
    say(format_args!("recording {} into {}; Ctrl-C ends it", arguments.bus, arguments.out.display()));
}

fn tell(arguments: &RecordArguments, format: Format, account: &Account) -> Result<(), Failure> {
    let RecordArguments { bus, out, .. } = arguments;
    let totals = &account.totals;
    let missed = totals.missed();
    let is_told =
        write_json(arguments.json.as_deref(), &format!("{}\n", object(arguments, format, account)))?;
    if !is_told {
        print(&words(out, account))?;
    }
    if let Some(error) = &account.error {
        return Err(Failure::Machine(cut_short(out, totals.recorded, error)));
    }
    let unread = (totals.left_out > 0).then(|| {
        let publications = plural(totals.left_out, "publication");
        format!("{publications} not read, for want of memory or descriptors (ulimit -v, ulimit -n)")
    });
    let missed = (missed > 0).then(|| missing(missed));
    let reasons: Vec<String> = missed.into_iter().chain(unread).collect();
    if reasons.is_empty() { Ok(()) } else { Err(Failure::Promise(format!("{bus}: {}", reasons.join("; ")))) }
}

fn cut_short(out: &Path, recorded: u64, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::StorageFull => "; free some room, or record elsewhere",
        ErrorKind::FileTooLarge => "; raise the limit (ulimit -f)",
        ErrorKind::QuotaExceeded => "; ask for more, or record elsewhere",
        _ => "",
    };
    format!("{}: {error}; it has the first {}, whole{advice}", out.display(), plural(recorded, "message"))
}

/// So many are missing, in words.
pub(super) fn missing(messages: u64) -> String {
    match messages {
        1 => "1 message is missing".to_owned(),
        many => format!("{} messages are missing", count(many)),
    }
}

/// The result in words, for people.
fn words(out: &Path, account: &Account) -> String {
    let totals = &account.totals;
    let mut text = format!(
        "{} ({}) of {} in {:.1} s: {} ({})\n",
        plural(totals.recorded, "message"),
        plural(account.bytes, "byte"),
        plural(account.sources as u64, "source"),
        account.duration.as_secs_f64(),
        out.display(),
        plural(account.file_size, "byte"),
    );
    if totals.missed() == 0 {
        text += "none is missing\n";
    } else {
        let causes: Vec<String> = totals
            .missed
            .iter()
            .map(|missed| format!("{} {}", missed.cause, count(missed.messages)))
            .collect();
        text += &format!("{}: {}\n", missing(totals.missed()), causes.join(", "));
    }
    if totals.left_out > 0 {
        let publications = plural(totals.left_out, "publication");
        text += &format!("{publications} not read, for want of memory or descriptors\n");
    }
    text
}

fn object(arguments: &RecordArguments, format: Format, account: &Account) -> Value {
    let totals = &account.totals;
    let missed: Map<String, Value> =
        totals.missed.iter().map(|missed| (missed.cause.to_owned(), missed.messages.into())).collect();
    json!({
        "schema": "punctual.record.v1",
        "bus": arguments.bus.to_string(),
        "file": arguments.out.display().to_string(),
        "format": format,
        "messages": totals.recorded,
        "bytes": account.bytes,
        "file_bytes": account.file_size,
        "sources": account.sources,
        "duration_ns": account.duration.as_nanos() as u64,
        "missed": totals.missed(),
        "missed_by": missed,
        "publications_left_out": totals.left_out,
        "error": account.error.as_ref().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: recorded messages stay, also when the writer panics; a file with nothing in it goes.
    #[test]
    fn only_a_recording_that_did_not_begin_is_removed() {
        let folder = tempfile::tempdir().expect("room");
        for (error, stays) in
            [(RecordError::WriterPanicked, true), (RecordError::NotBegun("no node".to_owned()), false)]
        {
            let out = folder.path().join("bus.pcapng");
            std::fs::write(&out, "messages").expect("room");
            let failure = failed(&out, error);
            assert_eq!(out.exists(), stays, "{failure:?}");
            let Failure::Machine(text) = failure else { panic!("{failure:?}") };
            assert_eq!(text.contains("bus.pcapng"), stays, "{text}");
        }
    }
}
