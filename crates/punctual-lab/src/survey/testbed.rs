//! One place with both its ends: a client thread here, and a responder in another thread, process or namespace.
//!
//! The two talk over a stream of JSON lines, which rests while a trial runs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::addresses::{Addresses, Ends, INTERFACES, LinkPlan, Side};
use super::plan::{Cell, Place};
use crate::load::client::{self, ClientFacts, Trial};
use crate::load::clocks::Clocks;
use crate::load::recording::Recording;
use crate::load::responder::{ResponderFacts, respond};
use crate::scheduling::Quotas;
use crate::worker::{Worker, recv, send};

/// What the responder is told when it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Setup {
    /// Where everything is.
    addresses: Addresses,
    /// What kind of place.
    place: Place,
    /// The CPU to run on.
    cpu: Option<usize>,
}

/// What the responder says.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// It is in its namespace; its process or thread has this id.
    Started { id: u32 },
    /// It listens for the trial's messages.
    Ready,
    /// The trial is over.
    Done { facts: ResponderFacts, rescued: u64 },
    /// It cannot: in words for people.
    Failed(String),
}

/// The responder: answers trial after trial until the input ends.
///
/// # Errors
/// When nobody listens any more.
pub fn serve(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), String> {
    let setup: Setup = recv(input)?;
    let unheard = |error: std::io::Error| error.to_string();
    if let Some(cpu) = setup.cpu {
        // Unpinned is slower, not wrong; the client says so.
        let _unpinned = punctual_machine::cpu::pin_to(cpu);
    }
    if setup.place == Place::Segment
        && let Err(error) = punctual_machine::namespace::unshare_network()
    {
        return send(output, &Reply::Failed(error.to_string())).map_err(unheard);
    }
    // Calibrated now: the first trial's first message must not wait for it.
    punctual::Clock::get();
    send(output, &Reply::Started { id: punctual_machine::namespace::thread_id() }).map_err(unheard)?;
    let mut ends = Ends::new(setup.addresses, Side::There);
    while let Ok(plan) = recv::<LinkPlan>(input) {
        if setup.place == Place::Segment {
            // The interface was put here by now. Up twice is up.
            let _seen_when_opened = punctual_machine::namespace::bring_up(INTERFACES[1]);
        }
        match ends.open(&plan) {
            Ok(mut link) => {
                send(output, &Reply::Ready).map_err(unheard)?;
                let before = ends.rescued(plan.route);
                let facts = respond(&mut *link, plan.size);
                drop(link);
                let rescued = ends.rescued(plan.route) - before;
                send(output, &Reply::Done { facts, rescued }).map_err(unheard)?;
            }
            Err(text) => send(output, &Reply::Failed(text)).map_err(unheard)?,
        }
    }
    Ok(())
}

/// The other end, wherever it runs. Ends with this value.
#[derive(Debug)]
enum Responder {
    Process(Worker),
    Thread { input: UnixStream, output: BufReader<UnixStream>, thread: Option<JoinHandle<()>> },
}

impl Responder {
    fn start(place: Place) -> Result<Self, String> {
        if place == Place::Process {
            Self::start_thread()
        } else {
            Worker::start(&["respond"]).map(Self::Process)
        }
    }

    fn start_thread() -> Result<Self, String> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| format!("cannot talk to a thread: {error}"))?;
        let clone = |stream: &UnixStream| stream.try_clone().map_err(|error| error.to_string());
        let (mut reading, mut writing) = (BufReader::new(clone(&theirs)?), theirs);
        let thread = std::thread::Builder::new().name("responder".to_owned()).spawn(move || {
            // It ends when nobody listens; why is then nobody's concern.
            let _ended = serve(&mut reading, &mut writing);
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self::Thread { output: BufReader::new(clone(&ours)?), input: ours, thread: Some(thread) })
    }

    fn send(&mut self, what: &impl Serialize) -> Result<(), String> {
        match self {
            Self::Process(worker) => worker.send(what),
            Self::Thread { input, .. } => {
                send(input, what).map_err(|error| format!("the responder does not listen: {error}"))
            }
        }
    }

    fn recv(&mut self) -> Result<Reply, String> {
        match self {
            Self::Process(worker) => worker.recv(),
            Self::Thread { output, .. } => recv(output),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        match self {
            // It ends with its input.
            Self::Process(_) => {}
            Self::Thread { input, thread, .. } => {
                let _closed = input.shutdown(std::net::Shutdown::Both);
                if let Some(thread) = thread.take() {
                    let _ended = thread.join();
                }
            }
        }
    }
}

/// One trial to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Of which cell.
    pub(super) cell: Cell,
    /// What it sends.
    pub(super) trial: Trial,
}

/// A trial that was made.
#[derive(Debug)]
pub(super) struct Made {
    /// Its messages.
    pub(super) recording: Recording,
    /// What the client went through.
    pub(super) client: ClientFacts,
    /// What the responder went through.
    pub(super) responder: ResponderFacts,
    /// Wake-ups lost by either end's node, and made up for by the clock.
    pub(super) rescued: u64,
    /// CPU time that a hypervisor took from this machine meanwhile, kernel ticks.
    pub(super) steal_ticks: u64,
    /// Times that a CPU quota ran out.
    pub(super) throttled: u64,
    /// All clocks before and after.
    pub(super) clocks: [Clocks; 2],
}

/// A place whose client runs in a thread of its own, pinned, in its own namespace where need be.
#[derive(Debug)]
pub(super) struct Testbed {
    orders: mpsc::Sender<Order>,
    results: mpsc::Receiver<Result<Made, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Testbed {
    /// Starts both ends.
    ///
    /// # Errors
    /// In words for people: what is missing and what to do.
    pub(super) fn start(
        addresses: &Addresses,
        place: Place,
        cpus: [Option<usize>; 2],
    ) -> Result<Self, String> {
        let (orders, inbox) = mpsc::channel();
        let (outbox, results) = mpsc::channel();
        let (started, start) = mpsc::channel();
        let addresses = addresses.clone();
        let thread =
            std::thread::Builder::new().name(format!("client-{place:?}")).spawn(move || match Client::start(
                addresses, place, cpus,
            ) {
                Ok(mut client) => {
                    let _waiting = started.send(Ok(()));
                    while let Ok(order) = inbox.recv() {
                        if outbox.send(client.make(&order)).is_err() {
                            break;
                        }
                    }
                }
                Err(text) => {
                    let _waiting = started.send(Err(text));
                }
            });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        start.recv().map_err(|_| "the client thread ended".to_owned())??;
        Ok(Self { orders, results, thread: Some(thread) })
    }

    /// Makes one trial.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn make(&self, order: Order) -> Result<Made, String> {
        let gone = |_| "the client thread ended".to_owned();
        self.orders.send(order).map_err(|_| gone(()))?;
        self.results.recv().map_err(|_| gone(()))?
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel();
        self.orders = closed;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The client's end, in its own thread.
struct Client {
    responder: Responder,
    ends: Ends,
}

impl Client {
    fn start(addresses: Addresses, place: Place, [here, there]: [Option<usize>; 2]) -> Result<Self, String> {
        if let Some(cpu) = here {
            punctual_machine::cpu::pin_to(cpu).map_err(|error| error.to_string())?;
        }
        if place == Place::Segment {
            punctual_machine::namespace::unshare_network().map_err(|error| error.to_string())?;
        }
        let mut responder = Responder::start(place)?;
        responder.send(&Setup { addresses: addresses.clone(), place, cpu: there })?;
        let id = match responder.recv()? {
            Reply::Started { id } => id,
            Reply::Failed(text) => return Err(text),
            other => return Err(format!("the responder said {other:?} where its start was due")),
        };
        if place == Place::Segment {
            join_by_veth(id).map_err(|error| error.to_string())?;
        }
        Ok(Self { responder, ends: Ends::new(addresses, Side::Here) })
    }

    fn make(&mut self, order: &Order) -> Result<Made, String> {
        let Cell { route, load, size, manner, .. } = order.cell;
        let plan = LinkPlan { route, size, due_counts: load == crate::sample::Load::Open, manner };
        let mut recording = Recording::new(capacity(&order.trial));
        let mut link = self.ends.open(&plan)?;
        self.responder.send(&plan)?;
        match self.responder.recv()? {
            Reply::Ready => {}
            Reply::Failed(text) => return Err(text),
            other => return Err(format!("the responder said {other:?} where it was to be ready")),
        }
        let rescued_before = self.ends.rescued(route);
        let steal = punctual_machine::host::steal_ticks().unwrap_or(0);
        let quotas = Quotas::of_this_thread();
        let throttled = quotas.now().times;
        let clocks = Clocks::read();
        let client = client::run(&mut *link, &order.trial, &mut recording);
        let clocks = [clocks, Clocks::read()];
        let steal_ticks = punctual_machine::host::steal_ticks().unwrap_or(0).saturating_sub(steal);
        let throttled = quotas.now().times.saturating_sub(throttled);
        match self.responder.recv()? {
            Reply::Done { facts: responder, rescued } => {
                let rescued = rescued + self.ends.rescued(route) - rescued_before;
                Ok(Made { recording, client, responder, rescued, steal_ticks, throttled, clocks })
            }
            other => Err(format!("the responder said {other:?} where the trial was over")),
        }
    }
}

/// Joins this namespace with the responder's. Nothing is left behind: a veth pair dies with its namespaces.
fn join_by_veth(peer: u32) -> Result<(), punctual_machine::SystemError> {
    punctual_machine::namespace::create_veth(INTERFACES[0], INTERFACES[1], peer)?;
    punctual_machine::namespace::bring_up(INTERFACES[0])
}

/// Room for all messages of a trial, however fast the route: none takes less than 100 ns there and back.
fn capacity(trial: &Trial) -> usize {
    let fastest = trial.gap.max(Duration::from_nanos(100));
    let messages = trial.duration.as_nanos() / fastest.as_nanos() + 16;
    trial.count_max.min(usize::try_from(messages).unwrap_or(usize::MAX)) + trial.warmup.count()
}
