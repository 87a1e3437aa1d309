//! `punctual run broadcast`: a group beside bare multicast and the published table.

use clap::Args;

use super::measure;
use super::progress::progress;
use crate::broadcast::option::{
    BroadcastEngine, BroadcastKind, BroadcastSettings, FaultProfile, Planted, Senders, bytes,
};
use crate::error::Failure;
use crate::run::Common;

/// Options of the broadcast.
#[derive(Debug, Args)]
pub struct BroadcastArguments {
    #[command(flatten)]
    common: Common,
    /// Members, one group for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,7,10", value_parser = clap::value_parser!(u8).range(2..=32))]
    members: Vec<u8>,
    /// Who broadcasts
    #[arg(long, value_enum, default_value = "1")]
    senders: Senders,
    /// What is promised of a message
    #[arg(long, value_enum, value_name = "KIND", default_value = "ab")]
    kind: BroadcastKind,
    /// Payload that every member delivers in a trial, such as 20M, 1G
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = bytes)]
    bytes: u64,
    /// Size of a message
    #[arg(long, value_name = "BYTES", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(16..=64 << 20))]
    message: u32,
    /// Payload of a frame [default: 1,328, which Ethernet carries uncut; 2,048 in memory]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=60_000))]
    frame: Option<u16>,
    /// Frames of one sender that not all have taken [default: the library's]
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u16).range(1..=4_096))]
    window: Option<u16>,
    /// Faults at each receiver, loss and flips in hundredths of what arrives
    #[arg(long, value_name = "LOSS/FLIPS", value_delimiter = ',', default_value = "0/0,1/0,1/1,2/1,3/1")]
    faults: Vec<FaultProfile>,
    /// What carries frames, in turn
    #[arg(
        long,
        value_enum,
        value_name = "ENGINE",
        value_delimiter = ',',
        default_value = "shared,multicast"
    )]
    engine: Vec<BroadcastEngine>,
    /// How often all trials are made, in turn
    #[arg(long, alias = "rounds", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// What goes wrong on purpose, to see that it is found
    #[arg(long, hide = true, value_enum)]
    plant: Option<Planted>,
}

/// Messages of one trial: each is a row in memory, of the first so many.
const MESSAGES_MAX: u64 = 50_000_000;

/// Measures, stores, shows.
pub fn broadcast(arguments: &BroadcastArguments) -> Result<(), Failure> {
    measure::make(&settings(arguments)?, &arguments.common, &progress(arguments.common.quiet))
}

fn settings(arguments: &BroadcastArguments) -> Result<BroadcastSettings, Failure> {
    let common = &arguments.common;
    if common.duration.is_some() || common.gap.is_some() || common.count.is_some() || common.load.is_some() {
        let text = "--duration, --gap, --count, --load: a trial lasts until all members have --bytes";
        return Err(Failure::Usage(text.to_owned()));
    }
    let message = arguments.message as usize;
    if arguments.bytes / u64::from(arguments.message) > MESSAGES_MAX {
        let text = format!("--bytes {}: at most {MESSAGES_MAX} messages", arguments.bytes);
        return Err(Failure::Usage(text));
    }
    Ok(BroadcastSettings {
        members: arguments.members.iter().map(|&members| members.into()).collect(),
        senders: arguments.senders,
        kind: arguments.kind,
        bytes: arguments.bytes,
        message,
        frame: arguments.frame.map(usize::from),
        window: arguments.window.map(usize::from),
        faults: arguments.faults.clone(),
        engines: arguments.engine.clone(),
        runs: arguments.runs,
        seed: common.seed,
        planted: arguments.plant,
    })
}
