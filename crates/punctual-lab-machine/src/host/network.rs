//! What the kernel counts of a network namespace.

use std::fs;

/// Datagrams of the calling thread's network namespace that found no room in the receive buffer of their socket, since the namespace was
/// made. Those with a wrong checksum are not among them. `None` where the kernel does not say.
pub fn datagrams_without_room() -> Option<u64> {
    let of_v4 = fs::read_to_string("/proc/thread-self/net/snmp").ok()?;
    // A kernel without IPv6 has no such file.
    let of_v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    Some(without_room_v4(&of_v4)? + without_room_v6(&of_v6))
}

/// Two lines for each protocol: names, and numbers in their order.
fn without_room_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut both = names.split_whitespace().zip(numbers.split_whitespace());
    both.find(|(name, _)| *name == "RcvbufErrors")?.1.parse().ok()
}

/// A name and a number in each line.
fn without_room_v6(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let found = lines.find(|(name, _)| *name == "Udp6RcvbufErrors");
    found.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let v4 = "Tcp: InErrs\nTcp: 9\nUdp: InDatagrams NoPorts RcvbufErrors InCsumErrors\nUdp: 11 22 33 44\nUdpLite: RcvbufErrors\nUdpLite: 5\n";
        assert_eq!(without_room_v4(v4), Some(33));
        assert_eq!(without_room_v4("Udp: InDatagrams\nUdp: 1\n"), None, "an old kernel");
        assert_eq!(without_room_v4("Udp: RcvbufErrors\n"), None, "half a file");
        assert_eq!(without_room_v6("Udp6InErrors \t 3\nUdp6RcvbufErrors                \t7\n"), 7);
        assert_eq!(without_room_v6(""), 0);
    }
}
