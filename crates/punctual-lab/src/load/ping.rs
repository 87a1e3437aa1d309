//! Content of a measuring message, and the way in which its answer says where the time went.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | sequence number of the trial |
//! | 8 | 8 | the sender's clock when it was sent, ticks |
//! | 16 | 8 | the responder's clock when its application had it, ticks; 0 in the request |
//! | 24 | 36 | the request's nine stages, as the responder saw them: [`StageTicks`] |
//! | 60 | 1 | 1 = the last message of the trial: no answer is wanted; in an answer 2 = the responder looks at its thread behind it |
//! | 61 | | a pattern that follows from the number, compared whole |

use punctual::{Clock, Stage, Stages, Ticks};

use super::recording::{Recording, Row};
use crate::sample::{ABSENT_NS, Facts, Load, Outcome, RESPONDER, Samples, StageColumn};

/// Smallest measuring message, bytes.
pub const SIZE_MIN: usize = 64;

const PATTERN_AT: usize = 61;
const STAGES_AT: usize = 24;
const STOP_AT: usize = 60;
const STOP: u8 = 1;
const LOOKS: u8 = 2;
const _: () = assert!(STAGES_AT + 4 * Stage::ALL.len() <= STOP_AT && PATTERN_AT + 2 < SIZE_MIN);

/// Time in each stage of one way, in the order of [`Stage::ALL`]: ticks; with the highest bit, units of 1,024 ticks; `u32::MAX` where
/// not known. So a stage of minutes has its place too.
pub type StageTicks = [u32; Stage::ALL.len()];

const COARSE: u32 = 1 << 31;
const COARSE_SHIFT: u32 = 10;
const UNKNOWN: u32 = u32::MAX;

/// A time as its word in [`StageTicks`].
pub(crate) fn packed(ticks: Option<Ticks>) -> u32 {
    let Some(Ticks(ticks)) = ticks else { return UNKNOWN };
    let coarse = || (ticks >> COARSE_SHIFT).min(u64::from(!COARSE - 1)) as u32 | COARSE;
    u32::try_from(ticks).ok().filter(|fine| *fine < COARSE).unwrap_or_else(coarse)
}

fn unpacked(word: u32) -> Option<Ticks> {
    match word {
        UNKNOWN => None,
        coarse if coarse & COARSE != 0 => Some(Ticks(u64::from(coarse & !COARSE) << COARSE_SHIFT)),
        fine => Some(Ticks(fine.into())),
    }
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// Fills in the pattern of a message; done once per trial, since only the first eight bytes change with the number.
pub fn prepare(bytes: &mut [u8]) {
    bytes.fill(0);
    for (at, byte) in bytes.iter_mut().enumerate().skip(PATTERN_AT) {
        *byte = (at * 31 % 251) as u8;
    }
}

/// Makes the message the request of this number.
#[inline]
pub fn write_request(bytes: &mut [u8], sequence: u64, sent: Ticks) {
    put(bytes, 0, sequence);
    put(bytes, 8, sent.0);
    let mark = (sequence as u8).wrapping_mul(167);
    bytes[PATTERN_AT] = mark;
    if let Some(last) = bytes.last_mut() {
        *last = !mark;
    }
}

/// Makes the message the one that ends a trial.
pub fn write_stop(bytes: &mut [u8]) {
    bytes[STOP_AT] = STOP;
}

/// Returns true if the message ends the trial.
#[inline]
pub fn is_stop(bytes: &[u8]) -> bool {
    bytes.get(STOP_AT) == Some(&STOP)
}

/// Says in an answer whether its responder asks the kernel about itself behind it: the next request had better wait for that.
#[inline]
pub fn write_look(bytes: &mut [u8], looks: bool) {
    bytes[STOP_AT] = if looks { LOOKS } else { 0 };
}

/// Turns a request into its answer: the responder's knowledge of it is added.
#[inline]
pub fn write_answer(bytes: &mut [u8], delivered: Ticks, stages: Option<&Stages>) {
    put(bytes, 16, delivered.0);
    let Some(stages) = stages else { return };
    for (place, stage) in Stage::ALL.into_iter().enumerate() {
        let at = STAGES_AT + 4 * place;
        bytes[at..at + 4].copy_from_slice(&packed(stages.time_in(stage)).to_le_bytes());
    }
}

/// An answer, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The request's number.
    pub sequence: u64,
    /// When the responder's application had the request, ticks of its clock.
    pub delivered: Ticks,
    /// The request's stages.
    pub stages: StageTicks,
    /// The responder looks at its thread behind it.
    pub looks: bool,
}

/// Takes an answer apart. `prepared` is what the request looked like; `None` if a byte of the pattern differs.
#[inline]
pub fn read_answer(bytes: &[u8], prepared: &[u8]) -> Option<Answer> {
    let sequence = get(bytes, 0);
    let mark = (sequence as u8).wrapping_mul(167);
    let inside = PATTERN_AT + 1..prepared.len().saturating_sub(1);
    let whole = bytes.len() == prepared.len()
        && bytes.len() >= SIZE_MIN
        && bytes.get(PATTERN_AT) == Some(&mark)
        && bytes.last() == Some(&!mark)
        && bytes.get(inside.clone()) == prepared.get(inside);
    if !whole {
        return None;
    }
    let mut stages = [0; Stage::ALL.len()];
    for (place, ticks) in stages.iter_mut().enumerate() {
        let at = STAGES_AT + 4 * place;
        *ticks = u32::from_le_bytes(*bytes[at..].first_chunk()?);
    }
    let looks = bytes.get(STOP_AT) == Some(&LOOKS);
    Some(Answer { sequence, delivered: Ticks(get(bytes, 16)), stages, looks })
}

/// Details of a ping beside its round trip.
#[derive(Clone, Copy, Debug)]
pub struct PingDetail {
    /// When the responder's application had it; 0 = not known.
    pub delivered: Ticks,
    /// The request's stages.
    pub request: StageTicks,
    /// The answer's stages and the instant at which it was sent, where they were stamped.
    pub reply: Option<Stages>,
}

impl Default for PingDetail {
    fn default() -> Self {
        Self { delivered: Ticks(0), request: [UNKNOWN; Stage::ALL.len()], reply: None }
    }
}

fn load_of(open_load: bool) -> Load {
    if open_load { Load::Open } else { Load::Closed }
}

impl Recording<PingDetail> {
    /// The round trips in nanoseconds since `start`; `first_index` is the first message's index in its cell.
    pub fn round_trips(&self, clock: &Clock, start: Ticks, first_index: u64, open_load: bool) -> Samples {
        let mut samples = self.samples(clock, start, first_index, load_of(open_load));
        if self.rows().iter().any(|row| row.detail.reply.is_some()) {
            samples.stages = self.round_trip_stages(clock, open_load);
        }
        samples
    }

    /// A column with what each message took for it.
    fn column(&self, name: String, ns: impl Fn(&Row<PingDetail>) -> Option<u64>) -> StageColumn {
        StageColumn { name, ns: self.rows().iter().map(|row| ns(row).unwrap_or(ABSENT_NS)).collect() }
    }

    /// In the order of time.
    fn round_trip_stages(&self, clock: &Clock, open_load: bool) -> Vec<StageColumn> {
        let (mut columns, mut replies) = (Vec::new(), Vec::new());
        if open_load {
            let late = |row: &Row<PingDetail>| row.detail.reply.map(|_| clock.nanos(row.sent.since(row.due)));
            columns.push(self.column("request.sent".to_owned(), late));
        }
        for (place, stage) in Stage::ALL.into_iter().enumerate().filter(|(_, stage)| *stage != Stage::Sent) {
            columns
                .push(self.column(format!("request.{}", stage.name()), |row| request_ns(clock, row, place)));
            let reply = |row: &Row<PingDetail>| Some(clock.nanos(row.detail.reply?.time_in(stage)?));
            replies.push(self.column(format!("reply.{}", stage.name()), reply));
        }
        columns.push(self.column(RESPONDER.to_owned(), |row| {
            let reply = row.detail.reply.filter(|reply| reply.one_clock && row.detail.delivered.0 != 0)?;
            Some(clock.nanos(Ticks(reply.sender.sent).since(row.detail.delivered)))
        }));
        columns.extend(replies);
        columns
    }

    /// Time of the requests in each stage, in the order of [`Stage::ALL`].
    pub fn request_stages(&self, clock: &Clock) -> [StageColumn; Stage::ALL.len()] {
        std::array::from_fn(|place| {
            self.column(Stage::ALL[place].name().to_owned(), |row| request_ns(clock, row, place))
        })
    }

    /// The requests' way alone, where both ends read one clock. `None` if no row knows it.
    pub fn one_ways(
        &self,
        clock: &Clock,
        start: Ticks,
        first_index: u64,
        open_load: bool,
    ) -> Option<Samples> {
        if !self.rows().iter().any(|row| row.detail.delivered.0 != 0) {
            return None;
        }
        let mut samples = self.samples(clock, start, first_index, load_of(open_load));
        // Answers that came twice or late belong to the round trip.
        samples.facts = Facts::default();
        for (place, row) in self.rows().iter().enumerate().filter(|(_, row)| row.outcome == Outcome::Answered)
        {
            // Without its instant the request's way is as unknown as the whole: it keeps its place and its age.
            match row.detail.delivered {
                Ticks(0) => samples.outcome[place] = Outcome::Unfinished,
                at => samples.total_ns[place] = clock.nanos(at.since(row.start(load_of(open_load)))),
            }
        }
        let stages = Stage::ALL.into_iter().zip(self.request_stages(clock));
        let known = stages.filter(|(stage, _)| *stage != Stage::Sent || open_load);
        samples.stages = known.map(|(_, column)| column).collect();
        Some(samples)
    }
}

/// The request's time in a stage, where it is known.
fn request_ns(clock: &Clock, row: &Row<PingDetail>, place: usize) -> Option<u64> {
    unpacked(row.detail.request[place]).map(|ticks| clock.nanos(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a request that waited for minutes says so.
    #[test]
    fn a_stage_of_any_length_has_its_place() {
        assert_eq!(unpacked(packed(None)), None);
        for ticks in [0, 1, 2_147_483_647, 2_147_483_648, 4_294_967_294, 4_294_967_295, 600_000_000_000_u64] {
            let read = unpacked(packed(Some(Ticks(ticks)))).expect("it is known").0;
            assert!(read <= ticks && ticks - read < 1 << COARSE_SHIFT, "{ticks} is read as {read}");
            assert!(ticks >= u64::from(COARSE) || read == ticks, "{ticks} is read as {read}");
        }
        assert!(unpacked(packed(Some(Ticks(u64::MAX)))).is_some_and(|read| read.0 > 1 << 40));
    }

    #[test]
    fn an_answer_is_compared_whole() {
        for size in [SIZE_MIN, 65, 1024] {
            let mut prepared = vec![0; size];
            prepare(&mut prepared);
            let mut message = prepared.clone();
            write_request(&mut message, 77, Ticks(5));
            write_answer(&mut message, Ticks(9), None);
            let answer = read_answer(&message, &prepared).unwrap();
            assert_eq!((answer.sequence, answer.delivered), (77, Ticks(9)));
            for at in (0..8).chain(PATTERN_AT..size) {
                let mut wrong = message.clone();
                wrong[at] ^= 1;
                let read = read_answer(&wrong, &prepared);
                assert!(read.is_none_or(|answer| answer.sequence != 77), "byte {at} of {size}");
            }
            assert!(read_answer(&message[..size - 1], &prepared).is_none());
        }
    }
}
