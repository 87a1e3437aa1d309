//! The kernel's counters of a network namespace.

use std::fs;

/// Datagrams of the calling thread's network namespace that found no room in the receive buffer of their socket, since the namespace was
/// made. Those with a wrong checksum are not among them. `None` where the kernel does not say.
pub fn datagrams_without_room() -> Option<u64> {
    let of_v4 = fs::read_to_string("/proc/thread-self/net/snmp").ok()?;
    // A kernel without IPv6 has no such file.
    let of_v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    Some(without_room_v4(&of_v4)? + without_room_v6(&of_v6))
}

/// Datagrams of the calling thread's network namespace of which fragments are missing, since the namespace was made: those that the
/// kernel has given up, and those whose fragments it still waits for. `None` where the kernel does not say.
pub fn datagrams_incomplete() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let given_up = number_below(&read("snmp").ok()?, "Ip:", "ReasmFails")?;
    let given_up_v6 = number_beside(&read("snmp6").unwrap_or_default(), "Ip6ReasmFails");
    let waiting = number_within(&read("sockstat").ok()?, "FRAG:");
    let waiting_v6 = number_within(&read("sockstat6").unwrap_or_default(), "FRAG6:");
    Some(given_up + given_up_v6 + waiting + waiting_v6)
}

fn without_room_v4(text: &str) -> Option<u64> {
    number_below(text, "Udp:", "RcvbufErrors")
}

fn without_room_v6(text: &str) -> u64 {
    number_beside(text, "Udp6RcvbufErrors")
}

/// Of two lines for each protocol: names, and numbers in their order.
fn number_below(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut both = names.split_whitespace().zip(numbers.split_whitespace());
    both.find(|(of, _)| *of == name)?.1.parse().ok()
}

/// Of a name and a number in each line.
fn number_beside(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let found = lines.find(|(of, _)| *of == name);
    found.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}

/// Of `inuse N` in the line of a protocol.
fn number_within(text: &str, protocol: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(protocol)).unwrap_or_default();
    let mut words = line.split_whitespace().skip_while(|word| *word != "inuse").skip(1);
    words.next().and_then(|number| number.parse().ok()).unwrap_or(0)
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
        let in_use = "UDP: inuse 7 mem 2\nFRAG: inuse 3 memory 9\n";
        assert_eq!((number_within(in_use, "FRAG:"), number_within(in_use, "FRAG6:")), (3, 0));
        assert_eq!(number_within("FRAG: inuse\n", "FRAG:"), 0, "half a line");
        assert!(datagrams_incomplete().is_some(), "this kernel says so");
    }
}
