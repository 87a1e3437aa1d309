//! Mishaps of a plan, made by the thread that they are of.
use super::*;

const MS: u64 = 1_000_000;

/// Goal: each is made once, of its own side, until its end; an injection that is over when its turn comes is left out.
#[test]
fn mishaps_are_made_once_and_until_their_end() {
    let now_ns = monotonic_ns();
    let mishap = |name: &str, side, from_ns: u64, lasts_ns: u64| Mishap {
        injection: name.to_owned(),
        side,
        at_ns: from_ns,
        until_ns: from_ns + lasts_ns,
    };
    let plan = [
        mishap("compute", 0, now_ns, 5 * MS),
        mishap("sleep", 1, now_ns, 5 * MS),
        mishap("sleep", 0, now_ns - 9 * MS, MS),
        mishap("hog", 0, now_ns, 5 * MS),
        mishap("compute", 0, now_ns, 3_600_000 * MS),
    ];
    let mut mishaps = Mishaps::of(&plan, 0);
    assert_eq!(mishaps.ahead.len(), 3, "others' are not there");
    mishaps.make();
    assert!(monotonic_ns() >= now_ns + 5 * MS);
    assert!(mishaps.ahead.is_empty(), "an injection that would last too long is not made");
}

/// Goal: every injection inside of a thread lasts until its end, and comes back.
#[test]
fn injections_last_until_their_end() {
    let mut scratch = Scratch::default();
    scratch.prepare_cold();
    for (cause, injection) in Injection::all() {
        if let How::Inside(make) = injection.how {
            let until_ns = monotonic_ns() + 3 * MS;
            make(&mut scratch, until_ns);
            let is_possible = injection.needs.are_met(&Tools::default()).is_ok();
            assert!(!is_possible || monotonic_ns() >= until_ns, "{} {}", cause.name, injection.name);
        }
    }
    assert!(Injection::named("no such").is_none());
}

/// Goal: a missing requirement is said in words before an injection is tried, and a group of both kinds is made and removed.
#[test]
fn a_missing_requirement_is_said() {
    let none = Tools::default();
    assert!(Needs::Quota.are_met(&none).is_err() && Needs::Freezer.are_met(&none).is_err());
    assert_eq!(Needs::Nothing.are_met(&none), Ok(()));
    assert_eq!(Needs::Urgency(Urgency::Other).are_met(&none), Ok(()));
    // No kernel has a thread so urgent.
    assert!(Needs::Urgency(Urgency::Fifo(100)).are_met(&none).is_err());
    let tools = Tools::new("injection-test", &[0, 1]);
    let group = &tools.group;
    for (needs, has) in [
        (Needs::Quota, group.has_quota()),
        (Needs::Freezer, group.has_freezer()),
        (Needs::MemoryLimit, group.has_memory()),
    ] {
        assert_eq!(needs.are_met(&tools), has);
        match has {
            Ok(()) => assert!(!group.members().is_empty()),
            Err(reason) => punctual_machine::skipped!("{needs:?}: {reason}"),
        }
    }
    let members = group.members();
    drop(tools);
    assert!(members.iter().all(|file| !file.exists()), "{members:?}");
}

/// Goal: of two at one instant the one that ends first is made first, and the other goes on to its end.
#[test]
fn two_at_one_instant_follow_each_other() {
    let now_ns = monotonic_ns();
    let mishap = |name: &str, lasts_ns| Mishap {
        injection: name.to_owned(),
        side: 0,
        at_ns: now_ns,
        until_ns: now_ns + lasts_ns,
    };
    let mut mishaps = Mishaps::of(&[mishap("sleep", 4 * MS), mishap("compute", 8 * MS)], 0);
    let ahead: Vec<&str> = mishaps.ahead.iter().map(|(mishap, _)| mishap.injection.as_str()).collect();
    assert_eq!(ahead, ["compute", "sleep"], "the last first");
    mishaps.make();
    assert!(monotonic_ns() >= now_ns + 8 * MS && mishaps.ahead.is_empty());
}

/// Goal: a machine that lets nobody trace says what helps, and one where this process may does not refuse.
#[test]
fn a_machine_that_lets_nobody_trace_says_so() {
    for (scope, has_right, words) in
        [(2, false, Some("CAP_SYS_PTRACE")), (2, true, None), (3, true, Some("next boot")), (1, false, None)]
    {
        let said = may_trace_at(scope, has_right).err();
        assert_eq!(said.is_some(), words.is_some(), "{scope}: {said:?}");
        assert!(words.is_none_or(|words| said.is_some_and(|said| said.contains(words))), "{scope}");
    }
}
