//! Facts about the host and the instrument, as the summary states them.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual::{Bus, Clock as Ticking, CommunicatorOptions, Node, Target, Wake};
use punctual_lab_machine::host::HostFacts;
use punctual_machine::clock::{ClockSource, skew_between};
use serde_json::{Value, json};

use crate::stats::middle;
use crate::summary::{Clock, Host};
use crate::units::count;

/// The host before a run.
pub fn host(facts: &HostFacts, pinned: &[usize]) -> Host {
    let mut more = BTreeMap::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            more.insert(name.to_owned(), value);
        }
    };
    add("pinned", json!(pinned));
    add("hypervisor", json!(facts.hypervisor));
    add("clocksource", json!(facts.clocksource));
    add("smt", json!(facts.smt_active));
    add("isolated_cpus", json!(facts.isolated_cpus));
    add("nohz_full", json!(facts.nohz_full));
    add("huge_pages", json!(facts.huge_pages));
    add("cpuidle_driver", json!(facts.cpuidle_driver));
    add("timer_hz", json!(facts.timer_hz));
    add("realtime_runtime_us", json!(facts.realtime_runtime_us));
    add("memory_bytes", json!(facts.memory_total_bytes));
    let mut governors: Vec<&str> = facts.governors.iter().map(|policy| policy.governor.as_str()).collect();
    governors.dedup();
    add("governor", if governors.is_empty() { Value::Null } else { json!(governors.join(", ")) });
    Host {
        cpu: facts.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned()),
        cpus: facts.cpus_allowed.as_ref().map_or(0, |cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX)),
        kernel: facts.kernel_release.clone().unwrap_or_else(|| "unknown".to_owned()),
        r#virtual: facts.is_virtual.unwrap_or(false),
        load_before: facts.load_average.map_or(0.0, |[minute, ..]| minute),
        scheduler: "other".to_owned(),
        more,
    }
}

/// Cost and resolution of the instrument, measured now.
pub fn clock() -> Clock {
    let clock = Ticking::get();
    let (step_ns, stamp_ns) = clock.measure_itself();
    let source = match clock.source() {
        ClockSource::TimeStampCounter => "tsc",
        ClockSource::VirtualCounter => "cntvct",
        ClockSource::Monotonic => "monotonic",
    };
    let mut more = BTreeMap::from([("source".to_owned(), json!(source))]);
    let cpus = punctual_machine::cpu::allowed();
    if let Some(skew) = cpus.first().zip(cpus.last()).and_then(|(&first, &last)| skew_between([first, last]))
    {
        more.insert("skew_ns".to_owned(), json!([skew.low_ns, skew.high_ns]));
    }
    Clock { step_ns, stamp_ns: round(stamp_ns), record_ns: round(record_cost_ns().unwrap_or(0.0)), more }
}

fn round(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// Cost of recording one message's stages: sending and receiving with stamps against without, in turns, inside this process. The
/// difference of the medians of 15 pairs.
fn record_cost_ns() -> Option<f64> {
    let bus = Bus::loopback(&format!("cost-{:x}", punctual_machine::process::random() as u32));
    let (here, there) = (Node::open(&bus, "here").ok()?, Node::open(&bus, "there").ok()?);
    let [mut plain, mut stamped] = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (stamps, costs) in [(false, &mut plain), (true, &mut stamped)] {
            let mut options = CommunicatorOptions::waiting(Wake::Spin);
            if stamps {
                options = options.stamped().recording(1024);
            }
            costs.push(message_cost_ns(&here, &there, &options)?);
        }
    }
    Some((middle(stamped)? - middle(plain)?).max(0.0))
}

fn message_cost_ns(here: &Node, there: &Node, options: &CommunicatorOptions) -> Option<f64> {
    const MESSAGES: u32 = 2_000;
    let clock = Ticking::get();
    let mut sender = here.bind_with(1, options).ok()?;
    let mut receiver = there.bind_with(1, options).ok()?;
    let target = Target::from(receiver.address());
    let payload = [0; 64];
    let start = clock.now();
    for _ in 0..MESSAGES {
        sender.try_send(target, &payload).ok()?;
        receiver.receive_timeout(Duration::from_secs(1)).ok()?;
    }
    Some(clock.nanos(clock.now().since(start)) as f64 / f64::from(MESSAGES))
}

/// A fact as people read it.
pub fn in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(in_words).collect::<Vec<_>>().join(", "),
        other => other.as_u64().map_or_else(|| other.to_string(), count),
    }
}
