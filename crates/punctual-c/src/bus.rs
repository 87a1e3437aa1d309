//! Buses: the media, and the seals on them.

use std::ffi::c_char;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use punctual::memory::WhenFull;
use punctual::{Bus, Keys};

use crate::entry::entry;
use crate::handle::{BUSES, punctual_bus};
use crate::number::{PUNCTUAL_HOLD_BACK, PUNCTUAL_OVERRUN};
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Out, text, text_if_any, texts};

fn give(bus: Bus, mut out: Out<punctual_bus>) -> Result<(), Code> {
    out.write(punctual_bus { value: BUSES.insert(bus)? });
    Ok(())
}

fn parsed<T: FromStr>(text: &str, what: &str, example: &str) -> Result<T, Code> {
    text.parse()
        .map_err(|_| fail(Code::Invalid, format_args!("{what} {text:?}: such as {example} is needed")))
}

/// Nodes inside this process.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_loopback(
    name: *const c_char,
    bus: *mut punctual_bus,
) -> punctual_error {
    // SAFETY: as this function's caller says.
    entry(|| unsafe { give(Bus::loopback(text(name, "name")?), Out::new(bus, "bus")?) })
}

/// Processes of this host, over shared memory.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_shared(name: *const c_char, bus: *mut punctual_bus) -> punctual_error {
    // SAFETY: as this function's caller says.
    entry(|| unsafe { give(Bus::shared(text(name, "name")?), Out::new(bus, "bus")?) })
}

/// The same for all users in a group.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_shared_with_group(
    name: *const c_char,
    group: u32,
    bus: *mut punctual_bus,
) -> punctual_error {
    // SAFETY: as this function's caller says.
    entry(|| unsafe { give(Bus::shared_with_group(text(name, "name")?, group), Out::new(bus, "bus")?) })
}

/// UDP among hosts that share a multicast group.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_multicast(
    group: *const c_char,
    interface: *const c_char,
    bus: *mut punctual_bus,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (group, interface, out) =
            unsafe { (text(group, "group")?, text(interface, "interface")?, Out::new(bus, "bus")?) };
        let group: SocketAddr = parsed(group, "group", "239.1.1.1:7400")?;
        let interface: Ipv4Addr = parsed(interface, "interface", "192.168.1.5")?;
        give(Bus::multicast(group, interface), out)
    })
}

/// UDP among hosts that know each other's addresses.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_peers(
    local: *const c_char,
    peers: *const *const c_char,
    count: usize,
    bus: *mut punctual_bus,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (local, peers, out) =
            unsafe { (text(local, "local")?, texts(peers, count, "peers")?, Out::new(bus, "bus")?) };
        let local: SocketAddr = parsed(local, "local", "192.168.1.5:7400")?;
        let peers = peers.into_iter().map(|peer| parsed(peer, "peer", "192.168.1.6:7400"));
        give(Bus::peers(local, &peers.collect::<Result<Vec<SocketAddr>, Code>>()?), out)
    })
}

/// Raw Ethernet on an interface.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_ethernet(
    interface: *const c_char,
    bus: *mut punctual_bus,
) -> punctual_error {
    // SAFETY: as this function's caller says.
    entry(|| unsafe { give(Bus::ethernet(text(interface, "interface")?), Out::new(bus, "bus")?) })
}

/// On a bus of memory: the ring that a communicator has for each of its targets, and what happens when a reader is slow. A bus in this
/// process always holds back.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_bus_set_ring(
    bus: punctual_bus,
    ring_size: usize,
    when_full: u32,
) -> punctual_error {
    entry(|| {
        BUSES.change(bus.value, |changed| {
            let (Bus::Loopback(options) | Bus::Shared(options)) = changed else {
                return Err(fail(
                    Code::Invalid,
                    format_args!("{changed}: only an unsealed bus of memory has rings"),
                ));
            };
            (options.ring_size, options.when_full) = (ring_size, when_full_of(when_full)?);
            Ok(())
        })
    })
}

pub(crate) fn when_full_of(number: u32) -> Result<WhenFull, Code> {
    match number {
        PUNCTUAL_OVERRUN => Ok(WhenFull::Overrun),
        PUNCTUAL_HOLD_BACK => Ok(WhenFull::HoldBack),
        _ => Err(fail(
            Code::Invalid,
            format_args!("when_full {number}: PUNCTUAL_OVERRUN or PUNCTUAL_HOLD_BACK is needed"),
        )),
    }
}

/// From now on only frames count on it that a holder of one of the file's keys has sealed.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_bus_seal(
    bus: punctual_bus,
    keys_file: *const c_char,
    name: *const c_char,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (path, name) = unsafe { (text(keys_file, "keys_file")?, text_if_any(name, "name")?) };
        // A handle that is closed is the first thing to say; nobody waits while a file is read.
        BUSES.get(bus.value)?;
        let keys = Keys::from_file(path).map_err(|error| fail(Code::Keys, error))?;
        BUSES.change(bus.value, |bus| {
            let bare = bus.clone();
            *bus =
                name.map_or_else(|| bare.clone().sealed(&keys), |name| bare.clone().sealed_as(&keys, name));
            Ok(())
        })
    })
}

/// Forgets what was to be opened. Nodes that were stay.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_bus_close(bus: punctual_bus) -> punctual_error {
    entry(|| BUSES.remove(bus.value).map(drop))
}
