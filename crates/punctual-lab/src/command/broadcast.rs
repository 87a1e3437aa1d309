//! `punctual run broadcast`: a group beside bare multicast and the published table.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use punctual_machine::signal::count_continuations;

use super::kv::KvArguments;
use super::measure;
use super::progress::progress;
use crate::broadcast::kv::option::{KvSettings, VALUE_SIZE_MAX, VALUE_SIZE_MIN};
use crate::broadcast::option::{
    BroadcastEngine, BroadcastKind, BroadcastSettings, Disruption, Disruptions, FaultPlace, FaultProfile,
    FrameSize, OtherSystem, PACED_MAX, Paced, Planted, Senders,
};
use crate::broadcast::other;
use crate::error::Failure;
use crate::run::{Common, hidden};
use crate::units::{bytes, duration, size_in};

/// Options of the broadcast.
#[derive(Debug, Args)]
#[command(mut_args(hidden(&["count", "gap", "load"])))]
#[command(mut_arg("duration", |arg| arg.help("With --period or --app kv, time of one trial [default: 5s, of kv 500ms]")))]
pub struct BroadcastArguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    kv: KvArguments,
    /// Members, one group for each number [default: 4,7,10; with --kills, --stops, --app or --against 4]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(2..=32))]
    members: Vec<u8>,
    /// Members that broadcast [default: 1; with --kills or --stops all]
    #[arg(long, value_enum)]
    senders: Option<Senders>,
    /// Guarantee for a message, in turn
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',', default_value = "ab")]
    kind: Vec<BroadcastKind>,
    /// Payload that every member delivers in a trial, such as 20M, 1G [default: 16M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bytes: Option<u64>,
    /// Size of a message [default: 30,000]; with --app kv of a value, 24 to 32,000 [default: 100]
    #[arg(long, value_name = "BYTES", value_parser = size_in(16..=64 << 20))]
    message: Option<usize>,
    /// Payload of a frame, in turn: bytes, or max for a whole message as far as the medium carries it [default: 1,328, which Ethernet
    /// carries uncut; 8,192 in memory]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    frame: Vec<FrameSize>,
    /// Frames of one sender that not all have taken [default: the library's]
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u16).range(1..=4_096))]
    window: Option<u16>,
    /// Faults at each receiver, loss and flips in hundredths of what arrives [default: 0/0,1/0,1/1,2/1,3/1; with --kills,
    /// --stops or --app 0/0; with --against 0/0,1/0,3/1]
    #[arg(long, value_name = "LOSS/FLIPS", value_delimiter = ',')]
    faults: Vec<FaultProfile>,
    /// Maker of the faults: the library, on every frame, or a program in the kernel, on every packet (root, media of a network)
    /// [default: receiver; with --against kernel]
    #[arg(long, value_enum, value_name = "PLACE")]
    faults_in: Option<FaultPlace>,
    /// Engines that carry frames, in turn [default: shared,multicast; with --against multicast]
    #[arg(long, value_enum, value_name = "ENGINE", value_delimiter = ',')]
    engine: Vec<BroadcastEngine>,
    /// Groups of other systems, in turn with ours
    #[arg(long, value_enum, value_name = "SYSTEM", value_delimiter = ',')]
    against: Vec<OtherSystem>,
    /// The program that makes their members
    #[arg(long, value_name = "PROGRAM", default_value = other::PROGRAM)]
    peer_broadcast: PathBuf,
    /// Rounds of all trials, in turn
    #[arg(long, alias = "runs", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Kill members under load, one after the other: another process comes in the place of each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: Option<u32>,
    /// Stop members under load, one after the other, until the others have gone on; in a trial of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    stops: Option<u32>,
    /// Silence after which a member is suspected, with --kills or --stops [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    suspect: Option<Duration>,
    /// Each sender has a message due once in so long, in place of as many as the group takes; for --duration, not --bytes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    period: Option<Duration>,
    /// Each member has a processor, one after the other
    #[arg(long)]
    pin: bool,
    /// Record which thread each processor ran, for punctual explain (root); with --period
    #[arg(long)]
    trace: bool,
    /// Error to plant on purpose, to see that it is found
    #[arg(long, hide = true, value_enum)]
    plant: Option<Planted>,
}

/// Messages of one trial: each is a row in memory, of the first so many.
const MESSAGES_MAX: u64 = 50_000_000;

/// Size of a message, and of a value of a store, where nothing else is said.
const MESSAGE: usize = 30_000;
const VALUE: usize = 100;

/// Payload of a trial, where nothing else is said.
const BYTES: u64 = 16_000_000;

/// Of one trial whose messages are due at instants.
const DURATION: Duration = Duration::from_secs(5);

/// Faults, where nothing else is said: those of the published table.
const FAULTS: [(u32, u32); 5] = [(0, 0), (10, 0), (10, 10), (20, 10), (30, 10)];

/// Of these, those with which other systems are compared where nothing else is said.
const COMPARED: [(u32, u32); 3] = [(0, 0), (10, 0), (30, 10)];

/// Suspicion, where nothing else is said: on a machine with few processors some members do not run for a while.
const SUSPECT_AFTER: Duration = Duration::from_millis(500);

/// The possible values: below, heartbeats of 10 ms are late too often; above, a trial takes hours.
const SUSPECT_AFTER_MIN: Duration = Duration::from_millis(50);
const SUSPECT_AFTER_MAX: Duration = Duration::from_secs(10);

/// The smallest group that has a majority while one member is away.
const DISRUPTED_MIN: u8 = 3;

/// Measures, stores, shows.
pub fn broadcast(arguments: &BroadcastArguments) -> Result<(), Failure> {
    count_continuations()?;
    measure::make(&settings(arguments)?, &arguments.common, &progress(arguments.common.quiet))
}

/// The same faults where they are to be made.
fn placed(
    arguments: &BroadcastArguments,
    mut faults: Vec<FaultProfile>,
) -> Result<Vec<FaultProfile>, Failure> {
    if arguments.faults_in == Some(FaultPlace::Kernel) || !arguments.against.is_empty() {
        if engines(arguments).iter().any(|engine| !engine.is_of_a_network()) {
            let text = "--faults-in kernel: shared memory has no packets; --engine multicast, udp, ethernet";
            return Err(Failure::Usage(text.to_owned()));
        }
        faults.iter_mut().for_each(|profile| profile.in_kernel = true);
    }
    Ok(faults)
}

fn engines(arguments: &BroadcastArguments) -> Vec<BroadcastEngine> {
    match (&arguments.engine[..], arguments.against.is_empty()) {
        ([], true) => vec![BroadcastEngine::Shared, BroadcastEngine::Multicast],
        ([], false) => vec![BroadcastEngine::Multicast],
        (given, _) => given.to_vec(),
    }
}

/// Checks that the rest of the request goes with other systems, if there are any, and that their program is there.
fn check_others(arguments: &BroadcastArguments, is_table: bool) -> Result<(), Failure> {
    if arguments.against.is_empty() {
        return Ok(());
    }
    if !is_table || arguments.trace || arguments.plant.is_some() {
        let text = "--against: other systems only broadcast; not with --kills, --stops, --app or --trace";
        return Err(Failure::Usage(text.to_owned()));
    }
    if arguments.faults_in == Some(FaultPlace::Receiver) {
        let text = "--faults-in receiver: that is our own library; with --against the kernel makes them";
        return Err(Failure::Usage(text.to_owned()));
    }
    other::look_for(&arguments.peer_broadcast).map_err(Failure::Machine)
}

fn settings(arguments: &BroadcastArguments) -> Result<BroadcastSettings, Failure> {
    let common = &arguments.common;
    let disruptions = disruptions(arguments)?;
    let calm = disruptions.is_empty();
    let is_table = calm && arguments.kv.app.is_none();
    let given = |given: &[u8], usual: &[u8]| if given.is_empty() { usual } else { given }.to_vec();
    check_others(arguments, is_table)?;
    let is_published = is_table && arguments.against.is_empty();
    let members = given(&arguments.members, if is_published { &[4, 7, 10] } else { &[4] });
    let members: Vec<usize> = members.iter().map(|&members| members.into()).collect();
    let senders = arguments.senders.unwrap_or(if is_table { Senders::One } else { Senders::All });
    let paced = paced(arguments, members.iter().map(|&members| senders.count(members)).max().unwrap_or(1))?;
    let kv = store(arguments, members.iter().copied().max().unwrap_or(0), calm)?;
    if paced.is_none() && kv.is_none() && common.duration.is_some()
        || common.gap.is_some()
        || common.count.is_some()
        || common.load.is_some()
    {
        let text = "--duration, --gap, --count, --load: a trial lasts until all members have --bytes, or with --period for --duration";
        return Err(Failure::Usage(text.to_owned()));
    }
    let message = arguments.message.unwrap_or(if kv.is_some() { VALUE } else { MESSAGE });
    let bytes = arguments.bytes.unwrap_or(BYTES);
    if bytes / message as u64 > MESSAGES_MAX {
        return Err(Failure::Usage(format!("--bytes {bytes}: at most {MESSAGES_MAX} messages")));
    }
    let usual = FAULTS[..if is_table { FAULTS.len() } else { 1 }].iter();
    let usual = usual.map(|&(loss_permille, flips_permille)| FaultProfile {
        loss_permille,
        flips_permille,
        in_kernel: false,
    });
    let mut faults = if arguments.faults.is_empty() { usual.collect() } else { arguments.faults.clone() };
    if arguments.faults.is_empty() && !arguments.against.is_empty() {
        faults.retain(|profile: &FaultProfile| {
            COMPARED.contains(&(profile.loss_permille, profile.flips_permille))
        });
    }
    Ok(BroadcastSettings {
        members,
        senders,
        kinds: kinds(arguments, is_table)?,
        bytes,
        message,
        frames: frames(arguments, is_table)?,
        window: arguments.window.map(usize::from),
        faults: placed(arguments, faults)?,
        engines: engines(arguments),
        runs: arguments.rounds,
        disruptions,
        suspect_after: arguments.suspect.unwrap_or(SUSPECT_AFTER),
        seed: common.seed,
        planted: arguments.plant,
        paced,
        kv,
        against: arguments.against.clone(),
        peer_program: arguments.peer_broadcast.clone(),
        pin: arguments.pin,
        trace: arguments.trace,
    })
}

/// The guarantees: where members suffer, one sequence of all messages is checked.
fn kinds(arguments: &BroadcastArguments, is_table: bool) -> Result<Vec<BroadcastKind>, Failure> {
    let mut kinds = arguments.kind.clone();
    kinds.dedup();
    if !is_table && (kinds.len() > 1 || !kinds.iter().all(|kind| kind.is_ordered())) {
        let text =
            "--kind: ab or agreed with --kills or --stops: the messages of all lives must be one sequence";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(kinds)
}

/// Payloads of a frame: more than one only where trials are told apart by them.
fn frames(arguments: &BroadcastArguments, is_table: bool) -> Result<Vec<FrameSize>, Failure> {
    if !is_table && arguments.frame.len() > 1 {
        return Err(Failure::Usage("--frame: one at most with --kills, --stops or --app".to_owned()));
    }
    let usual = vec![FrameSize::Usual];
    Ok(if arguments.frame.is_empty() { usual } else { arguments.frame.clone() })
}

/// Settings of a store, if there is one, checked against the rest of the request.
fn store(
    arguments: &BroadcastArguments,
    members: usize,
    is_calm: bool,
) -> Result<Option<KvSettings>, Failure> {
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    if arguments.kv.app.is_some() {
        let sizes = VALUE_SIZE_MIN..=VALUE_SIZE_MAX;
        if arguments.bytes.is_some() || arguments.period.is_some() || arguments.senders.is_some() {
            return refused(
                "--app kv: clients ask one thing after the other; not with --bytes, --period or --senders",
            );
        }
        if arguments.kind != [BroadcastKind::Ab] {
            return refused(
                "--kind: a store whose last puts a crash undoes, or that has no order, is not linearizable; --app kv needs ab",
            );
        }
        if arguments.plant == Some(Planted::Lost) {
            return refused("--plant lost: nothing of --app kv can be missing; it has content and order");
        }
        if arguments.message.is_some_and(|value| !sizes.contains(&value)) {
            return refused("--message: a value of --app kv has from 24 to 32,000 bytes");
        }
    }
    arguments.kv.settings(arguments.common.duration.filter(|_| arguments.kv.app.is_some()), members, is_calm)
}

/// When messages of at most so many senders are due, if at instants, and whether the rest of what is asked for goes with it.
fn paced(arguments: &BroadcastArguments, senders: usize) -> Result<Option<Paced>, Failure> {
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    let Some(period) = arguments.period else {
        return if arguments.trace { refused("--trace: only with --period") } else { Ok(None) };
    };
    if arguments.bytes.is_some() || arguments.kills.is_some() || arguments.stops.is_some() {
        return refused("--period: a trial lasts for --duration; not with --bytes, --kills or --stops");
    }
    let lasts = arguments.common.duration.unwrap_or(DURATION);
    let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let each = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX) / period_ns;
    let all = each.saturating_mul(senders as u64);
    if !(1..=PACED_MAX).contains(&all) {
        let text = format!(
            "--period {period:?}: in {lasts:?} all senders have {all} messages; from 1 to {PACED_MAX} are possible, of which \
             all latencies are kept: take another --period or --duration, or more --rounds"
        );
        return Err(Failure::Usage(text));
    }
    Ok(Some(Paced { period_ns, each }))
}

/// Disruptions of members, checked against the rest of the request.
fn disruptions(arguments: &BroadcastArguments) -> Result<Vec<Disruptions>, Failure> {
    let of = |of: Disruption, count: Option<u32>| count.map(|count| Disruptions { of, count });
    let all = [of(Disruption::Kill, arguments.kills), of(Disruption::Stop, arguments.stops)];
    let all: Vec<Disruptions> = all.into_iter().flatten().collect();
    let suspect = arguments.suspect;
    let refused = if all.is_empty() {
        suspect.map(|_| "--suspect: only with --kills or --stops".to_owned())
    } else if arguments.bytes.is_some() {
        let text = "--bytes: no life has them all; with --kills or --stops the load lasts until the last member is back";
        Some(text.to_owned())
    } else if arguments.senders == Some(Senders::One) {
        Some(
            "--senders 1: with --kills or --stops all members broadcast, or a gap would be its sender's"
                .to_owned(),
        )
    } else if let Some(few) = arguments.members.iter().find(|&&members| members < DISRUPTED_MIN) {
        Some(format!(
            "--members {few}: --kills and --stops need at least {DISRUPTED_MIN}, or no majority is left"
        ))
    } else {
        suspect.filter(|suspect| !(SUSPECT_AFTER_MIN..=SUSPECT_AFTER_MAX).contains(suspect)).map(|suspect| {
            format!("--suspect {suspect:?}: from {SUSPECT_AFTER_MIN:?} to {SUSPECT_AFTER_MAX:?}")
        })
    };
    refused.map_or(Ok(all), |text| Err(Failure::Usage(text)))
}
