//! User interrupts in hardware: detection of them on this machine, and the ends of a notification by them.
//!
//! The processor tells of them (CPUID.(7,0):EDX bit 5). The kernel does not: mainline Linux has no user interrupts, and the patches
//! for them number their calls as each tree happens to: from 449 in the first series (5.15), from 471 in later ones (6.0). On other
//! kernels those numbers belong to other calls (449 is `futex_waitv`). So none of them is ever made unless the kernel lists the patch's
//! own symbols *and* is of a release whose numbers are known.
//!
//! The blocked wait of those kernels loses wake-ups (`punctual sim wakeup --variant rfc-v1`, `poc-v2`); a park here ends
//! after a millisecond at most, and the doorbell's second look finds what was missed.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::sync::OnceLock;

use crate::wake::Ends;
use punctual_machine::SystemError;

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(target_arch = "x86_64")]
mod hardware;
#[cfg(target_arch = "x86_64")]
mod instruction;

#[cfg(not(target_arch = "x86_64"))]
use absent::register;
#[cfg(target_arch = "x86_64")]
use hardware::register;

/// The patches' name of their first call.
const SYMBOL: &str = "sys_uintr_register_handler";
/// The device of the module that exists outside of the kernel's tree. Its requests differ from version to version.
const DEVICE: &str = "/dev/uintr";
/// The first release that has `futex_waitv` at the first number that a patch used.
const FUTEX_WAITV_SINCE: (u32, u32) = (5, 16);

/// Where the kernel's part is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Number of `uintr_register_handler`; `unregister_handler`, `vector_fd`, `register_sender`, `unregister_sender` and
    /// `wait` follow it.
    first: u32,
}

/// The part that is missing for user interrupts in hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The processor, or the hypervisor in front of it.
    Processor,
    /// The kernel has no trace of them.
    Kernel {
        /// Its release.
        release: String,
    },
    /// The kernel is patched for them, but not in a way whose call numbers are known.
    CallNumbers {
        /// Its release.
        release: String,
    },
    /// The module is there, but its requests have no fixed form.
    Module,
    /// The kernel's symbols cannot be read, so that it cannot be identified.
    Symbols {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processor => f.write_str(
                "the processor (or its hypervisor) does not offer them (CPUID.7.0:EDX[5] is clear): \
                 Intel has them since Sapphire Rapids",
            ),
            Self::Kernel { release } => write!(
                f,
                "the processor has them, but Linux {release} does not support them: \
                 mainline has no support, a kernel with the uintr patches is needed"
            ),
            Self::CallNumbers { release } => write!(
                f,
                "Linux {release} is patched for them, but the numbers of its calls are not known: \
                 5.15 (calls from 449) and 6.0 (from 471) are"
            ),
            Self::Module => {
                write!(
                    f,
                    "{DEVICE} is there, but its requests differ from version to version: a patched kernel is needed"
                )
            }
            Self::Symbols { reason } => {
                write!(f, "the kernel cannot be identified: /proc/kallsyms: {reason}")
            }
        }
    }
}

/// Evidence that identifies a kernel.
struct Evidence<'a> {
    has_processor: bool,
    release: &'a str,
    has_device: bool,
    /// `Ok(true)` if the patch's symbols are listed; `Err` with the reason if the list cannot be read.
    has_symbols: Result<bool, String>,
}

/// The calls that this machine offers, looked for once.
///
/// # Errors
/// The missing part.
pub fn identify() -> Result<Calls, Missing> {
    static FOUND: OnceLock<Result<Calls, Missing>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let has_processor = crate::host::has_user_interrupts();
            // The list is long: it is read only where it decides.
            let has_symbols = if has_processor { find_symbol() } else { Ok(false) };
            judge(&Evidence {
                has_processor,
                release: &release(),
                has_device: fs::exists(DEVICE).unwrap_or(false),
                has_symbols,
            })
        })
        .clone()
}

fn judge(evidence: &Evidence<'_>) -> Result<Calls, Missing> {
    let release = || evidence.release.to_owned();
    if !evidence.has_processor {
        return Err(Missing::Processor);
    }
    match &evidence.has_symbols {
        Err(reason) => Err(Missing::Symbols { reason: reason.clone() }),
        Ok(true) => match version(evidence.release) {
            Some((5, 15)) => Ok(Calls { first: 449 }),
            Some((6, 0)) => Ok(Calls { first: 471 }),
            _ => Err(Missing::CallNumbers { release: release() }),
        },
        Ok(false) if evidence.has_device => Err(Missing::Module),
        Ok(false) => Err(Missing::Kernel { release: release() }),
    }
}

/// Checks that the numbers of the system calls are those of mainline, as far as `futex_waitv` goes.
///
/// # Errors
/// The reason for doubt about the numbers, in words.
pub(crate) fn stock_call_numbers() -> Result<(), String> {
    let release = release();
    if version(&release).is_none_or(|version| version < FUTEX_WAITV_SINCE) {
        return Err(format!("Linux {release} does not have it, 5.16 is the first"));
    }
    match identify() {
        Ok(_) | Err(Missing::CallNumbers { .. }) => {
            Err(format!("Linux {release} is patched, and its call numbers may be others"))
        }
        Err(_) => Ok(()),
    }
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn find_symbol() -> Result<bool, String> {
    let file = fs::File::open("/proc/kallsyms").map_err(|error| error.to_string())?;
    names_symbol(BufReader::new(file)).map_err(|error| error.to_string())
}

fn names_symbol(symbols: impl BufRead) -> io::Result<bool> {
    for line in symbols.split(b'\n') {
        if line?.windows(SYMBOL.len()).any(|window| window == SYMBOL.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens both ends for the calling thread.
///
/// # Errors
/// The missing part, or the kernel's refusal.
pub fn open() -> Result<Ends, SystemError> {
    let refused = |error: io::Error| SystemError::new("open", "user interrupts", error);
    let calls = identify().map_err(|missing| refused(io::Error::other(missing.to_string())))?;
    register(calls).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(release: &str) -> Evidence<'_> {
        Evidence { has_processor: true, release, has_device: false, has_symbols: Ok(true) }
    }

    #[test]
    fn only_a_known_kernel_gives_call_numbers() {
        assert_eq!(judge(&evidence("5.15.0-rc1+")), Ok(Calls { first: 449 }));
        assert_eq!(judge(&evidence("6.0.0-uintr")), Ok(Calls { first: 471 }));
        let unknown = Missing::CallNumbers { release: "6.18.44".to_owned() };
        assert_eq!(judge(&evidence("6.18.44")), Err(unknown));
        assert_eq!(judge(&Evidence { has_processor: false, ..evidence("5.15.0") }), Err(Missing::Processor));
        let stock = Evidence { has_symbols: Ok(false), ..evidence("6.0.0") };
        assert_eq!(judge(&stock), Err(Missing::Kernel { release: "6.0.0".to_owned() }));
        assert_eq!(judge(&Evidence { has_device: true, ..stock }), Err(Missing::Module));
        let hidden = Evidence { has_symbols: Err("denied".to_owned()), ..evidence("5.15.0") };
        assert_eq!(judge(&hidden), Err(Missing::Symbols { reason: "denied".to_owned() }));
    }

    #[test]
    fn a_symbol_is_found_among_others() {
        let patched = b"0 T _stext\n0 T __x64_sys_uintr_register_handler\n0 t last\n";
        assert!(names_symbol(&patched[..]).unwrap());
        assert!(!names_symbol(&b"0 T __x64_sys_futex_waitv\n"[..]).unwrap());
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("5.9.0"), Some((5, 9)));
        assert!(version("5.9.0") < version("5.16-rc2"));
        assert_eq!(version("linux"), None);
    }

    /// Goal: on a machine without them the reason is precise, and no call was made to find out.
    #[test]
    fn missing_user_interrupts_have_a_precise_reason() {
        match open() {
            Ok(_) => eprintln!("this machine has user interrupts"),
            Err(error) => {
                eprintln!("{error}");
                assert!(error.to_string().len() > 40, "{error}");
            }
        }
    }
}
