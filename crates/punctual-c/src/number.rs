//! Numbers of the header that are neither codes nor sizes.

use punctual::unit::Format;

macro_rules! numbers {
    ($($name:ident: $type:ty = $value:expr, $text:literal;)*) => {
        $(
            #[doc = $text]
            pub const $name: $type = $value;
        )*

        /// Each number with its name.
        pub const NUMBERS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

numbers! {
    PUNCTUAL_FOREVER: u64 = u64::MAX, "A wait that does not end.";
    PUNCTUAL_EVERY_NODE: u64 = u64::MAX, "The node that stands for every node.";
    PUNCTUAL_EVERY_PORT: u32 = 65535, "The port that stands for every port.";
    PUNCTUAL_WAKE_ADAPTIVE: u32 = 0, "Spins while that is worth it, then sleeps.";
    PUNCTUAL_WAKE_SPIN: u32 = 1, "Never sleeps.";
    PUNCTUAL_WAKE_BACKOFF: u32 = 2, "Spins for a while, then sleeps.";
    PUNCTUAL_WAKE_FUTEX: u32 = 3, "Sleeps; memory only.";
    PUNCTUAL_WAKE_EVENTFD: u32 = 4, "Sleeps in poll.";
    PUNCTUAL_WAKE_EPOLL: u32 = 5, "Sleeps in epoll.";
    PUNCTUAL_WAKE_SIGNAL: u32 = 6, "Sleeps until SIGIO.";
    PUNCTUAL_AS_THE_BUS: u32 = 0, "A slow reader of a publication is treated as the bus says.";
    PUNCTUAL_OVERRUN: u32 = 1, "The writer waits for nobody.";
    PUNCTUAL_HOLD_BACK: u32 = 2, "The writer waits for every live reader.";
    PUNCTUAL_FORMAT_BYTES: u32 = Format::Bytes as u32, "Bytes that are no numbers.";
    PUNCTUAL_FORMAT_I32: u32 = Format::I32 as u32, "Integers of 32 bits.";
    PUNCTUAL_FORMAT_I64: u32 = Format::I64 as u32, "Integers of 64 bits.";
    PUNCTUAL_FORMAT_F32: u32 = Format::F32 as u32, "Floats of 32 bits.";
    PUNCTUAL_FORMAT_F64: u32 = Format::F64 as u32, "Floats of 64 bits.";
}
