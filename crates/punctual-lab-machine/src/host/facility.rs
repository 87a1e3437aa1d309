//! Facilities that Punctual can use, found out by trying.
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};

use super::cpuid;
use punctual_machine::socket::{RECEIVE_BUFFER_SIZE, UdpOptions, UdpSocket};

/// One thing that Punctual makes use of where it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facility {
    /// Its name, one of the constants below.
    pub name: &'static str,
    /// Its state here and now.
    pub state: FacilityState,
}

/// State of a facility: usable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FacilityState {
    /// It was tried and works.
    Available,
    /// It was tried and does not.
    Missing {
        /// Why, and where possible what to do: a lower-case fragment.
        reason: String,
    },
}

impl Facility {
    /// Shared memory files under `/dev/shm`.
    pub const SHARED_MEMORY: &'static str = "shared memory";
    /// `AF_PACKET` sockets: raw Ethernet.
    pub const PACKET_SOCKETS: &'static str = "packet sockets";
    /// A receive buffer as large as a bus over UDP asks for.
    pub const UDP_BUFFERS: &'static str = "udp buffers";
    /// The kernel's tracepoints.
    pub const TRACEFS: &'static str = "tracefs";
    /// The kernel's types, without which BPF programs cannot be placed.
    pub const BTF: &'static str = "btf";
    /// `io_uring`.
    pub const IO_URING: &'static str = "io_uring";
    /// User interrupts (UINTR): processor and kernel.
    pub const USER_INTERRUPTS: &'static str = "user interrupts";
    /// `umwait` and `tpause`: waiting for a memory line without burning power.
    pub const WAITPKG: &'static str = "waitpkg";
}

/// Tries everything. Leaves nothing behind.
pub(super) fn probe() -> Vec<Facility> {
    let waiting = cpuid::waiting();
    let bit = |bit: Option<bool>, what: &str| match bit {
        Some(true) => Ok(()),
        Some(false) => Err(format!("the processor (or its hypervisor) does not offer {what}")),
        None => Err(format!("this processor cannot be asked for {what}")),
    };
    [
        (Facility::SHARED_MEMORY, shared_memory()),
        (Facility::PACKET_SOCKETS, packet_sockets()),
        (Facility::UDP_BUFFERS, udp_buffers()),
        (Facility::TRACEFS, tracefs()),
        (Facility::BTF, btf()),
        (Facility::IO_URING, io_uring()),
        (
            Facility::USER_INTERRUPTS,
            crate::user_interrupt::identify().map(drop).map_err(|missing| missing.to_string()),
        ),
        (Facility::WAITPKG, bit(waiting.map(|(_, waitpkg)| waitpkg), "waitpkg")),
    ]
    .into_iter()
    .map(|(name, tried)| {
        let state = match tried {
            Ok(()) => FacilityState::Available,
            Err(reason) => FacilityState::Missing { reason },
        };
        Facility { name, state }
    })
    .collect()
}

/// A file without a name: it is gone when it is closed.
fn shared_memory() -> Result<(), String> {
    match open("/dev/shm", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(_closed_here) => Ok(()),
        Err(e) => Err(format!("/dev/shm: {}; mount tmpfs there, writable for this user", io::Error::from(e))),
    }
}

fn packet_sockets() -> Result<(), String> {
    match punctual_machine::packet::open_raw() {
        Ok(_closed_here) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Err("needs CAP_NET_RAW: run as root".to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Asks for it and reads it back.
fn udp_buffers() -> Result<(), String> {
    let options = UdpOptions { receive_buffer: Some(RECEIVE_BUFFER_SIZE), ..UdpOptions::default() };
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).map_err(|error| error.to_string())?;
    // The kernel doubles what it is asked for, for its own overhead.
    let given = socket.receive_buffer().map_err(|error| error.to_string())? / 2;
    if given >= RECEIVE_BUFFER_SIZE {
        return Ok(());
    }
    Err(format!(
        "{given} bytes given where {RECEIVE_BUFFER_SIZE} were asked for: `sysctl -w net.core.rmem_max={RECEIVE_BUFFER_SIZE}` as root"
    ))
}

/// Mounted in one of two places, and readable.
fn tracefs() -> Result<(), String> {
    let failed = match first_byte("/sys/kernel/tracing/available_events") {
        Ok(()) => return Ok(()),
        Err(e) => e,
    };
    if first_byte("/sys/kernel/debug/tracing/available_events").is_ok() {
        return Ok(());
    }
    Err(match failed.kind() {
        io::ErrorKind::NotFound => {
            "not mounted: `mount -t tracefs nodev /sys/kernel/tracing` as root".to_owned()
        }
        io::ErrorKind::PermissionDenied => "not readable: run as root".to_owned(),
        _ => failed.to_string(),
    })
}

fn btf() -> Result<(), String> {
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    first_byte(PATH).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => format!("{PATH} is absent: the kernel was built without it"),
        _ => format!("{PATH}: {e}"),
    })
}

fn first_byte(path: &str) -> io::Result<()> {
    File::open(path)?.read_exact(&mut [0])
}

/// Sets up the smallest ring and closes it.
fn io_uring() -> Result<(), String> {
    /// `struct io_uring_params`; all zero asks for the defaults.
    const PARAMS_SIZE: usize = 120;
    let mut params = [0_u64; PARAMS_SIZE / 8];
    // SAFETY: the kernel reads and writes `struct io_uring_params`, of 120 bytes, which `params` is and
    // which is borrowed for the whole call.
    let answer = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, params.as_mut_ptr()) };
    let Ok(fd) = i32::try_from(answer) else { return Err("the kernel answered out of range".to_owned()) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOSYS) => "the kernel was built without it, or a filter hides it".to_owned(),
            Some(libc::EPERM) => "not permitted: see sysctl kernel.io_uring_disabled".to_owned(),
            _ => error.to_string(),
        });
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_facility_says_why() {
        for facility in probe() {
            match facility.state {
                FacilityState::Available => eprintln!("{}: available", facility.name),
                FacilityState::Missing { reason } => {
                    eprintln!("{}: {reason}", facility.name);
                    assert!(!reason.is_empty(), "{}", facility.name);
                }
            }
        }
    }
}
