//! The rows of a node: the progress of each of its subscriptions in each ring that it follows.
//!
//! Most nodes need few of them: the first are mapped with the rest of the node's file. The others lie behind it, where the file grows
//! as they are used, and are mapped by each process that needs them. One mapping of all would take a page of page tables for each node
//! that a process sees.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use punctual_machine::counter::Counter;
use punctual_machine::memory::{MappedArray, MappedSlice, Mapping};

/// Rows that one node's subscriptions follow rings by: as many communicators as a node can have each read as many publications as
/// it can have.
pub(super) const ROWS_MAX: usize = 65_536;
/// Rows that are reserved at a time. The first so many are mapped with the rest of the file.
pub(super) const ROWS_STEP: usize = 2048;

/// Words of a row, by index: a cache line.
pub(super) const ROW_WORDS: usize = 8;
pub(super) mod row {
    /// Id of the ring; 0 = free.
    pub(in super::super) const RING: usize = 0;
    /// The bell to ring.
    pub(in super::super) const BELL: usize = 1;
    pub(in super::super) const POSITION: usize = 2;
    pub(in super::super) const SEQUENCE: usize = 3;
    pub(in super::super) const BEGIN: usize = 4;
    pub(in super::super) const LOST: usize = 5;
    pub(in super::super) const CORRUPT: usize = 6;
    pub(in super::super) const REFUSED: usize = 7;
}

const ROW_SIZE: usize = ROW_WORDS * size_of::<Counter>();

/// Where the first are in the file, and where they end.
pub(super) const ROWS_AT: usize = 16_384;
pub(super) const FIRST_END: usize = ROWS_AT + ROWS_STEP * ROW_SIZE;
/// Where the others are: a part of a file is mapped from a whole page on, and some processors' have 64 KiB.
pub(super) const FURTHER_AT: usize = 196_608;
/// Where the others are in the file, when it has grown to its end.
pub(super) const FURTHER: Range<usize> = FURTHER_AT..FURTHER_AT + (ROWS_MAX - ROWS_STEP) * ROW_SIZE;

const _: () = assert!(FIRST_END <= FURTHER_AT && FURTHER_AT.is_multiple_of(1 << 16));
const _: () = assert!(ROWS_MAX.is_multiple_of(ROWS_STEP));

/// One row, which keeps its mapping alive.
pub(super) type Row = MappedArray<Counter, ROW_WORDS>;

/// A row in memory of this process: nobody else sees it.
pub(super) fn private_row() -> Result<Row, punctual_machine::SystemError> {
    let memory = Arc::new(Mapping::anonymous(ROW_SIZE)?);
    Ok(MappedArray::new(&memory, 0).expect("as large as a row"))
}

/// The table, as far as it is mapped here.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    first: MappedSlice<Counter>,
    /// Shared with the holders of the node's segment in this process.
    further: Arc<OnceLock<MappedSlice<Counter>>>,
}

impl Rows {
    /// The first rows, in the mapping of a node's file.
    pub(super) fn new(memory: &Arc<Mapping>) -> Option<Self> {
        let first = MappedSlice::new(memory, ROWS_AT, ROWS_STEP * ROW_WORDS)?;
        Some(Self { first, further: Arc::default() })
    }

    pub(super) fn has_further(&self) -> bool {
        self.further.get().is_some()
    }

    /// The others are mapped here.
    pub(super) fn set_further(&self, memory: Mapping) {
        let further = MappedSlice::new(&Arc::new(memory), 0, (ROWS_MAX - ROWS_STEP) * ROW_WORDS);
        // Another thread's are as good.
        let _first = further.map(|further| self.further.set(further));
    }

    /// All that are mapped.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Counter]> {
        let further = self.further.get().into_iter().flat_map(|rows| rows.chunks(ROW_WORDS));
        self.first.chunks(ROW_WORDS).chain(further)
    }

    /// The first that is free of some of them, which are reserved.
    pub(super) fn first_free(&self, among: Range<usize>) -> Option<usize> {
        let further = self.further.get().map_or(&[][..], |rows| rows);
        let mut rows = among.map(|index| match index.checked_sub(ROWS_STEP) {
            None => (index, &self.first[index * ROW_WORDS + row::RING]),
            Some(at) => (index, &further[at * ROW_WORDS + row::RING]),
        });
        rows.find(|(_, ring)| ring.get() == 0).map(|(index, _)| index)
    }

    /// One of them, if it is mapped.
    pub(super) fn row(&self, index: usize) -> Option<Row> {
        match index.checked_sub(ROWS_STEP) {
            None => MappedArray::new(self.first.mapping(), ROWS_AT + index * ROW_SIZE),
            Some(index) => MappedArray::new(self.further.get()?.mapping(), index * ROW_SIZE),
        }
    }

    /// Where a step of rows is in the file.
    pub(super) fn part(step: usize) -> Range<usize> {
        let size = ROWS_STEP * ROW_SIZE;
        let start = step.checked_sub(1).map_or(ROWS_AT, |step| FURTHER_AT + step * size);
        start..start + size
    }

    /// Makes a step's pages present in this process, once they are reserved.
    pub(super) fn populate(&self, step: usize) {
        let part = Self::part(step);
        match self.further.get().filter(|_| step > 0) {
            None => self.first.mapping().populate(part.start, part.len()),
            Some(further) => further.mapping().populate(part.start - FURTHER_AT, part.len()),
        }
    }
}
