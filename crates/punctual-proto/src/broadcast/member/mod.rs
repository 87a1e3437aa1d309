//! One member: its parts, and its doors. Its work with messages, time and its user stands in the files beside.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::change::{Acceptor, Proposal};
use super::frames::Frames;
use super::guarantee::LANES;
use super::message::{Body, Head, parse};
use super::mutant::{Mutant, Mutants};
use super::options::{GroupOptions, OptionsError};
use super::order::OrderLog;
use super::peer::Peer;
use super::repair::{GapClock, Repairs};
use super::view::View;
use crate::address::{Address, NodeId, Target};
use crate::protocol::{Protocol, Transmit};
use crate::time::Nanos;

mod account;
mod deliver;
mod early;
mod joining;
mod leaving;
mod membership;
mod receive;
mod send;
mod timing;
mod transmit;

pub use account::{Account, Behind};
pub use deliver::{Delivery, Event};
pub use send::BroadcastError;

use deliver::{Assembly, Unpacked, Whole};
use early::Early;
use joining::Refused;
use leaving::Parting;
use membership::Lead;
use send::Outgoing;
use transmit::Say;

/// Participation of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In no view yet.
    Joining,
    /// In a view.
    Member,
    /// In no view any more; it tells the others by what its last view ended.
    Parting,
    /// It has left, and says that only to members that ask.
    Left,
}

/// The part of its view's order that a member holds.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The frames of so much of the order are here.
    held: u64,
    /// A majority holds so much of it.
    uniform: u64,
    /// So much of what a majority holds was looked through for own frames.
    counted: u64,
    /// Of so much of what is held somebody may wait to hear: behind it there are only messages without order.
    awaited: u64,
    /// Behind the newest frame of several messages of what is held: its sender may wait to hear of it before it sends more.
    packed_end: u64,
    /// Value of `held` when the others were told last.
    held_said: u64,
    /// Value of `taken` then.
    taken_said: u64,
    /// Value of `taken` when all were told last, and not the sequencer alone.
    taken_said_to_all: u64,
    /// The sequencer said last to all that a majority holds so much.
    uniform_said: u64,
    /// Of what is held, all behind this was broadcast by the sequencer.
    others_end: u64,
    /// The next of the order to be delivered.
    next: u64,
    /// The user has done with all before this one.
    taken: u64,
}

/// One member of a group, in one life after another.
#[derive(Debug)]
pub struct Member {
    options: GroupOptions,
    mutants: Mutants,
    own: usize,
    life: u64,
    now: Nanos,
    phase: Phase,
    view: View,
    /// The view of a member that has left. Its last one is kept: members of that may still ask how it ended.
    nowhere: View,
    peers: Vec<Peer>,
    /// Frames of each origin in this view.
    frames: Vec<Frames>,
    /// Of each origin, how many of its frames were delivered here.
    delivered: Vec<u64>,
    order: OrderLog,
    progress: Progress,
    outgoing: Outgoing,
    early: Early,
    /// Of the order and of each lane behind it, those of each origin.
    assemblies: [Vec<Assembly>; 1 + LANES],
    /// The frame whose bytes are the message that was delivered last, if it was one frame.
    whole: Option<Whole>,
    /// The delivered part of the next frame of the order, if it is several messages.
    unpacked: Unpacked,
    /// The assembly whose bytes are the message that was delivered last, if it was more.
    assembled: (usize, usize),
    gaps: GapClock,
    repairs: Repairs,
    timing: timing::Timing,
    acceptor: Acceptor,
    lead: Option<Lead>,
    /// A proposal that is accepted as soon as all of it is here: its leader, and its epoch.
    pending: Option<(usize, u64, Proposal)>,
    /// The end of this view; after it, the next.
    closing: Option<Proposal>,
    /// Its order goes on otherwise than this member has passed it.
    has_diverged: bool,
    /// By what this view came to be.
    installed: Option<Proposal>,
    /// Lives that ask to join, by place, and when they did last; 0 for none.
    joining: Vec<(u64, Nanos)>,
    /// The view of the member that was heard last while it asks to join; 0 before.
    heard_view: u64,
    /// Since when it wants to leave.
    leaving_since: Option<Nanos>,
    parting: Option<Parting>,
    is_stopped: bool,
    /// A group does not take it.
    refused: Option<Refused>,
    /// Its user is still to be told that it was put out: it asks for no view before.
    is_kept_out: bool,
    /// Work that follows from the last messages was not done yet.
    is_behind: bool,
    epoch_seen: u64,
    account: Account,
    say: VecDeque<Say>,
    events: VecDeque<Event>,
}

impl Member {
    /// A member in the life `life`, a random number that no other life has.
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn new(options: GroupOptions, life: u64, now: Nanos) -> Result<Self, OptionsError> {
        Self::with_mutants(options, life, now, Mutants::NONE)
    }

    pub(crate) fn with_mutants(
        options: GroupOptions,
        life: u64,
        now: Nanos,
        mutants: Mutants,
    ) -> Result<Self, OptionsError> {
        let own = options.check()?;
        let (places, window) = (options.roster.len(), options.window);
        let mut member = Self {
            mutants,
            own,
            life: life.max(1),
            now,
            phase: Phase::Joining,
            view: View::nobody(places),
            nowhere: View::nobody(places),
            peers: alloc::vec![Peer::default(); places],
            frames: (0..places).map(|_| Frames::new(window, options.frame_size)).collect(),
            delivered: alloc::vec![0; places],
            order: OrderLog::new(places, window),
            progress: Progress::default(),
            outgoing: Outgoing::with_window(window),
            early: Early::new(places),
            assemblies: core::array::from_fn(|_| (0..places).map(|_| Assembly::default()).collect()),
            whole: None,
            unpacked: Unpacked::default(),
            assembled: (0, own),
            gaps: GapClock::new(options.round_trip, options.heartbeat, (places, life)),
            repairs: Repairs::new(places, window),
            timing: timing::Timing::starting(now),
            acceptor: Acceptor::default(),
            lead: None,
            pending: None,
            closing: None,
            has_diverged: false,
            installed: None,
            joining: alloc::vec![(0, Nanos(0)); places],
            heard_view: 0,
            leaving_since: None,
            parting: None,
            is_stopped: false,
            refused: None,
            is_kept_out: false,
            is_behind: false,
            epoch_seen: 0,
            account: Account::default(),
            say: VecDeque::new(),
            events: VecDeque::new(),
            options,
        };
        if member.options.founds {
            member.found();
        }
        Ok(member)
    }

    /// This life of the member.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The view that this life is in; its number is 0 before the first, and once it has left.
    pub fn view(&self) -> &View {
        if self.has_left() { &self.nowhere } else { &self.view }
    }

    /// Returns true if it has left.
    pub fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }

    /// Returns true if its view has ended: the next begins once all that is left of it is taken, which nobody waits for to send more.
    pub fn is_finishing_view(&self) -> bool {
        self.closing.is_some()
    }

    /// Returns true if the last broadcast of its user waits for company: nothing need be done for it before something else is.
    pub fn is_gathering(&self) -> bool {
        self.outgoing.is_gathering() && self.outgoing.transmitted >= self.outgoing.sent
    }

    /// Returns true if a stream is under way: in the last heartbeat half a window and more was held anew.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        self.timing.is_fast
    }

    /// Returns true if it belongs to a minority, or its view is too small: nothing is taken and nothing new is uniform.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// For who keeps events for a user: until that has taken [`Event::Expelled`] the member joins no view.
    pub fn keep_out(&mut self, is_kept_out: bool) {
        self.is_kept_out = is_kept_out;
    }

    /// The epoch that it has promised in its view: 0 if the view is undisturbed, or it has left.
    pub fn epoch(&self) -> u64 {
        if self.has_left() { 0 } else { self.acceptor.promised() }
    }

    /// Bytes of one member that may be under way: that not all have taken.
    pub fn window_size(&self) -> usize {
        self.options.window * self.options.frame_size
    }

    /// Its own place in the roster.
    pub fn place(&self) -> usize {
        self.own
    }

    /// The node at a place of the roster.
    pub fn node(&self, place: usize) -> Option<NodeId> {
        self.options.roster.get(place).copied()
    }

    fn is_frozen(&self) -> bool {
        self.acceptor.promised() > 0 && !self.mutants.has(Mutant::NotFrozen)
    }

    fn is_sequencer(&self) -> bool {
        self.view.sequencer() == Some(self.own)
    }

    fn is_active(&self) -> bool {
        self.phase == Phase::Member && self.closing.is_none()
    }

    /// The first frame of an origin for which there is no room: a window after what was delivered here.
    fn limit(&self, origin: usize) -> u64 {
        self.delivered[origin] + self.frames[origin].window()
    }
}

impl Protocol for Member {
    type Event = Event;

    fn handle_message(&mut self, source: Address, message: &[u8], now: Nanos) {
        self.note_time(now);
        let ignores = self.mutants.has(Mutant::CheckIgnored);
        let parsed = parse(message, self.options.check, ignores);
        let Some((head, body)) = &parsed else { return };
        if let Body::Join(terms) | Body::Refusal(terms) = body
            && head.group == self.options.group
            && *terms != self.options.terms()
        {
            return self.handle_other_terms(source.node, body);
        }
        let is_ours = head.group == self.options.group && self.node(head.place) == Some(source.node);
        if !is_ours || head.place == self.own {
            return;
        }
        // Of these many come at once, and what follows from all of them follows as well from the last.
        let is_of_many = matches!(body, Body::Data(_) | Body::Order(..) | Body::Status(_) | Body::Gaps(_));
        if !is_of_many {
            self.catch_up();
        }
        if self.phase == Phase::Joining && !matches!(body, Body::Join(_)) {
            self.note_heard_view(head.view);
        }
        match (body, self.phase) {
            (Body::Join(_), Phase::Member) => self.handle_join(head.place, head.life, head.view),
            (Body::Install(proposal), _) => self.handle_install(head, &proposal.read()),
            (_, Phase::Member) => self.handle_member(head, body),
            // It has heard of the view that it names, and is not in it.
            (Body::Join(_), _) => self.handle_left_behind(&Head { view: 0, ..*head }),
            (_, Phase::Joining | Phase::Parting | Phase::Left) => self.handle_left_behind(head),
        }
        self.is_behind = true;
        if !is_of_many {
            self.catch_up();
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.note_time(now);
        if self.phase != Phase::Left {
            // A message that has come is not asked for, however late it is looked at.
            let has_input = self.is_behind;
            self.catch_up();
            if self.handle_times() || !has_input {
                self.after_input();
            }
        }
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        self.note_time(now);
        self.catch_up();
        self.next_transmit(buffer)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.catch_up();
        self.next_event()
    }

    fn poll_timeout(&self) -> Nanos {
        self.next_timeout()
    }
}

/// All nodes at the port of the group.
fn everybody(options: &GroupOptions) -> Target {
    Target::everyone_at(options.port)
}
