//! `punctual run broadcast --app kv`: the options of a store.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::broadcast::kv::option::{KvSettings, Reads};
use crate::broadcast::kv::trial::CLIENTS_MAX;
use crate::error::Failure;

/// Application of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum App {
    /// A key-value store of which every member has a copy
    Kv,
}

/// Options of the store.
#[derive(Debug, Args)]
pub(super) struct KvArguments {
    /// Application of the group, in place of messages that mean nothing: a store, under more and more clients
    #[arg(long, value_enum, value_name = "APP")]
    pub(super) app: Option<App>,
    /// Ways of answering gets, in turn, with --app kv [default: linearizable,local]
    #[arg(long, value_enum, value_name = "READS", value_delimiter = ',')]
    reads: Vec<Reads>,
    /// Of a hundred operations so many are puts, with --app kv [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(5..=100))]
    puts: Option<u32>,
    /// Keys, each as likely as the others, with --app kv [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    keys: Option<u32>,
    /// Clients of the whole group, with --app kv [default: 1, 2, 4, … until more of them do no more; with --kills or --stops 4 for
    /// each member]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX as i64))]
    clients: Option<u32>,
}

/// Of each number of clients.
const STEP: Duration = Duration::from_millis(500);
/// The possible values: below, too little is seen; above, histories become too long.
const STEP_MIN: Duration = Duration::from_millis(100);
const STEP_MAX: Duration = Duration::from_secs(60);

const PUTS_PERCENT: u32 = 50;
const KEYS: u32 = 512;

impl KvArguments {
    /// Settings of the store, if there is one, after a check that they are possible: each number of clients for so long, with so many
    /// members at most, which are killed or stopped or not.
    pub(super) fn settings(
        &self,
        step: Option<Duration>,
        members: usize,
        is_calm: bool,
    ) -> Result<Option<KvSettings>, Failure> {
        let refused = |text: String| Err(Failure::Usage(text));
        if self.app.is_none() {
            let given = [
                ("--reads", !self.reads.is_empty()),
                ("--puts", self.puts.is_some()),
                ("--keys", self.keys.is_some()),
                ("--clients", self.clients.is_some()),
            ];
            let given = given.iter().find(|(_, is_given)| *is_given);
            return given.map_or(Ok(None), |(name, _)| refused(format!("{name}: only with --app kv")));
        }
        let clients = self.clients.map(|clients| clients as usize);
        if !is_calm && let Some(few) = clients.filter(|&clients| clients < members) {
            let text =
                format!("--clients {few}: with --kills or --stops each of {members} members needs one");
            return refused(text);
        }
        if !is_calm && step.is_some() {
            return refused(
                "--duration: with --kills or --stops the load lasts until the last member is back".to_owned(),
            );
        }
        let step = step.unwrap_or(STEP);
        if !(STEP_MIN..=STEP_MAX).contains(&step) {
            return refused(format!("--duration {step:?}: from {STEP_MIN:?} to {STEP_MAX:?} with --app kv"));
        }
        let all = vec![Reads::Linearizable, Reads::Local];
        Ok(Some(KvSettings {
            reads: if self.reads.is_empty() { all } else { self.reads.clone() },
            puts_percent: self.puts.unwrap_or(PUTS_PERCENT),
            keys: self.keys.unwrap_or(KEYS).into(),
            clients,
            step,
        }))
    }
}
