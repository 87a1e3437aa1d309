//! Code that the suites share: pairs of buses for every medium, and a watchdog.

pub(crate) mod in_memory;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use in_memory::InMemory;
use punctual::{Bus, Communicator, Keys, Node, NodeOptions, OpenError, Subscription, Target, Wake};
use punctual_machine::process::random;
use punctual_machine::signal::end_with_parent;

/// Longer than anything takes that does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

// Every suite uses a part of this file.
const _: () = {
    let _ =
        (own_role, be_a_node_that_idles, ask, watchdog, unique, free_ports, media, ways, open_both, PATIENCE);
    let _ = (Role::start_with, Role::start_by, Role::ended, Role::start, Role::signal, Role::kill, Role::end);
    let _ = (Reachable::new, Reachable::path, open_on, drain, Host::start, Host::run::<(), fn()>);
    let _ = (InMemory::cut, itself, Dice::below, Dice::pause, Medium::fields, Medium::sealed);
    let _: fn(fn(&Medium)) = on_every_medium;
    let _ = (within::<std::future::Ready<()>>, reopen, rounds_factor);
};

/// Factor by which a test is to go on longer: `cargo xtask soak` asks for more until a planted fault shows.
pub(crate) fn rounds_factor() -> u64 {
    std::env::var("PUNCTUAL_ROUNDS_FACTOR").map_or(1, |factor| factor.parse().unwrap())
}

/// Ends the process if a test hangs: a lost wake-up must fail, not wait for CI's patience.
pub(crate) fn watchdog(seconds: u64) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel::<()>();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test}: nothing for {seconds} s: hangs");
            std::process::exit(101);
        }
    });
    alive
}

/// A bus name that no other test has.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:x}", random() & 0xFFFF_FFFF)
}

/// Two ports of this host that are free. The kernel gives ports from 32768 on to a program that asks for any: one of those could be
/// somebody else's by the time it is opened. So could one that another test of this program was given and has not opened yet: no port
/// is given twice.
pub(crate) fn free_ports() -> (SocketAddr, SocketAddr) {
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut free = || {
        let candidate = || SocketAddr::from(([127, 0, 0, 1], (10_000 + random() % 22_768) as u16));
        let is_free = |&address: &SocketAddr| given.insert(address) && UdpSocket::bind(address).is_ok();
        std::iter::repeat_with(candidate).take(1_000).find(is_free)
    };
    (free().expect("a free port"), free().expect("another"))
}

/// A copy of this program that every user may run: the build's folder may be closed to them.
pub(crate) struct Reachable(PathBuf);

impl Reachable {
    pub(crate) fn new() -> Self {
        let copy = std::env::temp_dir().join(unique("punctual-test"));
        // By another process: children that other tests start meanwhile would inherit a file that is open for writing, and while
        // they have it nobody can run it.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()));
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(copy)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// One medium, with the bus by which each of two nodes opens it.
pub(crate) struct Medium {
    pub(crate) name: &'static str,
    pub(crate) here: Bus,
    pub(crate) there: Bus,
    /// True if senders ring the doorbell, so that futex and eventfd can wait.
    pub(crate) rings: bool,
    /// True if it is memory, which senders look into themselves: of an adapter's medium they know nothing.
    pub(crate) in_memory: bool,
}

impl Medium {
    /// The same with a seal on every frame.
    pub(crate) fn sealed(&self, keys: &Keys) -> Self {
        let [here, there] = [&self.here, &self.there].map(|bus| bus.clone().sealed(keys));
        Self { here, there, ..*self }
    }

    fn fields(&self) -> (&'static str, bool, bool) {
        (self.name, self.rings, self.in_memory)
    }
}

/// Pseudo-random numbers (xorshift64, Marsaglia 2003), the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Lets some time pass: mostly none, often less than a wake-up takes, now and then enough for the other to sleep.
    pub(crate) fn pause(&mut self) {
        match self.below(16) {
            0 => std::thread::sleep(Duration::from_micros(self.below(100))),
            1..=6 => (0..self.below(2_000)).for_each(|_| std::hint::spin_loop()),
            7 => std::thread::yield_now(),
            _ => {}
        }
    }
}

/// Sends numbers one after the other, with pauses, each when the one before has come back.
pub(crate) fn ask(mut from: Communicator, target: Target, count: u64, seed: u64) {
    let mut dice = Dice(seed);
    for number in 0..count {
        from.send_timeout(target, &number.to_le_bytes(), PATIENCE).unwrap();
        let back = from.receive_timeout(PATIENCE).unwrap_or_else(|_| panic!("{number} was slept over"));
        assert_eq!(back.payload, number.to_le_bytes());
        dice.pause();
    }
}

/// Output of the future, if it was done at its first so many polls.
pub(crate) async fn within<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// A node where one may just have closed. A child that another test starts inherits its socket, and keeps the port taken until
/// it runs its own program: until then this waits.
pub(crate) fn reopen(options: &NodeOptions, bus: &Bus) -> Node {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match options.open(bus) {
            Err(OpenError::System { error, .. })
                if error.source.kind() == ErrorKind::AddrInUse && Instant::now() < give_up =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

pub(crate) fn open_both(medium: &Medium) -> (Node, Node) {
    let [here, there] = ["here", "there"].map(NodeOptions::new);
    (reopen(&here, &medium.here), reopen(&there, &medium.there))
}

/// Two nodes of one bus.
pub(crate) fn open_on(bus: &Bus) -> (Node, Node) {
    (Node::open(bus, "here").unwrap(), Node::open(bus, "there").unwrap())
}

/// Number of messages that a subscription has now.
pub(crate) fn drain(subscription: &mut Subscription) -> usize {
    std::iter::from_fn(|| Some(subscription.poll(64, |_| ())).filter(|count| *count > 0)).sum()
}

pub(crate) fn on_every_medium(check: impl Fn(&Medium) + Send + Sync) {
    for medium in media() {
        eprintln!("on {}", medium.name);
        check(&medium);
    }
    on_ethernet(|medium| {
        eprintln!("on {}", medium.name);
        check(medium);
    });
}

/// Every medium that needs no privilege.
pub(crate) fn media() -> Vec<Medium> {
    let same =
        |name, bus: Bus, rings, in_memory| Medium { name, here: bus.clone(), there: bus, rings, in_memory };
    let (a, b) = free_ports();
    let group = SocketAddr::new([239, 255, 80, 85].into(), free_ports().0.port());
    let mut media = vec![
        same("loopback", Bus::loopback(&unique("test")), true, true),
        same("shared", Bus::shared(&unique("test")), true, true),
        Medium {
            name: "udp",
            here: Bus::peers(a, &[b]),
            there: Bus::peers(b, &[a]),
            rings: false,
            in_memory: false,
        },
        same("multicast", Bus::multicast(group, [127, 0, 0, 1].into()), false, false),
        same("adapted", Bus::adapted(InMemory::default()), true, false),
    ];
    media.retain(|medium| is_here(medium.name));
    media
}

/// True if a medium is to be tried. An emulator that lacks one says so by `PUNCTUAL_TEST_WITHOUT` (`cargo xtask arm64`).
pub(crate) fn is_here(medium: &str) -> bool {
    let without = std::env::var("PUNCTUAL_TEST_WITHOUT").unwrap_or_default();
    let is_left_out = without.split(',').any(|name| name == medium);
    if is_left_out {
        punctual_machine::skipped!("{medium}: PUNCTUAL_TEST_WITHOUT names it");
    }
    !is_left_out
}

/// A command that runs this program again: by the emulator of `PUNCTUAL_TEST_RUNNER`, where one runs it.
pub(crate) fn itself() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("PUNCTUAL_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else { return Command::new(program) };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}

/// The ways of waiting that a medium allows.
pub(crate) fn ways(rings: bool) -> impl Iterator<Item = Wake> {
    Wake::ALL.into_iter().filter(move |wake| wake.can_wait_for(rings))
}

/// The role of this process, and on which bus, if it is not the one that tests: it ends with that one.
pub(crate) fn own_role() -> Option<(String, String)> {
    let of = |name| std::env::var(name).ok();
    let own = of("PUNCTUAL_TEST_ROLE").zip(of("PUNCTUAL_TEST_BUS"))?;
    end_with_parent();
    Some(own)
}

/// In a role: a node that does nothing until its process is killed.
pub(crate) fn be_a_node_that_idles() {
    let Some((name, bus)) = own_role() else { return };
    let _node = Node::open(&Bus::shared(&bus), &name).unwrap();
    loop {
        std::thread::park();
    }
}

/// Another process in a role, this binary's test `role`; it ends with us.
pub(crate) struct Role(Child);

impl Role {
    pub(crate) fn start(role: &str, bus: &str) -> Self {
        Self::start_with(role, bus, &[])
    }

    /// With more variables in its environment.
    pub(crate) fn start_with(role: &str, bus: &str, more: &[(&str, String)]) -> Self {
        Self::spawn(itself(), role, bus, more)
    }

    /// By way of other programs that start it, and end it when they end.
    pub(crate) fn start_by(way: &[&str], program: &Path, role: &str, bus: &str) -> Self {
        let Some((first, rest)) = way.split_first() else {
            return Self::spawn(Command::new(program), role, bus, &[]);
        };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        Self::spawn(command, role, bus, &[])
    }

    fn spawn(mut command: Command, role: &str, bus: &str, more: &[(&str, String)]) -> Self {
        command.args(["role", "--exact", "--nocapture", "--quiet", "--test-threads=1"]);
        command.env("PUNCTUAL_TEST_ROLE", role).env("PUNCTUAL_TEST_BUS", bus);
        command.envs(more.iter().map(|(name, value)| (name, value)));
        Self(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(
            Command::new("sh").args(["-c", "kill \"$@\"", "kill", name, &pid]).status().unwrap().success()
        );
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub(crate) fn end(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}

/// Runs `work` with two ends of an Ethernet segment in namespaces of their own, or says loudly why not.
pub(crate) fn on_ethernet(work: impl FnOnce(&Medium) + Send) {
    use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
    if !is_here("ethernet") {
        return;
    }
    std::thread::scope(|scope| {
        let prepared = scope.spawn(move || {
            unshare_network()?;
            create_veth("pta", "ptb", thread_id())?;
            bring_up("lo")?;
            bring_up("pta")?;
            bring_up("ptb")?;
            work(&Medium {
                name: "ethernet",
                here: Bus::ethernet("pta"),
                there: Bus::ethernet("ptb"),
                rings: false,
                in_memory: false,
            });
            Ok::<(), punctual_machine::SystemError>(())
        });
        match prepared.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) if cannot_be(&error) => punctual_machine::skipped!("raw Ethernet: {error}"),
            Ok(Err(error)) => panic!("raw Ethernet: {error}"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
}

/// True if we lack the privilege for a segment of our own, or the kernel has no such thing.
fn cannot_be(error: &punctual_machine::SystemError) -> bool {
    let lacks = ["Operation not supported", "Unknown device type", "Invalid argument (os error 22)"];
    let text = error.to_string();
    error.kind() == ErrorKind::PermissionDenied || lacks.iter().any(|lack| text.contains(lack))
}

type Job = Box<dyn FnOnce() + Send>;

/// A host of its own: a thread that does what it is told, in a network namespace if it has left for one.
pub(crate) struct Host(mpsc::Sender<Job>);

impl Host {
    pub(crate) fn start() -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || inbox.into_iter().for_each(|job| job()));
        Self(jobs)
    }

    pub(crate) fn run<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(&self, work: W) -> T {
        let (answer, answers) = mpsc::channel();
        self.0.send(Box::new(move || answer.send(work()).unwrap())).unwrap();
        answers.recv().unwrap()
    }
}
