//! Invented samples with the shape of real ones: to look at pages and tables, never to print as figures.

use std::path::Path;

use punctual_lab::doubt::Cause;
use punctual_lab::sample::{ABSENT_NS, CellId, Kind, Load, Outcome, Samples, StageColumn};
use punctual_lab::stats::Floats;
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::summary::{Choice, Recommendation, Skipped, Summary};
use punctual_proto::sim::Rng;

pub(crate) const WARMUP: u64 = 100;

/// Median without gap, what a sleeper pays, and how heavy the tail is.
const ROUTES: [(&str, &str, f64, f64, f64); 24] = [
    ("floor", "slot", 180.0, 0.0, 0.4),
    ("floor", "futex", 5_900.0, 6_000.0, 0.6),
    ("floor", "udp-spin", 4_200.0, 300.0, 0.5),
    ("floor", "udp-block", 9_700.0, 7_000.0, 0.7),
    ("floor", "packet-spin", 5_100.0, 300.0, 0.5),
    ("loopback", "spin", 90.0, 0.0, 0.3),
    ("loopback", "futex", 120.0, 0.0, 0.3),
    ("shared", "spin", 260.0, 0.0, 0.4),
    ("shared", "backoff", 340.0, 900.0, 0.5),
    ("shared", "futex", 6_300.0, 6_200.0, 0.6),
    ("shared", "event_fd", 7_100.0, 6_400.0, 0.6),
    ("shared", "epoll", 7_600.0, 6_400.0, 0.6),
    ("shared", "signal", 9_400.0, 6_600.0, 0.8),
    ("datagram", "spin", 4_700.0, 300.0, 0.5),
    ("datagram", "backoff", 4_900.0, 1_200.0, 0.5),
    ("datagram", "futex", 11_900.0, 7_000.0, 0.7),
    ("datagram", "event_fd", 12_300.0, 7_000.0, 0.7),
    ("datagram", "epoll", 10_400.0, 7_200.0, 0.7),
    ("datagram", "signal", 14_800.0, 7_500.0, 0.9),
    ("packet", "spin", 5_600.0, 300.0, 0.5),
    ("packet", "backoff", 5_800.0, 1_200.0, 0.5),
    ("packet", "futex", 12_600.0, 7_000.0, 0.7),
    ("packet", "epoll", 11_500.0, 7_200.0, 0.7),
    ("packet", "signal", 15_900.0, 7_500.0, 0.9),
];

const STAGES: [(&str, f64); 8] = [
    ("request.sealed", 0.05),
    ("request.posted", 0.16),
    ("request.woken", 0.24),
    ("request.read", 0.07),
    ("responder", 0.05),
    ("reply.posted", 0.14),
    ("reply.woken", 0.2),
    ("reply.read", 0.06),
];

struct Trial<'a> {
    cell: &'a CellId,
    median_ns: f64,
    tail: f64,
    count: u64,
}

impl Trial<'_> {
    fn samples(&self, random: &mut Rng, start_ns: u64) -> Samples {
        let mut samples = Samples::with_capacity(1000);
        let shift = (0.03 * random.normal()).exp();
        let mut now_ns = start_ns;
        for index in 0..self.count {
            let cold = 1.0 + 40.0 / (1.0 + index as f64).powf(1.4);
            let mut total = self.median_ns * shift * cold * (0.08 * random.normal()).exp();
            if random.unit() < 0.03 {
                total += self.median_ns * self.tail * random.unit().powf(-0.5);
            }
            if random.unit() < 0.0006 {
                total += 120_000.0 * random.unit().powf(-0.6);
            }
            let lost = self.cell.name == "packet/signal" && random.unit() < 0.0008;
            let outcome = if lost { Outcome::Lost } else { Outcome::Answered };
            samples.push(index, now_ns, now_ns, total as u64, outcome);
            now_ns += total as u64 + self.cell.gap_us * 1000;
        }
        if self.cell.engine != "floor" && self.cell.kind == Kind::RoundTrip {
            samples.stages = stages(&samples, random);
        }
        samples
    }
}

fn stages(samples: &Samples, random: &mut Rng) -> Vec<StageColumn> {
    let column = |&(name, share): &(&str, f64)| {
        let part = |(row, &total): (usize, &u64)| match samples.outcome[row] {
            Outcome::Answered => (total as f64 * share * (0.05 * random.normal()).exp()) as u64,
            _ => ABSENT_NS,
        };
        StageColumn { name: name.to_owned(), ns: samples.total_ns.iter().enumerate().map(part).collect() }
    };
    let mut column = column;
    STAGES.iter().map(&mut column).collect()
}

fn header() -> Header {
    let mut header = Header { warmup: WARMUP, seed: 7, ..Header::new("survey") };
    "2026-11-21T08:00:00Z".clone_into(&mut header.started);
    "Invented CPU @ 2.00GHz".clone_into(&mut header.host.cpu);
    header.host.cpus = 2;
    "6.12.0-invented".clone_into(&mut header.host.kernel);
    header.host.r#virtual = true;
    header.host.load_before = 0.21;
    "other".clone_into(&mut header.host.scheduler);
    header.host.more.insert("pinned".to_owned(), "cores 0 and 1".into());
    header.clock.step_ns = 1;
    header.clock.stamp_ns = 11.8;
    header.clock.record_ns = 27.4;
    header.clock.more.insert("source".to_owned(), "tsc".into());
    header
}

fn cells(gaps: &[u64]) -> Vec<(CellId, f64, f64)> {
    let mut cells = Vec::new();
    for &gap_us in gaps {
        for (engine, wake, median, sleep, tail) in ROUTES {
            let slept = sleep * (gap_us as f64 / 1000.0).min(1.0);
            let cell = CellId { gap_us, ..CellId::new(engine, wake) };
            cells.push((cell.clone(), median + slept, tail));
            if gap_us == gaps[0] && engine == "shared" {
                cells.push((CellId { kind: Kind::OneWay, load: Load::Open, ..cell }, median * 0.55, tail));
            }
        }
    }
    cells
}

/// Writes a run of about `gaps.len() × 24` cells and opens it.
pub(crate) fn run(out: &Path, gaps: &[u64], trials: u32, count: u64) -> Run {
    let mut store = Store::create(Some(out), &header()).expect("an empty directory");
    let mut random = Rng::new(42);
    let mut now_ns = 0;
    for trial in 0..trials {
        for (cell, median_ns, tail) in &cells(gaps) {
            let plan = Trial { cell, median_ns: *median_ns, tail: *tail, count };
            let mut samples = plan.samples(&mut random, now_ns);
            now_ns += 2_000_000;
            if trial == 1 && cell.name == "datagram/epoll" && cell.gap_us == 0 {
                let subject = format!("{} trial {trial}", cell.name);
                samples.facts.doubts.push(Cause::Migrated { subject, times: 2 }.into());
            }
            store.append(cell, trial, &samples).expect("room");
        }
    }
    let mut summary = store.summary().expect("readable");
    advise(&mut summary);
    store.finish(&summary).expect("room");
    Run::open(out).expect("a run")
}

fn advise(summary: &mut Summary) {
    let choice = |need: &str, name: &str, because: &str| Choice {
        need: need.to_owned(),
        name: name.to_owned(),
        because: because.to_owned(),
    };
    summary.recommendation = Some(Recommendation {
        text: "Between processes use shared memory with backoff: 0.34 µs while busy, and no core burnt while idle."
            .to_owned(),
        choices: vec![
            choice("Fastest, a core to spare", "shared/spin", "p50 0.26 µs, p99.9 2.1 µs"),
            choice("Fast, no core to spare", "shared/backoff", "p50 0.34 µs, 1.2 µs after 1 ms of silence"),
            choice("Sleeps, many sources", "shared/epoll", "p50 7.6 µs, 14 µs after 1 ms of silence"),
            choice("Between hosts", "datagram/epoll", "p50 10.4 µs over loopback"),
        ],
    });
    summary.skipped.push(Skipped {
        what: "shared/user_interrupt".to_owned(),
        reason: "the processor has no user interrupts (UINTR): nothing to do on this machine".to_owned(),
    });
    summary.skipped.push(Skipped {
        what: "packet over eth0".to_owned(),
        reason: "needs CAP_NET_RAW: run as root, or setcap cap_net_raw+ep on the command".to_owned(),
    });
}
