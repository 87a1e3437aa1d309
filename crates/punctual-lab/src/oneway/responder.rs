//! The far end: keeps time, and answers each request with what it knows of its way.

use std::sync::Arc;
use std::time::Duration;

use punctual::time::{SyncOptions, TimeKeeper, TimeOptions};
use punctual::{Communicator, CommunicatorOptions, Node, ReceiveError, Target, Wake};
use punctual_machine::counter::Flag;
use serde::{Deserialize, Serialize};

use super::{Direction, PORT, truth, wire};
use crate::endpoint::BusPlan;
use crate::run::Requests;

/// Its name on the bus, unless another is given.
pub const RESPONDER: &str = "responder";

/// Interval between two checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// The parts that keep a node on the bus: its time keeper and one communicator.
#[derive(Debug)]
pub(super) struct End {
    pub(super) keeper: TimeKeeper,
    pub(super) communicator: Communicator,
}

impl End {
    /// Opens it. One clock at both ends is no reason to believe it: its readings are compared with what is found without.
    pub(super) fn open(
        bus: &BusPlan,
        name: &str,
        port: u16,
        priority: u8,
        wake: Wake,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| format!("{bus}: {error}");
        let node = Node::open(&bus.bus(), name).map_err(|error| text(&error))?;
        let sync = SyncOptions { priority, ..SyncOptions::default() };
        let options = TimeOptions { sync, wake, trust_domain: false };
        let keeper = TimeKeeper::start(&node, &options).map_err(|error| text(&error))?;
        let stamped = CommunicatorOptions::waiting(wake).stamped();
        let communicator = node.bind_with(port, &stamped).map_err(|error| text(&error))?;
        Ok(Self { keeper, communicator })
    }
}

/// The far end.
#[derive(Debug)]
pub struct Responder(End);

impl Responder {
    /// Joins the bus.
    ///
    /// # Errors
    /// In words for people: an address, an interface or a privilege that is missing, a name that is taken.
    pub fn open(bus: &BusPlan, name: &str, wake: Wake) -> Result<Self, String> {
        End::open(bus, name, PORT, 1, wake).map(Self)
    }

    /// Answers until `is_over`. Returns how many requests.
    pub fn serve(&mut self, is_over: &dyn Fn() -> bool) -> u64 {
        let End { keeper, communicator } = &mut self.0;
        let mut answered = 0;
        while !is_over() {
            let (source, answer) = match communicator.receive_timeout(LOOK) {
                Ok(message) => {
                    let Some(number) = message.payload.first_chunk() else { continue };
                    let found = keeper.one_way_of(&message);
                    let way = found.map(|found| Direction { found, truth: truth(&message) });
                    (message.source, wire::write(u64::from_le_bytes(*number), way))
                }
                Err(ReceiveError::Empty) => continue,
            };
            // An answer that cannot be sent is lost, and counted by the client that waits for it.
            let sent = communicator.try_send(Target::from(source), &answer);
            answered += u64::from(sent.is_ok());
        }
        answered
    }
}

/// Order to the run's own responder: its bus, its name there and its wait strategy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct NodeOrder {
    pub bus: BusPlan,
    pub name: String,
    pub wake: String,
}

/// The responder's process: answers until its input ends.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(NodeOrder { bus, name, wake }) = requests.recv() else { return Ok(()) };
    let opened = wake.parse().and_then(|wake| Responder::open(&bus, &name, wake));
    let mut responder = match opened {
        Ok(responder) => responder,
        Err(text) => return requests.answer::<()>(&Err(text)),
    };
    requests.answer(&Ok(()))?;
    let over = Arc::new(Flag::default());
    let raised = Arc::clone(&over);
    std::thread::spawn(move || {
        // However it ends, there is nobody left to answer to.
        while requests.recv::<()>().is_some() {}
        raised.raise();
    });
    responder.serve(&|| over.is_raised());
    Ok(())
}
