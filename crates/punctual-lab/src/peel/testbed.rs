//! Both ends: the client here, in a thread that may leave for a network namespace, and the responder in a process.

use std::io::{BufRead, Write};
use std::time::Duration;

use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
use punctual_machine::news_signal::interruptions;
use serde::{Deserialize, Serialize};

use super::addresses::{Addresses, End, INTERFACES, LinkPlan};
use crate::link::{Medium, VALUE_SIZE};
use crate::load::client::{self, Trial, Warmup};
use crate::load::recording::Recording;
use crate::load::responder::respond_within;
use crate::sample::Load;
use crate::worker::{Worker, recv, send};

/// How long a client may be silent: a fresh process among a crowd takes its time until its first message.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// What the responder is told.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Prepare { addresses: Box<Addresses>, cpu: Option<usize> },
    Answer(LinkPlan),
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Started { thread: u32 },
    Ready,
    Done { signals: u64, answered: u64 },
    Failed(String),
}

/// The responder's process: answers trial after trial until its input ends.
///
/// # Errors
/// When nobody listens any more.
pub fn serve(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), String> {
    let unheard = |error: std::io::Error| error.to_string();
    let mut end: Option<End> = None;
    while let Ok(request) = recv::<Request>(input) {
        match request {
            Request::Prepare { addresses, cpu } => {
                let response = prepare(&addresses, cpu).unwrap_or_else(Response::Failed);
                end = Some(End { addresses: *addresses, side: 1 });
                send(output, &response).map_err(unheard)?;
            }
            Request::Answer(plan) => {
                let Some(end) = &end else { return Err("no station yet".to_owned()) };
                if end.addresses.medium == Medium::Packet {
                    // The interface was put here by now. Up twice is up.
                    let _seen_when_opened = bring_up(INTERFACES[1]);
                }
                let response = match end.open(plan) {
                    Ok(mut link) => {
                        send(output, &Response::Ready).map_err(unheard)?;
                        let before = interruptions();
                        let facts = respond_within(&mut *link, VALUE_SIZE, SILENCE_MAX);
                        Response::Done { signals: interruptions() - before, answered: facts.answered }
                    }
                    Err(text) => Response::Failed(text),
                };
                send(output, &response).map_err(unheard)?;
            }
        }
    }
    Ok(())
}

fn prepare(addresses: &Addresses, cpu: Option<usize>) -> Result<Response, String> {
    if let Some(cpu) = cpu {
        // Unpinned is slower, not wrong.
        let _unpinned = punctual_machine::cpu::pin_to(cpu);
    }
    if addresses.medium == Medium::Packet {
        unshare_network().map_err(|error| error.to_string())?;
    }
    punctual::Clock::get();
    Ok(Response::Started { thread: thread_id() })
}

/// The client's thread with the responder's process.
#[derive(Debug)]
pub(super) struct Testbed {
    pub(super) end: End,
    responder: Worker,
    number: u32,
}

/// A trial that was made.
#[derive(Debug)]
pub(super) struct MadeTrial {
    pub(super) recording: Recording,
    /// Interruptions of both processes.
    pub(super) signals: u64,
    /// Frames that either received.
    pub(super) frames: u64,
}

impl Testbed {
    /// Starts the responder; the calling thread leaves for a namespace of its own, where the medium needs one.
    ///
    /// # Errors
    /// In words for people: what is missing and what to do.
    pub(super) fn start(addresses: Addresses, cpus: [Option<usize>; 2]) -> Result<Self, String> {
        if let Some(cpu) = cpus[0] {
            punctual_machine::cpu::pin_to(cpu).map_err(|error| error.to_string())?;
        }
        if addresses.medium == Medium::Packet {
            unshare_network().map_err(|error| error.to_string())?;
        }
        let mut responder = Worker::start(&["peel-respond"])?;
        responder.send(&Request::Prepare { addresses: Box::new(addresses.clone()), cpu: cpus[1] })?;
        let thread = match responder.recv()? {
            Response::Started { thread } => thread,
            Response::Failed(text) => return Err(text),
            other => return Err(format!("the responder said {other:?} where its start was due")),
        };
        if addresses.medium == Medium::Packet {
            create_veth(INTERFACES[0], INTERFACES[1], thread)
                .and_then(|()| bring_up(INTERFACES[0]))
                .map_err(|error| error.to_string())?;
        }
        Ok(Self { end: End { addresses, side: 0 }, responder, number: 0 })
    }

    /// Lets the responder open its end, for a plan that is numbered here.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn begin(&mut self, plan: LinkPlan) -> Result<LinkPlan, String> {
        self.number += 1;
        let plan = LinkPlan { number: self.number, ..plan };
        self.responder.send(&Request::Answer(plan))?;
        match self.responder.recv()? {
            Response::Ready => Ok(plan),
            Response::Failed(text) => Err(text),
            other => Err(format!("the responder said {other:?} where it was to be ready")),
        }
    }

    /// Waits for the responder's end of a trial: its interruptions, and what it answered.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn ended(&mut self) -> Result<(u64, u64), String> {
        match self.responder.recv()? {
            Response::Done { signals, answered } => Ok((signals, answered)),
            other => Err(format!("the responder said {other:?} where the trial was over")),
        }
    }

    /// Makes one trial.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn make(
        &mut self,
        plan: LinkPlan,
        duration: Duration,
        count: usize,
    ) -> Result<MadeTrial, String> {
        let plan = self.begin(plan)?;
        let mut recording = Recording::new(count);
        let opened = self.end.open(plan);
        let before = interruptions();
        if let Ok(mut link) = opened {
            let trial = Trial {
                load: Load::Closed,
                gap: Duration::ZERO,
                size: VALUE_SIZE,
                duration,
                count_max: count,
                // The first messages of every trial are its warm-up by their index.
                warmup: Warmup::default(),
                neighbours: [None; 2],
            };
            client::run(&mut *link, &trial, &mut recording);
        } else {
            // The responder gives up by itself.
            self.ended()?;
            return Err(opened.err().unwrap_or_default());
        }
        let own = interruptions() - before;
        let (theirs, answered) = self.ended()?;
        Ok(MadeTrial { recording, signals: own + theirs, frames: 2 * answered })
    }
}
