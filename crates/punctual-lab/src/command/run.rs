//! `punctual run EXPERIMENT`: one subcommand per experiment, one line per subcommand here.

use clap::{Args, Subcommand};

use crate::error::Failure;
use crate::response::settings::ResponseArguments;
use crate::survey::SurveyOptions;
use crate::vehicles::option::VehiclesArguments;

/// Choice of the experiment.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// One of them; without, they are listed.
    #[command(subcommand)]
    pub experiment: Option<RunCommand>,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Broadcast to a group in one order or without, despite losses of receivers, beside bare multicast and the published table
    Broadcast(Box<super::BroadcastArguments>),
    /// Causes of lateness made on purpose, and what each is called (minutes: --in and --cause choose)
    Causes(super::CausesArguments),
    /// Vehicles that drive from cell to cell of a map, each in the keyed group of its cell
    Groups(super::GroupsArguments),
    /// Latency of a message to another host, each way by itself, with the bound of its error
    Oneway(super::OnewayArguments),
    /// The same ping at every layer, and what each adds; known mistakes switched on, to see them found
    Peel(super::PeelArguments),
    /// Latency of a host's answer to a UDP packet, its stages, and the late side
    Response(Box<ResponseArguments>),
    /// A TCP server whose stages are threads, or tasks in classes, beside the published tables
    Server(Box<super::ServerArguments>),
    /// The main job: the same as punctual survey
    Survey(SurveyOptions),
    /// Fifteen processes that publish to each other on one medium, beside the published tables
    Vehicles(Box<VehiclesArguments>),
    /// Every way to wake a sleeping reader, what each costs, and what is lost (a minute and a half)
    Wakeup(super::WakeupArguments),
}

/// Runs one experiment.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let Some(experiment) = &arguments.experiment else { return super::tasks() };
    match experiment {
        RunCommand::Broadcast(broadcast) => super::broadcast(broadcast),
        RunCommand::Causes(causes) => super::causes(causes),
        RunCommand::Groups(groups) => super::groups(groups),
        RunCommand::Oneway(oneway) => super::oneway(oneway),
        RunCommand::Peel(peel) => super::peel(peel),
        RunCommand::Response(response) => super::response(response),
        RunCommand::Server(server) => super::server(server),
        RunCommand::Survey(survey) => super::survey(survey),
        RunCommand::Vehicles(vehicles) => super::vehicles(vehicles),
        RunCommand::Wakeup(wakeup) => super::wakeup(wakeup),
    }
}
