//! Counters as Prometheus reads them.

use std::fmt::{Display, Write};

use punctual_proto::Nanos;

use crate::broadcast::{GroupAccount, GroupOwner, GroupState, MemberAccount};
use crate::ledger::{Ledger, PageOwner};
use crate::runtime::{Metrics, RuntimeOwner, WorkerMetrics};

/// The counters of nodes, runtimes and members of groups in Prometheus' text format, version 0.0.4: counters end in `_total`,
/// times are seconds.
///
/// ```
/// use punctual::{broadcast, ledger, runtime};
///
/// let text = punctual::prometheus(&ledger::read_all(), &runtime::read_all(), &broadcast::read_all());
/// assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("punctual_")));
/// ```
#[must_use]
pub fn prometheus(
    nodes: &[(PageOwner, Ledger)],
    runtimes: &[(RuntimeOwner, Metrics)],
    groups: &[(GroupOwner, GroupAccount)],
) -> String {
    let mut page = Page::default();
    page.nodes(nodes);
    page.runtimes(runtimes);
    page.workers(runtimes);
    page.classes(runtimes);
    page.delays(runtimes);
    page.groups(groups);
    page.members(groups);
    page.0
}

/// Values of a ledger that go down as well.
const GAUGES: [&str; 1] = ["waiting"];

/// The limits of queue delays' buckets: 1,024 ns, and four times as much each. Powers of two are counted exactly.
fn limits() -> impl Iterator<Item = Nanos> {
    (10..=30).step_by(2).map(|power| Nanos(1 << power))
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _infallible = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn nodes(&mut self, nodes: &[(PageOwner, Ledger)]) {
        let labels: Vec<String> = nodes.iter().map(|(owner, _)| owner.labels()).collect();
        // The same names in the same order for every ledger.
        for (index, (counter, _)) in Ledger::default().entries().into_iter().enumerate() {
            let is_gauge = GAUGES.contains(&counter);
            let (ending, kind) = if is_gauge { ("", "gauge") } else { ("_total", "counter") };
            let name = format!("punctual_node_{counter}{ending}");
            if nodes.is_empty() {
                continue;
            }
            self.head(&name, kind, &format!("The ledger's {counter}, of each node."));
            for ((_, ledger), labels) in nodes.iter().zip(&labels) {
                self.line(&name, labels, ledger.entries()[index].1);
            }
        }
    }

    fn runtimes(&mut self, runtimes: &[(RuntimeOwner, Metrics)]) {
        type Of = fn(&Metrics) -> String;
        let rows: [(&str, &str, &str, Of); 6] = [
            ("tasks", "gauge", "Tasks that live.", |metrics| metrics.tasks.to_string()),
            ("panics_total", "counter", "Tasks that ended by a panic.", |metrics| metrics.panics.to_string()),
            ("descriptors", "gauge", "Descriptors that tasks wait for.", |metrics| {
                metrics.reactor.sources.to_string()
            }),
            ("activations_total", "counter", "Looks at descriptors that found something.", |metrics| {
                metrics.reactor.activations.to_string()
            }),
            ("events_total", "counter", "Descriptors that were reported.", |metrics| {
                metrics.reactor.events.to_string()
            }),
            ("reactor_seconds_total", "counter", "How long waking their tasks took.", |metrics| {
                seconds(metrics.reactor.took)
            }),
        ];
        for (name, kind, help, value) in rows {
            self.rows(&format!("punctual_runtime_{name}"), kind, help, runtimes, |metrics| {
                vec![(String::new(), value(metrics))]
            });
        }
    }

    fn workers(&mut self, runtimes: &[(RuntimeOwner, Metrics)]) {
        // The same names in the same order for every worker.
        for (index, (counter, help, _)) in WorkerMetrics::default().entries().into_iter().enumerate() {
            let time = counter.strip_suffix("_ns");
            let name =
                time.map_or_else(|| format!("{counter}_total"), |time| format!("{time}_seconds_total"));
            self.rows(&format!("punctual_worker_{name}"), "counter", help, runtimes, |metrics| {
                let workers = metrics.workers.iter().enumerate();
                let value = |worker: &WorkerMetrics| {
                    let (_, _, value) = worker.entries()[index];
                    if time.is_some() { seconds(Nanos(value)) } else { value.to_string() }
                };
                workers.map(|(at, worker)| (format!(",worker=\"{at}\""), value(worker))).collect()
            });
        }
    }

    fn classes(&mut self, runtimes: &[(RuntimeOwner, Metrics)]) {
        type Of = fn(&crate::runtime::ClassMetrics) -> String;
        let rows: [(&str, &str, &str, Of); 9] = [
            ("waiting", "gauge", "Tasks that wait for a worker.", |class| class.waiting.to_string()),
            ("oldest_seconds", "gauge", "Age of the oldest request in line; 0 if none waits.", |class| {
                seconds(class.oldest.unwrap_or_default())
            }),
            (
                "longest_wait_seconds",
                "gauge",
                "Longest time that a task has been in line; 0 if none waits.",
                |class| seconds(class.longest_wait.unwrap_or_default()),
            ),
            ("polls_total", "counter", "Polls.", |class| class.polls.to_string()),
            ("cpu_seconds_total", "counter", "Time of its polls by the clock.", |class| seconds(class.ran)),
            ("late_total", "counter", "Polls that began after their request's deadline.", |class| {
                class.late.to_string()
            }),
            ("shed_total", "counter", "Requests that were shed.", |class| class.shed.to_string()),
            ("by_floor_total", "counter", "Polls because of its floor.", |class| class.by_floor.to_string()),
            ("floor_ratio", "gauge", "Share of each worker's time to which it is entitled.", |class| {
                format!("{:.3}", f64::from(class.floor_permille) / 1e3)
            }),
        ];
        for (name, kind, help, value) in rows {
            self.rows(&format!("punctual_class_{name}"), kind, help, runtimes, |metrics| {
                let classes = metrics.classes.iter().enumerate();
                classes.map(|(index, class)| (format!(",class=\"{index}\""), value(class))).collect()
            });
        }
    }

    fn delays(&mut self, runtimes: &[(RuntimeOwner, Metrics)]) {
        let name = "punctual_class_queue_delay_seconds";
        if runtimes.is_empty() {
            return;
        }
        self.head(
            name,
            "histogram",
            "From a wake to the poll; the sum is that of the buckets' limits, an eighth more at most.",
        );
        for (owner, metrics) in runtimes {
            for (index, class) in metrics.classes.iter().enumerate() {
                let labels = format!("{},class=\"{index}\"", owner.labels());
                for limit in limits() {
                    let labels = format!("{labels},le=\"{}\"", seconds(limit));
                    self.line(&format!("{name}_bucket"), &labels, class.delays.count_below(limit));
                }
                let count = class.delays.count();
                self.line(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
                self.line(&format!("{name}_sum"), &labels, seconds(class.delays.sum()));
                self.line(&format!("{name}_count"), &labels, count);
            }
        }
    }

    fn groups(&mut self, groups: &[(GroupOwner, GroupAccount)]) {
        type Of = fn(&GroupAccount) -> u64;
        let rows: [(&str, &str, &str, Of); 14] = [
            ("in_view", "gauge", "1 if it is in a view and not stopped.", |account| {
                u64::from(matches!(account.state, GroupState::Member | GroupState::Changing))
            }),
            ("view", "gauge", "Number of its view; 0 if it is in none.", |account| account.view),
            ("epoch", "gauge", "The epoch in which its view is changed; 0 if it is not.", |account| {
                account.epoch
            }),
            ("members", "gauge", "Members of its view.", |account| account.members as u64),
            ("ordered", "gauge", "Frames with a place in the order of its view.", |account| account.ordered),
            ("uniform", "gauge", "Those of them that a majority holds.", |account| account.uniform),
            ("taken", "gauge", "Those of them that its user has taken.", |account| account.taken),
            ("lag", "gauge", "Those of them that its user has not taken.", |account| account.lag),
            ("broadcast_total", "counter", "Messages of its user's.", |account| account.broadcast),
            ("delivered_total", "counter", "Messages that its user was given.", |account| account.delivered),
            ("repaired_total", "counter", "Frames that it missed and got as repairs.", |account| {
                account.repaired
            }),
            (
                "repairs_sent_total",
                "counter",
                "Messages by which it repaired what others missed.",
                |account| account.repairs_sent,
            ),
            ("questions_total", "counter", "Times that it asked for what it missed.", |account| {
                account.questions
            }),
            ("expelled_total", "counter", "Times that the others went on without it.", |account| {
                account.expelled
            }),
        ];
        for (name, kind, help, value) in rows {
            self.rows(&format!("punctual_group_{name}"), kind, help, groups, |account| {
                vec![(String::new(), value(account).to_string())]
            });
        }
        let (name, help) = ("punctual_group_age_seconds", "How long ago it said all this.");
        self.rows(name, "gauge", help, groups, |account| vec![(String::new(), seconds(account.age))]);
    }

    /// Counters that each member of a group keeps about each member.
    fn members(&mut self, groups: &[(GroupOwner, GroupAccount)]) {
        type Of = fn(&GroupAccount, &MemberAccount) -> u64;
        let rows: [(&str, &str, Of); 3] = [
            ("lag", "Frames with a place in the order that its user has not taken.", |_, member| member.lag),
            ("missing", "Frames with a place in the order that it lacks.", |_, member| member.missing),
            ("holds_up", "1 if it holds the group up.", |account, member| {
                u64::from(account.held_up_by == Some(member.node))
            }),
        ];
        for (name, help, value) in rows {
            self.rows(&format!("punctual_group_member_{name}"), "gauge", help, groups, |account| {
                let each = account.each.iter();
                // Names that the members' pages cut may be alike; their nodes are not.
                let label = |member: &MemberAccount| {
                    format!(",member=\"{}\",member_node=\"{}\"", escaped(&member.name), member.node)
                };
                each.map(|member| (label(member), value(account, member).to_string())).collect()
            });
        }
    }

    /// A metric with the values that each owner has of it, by the labels that tell them apart.
    fn rows<O: Labels, C>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        all: &[(O, C)],
        values: impl Fn(&C) -> Vec<(String, String)>,
    ) {
        if all.is_empty() {
            return;
        }
        self.head(name, kind, help);
        for (owner, counters) in all {
            let labels = owner.labels();
            for (more, value) in values(counters) {
                self.line(name, &format!("{labels}{more}"), value);
            }
        }
    }
}

fn seconds(time: Nanos) -> String {
    format!("{}.{:09}", time.0 / 1_000_000_000, time.0 % 1_000_000_000)
}

/// Owner of the counters, as labels.
trait Labels {
    fn labels(&self) -> String;
}

impl Labels for PageOwner {
    fn labels(&self) -> String {
        let pid = self.process.pid_here().map_or_else(String::new, |pid| pid.to_string());
        let (bus, name, life) = (escaped(&self.bus), escaped(&self.name), self.life);
        format!("bus=\"{bus}\",node=\"{name}\",pid=\"{pid}\",life=\"{life:016x}\"")
    }
}

impl Labels for RuntimeOwner {
    fn labels(&self) -> String {
        let pid = self.process.pid_here().map_or_else(String::new, |pid| pid.to_string());
        format!("runtime=\"{}\",pid=\"{pid}\",started=\"{}\"", escaped(&self.name), self.started.0)
    }
}

impl Labels for GroupOwner {
    fn labels(&self) -> String {
        let (group, membership) = (escaped(&self.group), self.membership);
        format!("group=\"{group}\",{},membership=\"{membership:016x}\"", self.node.labels())
    }
}

/// As a label's value is written; control characters are not in names.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::clock::Ticks;
    use punctual_machine::process::ProcessIdentity;
    use punctual_proto::NodeId;

    /// Goal: every line is one that Prometheus reads, for any name of a node, and each metric name has one head.
    #[test]
    fn every_line_is_well_formed() {
        let process = ProcessIdentity::of_self();
        let owner = PageOwner {
            node: NodeId::named("a"),
            name: "a\"b\\c".to_owned(),
            bus: "shared:x".to_owned(),
            process,
            life: 1,
        };
        let ledger = Ledger { sent: 3, waiting: 1, ..Ledger::default() };
        let runtime = crate::runtime::Runtime::start(&crate::runtime::RuntimeOptions::default()).unwrap();
        let done = runtime.spawn(crate::runtime::TaskOptions::of_class(1), async {}).unwrap();
        runtime.block_on(done).unwrap();
        let owner_of_runtime = RuntimeOwner { name: "r".to_owned(), process, started: Ticks(1) };
        let metrics = runtime.handle().metrics();
        let node = PageOwner { name: "b\"".to_owned(), ..owner.clone() };
        let member = |name: &str, lag| MemberAccount {
            node: NodeId::named(name),
            name: name.to_owned(),
            lag,
            missing: 0,
        };
        let account = GroupAccount {
            held_up_by: Some(NodeId::named("y\"")),
            each: vec![member("x", 3), member("y\"", 4)],
            repaired: 5,
            ..GroupAccount::default()
        };
        let groups = [(GroupOwner { group: "g\\".to_owned(), membership: 1, node }, account)];
        // Of one name on one bus, as two nodes on two interfaces of a group are.
        let nodes = [(owner.clone(), ledger), (PageOwner { life: 2, ..owner }, ledger)];
        let text = prometheus(&nodes, &[(owner_of_runtime, metrics)], &groups);
        let mut heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        heads.sort_unstable();
        assert!(heads.windows(2).all(|pair| pair[0] != pair[1]), "a head stands there twice: {text}");
        let mut series: Vec<&str> = text.lines().filter_map(|line| Some(line.rsplit_once("} ")?.0)).collect();
        series.sort_unstable();
        assert!(series.windows(2).all(|pair| pair[0] != pair[1]), "a series stands there twice: {text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once("} ").unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = name.split('{').next().unwrap();
            let family =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(
                text.contains(&format!("# TYPE {name} ")) || text.contains(&format!("# TYPE {family} ")),
                "{line}"
            );
        }
        assert!(text.contains("node=\"a\\\"b\\\\c\""), "{text}");
        assert!(
            text.contains("# TYPE punctual_node_waiting gauge") && text.contains("punctual_node_sent_total{")
        );
        let labels = "{group=\"g\\\\\",bus=\"shared:x\",node=\"b\\\"\",pid=\"";
        let has = |name: &str, label: &str, end: &str| {
            let begin = format!("punctual_group_{name}{labels}");
            text.lines().any(|line| line.starts_with(&begin) && line.contains(label) && line.ends_with(end))
        };
        assert!(
            has("repaired_total", ",", "\"} 5") && has("member_lag", ",member=\"x\",", "\"} 3"),
            "{text}"
        );
        assert!(has("member_holds_up", ",member=\"y\\\"\",", "} 1") && has("in_view", ",", "} 0"), "{text}");
        assert_eq!(prometheus(&[], &[], &[]), "");
    }

    /// Goal: no two values of one metric have the same labels. This holds where a node is a member of two groups whose names begin
    /// alike, and two members' names do.
    #[test]
    fn groups_and_members_whose_names_begin_alike_are_told_apart() {
        let process = ProcessIdentity::of_self();
        let (bus, name) = ("loopback:x".to_owned(), "here".to_owned());
        let node = PageOwner { node: NodeId::named("here"), name, bus, process, life: 1 };
        let owner = |membership| GroupOwner { group: "g".repeat(32), membership, node: node.clone() };
        let member = |end: &str| MemberAccount {
            node: NodeId::named(&format!("{}{end}", "m".repeat(32))),
            name: "m".repeat(32),
            lag: 0,
            missing: 0,
        };
        let account = GroupAccount { each: vec![member("1"), member("2")], ..GroupAccount::default() };
        assert_series_differ(&prometheus(&[], &[], &[(owner(1), account.clone()), (owner(2), account)]));
    }

    fn assert_series_differ(text: &str) {
        let of = |line: &str| line.rsplit_once(' ').map(|(labelled, _)| labelled.to_owned());
        let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).filter_map(of).collect();
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count, "{text}");
    }

    /// Goal: no two values of one metric have the same labels, where a process has two runtimes of one name.
    #[test]
    fn runtimes_of_one_name_are_told_apart() {
        let owner = |started| RuntimeOwner {
            name: "r".to_owned(),
            process: ProcessIdentity::of_self(),
            started: Ticks(started),
        };
        let metrics = Metrics {
            workers: vec![crate::runtime::WorkerMetrics::default()],
            classes: vec![crate::runtime::ClassMetrics::default()],
            ..Metrics::default()
        };
        assert_series_differ(&prometheus(&[], &[(owner(1), metrics.clone()), (owner(2), metrics)], &[]));
    }
}
