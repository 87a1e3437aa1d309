//! A router of Zenoh: `punctual-zenoh-router --listen tcp/0.0.0.0:7447 [--connect tcp/HOST:7447]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut listen, mut connect) = (Vec::new(), Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--listen", Some(endpoint)) => listen.push(endpoint),
            ("--connect", Some(endpoint)) => connect.push(endpoint),
            _ => {
                eprintln!(
                    "usage: punctual-zenoh-router --listen ENDPOINT [--connect ENDPOINT], each as often as needed"
                );
                return ExitCode::from(2);
            }
        }
    }
    match punctual_zenoh::router(&listen, &connect) {
        Ok(_session) => loop {
            std::thread::park();
        },
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
