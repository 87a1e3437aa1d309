//! Station of a foreign address, for ways that address Ethernet themselves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// The discard service (RFC 863): a packet there makes the kernel look for the station, and asks nobody to answer.
const DISCARD_PORT: u16 = 9;

/// Number of questions to the kernel, and the pause between them: address resolution takes a round trip.
const LOOKS: u32 = 50;
const LOOK: Duration = Duration::from_millis(20);

/// The station of an address on the same segment.
///
/// # Errors
/// In words for people: nobody answers for the address.
pub fn find(address: IpAddr) -> Result<[u8; 6], String> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked =
        UdpSocket::bind(any).and_then(|socket| socket.send_to(&[], SocketAddr::new(address, DISCARD_PORT)));
    asked.map_err(|error| format!("cannot reach {address}: {error}"))?;
    for _ in 0..LOOKS {
        if let Some(mac) = station(&ip(&["neighbour", "show", &address.to_string()])?) {
            return Ok(mac);
        }
        std::thread::sleep(LOOK);
    }
    Err(format!(
        "no station answers for {address} on this segment: behind a router use a way without raw Ethernet"
    ))
}

/// The interface by which an address is reached.
pub fn interface_to(address: IpAddr) -> Option<String> {
    word_after(&ip(&["-o", "route", "get", &address.to_string()]).ok()?, "dev").map(str::to_owned)
}

/// The IPv4 address of an interface.
///
/// # Errors
/// In words for people: it has none, or there is no such interface.
pub fn address_of(interface: &str) -> Result<Ipv4Addr, String> {
    let none = || "no such interface with an IPv4 address; see `ip -4 address`".to_owned();
    address_in(&ip(&["-o", "-4", "address", "show", "dev", interface])?).ok_or_else(none)
}

fn address_in(text: &str) -> Option<Ipv4Addr> {
    word_after(text, "inet")?.split('/').next()?.parse().ok()
}

/// The speed of an interface's link, Mb/s; `None` where there is no link, or its driver does not know.
pub fn link_speed(interface: &str) -> Option<u64> {
    // veth claims 10 Gb/s that nothing carries.
    let is_physical = std::fs::exists(format!("/sys/class/net/{interface}/device")).unwrap_or(false);
    let speed = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    speed.trim().parse().ok().filter(|&speed: &u64| is_physical && speed > 0)
}

/// Output of the program that knows the network.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("the program `ip` is needed, of iproute2: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn word_after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_ascii_whitespace().skip_while(|&found| found != word).nth(1)
}

fn station(text: &str) -> Option<[u8; 6]> {
    let mut bytes = word_after(text, "lladdr")?.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(mac)
}

/// Bytes around a UDP payload on a wire: UDP 8, Ethernet 14 and its check 4, preamble 8, gap 12; IP comes to it.
const WIRE_OVERHEAD: u64 = 8 + 14 + 4 + 8 + 12;
const IPV4_SIZE: u64 = 20;
const IPV6_SIZE: u64 = 40;

/// The least that a payload's round trip takes on a link of this speed, nanoseconds: both packets, bit by bit, and
/// nothing else. A smaller figure is wrong.
pub fn floor_ns(payload: usize, ipv6: bool, speed_mbit: u64) -> u64 {
    let bytes = payload as u64 + WIRE_OVERHEAD + if ipv6 { IPV6_SIZE } else { IPV4_SIZE };
    2 * bytes * 8 * 1000 / speed_mbit.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_that_of_the_bits() {
        // 512 bytes at 100 Mb/s: at least 92.5 µs there and back.
        assert_eq!(floor_ns(512, false, 100), 92_480);
        assert_eq!(floor_ns(512, false, 1000), 9_248);
    }

    #[test]
    fn addresses_are_read_as_ip_prints_them() {
        let text =
            "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n";
        assert_eq!(address_in(text), Some(Ipv4Addr::LOCALHOST));
        for wrong in ["", "1: lo    inet", "1: lo    inet x/8", "1: lo    inet6 ::1/128"] {
            assert_eq!(address_in(wrong), None, "{wrong}");
        }
        let none = address_of("nowhere0").unwrap_err();
        assert!(none.contains("no such interface") || none.contains("iproute2"), "{none}");
    }

    #[test]
    fn stations_are_read_as_ip_prints_them() {
        let text = "10.0.0.2 dev eth0 lladdr 02:00:00:0a:ff:01 REACHABLE \n";
        assert_eq!(station(text), Some([2, 0, 0, 10, 255, 1]));
        assert_eq!(word_after("10.0.0.2 dev eth0 src 10.0.0.1 uid 0", "dev"), Some("eth0"));
        for wrong in ["", "lladdr", "lladdr 1:2", "lladdr 1:2:3:4:5:6:7", "10.0.0.2 dev eth0 FAILED"] {
            assert_eq!(station(wrong), None, "{wrong}");
        }
    }
}
