//! Mishaps of a plan, made by the thread that they are of.
use super::*;

const MS: u64 = 1_000_000;

/// Goal: each is made once, of its own side, until its end; what is over when its turn comes is left out.
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
    assert!(mishaps.ahead.is_empty(), "what would last too long is not made");
}

/// Goal: every injection inside of a thread lasts until its end, and comes back.
#[test]
fn injections_last_until_their_end() {
    let mut scratch = Scratch::default();
    for (cause, injection) in Injection::all() {
        if let How::Inside(make) = injection.how {
            let until_ns = monotonic_ns() + 3 * MS;
            make(&mut scratch, until_ns);
            assert!(monotonic_ns() >= until_ns, "{} {}", cause.name, injection.name);
        }
    }
    assert!(Injection::named("no such").is_none());
}
