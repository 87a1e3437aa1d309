//! A state that every member has a copy of. Copies are equal, because each applies the same commands in the same order.
//!
//! A member that joins lacks the state. The *donor*, the last member in the roster that has it, says so in the order (`begin`). Where
//! that is delivered it takes a snapshot, and goes on applying commands. The snapshot follows in parts, as messages among all others;
//! then the `end`. A member that lacks the state restores it from the parts and keeps the commands that come behind the `begin`. It
//! applies them at the `end`, and has the state from there on. All of that is in the one order, so everybody knows at every place of it
//! who has the state and who gives it. If the donor goes, the next one begins anew.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::member::Event;
use super::mutant::{Mutant, Mutants};
use super::view::View;
use crate::address::NodeId;
use crate::limits::{REPLICA_BACKLOG_SIZE_MAX, REPLICA_PARTS_MAX};

/// A state and what changes it. A copy of which one of these functions panics is *broken*: it does not claim to have the state.
pub trait State {
    /// Result of a command.
    type Output;
    /// The state as it was at an instant, however it changes afterwards. Taking one must not take long: share what does not change.
    type Snapshot;

    /// Does what a command says. The same in every copy: nothing but the state and the command decides.
    fn apply(&mut self, command: Command<'_>) -> Self::Output;

    /// As it is now.
    fn snapshot(&self) -> Self::Snapshot;

    /// Writes the next bytes of a snapshot into a buffer, and says how many: 0 at its end. The buffer may be as small as a byte: anything
    /// larger is cut.
    fn read(snapshot: &mut Self::Snapshot, buffer: &mut [u8]) -> usize;

    /// Forgets everything: a snapshot comes.
    fn reset(&mut self);

    /// Takes the next bytes of a snapshot.
    fn restore(&mut self, part: &[u8]);
}

/// A command, as it stands in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The node that gave it.
    pub sender: NodeId,
    /// In which life.
    pub life: u64,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Outcome of an event of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<O> {
    /// A command was applied.
    Applied(O),
    /// This copy has the state from here on.
    Restored,
    /// It is nothing for the user: a part of a transfer, or a command that is kept until one is over.
    Nothing,
    /// More commands came during a transfer than can be kept: this member must leave, or end, and join again.
    Overrun,
    /// A function of the state panicked, and somebody caught that. This copy lacks the state, and the others believe that it has
    /// it: this member must leave, or end, and join again.
    Broken,
}

/// The first byte of a message of the group.
mod kind {
    pub(super) const COMMAND: u8 = 0;
    pub(super) const BEGIN: u8 = 1;
    pub(super) const PART: u8 = 2;
    pub(super) const END: u8 = 3;
}

/// Possession of the state by a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It knows nothing.
    Lacking,
    /// A snapshot comes.
    Restoring,
    /// It has it.
    Current,
}

/// A snapshot on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transfer {
    /// The life that gives it.
    donor: u64,
    /// The lives that lacked the state when it began.
    targets: Vec<u64>,
}

/// A command that waits for the end of a transfer.
#[derive(Debug)]
struct Kept {
    sender: NodeId,
    life: u64,
    payload: Vec<u8>,
}

impl Kept {
    /// Room that a command takes while it is kept: without its own part, any number of empty ones would fit.
    fn size(command: &Command<'_>) -> usize {
        size_of::<Self>() + command.payload.len()
    }
}

/// One member's copy of a state. It is fed with all events of its member, and says what is to be broadcast.
#[derive(Debug)]
pub struct Replication<S: State> {
    state: S,
    mutants: Mutants,
    place: usize,
    part_size: usize,
    life: u64,
    view: View,
    phase: Phase,
    /// This copy had the state in a view with a quorum: the group goes on with it.
    is_confirmed: bool,
    /// The lives that have the state, unless this one knows nothing.
    current: Vec<u64>,
    transfer: Option<Transfer>,
    /// The snapshot that this member gives.
    snapshot: Option<S::Snapshot>,
    parts_under_way: usize,
    /// It has said that it begins, and that is not delivered yet.
    is_begun: bool,
    backlog: VecDeque<Kept>,
    backlog_size: usize,
    backlog_size_max: usize,
    /// The next broadcast; empty if there is none.
    outgoing: Vec<u8>,
    /// A function of the state is at work, or has panicked.
    is_in_state: bool,
}

impl<S: State> Replication<S> {
    /// The copy of the member at a place of the roster, whose state is as that of a group that begins. Parts have at most so many
    /// bytes.
    pub fn new(state: S, place: usize, part_size: usize) -> Self {
        Self::with_mutants(state, place, part_size, Mutants::NONE)
    }

    pub(crate) fn with_mutants(state: S, place: usize, part_size: usize, mutants: Mutants) -> Self {
        Self {
            state,
            mutants,
            place,
            part_size: part_size.max(1),
            life: 0,
            view: View::default(),
            phase: Phase::Lacking,
            is_confirmed: false,
            current: Vec::new(),
            transfer: None,
            snapshot: None,
            parts_under_way: 0,
            is_begun: false,
            backlog: VecDeque::new(),
            backlog_size: 0,
            backlog_size_max: REPLICA_BACKLOG_SIZE_MAX,
            outgoing: Vec::new(),
            is_in_state: false,
        }
    }

    /// The state, where this copy has it, from its first view of more than half of the roster on. Before that nobody knows whether a
    /// founder begins the group, or comes back while the others go on.
    pub fn state(&self) -> Option<&S> {
        (self.phase == Phase::Current && self.is_confirmed && !self.is_broken()).then_some(&self.state)
    }

    /// Returns true if this copy will say what a command results in that its member broadcasts now, unless its life ends. One that
    /// lacks the state cannot: a snapshot may have the command in it.
    pub fn takes_commands(&self) -> bool {
        self.phase == Phase::Current && !self.is_broken()
    }

    /// Returns true if a function of the state panicked. The next event results in [`Outcome::Broken`]; a caller that waits for none
    /// calls [`Self::forget`], and leaves.
    pub fn is_broken(&self) -> bool {
        self.is_in_state
    }

    /// Calls a function of the state: if it panics, the remains are no state.
    fn in_state<R>(&mut self, function: impl FnOnce(&mut S) -> R) -> R {
        self.is_in_state = true;
        let result = function(&mut self.state);
        self.is_in_state = false;
        result
    }

    /// Smallest size of a message for a group of so many places: the beginning of a transfer names all who have the state.
    pub const fn message_size_min(places: usize) -> usize {
        1 + places * size_of::<u64>()
    }

    /// The message that a command is, in a buffer.
    pub fn put_command(command: &[u8], buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.push(kind::COMMAND);
        buffer.extend_from_slice(command);
    }

    /// The command that a message is, if it is one.
    pub fn command_in(message: &[u8]) -> Option<&[u8]> {
        message.strip_prefix(&[kind::COMMAND])
    }

    /// The group tells something; of a message with its bytes.
    pub fn handle(&mut self, event: &Event, bytes: &[u8]) -> Outcome<S::Output> {
        if self.is_broken() && !matches!(event, Event::Expelled | Event::Left) {
            self.forget();
            return Outcome::Broken;
        }
        match event {
            // A message that stands in no order is no command: not all copies would apply it at the same place.
            Event::Delivered(told) if !told.guarantee.is_ordered() => Outcome::Nothing,
            Event::Delivered(told) => self.deliver((told.sender, told.life), bytes),
            Event::View(view) => {
                self.enter(view);
                Outcome::Nothing
            }
            Event::Expelled | Event::Left => {
                self.forget();
                Outcome::Nothing
            }
            Event::Stopped | Event::Resumed | Event::Mismatch(_) => Outcome::Nothing,
        }
    }

    /// The message that this member has to broadcast for a transfer. It stays the same until [`Self::note_taken`].
    pub fn poll_broadcast(&mut self) -> Option<&[u8]> {
        if self.is_broken() {
            return None;
        }
        if self.outgoing.is_empty() {
            if self.must_begin() {
                self.outgoing.push(kind::BEGIN);
                self.outgoing.extend(self.current.iter().flat_map(|life| life.to_le_bytes()));
            } else if self.parts_under_way < REPLICA_PARTS_MAX
                && let Some(snapshot) = self.snapshot.take()
            {
                self.read_part(snapshot);
            }
        }
        (!self.outgoing.is_empty()).then_some(&self.outgoing[..])
    }

    /// The next part of the snapshot, or the end, goes out.
    fn read_part(&mut self, mut snapshot: S::Snapshot) {
        // Nothing goes out while it is written: where that panics it is no part.
        let mut part = core::mem::take(&mut self.outgoing);
        part.resize(1 + self.part_size, kind::PART);
        let size = self.in_state(|_| S::read(&mut snapshot, &mut part[1..]));
        part.truncate(1 + size);
        if size == 0 {
            part[0] = kind::END;
        }
        (self.snapshot, self.outgoing) = (Some(snapshot), part);
    }

    /// The group has taken that.
    pub fn note_taken(&mut self) {
        match self.outgoing.first() {
            Some(&kind::BEGIN) => {
                self.is_begun = true;
                if self.mutants.has(Mutant::SnapshotEarly) {
                    self.take_snapshot();
                }
            }
            Some(&kind::PART) => self.parts_under_way += 1,
            Some(&kind::END) => self.snapshot = None,
            _ => {}
        }
        self.outgoing.clear();
    }

    /// It has the state and lies last of all that have it, and somebody in the view lacks it.
    fn must_begin(&self) -> bool {
        let is_idle = self.transfer.is_none() && self.snapshot.is_none() && !self.is_begun;
        let last = self.view.lives.iter().rfind(|life| self.current.contains(life));
        is_idle && self.phase == Phase::Current && last == Some(&self.life) && !self.lacking().is_empty()
    }

    /// The lives of the view that lack the state.
    fn lacking(&self) -> Vec<u64> {
        let lives = self.view.lives.iter().copied();
        lives.filter(|life| *life != 0 && !self.current.contains(life)).collect()
    }

    fn enter(&mut self, view: &View) {
        let life = view.life(self.place).unwrap_or_default();
        if life != self.life {
            self.forget();
            self.life = life;
            // The group begins, and its state with it.
            if view.number == 1 {
                self.phase = Phase::Current;
                self.current.push(life);
            }
        }
        self.view.clone_from(view);
        self.current.retain(|life| view.lives.contains(life));
        if let Some(transfer) = self.transfer.as_mut() {
            // A member that never heard of a view that it was in comes back in the same life, and has nothing of it.
            transfer.targets.retain(|life| view.lives.contains(life));
        }
        self.confirm();
        self.give_up_for_nobody();
        let is_left_alone = |transfer: &Transfer| !view.lives.contains(&transfer.donor);
        if self.transfer.as_ref().is_some_and(is_left_alone) && !self.mutants.has(Mutant::DonorForgotten) {
            self.transfer = None;
            if self.phase == Phase::Restoring {
                self.phase = Phase::Lacking;
                self.drop_backlog();
            }
        }
    }

    /// Notes whether this copy has the state in a view with a quorum.
    fn confirm(&mut self) {
        self.is_confirmed |= self.phase == Phase::Current && self.view.has_quorum();
    }

    /// Nobody is left who is given the state: the parts of it that are under way are of no use to anybody.
    fn give_up_for_nobody(&mut self) {
        let Some(transfer) = self.transfer.take_if(|transfer| transfer.targets.is_empty()) else { return };
        if transfer.donor == self.life {
            self.snapshot = None;
            self.outgoing.clear();
        }
    }

    /// This copy lacks the state from here on: its life has ended, or it is broken.
    pub fn forget(&mut self) {
        self.is_in_state = false;
        (self.phase, self.is_confirmed, self.life) = (Phase::Lacking, false, 0);
        (self.transfer, self.snapshot, self.is_begun) = (None, None, false);
        self.current.clear();
        self.outgoing.clear();
        self.parts_under_way = 0;
        self.drop_backlog();
    }

    fn take_snapshot(&mut self) {
        self.snapshot = Some(self.in_state(|state| state.snapshot()));
    }

    fn drop_backlog(&mut self) {
        self.backlog.clear();
        self.backlog_size = 0;
    }

    fn deliver(&mut self, (sender, life): (NodeId, u64), bytes: &[u8]) -> Outcome<S::Output> {
        let Some((&kind, rest)) = bytes.split_first() else { return Outcome::Nothing };
        match kind {
            kind::COMMAND => return self.obey(Command { sender, life, payload: rest }),
            kind::BEGIN => self.begin(life, rest),
            kind::PART => self.take_part(life, rest),
            kind::END => return self.end(life),
            _ => {}
        }
        Outcome::Nothing
    }

    fn obey(&mut self, command: Command<'_>) -> Outcome<S::Output> {
        match self.phase {
            Phase::Current => return Outcome::Applied(self.in_state(|state| state.apply(command))),
            Phase::Restoring if self.backlog_size + Kept::size(&command) > self.backlog_size_max => {
                self.phase = Phase::Lacking;
                self.drop_backlog();
                return Outcome::Overrun;
            }
            Phase::Restoring => {
                self.backlog_size += Kept::size(&command);
                let Command { sender, life, payload } = command;
                self.backlog.push_back(Kept { sender, life, payload: payload.to_vec() });
            }
            Phase::Lacking => {}
        }
        Outcome::Nothing
    }

    /// The newest transfer counts: of two donors that began at once, whose message stands first stops.
    fn begin(&mut self, donor: u64, current: &[u8]) {
        if donor == self.life {
            self.is_begun = false;
        }
        if self.phase != Phase::Current {
            let lives = current.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            self.current = lives.filter(|life| self.view.lives.contains(life)).collect();
            self.phase = Phase::Restoring;
            self.in_state(S::reset);
            self.drop_backlog();
        }
        let targets = self.lacking();
        self.transfer = (!targets.is_empty()).then_some(Transfer { donor, targets });
        let is_donor = donor == self.life && self.transfer.is_some();
        if is_donor && !(self.mutants.has(Mutant::SnapshotEarly) && self.snapshot.is_some()) {
            self.take_snapshot();
        } else if !is_donor {
            self.snapshot = None;
            self.outgoing.clear();
        }
        self.parts_under_way = 0;
    }

    fn take_part(&mut self, donor: u64, part: &[u8]) {
        if donor == self.life {
            self.parts_under_way = self.parts_under_way.saturating_sub(1);
        }
        if self.phase == Phase::Restoring && self.is_of(donor) {
            self.in_state(|state| state.restore(part));
        }
    }

    fn is_of(&self, donor: u64) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| transfer.donor == donor)
    }

    fn end(&mut self, donor: u64) -> Outcome<S::Output> {
        if !self.is_of(donor) {
            return Outcome::Nothing;
        }
        let targets = self.transfer.take().map(|transfer| transfer.targets).unwrap_or_default();
        self.current.extend(targets.iter().filter(|life| self.view.lives.contains(life)));
        if self.phase != Phase::Restoring {
            return Outcome::Nothing;
        }
        if self.mutants.has(Mutant::BacklogDropped) {
            self.backlog.clear();
        }
        while let Some(Kept { sender, life, payload }) = self.backlog.pop_front() {
            self.in_state(|state| state.apply(Command { sender, life, payload: &payload }));
        }
        self.backlog_size = 0;
        self.phase = Phase::Current;
        self.confirm();
        Outcome::Restored
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::guarantee::Guarantee;
    use super::super::member::Delivery;
    use super::*;

    /// All bytes of all commands.
    #[derive(Debug, PartialEq, Eq)]
    struct Bytes(Vec<u8>);

    impl State for Bytes {
        type Output = usize;
        type Snapshot = VecDeque<u8>;

        fn apply(&mut self, command: Command<'_>) -> usize {
            self.0.extend_from_slice(command.payload);
            self.0.len()
        }

        fn snapshot(&self) -> VecDeque<u8> {
            self.0.iter().copied().collect()
        }

        fn read(snapshot: &mut VecDeque<u8>, buffer: &mut [u8]) -> usize {
            let size = snapshot.len().min(buffer.len());
            buffer.iter_mut().zip(snapshot.drain(..size)).for_each(|(byte, value)| *byte = value);
            size
        }

        fn reset(&mut self) {
            self.0.clear();
        }

        fn restore(&mut self, part: &[u8]) {
            self.0.extend_from_slice(part);
        }
    }

    /// A function of a state.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Function {
        Apply,
        Snapshot,
        Read,
        Reset,
        Restore,
    }

    /// The same, of which one function panics once.
    #[derive(Debug)]
    struct Fragile(Bytes, Cell<Option<Function>>);

    impl Fragile {
        fn panic_in(&self, function: Function) {
            if self.1.get() == Some(function) {
                self.1.set(None);
                panic!("on purpose, in {function:?}");
            }
        }
    }

    impl State for Fragile {
        type Output = usize;
        /// With whether the next read panics.
        type Snapshot = (VecDeque<u8>, bool);

        fn apply(&mut self, command: Command<'_>) -> usize {
            self.panic_in(Function::Apply);
            self.0.apply(command)
        }

        fn snapshot(&self) -> Self::Snapshot {
            self.panic_in(Function::Snapshot);
            (self.0.snapshot(), self.1.get() == Some(Function::Read))
        }

        fn read((bytes, panics): &mut Self::Snapshot, buffer: &mut [u8]) -> usize {
            assert!(!core::mem::take(panics), "on purpose, in Read");
            Bytes::read(bytes, buffer)
        }

        fn reset(&mut self) {
            self.panic_in(Function::Reset);
            self.0.reset();
        }

        fn restore(&mut self, part: &[u8]) {
            self.panic_in(Function::Restore);
            self.0.restore(part);
        }
    }

    const LIVES: [u64; 2] = [70, 71];

    fn told(place: usize) -> Event {
        let sender = NodeId::new(100 + place as u64).expect("a number of a node");
        let life = LIVES[place];
        let (view, index, part, size, guarantee) = (2, 0, 0, 1, Guarantee::Uniform);
        Event::Delivered(Delivery { sender, life, view, index, part, size, guarantee })
    }

    /// Two copies in one view, of which the first has the state "a".
    fn two() -> [Replication<Bytes>; 2] {
        two_of(|| Bytes(Vec::new()))
    }

    fn two_of<S: State<Output = usize>>(state: impl Fn() -> S) -> [Replication<S>; 2] {
        let mut copies = [0, 1].map(|place| Replication::new(state(), place, 2));
        copies[0].handle(&Event::View(View { number: 1, lives: [LIVES[0], 0].into() }), &[]);
        assert_eq!(copies[0].handle(&told(0), b"\0a"), Outcome::Applied(1));
        let view = Event::View(View { number: 2, lives: LIVES.into() });
        for copy in &mut copies {
            assert_eq!(copy.handle(&view, &[]), Outcome::Nothing);
        }
        copies
    }

    /// The message that the first has to broadcast is delivered to both.
    fn pass_on<S: State>(copies: &mut [Replication<S>; 2]) -> [Outcome<S::Output>; 2] {
        let message = copies[0].poll_broadcast().expect("it gives its state").to_vec();
        copies[0].note_taken();
        [0, 1].map(|copy| copies[copy].handle(&told(0), &message))
    }

    /// Goal: a snapshot is of where its beginning stands in the order, and what comes behind that is applied once.
    #[test]
    fn a_copy_is_restored_in_the_middle_of_commands() {
        let mut copies = two();
        let command = |copies: &mut [Replication<Bytes>; 2], bytes: &[u8]| {
            [0, 1].map(|copy| copies[copy].handle(&told(1), bytes))
        };
        assert_eq!(command(&mut copies, b"\0bc"), [Outcome::Applied(3), Outcome::Nothing]);
        assert_eq!(pass_on(&mut copies), [Outcome::Nothing; 2], "it begins");
        assert_eq!(command(&mut copies, b"\0d"), [Outcome::Applied(4), Outcome::Nothing]);
        assert_eq!([pass_on(&mut copies), pass_on(&mut copies)], [[Outcome::Nothing; 2]; 2], "two parts");
        assert!(copies[1].state().is_none());
        let take_commands =
            |copies: &[Replication<Bytes>; 2]| [0, 1].map(|copy| copies[copy].takes_commands());
        assert_eq!(take_commands(&copies), [true, false]);
        assert_eq!(pass_on(&mut copies), [Outcome::Nothing, Outcome::Restored]);
        assert_eq!(take_commands(&copies), [true; 2]);
        assert_eq!(copies[1].state(), Some(&Bytes(b"abcd".to_vec())));
        assert_eq!(copies[0].poll_broadcast(), None, "nobody lacks it");
        assert_eq!(command(&mut copies, b"\0e"), [Outcome::Applied(5); 2]);
        for nonsense in [&[][..], &[9], &[2, 7], &[3], &[1, 5]] {
            assert_eq!(command(&mut copies, nonsense)[0], Outcome::Nothing, "{nonsense:?}");
        }
        assert_eq!(copies[0].state(), copies[1].state());
    }

    /// Goal: a founder that comes back while the others go on shows no empty state, and neither does whom it gives it to.
    #[test]
    fn a_state_is_shown_once_the_group_goes_on_with_it() {
        let mut copies = [0, 1].map(|place| Replication::new(Bytes(Vec::new()), place, 2));
        let view = |number, lives: [u64; 4]| Event::View(View { number, lives: lives.into() });
        copies[0].handle(&view(1, [LIVES[0], 0, 0, 0]), &[]);
        assert_eq!(copies[0].state(), None, "the others may go on without it");
        let half = view(2, [LIVES[0], LIVES[1], 0, 0]);
        copies.iter_mut().for_each(|copy| _ = copy.handle(&half, &[]));
        pass_on(&mut copies);
        assert_eq!(pass_on(&mut copies), [Outcome::Nothing, Outcome::Restored]);
        assert_eq!(copies.each_ref().map(Replication::state), [None; 2], "so may the other half");
        let majority = view(3, [LIVES[0], LIVES[1], 72, 0]);
        copies.iter_mut().for_each(|copy| _ = copy.handle(&majority, &[]));
        let empty = Bytes(Vec::new());
        assert_eq!(copies.each_ref().map(Replication::state), [Some(&empty); 2]);
        copies[0].handle(&half, &[]);
        assert_eq!(copies[0].state(), Some(&empty), "it has been the group's");
        copies[0].handle(&Event::Expelled, &[]);
        assert_eq!(copies[0].state(), None);
    }

    /// Goal: a transfer to a member that went ends with it, and one that comes later is given all of it.
    #[test]
    fn nobody_is_given_nothing() {
        let mut copies = two();
        pass_on(&mut copies);
        let part = copies[0].poll_broadcast().expect("it gives its state").to_vec();
        copies[0].note_taken();
        assert!(copies[0].poll_broadcast().is_some(), "it would go on");
        let alone = Event::View(View { number: 3, lives: [LIVES[0], 0].into() });
        copies[0].handle(&alone, &[]);
        assert_eq!(copies[0].poll_broadcast(), None, "nobody is there");
        assert_eq!(copies[0].handle(&told(0), &part), Outcome::Nothing, "it is late");
        copies[1].handle(&Event::Expelled, &[]);
        let view = Event::View(View { number: 4, lives: LIVES.into() });
        copies.iter_mut().for_each(|copy| _ = copy.handle(&view, &[]));
        pass_on(&mut copies);
        assert_eq!(pass_on(&mut copies), [Outcome::Nothing; 2], "the part");
        assert_eq!(pass_on(&mut copies), [Outcome::Nothing, Outcome::Restored]);
        assert_eq!(copies[0].state(), copies[1].state());
    }

    /// Goal: a copy that cannot keep the messages that come says so, and never takes the rest for the state.
    #[test]
    fn an_overrun_copy_says_so() {
        let mut copies = two();
        copies[1].backlog_size_max = 3 + size_of::<Kept>();
        pass_on(&mut copies);
        assert_eq!(copies[1].handle(&told(0), b"\0bcd"), Outcome::Nothing);
        assert_eq!(copies[1].handle(&told(0), b"\0e"), Outcome::Overrun);
        while copies[0].poll_broadcast().is_some() {
            pass_on(&mut copies);
        }
        assert!(copies[1].state().is_none());
    }

    /// Goal: commands without bytes take memory, too.
    #[test]
    fn empty_commands_overrun_a_copy() {
        let mut copies = two();
        copies[1].backlog_size_max = 1_000;
        pass_on(&mut copies);
        let taken = (0..1_000).find(|_| copies[1].handle(&told(0), b"\0") == Outcome::Overrun);
        assert_eq!(taken, Some(1_000 / size_of::<Kept>()));
    }

    /// Goal: a copy of which a function panicked, and somebody caught that, has no state, gives nothing, and says so once.
    #[test]
    fn a_broken_copy_is_none() {
        use Function::{Apply, Read, Reset, Restore, Snapshot};
        for (place, function) in [(0, Apply), (0, Snapshot), (0, Read), (1, Reset), (1, Restore), (1, Apply)]
        {
            let mut copies = two_of(|| Fragile(Bytes(Vec::new()), Cell::new(None)));
            copies[place].state.1.set(Some(function));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pass_on(&mut copies);
                copies.iter_mut().for_each(|copy| _ = copy.handle(&told(1), b"\0b"));
                while copies[0].poll_broadcast().is_some() {
                    pass_on(&mut copies);
                }
            }));
            assert!(caught.is_err(), "{function:?} panics at {place}");
            let copy = &mut copies[place];
            let has = |copy: &mut Replication<Fragile>| {
                (copy.poll_broadcast().map(<[u8]>::to_vec), copy.state().is_some())
            };
            assert_eq!(has(copy), (None, false), "{function:?} at {place}");
            assert!(!copy.takes_commands(), "{function:?} at {place}");
            assert_eq!(copy.handle(&told(1), b"\0c"), Outcome::Broken);
            assert_eq!(copy.handle(&told(1), b"\0c"), Outcome::Nothing);
            assert_eq!(has(copy), (None, false), "{function:?} at {place}");
        }
    }

    /// Goal: at most so many parts are under way.
    #[test]
    fn parts_wait_for_each_other() {
        let mut copies = two();
        for _ in 0..9 {
            copies[0].handle(&told(0), b"\0xx");
        }
        pass_on(&mut copies);
        for _ in 0..REPLICA_PARTS_MAX {
            assert!(copies[0].poll_broadcast().is_some());
            copies[0].note_taken();
        }
        assert_eq!(copies[0].poll_broadcast(), None);
        copies[0].handle(&told(0), &[kind::PART, b'a']);
        assert!(copies[0].poll_broadcast().is_some());
    }
}
