//! Descriptions of tracepoints from tracefs, which is mounted for a moment where nobody has mounted it.

use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use punctual_machine::SystemError;

/// Where it is mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The texts that describe tracepoints, in their order.
type Formats = Result<Vec<Option<String>>, SystemError>;

/// The text that describes each tracepoint, named as `system/name`. Those at some places need not be there.
pub(super) fn formats(names: &[&str], optional: &Range<usize>) -> Formats {
    let mounted = PLACES.iter().find(|place| Path::new(place).join("events").exists());
    match mounted {
        Some(place) => read(place, names, optional),
        None => match closed(PLACES[0]) {
            Some(error) => Err(error),
            None => read_privately(names, optional),
        },
    }
}

/// Why it cannot be read where it is mounted: without a mount anybody may look there, and another mount is closed as well.
fn closed(place: &str) -> Option<SystemError> {
    let error = std::fs::metadata(Path::new(place).join("events")).err()?;
    let is_closed = error.kind() == ErrorKind::PermissionDenied;
    is_closed.then(|| {
        SystemError::new("read", place, advice(&error, "tracefs is not readable by this user: run as root"))
    })
}

fn read(place: &str, names: &[&str], optional: &Range<usize>) -> Formats {
    let read = |(number, name): (usize, &&str)| {
        let path = format!("{place}/events/{name}/format");
        let text = std::fs::read_to_string(&path);
        if optional.contains(&number) && text.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            return Ok(None);
        }
        text.map(Some).map_err(|error| {
            let error = match error.kind() {
                ErrorKind::PermissionDenied => advice(&error, "tracefs is root's: run as root"),
                ErrorKind::NotFound => advice(&error, "this kernel has no such tracepoint"),
                _ => error,
            };
            SystemError::new("read", path, error)
        })
    };
    names.iter().enumerate().map(read).collect()
}

/// In a thread whose mounts nobody else sees, and which end with it.
fn read_privately(names: &[&str], optional: &Range<usize>) -> Formats {
    let failed = |error| SystemError::new("mount", PLACES[0], error);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            mount_privately().map_err(|error| {
                let text = match error.kind() {
                    ErrorKind::PermissionDenied => {
                        "tracefs is not mounted, and to mount it needs CAP_SYS_ADMIN: run as root"
                    }
                    ErrorKind::NotFound | ErrorKind::Unsupported => "this kernel has no tracefs",
                    _ => return failed(error),
                };
                failed(advice(&error, text))
            })?;
            read(PLACES[0], names, optional)
        });
        let joined = thread.map_err(failed)?.join();
        joined.unwrap_or_else(|_| Err(failed(io::Error::other("its thread failed"))))
    })
}

fn mount_privately() -> io::Result<()> {
    // SAFETY: from now on this thread's mounts are its own; no memory or descriptor that safe code relies on changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Without this the mount would appear in the namespace that ours was copied from.
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"nodev", c"/sys/kernel/tracing", c"tracefs", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the three texts end with a zero and are borrowed for the whole call; no data is passed.
    let done =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn advice(error: &io::Error, text: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{error}; {text}"))
}
