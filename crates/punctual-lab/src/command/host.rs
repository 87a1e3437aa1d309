//! `punctual host`.

use clap::Args;
use punctual_lab_machine::host::{FacilityState, HostFacts};
use serde_json::{Map, Value, json};

use super::print;
use crate::error::Failure;
use crate::facts;
use crate::report::section::{Cell, Column, Section, Table};
use crate::report::text::{self, Screen};
use crate::units::count;

/// Options of the host's facts.
#[derive(Debug, Args)]
pub struct HostArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the facts that make numbers comparable, and what limits them.
pub fn host(arguments: &HostArguments) -> Result<(), Failure> {
    let read = HostFacts::read();
    if !arguments.json {
        return print(&text::page(&sections(&read), Screen::stdout()));
    }
    let facilities: Map<String, Value> = read
        .facilities
        .iter()
        .map(|facility| {
            let state = match &facility.state {
                FacilityState::Available => json!({ "available": true }),
                FacilityState::Missing { reason } => json!({ "available": false, "reason": reason }),
            };
            (facility.name.to_owned(), state)
        })
        .collect();
    let mut host = json!(facts::host(&read, &[]));
    // A run does not keep these.
    host["cpus_online"] = json!(read.cpus_online.as_ref().map(Vec::len));
    host["load_average"] = json!(read.load_average);
    let limit = |value: u64| (value != u64::MAX).then_some(value);
    host["memlock_bytes"] = json!(limit(read.memlock_bytes.soft));
    host["realtime_priority"] = json!(limit(read.realtime_priority.soft));
    let all = json!({ "host": host, "clock": facts::clock(), "facilities": facilities });
    print(&format!("{all:#}\n"))
}

/// The page of `punctual host`.
fn sections(read: &HostFacts) -> Vec<Section> {
    let host = facts::host(read, &[]);
    let clock = facts::clock();
    let mut lines = vec![
        ("processor".to_owned(), host.cpu),
        (
            "processors allowed".to_owned(),
            format!("{} of {}", host.cpus, read.cpus_online.as_ref().map_or(0, Vec::len)),
        ),
        ("kernel".to_owned(), host.kernel),
        ("virtual".to_owned(), if host.r#virtual { "yes".to_owned() } else { "no".to_owned() }),
        (
            "load average".to_owned(),
            read.load_average.map_or_else(unknown, |load| load.map(|one| one.to_string()).join(" ")),
        ),
        ("locked memory limit".to_owned(), limit(read.memlock_bytes.soft)),
        ("real-time priority limit".to_owned(), limit(read.realtime_priority.soft)),
        ("clock step".to_owned(), format!("{} ns", clock.step_ns)),
        ("cost of a stamp".to_owned(), format!("{} ns", clock.stamp_ns)),
        ("cost of recording a message".to_owned(), format!("{} ns", clock.record_ns)),
    ];
    lines.extend(
        host.more
            .into_iter()
            .filter(|(name, _)| name != "pinned")
            .map(|(name, value)| (name.replace('_', " "), facts::in_words(&value))),
    );
    let mut table = Table::new(vec![Column::name(""), Column::prose("")]);
    lines.iter().for_each(|(name, value)| table.row([name, value].map(Cell::from)));
    let mut can = Table::new(vec![Column::name(""), Column::prose("")]);
    for facility in &read.facilities {
        let state = match &facility.state {
            FacilityState::Available => Cell::from("yes"),
            FacilityState::Missing { reason } => Cell::from(format!("no: {reason}")),
        };
        can.row([facility.name.into(), state]);
    }
    vec![Section::new("This host").table(table), Section::new("What this process can use here").table(can)]
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn limit(value: u64) -> String {
    if value == u64::MAX { "none".to_owned() } else { count(value) }
}
