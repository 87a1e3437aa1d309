//! Speed of the largest messages: ten of 64 MiB over each bus, and the number of them that arrived.

use std::error::Error;
use std::time::{Duration, Instant};

use punctual::{Bus, NodeOptions, Target};

const SIZE: usize = 64 << 20;
const MESSAGES: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let (a, b) = ("127.0.0.1:17412".parse()?, "127.0.0.1:17413".parse()?);
    let same = |bus: Bus| (bus.clone(), bus);
    for (name, (here, there)) in [
        ("loopback", same(Bus::loopback("large"))),
        ("shared", same(Bus::shared("large"))),
        ("udp", (Bus::peers(a, &[b]), Bus::peers(b, &[a]))),
    ] {
        let here = NodeOptions::new("here").message_size_max(SIZE).open(&here)?;
        let there = NodeOptions::new("there").message_size_max(SIZE).open(&there)?;
        let (mut sends, mut receives) = (here.bind(1)?, there.bind(7)?);
        let receiver =
            std::thread::spawn(move || while receives.receive_timeout(Duration::from_secs(5)).is_ok() {});
        let message = vec![7; SIZE];
        let begin = Instant::now();
        for _ in 0..MESSAGES {
            sends.send(Target::port("there", 7), &message)?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        receiver.join().map_err(|_| "the receiver panicked")?;
        let rate = f64::from(MESSAGES) * SIZE as f64 / seconds / 1e6;
        println!("{name}: {rate:.0} MB/s sent; {}", there.ledger());
    }
    Ok(())
}
