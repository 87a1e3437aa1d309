//! The key of one run, drawn for it and known to its processes only: they are told through their own pipes.

use std::fmt;

use punctual::{Bus, Keys};
use serde::{Deserialize, Serialize};

/// A key as a line of a key file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLine(String);

impl KeyLine {
    /// A random key of group 1.
    pub fn random() -> Self {
        let [high, low] = std::array::from_fn(|_| punctual_machine::process::random());
        Self(format!("1 1 {high:016x}{low:016x}\n"))
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The bus, on which only frames count that a holder of this key sealed.
    pub fn seal(&self, bus: Bus) -> Result<Bus, String> {
        let keys = Keys::parse(&self.0).map_err(|error| error.to_string())?;
        Ok(bus.sealed(&keys))
    }
}

impl fmt::Debug for KeyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLine(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_key_is_a_key_and_is_not_shown() {
        let line = KeyLine::random();
        assert!(line.seal(Bus::loopback("keys")).is_ok());
        assert_ne!(line, KeyLine::random());
        assert!(!format!("{line:?}").contains(line.text().trim()));
    }
}
