//! One session: every mechanism is opened once between two processes, and then they take turns.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Outcome;
use crate::aeron::{Aeron, AeronPair};
use crate::meeting::Meeting;
use crate::pair::{Pair, open};
use crate::rounds::{AERON, Game, KINDS, Kind, Outcomes};

/// One mechanism, open at both ends.
enum Player {
    /// Of this process, and the number it has in the other.
    Ours(Box<dyn Pair>, usize),
    Java(AeronPair),
}

/// All mechanisms of one game and size.
pub(crate) struct Session {
    game: Game,
    size: usize,
    players: Vec<(Kind, Player)>,
    // Last: the other ends go when this one goes.
    other: Other,
}

impl Session {
    /// Opens everything, and pins the calling thread.
    pub(crate) fn open(
        game: Game,
        size: usize,
        kinds: &[Kind],
        aeron: Option<&Aeron>,
        cpus: [usize; 2],
    ) -> Outcome<Self> {
        let kinds: Vec<Kind> = kinds.iter().filter(|kind| kind.plays(game, size)).copied().collect();
        let mut players = Vec::new();
        // Before this thread is pinned, which processes inherit: all threads of Java's would share one CPU.
        if let Some((aeron, kind)) = aeron.zip(kinds.iter().find(|kind| kind.name == AERON)) {
            players.push((*kind, Player::Java(aeron.open(game, size, cpus)?)));
        }
        punctual_machine::cpu::pin_to(cpus[0])?;
        let mut other = Other::start(game, size, cpus[1])?;
        let ours = kinds.iter().filter(|kind| kind.name != AERON);
        for (number, kind) in ours.enumerate() {
            let failed = |error| format!("{} of {size} B, {}: {error}", kind.name, game.name());
            let meeting = Meeting::new()?;
            let mut pair = open(kind.name, size, &meeting, game == Game::Stream).map_err(failed)?;
            other.tell(&format!("{meeting} {}", kind.name))?;
            other.hear("ready").map_err(failed)?;
            pair.wait_for_peer().map_err(failed)?;
            players.push((*kind, Player::Ours(pair, number)));
        }
        other.tell("")?;
        Ok(Self { game, size, players, other })
    }

    /// A turn of each. Every other round goes backwards, so that nobody always has the same one before.
    pub(crate) fn round(&mut self, number: usize, mut take: impl FnMut(Kind, Outcomes)) -> Outcome<()> {
        let Self { game, size, players, other } = self;
        let last = players.len();
        for turn in 0..last {
            let turn = if number.is_multiple_of(2) { turn } else { last - 1 - turn };
            let (kind, player) = &mut players[turn];
            let plan = kind.plan(*game, *size);
            let played = match player {
                Player::Java(pair) => pair.turn(plan),
                Player::Ours(pair, number) => {
                    other.tell(&number.to_string())?;
                    let played = match game {
                        Game::PingPong => pair.ask(plan).map(Outcomes::Latencies),
                        Game::Stream => pair.write(plan).map(Outcomes::Duration),
                    };
                    played.and_then(|outcomes| other.hear("done").map(|()| outcomes))
                }
            };
            let named = |error| format!("{} of {size} B, {}: {error}", kind.name, game.name());
            take(*kind, played.map_err(named)?);
        }
        Ok(())
    }
}

/// The other process: it plays what it is told to, and ends with its input.
struct Other {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    watcher: Option<std::thread::JoinHandle<()>>,
}

impl Other {
    fn start(game: Game, size: usize, cpu: usize) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["answer", game.name(), &size.to_string(), &cpu.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("a process without output")?);
        let watcher = std::thread::spawn(move || watch(child));
        Ok(Self { input, output, watcher: Some(watcher) })
    }

    fn tell(&mut self, line: &str) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("a process without input")?;
        Ok(writeln!(input, "{line}")?)
    }

    fn hear(&mut self, expected: &str) -> Outcome<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim() {
            said if said == expected => Ok(()),
            said => Err(format!("the other process said {said:?} where {expected:?} was due").into()),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Some(watcher) = self.watcher.take() {
            let _it_ended = watcher.join();
        }
    }
}

/// Ends everything if the other process fails: a process that polls for its answer would poll for ever.
fn watch(mut other: Child) {
    match other.wait() {
        Ok(status) if status.success() => {}
        failed => {
            eprintln!("the other process failed: {failed:?}");
            std::process::exit(1);
        }
    }
}

/// The other process: first a line for each mechanism and an empty one, then the number of one for each turn.
pub(crate) fn answer(game: &str, size: usize, cpu: usize) -> Outcome<()> {
    punctual_machine::signal::end_with_parent();
    punctual_machine::cpu::pin_to(cpu)?;
    let game = Game::parse(game)?;
    let mut lines = std::io::stdin().lines();
    let mut players = Vec::new();
    for line in lines.by_ref() {
        let line = line?;
        let Some((meeting, name)) = line.split_once(' ') else { break };
        let kind = KINDS.into_iter().find(|kind| kind.name == name);
        let kind = kind.ok_or_else(|| format!("unknown kind {name:?}"))?;
        let mut pair = open(name, size, &meeting.parse()?, game == Game::Stream)?;
        pair.wait_for_peer()?;
        println!("ready");
        players.push((kind, pair));
    }
    for line in lines {
        let (kind, pair) = players.get_mut(line?.parse::<usize>()?).ok_or("no such mechanism")?;
        let plan = kind.plan(game, size);
        match game {
            Game::PingPong => pair.answer(plan)?,
            Game::Stream => pair.read(plan)?,
        }
        println!("done");
    }
    Ok(())
}
