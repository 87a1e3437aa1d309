//! Publishes a speed to all interested subscribers, or shows it: `speed publish`, `speed show MILLISECONDS`.

use std::time::{Duration, Instant};

use punctual::interest::{Publisher, Subscriber, Topic};
use punctual::unit::{MetrePerSecond, Quantity};
use punctual::{Bus, CommunicatorOptions, Node};

const SPEED: Topic<Quantity<MetrePerSecond, f64>> = Topic::named("speed");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::shared("demo");
    let options = CommunicatorOptions::default().stamped();
    match std::env::args().nth(1).as_deref() {
        Some("publish") => {
            let began = Instant::now();
            let mut publisher = Publisher::new(Node::open(&bus, "axle")?.bind_with(1, &options)?, SPEED)?;
            loop {
                publisher.serve_for(Duration::from_secs(5), |_| {
                    Quantity::new(15.0 + began.elapsed().as_secs_f64().sin())
                });
                for period in publisher.periods() {
                    let late_by = period.lateness().quantile(990).unwrap_or_default();
                    println!("{} µs: p99 {} ns late", period.period_us(), late_by.0);
                }
            }
        }
        Some("show") => {
            let period = std::env::args().nth(2).map_or(Ok(1_000), |text| text.parse())?;
            let communicator = Node::open(&bus, "display")?.bind_with(1, &options)?;
            let mut subscriber = Subscriber::new(communicator, SPEED, Duration::from_millis(period))?;
            loop {
                println!("{:.3}", subscriber.receive()?.value);
            }
        }
        _ => Err("speed publish, or speed show MILLISECONDS".into()),
    }
}
