//! Members of groups in `punctual stat`: the view of each, its progress, and the member that holds it up.

use punctual::broadcast::{GroupAccount, GroupOwner, GroupState, MemberAccount};
use serde_json::{Value, json};

use crate::report::section::{Cell, Column, Item, Section, Table, Tone, numbers};
use crate::units::{count, dash};

/// The members, and of each those that are behind; and the members that hold groups up.
pub(super) fn sections(groups: &[(GroupOwner, GroupAccount)]) -> Vec<Section> {
    let mut columns = vec![Column::name("group"), Column::name("node"), Column::number("pid")];
    columns.push(Column::name("state"));
    columns.extend(numbers(["view", "of", "lag"]));
    columns.push(Column::name("held up by"));
    columns.extend(numbers(["repaired", "repairs", "asked", "expelled", "age, ms"]));
    let mut members = Table::new(columns).keyed(2);
    let mut columns = vec![Column::name("group"), Column::name("as seen by"), Column::name("member")];
    columns.extend(numbers(["lag", "missing"]));
    let mut behind = Table::new(columns).keyed(3);
    let mut wrong: Vec<String> = Vec::new();
    for (owner, account) in groups {
        let group = group_name(owner, groups);
        members.row(cells((owner, &group), account));
        let is_behind = |member: &&MemberAccount| member.lag > 0 || member.missing > 0;
        for member in account.each.iter().filter(is_behind) {
            let names = [&group, &owner.node.name, &member.name].map(|name| Cell::from(name.as_str()));
            let numbers = [member.lag, member.missing].map(|number| Cell::from(count(number)));
            behind.row(names.into_iter().chain(numbers));
        }
        wrong.extend(verdict((owner, &group), account));
    }
    let mut sections = vec![Section::new("Groups: members of this user on this host").table(members)];
    if !behind.rows.is_empty() {
        sections.push(Section::new("Frames by which their members are behind").table(behind));
    }
    if !wrong.is_empty() {
        sections.push(Section::new("Who holds groups up").items(wrong.into_iter().map(Item::new).collect()));
    }
    sections
}

/// The group's name, as far as it is kept. Where another membership looks the same, the first digits of this one stand behind the name.
fn group_name(owner: &GroupOwner, groups: &[(GroupOwner, GroupAccount)]) -> String {
    let is_alike = |other: &GroupOwner| other.group == owner.group && other.node.name == owner.node.name;
    let alike = groups.iter().filter(|(other, _)| is_alike(other)).count();
    let membership = membership(owner);
    if alike > 1 { format!("{} {}", owner.group, &membership[..8]) } else { owner.group.clone() }
}

fn membership(owner: &GroupOwner) -> String {
    format!("{:016x}", owner.membership)
}

fn cells((owner, group): (&GroupOwner, &str), account: &GroupAccount) -> Vec<Cell> {
    let pid = owner.node.process.pid_here().map_or_else(dash, |pid| pid.to_string());
    let tone = if account.state == GroupState::Stopped { Tone::Bad } else { Tone::default() };
    let mut cells: Vec<Cell> = vec![group.into(), owner.node.name.as_str().into(), pid.into()];
    cells.push(Cell::toned(account.state.to_string(), tone));
    cells.extend([account.view, account.members as u64, account.lag].map(|number| Cell::from(count(number))));
    let held_up_by = account.held_up_by.map_or_else(dash, |node| account.name(node));
    cells.push(Cell::toned(held_up_by, if account.held_up_by.is_some() { Tone::Bad } else { Tone::Faint }));
    let of_repairs = [account.repaired, account.repairs_sent, account.questions];
    let numbers = of_repairs.into_iter().chain([account.expelled, account.age.0 / 1_000_000]);
    cells.extend(numbers.map(|number| Cell::from(count(number))));
    cells
}

/// The node that holds the group up, as this member sees it.
fn verdict((owner, group): (&GroupOwner, &str), account: &GroupAccount) -> Option<String> {
    let node = account.held_up_by?;
    let name = account.name(node);
    let by = if node == owner.node.node {
        "by its own account".to_owned()
    } else {
        format!("as {} sees it", owner.node.name)
    };
    let is_behind = |member: &&MemberAccount| member.lag > 0 || member.missing > 0;
    let behind = account.slowest().filter(is_behind).map_or_else(String::new, |member| {
        let missing =
            if member.missing > 0 { format!(", {} missing", count(member.missing)) } else { String::new() };
        format!(": {} frames not taken{missing}", count(member.lag))
    });
    Some(format!("{group}: {name} holds the group up, {by}{behind}"))
}

/// A member, as of its last word. Positions are those of its view.
pub(super) fn object(owner: &GroupOwner, account: &GroupAccount) -> Value {
    let each: Vec<Value> = account
        .each
        .iter()
        .map(|member| {
            json!({
                "node": member.name,
                "id": member.node.to_string(),
                "lag": member.lag,
                "missing": member.missing,
            })
        })
        .collect();
    json!({
        "group": owner.group,
        "membership": membership(owner),
        "bus": owner.node.bus,
        "node": owner.node.name,
        "pid": owner.node.process.pid_here(),
        "age_ns": account.age.0,
        "state": account.state.to_string(),
        "view": account.view,
        "epoch": account.epoch,
        "sequencer": account.sequencer.map(|node| account.name(node)),
        "frame_size": account.frame_size,
        "ordered": account.ordered,
        "uniform": account.uniform,
        "taken": account.taken,
        "lag": account.lag,
        "broadcast": account.broadcast,
        "delivered": account.delivered,
        "repaired": account.repaired,
        "repairs_sent": account.repairs_sent,
        "questions": account.questions,
        "expelled": account.expelled,
        "held_up_by": account.held_up_by.map(|node| account.name(node)),
        "members": each,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Look, Screen, page};
    use super::*;
    use punctual::ledger::PageOwner;
    use punctual::{Nanos, NodeId};
    use punctual_machine::process::ProcessIdentity;
    use std::time::Duration;

    fn member(name: &str, lag: u64) -> MemberAccount {
        MemberAccount { node: NodeId::named(name), name: name.to_owned(), lag, missing: 0 }
    }

    fn look(held_up_by: Option<NodeId>) -> Look {
        let node = PageOwner {
            node: NodeId::named("anne"),
            name: "anne".to_owned(),
            bus: "shared:bank".to_owned(),
            // Its digits are in no figure that is looked for.
            process: ProcessIdentity { pid: 1, namespace: 0 },
            life: 0,
        };
        let account = GroupAccount {
            age: Nanos(7_000_000),
            state: GroupState::Member,
            view: 23,
            members: 3,
            lag: 2_345,
            repaired: 4_567,
            held_up_by,
            each: vec![member("anne", 0), member("bob", 0), member("carl", 5_678)],
            ..GroupAccount::default()
        };
        Look {
            groups: vec![(GroupOwner { group: "accounts".to_owned(), membership: 1, node }, account)],
            ..Look::default()
        }
    }

    /// Goal: memberships of one node in two groups whose names are the same when cut have different objects, and different rows and
    /// words. A name that occurs once stands alone.
    #[test]
    fn two_groups_of_one_cut_name_are_told_apart() {
        let mut look = look(None);
        let (mut owner, account) = look.groups[0].clone();
        owner.membership = u64::MAX;
        look.groups.push((owner, account));
        let object = super::super::object(&look, &Look::default(), Duration::from_secs(1));
        let memberships = [0, 1].map(|place| &object["groups"][place]["membership"]);
        assert_eq!(memberships, [&json!("0000000000000001"), &json!("ffffffffffffffff")]);
        let shown = |look: &Look| page(look, &Look::default(), Duration::from_secs(1), Screen::default());
        look.groups[1].1.held_up_by = Some(NodeId::named("carl"));
        for group in &mut look.groups {
            group.0.group = "accounts-of-the-bank-in-the-city".to_owned();
        }
        let both = shown(&look);
        let words: Vec<&str> = both.split_whitespace().collect();
        let of_one = "accounts-of-the-bank-in-the-city ffffffff: carl holds the group up";
        assert!(words.join(" ").contains(of_one), "{both}");
        let group = "accounts-of-the-bank-in-the-city ";
        let rows: Vec<&str> = both.lines().filter_map(|line| line.strip_prefix(group)).collect();
        let of = |membership: &str| rows.iter().filter(|row| row.starts_with(membership)).count();
        assert!(of("00000000") >= 2 && [of("00000000"), of("ffffffff")] == [rows.len() / 2; 2], "{both}");
        look.groups[0].0.node.name = "bob".to_owned();
        let apart = shown(&look);
        assert!(!apart.contains("00000000") && !apart.contains("ffffffff"), "{apart}");
    }

    /// Goal: a member's row has its view, lag and repairs. Members that are behind stand below, and the member that holds the group up
    /// in words.
    #[test]
    fn a_member_says_who_holds_its_group_up() {
        let shown = |look: &Look| page(look, &Look::default(), Duration::from_secs(1), Screen::default());
        let free = shown(&look(None));
        for figure in ["accounts", "23", "2,345", "4,567", "5,678"] {
            assert!(free.contains(figure), "{figure}: {free}");
        }
        assert!(!free.contains("holds the group up") && !free.contains("bob"), "{free}");
        let look = look(Some(NodeId::named("carl")));
        let held = shown(&look);
        let words = "accounts: carl holds the group up, as anne sees it: 5,678 frames not taken";
        // Lines are broken where they do not fit.
        let all: Vec<&str> = held.split_whitespace().collect();
        assert!(all.join(" ").contains(words), "{held}");
        assert!(held.lines().all(|line| line.chars().count() <= 80), "{held}");
        let object = super::super::object(&look, &Look::default(), Duration::from_secs(1));
        let group = &object["groups"][0];
        assert_eq!((&group["held_up_by"], &group["state"]), (&json!("carl"), &json!("member")));
        assert_eq!((&group["members"][2]["lag"], &group["view"]), (&json!(5_678), &json!(23)));
    }
}
