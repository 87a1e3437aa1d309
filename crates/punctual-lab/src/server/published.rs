//! The tables that are reproduced: requests completed in 5 s, and the mean until the first bytes of the reply.

/// Connections of the columns.
pub(super) const CONNECTIONS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// One row: model, matrix, and a figure for each number of connections.
pub(super) type Row = (&'static str, usize, [u64; 8]);

/// Between reply and next request of those tables.
pub(super) const THINK_NS: u64 = 100_000_000;

/// Means until the first bytes of the reply, of matrix 1, µs.
pub(super) const MEANS_US: [Row; 2] = [
    ("threads", 1, [791, 1_079, 6_541, 16_499, 143_680, 470_232, 1_152_684, 2_478_325]),
    ("coroutines", 1, [700, 770, 1_134, 1_475, 2_176, 6_288, 37_742, 165_954]),
];

pub(super) const REQUESTS: [Row; 4] = [
    ("threads", 1, [50, 100, 189, 347, 342, 298, 285, 301]),
    ("coroutines", 1, [50, 100, 200, 399, 792, 1_546, 2_421, 2_656]),
    ("threads", 20, [50, 100, 182, 327, 370, 289, 282, 292]),
    ("coroutines", 20, [50, 100, 196, 393, 761, 1_478, 2_363, 2_091]),
];

/// Requests of classes 0 to 7, 16 connections each, think time 50 ms, matrix 20, by poll threads.
pub(super) const CLASSES: [(usize, [u64; 8]); 4] = [
    (1, [1_538, 1_521, 1_479, 1_315, 835, 213, 32, 16]),
    (2, [1_511, 1_504, 1_484, 1_459, 1_380, 1_251, 940, 375]),
    (3, [1_481, 1_468, 1_471, 1_451, 1_437, 1_412, 1_315, 1_130]),
    (4, [521, 508, 496, 440, 404, 390, 360, 290]),
];

/// Its duration, seconds.
pub(super) const DURATION_S: f64 = 5.0;

/// Counts of the original's server in such a run: of three and of four pollers.
pub(super) struct LineCounts {
    /// Poll threads.
    pub(super) pollers: usize,
    /// Of its scheduler, all pollers together.
    pub(super) yields: u64,
    /// Tasks that were put back into the line.
    pub(super) wakes: u64,
    /// Mean time that this took, µs.
    pub(super) wake_us: u64,
    /// Processor time of the handler of interrupts, µs.
    pub(super) handler_us: u64,
    /// The server's mean latency, µs.
    pub(super) mean_us: u64,
}

pub(super) const LINE_COUNTS: [LineCounts; 2] = [
    LineCounts {
        pollers: 3,
        yields: 79_650 + 12_316 + 79_717,
        wakes: 9_652,
        wake_us: 87,
        handler_us: 371_973,
        mean_us: 1_060,
    },
    LineCounts {
        pollers: 4,
        yields: 18_685 + 45_272 + 45_293 + 45_457,
        wakes: 2_464,
        wake_us: 4_185,
        handler_us: 3_859_687,
        mean_us: 268_925,
    },
];
