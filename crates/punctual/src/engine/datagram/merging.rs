//! Decides whether the kernel hands over runs of datagrams as one.
//!
//! A socket that has runs as one (`UDP_GRO`) takes longer for each datagram that comes alone. A request and its answer of 64 bytes
//! over loopback took 3.26 µs without it and 3.50 with it (Xeon, Linux 6.18).

use std::io;

use punctual_machine::socket::{RUN_LEN_MAX, UdpSocket};

/// Datagrams that came without a pause, from which on they are taken for a run.
const ROW_MIN: usize = 4;

/// The same where rows before were no runs: as many as one send may be.
const ROW_MAX: usize = RUN_LEN_MAX;

/// Datagrams in a row that were no run, after which no run is expected.
const ALONE_MAX: u32 = 256;

/// State of a socket that has runs as one only while they come.
#[derive(Debug)]
pub(super) struct Merging {
    is_on: bool,
    /// Datagrams since the last call that found none.
    row: usize,
    /// So many make a run likely. Twice as many each time that this was wrong.
    row_needed: usize,
    /// Datagrams in a row that were no run, while runs would come as one.
    alone: u32,
    /// A run came as one since it was switched on.
    has_met_run: bool,
}

impl Merging {
    /// Of a socket on which it is off. The first socket of a host with the option makes the kernel change its own code, which must not
    /// be at the first run.
    ///
    /// # Errors
    /// Where the kernel has no such option.
    pub(super) fn of(socket: &UdpSocket) -> io::Result<Self> {
        socket.set_merged(true)?;
        socket.set_merged(false)?;
        Ok(Self { is_on: false, row: 0, row_needed: ROW_MIN, alone: 0, has_met_run: false })
    }

    /// So many datagrams came with one call.
    #[inline]
    pub(super) fn handle_call(&mut self, socket: &UdpSocket, datagrams: usize) {
        self.row = if datagrams == 0 { 0 } else { self.row + datagrams };
        if self.row >= self.row_needed && !self.is_on {
            self.set(socket, true);
        }
    }

    /// A datagram was so many frames.
    #[inline]
    pub(super) fn handle_datagram(&mut self, socket: &UdpSocket, frames: u64) {
        if self.is_on {
            self.note(socket, frames > 1);
        }
    }

    fn note(&mut self, socket: &UdpSocket, is_run: bool) {
        if is_run {
            (self.alone, self.has_met_run, self.row_needed) = (0, true, ROW_MIN);
            return;
        }
        self.alone += 1;
        if self.alone >= ALONE_MAX {
            if !self.has_met_run {
                self.row_needed = (2 * self.row_needed).min(ROW_MAX);
            }
            self.set(socket, false);
        }
    }

    #[cold]
    fn set(&mut self, socket: &UdpSocket, merged: bool) {
        // It was possible before.
        let _stays = socket.set_merged(merged);
        (self.is_on, self.row, self.alone, self.has_met_run) = (merged, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use punctual_machine::socket::UdpOptions;

    use super::*;

    /// Goal: rows of datagrams that are no runs switch it on ever more rarely, but such as a run may be always do.
    #[test]
    fn rows_that_were_no_runs_must_be_longer_each_time() {
        let local = "127.0.0.1:0".parse().unwrap();
        let socket = UdpSocket::bind(local, &UdpOptions::default()).unwrap();
        let mut merging = match Merging::of(&socket) {
            Ok(merging) => merging,
            Err(error) => return punctual_machine::skipped!("this kernel has no UDP_GRO: {error}"),
        };
        let mut needed = Vec::new();
        for _ in 0..6 {
            merging.handle_call(&socket, 0);
            let mut row = 0;
            while !merging.is_on {
                merging.handle_call(&socket, 1);
                row += 1;
            }
            needed.push(row);
            (0..ALONE_MAX).for_each(|_| merging.handle_datagram(&socket, 1));
            assert!(!merging.is_on);
        }
        assert_eq!(needed, [4, 8, 16, 32, 64, 64]);
        merging.handle_call(&socket, 64);
        merging.handle_datagram(&socket, 2);
        (0..ALONE_MAX).for_each(|_| merging.handle_datagram(&socket, 1));
        merging.handle_call(&socket, 4);
        assert!(merging.is_on, "there was a run");
    }
}
