//! A router of Zenoh: `punctual-zenoh-router --listen tcp/0.0.0.0:7447 [--connect tcp/HOST:7447]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut listen, mut connect, mut until_input_ends) = (Vec::new(), Vec::new(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--until-input-ends" {
            until_input_ends = true;
            continue;
        }
        match (word.as_str(), words.next()) {
            ("--listen", Some(endpoint)) => listen.push(endpoint),
            ("--connect", Some(endpoint)) => connect.push(endpoint),
            _ => {
                eprintln!(
                    "usage: punctual-zenoh-router --listen ENDPOINT [--connect ENDPOINT], each as often as needed, \
                     [--until-input-ends]"
                );
                return ExitCode::from(2);
            }
        }
    }
    match punctual_zenoh::router(&listen, &connect) {
        Ok(_session) if until_input_ends => {
            std::io::stdin().lines().for_each(drop);
            ExitCode::SUCCESS
        }
        Ok(_session) => loop {
            std::thread::park();
        },
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
