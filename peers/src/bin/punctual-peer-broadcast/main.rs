//! Members of `punctual run broadcast --against …`: groups of Corosync and JGroups, each member by a small program of theirs.
//!
//! `build` builds these programs beside this one. Otherwise it makes one member of a group, in the network namespace that it was
//! started in. It hands its input and output to that program; the head of `corosync/peer.c` describes them.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod corosync;
mod jgroups;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: punctual-peer-broadcast build | corosync|corosync-udp|jgroups|jgroups-mtu --addresses A,B,… --place N \
                     --members N --senders N --each N --message N --seed N --period-ns N";

/// Options that a member is given, as `--name value`.
#[derive(Clone, Copy)]
struct Options<'a>(&'a [String]);

impl<'a> Options<'a> {
    fn get(self, name: &str) -> Outcome<&'a str> {
        let given = self.0.chunks_exact(2).find(|pair| pair[0].strip_prefix("--") == Some(name));
        given.map(|pair| pair[1].as_str()).ok_or_else(|| format!("--{name} is missing; {USAGE}").into())
    }

    /// Of all members, and the place of this one.
    fn addresses(self) -> Outcome<(Vec<&'a str>, usize)> {
        let (addresses, place): (Vec<&str>, usize) =
            (self.get("addresses")?.split(',').collect(), self.get("place")?.parse()?);
        if place < addresses.len() { Ok((addresses, place)) } else { Err("--place: no such address".into()) }
    }
}

/// A folder of a member's program, and where its sources are.
fn folder(name: &str) -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("a program without a folder")?.join("peer-broadcast").join(name))
}

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Runs a command of a build.
fn run(command: &mut Command, advice: &str) -> Outcome<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match ended.map_err(|error| format!("cannot run {program}: {error}: {advice}"))? {
        ended if ended.success() => Ok(()),
        ended => Err(format!("{program}: {ended}: {advice}").into()),
    }
}

/// Builds what can be built, and says what cannot.
fn build() -> Outcome<()> {
    let built = [("Corosync", corosync::build()), ("JGroups", jgroups::build())];
    for (name, built) in &built {
        match built {
            Ok(()) => println!("{name}: built"),
            Err(error) => println!("{name}: {error}"),
        }
    }
    let is_any = built.iter().any(|(_, built)| built.is_ok());
    if is_any { Ok(()) } else { Err("nothing was built".into()) }
}

fn member(system: &str, options: Options<'_>) -> Outcome<()> {
    match system {
        "corosync" => corosync::member("knet", options),
        "corosync-udp" => corosync::member("udp", options),
        "jgroups" => jgroups::member(jgroups::AS_SHIPPED, options),
        "jgroups-mtu" => jgroups::member(jgroups::IN_PACKETS, options),
        _ => Err(USAGE.into()),
    }
}

/// Prints the failure in the form that the asking program reads.
fn say(error: &dyn Error) {
    let plain: String =
        error.to_string().chars().map(|char| if "\"\\\n".contains(char) { ' ' } else { char }).collect();
    println!("{{\"Err\":\"{plain}\"}}");
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => println!("punctual-peer-broadcast {}", env!("CARGO_PKG_VERSION")),
        ["build"] => build()?,
        ["within", transport, ..] => {
            corosync::member_within(transport, Options(&arguments[2..]))
                .inspect_err(|error| say(&**error))?;
        }
        [system, ..] => member(system, Options(&arguments[1..])).inspect_err(|error| say(&**error))?,
        [] => return Err(USAGE.into()),
    }
    Ok(())
}
