//! The survivors of a kill, and everything that must be true of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::memory::WhenFull;
use punctual::publication::OfferError;
use punctual::{
    Bus, Communicator, CommunicatorOptions, Node, NodeId, Publication, Subscription, SubscriptionOptions,
    Target, Wake,
};
use punctual_machine::fd_exchange::PostBox;
use punctual_machine::process::user;

use crate::common::{PATIENCE, Role, unique};
use crate::victim::{STREAMS, Scene, bus_of, small};

pub(crate) const ALPHA: &str = "alpha";
pub(crate) const BETA: &str = "beta";
const GUEST: &str = "guest";
pub(crate) const VICTIM: &str = "victim-of-a-kill";

/// The message of that number: its size differs, and every word of it is the number.
pub(crate) fn numbered(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number as usize % 40)
}

/// The number of a message, if it is whole.
pub(crate) fn whole(payload: &[u8]) -> u64 {
    let number = u64::from_le_bytes(payload[..8].try_into().unwrap());
    assert_eq!(payload, numbered(number), "a torn message");
    number
}

/// A node that lives on.
struct Survivor {
    node: Node,
    communicator: Communicator,
    /// The next number that each source may send, to us or to everybody: between the two there is no order.
    heard: BTreeMap<(u64, bool), u64>,
}

impl Survivor {
    fn new(bus: &Bus, name: &str) -> Self {
        let node = Node::open(bus, name).unwrap();
        // One of each kind to be woken.
        let wake = if name == BETA { Wake::EventFd } else { Wake::Futex };
        let communicator = node.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        Self { node, communicator, heard: BTreeMap::new() }
    }

    /// Takes one message; its source, if it is whole and newer than those before it.
    fn take(&mut self, patience: Duration) -> Option<(NodeId, u64)> {
        let message = self.communicator.receive_timeout(patience).ok()?;
        let (source, number) = (message.source.node, whole(message.payload));
        let next = self.heard.entry((source.get(), message.target.node.is_some())).or_default();
        assert!(number >= *next, "{number} of {source} after {next}");
        *next = number + 1;
        Some((source, number))
    }

    fn forget(&mut self, source: NodeId) {
        self.heard.retain(|(of, _), _| *of != source.get());
    }

    /// Takes messages until that one comes.
    fn await_number(&mut self, source: NodeId, number: u64) {
        let give_up = Instant::now() + PATIENCE;
        while self.take(PATIENCE) != Some((source, number)) {
            let (peers, ledger) = (self.node.peers(), self.node.ledger());
            assert!(Instant::now() < give_up, "{number} of {source} never came: {peers:?}, {ledger}");
        }
    }
}

/// The ends of publications that live on, at the first survivor.
struct Streams {
    publication: Publication,
    subscription: Subscription,
    when_full: WhenFull,
    sent: u64,
    /// The number after the last, of each source.
    next: BTreeMap<u64, u64>,
}

impl Streams {
    fn new(node: &Node, when_full: WhenFull) -> Self {
        // A follower of the survivor's own publication is to miss nothing.
        let options = small(WhenFull::HoldBack);
        let publication = node.publication(Target::port(VICTIM, STREAMS), &options).unwrap();
        let subscription = node.subscription(STREAMS, &SubscriptionOptions::default()).unwrap();
        Self { publication, subscription, when_full, sent: 0, next: BTreeMap::new() }
    }

    /// Returns true if somebody reads what is sent.
    fn exchange(&mut self) -> bool {
        let is_read = loop {
            match self.publication.offer(&numbered(self.sent)) {
                Ok(()) => self.sent += 1,
                Err(error) => break error == OfferError::Full,
            }
        };
        let next = &mut self.next;
        let mut buffer = [0; 512];
        while self.subscription.poll(50, |message| {
            if let Ok(size) = message.copy_to(&mut buffer) {
                let (number, next) =
                    (whole(&buffer[..size]), next.entry(message.source.node.get()).or_default());
                assert!(number >= *next, "{number} after {next}");
                *next = number + 1;
            }
        }) > 0
        {}
        is_read
    }

    /// The victim is dead: nothing of it holds anybody, and what it committed was read.
    fn check(&mut self) {
        let give_up = Instant::now() + PATIENCE;
        while self.exchange() || self.subscription.accounts().any(|account| !account.ended) {
            assert!(Instant::now() < give_up, "{:?}", self.subscription.accounts().collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(1));
            let _none = self.publication.wait_for_readers(1, Duration::ZERO);
        }
        for account in self.subscription.accounts() {
            assert!(
                !account.corrupt
                    && account.begin == 0
                    && (account.lost == 0 || self.when_full == WhenFull::Overrun),
                "{account:?}"
            );
        }
    }
}

/// Two survivors on a bus of their own folder.
pub(crate) struct World {
    folder: tempfile::TempDir,
    name: String,
    held: bool,
    group: bool,
    accompanied: bool,
    littered: bool,
    /// Others come and go.
    guests: bool,
    // Before the nodes that they are of.
    streams: Option<Streams>,
    survivors: Option<[Survivor; 2]>,
    number: u64,
}

impl World {
    pub(crate) fn new(scene: &Scene) -> Self {
        let folder = tempfile::Builder::new().prefix("punctual-kills-").tempdir_in("/dev/shm").unwrap();
        let Scene { held, group, accompanied, littered, .. } = *scene;
        let name = unique("kill");
        let guests = scene.role.starts_with("reader");
        let mut world = Self {
            folder,
            name,
            held,
            group,
            accompanied,
            littered,
            guests,
            streams: None,
            survivors: None,
            number: 0,
        };
        if scene.littered {
            world.litter();
        }
        if accompanied {
            world.survivors = Some(world.new_survivors());
        }
        let streams = |when_full| Some(Streams::new(&world.survivors.as_ref()?[0].node, when_full));
        world.streams = scene.streams().and_then(streams);
        world
    }

    /// As [`bus_of`] takes it.
    fn bus(&self) -> String {
        let words = [if self.held { "held" } else { "free" }, if self.group { "group" } else { "private" }];
        format!("{} {} {}", self.folder.path().display(), self.name, words.join(" "))
    }

    /// A sweeper has a folder of counters of its own: elsewhere somebody else might sweep first.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let folder = self.folder.path().join("counters").display().to_string();
        if self.littered { vec![("PUNCTUAL_COUNTERS", folder)] } else { Vec::new() }
    }

    /// As a victim is told it.
    pub(crate) fn bus_text(&self) -> String {
        let alone = if self.accompanied { "" } else { " alone" };
        format!("{}{alone}", self.bus())
    }

    fn new_survivors(&self) -> [Survivor; 2] {
        [ALPHA, BETA].map(|name| Survivor::new(&bus_of(&self.bus()), name))
    }

    /// Lets another process die on the bus, with all that it has; and leaves what one leaves that died on another bus of the same
    /// user, before it had a ring.
    fn litter(&self) {
        let mut writer = Role::start_with("writer", &format!("{} alone", self.bus()), &self.variables());
        let give_up = Instant::now() + PATIENCE;
        while !self.files().iter().any(|name| name.ends_with(".ring")) {
            assert!(writer.ended().is_none() && Instant::now() < give_up, "nothing to leave behind");
            std::thread::sleep(Duration::from_micros(200));
        }
        // Its page comes last; without labels it lies elsewhere, and some time must do.
        let page_by = Instant::now() + Duration::from_millis(100);
        while names(&self.folder.path().join("counters")).is_empty() && Instant::now() < page_by {
            std::thread::sleep(Duration::from_micros(200));
        }
        writer.kill();
        // The writer would have swept it.
        let other = self.folder.path().join(format!("punctual.{}.other", user()));
        std::fs::create_dir(&other).unwrap();
        // One box is whole; the owner of the other died while it made it.
        for name in ["00000000000000aa.00000000000000bb.post", "00000000000000aa.00000000000000cc.box"] {
            drop(PostBox::open(&other.join(name)).unwrap());
        }
    }

    /// One message each way between the survivors, to one and to everybody.
    pub(crate) fn exchange(&mut self) {
        let bus = self.bus();
        let Some([alpha, beta]) = &mut self.survivors else {
            std::thread::sleep(Duration::from_millis(1));
            return;
        };
        let (a, b) = (alpha.node.id(), beta.node.id());
        let _is_read = self.streams.as_mut().is_some_and(Streams::exchange);
        for _ in 0..4 {
            let (first, second) = (self.number, self.number + 1);
            self.number += 2;
            alpha.communicator.send_timeout(Target::port(b, 1), &numbered(first), PATIENCE).unwrap();
            beta.await_number(a, first);
            alpha.communicator.send_timeout(Target::everyone_at(1), &numbered(second), PATIENCE).unwrap();
            beta.await_number(a, second);
            beta.communicator.send_timeout(Target::port(a, 1), &numbered(first), PATIENCE).unwrap();
            alpha.await_number(b, first);
        }
        if self.guests {
            drop(Node::open(&bus_of(&bus), GUEST).unwrap());
        }
        // Arrivals and departures are told to a node that has nothing else to read.
        for survivor in [alpha, beta] {
            while survivor.take(Duration::from_micros(300)).is_some() {}
        }
    }

    /// The victim is dead: the others must notice, go on, sum, let a next one of its name in, and leave nothing behind.
    pub(crate) fn recover(mut self) {
        if self.survivors.is_none() {
            self.survivors = Some(self.new_survivors());
        }
        let victim = NodeId::named(VICTIM);
        let give_up = Instant::now() + PATIENCE;
        let present = |world: &Self| {
            let survivors = world.survivors.as_ref().unwrap();
            survivors
                .iter()
                .flat_map(|survivor| survivor.node.peers())
                .any(|peer| peer.node == victim && peer.present)
        };
        while present(&self) {
            self.exchange();
            assert!(Instant::now() < give_up, "its death went unnoticed");
        }
        self.exchange();
        self.check_ledgers();
        if let Some(mut streams) = self.streams.take() {
            streams.check();
        }
        let mut next = Survivor::new(&bus_of(&self.bus()), VICTIM);
        self.greet(&mut next);
        assert_eq!(self.lives(), 3, "the files of the dead are not gone: {:?}", self.files());
        drop(next);
        self.exchange();
        self.check_ledgers();
        self.survivors = None;
        if self.littered {
            Role::start_with("visitor", &format!("{} alone", self.bus()), &self.variables()).end();
        }
        let left: Vec<_> = names(self.folder.path());
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// The next node of the victim's name talks to both, and they to it.
    fn greet(&mut self, next: &mut Survivor) {
        let [alpha, beta] = self.survivors.as_mut().unwrap();
        for survivor in [alpha, beta] {
            // It is another life: its numbers begin anew.
            survivor.forget(next.node.id());
            next.communicator
                .send_timeout(Target::port(survivor.node.id(), 1), &numbered(7), PATIENCE)
                .unwrap();
            survivor.await_number(next.node.id(), 7);
            survivor.forget(next.node.id());
            survivor
                .communicator
                .send_timeout(Target::port(next.node.id(), 1), &numbered(self.number), PATIENCE)
                .unwrap();
            next.await_number(survivor.node.id(), self.number);
        }
        self.number += 1;
    }

    /// Every copy is in one place, and every frame that was sent arrived or is lost.
    fn check_ledgers(&self) {
        let [alpha, beta] = self.survivors.as_ref().unwrap();
        for (survivor, other) in [(alpha, beta), (beta, alpha)] {
            let ledger = survivor.node.ledger();
            assert!(ledger.is_balanced(), "{ledger}");
            assert_eq!((ledger.bad_frames, ledger.corrupt_peers, ledger.duplicates), (0, 0, 0), "{ledger}");
            for peer in survivor.node.peers() {
                assert!(peer.present || peer.missing == 0, "{peer:?}");
                if self.held {
                    assert_eq!(peer.lost, 0, "readers hold writers back here: {peer:?}");
                }
                if peer.node == other.node.id() {
                    let sent = other.node.sent_to(None) + other.node.sent_to(Some(survivor.node.id()));
                    assert_eq!((peer.arrived + peer.lost, peer.missing), (sent, 0), "{peer:?}, {ledger}");
                }
            }
        }
    }

    /// The files in the bus's folder.
    fn files(&self) -> Vec<String> {
        let folder = match self.group {
            true => std::fs::read_dir(self.folder.path()).unwrap().find_map(|entry| {
                let path = entry.unwrap().path();
                path.file_name()?.to_str()?.starts_with("punctual.g").then_some(path)
            }),
            false => Some(self.folder.path().join(format!("punctual.{}.{}", user(), self.name))),
        };
        folder.map_or_else(Vec::new, |folder| names(&folder))
    }

    /// Number of lives of nodes that have files.
    fn lives(&self) -> usize {
        let mut lives: Vec<_> =
            self.files().iter().map(|name| name.split('.').take(2).collect::<Vec<_>>().join(".")).collect();
        lives.sort();
        lives.dedup();
        lives.len()
    }
}

/// The next process that opens a node removes the counters of all victims, also of those that were still making theirs.
pub(crate) fn check_counter_pages() {
    let last = Node::open(&Bus::loopback(&unique("last")), "last").unwrap();
    let (victim, give_up) = (NodeId::named(VICTIM).to_string(), Instant::now() + PATIENCE);
    let usual = format!("/dev/shm/punctual-counters.{}", user());
    let folder = std::env::var("PUNCTUAL_COUNTERS").unwrap_or(usual);
    let of_victims =
        || names(Path::new(&folder)).into_iter().filter(|name| name.starts_with(&victim)).count();
    // Another run of this suite may have victims too.
    while of_victims() > 0 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(Instant::now() < give_up, "counters of {} victims are left in {folder}", of_victims());
    }
    drop(last);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
