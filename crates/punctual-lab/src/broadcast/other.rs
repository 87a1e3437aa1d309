//! A member of a group of another system: a program of its own, `punctual-peer-broadcast`, so that what it needs reaches no build of
//! this one. It speaks as our workers do, and brings back what our own members bring.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::kernel_faults::KernelFaults;
use super::option::Paced;
use super::protocol::{Joined, MemberAnswer, MemberEnd, MemberPlan, OtherPlan, size_behind};
use crate::run::{self, Worker};
use crate::units::OptionName;

/// Where it is looked for unless a path is given.
pub const PROGRAM: &str = "punctual-peer-broadcast";

/// Advice on how to get it.
const ADVICE: &str = "build it: cargo build --release --manifest-path peers/Cargo.toml --bin punctual-peer-broadcast, then \
                      peers/target/release/punctual-peer-broadcast build, and say where it is: --peer-broadcast \
                      peers/target/release/punctual-peer-broadcast";

/// Longest time that a program may take to start, to meet the others and to warm up.
const JOINING_MAX: Duration = Duration::from_secs(60);
/// And how long for a trial, beside the time in which messages are due: it gives up by itself when nothing comes.
const TRAVELLING_MAX: Duration = Duration::from_secs(600);

/// Checks that there is such a program.
///
/// # Errors
/// There is none, or it does not run; the error says what to do.
pub fn look_for(program: &Path) -> Result<(), String> {
    run::look_for(program, ADVICE)
}

/// A request to it, once it has joined.
#[derive(Serialize)]
enum OtherRequest {
    Go { at_ns: u64 },
}

/// Its result. Rows and hashes follow as bytes.
#[derive(Deserialize)]
struct OtherEnd {
    ended_ns: u64,
    bytes: u64,
    content: [u64; 2],
    order: [u64; 2],
    sent: [u64; 2],
    cpu_ns: u64,
    views: u64,
    rows: usize,
    hashes: usize,
}

/// A member that has joined.
#[derive(Debug)]
pub(super) struct OtherMember {
    worker: Worker,
    faults: Option<KernelFaults>,
    /// Time for which messages are due, where they are due at instants.
    lasts: Duration,
}

impl OtherMember {
    /// Starts the program in the network namespace of this process. Faults begin when it has joined and warmed up.
    pub(super) fn open(plan: &MemberPlan, of: &OtherPlan) -> Result<(Self, Joined), String> {
        let addresses: Vec<String> = of.addresses.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&of.program);
        command.arg(of.system.name()).args(["--addresses", &addresses.join(",")]);
        for (name, value) in [
            ("--place", plan.place as u64),
            ("--members", plan.members as u64),
            ("--senders", plan.senders as u64),
            ("--each", plan.each),
            ("--message", plan.message as u64),
            ("--seed", plan.seed),
            ("--period-ns", plan.paced.map_or(0, |paced| paced.period_ns)),
        ] {
            command.args([name, &value.to_string()]);
        }
        let mut worker = Worker::run(&mut command)?;
        let joined = worker.recv_within(JOINING_MAX)?;
        let lasts = plan.paced.map_or(Duration::ZERO, Paced::lasts);
        Ok((Self { worker, faults: KernelFaults::of(plan)?, lasts }, joined))
    }

    pub(super) fn travel(&mut self, at_ns: u64) -> Result<(MemberAnswer, Vec<u8>), String> {
        let damaged = KernelFaults::counts(self.faults.as_ref())?;
        self.worker.send(&OtherRequest::Go { at_ns })?;
        let end = self.worker.recv_within(TRAVELLING_MAX + self.lasts);
        // An interrupt ends the program, which says nothing more.
        let end: OtherEnd =
            end.map_err(|reason| if interrupted() { format!("interrupted: {reason}") } else { reason })?;
        let damaged_now = KernelFaults::counts(self.faults.as_ref())?;
        let [seen, lost, altered] = [0, 1, 2].map(|place| damaged_now[place] - damaged[place]);
        let end = MemberEnd {
            ended_ns: end.ended_ns,
            bytes: end.bytes,
            content: end.content,
            order: end.order,
            sent: end.sent,
            cpu_ns: end.cpu_ns,
            // Packets: it has no frames of ours.
            frames_arrived: seen.saturating_sub(lost + altered),
            frames_lost: lost + altered,
            views: end.views,
            packets_damaged: [seen, lost, altered],
            rows: end.rows,
            hashes: end.hashes,
            ..MemberEnd::default()
        };
        let bytes = self.worker.recv_bytes(size_behind(&end))?;
        Ok(((end, None), bytes))
    }
}
