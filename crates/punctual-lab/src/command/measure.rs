//! Steps of every command that measures: find out early what fails, measure into a store, conclude, show.

use std::path::Path;

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual_lab_machine::host::HostFacts;
use punctual_machine::signal::{catch_all_interrupts, count_continuations, end_with_parent, interrupted};
use serde_json::Value;

use super::{print, try_json, write_json, write_page};
use crate::distinct::distinct;
use crate::error::Failure;
use crate::explain::recorder::LateRecorder;
use crate::report::parts;
use crate::report::text::{self, Screen};
use crate::run::crash;
use crate::run::{Common, Experiment, Requests, RunError, RunPlan, catch_interrupts_of_run, in_a_thread};
use crate::store::{Header, Store};
use crate::summary::{Skipped, Summary};
use crate::verify::advice::Advice;
use crate::{broadcast, facts, load, peel, response, server, vehicles};

/// Measures, stores, concludes, shows. A crash is told first, also of a run that measured nothing.
pub(super) fn make(experiment: &impl Experiment, common: &Common, bar: &ProgressBar) -> Result<(), Failure> {
    crash::watch_panics();
    let made = make_all(experiment, common, bar);
    match (crash::told(), made) {
        (None, made) => made,
        (Some(crash), Ok(())) => Err(Failure::Promise(crash)),
        (Some(crash), Err(failure)) => Err(Failure::Promise(format!("{crash}; {failure}"))),
    }
}

fn make_all(experiment: &impl Experiment, common: &Common, bar: &ProgressBar) -> Result<(), Failure> {
    let RunPlan { name, warmup, cpus, described } = experiment.plan();
    let mut header = header(name, common, warmup, &cpus, described);
    header.host.scheduler = experiment.schedulers().join(", ");
    let (made, store) = measure(common, &header, bar, |store, bar| experiment.run(store, bar))?;
    let mut summary = experiment.summarise(&made, &store)?;
    if !store.is_empty() {
        Advice::of(store.run()?).advise(&mut summary);
    }
    if experiment.is_traced() && !summary.results.is_empty() {
        summary.skipped.extend(not_traced());
    }
    let concluded = conclude(store, &summary, common);
    let verdict = match experiment.in_vain(&summary, &made) {
        Some(reason) => Err(Failure::Machine(reason)),
        None => experiment.promise(&summary, &made).map_err(Failure::Promise),
    };
    verdict_first(concluded, verdict)
}

/// A promise that broke may be why nothing was measured, so it is told first. Of other reasons the first one stands.
pub(super) fn verdict_first(
    concluded: Result<(), Failure>,
    verdict: Result<(), Failure>,
) -> Result<(), Failure> {
    match (concluded, verdict) {
        (Ok(()), verdict) => verdict,
        (Err(failure), Err(Failure::Promise(promise))) => {
            Err(Failure::Promise(format!("{promise}; {failure}")))
        }
        (Err(failure), _) => Err(failure),
    }
}

/// The kernel's trace, if it was asked for and this process cannot record it.
fn not_traced() -> Option<Skipped> {
    let reason = LateRecorder::start().err()?;
    Some(Skipped { what: "the kernel's trace (--trace)".to_owned(), reason })
}

/// The header of a run on this host.
pub(super) fn header(experiment: &str, common: &Common, warmup: u64, cpus: &[usize], plan: Value) -> Header {
    let (host, clock) = (facts::host(&HostFacts::read(), cpus), facts::clock());
    Header { seed: common.seed, warmup, host, clock, plan, ..Header::new(experiment) }
}

/// Measures into a new store, from a thread that may leave for another network namespace. If nothing was measured, no store is left.
pub(super) fn measure<T: Send>(
    common: &Common,
    header: &Header,
    bar: &ProgressBar,
    work: impl FnOnce(&mut Store, &ProgressBar) -> Result<T, RunError> + Send,
) -> Result<(T, Store), Failure> {
    catch_interrupts_of_run()?;
    try_json(common.json.as_deref())?;
    let mut store = Store::create(common.out.as_deref(), header)?;
    let made = in_a_thread("experiment", || work(&mut store, bar));
    bar.finish_and_clear();
    match made.map_err(Failure::from).and_then(|made| made.map_err(Failure::from)) {
        Ok(made) => Ok((made, store)),
        Err(failure) => {
            store.discard_if_empty();
            Err(with_place(failure, store.path()))
        }
    }
}

/// Where what was measured before is, if something was.
fn with_place(failure: Failure, path: &Path) -> Failure {
    match failure {
        Failure::Machine(reason) if path.exists() => {
            Failure::Machine(format!("{reason}; the measurements before it are in {}", path.display()))
        }
        other => other,
    }
}

/// Finishes the store, writes the page, and the summary where that is asked for; prints what came out, and where it is.
pub(super) fn conclude(store: Store, summary: &Summary, common: &Common) -> Result<(), Failure> {
    if summary.results.is_empty() && store.is_empty() {
        return nothing(&store, summary, common);
    }
    let run = store.finish_run(summary)?;
    let page = run.path.join("report.html");
    write_page(&page, &crate::experiment::page(&run)?)?;
    let to_stdout = write_json(common.json.as_deref(), &summary.to_json())?;
    if !(common.quiet || to_stdout) {
        let mut sections = crate::experiment::sections(summary);
        if common.all {
            sections.extend(parts::results(&summary.results));
        }
        print(&text::page(&sections, Screen::stdout()))?;
        print(&format!("page     {}\nsamples  {}\n", page.display(), run.path.join("samples").display()))?;
    }
    if !summary.results.is_empty() {
        return Ok(());
    }
    Err(nothing_measured(summary))
}

/// Of a run without a sample: shows what was left out, and leaves no folder.
fn nothing(store: &Store, summary: &Summary, common: &Common) -> Result<(), Failure> {
    store.discard_if_empty();
    let to_stdout = write_json(common.json.as_deref(), &summary.to_json())?;
    if !(common.quiet || to_stdout) {
        print(&text::page(&crate::experiment::sections(summary), Screen::stdout()))?;
    }
    Err(nothing_measured(summary))
}

/// Possibly nothing was printed (`--quiet`): the line stands for itself.
fn nothing_measured(summary: &Summary) -> Failure {
    let why = why_nothing(&summary.skipped, interrupted());
    Failure::Machine(format!("nothing could be measured here: {why}"))
}

/// The list of missing measurements stands before it: of several the reasons suffice, each once.
fn why_nothing(skipped: &[Skipped], interrupted: bool) -> String {
    let mut reasons = match skipped {
        [one] => vec![format!("{}: {}", one.what, one.reason)],
        several => distinct(several.iter().map(|skipped| skipped.reason.clone())),
    };
    if interrupted {
        reasons.insert(0, "it was interrupted".to_owned());
    } else if reasons.is_empty() {
        reasons.push("no answer came after the warm-up: raise --duration".to_owned());
    }
    reasons.join("; ")
}

/// Role of a process that the command starts itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Answers the client of a survey or a peel
    Respond,
    /// Answers packets
    Echo,
    /// Answers run oneway
    Node,
    /// Starts, and sends its first messages
    Start,
    /// Is woken
    Reader,
    /// Is an end of a soak
    Soak,
    /// Is a member of a group
    Member,
    /// Serves matrices
    Server,
    /// Publishes and subscribes
    Vehicle,
}

/// A process that the command started itself: does as it is told until its input ends, or its parent does.
pub fn worker(role: Role) -> Result<(), Failure> {
    end_with_parent();
    crash::watch_panics();
    // Killed, it would leave its bus's files behind.
    catch_all_interrupts().and_then(|()| count_continuations())?;
    let requests = Requests::of_parent();
    let served = match role {
        Role::Respond => load::testbed::serve(requests),
        Role::Echo => response::testbed::serve(requests),
        Role::Node => crate::oneway::serve(requests),
        Role::Start => peel::startup::serve(requests),
        Role::Reader => load::wake::serve(requests),
        Role::Soak => crate::soak::serve(requests),
        Role::Member => broadcast::member::serve(requests),
        Role::Server => server::host::serve(requests),
        Role::Vehicle => vehicles::process::serve(requests),
    };
    if crash::told().is_some() {
        // Also where only another thread panicked: the run that started this process learns of it. The words are said.
        std::process::exit(crash::PANICKED.into());
    }
    Ok(served?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a user who measured something before a failure is told where it is; a user who did not is told of no folder.
    #[test]
    fn a_failure_names_the_folder_of_earlier_results() {
        let folder = tempfile::tempdir().expect("room");
        let words = |path: &Path| match with_place(Failure::Machine("no room".to_owned()), path) {
            Failure::Machine(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(words(folder.path()).contains(&*folder.path().to_string_lossy()));
        assert_eq!(words(&folder.path().join("gone")), "no room");
    }

    /// Goal: a run that measured nothing leaves no folder, and says that nothing was measured.
    #[test]
    fn nothing_measured_leaves_no_folder() {
        let folder = tempfile::tempdir().expect("room");
        let out = folder.path().join("run");
        let header = Header::new("survey");
        let store = Store::import(Some(&out), &header).expect("room");
        let common = Common { quiet: true, ..Common::default() };
        let concluded = conclude(store, &Summary::new(&header), &common);
        assert!(matches!(&concluded, Err(Failure::Machine(words)) if words.contains("nothing could be")));
        assert!(!out.exists());
    }

    /// Goal: a broken promise is told first where nothing was measured by it, and other reasons stay as they are.
    #[test]
    fn a_broken_promise_goes_before_a_lack_of_figures() {
        let machine = |words: &str| Err(Failure::Machine(words.to_owned()));
        let died = || Err(Failure::Promise("a process died".to_owned()));
        for (concluded, verdict, told) in [
            (Ok(()), Ok(()), Ok(())),
            (Ok(()), died(), died()),
            (machine("no figures"), Ok(()), machine("no figures")),
            (machine("no figures"), machine("nobody answers"), machine("no figures")),
            (machine("no figures"), died(), Err(Failure::Promise("a process died; no figures".to_owned()))),
        ] {
            assert_eq!(format!("{:?}", verdict_first(concluded, verdict)), format!("{told:?}"));
        }
    }

    /// Goal: what was listed as not measured is not listed again: of several the reasons are said, each once.
    #[test]
    fn reasons_of_several_are_said_once() {
        let of = |what: &str, reason: &str| Skipped { what: what.to_owned(), reason: reason.to_owned() };
        let skipped = [of("a route", "no room"), of("another", "no room"), of("a third", "no root")];
        assert_eq!(why_nothing(&skipped, false), "no room; no root");
        assert_eq!(why_nothing(&skipped[..1], false), "a route: no room");
    }

    /// Goal: a user who measured nothing is told why, also where nothing was skipped.
    #[test]
    fn nothing_has_a_reason() {
        let skipped = [Skipped { what: "a route".to_owned(), reason: "no room".to_owned() }];
        assert_eq!(why_nothing(&[], true), "it was interrupted");
        assert!(why_nothing(&skipped, true).starts_with("it was interrupted; "));
        assert!(why_nothing(&skipped, false).contains("no room"));
        assert!(why_nothing(&[], false).contains("raise --duration"));
    }
}
