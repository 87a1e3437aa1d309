//! Outcome of a call: a code, and the text of the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::io::Write;

/// `PUNCTUAL_OK`, or why not.
pub type punctual_error = i32;

macro_rules! codes {
    ($($variant:ident = $value:literal, $name:literal, $text:literal;)*) => {
        /// A code of the header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($variant = $value,)*
        }

        /// Each code with its name and what it means.
        const CODES: &[(Code, &CStr, &CStr)] = &[$((Code::$variant, $name, $text),)*];
    };
}

codes! {
    Ok = 0, c"PUNCTUAL_OK", c"done";
    Empty = 1, c"PUNCTUAL_EMPTY", c"no message is there, or none came in time";
    Full = 2, c"PUNCTUAL_FULL", c"no room now: try again after the receivers have read";
    Unreachable = 3, c"PUNCTUAL_UNREACHABLE", c"nobody there by that address";
    TooLong = 4, c"PUNCTUAL_TOO_LONG", c"the message is longer than this bus carries";
    TooManyNodes = 5, c"PUNCTUAL_TOO_MANY_NODES", c"sent to more nodes than a bus has room for";
    NoKey = 6, c"PUNCTUAL_NO_KEY", c"no key to seal with";
    NoMemory = 7, c"PUNCTUAL_NO_MEMORY", c"no memory for a ring to this target";
    BufferTooSmall = 8, c"PUNCTUAL_BUFFER_TOO_SMALL", c"the message is larger than the buffer, and is kept";
    Null = 9, c"PUNCTUAL_NULL", c"a pointer is null that must not be";
    Closed = 10, c"PUNCTUAL_CLOSED", c"the handle is closed, or never was one";
    WrongThread = 11, c"PUNCTUAL_WRONG_THREAD", c"the handle belongs to another thread";
    Busy = 12, c"PUNCTUAL_BUSY", c"this thread is using the handle already";
    Invalid = 13, c"PUNCTUAL_INVALID", c"a name, number or size that cannot be";
    NodeTaken = 14, c"PUNCTUAL_NODE_TAKEN", c"another live node has this name or id";
    BusFull = 15, c"PUNCTUAL_BUS_FULL", c"the bus has as many nodes as it can have";
    PortTaken = 16, c"PUNCTUAL_PORT_TAKEN", c"another communicator of the node has the port";
    TooMany = 17, c"PUNCTUAL_TOO_MANY", c"as many are open as can be";
    CannotWait = 18, c"PUNCTUAL_CANNOT_WAIT", c"this way of waiting cannot wait for this bus";
    NoStreams = 19, c"PUNCTUAL_NO_STREAMS", c"only buses of memory have publications";
    Keys = 20, c"PUNCTUAL_KEYS", c"the keys cannot be read";
    System = 21, c"PUNCTUAL_SYSTEM", c"the machine refused";
    Bug = 22, c"PUNCTUAL_BUG", c"a mistake in the library: close the handle, and report it";
}

/// Bytes of the longest text, its zero included.
const TEXT_SIZE_MAX: usize = 1024;

/// The text of one thread's last error; a zero ends it.
struct Text([u8; TEXT_SIZE_MAX]);

thread_local! {
    static LAST: RefCell<Text> = const { RefCell::new(Text([0; TEXT_SIZE_MAX])) };
}

/// Notes what went wrong, and names it. Text that is too long is cut.
#[cold]
pub(crate) fn fail(code: Code, what: impl fmt::Display) -> Code {
    // A signal handler that fails while its thread notes something leaves no text.
    let _noted = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            let Text(bytes) = &mut *last;
            let mut rest = &mut bytes[..TEXT_SIZE_MAX - 1];
            let _cut = write!(rest, "{what}");
            let size = TEXT_SIZE_MAX - 1 - rest.len();
            let text = &mut bytes[..size];
            // A zero inside would end it for its reader.
            text.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'?');
            let whole = str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
            bytes[whole] = 0;
        }
    });
    code
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn punctual_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero in it"),
        };
    VERSION.as_ptr()
}

fn known(code: punctual_error) -> Option<&'static (Code, &'static CStr, &'static CStr)> {
    CODES.iter().find(|(known, ..)| *known as i32 == code)
}

/// The name of a code, such as "PUNCTUAL_FULL".
#[unsafe(no_mangle)]
pub extern "C" fn punctual_error_name(error: punctual_error) -> *const c_char {
    known(error).map_or(c"no code of this library", |(_, name, _)| name).as_ptr()
}

/// Meaning of a code, in a few words.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_error_text(error: punctual_error) -> *const c_char {
    known(error).map_or(c"no code of this library", |(.., text)| text).as_ptr()
}

/// The text of this thread's last error: what, and what to do. It changes with the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_last_error() -> *const c_char {
    LAST.try_with(|last| last.as_ptr().cast::<c_char>().cast_const()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        LAST.with_borrow(|text| CStr::from_bytes_until_nul(&text.0).unwrap().to_str().unwrap().to_owned())
    }

    /// Goal: the header declares every code, with this number and these words, and no other.
    #[test]
    fn the_header_has_every_code() {
        let header = include_str!("../include/punctual.h");
        for (index, (code, name, text)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, index);
            let (name, text) = (name.to_str().unwrap(), text.to_str().unwrap());
            let declared = format!("    {name} = {index}, /* {text} */\n");
            assert!(header.contains(&declared), "the header lacks: {declared}");
        }
        let codes = header.split("enum punctual_error_code {").nth(1).and_then(|rest| rest.split('}').next());
        assert_eq!(codes.map(|codes| codes.matches(" = ").count()), Some(CODES.len()));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        fail(Code::System, "short");
        assert_eq!(last(), "short");
        for shift in 0..3 {
            fail(Code::System, format!("{}{}", "x".repeat(shift), "€".repeat(TEXT_SIZE_MAX)));
            let text = last();
            assert!((TEXT_SIZE_MAX - 4..TEXT_SIZE_MAX).contains(&text.len()), "{}", text.len());
            assert!(text.ends_with('€'));
        }
        fail(Code::System, "a\0b");
        assert_eq!(last(), "a?b");
    }

    #[test]
    fn codes_have_names() {
        let name = |code| known(code).map(|(_, name, _)| name.to_str().unwrap());
        assert_eq!((name(2), name(-1), name(99)), (Some("PUNCTUAL_FULL"), None, None));
    }
}
