//! The one error of this crate: the failed call, its object, and the kernel's error.
use std::{fmt, io};

/// A system call that failed, with the object it was called on.
///
/// `Display` is a lower-case fragment, for example
/// `bind udp 127.0.0.1:9930: Address already in use (os error 98)`.
#[derive(Debug)]
pub struct SystemError {
    /// The operation, as a person would say it: `bind`, `map`, `pin`.
    pub operation: &'static str,
    /// The object of the operation: a path, an address, an interface.
    pub object: String,
    /// The kernel's error.
    pub source: io::Error,
}

impl SystemError {
    /// The operation of code that maps memory.
    pub(crate) const MAP: &str = "map";

    /// An error of `operation` on `object`.
    pub fn new(operation: &'static str, object: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { operation, object: object.into(), source: source.into() }
    }

    /// The same for the error that libc left in `errno`.
    pub fn last(operation: &'static str, object: impl Into<String>) -> Self {
        Self::new(operation, object, io::Error::last_os_error())
    }

    /// The kind the kernel's answer belongs to.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns true if this process, or the machine, has no descriptor or no memory left.
    pub fn is_exhaustion(&self) -> bool {
        self.is_no_descriptor() || self.source.raw_os_error() == Some(libc::ENOMEM) || self.is_locked_memory()
    }

    /// Returns true if this process, or the machine, has no descriptor left.
    pub fn is_no_descriptor(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
    }

    /// Returns true if no interface or device of this host has that name.
    pub fn is_no_device(&self) -> bool {
        self.source.raw_os_error() == Some(libc::ENODEV)
    }

    /// Returns true if this process locks its memory, and may lock no more.
    pub fn is_locked_memory(&self) -> bool {
        self.operation == Self::MAP && self.source.raw_os_error() == Some(libc::EAGAIN)
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.object, self.source)?;
        match self.is_locked_memory() {
            true => f.write_str(", as this process locks its memory and may lock no more: see `ulimit -l`"),
            false => Ok(()),
        }
    }
}

impl std::error::Error for SystemError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
