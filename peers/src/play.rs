//! The two games: ping-pong and a stream. The same code for every mechanism, compiled for each of them.

use punctual_machine::clock::Clock;

use crate::Outcome;
use crate::pair::Pair;

/// The whole of every so many messages of a stream is compared; number and last byte of each.
const WHOLE_EVERY: u64 = 1024;

/// Messages of a run, for mechanisms that have runs.
const RUN: u64 = 64;

/// Size and numbers of the messages to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Payload, bytes.
    pub(crate) size: usize,
    /// Messages before counting begins: both processes map, fault and warm what they need.
    pub(crate) warmup: usize,
    /// Messages that count.
    pub(crate) messages: usize,
}

/// Asks, and gives the latency of each answer, ns. A plain reading of the clock overtakes the load of the answer's last line, some 60 ns;
/// Java's does not.
pub(crate) fn ask<P: Pair + ?Sized>(pair: &mut P, plan: Plan) -> Outcome<Vec<u64>> {
    let clock = Clock::get();
    let mut message = vec![0; plan.size];
    let mut latencies = vec![0; plan.warmup + plan.messages];
    for (number, latency) in latencies.iter_mut().enumerate() {
        let fill = (number % 200) as u8;
        message.fill(fill);
        let start = clock.now_after_loads();
        pair.send(&message)?;
        // A message that is not received must not look like the answer.
        message[plan.size - 1] = !fill;
        pair.receive(&mut message)?;
        *latency = clock.nanos(clock.now_after_loads().since(start));
        if message[plan.size - 1] != fill {
            return Err("the wrong answer".into());
        }
    }
    Ok(latencies.split_off(plan.warmup))
}

/// Sends back what it gets.
pub(crate) fn answer<P: Pair + ?Sized>(pair: &mut P, plan: Plan) -> Outcome<()> {
    let mut message = vec![0; plan.size];
    for _ in 0..plan.warmup + plan.messages {
        pair.receive(&mut message)?;
        pair.send(&message)?;
    }
    Ok(())
}

/// Streams, twice; gives what the second stream took until its reader said that it has all, ns.
pub(crate) fn write<P: Pair + ?Sized>(pair: &mut P, plan: Plan) -> Outcome<u64> {
    let clock = Clock::get();
    let mut message = pattern(plan.size);
    write_once(pair, plan.warmup as u64, &mut message)?;
    let start = clock.now();
    write_once(pair, plan.messages as u64, &mut message)?;
    Ok(clock.nanos(clock.now().since(start)))
}

fn write_once<P: Pair + ?Sized>(pair: &mut P, messages: u64, message: &mut [u8]) -> Outcome<()> {
    for first in (0..messages).step_by(RUN as usize) {
        pair.send_run(first, RUN.min(messages - first), message)?;
    }
    let mut receipt = vec![0; message.len()];
    pair.receive(&mut receipt)?;
    match number_of(&receipt) {
        right if right == messages => Ok(()),
        right => Err(format!("the reader had {right} right messages of {messages}").into()),
    }
}

/// Reads two streams, and says of each how many messages were right.
pub(crate) fn read<P: Pair + ?Sized>(pair: &mut P, plan: Plan) -> Outcome<()> {
    let pattern = pattern(plan.size);
    let mut message = vec![0; plan.size];
    for messages in [plan.warmup, plan.messages] {
        let (mut right, mut expected, messages) = (0_u64, 0, messages as u64);
        while expected < messages {
            let limit = RUN.min(messages - expected);
            pair.receive_run(limit, &mut message, &mut |message| {
                right += u64::from(is_right(message, &pattern, expected));
                expected += 1;
            })?;
        }
        message[..8].copy_from_slice(&right.to_le_bytes());
        pair.send(&message)?;
    }
    Ok(())
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7) as u8).collect()
}

fn number_of(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().expect("every message has eight bytes"))
}

#[inline]
fn is_right(message: &[u8], pattern: &[u8], expected: u64) -> bool {
    number_of(message) == expected
        && message.last() == pattern.last()
        && (!expected.is_multiple_of(WHOLE_EVERY) || message[8..] == pattern[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes everything, and says that something came.
    struct Deaf;

    impl Pair for Deaf {
        fn send(&mut self, _: &[u8]) -> Outcome<()> {
            Ok(())
        }

        fn receive(&mut self, _: &mut [u8]) -> Outcome<()> {
            Ok(())
        }

        fn wait_for_peer(&mut self) -> Outcome<()> {
            Ok(())
        }
    }

    /// Goal: a mechanism that brings nothing has no latencies.
    #[test]
    fn a_message_that_was_not_received_is_no_answer() {
        assert!(ask(&mut Deaf, Plan { size: 8, warmup: 1, messages: 3 }).is_err());
    }
}
