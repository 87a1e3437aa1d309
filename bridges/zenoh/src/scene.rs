//! Two sites on one bus: nodes by two routers, what they say to each other, and what must sum.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use punctual::{Communicator, Keys, Node, NodeId, OpenError, SendError, Target};

use crate::ZenohBus;
use crate::told::Told;

/// The port of every component.
const PORT: u16 = 1;

/// A request to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To send to everybody else by name, and once to all, so many times, with so many milliseconds between, and to take what has come.
    Talk(u32, u64),
    /// To say how far it is, and to take what has come.
    Keep,
}

/// Its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its messages meanwhile.
    pub said: Said,
    /// Its part of everybody's accounts.
    pub sum: Sum,
    /// Number of others that are there, as far as it knows.
    pub present: u64,
    /// Members whose ledger is not balanced.
    pub unbalanced: u64,
}

impl Answer {
    fn numbers(&self) -> [u64; 9] {
        let Self { said, sum, present, unbalanced } = *self;
        let (Said { meant, delivered, refused }, Sum { arrived, lost, missing, sent }) = (said, sum);
        [meant, delivered, refused, arrived, lost, missing, sent, present, unbalanced]
    }

    fn of_numbers(numbers: [u64; 9]) -> Self {
        let [meant, delivered, refused, arrived, lost, missing, sent, present, unbalanced] = numbers;
        let (said, sum) = (Said { meant, delivered, refused }, Sum { arrived, lost, missing, sent });
        Self { said, sum, present, unbalanced }
    }
}

impl AddAssign for Answer {
    fn add_assign(&mut self, other: Self) {
        let mut numbers = self.numbers();
        numbers.iter_mut().zip(other.numbers()).for_each(|(own, other)| *own += other);
        *self = Self::of_numbers(numbers);
    }
}

/// Messages between members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Messages that were taken, times those they are for.
    pub meant: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Messages that were refused, because nobody was there.
    pub refused: u64,
}

/// Frames that members sent each other, as far as they may know it: arrived, lost, still missing, and all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames that never will.
    pub lost: u64,
    /// Frames that may still.
    pub missing: u64,
    /// Frames that were sent.
    pub sent: u64,
}

impl Sum {
    /// Returns true if every frame is in one place.
    pub fn is_whole(&self) -> bool {
        self.arrived + self.lost + self.missing == self.sent
    }

    /// Its growth. A frame that was missing then and is lost by now counts as lost then.
    fn since(self, before: Self) -> Self {
        let lost = self.lost - before.lost;
        let lost_since = lost.saturating_sub(before.missing);
        Self {
            arrived: self.arrived - before.arrived,
            lost: lost_since,
            missing: (self.missing + lost).saturating_sub(before.missing + lost_since),
            sent: self.sent - before.sent,
        }
    }
}

/// One of those who talk, in this process or another.
pub trait Member: Send {
    /// Does what it is asked.
    ///
    /// # Errors
    /// If it has ended.
    fn answer(&mut self, ask: Ask) -> Result<Answer, String>;
}

/// A node of this process, with its component.
#[derive(Debug)]
pub struct Own {
    /// The node.
    pub node: Node,
    component: Communicator,
    name: String,
    others: Vec<String>,
}

impl Own {
    /// Opens one, once its router answers.
    ///
    /// # Errors
    /// The error of [`punctual::Bus`] after `patience`.
    ///
    /// # Panics
    /// Never: the port is free.
    pub fn open(
        bus: &ZenohBus,
        keys: &Keys,
        name: &str,
        all: &[String],
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let give_up = Instant::now() + patience;
        let bus = bus.clone().bus().sealed(keys);
        loop {
            match Node::open(&bus, name) {
                Ok(node) => {
                    let component = node.bind(PORT).expect("the port is free");
                    let others = all.iter().filter(|other| *other != name).cloned().collect();
                    return Ok(Self { node, component, name: name.to_owned(), others });
                }
                Err(OpenError::Medium(_)) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn talk(&mut self, rounds: u32, pause_ms: u64) -> Said {
        let mut said = Said::default();
        for round in 0..rounds {
            let targets = self.others.iter().map(|name| Target::port(&**name, PORT));
            for target in targets.chain([Target::EVERYONE]) {
                let count = if target.node.is_some() { 1 } else { self.others.len() as u64 };
                match self.component.try_send(target, &round.to_le_bytes()) {
                    Ok(()) => said.meant += count,
                    Err(SendError::Unreachable | SendError::Full) => said.refused += 1,
                    Err(error) => panic!("{}: {error}", self.name),
                }
            }
            said.delivered += self.take();
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        said
    }

    fn take(&mut self) -> u64 {
        std::iter::from_fn(|| self.component.try_receive().is_ok().then_some(())).count() as u64
    }

    fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        let peers = self.node.peers();
        for other in self.others.iter().map(|name| NodeId::named(name)) {
            sum.sent += self.node.sent_to(Some(other)) + self.node.sent_to(None);
            for peer in peers.iter().filter(|peer| peer.node == other) {
                sum.arrived += peer.arrived;
                sum.lost += peer.lost;
                sum.missing += peer.missing;
            }
        }
        sum
    }
}

impl Own {
    /// Frames that arrived from members of the other site: those whose names begin otherwise.
    fn arrived_from_far(&self) -> u64 {
        let is_far = |other: &&String| other.chars().next() != self.name.chars().next();
        let far: Vec<NodeId> = self.others.iter().filter(is_far).map(|name| NodeId::named(name)).collect();
        self.node.peers().iter().filter(|peer| far.contains(&peer.node)).map(|peer| peer.arrived).sum()
    }
}

impl Member for Own {
    fn answer(&mut self, ask: Ask) -> Result<Answer, String> {
        let mut said = match ask {
            Ask::Talk(rounds, pause_ms) => self.talk(rounds, pause_ms),
            Ask::Keep => {
                std::thread::sleep(Duration::from_millis(50));
                Said::default()
            }
        };
        self.node.housekeep();
        said.delivered += self.take();
        Ok(Answer {
            said,
            sum: self.sum(),
            present: self.node.peers().iter().filter(|peer| peer.present).count() as u64,
            unbalanced: u64::from(!self.node.ledger().is_balanced()),
        })
    }
}

/// A member in another process, which runs [`answer_line`].
#[derive(Debug)]
pub struct Elsewhere(pub Told);

impl Elsewhere {
    /// Number of frames that arrived from the other site, and the member's ledger, as text.
    ///
    /// # Errors
    /// If it has ended.
    pub fn ledger(&mut self) -> Result<(u64, String), String> {
        let line = self.0.ask("ledger")?;
        let (far, ledger) = line.split_once(' ').ok_or_else(|| format!("not a ledger: {line:?}"))?;
        let far = far.parse().map_err(|_| format!("not a ledger: {line:?}"))?;
        Ok((far, ledger.to_owned()))
    }
}

impl Member for Elsewhere {
    fn answer(&mut self, ask: Ask) -> Result<Answer, String> {
        let line = match ask {
            Ask::Talk(rounds, pause_ms) => self.0.ask(&format!("talk {rounds} {pause_ms}")),
            Ask::Keep => self.0.ask("keep"),
        }?;
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let numbers = numbers.try_into().map_err(|_| format!("not an answer: {line:?}"))?;
        Ok(Answer::of_numbers(numbers))
    }
}

/// A member's answer to a line.
///
/// # Errors
/// If the line is none of those that are said to members.
pub fn answer_line(member: &mut Own, line: &str) -> Result<String, String> {
    let ask = match line.split(' ').collect::<Vec<_>>()[..] {
        ["ledger"] => return Ok(format!("{} {}", member.arrived_from_far(), member.node.ledger())),
        ["keep"] => Ask::Keep,
        ["talk", rounds, pause_ms] => match (rounds.parse(), pause_ms.parse()) {
            (Ok(rounds), Ok(pause_ms)) => Ask::Talk(rounds, pause_ms),
            _ => return Err(format!("no numbers: {line:?}")),
        },
        _ => return Err(format!("nothing to do: {line:?}")),
    };
    let words = member.answer(ask)?.numbers().map(|number| number.to_string());
    Ok(words.join(" "))
}

/// Asks all of them at once, and adds their answers.
///
/// # Errors
/// If one has ended.
///
/// # Panics
/// If one panics.
pub fn each<M: Member>(members: &mut [M], ask: Ask) -> Result<Answer, String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            members.iter_mut().map(|member| scope.spawn(move || member.answer(ask))).collect();
        let mut all = Answer::default();
        for answer in asked {
            all += answer.join().expect("a member answers")?;
        }
        Ok(all)
    })
}

/// Returns true if everybody reaches everybody else by name and hears of it, within `patience`.
///
/// # Errors
/// If one has ended.
pub fn all_reach_all<M: Member>(members: &mut [M], patience: Duration) -> Result<bool, String> {
    let pairs = (members.len() * (members.len() - 1)) as u64;
    let give_up = Instant::now() + patience;
    while Instant::now() < give_up {
        let all = each(members, Ask::Talk(1, 1))?;
        if all.said.refused == 0 && all.present == pairs {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(false)
}

/// Lets everybody say how far it is, twice, and takes what comes. The sum is exact from then on.
///
/// # Errors
/// If one has ended.
pub fn quiet<M: Member>(members: &mut [M]) -> Result<Sum, String> {
    let end = Instant::now() + Duration::from_millis(2_500);
    loop {
        let all = each(members, Ask::Keep)?;
        if Instant::now() >= end {
            return Ok(all.sum);
        }
    }
}

/// Time without an arrival after which missing frames are taken to stay missing: a stream knows its loss when more of it comes.
const COMES_NO_MORE: Duration = Duration::from_secs(2);

/// The growth of the sum since `before`, once every frame is in one place, every ledger balanced, and none missing that comes yet; or
/// as it is after `patience`; and how many messages were delivered meanwhile.
///
/// # Errors
/// If one has ended.
pub fn settled<M: Member>(members: &mut [M], before: Sum, patience: Duration) -> Result<(Sum, u64), String> {
    let give_up = Instant::now() + patience;
    let (mut taken, mut last, mut last_changed) = (0, Sum::default(), Instant::now());
    loop {
        let Answer { said, sum: now, unbalanced, .. } = each(members, Ask::Keep)?;
        taken += said.delivered;
        let since = now.since(before);
        if since != last {
            (last, last_changed) = (since, Instant::now());
        }
        let is_all = since.missing == 0 || last_changed.elapsed() >= COMES_NO_MORE;
        if since.is_whole() && unbalanced == 0 && is_all || Instant::now() >= give_up {
            return Ok((since, taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says one sum after the other, and the last again and again.
    struct Scripted(Vec<Sum>);

    impl Member for Scripted {
        fn answer(&mut self, _: Ask) -> Result<Answer, String> {
            let sum = if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] };
            Ok(Answer { sum, ..Answer::default() })
        }
    }

    fn sum(arrived: u64, lost: u64, missing: u64, sent: u64) -> Sum {
        Sum { arrived, lost, missing, sent }
    }

    fn grown(before: Sum, script: &[Sum]) -> Sum {
        let mut members = [Scripted(script.to_vec())];
        settled(&mut members, before, Duration::from_secs(30)).unwrap().0
    }

    /// Goal: missing messages are waited for, and are not called lost if they stay missing.
    #[test]
    fn missing_messages_are_waited_for() {
        let comes = grown(Sum::default(), &[sum(8, 0, 2, 10), sum(9, 0, 1, 10), sum(9, 1, 0, 10)]);
        assert_eq!(comes, sum(9, 1, 0, 10));
        let stays = grown(Sum::default(), &[sum(8, 0, 2, 10), sum(9, 0, 1, 10)]);
        assert_eq!(stays, sum(9, 0, 1, 10));
    }

    /// Goal: messages that were missing before are nobody's loss since; all sums are whole.
    #[test]
    fn messages_missing_before_are_no_loss_since() {
        let before = sum(90, 7, 3, 100);
        for (now, since) in [
            (sum(100, 10, 0, 110), sum(10, 0, 0, 10)),
            (sum(100, 7, 3, 110), sum(10, 0, 0, 10)),
            (sum(99, 8, 3, 110), sum(9, 0, 1, 10)),
            (sum(98, 11, 1, 110), sum(8, 1, 1, 10)),
        ] {
            assert_eq!(now.since(before), since);
            assert!(since.is_whole());
        }
    }
}
