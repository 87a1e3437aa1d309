//! Two sites in network namespaces of their own, and the wire between them, which is slow and loses.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use punctual_lab_machine::tap::Tap;
use punctual_lab_machine::xdp::{Damage, DamagePlan, Damaged, Traffic};
use punctual_machine::SystemError;
use punctual_machine::namespace::{add_address, bring_up, unshare_network};

use crate::rig::later;

/// Name of the interface of a site to the other.
const WIRE: &str = "wire";
/// IPv4 in Ethernet.
const IPV4: u16 = 0x0800;
/// The largest frame of an interface with 1,500 bytes of payload, and room.
const FRAME_SIZE_MAX: usize = 2_048;

type Act = Box<dyn FnOnce() + Send>;

/// A site: a network namespace, kept by a thread that does in it what it is given.
#[derive(Debug)]
pub struct Place {
    acts: mpsc::Sender<Act>,
    tap: Arc<Tap>,
    damage: Damage,
}

impl Place {
    fn new(address: &'static str, seed: u64, loss_ppm: u32) -> Result<Self, SystemError> {
        let (acts, given) = mpsc::channel::<Act>();
        let (say, made) = mpsc::channel();
        std::thread::spawn(move || {
            let _nobody_waits = say.send(furnish(address, seed, loss_ppm));
            given.into_iter().for_each(|act| act());
        });
        let (tap, damage) = made.recv().expect("the thread says")?;
        Ok(Self { acts, tap: Arc::new(tap), damage })
    }

    /// Does something there: processes that it starts, and sockets that its thread opens, are in this site's network.
    ///
    /// # Panics
    /// If what is done panics.
    pub fn within<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, done) = mpsc::channel();
        let act = Box::new(move || drop(say.send(act())));
        self.acts.send(act).expect("the thread lives as long as this");
        done.recv().expect("the work that is done there ends")
    }

    /// Packets that came by the wire, and those of them that were lost.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn came(&self) -> Result<Damaged, SystemError> {
        self.damage.counts().map(|counts| counts[0])
    }
}

/// Moves this thread into a new namespace, with the end of a wire.
fn furnish(address: &str, seed: u64, loss_ppm: u32) -> Result<(Tap, Damage), SystemError> {
    unshare_network()?;
    bring_up("lo")?;
    let tap = Tap::create(WIRE)?;
    add_address(WIRE, &format!("{address}/24"))?;
    bring_up(WIRE)?;
    let traffic = Traffic::Ethernet(IPV4);
    // No bit of any payload divides packets into two classes.
    let plan = DamagePlan { traffic, seed, loss_ppm, corruption_ppm: 0, class: (0, 0) };
    let damage = Damage::attach(WIRE, &plan)?;
    Ok((tap, damage))
}

/// Returns true if this error keeps an ordinary user from two sites: the kernel refuses it, or has no such call. For root it is an
/// error.
pub fn is_refused(error: &SystemError, user: u32) -> bool {
    let refusals = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
    user != 0 && refusals.contains(&error.kind())
}

/// Two sites, which have these addresses. Frames take `delay` from one to the other, in user space; of a million IPv4 packets
/// `loss_ppm` are lost where they arrive, in the kernel, by a seed. All of it lasts as long as the process.
///
/// # Errors
/// Needs root.
pub fn two_sites(
    addresses: [&'static str; 2],
    delay: Duration,
    loss_ppm: u32,
) -> Result<[Place; 2], SystemError> {
    let [one, two] = addresses;
    let places = [Place::new(one, 1, loss_ppm)?, Place::new(two, 2, loss_ppm)?];
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (Arc::clone(&places[from].tap), Arc::clone(&places[to].tap));
        std::thread::spawn(move || {
            let way = later(move |frame| drop(to.write(frame)));
            let mut frame = [0; FRAME_SIZE_MAX];
            while let Ok(size) = from.read(&mut frame) {
                let _ended = way.send((Instant::now() + delay, frame[..size].to_vec()));
            }
        });
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    /// Goal: an error in a scene is not taken for a machine that cannot have it.
    #[test]
    fn only_a_refusal_is_one() {
        let of = |code, user| {
            is_refused(&SystemError::new("unshare", "network", Error::from_raw_os_error(code)), user)
        };
        // EPERM, EACCES, ENOSYS.
        for code in [1, 13, 38] {
            assert!(of(code, 1_000), "{code}");
            assert!(!of(code, 0), "{code}, as root");
        }
        // EBUSY, EINVAL, ENOSPC.
        for code in [16, 22, 28] {
            assert!(!of(code, 1_000), "{code}");
        }
    }
}
