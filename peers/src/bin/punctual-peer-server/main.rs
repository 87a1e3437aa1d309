//! The server of `punctual run server` on executors of other projects, one thread each.
//!
//! It says its address, serves until its input ends, and says its processor time.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;

use punctual_machine::clock::process_cpu_ns;

mod on_clockworker;
mod on_glommio;
mod stages;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: punctual-peer-server clockworker|glommio --repeats N --hog-ns N";

/// Parameters of serving.
#[derive(Clone, Copy)]
struct Serving {
    /// Number of times that the work of a request is done.
    repeats: u32,
    /// A task of the last class keeps the thread for so long again and again; 0 if there is none.
    hog_ns: u64,
}

/// Classes of requests; each has twice the share of the next.
const CLASSES: usize = 8;

fn share(class: usize) -> usize {
    1 << (CLASSES - 1 - class.min(CLASSES - 1))
}

/// The address is known. When nobody wants it any more, the process ends: neither executor has another end.
fn announce(address: SocketAddr) -> Outcome<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        // An input that breaks has ended, too.
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        println!("{}", process_cpu_ns());
        std::process::exit(0);
    })?;
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => println!("punctual-peer-server {}", env!("CARGO_PKG_VERSION")),
        [model, "--repeats", repeats, "--hog-ns", hog_ns] => {
            let serving = Serving { repeats: repeats.parse()?, hog_ns: hog_ns.parse()? };
            match model {
                "clockworker" => on_clockworker::serve(serving)?,
                "glommio" => on_glommio::serve(serving)?,
                _ => return Err(USAGE.into()),
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
