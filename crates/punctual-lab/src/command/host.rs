//! `punctual host`.

use clap::Args;
use punctual_machine::host::{FacilityState, HostFacts};
use serde_json::{Map, Value, json};

use super::print;
use crate::error::Failure;
use crate::facts;
use crate::report::text::{self, Screen};

/// Options of the host's facts.
#[derive(Debug, Args)]
pub struct HostArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the facts that make numbers comparable, and what limits them.
///
/// # Errors
/// When standard output cannot be written.
pub fn host(arguments: &HostArguments) -> Result<(), Failure> {
    let read = HostFacts::read();
    if !arguments.json {
        return print(&text::page(&facts::sections(&read), Screen::stdout()));
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
    let all = json!({ "host": facts::host(&read, &[]), "clock": facts::clock(), "facilities": facilities });
    print(&format!("{all:#}\n"))
}
