//! Known state of a whole group, and the promises that must hold: one named check for each.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use crate::broadcast::{Delivery, Guarantee, View};
use crate::sim::model::{Violation, ensure};
use crate::sim::{Record, Rng};

/// A message: the life that broadcast it, and how many that life had broadcast before.
pub(super) type Name = (u64, u64);

/// Size of a message's name, with which it begins.
pub(super) const NAME_SIZE: usize = 16;

/// The bytes of a message, which follow from its name and size.
pub(super) fn bytes_of((life, count): Name, size: usize) -> Vec<u8> {
    let mut bytes = alloc::vec![0; size.max(NAME_SIZE)];
    Rng::at(&[life, count]).fill(&mut bytes);
    bytes[..8].copy_from_slice(&life.to_le_bytes());
    bytes[8..16].copy_from_slice(&count.to_le_bytes());
    bytes
}

fn name_of(bytes: &[u8]) -> Option<Name> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((word(0)?, word(8)?))
}

/// Messages that a life delivered in a view: in order, and without order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    sequence: Vec<Name>,
    others: BTreeSet<Name>,
}

impl Told {
    /// A life that has left a view, which ended with this for all who went on, has delivered the same. It may have delivered more only
    /// without order: of best effort, if it promised nothing to the ballot by which the view ended.
    fn ensure_in(&self, record: &mut Record, leaver: u64, told: &Self) -> Result<(), Violation> {
        let holds = self.sequence == told.sequence && self.others.is_subset(&told.others);
        let text = || format!("{leaver:x} has left with {told:x?}, others went on with {self:x?}");
        ensure(record, "departure", holds, text)
    }
}

/// Messages of a view of which somebody was told that a majority holds them.
#[derive(Debug, Default)]
struct Uniform {
    /// The longest beginning of its order.
    sequence: Vec<Name>,
    others: BTreeSet<Name>,
}

impl Uniform {
    /// True if a life that delivered so much has all of it.
    fn is_in(&self, told: &Told) -> bool {
        told.sequence.starts_with(&self.sequence) && self.others.is_subset(&told.others)
    }
}

/// Everything that one life has been told.
#[derive(Debug, Default)]
struct Life {
    /// The view that it is in.
    view: u64,
    /// Messages that it delivered in that view.
    told: Told,
    /// It was told that it may lack some that others delivered in that view.
    is_expelled: bool,
    seen: BTreeSet<Name>,
    /// Of each sender and stream, the newest that it delivered: ordered messages are one stream, and each guarantee without
    /// order is one.
    last: BTreeMap<(u64, u8), u64>,
}

/// Number of the sender's stream that a message belongs to.
fn stream(guarantee: Guarantee) -> u8 {
    match guarantee {
        Guarantee::Uniform | Guarantee::Agreed => 0,
        Guarantee::Reliable => 1,
        Guarantee::BestEffort => 2,
    }
}

/// A message that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    size: usize,
    guarantee: Guarantee,
    /// The view at that time.
    view: u64,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Checker {
    taken: BTreeMap<Name, Taken>,
    views: BTreeMap<u64, View>,
    uniform: BTreeMap<u64, Uniform>,
    /// Of each view, what those delivered that went on to the next.
    closed: BTreeMap<u64, Told>,
    /// Of each view, those who were told that they have left it, and no loss, and what they delivered.
    left: BTreeMap<u64, Vec<(u64, Told)>>,
    lives: BTreeMap<u64, Life>,
    pub(super) delivered: u64,
    /// Those of them that have no order.
    pub(super) unordered: u64,
}

/// True if one of them begins with the other.
fn agree(one: &[Name], other: &[Name]) -> bool {
    let size = one.len().min(other.len());
    one[..size] == other[..size]
}

impl Checker {
    pub(super) fn note_taken(&mut self, name: Name, size: usize, guarantee: Guarantee, view: u64) {
        self.taken.insert(name, Taken { size, guarantee, view });
    }

    /// The newest view that anybody has been in.
    pub(super) fn newest(&self) -> Option<&View> {
        self.views.last_key_value().map(|(_, view)| view)
    }

    pub(super) fn has(&self, life: u64, name: Name) -> bool {
        self.lives.get(&life).is_some_and(|life| life.seen.contains(&name))
    }

    /// Messages of a life.
    pub(super) fn of(&self, life: u64) -> impl Iterator<Item = Name> + '_ {
        self.taken.range((life, 0)..=(life, u64::MAX)).map(|(name, _)| *name)
    }

    /// A life delivers a message.
    pub(super) fn deliver(
        &mut self,
        record: &mut Record,
        own: u64,
        (delivery, bytes): (&Delivery, &[u8]),
    ) -> Result<(), Violation> {
        self.delivered += 1;
        let known = name_of(bytes).and_then(|name| Some((name, *self.taken.get(&name)?)));
        let what = || format!("{own:x} delivers {delivery:?}");
        let is_true = known.is_some_and(|(name, taken)| {
            let is_as_asked = delivery.guarantee.is_ordered() == taken.guarantee.is_ordered()
                && (delivery.guarantee.is_uniform() || !taken.guarantee.is_uniform());
            let is_whole = bytes == bytes_of(name, taken.size) && delivery.size == bytes.len();
            name.0 == delivery.life && is_whole && is_as_asked
        });
        ensure(record, "no creation", is_true, what)?;
        let Some((name, taken)) = known else { return Ok(()) };
        let life = self.lives.entry(own).or_default();
        ensure(record, "no duplication", life.seen.insert(name), || format!("{}, {name:x?}", what()))?;
        let last = life.last.insert((name.0, stream(taken.guarantee)), name.1);
        // Behind the first that it was there for, it has each of them.
        let is_of_stream = |other: &Taken| stream(other.guarantee) == stream(taken.guarantee);
        let mut between = last.map(|last| self.taken.range((name.0, last + 1)..name)).into_iter().flatten();
        let is_next = last.is_none_or(|last| last < name.1) && !between.any(|(_, other)| is_of_stream(other));
        ensure(record, "senders' order", is_next, || format!("{}, {name:x?} behind {last:x?}", what()))?;
        let is_of_view = delivery.view == life.view && delivery.view >= taken.view;
        ensure(record, "own view", is_of_view, || format!("{}, in view {}", what(), life.view))?;
        if delivery.guarantee.is_ordered() {
            self.deliver_in_order(record, own, (delivery, name))
        } else {
            self.deliver_without_order(record, own, (delivery, name))
        }
    }

    fn deliver_in_order(
        &mut self,
        record: &mut Record,
        own: u64,
        (delivery, name): (&Delivery, Name),
    ) -> Result<(), Violation> {
        let what = || format!("{own:x} delivers {delivery:?}");
        let Some(life) = self.lives.get_mut(&own) else { return Ok(()) };
        life.told.sequence.push(name);
        if !delivery.guarantee.is_uniform() {
            return Ok(());
        }
        let (order, own) =
            (&mut self.uniform.entry(delivery.view).or_default().sequence, &life.told.sequence);
        let holds = agree(order, own);
        ensure(record, "total order", holds, || format!("{}: {own:x?} beside {order:x?}", what()))?;
        if own.len() > order.len() {
            own[order.len()..].iter().for_each(|name| order.push(*name));
        }
        let Some(closed) = self.closed.get(&delivery.view) else { return Ok(()) };
        let holds = closed.sequence.starts_with(own);
        ensure(record, "uniform agreement", holds, || format!("{}: others went on with {closed:x?}", what()))
    }

    fn deliver_without_order(
        &mut self,
        record: &mut Record,
        own: u64,
        (delivery, name): (&Delivery, Name),
    ) -> Result<(), Violation> {
        self.unordered += 1;
        let Some(life) = self.lives.get_mut(&own) else { return Ok(()) };
        life.told.others.insert(name);
        if !delivery.guarantee.is_uniform() {
            return Ok(());
        }
        self.uniform.entry(delivery.view).or_default().others.insert(name);
        let Some(closed) = self.closed.get(&delivery.view) else { return Ok(()) };
        let text = || format!("{own:x} delivers {delivery:?}, {name:x?}: others went on with {closed:x?}");
        ensure(record, "uniform agreement", closed.others.contains(&name), text)
    }

    /// A life comes into a view.
    pub(super) fn view(&mut self, record: &mut Record, own: u64, view: &View) -> Result<(), Violation> {
        let known = self.views.entry(view.number).or_insert_with(|| view.clone());
        let is_one = known == view && view.lives.contains(&own);
        ensure(record, "one view", is_one, || format!("{own:x}: {view:x?} beside {known:x?}"))?;
        let life = self.lives.entry(own).or_default();
        let before = core::mem::replace(&mut life.view, view.number);
        life.is_expelled = false;
        let told = core::mem::take(&mut life.told);
        let is_step = before == 0 || before + 1 == view.number;
        ensure(record, "views follow each other", is_step, || format!("{own:x}: {before}, {view:x?}"))?;
        if before == 0 {
            return Ok(());
        }
        let closed = self.closed.entry(before).or_insert_with(|| told.clone());
        let text = || format!("{own:x} leaves view {before} with {told:x?}, others with {closed:x?}");
        ensure(record, "virtual synchrony", *closed == told, text)?;
        for (leaver, told) in self.left.get(&before).into_iter().flatten() {
            closed.ensure_in(record, *leaver, told)?;
        }
        let uniform = self.uniform.entry(before).or_default();
        ensure(record, "uniform agreement", uniform.is_in(&told), || {
            format!("{own:x} leaves view {before} with {told:x?}, uniform was {uniform:x?}")
        })
    }

    /// A life is told that the others went on without it.
    pub(super) fn expel(&mut self, own: u64) {
        self.lives.entry(own).or_default().is_expelled = true;
    }

    /// A life is told that it has left: it has delivered what those delivered who went on, unless it was told otherwise.
    pub(super) fn leave(&mut self, record: &mut Record, own: u64) -> Result<(), Violation> {
        let Some(life) = self.lives.get(&own).filter(|life| life.view > 0 && !life.is_expelled) else {
            return Ok(());
        };
        if let Some(closed) = self.closed.get(&life.view) {
            closed.ensure_in(record, own, &life.told)?;
        }
        self.left.entry(life.view).or_default().push((own, life.told.clone()));
        Ok(())
    }

    /// Those who are in the last view in the end have delivered the same there, and everything that was uniform.
    pub(super) fn end(&self, record: &mut Record, lives: &[u64]) -> Result<(), Violation> {
        let members: Vec<(&u64, &Life)> =
            lives.iter().filter_map(|life| self.lives.get_key_value(life)).collect();
        for (own, life) in &members {
            let (_, first) = members[0];
            let holds = life.view == first.view && life.told == first.told;
            let text = || format!("{own:x}: {:x?} beside {:x?}", life.told, first.told);
            ensure(record, "agreement", holds, text)?;
            let uniform = self.uniform.get(&life.view);
            let holds = uniform.is_none_or(|uniform| uniform.is_in(&life.told));
            ensure(record, "uniform agreement", holds, || format!("{own:x} lacks of {uniform:x?}"))?;
        }
        Ok(())
    }
}
