//! Where a member of a group counts: a page that other processes find. Layout: `docs/broadcast.md`.
//!
//! The holder of the lock around the [`Driver`](super::driver::Driver) writes; anybody reads.

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::process::random;
use punctual_proto::NodeId;
use punctual_proto::broadcast::{Behind, Member};
use punctual_proto::limits::GROUP_MEMBERS_MAX;

use super::account::{GroupAccount, GroupOwner, GroupState, MemberAccount};
use crate::ledger::{BUS_SIZE_MAX, PageOwner};
use crate::pages::{
    self, Counters, PageKind, read_name, read_whole, time_since, write_name, write_text, write_whole,
};

/// Words of the member, by index, behind those that every page has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Node = 2,
    /// In the roster.
    Places = 4,
    OwnPlace = 6,
    FrameSize = 7,
    /// Clock of `WrittenAt`.
    Domain = 20,
    /// The node's.
    NodeLife,
    /// Drawn at random by each that becomes a member.
    Membership,
    /// Odd while what follows is written.
    Version = 24,
    WrittenAt,
    State,
    View,
    Epoch,
    Ordered,
    Uniform,
    Taken,
    Broadcast,
    Delivered,
    Repaired,
    RepairsSent,
    Questions,
    Expelled,
    /// The place of the member that holds the group up, and 1; 0 = nobody does.
    HeldUpBy,
}

/// Words of one place of the roster, by index.
#[derive(Clone, Copy, Debug)]
enum OfPlace {
    Node,
    /// 0 = nobody is there.
    Life,
    Lag,
    Missing,
}

const GROUP_AT: usize = 8;
const NODE_AT: usize = 12;
const BUS_AT: usize = 16;
const NAME_WORDS: usize = 4;
/// Words of the bus's name that stand behind all places: at its own place it has room for so much as earlier builds read.
const BUS_REST_WORDS: usize = BUS_SIZE_MAX / 8 - NAME_WORDS;
const PLACES_AT: usize = 40;
const PLACE_WORDS: usize = 4;
const _: () = assert!((Word::HeldUpBy as usize) < PLACES_AT && BUS_AT + NAME_WORDS <= Word::Domain as usize);
const _: () = assert!((OfPlace::Missing as usize) < PLACE_WORDS);

/// Number of times that a page that is being written is read again. After that it is read as it stands: its writer may be stopped.
const READS_MAX: usize = 1_000;

fn words(places: usize) -> usize {
    PLACES_AT + places * PLACE_WORDS
}

/// The words of the bus's name. Pages of earlier builds have no rest.
fn bus_words(words: &[Counter], places: usize) -> impl Iterator<Item = &Counter> + Clone {
    let rest = words.get(self::words(places)..).unwrap_or_default();
    words[BUS_AT..BUS_AT + NAME_WORDS].iter().chain(rest.iter().take(BUS_REST_WORDS))
}

/// Messages that the user of a member has exchanged with it, over all its lives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanged {
    /// Messages that were taken from it.
    pub(super) broadcast: u64,
    /// Messages that it was given.
    pub(super) delivered: u64,
}

/// A member's own page.
#[derive(Debug)]
pub(super) struct Page {
    words: Counters,
    places: usize,
}

impl Page {
    pub(super) fn create(
        group: &str,
        owner: &PageOwner,
        (member, frame_size): (&Member, usize),
    ) -> Result<Self, SystemError> {
        let nodes: Vec<NodeId> = (0..GROUP_MEMBERS_MAX).map_while(|place| member.node(place)).collect();
        let places = nodes.len();
        let membership = random();
        let name = format!("{membership:016x}");
        let size = 8 * (words(places) + BUS_REST_WORDS);
        let words = Counters::create(PageKind::Group, &name, size, |words| {
            let set = |word: Word, value: u64| words[word as usize].set(value);
            set(Word::Node, owner.node.get());
            set(Word::NodeLife, owner.life);
            set(Word::Membership, membership);
            set(Word::Places, places as u64);
            set(Word::OwnPlace, member.place() as u64);
            set(Word::FrameSize, frame_size as u64);
            set(Word::Domain, Clock::get().domain().into());
            write_name(&words[GROUP_AT..NODE_AT], group);
            write_name(&words[NODE_AT..BUS_AT], &owner.name);
            write_text(bus_words(words, places), &owner.bus);
            for (place, node) in nodes.iter().enumerate() {
                words[PLACES_AT + place * PLACE_WORDS + OfPlace::Node as usize].set(node.get());
            }
            write(words, places, member, Exchanged::default());
        })?;
        Ok(Self { words, places })
    }

    /// Says how the member fares now.
    pub(super) fn write(&self, member: &Member, exchanged: Exchanged) {
        write(&self.words, self.places, member, exchanged);
    }

    pub(super) fn view(&self) -> View<'_> {
        View { words: &self.words, places: self.places }
    }
}

fn write(words: &[Counter], places: usize, member: &Member, exchanged: Exchanged) {
    let account = member.account();
    let publish = |word: Word, value: u64| words[word as usize].publish(value);
    let clock = Clock::get();
    write_whole(&words[Word::Version as usize], || {
        publish(Word::WrittenAt, clock.now().0);
        publish(Word::State, GroupState::of(member) as u64);
        publish(Word::View, member.view().number);
        publish(Word::Epoch, member.epoch());
        publish(Word::Ordered, account.ordered);
        publish(Word::Uniform, account.uniform);
        publish(Word::Taken, account.taken);
        publish(Word::Broadcast, exchanged.broadcast);
        publish(Word::Delivered, exchanged.delivered);
        publish(Word::Repaired, account.repaired);
        publish(Word::RepairsSent, account.repairs_sent);
        publish(Word::Questions, account.questions);
        publish(Word::Expelled, account.expelled);
        publish(Word::HeldUpBy, account.slowest.map_or(0, |place| place as u64 + 1));
        for (place, row) in words[PLACES_AT..].chunks_exact(PLACE_WORDS).enumerate().take(places) {
            let Behind { lag, missing } = member.behind(place).unwrap_or_default();
            row[OfPlace::Life as usize].publish(member.view().life(place).unwrap_or(0));
            row[OfPlace::Lag as usize].publish(lag);
            row[OfPlace::Missing as usize].publish(missing);
        }
    });
}

/// A page as seen by any process that may read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    words: &'a [Counter],
    places: usize,
}

impl<'a> View<'a> {
    /// If it can be what it says that it is.
    pub(super) fn of(words: &'a [Counter]) -> Option<Self> {
        let places = usize::try_from(words.get(Word::Places as usize)?.get()).ok()?;
        let is_possible = (1..=GROUP_MEMBERS_MAX).contains(&places) && words.len() >= self::words(places);
        is_possible.then_some(Self { words, places })
    }

    pub(super) fn owner(self) -> Option<GroupOwner> {
        Some(GroupOwner {
            group: read_name(&self.words[GROUP_AT..NODE_AT]),
            membership: self.words[Word::Membership as usize].get(),
            node: PageOwner {
                node: NodeId::new(self.words[Word::Node as usize].get())?,
                name: read_name(&self.words[NODE_AT..BUS_AT]),
                bus: read_name(bus_words(self.words, self.places)),
                process: pages::process_of(self.words)?,
                life: self.words[Word::NodeLife as usize].get(),
            },
        })
    }

    /// Account of the member: figures of one instant, unless it stands still while it writes them.
    pub(super) fn account(self) -> GroupAccount {
        let version = &self.words[Word::Version as usize];
        let whole = (0..READS_MAX).find_map(|_| read_whole(version, || self.read()));
        whole.unwrap_or_else(|| self.read())
    }

    fn get(self, word: Word) -> u64 {
        self.words[word as usize].get_published()
    }

    fn of_place(self, place: usize, which: OfPlace) -> u64 {
        self.words[PLACES_AT + place * PLACE_WORDS + which as usize].get_published()
    }

    /// The node at a place of the roster, if it is one.
    fn node(self, place: usize) -> Option<NodeId> {
        let is_one = place < self.places;
        NodeId::new(self.of_place(if is_one { place } else { 0 }, OfPlace::Node)).filter(|_| is_one)
    }

    fn member(self, place: usize) -> Option<MemberAccount> {
        let node = self.node(place).filter(|_| self.of_place(place, OfPlace::Life) != 0)?;
        let (lag, missing) = (self.of_place(place, OfPlace::Lag), self.of_place(place, OfPlace::Missing));
        Some(MemberAccount { node, name: node.to_string(), lag, missing })
    }

    fn read(self) -> GroupAccount {
        let each: Vec<MemberAccount> = (0..self.places).filter_map(|place| self.member(place)).collect();
        let (ordered, taken) = (self.get(Word::Ordered), self.get(Word::Taken));
        let held_up_by =
            usize::try_from(self.get(Word::HeldUpBy)).ok().and_then(|place| place.checked_sub(1));
        GroupAccount {
            age: time_since(Ticks(self.get(Word::WrittenAt)), self.get(Word::Domain)),
            state: GroupState::numbered(self.get(Word::State)),
            view: self.get(Word::View),
            epoch: self.get(Word::Epoch),
            members: each.len(),
            sequencer: each.first().map(|first| first.node),
            frame_size: self.get(Word::FrameSize) as usize,
            ordered,
            uniform: self.get(Word::Uniform),
            taken,
            lag: ordered.saturating_sub(taken),
            broadcast: self.get(Word::Broadcast),
            delivered: self.get(Word::Delivered),
            repaired: self.get(Word::Repaired),
            repairs_sent: self.get(Word::RepairsSent),
            questions: self.get(Word::Questions),
            expelled: self.get(Word::Expelled),
            held_up_by: held_up_by.and_then(|place| self.node(place)),
            each,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_machine::process::ProcessIdentity;
    use punctual_proto::broadcast::GroupOptions;
    use punctual_proto::{Nanos, Port};

    const NAMES: [&str; 3] = ["anne", "bob", "carl"];

    /// Longer than its own place in a page: the rest stands behind all places.
    const BUS: &str = "udp:10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400";

    /// Of the founder, alone in its first view.
    fn page(group: &str) -> (Page, Member) {
        let roster = NAMES.map(NodeId::named).to_vec();
        let options = GroupOptions::new(7, roster, NodeId::named(NAMES[0]), Port::from(1));
        let member = Member::new(GroupOptions { founds: true, ..options }, 5, Nanos(0)).unwrap();
        let owner = PageOwner {
            node: NodeId::named(NAMES[0]),
            name: NAMES[0].to_owned(),
            bus: BUS.to_owned(),
            process: ProcessIdentity::of_self(),
            life: 7,
        };
        (Page::create(group, &owner, (&member, 100)).unwrap(), member)
    }

    fn is_found(group: &str) -> bool {
        super::super::read_all().iter().any(|(owner, _)| owner.group == group)
    }

    proptest! {
        /// Goal: a page with any content is refused or read: no panic, no character that moves a cursor.
        #[test]
        fn any_page_is_refused_or_read(
            seed in proptest::collection::vec(any::<u64>(), 64),
            size in 0..self::words(4) + 8,
            places in 0_u64..6,
            small in any::<bool>(),
        ) {
            let words: Vec<Counter> = (0..size).map(|_| Counter::default()).collect();
            let bits = if small { 4 } else { u64::MAX };
            words.iter().zip(seed.iter().cycle()).for_each(|(counter, word)| counter.set(*word & bits));
            words.iter().skip(Word::Places as usize).take(1).for_each(|word| word.set(places));
            prop_assert!(!PageKind::Group.is_of(&words));
            let Some(view) = View::of(&words) else { return Ok(()) };
            prop_assert!(size >= self::words(view.places));
            if let Some(owner) = view.owner() {
                let names = [&owner.group, &owner.node.name, &owner.node.bus];
                prop_assert!(!names.iter().any(|name| name.chars().any(char::is_control)));
            }
            let account = view.account();
            prop_assert!(account.members <= view.places && account.members == account.each.len());
            let _any = (account.slowest(), account.held_up_by.map(|node| account.name(node)));
        }
    }

    /// Goal: a page says what the member knows, and is gone with it.
    #[test]
    fn a_page_says_what_the_member_knows() {
        let group = format!("known-{:x}", random());
        let (page, member) = page(&group);
        page.write(&member, Exchanged { broadcast: 3, delivered: 4 });
        let all = super::super::read_all();
        let (owner, account) = all.iter().find(|(owner, _)| owner.group == group).unwrap();
        let node = NodeId::named(NAMES[0]);
        assert_eq!((owner.node.node, owner.node.name.as_str(), owner.node.bus.as_str()), (node, "anne", BUS));
        assert_eq!((account.view, account.members, account.sequencer), (1, 1, Some(node)));
        assert_eq!((account.broadcast, account.delivered, account.frame_size), (3, 4, 100));
        assert_eq!(account.state, GroupState::Stopped, "a view of one of three");
        assert_eq!((account.name(node), account.held_up_by), ("anne".to_owned(), None));
        drop(page);
        assert!(!is_found(&group));
    }

    /// Goal: of another magic or version, or cut short, no page is read.
    #[test]
    fn a_page_that_is_none_is_not_read() {
        let group = format!("none-{:x}", random());
        let (page, _) = page(&group);
        for (word, other) in [(0, 7), (1, 2), (Word::Places as usize, 33), (Word::Node as usize, 0)] {
            assert!(is_found(&group));
            let before = page.words[word].get();
            page.words[word].publish(other);
            assert!(!is_found(&group), "word {word}");
            page.words[word].publish(before);
        }
        let short = format!("short-{:x}", random());
        let words = |size: usize| {
            let fill = |words: &[Counter]| {
                words.iter().zip(page.words.iter()).for_each(|(copy, word)| copy.set(word.get()));
                write_name(&words[GROUP_AT..NODE_AT], &short);
            };
            Counters::create(PageKind::Group, &format!("{:016x}", random()), size, fill).unwrap()
        };
        for size in [8 * 16, 8 * super::words(3) - 8] {
            let cut = words(size);
            assert!(PageKind::Group.is_of(&cut) && !is_found(&short), "{size}");
        }
        let whole = words(8 * super::words(3));
        assert!(is_found(&short), "as large as it must be");
        drop(whole);
    }

    /// Goal: a member that stands still while it writes its page is seen as it was.
    #[test]
    fn a_page_that_stays_half_written_is_read() {
        let group = format!("half-{:x}", random());
        let (page, _) = page(&group);
        page.words[Word::Version as usize].add_alone(1);
        assert_eq!(page.view().account().view, 1);
    }

    /// The figures of `docs/broadcast.md`.
    #[test]
    fn the_layout_is_the_documented_one() {
        let document = include_str!("../../../../docs/broadcast.md");
        for figure in [Word::Domain as usize, Word::Version as usize, PLACES_AT] {
            assert!(document.contains(&format!("byte {}", 8 * figure)), "{figure}");
        }
        assert!(document.contains(&format!("{} bytes each", 8 * PLACE_WORDS)));
        assert_eq!(PageKind::Group.words()[1], 1, "the version that stands there");
    }
}
