//! Units as people write them: "m/s", "kg·m^2·s^-3", "1", "bytes".

use core::fmt;
use core::str::FromStr;

use super::{EXPONENTS, Hertz, Joule, Newton, Pascal, SYMBOLS, Unit, UnitCode, Volt, Watt};

/// Units that have symbols of their own besides those of the base.
const NAMED: [(&str, UnitCode); 6] = [
    ("Hz", Hertz::CODE),
    ("N", Newton::CODE),
    ("Pa", Pascal::CODE),
    ("J", Joule::CODE),
    ("W", Watt::CODE),
    ("V", Volt::CODE),
];

/// Why a text is no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// A symbol that is not known. There are no prefixes: kilometres are no unit here.
    Symbol,
    /// A power that is no whole or half number, or is not from -64 to 63.5.
    Exponent,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symbol => {
                "symbols are rad, sr, m, kg, s, A, K, mol, cd, Hz, N, Pa, J, W, V, 1 and bytes, such as in m/s or kg·m^2"
            }
            Self::Exponent => "powers are whole or half numbers from -64 to 63.5, such as in s^-2 or m^(1/2)",
        })
    }
}

impl core::error::Error for UnitError {}

/// Reads what [`UnitCode`] displays, and what people write: factors with `·`, `*` or a space between them; one behind `/` divides.
///
/// ```
/// use punctual_proto::unit::{MetrePerSecondSquared, Unit, UnitCode};
/// for text in ["m/s^2", "m·s^-2", "m/s/s", "N/kg"] {
///     assert_eq!(text.parse(), Ok(MetrePerSecondSquared::CODE));
/// }
/// assert!("km".parse::<UnitCode>().is_err());
/// ```
impl FromStr for UnitCode {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "bytes" {
            return Ok(Self::DIGITAL);
        }
        let (mut doubled, mut rest, mut divides) = ([0_i16; EXPONENTS], text.trim(), false);
        loop {
            // The slash of a half power is not one between factors.
            let end = rest.find(['·', '*', ' ', '/']).map_or(rest.len(), |end| match rest.find("^(") {
                Some(power) if power < end => {
                    rest[power..].find(')').map_or(rest.len(), |closed| power + closed + 1)
                }
                _ => end,
            });
            add_factor(&mut doubled, &rest[..end], divides)?;
            rest = rest[end..].trim_start();
            let Some(separator) = rest.chars().next() else { break };
            divides = separator == '/';
            rest = rest.strip_prefix(['·', '*', '/']).unwrap_or(rest).trim_start();
        }
        let mut code = Self::ONE;
        for (place, doubled) in doubled.into_iter().enumerate() {
            let doubled = i8::try_from(doubled).map_err(|_| UnitError::Exponent)?;
            code.0[1 + place] = doubled.cast_unsigned().wrapping_add(super::ZERO);
        }
        Ok(code)
    }
}

/// One symbol with its power.
fn add_factor(doubled: &mut [i16; EXPONENTS], factor: &str, divides: bool) -> Result<(), UnitError> {
    let (symbol, power) = factor
        .split_once('^')
        .map_or((factor, Ok(2)), |(symbol, power)| (symbol, doubled_power(power).ok_or(UnitError::Exponent)));
    let power = if divides { power?.checked_neg().ok_or(UnitError::Exponent)? } else { power? };
    if symbol == "1" {
        return Ok(());
    }
    let base = SYMBOLS.iter().position(|known| *known == symbol).map(UnitCode::base);
    let named = || NAMED.iter().find(|(known, _)| *known == symbol).map(|(_, code)| *code);
    let code = base.or_else(named).ok_or(UnitError::Symbol)?;
    for (sum, of_one) in doubled.iter_mut().zip(code.doubled_exponents()) {
        // Of one factor twice the exponent, so half of the product.
        let added = i32::from(of_one) * i32::from(power) / 2;
        let whole = i32::from(*sum).saturating_add(added);
        *sum = i16::try_from(whole).map_err(|_| UnitError::Exponent)?;
    }
    Ok(())
}

/// Twice a power.
fn doubled_power(text: &str) -> Option<i16> {
    if let Some(half) = text.strip_prefix('(').and_then(|text| text.strip_suffix("/2)")) {
        return half.parse().ok();
    }
    text.parse::<i16>().ok()?.checked_mul(2)
}

#[cfg(test)]
mod tests {
    use std::format;

    use proptest::prelude::*;

    use super::super::{MetrePerSecond, One, Second};
    use super::*;

    #[test]
    fn units_are_read_as_people_write_them() {
        for (text, code) in [
            ("1", One::CODE),
            ("m/s", MetrePerSecond::CODE),
            (" m / s ", MetrePerSecond::CODE),
            ("m s^-1", MetrePerSecond::CODE),
            ("1/s", Hertz::CODE),
            ("Hz", Hertz::CODE),
            ("s^1", Second::CODE),
            ("kg*m^2*s^-3", Watt::CODE),
            ("J/s", Watt::CODE),
            ("W/A", Volt::CODE),
            ("bytes", UnitCode::DIGITAL),
        ] {
            assert_eq!(text.parse(), Ok(code), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_unit_is_refused() {
        for text in ["", "km", "m//s", "m·/s", "m/", "·m", "m·", "ms", "meter", "bytes/s", "m^", "(m)"] {
            assert!(text.parse::<UnitCode>().is_err(), "{text}");
        }
        for text in [
            "m^64",
            "m^-65",
            "m^40·m^40",
            "m^1.5",
            "m^(1/3)",
            "m^x",
            "N^16000",
            "m^(1/2",
            "m/m^-16384",
            "m/m^(-32768/2)",
        ] {
            assert_eq!(text.parse::<UnitCode>(), Err(UnitError::Exponent), "{text}");
        }
        assert!("m^-64".parse::<UnitCode>().is_ok());
        assert!("m^(127/2)".parse::<UnitCode>().is_ok());
    }

    proptest! {
        /// Goal: a unit that is shown is read as what it was.
        #[test]
        fn a_shown_unit_is_read_again(exponents: [u8; EXPONENTS]) {
            let mut bytes = UnitCode::ONE.to_bytes();
            bytes[1..].copy_from_slice(&exponents);
            let code = UnitCode::from_bytes(bytes).unwrap();
            prop_assert_eq!(format!("{code}").parse(), Ok(code));
        }

        /// Goal: no text is a panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[ms1N/^()·* 0-9-]{0,24}", other in ".{0,12}") {
            let _one = text.parse::<UnitCode>();
            let _other = other.parse::<UnitCode>();
        }
    }
}
