//! Code for a route: lines of Rust, with the library's own names.

use punctual::Wake;

/// The lines that open a communicator on this route; `None` for what no program of a user's is made of.
pub fn code_of(route: &str) -> Option<String> {
    let (engine, wake) = route.split_once('/')?;
    let bus = match engine {
        "loopback" => r#"Bus::loopback("robot")"#,
        "shared" => r#"Bus::shared("robot")"#,
        "datagram" => "Bus::multicast(\n    \"239.255.0.1:7400\".parse()?, \"127.0.0.1\".parse()?)",
        "packet" => r#"Bus::ethernet("eth0")"#,
        _ => return None,
    };
    // "futex+busy": the same way, measured beside a neighbour. "futex+plain" is what the library costs, and no advice.
    let (wake, manner) = wake.split_once('+').unwrap_or((wake, ""));
    let wake: Wake = wake.parse().ok().filter(|_| manner != "plain")?;
    let open = "let mut radar = Node::open(&bus, \"radar\")?";
    Some(match wake {
        Wake::Adaptive => format!("let bus = {bus};\n{open}.bind(1)?;"),
        other => format!(
            "let bus = {bus};\nlet waits = CommunicatorOptions::waiting(Wake::{other:?});\n{open}.bind_with(1, &waits)?;"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use punctual::{Bus, Communicator, CommunicatorOptions, Node, Wake};

    use super::*;

    // The recommended code, written as it is shown: the compiler reads it here.

    #[rustfmt::skip]
    fn memory() -> Result<Communicator, Box<dyn Error>> {
let bus = Bus::shared("robot");
let waits = CommunicatorOptions::waiting(Wake::Backoff);
let mut radar = Node::open(&bus, "radar")?.bind_with(1, &waits)?;
        radar.try_receive().err();
        Ok(radar)
    }

    #[rustfmt::skip]
    fn udp() -> Result<Communicator, Box<dyn Error>> {
let bus = Bus::multicast(
    "239.255.0.1:7400".parse()?, "127.0.0.1".parse()?);
let waits = CommunicatorOptions::waiting(Wake::EventFd);
let mut radar = Node::open(&bus, "radar")?.bind_with(1, &waits)?;
        radar.try_receive().err();
        Ok(radar)
    }

    #[rustfmt::skip]
    fn frames() -> Result<Communicator, Box<dyn Error>> {
let bus = Bus::ethernet("eth0");
let mut radar = Node::open(&bus, "radar")?.bind(1)?;
        radar.try_receive().err();
        Ok(radar)
    }

    /// Goal: the code that is shown compiles. Method: the functions above hold it, letter by letter.
    #[test]
    fn the_code_that_is_shown_is_code() {
        let _compiled = [memory, udp, frames];
        let here = include_str!("code.rs");
        for route in ["shared/backoff+busy", "datagram/eventfd", "packet/adaptive"] {
            let code = code_of(route).expect("a route");
            assert!(here.contains(&code), "{route}:\n{code}");
        }
        for route in ["floor/slot", "shared/spin+plain", "shared/telepathy", "blocking"] {
            assert_eq!(code_of(route), None);
        }
        assert!(Wake::ALL.iter().all(|wake| code_of(&format!("packet/{}", wake.name())).is_some()));
    }
}
