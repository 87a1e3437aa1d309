//! Nodes: opened, asked, left.

use std::ffi::c_char;

use punctual::{Ledger, NodeId, NodeOptions, OpenError, PeerAccount};

use crate::entry::entry;
use crate::handle::{BUSES, NODES, punctual_bus, punctual_node};
use crate::number::PUNCTUAL_EVERY_NODE;
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Out, OutList, sized, text, text_if_any};

/// Options with which a node is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_node_options {
    /// The size of this struct, so that a program and a library of different versions notice.
    pub struct_size: usize,
    /// Its id; 0 = the one of its name.
    pub id: u64,
    /// A file into which every frame is written (pcapng); null = none.
    pub capture: *const c_char,
    /// Largest message that it sends and takes, bytes, cut into frames; 0 = what goes in one frame.
    pub message_size_max: usize,
}

/// Ledger of a node's messages: the library's own, which has C's layout.
pub type punctual_ledger = Ledger;

/// A node's account of the frames that one life of one peer sent to it and to everybody.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct punctual_peer {
    /// The peer.
    pub node: u64,
    /// Frames that arrived, each once.
    pub arrived: u64,
    /// Frames that never will.
    pub lost: u64,
    /// Frames that did not arrive but still may.
    pub missing: u64,
    /// Number of this life of the peer.
    pub incarnation: u32,
    /// 1 while it is there.
    pub present: u32,
}

impl From<PeerAccount> for punctual_peer {
    fn from(account: PeerAccount) -> Self {
        Self {
            node: account.node.get(),
            arrived: account.arrived,
            lost: account.lost,
            missing: account.missing,
            incarnation: account.incarnation.into(),
            present: account.present.into(),
        }
    }
}

fn not_opened(error: OpenError) -> Code {
    let code = match error {
        OpenError::Invalid(_) => Code::Invalid,
        OpenError::NodeTaken { .. } => Code::NodeTaken,
        OpenError::BusFull { .. } => Code::BusFull,
        OpenError::System { .. } | OpenError::Medium(_) => Code::System,
    };
    fail(code, error)
}

pub(crate) fn id_of(number: u64) -> Result<NodeId, Code> {
    NodeId::new(number).ok_or_else(|| fail(Code::Invalid, format_args!("node {number}: no node has this id")))
}

/// Joins a bus.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_open(
    bus: punctual_bus,
    name: *const c_char,
    options: *const punctual_node_options,
    node: *mut punctual_node,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (name, chosen, mut out) =
            unsafe { (text(name, "name")?, sized(options, "options")?, Out::new(node, "node")?) };
        let mut options = NodeOptions::new(name);
        if let Some(chosen) = chosen {
            if chosen.id != 0 {
                options = options.id(id_of(chosen.id)?);
            }
            // SAFETY: as this function's caller says.
            if let Some(path) = unsafe { text_if_any(chosen.capture, "capture") }? {
                options = options.capture(path);
            }
            if chosen.message_size_max != 0 {
                options = options.message_size_max(chosen.message_size_max);
            }
        }
        let opened = options.open(&BUSES.get(bus.value)?).map_err(not_opened)?;
        out.write(punctual_node { value: NODES.insert(opened)? });
        Ok(())
    })
}

/// The id that belongs to a name, on every host.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_id_of_name(name: *const c_char, id: *mut u64) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (name, mut out) = unsafe { (text(name, "name")?, Out::new(id, "id")?) };
        out.write(NodeId::named(name).get());
        Ok(())
    })
}

/// The node's id.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_id(node: punctual_node, id: *mut u64) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(id, "id") }?;
        out.write(NODES.get(node.value)?.id().get());
        Ok(())
    })
}

/// Largest message that its communicators send, bytes. A message that comes from a peer's larger ring may be larger.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_message_size_max(
    node: punctual_node,
    size_max: *mut usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(size_max, "size_max") }?;
        out.write(NODES.get(node.value)?.message_size_max());
        Ok(())
    })
}

/// Ledger of all messages, as of now.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_ledger(
    node: punctual_node,
    ledger: *mut punctual_ledger,
    struct_size: usize,
) -> punctual_error {
    entry(|| {
        if struct_size != size_of::<punctual_ledger>() {
            let expected = size_of::<punctual_ledger>();
            return Err(fail(
                Code::Invalid,
                format_args!(
                    "a ledger of {struct_size} bytes, where this library has {expected}: sizeof *ledger is needed"
                ),
            ));
        }
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(ledger, "ledger") }?;
        out.write(NODES.get(node.value)?.ledger());
        Ok(())
    })
}

/// The accounts of all peers.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_peers(
    node: punctual_node,
    peers: *mut punctual_peer,
    capacity: usize,
    count: *mut usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut list, mut out) =
            unsafe { (OutList::new(peers, capacity, "peers")?, Out::new(count, "count")?) };
        let accounts = NODES.get(node.value)?.peers();
        out.write(accounts.len());
        list.write(accounts.into_iter().map(punctual_peer::from));
        Ok(())
    })
}

/// Frames sent so far to one node, or to everybody.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_node_sent_to(
    node: punctual_node,
    target: u64,
    count: *mut u64,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(count, "count") }?;
        let target = if target == PUNCTUAL_EVERY_NODE { None } else { Some(id_of(target)?) };
        out.write(NODES.get(node.value)?.sent_to(target));
        Ok(())
    })
}

/// Does what has to be done from time to time.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_node_housekeep(node: punctual_node) -> punctual_error {
    entry(|| {
        NODES.get(node.value)?.housekeep();
        Ok(())
    })
}

/// Closes the handle. The node leaves the bus with the last of what was made with it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_node_close(node: punctual_node) -> punctual_error {
    entry(|| NODES.remove(node.value).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the header has every counter, in the library's order. `tests/header.rs` compares the layouts, where there is a C compiler.
    #[test]
    fn the_header_has_every_counter() {
        let entries = Ledger::default().entries();
        assert_eq!(size_of::<punctual_ledger>(), 8 * entries.len());
        let header = include_str!("../include/punctual.h");
        let declared = header.split("typedef struct punctual_ledger {\n").nth(1).unwrap();
        for ((name, _), field) in entries.iter().zip(declared.lines()) {
            assert!(field.trim().starts_with(&format!("uint64_t {name};")), "{name}: {field}");
        }
    }
}
