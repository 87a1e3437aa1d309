//! Properties of an interface: its index, address and MTU, asked once.
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketType};

use crate::SystemError;

/// An interface as the kernel knows it.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: libc::c_int,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The largest packet that it carries, bytes, without the Ethernet header.
    pub mtu: usize,
}

impl Interface {
    /// Asks the kernel by any socket.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn find(fd: BorrowedFd<'_>, name: &str) -> Result<Self, SystemError> {
        let failed = |operation| move |e| SystemError::new(operation, name, e);
        let index = query(fd, name, libc::SIOCGIFINDEX).map_err(failed("find interface"))?;
        let mtu = query(fd, name, libc::SIOCGIFMTU).map_err(failed("read mtu of"))?;
        let hardware = query(fd, name, libc::SIOCGIFHWADDR).map_err(failed("read mac of"))?;
        // SAFETY: the kernel filled the union member that belongs to the request. Every byte of the union was zeroed before, so each of
        // these plain members is initialised.
        let (index, mtu, address) =
            unsafe { (index.ifr_ifru.ifru_ifindex, mtu.ifr_ifru.ifru_mtu, hardware.ifr_ifru.ifru_hwaddr) };
        let mut mac = [0; 6];
        for (target, source) in mac.iter_mut().zip(address.sa_data) {
            [*target] = source.to_ne_bytes();
        }
        let mtu =
            usize::try_from(mtu).map_err(|_| failed("read mtu of")(io::ErrorKind::InvalidData.into()))?;
        Ok(Self { name: name.to_owned(), index, mac, mtu })
    }
}

impl Interface {
    /// True if the interface of that name has a link: without one its device sends nothing, however long one waits.
    pub(crate) fn is_running(fd: BorrowedFd<'_>, name: &str) -> bool {
        let flags = query(fd, name, libc::SIOCGIFFLAGS);
        // SAFETY: the flags are the union member that SIOCGIFFLAGS filled.
        flags
            .is_ok_and(|flags| unsafe { flags.ifr_ifru.ifru_flags } & libc::IFF_RUNNING as libc::c_short != 0)
    }

    /// The interfaces whose frames come to a listener on this one: its own. Frames that a bond's slave receives are the bond's, of
    /// which `/sys` tells. Asked once: a listener that is there while the interface joins a bond begins anew.
    pub(crate) fn heard_by(&self) -> [u32; 2] {
        let index_of = |file: &str| -> Option<u32> {
            let text = std::fs::read_to_string(format!("/sys/class/net/{}/{file}", self.name));
            text.ok()?.trim().parse().ok()
        };
        let own = self.index.cast_unsigned();
        // Files may be another namespace's, which has another interface of that name.
        let master = index_of("master/ifindex").filter(|_| index_of("ifindex") == Some(own));
        [own, master.unwrap_or(own)]
    }
}

/// Sets the interface's "up" flag.
pub(crate) fn bring_up(name: &str) -> Result<(), SystemError> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|e| SystemError::new("open udp socket for", name, e))?;
    let mut request = query(socket.as_fd(), name, libc::SIOCGIFFLAGS)
        .map_err(|e| SystemError::new("find interface", name, e))?;
    // SAFETY: the flags are the union member that SIOCGIFFLAGS filled.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    ioctl(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request)
        .map_err(|e| SystemError::new("bring up interface", name, e))
}

/// Gives the interface's driver an `ethtool_value`.
pub(crate) fn set_feature(name: &str, command: u32, value: u32) -> Result<(), SystemError> {
    let failed = |e| SystemError::new("set a feature of interface", name, e);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|e| SystemError::new("open udp socket for", name, e))?;
    let mut record = [command, value];
    let mut request = named(name).map_err(failed)?;
    request.ifr_ifru.ifru_data = record.as_mut_ptr().cast();
    ioctl(socket.as_fd(), libc::SIOCETHTOOL, &mut request).map_err(failed)
}

fn query(fd: BorrowedFd<'_>, name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    let mut record = named(name)?;
    ioctl(fd, request, &mut record)?;
    Ok(record)
}

/// A request about the interface of that name.
fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is bytes, integers and a raw pointer, for which all zero is a valid value.
    let mut record: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays zero: the kernel wants an ended string.
    if name.is_empty() || name.len() >= record.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (target, source) in record.ifr_name.iter_mut().zip(name.bytes()) {
        *target = source as libc::c_char;
    }
    Ok(record)
}

fn ioctl(fd: BorrowedFd<'_>, request: libc::c_ulong, record: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every request passed here reads and writes one ifreq, borrowed mutably for the whole call, and what that points at,
    // if it does: the two words of `set_feature`, which are borrowed as long.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(record)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
