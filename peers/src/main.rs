//! Punctual, the floors and its peers in turns: two processes, each pinned to a CPU of its own.
//!
//! Every payload is copied in and out at both ends. See README.md.
#![forbid(unsafe_code)]

use std::error::Error;

mod aeron;
mod compare;
mod meeting;
mod pair;
mod play;
mod report;
mod rounds;
mod session;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: punctual-peers [--rounds N] [--openings N] [--games pingpong,stream] [--sizes 64,1024,8192] [--kinds KIND,KIND] [--json FILE]";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["answer", game, size, cpu] => session::answer(game, size.parse()?, cpu.parse()?),
        _ => compare::compare(
            &compare::Options::parse(&arguments).map_err(|error| format!("{error}\n{USAGE}"))?,
        ),
    }
}
