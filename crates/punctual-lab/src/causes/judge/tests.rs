//! Stalls made by hand, and which injection each belongs to.
use super::*;
use crate::causes::InjectedExperiment;
use crate::causes::matrix::Matrix;
use crate::explain::finding::tests::{dump, evidence, samples};
use crate::explain::naming::NamedCause;
use crate::explain::stage::Side;
use crate::sample::CellId;
use crate::stall::Stall;
use crate::store::{Header, Run, Store};
use punctual_machine::window::{Evidence, Window};

const MS: u64 = 1_000_000;

fn row(name: &str, side: usize) -> Row {
    let found = Row::all(&[InjectedExperiment::Response])
        .into_iter()
        .find(|row| row.injection.name == name && row.side == Some(side));
    found.expect("it is injected")
}

fn explained(name: &str, role: &str, excess_ns: u64) -> Explained {
    let named = NamedCause { name: Cause::named(name), ns: excess_ns, share: 1.0, ..NamedCause::default() };
    let stall = Stall { release_ns: 0, first_index: 0, messages: 1, longest_ns: excess_ns };
    Explained {
        side: Some(Side::Responder),
        role: Some(role.to_owned()),
        causes: vec![named],
        ..Explained::of_stall(stall, 0, excess_ns)
    }
}

/// Goal: of the stalls that an injection overlaps the one counts that it has most of, and it must be named with its side; user space
/// is not blamed for what it cannot tell.
#[test]
fn an_injection_has_the_stall_that_it_made() {
    let [seen, traced] = ["run_queue", "urgent_neighbour"].map(|name| explained(name, "client", 10 * MS));
    let other = explained("busy", "client", 40 * MS);
    let stalls = [
        Stalled { span: (100 * MS, 110 * MS), tiers: [&seen, &traced] },
        // The injection has an eighth of this one.
        Stalled { span: (105 * MS, 145 * MS), tiers: [&other, &other] },
    ];
    let made =
        |side| MadeInjection { row: row("real-time-hog", side), with: None, span: (100 * MS, 110 * MS) };
    let is_right = |side| {
        let judged = call(&made(side), &stalls);
        judged.called.map(|called| called.map(|called| called.is_right))
    };
    assert_eq!(is_right(0), Some([true, true]));
    assert_eq!(is_right(1), Some([false, false]), "the other side");
    let nothing = MadeInjection { span: (500 * MS, 510 * MS), ..made(0) };
    assert!(call(&nothing, &stalls).called.is_none());
    let mut matrix = Matrix::new(7, &[row("real-time-hog", 0)]);
    let injections = [made(0), nothing].map(|made| call(&made, &stalls)).into();
    matrix.add(&JudgedRun { injections, clean: vec![stalls[1].clean()], ..JudgedRun::default() });
    let counted = (matrix.rows[0].made, matrix.rows[0].no_stall, matrix.rows[0].right);
    assert_eq!(counted, (2, 1, [1, 1]));
    assert_eq!((matrix.right(Tier::Trace), matrix.clean.stalls, matrix.clean.refuted), ((1, 1), 1, 0));
    let json = serde_json::to_string(&matrix).expect("keys are strings");
    assert!(json.contains("\"urgent_neighbour\":1"), "{json}");
}

/// Goal: a table that was cut short says so, and has the causes that were not made.
#[test]
fn a_matrix_that_was_cut_short_says_so() {
    let rows = [row("real-time-hog", 0), row("hog", 1)];
    let mut matrix = Matrix::new(7, &rows);
    matrix.rows[0].made = 1;
    matrix.is_cut_short = true;
    let page = |matrix: &Matrix| {
        let screen = crate::report::text::Screen::default();
        crate::report::text::page(&matrix.sections(), screen)
    };
    let said = page(&matrix);
    for words in ["cut short after 1 injection.", "not made", &*rows[1].name()] {
        assert!(said.contains(words), "{words}: {said}");
    }
    matrix.is_cut_short = false;
    assert!(!page(&matrix).contains("cut short"));
}

/// Goal: a stall counts once, whichever of several places tells most of it by each tier. Method: one process has two threads that stand
/// still at one time; of one its own windows tell why, of the other, which is later by a microsecond, the trace does.
#[test]
fn a_stall_that_the_tiers_tell_differently_counts() {
    let place = tempfile::tempdir().expect("room");
    let out = place.path().join("run");
    let mut store = Store::import(Some(&out), &Header::new("response")).expect("room");
    let ready = Evidence { wall_us: 4_500, wait_us: 4_000, ..Evidence::default() };
    let windows = vec![Window { evidence: ready, span: (10 * MS, 14 * MS + 500_000) }];
    for (wake, held_ns) in [("by-windows", 4 * MS + 10_000), ("by-trace", 4 * MS + 11_000)] {
        let mut kept = TrialEvidence { began_ns: 100 * MS, ..evidence() };
        kept.threads[1].owner = Some("vehicle-1".to_owned());
        if wake == "by-trace" {
            kept.dumps = vec![dump()];
        } else {
            kept.threads[1].windows.clone_from(&windows);
        }
        let path = store.append(&CellId::new("socket", wake), 0, &samples(held_ns)).expect("room");
        store.append_evidence(&path, &kept).expect("room");
    }
    let made = MadeInjection { row: row("real-time-hog", 0), with: None, span: (1, 2) };
    let run = Run::open(&out).expect("a run");
    let judged = judge(&Played { run, made: vec![made] }).expect("readable");
    let causes: Vec<[&str; 2]> = judged.clean.iter().map(|one| one.causes.map(Cause::name)).collect();
    assert_eq!(causes, [["unexplained", "run_queue"]]);
}

/// Goal: of two at once both must be named, of their side, and the longer first.
#[test]
fn of_two_at_once_both_are_named() {
    let mut both = explained("busy", "client", 20 * MS);
    both.causes[0].share = 0.7;
    both.causes.push(NamedCause { name: Cause::named("slept"), share: 0.3, ..both.causes[0].clone() });
    let mut little = both.clone();
    little.causes[1].share = 0.05;
    let elsewhere = Explained { role: Some("responder".to_owned()), ..both.clone() };
    let called = |explained: &Explained, [longer, shorter]: [&str; 2]| {
        let stalls = [Stalled { span: (100 * MS, 120 * MS), tiers: [explained, explained] }];
        let made =
            MadeInjection { row: row(longer, 0), with: Some(row(shorter, 0)), span: (100 * MS, 120 * MS) };
        let pair = call_pair(&made, row(shorter, 0), &stalls);
        let mut matrix = Matrix::new(7, &[]);
        matrix.add(&JudgedRun { pairs: vec![pair], ..JudgedRun::default() });
        (matrix.pairs.both, matrix.pairs.longer_first, matrix.pairs.wrong.len())
    };
    assert_eq!(called(&both, ["compute", "sleep"]), (1, 1, 0));
    assert_eq!(called(&both, ["sleep", "compute"]), (1, 0, 1));
    assert_eq!(called(&both, ["compute", "lock"]), (0, 0, 1), "another was named");
    assert_eq!(called(&little, ["compute", "sleep"]), (0, 0, 1), "too little of it");
    assert_eq!(called(&elsewhere, ["compute", "sleep"]), (0, 0, 1), "the other side");
}
