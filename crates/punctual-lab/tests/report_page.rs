//! The page stands alone, holds everything, and trusts nobody's text.

mod plausible;

use std::fs;

use punctual_lab::doubt::Doubt;
use punctual_lab::experiment::{page as render, text};
use punctual_lab::report::escape;
use punctual_lab::report::text::Screen;
use punctual_lab::sample::{CellId, Outcome, Samples};
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::summary::Skipped;

/// With `PUNCTUAL_PAGE=file.html` the page is kept, with `PUNCTUAL_RUN=directory` the run, to be looked at.
#[test]
fn a_page_of_a_large_survey_is_small() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = std::env::var_os("PUNCTUAL_RUN").map_or(directory.path().join("run"), Into::into);
    let run = plausible::run(&out, &[0, 100, 300, 1000, 3000, 10_000], 5, 2500);
    assert_eq!(run.cells().len(), 150);
    let page = render(&run).expect("readable");
    let summary = run.summary.as_ref().expect("finished");
    if let Some(file) = std::env::var_os("PUNCTUAL_PAGE") {
        fs::write(file, &page).expect("room");
        println!("{}", text(summary, Screen::default()));
    }
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    for heading in [
        "Results",
        "Where the time lies",
        "How late the late ones are",
        "From the first message on",
        "What idleness costs",
        "Where the time goes",
        "Stalls",
        "Doubts",
        "Not measured",
        "The host",
        "The clock",
    ] {
        assert!(page.contains(&format!("<h2>{heading}")), "{heading} is missing");
    }
    stands_alone(&page);
}

fn stands_alone(page: &str) {
    for outside in [
        "http:",
        "https:",
        "//",
        "<script",
        "<link",
        "<img",
        "<iframe",
        "@import",
        "javascript:",
        "NaN",
        "inf ",
    ] {
        assert!(!page.contains(outside), "the page holds {outside:?}");
    }
    for (opened, closed) in [
        ("<section", "</section>"),
        ("<svg", "</svg>"),
        ("<table", "</table>"),
        ("<div", "</div>"),
        ("<figure>", ""),
    ] {
        if !closed.is_empty() {
            assert_eq!(page.matches(opened).count(), page.matches(closed).count(), "{opened}");
        }
    }
}

#[test]
fn text_from_outside_is_harmless() {
    let hostile = "<script>alert('x')</script>\"&";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut header = Header::new(hostile);
    hostile.clone_into(&mut header.host.cpu);
    hostile.clone_into(&mut header.host.kernel);
    header.host.more.insert(hostile.to_owned(), hostile.into());
    let mut store = Store::create(Some(directory.path()), &header).expect("an empty directory");
    let mut samples = Samples::default();
    for index in 0..2000 {
        samples.push(index, index, index, 500 + index % 7, Outcome::Answered);
    }
    samples.stages.push(punctual_lab::sample::StageColumn { name: hostile.to_owned(), ns: vec![100; 2000] });
    for gap_us in [0, 5] {
        let cell = CellId { gap_us, ..CellId::new(hostile, hostile) };
        store.append(&cell, 0, &samples).expect("room");
    }
    let mut summary = store.summary().expect("readable");
    summary.doubt(Doubt { what: hostile.to_owned(), do_: hostile.to_owned() });
    summary.skipped.push(Skipped { what: hostile.to_owned(), reason: hostile.to_owned() });
    store.finish(&summary).expect("room");
    let page = render(&Run::open(directory.path()).expect("a run")).expect("readable");
    assert!(page.contains(&escape(hostile)));
    assert!(!page.contains("<script") && !page.contains("alert('"), "unescaped text");
}

#[test]
fn an_empty_run_and_a_lost_one_have_pages() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store =
        Store::create(Some(directory.path()), &Header::new("response")).expect("an empty directory");
    let open = || render(&Run::open(directory.path()).expect("a run")).expect("readable");
    assert!(open().contains("cut short after 0 trials"));
    let mut samples = Samples::default();
    for index in 0..50 {
        samples.push(index, index, index, 1000, Outcome::Lost);
    }
    store.append(&CellId::new("datagram", "epoll"), 0, &samples).expect("room");
    store.append(&CellId::new("datagram", "spin"), 0, &Samples::default()).expect("room");
    let page = open();
    assert!(page.contains("50 messages were lost") && page.contains("∞"), "{page}");
    stands_alone(&page);
}
