//! A group as others read it: members in processes of their own, seen by this one, which is none.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::broadcast::{Group, GroupAccount, GroupOptions, GroupOwner, GroupState, read_all};
use punctual::engine::faulty::Faults;
use punctual::node::NodeOptions;
use punctual::{Bus, ledger};

use crate::common::{Role, unique, watchdog};

const NAMES: [&str; 3] = ["anne", "bob", "carl"];

/// A member that broadcasts while all are there, until a file says stop. Nobody is ever suspected or too slow. `role` is its place
/// and the folder of that file.
pub(crate) fn play(role: &str, name: &str) {
    let (place, folder) = role.split_once(' ').unwrap();
    let place: usize = place.parse().unwrap();
    let faults = Faults::seeded(11 + place as u64).loss(30);
    let node = NodeOptions::new(NAMES[place]).faults(faults).open(&Bus::shared(name)).unwrap();
    let options = GroupOptions {
        suspect_after: Duration::from_secs(600),
        expel_slow_after: None,
        window: Some(16),
        founds: place == 0,
        ..GroupOptions::new(name, &NAMES)
    };
    let mut group = Group::join(&node, &options).unwrap();
    let mut next_at = Instant::now();
    loop {
        if Instant::now() >= next_at && group.view().members.len() == 3 {
            if !Path::new(folder).join("stop").exists() {
                // A message that is not taken is not counted.
                let _full = group.try_broadcast(&[place as u8; 100]);
            }
            next_at = Instant::now() + Duration::from_millis(1);
        }
        let _told = group.deliver(Duration::from_millis(1));
    }
}

/// Accounts that are seen of the group of that name.
fn seen(name: &str) -> Vec<(GroupOwner, GroupAccount)> {
    read_all().into_iter().filter(|(owner, _)| owner.group == name).collect()
}

/// Looks until all that is seen is as it should be.
fn await_all(name: &str, mut is_so: impl FnMut(&[(GroupOwner, GroupAccount)]) -> bool) {
    while !is_so(&seen(name)) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(name: &str, folder: &Path) -> Vec<Role> {
    assert!(seen(name).is_empty());
    let role = |place| Role::start(&format!("seen {place} {}", folder.display()), name);
    let roles: Vec<Role> = (0..3).map(role).collect();
    await_all(name, |all| all.len() == 3 && all.iter().all(|(_, account)| account.delivered > 100));
    roles
}

/// Goal: another process sees of each member its view, its members by name, and its repairs, which all have under losses. When
/// nothing is under way, each was given what all broadcast, and the ledgers of their nodes sum.
#[test]
fn others_see_how_members_fare() {
    let _alive = watchdog(120);
    let (name, folder) = (unique("seen"), tempfile::tempdir().unwrap());
    let roles = start(&name, folder.path());
    await_all(&name, |all| {
        all.iter().all(|(_, account)| account.repaired > 0 && account.questions > 0)
            && all.iter().any(|(_, account)| account.repairs_sent > 0)
    });
    let all = seen(&name);
    for ((owner, account), name) in all.iter().zip(NAMES) {
        assert_eq!((owner.node.name.as_str(), owner.node.bus.split(':').next()), (name, Some("shared")));
        assert_ne!(owner.node.process.pid_here(), Some(std::process::id()));
        assert_eq!((account.view, account.members, account.expelled), (all[0].1.view, 3, 0));
        let names: Vec<&str> = account.each.iter().map(|member| member.name.as_str()).collect();
        assert_eq!((names.as_slice(), account.sequencer), (&NAMES[..], Some(all[0].0.node.node)));
        assert_eq!((account.state, account.epoch), (GroupState::Member, 0));
        assert!(account.taken <= account.ordered && account.uniform > 0, "{account:?}");
    }
    let text = punctual::prometheus(&[], &[], &all);
    assert!(text.contains(&format!("punctual_group_repaired_total{{group=\"{name}\"")), "{text}");
    File::create(folder.path().join("stop")).unwrap();
    await_all(&name, |all| {
        let broadcast: u64 = all.iter().map(|(_, account)| account.broadcast).sum();
        all.iter().all(|(_, account)| account.delivered == broadcast && account.lag == 0)
    });
    // Heartbeats go on: a value that moves while it is read is read again.
    let bus = &all[0].0.node.bus;
    let sums =
        || ledger::read_all().iter().filter(|(page, sum)| page.bus == *bus && sum.is_balanced()).count();
    while sums() < 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    roles.into_iter().for_each(Role::kill);
    assert!(seen(&name).is_empty(), "their processes are no more");
}

/// Goal: a process that is stopped is who holds the group up, as the others see it, whether it orders the messages or not. Its own
/// page stays as it was, and is older and older, until it goes on; when it is killed, it is gone.
#[test]
fn a_stopped_member_holds_the_group_up() {
    let _alive = watchdog(120);
    let (name, folder) = (unique("held"), tempfile::tempdir().unwrap());
    let mut roles = start(&name, folder.path());
    for stopped in [1, 0] {
        roles[stopped].signal("-STOP");
        await_all(&name, |all| {
            let id = all[stopped].0.node.node;
            let is_held = |at: usize| {
                let account = &all[at].1;
                let is_old = account.age.0 > 200_000_000;
                if at == stopped { is_old } else { !is_old && account.held_up_by == Some(id) }
            };
            (0..3).all(is_held)
        });
        let delivered = |at: usize| seen(&name)[at].1.delivered;
        let before = delivered(2);
        roles[stopped].signal("-CONT");
        await_all(&name, |all| {
            let is_free =
                |account: &GroupAccount| account.held_up_by.is_none() && account.age.0 < 200_000_000;
            all[2].1.delivered > before + 100 && all.iter().all(|(_, account)| is_free(account))
        });
    }
    let pid = seen(&name)[1].0.node.process.pid;
    assert!(has_page(pid));
    roles.remove(1).kill();
    let left: Vec<String> = seen(&name).into_iter().map(|(owner, _)| owner.node.name).collect();
    assert_eq!(left, ["anne", "carl"], "its process is no more");
    // The next process that joins a group sweeps, and of many pages only some.
    while has_page(pid) {
        let alone = unique("alone");
        let node = NodeOptions::new("alone").open(&Bus::loopback(&alone)).unwrap();
        let group = Group::join(&node, &GroupOptions::new(&alone, &["alone"]).founding()).unwrap();
        drop(group);
    }
}

/// True if there is a page of a group's member in the process of that number, alive or not.
fn has_page(pid: u32) -> bool {
    let folder = format!("/dev/shm/punctual-counters.{}", punctual_machine::process::user());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut pages =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "group"));
    let its = u64::from(pid).to_le_bytes();
    pages.any(|path| std::fs::read(path).is_ok_and(|bytes| bytes.get(24..32) == Some(&its[..])))
}
