//! The adapter: a session for each node, a key for each node and one for everybody, tokens that say who is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual::engine::adapter::{
    Adapter, AdapterEnds, AdapterReceive, AdapterTransmit, Heard, Inlet, Outlet, Presence, Ringer, queue,
};
use punctual::engine::{Drops, Flow};
use punctual::{Bus, NodeId, OpenError};
use zenoh::bytes::ZBytes;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};
use zenoh::{Session, Wait};

use crate::words;

/// Time that the routers have to report the nodes that are there, when a node opens.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Time that a sender that blocks waits for room on the way to the router. Then Zenoh closes that way. It is Zenoh's own, and no longer
/// one: Zenoh ends the way to a router that is dead only once nobody waits for room on it any more.
const BLOCKED_MAX: Duration = Duration::from_secs(5);

/// A bus over Zenoh's routers.
#[derive(Clone, Debug)]
pub struct ZenohBus {
    name: String,
    connect: Vec<String>,
    blocks: bool,
    frame_size_max: usize,
    frames: usize,
}

impl ZenohBus {
    /// The bus of that name, by one of these routers, such as `tcp/10.0.0.1:7447`.
    pub fn new(name: &str, connect: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            connect: connect.to_vec(),
            blocks: false,
            frame_size_max: 1 << 16,
            frames: 8_192,
        }
    }

    /// Sets whether sending waits for up to five seconds where the way to the router is congested. Then Zenoh closes that way and opens
    /// it anew: the others see this node go and come back. Frames that were sent meanwhile are lost, and counted at their receivers,
    /// though the send said that they were taken. Otherwise sending waits for a millisecond at most; with a frame that is larger than
    /// one of Zenoh's batches (64 KiB), for 51. Then the frame is lost, and counted.
    #[must_use]
    pub fn blocks(mut self, blocks: bool) -> Self {
        self.blocks = blocks;
        self
    }

    /// Largest frame, bytes; 64 KiB by default. A message has some 80 less.
    #[must_use]
    pub fn frame_size_max(mut self, size: usize) -> Self {
        self.frame_size_max = size;
        self
    }

    /// Frames that wait at a node until it takes them; 8,192 by default. Others are dropped, and counted.
    #[must_use]
    pub fn frames(mut self, count: usize) -> Self {
        self.frames = count;
        self
    }

    /// The bus.
    pub fn bus(self) -> Bus {
        Bus::adapted(self)
    }

    fn session(&self) -> Result<Session, String> {
        let mut config = zenoh::Config::default();
        let mut set = |key: &str, value: &str| {
            config.insert_json5(key, value).map_err(|error| words(&format!("{key} {value}"), &error))
        };
        set("mode", r#""client""#)?;
        set("scouting/multicast/enabled", "false")?;
        set("connect/endpoints", &format!("{:?}", self.connect))?;
        // Of two batches, which is the default, one is with the kernel: a burst would find no room.
        set("transport/link/tx/queue/size/data", "16")?;
        let blocked_max_us = BLOCKED_MAX.as_micros().to_string();
        set("transport/link/tx/queue/congestion_control/block/wait_before_close", &blocked_max_us)?;
        zenoh::open(config).wait().map_err(|error| words(&format!("no router of {:?}", self.connect), &error))
    }

    fn congestion(&self) -> CongestionControl {
        if self.blocks { CongestionControl::Block } else { CongestionControl::Drop }
    }

    fn key(&self, rest: &str) -> String {
        format!("punctual/{}/{rest}", self.name)
    }

    fn join(&self, own: Presence, ringer: &Ringer) -> Result<AdapterEnds, String> {
        let session = self.session()?;
        let (inlet, outlet) = queue(ringer, self.frames);
        let subscribe = |key: String| {
            let inlet: Inlet<ZBytes> = inlet.clone();
            session
                .declare_subscriber(key.clone())
                .allowed_origin(Locality::Remote)
                .callback(move |sample| inlet.put(sample.payload().clone()))
                .wait()
                .map_err(|error| words(&key, &error))
        };
        let to_own = subscribe(self.key(&format!("to/{}", own.node)))?;
        let to_all = subscribe(self.key("all"))?;
        let there = There::new();
        let tokens = self.watch(&session, own, &there, &inlet)?;
        // After the subscriptions: a peer that sees it can reach them.
        let key = self.key(&format!("here/{}/{:04x}", own.node, own.incarnation));
        let token = session.liveliness().declare_token(key).wait().map_err(|error| words("token", &error))?;
        self.ask_who_is_there(&session, own, &there)?;
        let all = session.declare_publisher(self.key("all")).congestion_control(self.congestion());
        let all = all.allowed_destination(Locality::Remote).wait();
        let all = all.map_err(|error| words("all", &error))?;
        let transmit = Transmit {
            bus: self.clone(),
            all,
            one: BTreeMap::new(),
            there: there.clone(),
            session: session.clone(),
        };
        let receive = Receive { outlet, _declared: (to_own, to_all, tokens, token), _session: session };
        Ok(AdapterEnds { transmit: Box::new(transmit), receive: Box::new(receive) })
    }

    /// Notes who comes and goes from now on.
    fn watch(
        &self,
        session: &Session,
        own: Presence,
        there: &There,
        inlet: &Inlet<ZBytes>,
    ) -> Result<Subscriber<()>, String> {
        let (there, inlet) = (there.clone(), inlet.clone());
        let key = self.key("here/**");
        let subscriber = session.liveliness().declare_subscriber(key).history(true).callback(move |sample| {
            let Some(other) = presence_of(sample.key_expr().as_str()) else { return };
            if other.node == own.node {
                return;
            }
            let is_back = sample.kind() == SampleKind::Put;
            there.note(other, is_back);
            inlet.note(other, is_back);
        });
        subscriber.wait().map_err(|error| words("who is there", &error))
    }

    fn ask_who_is_there(&self, session: &Session, own: Presence, there: &There) -> Result<(), String> {
        let replies = session.liveliness().get(self.key("here/**")).timeout(ANSWER_WITHIN).wait();
        for reply in replies.map_err(|error| words("who is there", &error))? {
            let other = reply.result().ok().and_then(|sample| presence_of(sample.key_expr().as_str()));
            if let Some(other) = other.filter(|other| other.node != own.node) {
                there.note_answer(other);
            }
        }
        there.end_answers();
        Ok(())
    }
}

impl Adapter for ZenohBus {
    fn kind(&self) -> &'static str {
        "zenoh"
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, presence: Presence, ringer: Ringer) -> Result<AdapterEnds, OpenError> {
        self.join(presence, &ringer).map_err(OpenError::Medium)
    }
}

/// Owner of a token: the last two parts of its key.
fn presence_of(key: &str) -> Option<Presence> {
    let mut parts = key.rsplit('/');
    let incarnation = u16::from_str_radix(parts.next()?, 16).ok()?;
    let node = NodeId::new(u64::from_str_radix(parts.next()?, 16).ok()?)?;
    Some(Presence { node, incarnation })
}

/// Nodes that can be reached: those whose tokens are there.
#[derive(Clone, Debug)]
struct There(Arc<Mutex<Tokens>>);

#[derive(Debug)]
struct Tokens {
    there: BTreeSet<(NodeId, u16)>,
    /// Those that went while answers to the first question may come, which may be older than that; none afterwards.
    gone: Option<BTreeSet<(NodeId, u16)>>,
}

impl There {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Tokens { there: BTreeSet::new(), gone: Some(BTreeSet::new()) })))
    }

    fn lock(&self) -> MutexGuard<'_, Tokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token comes or goes.
    fn note(&self, Presence { node, incarnation }: Presence, is_there: bool) {
        let mut tokens = self.lock();
        let Tokens { there, gone } = &mut *tokens;
        let (to, from) = if is_there { (Some(there), gone.as_mut()) } else { (gone.as_mut(), Some(there)) };
        to.map(|set| set.insert((node, incarnation)));
        from.map(|set| set.remove(&(node, incarnation)));
    }

    /// An answer to the question who is there, which may have waited while its node went: nothing orders answers and farewells.
    fn note_answer(&self, Presence { node, incarnation }: Presence) {
        let mut tokens = self.lock();
        if !tokens.gone.as_ref().is_some_and(|gone| gone.contains(&(node, incarnation))) {
            tokens.there.insert((node, incarnation));
        }
    }

    /// All answers have come.
    fn end_answers(&self) {
        self.lock().gone = None;
    }

    fn has(&self, node: NodeId) -> bool {
        self.lock().there.range((node, 0)..=(node, u16::MAX)).next().is_some()
    }
}

#[derive(Debug)]
struct Transmit {
    bus: ZenohBus,
    all: Publisher<'static>,
    one: BTreeMap<NodeId, Publisher<'static>>,
    there: There,
    session: Session,
}

impl AdapterTransmit for Transmit {
    fn frame_size_max(&self) -> usize {
        self.bus.frame_size_max
    }

    fn is_there(&self, node: NodeId) -> bool {
        self.there.has(node)
    }

    fn send(&mut self, target: Option<NodeId>, frame: &[u8]) -> bool {
        let publisher = match target {
            None => &self.all,
            Some(node) => {
                if !self.one.contains_key(&node) {
                    // Nodes come and go for as long as a bus runs.
                    self.one.retain(|&other, _| self.there.has(other));
                    let key = self.bus.key(&format!("to/{node}"));
                    let one = self.session.declare_publisher(key).congestion_control(self.bus.congestion());
                    let one = one.allowed_destination(Locality::Remote).wait();
                    let Ok(one) = one else { return false };
                    self.one.insert(node, one);
                }
                &self.one[&node]
            }
        };
        publisher.put(frame.to_vec()).wait().is_ok()
    }
}

#[derive(Debug)]
struct Receive {
    outlet: Outlet<ZBytes>,
    _declared: (Subscriber<()>, Subscriber<()>, Subscriber<()>, LivelinessToken),
    _session: Session,
}

impl AdapterReceive for Receive {
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Heard<'_>) -> Flow) -> usize {
        self.outlet.poll(limit, visit, |frame, visit| visit(&frame.to_bytes()))
    }

    fn is_ready(&self) -> bool {
        self.outlet.is_ready()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        Some(self.outlet.drops())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an answer that was under way while its node went does not bring that back, and nothing of it is kept afterwards.
    #[test]
    fn an_answer_is_older_than_a_farewell() {
        let node = NodeId::new(7).expect("a number of a node");
        let presence = |incarnation| Presence { node, incarnation };
        let there = There::new();
        there.note_answer(presence(1));
        assert!(there.has(node));
        there.note(presence(1), false);
        there.note_answer(presence(1));
        assert!(!there.has(node));
        there.note(presence(2), false);
        there.note(presence(2), true);
        there.note_answer(presence(2));
        assert!(there.has(node), "it came again");
        there.end_answers();
        there.note(presence(2), false);
        assert!(!there.has(node) && there.lock().gone.is_none());
    }
}
