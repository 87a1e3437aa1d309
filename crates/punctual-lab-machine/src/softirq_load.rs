//! Interrupts made on purpose: packets whose delivery keeps one CPU in the kernel's deferred work.
//!
//! Frames go over a veth pair in a network namespace of its own. The receiving end hands them to the CPU that is to be kept busy
//! (receive packet steering), where each runs through long filters. Another CPU sends them, and sleeps between them: the sender of the
//! flood is no neighbour of the thread that is kept waiting.
//!
//! # Rules of access
//! The kernel copies a filter while it is attached: nothing here is used afterwards.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::{allowed, pin_to};
use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
use punctual_machine::packet::{PacketOptions, PacketSender, PacketSocket};
use rustix::event::{PollFd, PollFlags, poll};

/// Both ends of the pair, in one namespace.
const INTERFACES: [&str; 2] = ["load0", "load1"];

/// Reserved for experiments on a network of one's own (IEEE 802, local experimental 2).
const ETHERTYPE: u16 = 0x88b6;

/// Mask of the CPUs to which the receiving ends of new interfaces of this namespace hand their packets (Linux 6.2).
const STEERING: &str = "/proc/sys/net/core/rps_default_mask";

/// Steps of a filter: a few less than the kernel allows (`BPF_MAXINSNS`). Each draws a random number, which takes some nanoseconds on
/// every processor.
const STEPS: usize = 4000;
const DRAW: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// `SKF_AD_OFF + SKF_AD_RANDOM`.
const RANDOM: u32 = 0xffff_f000 + 56;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Sockets that filter each packet: some hundred microseconds a packet, so that sending takes a small part of it.
const SOCKETS: usize = 3;

/// Packets on their way at once: as many as keep the CPU busy while the sender is woken.
const WINDOW: usize = 8;

/// Bytes of a packet's payload: the least that Ethernet carries.
const PAYLOAD_SIZE: usize = 46;

/// A packet that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(2);

/// From when to when it was so, instants of `CLOCK_MONOTONIC`.
pub type Kept = Result<(u64, u64), SystemError>;

/// Keeps one CPU in the kernel's deferred work whenever it is asked to. Everything ends when it is dropped.
#[derive(Debug)]
pub struct SoftirqLoad {
    orders: Option<SyncSender<u64>>,
    done: Receiver<Kept>,
    sender: Option<JoinHandle<()>>,
}

impl SoftirqLoad {
    /// Of this CPU.
    ///
    /// # Errors
    /// It needs `CAP_SYS_ADMIN`, `CAP_NET_RAW`, a kernel with receive packet steering, and a second CPU.
    pub fn of(cpu: usize) -> Result<Self, SystemError> {
        let (orders, asked) = sync_channel::<u64>(0);
        let (answer, done) = sync_channel(0);
        let (opened, is_open) = sync_channel(0);
        let send = move || {
            let mut ends = match Ends::open(cpu) {
                Ok(ends) => ends,
                Err(error) => return drop(opened.send(Err(error))),
            };
            if opened.send(Ok(())).is_err() {
                return;
            }
            while let Ok(until_ns) = asked.recv() {
                if answer.send(ends.keep_until(until_ns)).is_err() {
                    return;
                }
            }
        };
        let failed = |error| SystemError::new("start", "a thread", error);
        let sender = std::thread::Builder::new().name("flood".to_owned()).spawn(send).map_err(failed)?;
        is_open.recv().map_err(|_| failed(io::Error::other("it failed")))??;
        Ok(Self { orders: Some(orders), done, sender: Some(sender) })
    }

    /// Keeps it there until an instant of `CLOCK_MONOTONIC`, and returns when the last packet is through.
    ///
    /// # Errors
    /// Packets do not come through.
    pub fn keep_until(&self, until_ns: u64) -> Kept {
        let failed = || SystemError::new("wait for", "the flooding thread", io::Error::other("it failed"));
        self.orders.as_ref().ok_or_else(failed)?.send(until_ns).map_err(|_| failed())?;
        self.done.recv().map_err(|_| failed())?
    }
}

impl Drop for SoftirqLoad {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ended = self.sender.take().map(JoinHandle::join);
    }
}

/// Both ends of the pair, with the sockets that filter.
struct Ends {
    sender: PacketSender,
    /// Tells when a packet is through.
    last: PacketSocket,
    /// They filter, and keep nothing.
    _others: Vec<PacketSocket>,
}

impl Ends {
    /// In a new namespace of the calling thread.
    fn open(cpu: usize) -> Result<Self, SystemError> {
        let elsewhere = allowed().into_iter().find(|&other| other != cpu);
        let elsewhere = elsewhere.ok_or_else(|| {
            SystemError::new("flood", format!("CPU {cpu}"), io::Error::other("a second CPU is needed"))
        })?;
        pin_to(elsewhere)?;
        unshare_network()?;
        fs::write(STEERING, mask(cpu)).map_err(|error| SystemError::new("write", STEERING, error))?;
        create_veth(INTERFACES[0], INTERFACES[1], thread_id())?;
        INTERFACES.into_iter().try_for_each(bring_up)?;
        let options = PacketOptions { frames: 4 * WINDOW, send_frames: WINDOW, ..PacketOptions::default() };
        let receiver = |keeps: u32| {
            let socket = PacketSocket::open(INTERFACES[1], ETHERTYPE, &options)?;
            attach(socket.as_fd(), keeps)
                .map_err(|error| SystemError::new("filter packets of", INTERFACES[1], error))?;
            Ok(socket)
        };
        let others = (1..SOCKETS).map(|_| receiver(0)).collect::<Result<Vec<_>, SystemError>>()?;
        let sender = PacketSocket::open(INTERFACES[0], ETHERTYPE, &options)?.sender;
        Ok(Self { sender, last: receiver(u32::MAX)?, _others: others })
    }

    fn keep_until(&mut self, until_ns: u64) -> Kept {
        let from_ns = monotonic_ns();
        let mut outstanding = 0;
        while outstanding > 0 || monotonic_ns() < until_ns {
            while outstanding < WINDOW && monotonic_ns() < until_ns {
                self.send()?;
                outstanding += 1;
            }
            self.wait()?;
            while self.last.receiver.recv().is_some() {
                self.last.receiver.release();
                outstanding -= 1;
            }
        }
        Ok((from_ns, monotonic_ns()))
    }

    fn send(&mut self) -> Result<(), SystemError> {
        let to = self.last.mac();
        if let Some(payload) = self.sender.claim(PAYLOAD_SIZE) {
            payload.fill(0);
            self.sender.commit(to);
        }
        self.sender.flush().map_err(|error| SystemError::new("send by", INTERFACES[0], error))
    }

    fn wait(&self) -> Result<(), SystemError> {
        let failed = |error: io::Error| SystemError::new("wait for packets of", INTERFACES[1], error);
        let timeout =
            rustix::event::Timespec::try_from(PATIENCE).map_err(|error| failed(io::Error::other(error)))?;
        match poll(&mut [PollFd::new(&self.last, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(failed(io::Error::from(io::ErrorKind::TimedOut))),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// A mask with the bit of one CPU, in groups of 32 bits as the kernel reads it.
fn mask(cpu: usize) -> String {
    let zeroes = ",00000000".repeat(cpu / 32);
    format!("{:x}{zeroes}", 1_u32 << (cpu % 32))
}

/// Attaches a long filter that keeps so many bytes of each packet, in place of the one that is there.
fn attach(fd: BorrowedFd<'_>, keeps: u32) -> io::Result<()> {
    let step = |code: u16, k: u32| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut program = vec![step(DRAW, RANDOM); STEPS];
    program.push(step(RETURN, keeps));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the option is read from a live structure of the size that is stated; it points to as many live steps as it says, and
    // the kernel copies them within the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_the_bit_of_the_cpu() {
        let masks = [0, 1, 31, 32, 70].map(mask);
        assert_eq!(masks, ["1", "2", "80000000", "1,00000000", "40,00000000,00000000"]);
    }

    /// Receiving softirqs of a CPU so far.
    fn received(cpu: usize) -> u64 {
        let text = fs::read_to_string("/proc/softirqs").expect("proc is mounted");
        let line = text.lines().find(|line| line.trim_start().starts_with("NET_RX:")).expect("a row");
        line.split_whitespace().nth(1 + cpu).and_then(|count| count.parse().ok()).expect("a column")
    }

    /// Goal: the CPU that is asked for does the work, for as long as it is asked.
    #[test]
    fn the_cpu_that_is_asked_for_is_kept_busy() {
        let cpu = *allowed().last().expect("one");
        let load = match SoftirqLoad::of(cpu) {
            Ok(load) => load,
            Err(error) => return punctual_machine::skipped!("{error}"),
        };
        for _ in 0..2 {
            let (before, until_ns) = (received(cpu), monotonic_ns() + 30_000_000);
            let (from_ns, to_ns) = load.keep_until(until_ns).expect("packets come through");
            assert!(from_ns < until_ns && to_ns >= until_ns);
            assert!(received(cpu) > before);
        }
    }
}
