//! Publications: connected senders in memory, a ring each.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use punctual::publication::{OfferError, StampChoice, StreamError};
use punctual::{Publication, PublicationOptions};

use crate::bus::when_full_of;
use crate::communicator::{duration_of, port_of};
use crate::entry::entry;
use crate::handle::{NODES, PUBLICATIONS, punctual_node, punctual_publication};
use crate::message::{punctual_address, target_of};
use crate::number::PUNCTUAL_AS_THE_BUS;
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Out, bytes, sized};

/// Options with which a publication is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_publication_options {
    /// The size of this struct, so that a program and a library of different versions notice.
    pub struct_size: usize,
    /// Bytes of its ring: a power of two, 4 KiB to 1 GiB; 0 = 256 KiB.
    pub ring_size: usize,
    /// Behaviour when a reader is slow.
    pub when_full: u32,
    /// The port that its messages say they come from.
    pub source: u32,
    /// 1: its messages say when they were sent.
    pub stamps: u32,
    /// 0.
    pub reserved: u32,
}

pub(crate) fn no_stream(error: StreamError) -> Code {
    let code = match error {
        StreamError::NoStreams(_) => Code::NoStreams,
        StreamError::TooMany { .. } => Code::TooMany,
        StreamError::Invalid(_) => Code::Invalid,
        StreamError::CannotWait(_) => Code::CannotWait,
        StreamError::System(_) => Code::System,
    };
    fail(code, error)
}

#[cold]
fn not_offered(error: OfferError) -> Code {
    let code = match error {
        // An answer rather than an error, and frequent: no text.
        OfferError::Full => return Code::Full,
        OfferError::NotConnected => Code::Unreachable,
        OfferError::TooLong { .. } => Code::TooLong,
        OfferError::NoKey => Code::NoKey,
    };
    fail(code, error)
}

/// A publication of a node for one target.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publication_open(
    node: punctual_node,
    target: punctual_address,
    options: *const punctual_publication_options,
    publication: *mut punctual_publication,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (chosen, mut out) =
            unsafe { (sized(options, "options")?, Out::new(publication, "publication")?) };
        let mut options = PublicationOptions::default();
        if let Some(chosen) = chosen {
            if chosen.ring_size != 0 {
                options.ring_size = chosen.ring_size;
            }
            options.when_full = match chosen.when_full {
                PUNCTUAL_AS_THE_BUS => None,
                number => Some(when_full_of(number)?),
            };
            options.source = port_of(chosen.source)?;
            options.stamps = match chosen.stamps {
                0 => StampChoice::Never,
                1 => StampChoice::Ends,
                number => return Err(fail(Code::Invalid, format_args!("stamps {number}: 0 or 1 is needed"))),
            };
        }
        let opened = NODES.get(node.value)?.publication(target_of(target)?, &options).map_err(no_stream)?;
        out.write(punctual_publication { value: PUBLICATIONS.insert(opened)? });
        Ok(())
    })
}

/// Sends a copy of the message.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publication_offer(
    publication: punctual_publication,
    data: *const c_void,
    size: usize,
    timeout_ns: u64,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let payload = unsafe { bytes(data, size) }?;
        let mut publication = PUBLICATIONS.enter(publication.value)?;
        match publication.offer(payload) {
            Err(OfferError::Full | OfferError::NotConnected) if timeout_ns > 0 => {
                offer_until(&mut publication, payload, duration_of(timeout_ns))
            }
            offered => offered,
        }
        .map_err(not_offered)
    })
}

/// Tries until it is taken, or for so long.
fn offer_until(publication: &mut Publication, payload: &[u8], timeout: Duration) -> Result<(), OfferError> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(1);
    loop {
        // A reader has no way to ring for room.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
        match publication.offer(payload) {
            Err(OfferError::Full | OfferError::NotConnected) if begun.elapsed() < timeout => {}
            offered => return offered,
        }
    }
}

/// Gives it up: it belongs to whichever thread uses it next.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_publication_detach(publication: punctual_publication) -> punctual_error {
    entry(|| PUBLICATIONS.detach(publication.value))
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_publication_close(publication: punctual_publication) -> punctual_error {
    entry(|| PUBLICATIONS.remove(publication.value).map(drop))
}
