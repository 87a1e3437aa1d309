//! Units of the numbers of a message: units of measure as codes, and as types that the compiler checks.
//!
//! A code has the form of the *physical units* of IEEE 1451.0 (ISO/IEC/IEEE 21450:2010, clause 4.11, after B. Hamilton, *A compact
//! representation of units*, HPL-96-61, 1995): its interpretation, then the exponents of nine SI units. Each stands as twice the
//! exponent plus 128, so that square roots have a place too. Units are those of SI without prefixes: a speed travels in metres per
//! second, regardless of the unit that it is shown in.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, Div, Mul, Neg, Sub};

pub use data::{Data, DataType};
pub use text::UnitError;

mod data;
mod text;

/// Exponents in a code, in this order: radian, steradian, metre, kilogram, second, ampere, kelvin, mole, candela.
pub const EXPONENTS: usize = 9;

/// Size of a code, bytes.
pub const CODE_SIZE: usize = 1 + EXPONENTS;

const SYMBOLS: [&str; EXPONENTS] = ["rad", "sr", "m", "kg", "s", "A", "K", "mol", "cd"];

/// Exponents of zero are stored as this.
const ZERO: u8 = 128;

/// A product of powers of SI units.
const PRODUCT: u8 = 0;
/// Data that is in no unit.
const DIGITAL: u8 = 4;

/// A unit of measure as it travels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitCode([u8; CODE_SIZE]);

impl UnitCode {
    /// Of bytes that are in no unit.
    pub const DIGITAL: Self = Self([DIGITAL, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO]);

    /// Of numbers that count or compare: every exponent is zero.
    pub const ONE: Self = Self([PRODUCT, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO]);

    /// The code as it travels.
    pub const fn to_bytes(self) -> [u8; CODE_SIZE] {
        self.0
    }

    /// The code that these bytes are; `None` for other interpretations than products and digital data.
    pub const fn from_bytes(bytes: [u8; CODE_SIZE]) -> Option<Self> {
        match bytes[0] {
            PRODUCT => Some(Self(bytes)),
            DIGITAL if Self(bytes).is(Self::DIGITAL) => Some(Self(bytes)),
            _ => None,
        }
    }

    /// The unit whose exponent of the `place`th SI unit is one.
    const fn base(place: usize) -> Self {
        let mut code = Self::ONE;
        code.0[1 + place] = ZERO + 2;
        code
    }

    /// Twice the exponent of each SI unit.
    pub const fn doubled_exponents(self) -> [i8; EXPONENTS] {
        let mut exponents = [0; EXPONENTS];
        let mut place = 0;
        while place < EXPONENTS {
            exponents[place] = self.0[1 + place].wrapping_sub(ZERO).cast_signed();
            place += 1;
        }
        exponents
    }

    /// True if both are the same unit; `==` for constants.
    pub const fn is(self, other: Self) -> bool {
        let mut at = 0;
        while at < CODE_SIZE {
            if self.0[at] != other.0[at] {
                return false;
            }
            at += 1;
        }
        true
    }

    /// This unit times `power` (1 or −1) of another.
    const fn times(self, other: Self, power: i16) -> Self {
        assert!(self.0[0] == PRODUCT && other.0[0] == PRODUCT, "digital data has no unit to multiply");
        let mut code = self;
        let (left, right) = (self.doubled_exponents(), other.doubled_exponents());
        let mut place = 0;
        while place < EXPONENTS {
            let sum = left[place] as i16 + power * right[place] as i16;
            assert!(sum >= i8::MIN as i16 && sum <= i8::MAX as i16, "an exponent is from -64 to 63.5");
            code.0[1 + place] = (sum as i8).cast_unsigned().wrapping_add(ZERO);
            place += 1;
        }
        code
    }
}

impl fmt::Display for UnitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DIGITAL {
            return f.write_str("bytes");
        }
        let mut separator = "";
        for (symbol, doubled) in SYMBOLS.iter().zip(self.doubled_exponents()) {
            match doubled {
                0 => continue,
                2 => write!(f, "{separator}{symbol}")?,
                whole if whole % 2 == 0 => write!(f, "{separator}{symbol}^{}", whole / 2)?,
                half => write!(f, "{separator}{symbol}^({half}/2)")?,
            }
            separator = "·";
        }
        if separator.is_empty() { f.write_str("1") } else { Ok(()) }
    }
}

impl fmt::Debug for UnitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitCode({self})")
    }
}

/// A unit as a type.
pub trait Unit: 'static {
    /// Its code.
    const CODE: UnitCode;
}

macro_rules! base_units {
    ($($(#[$doc:meta])* $name:ident = $place:literal;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl Unit for $name {
            const CODE: UnitCode = UnitCode::base($place);
        })*
    };
}

base_units! {
    /// Of plane angles.
    Radian = 0;
    /// Of solid angles.
    Steradian = 1;
    /// Of lengths.
    Metre = 2;
    /// Of masses.
    Kilogram = 3;
    /// Of times.
    Second = 4;
    /// Of electric currents.
    Ampere = 5;
    /// Of temperatures.
    Kelvin = 6;
    /// Of amounts of substance.
    Mole = 7;
    /// Of luminous intensities.
    Candela = 8;
}

/// Of numbers that count or compare.
#[derive(Clone, Copy, Debug)]
pub enum One {}

impl Unit for One {
    const CODE: UnitCode = UnitCode::ONE;
}

/// One unit times another.
#[derive(Clone, Copy, Debug)]
pub struct Product<A, B>(PhantomData<fn() -> (A, B)>);

impl<A: Unit, B: Unit> Unit for Product<A, B> {
    const CODE: UnitCode = A::CODE.times(B::CODE, 1);
}

/// One unit over another.
#[derive(Clone, Copy, Debug)]
pub struct Quotient<A, B>(PhantomData<fn() -> (A, B)>);

impl<A: Unit, B: Unit> Unit for Quotient<A, B> {
    const CODE: UnitCode = A::CODE.times(B::CODE, -1);
}

/// Of frequencies.
pub type Hertz = Quotient<One, Second>;
/// Of speeds.
pub type MetrePerSecond = Quotient<Metre, Second>;
/// Of accelerations.
pub type MetrePerSecondSquared = Quotient<MetrePerSecond, Second>;
/// Of forces.
pub type Newton = Product<Kilogram, MetrePerSecondSquared>;
/// Of pressures.
pub type Pascal = Quotient<Newton, Product<Metre, Metre>>;
/// Of energies.
pub type Joule = Product<Newton, Metre>;
/// Of powers.
pub type Watt = Quotient<Joule, Second>;
/// Of electric potentials.
pub type Volt = Quotient<Watt, Ampere>;

/// A number as it travels: little-endian.
pub trait Number: Copy + PartialEq + fmt::Debug + Send + 'static {
    /// Representation of the number.
    const FORMAT: Format;

    /// Writes it into as many bytes as [`Format::size`] says.
    fn write(self, bytes: &mut [u8]);

    /// Reads it; `None` if there are too few or too many bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Representation of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Bytes that are no numbers.
    Bytes,
    /// Integers of 32 bits.
    I32,
    /// Integers of 64 bits.
    I64,
    /// Floating-point numbers of 32 bits.
    F32,
    /// Floating-point numbers of 64 bits.
    F64,
}

impl Format {
    /// Its number in a message.
    pub const fn code(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::I32 => 1,
            Self::I64 => 2,
            Self::F32 => 3,
            Self::F64 => 4,
        }
    }

    /// The format of that number.
    pub const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Bytes),
            1 => Some(Self::I32),
            2 => Some(Self::I64),
            3 => Some(Self::F32),
            4 => Some(Self::F64),
            _ => None,
        }
    }

    /// Size of one number, bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

macro_rules! numbers {
    ($($number:ty = $format:ident;)*) => {
        $(impl Number for $number {
            const FORMAT: Format = Format::$format;

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
        })*
    };
}

numbers! { i32 = I32; i64 = I64; f32 = F32; f64 = F64; }

/// A number in a unit. Adding and comparing is for numbers of one unit; multiplying and dividing makes another.
///
/// ```
/// use punctual_proto::unit::{Metre, MetrePerSecond, Quantity, Second};
/// let way = Quantity::<Metre, f64>::new(30.0);
/// let time = Quantity::<Second, f64>::new(2.0);
/// let speed: Quantity<MetrePerSecond, f64> = way / time;
/// assert_eq!(speed.number(), 15.0);
/// ```
/// Metres and seconds have no sum:
/// ```compile_fail
/// use punctual_proto::unit::{Metre, Quantity, Second};
/// let nothing = Quantity::<Metre, f64>::new(30.0) + Quantity::<Second, f64>::new(2.0);
/// ```
pub struct Quantity<U, N> {
    number: N,
    unit: PhantomData<fn() -> U>,
}

impl<U: Unit, N: Number> Quantity<U, N> {
    /// So much of this unit.
    pub const fn new(number: N) -> Self {
        Self { number, unit: PhantomData }
    }

    /// Its numerical value.
    pub const fn number(self) -> N {
        self.number
    }

    /// The same in a unit that is written differently but is the same.
    ///
    /// ```
    /// use punctual_proto::unit::{Joule, Newton, Product, Metre, Quantity};
    /// let work = Quantity::<Product<Metre, Newton>, f64>::new(3.0);
    /// let joules: Quantity<Joule, f64> = work.same_as();
    /// ```
    /// Different units do not compile:
    /// ```compile_fail
    /// use punctual_proto::unit::{Joule, Newton, Quantity};
    /// let force = Quantity::<Newton, f64>::new(3.0);
    /// let joules: Quantity<Joule, f64> = force.same_as();
    /// ```
    pub const fn same_as<V: Unit>(self) -> Quantity<V, N> {
        const { assert!(U::CODE.is(V::CODE), "these units differ") };
        Quantity::new(self.number)
    }
}

impl<U, N: Copy> Clone for Quantity<U, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U, N: Copy> Copy for Quantity<U, N> {}

impl<U, N: PartialEq> PartialEq for Quantity<U, N> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<U, N: PartialOrd> PartialOrd for Quantity<U, N> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.number.partial_cmp(&other.number)
    }
}

impl<U: Unit, N: fmt::Display> fmt::Display for Quantity<U, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)?;
        write!(f, " {}", U::CODE)
    }
}

impl<U: Unit, N: fmt::Debug> fmt::Debug for Quantity<U, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.number, U::CODE)
    }
}

impl<U, N: Add<Output = N>> Add for Quantity<U, N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { number: self.number + other.number, unit: PhantomData }
    }
}

impl<U, N: Sub<Output = N>> Sub for Quantity<U, N> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { number: self.number - other.number, unit: PhantomData }
    }
}

impl<U, N: Neg<Output = N>> Neg for Quantity<U, N> {
    type Output = Self;

    fn neg(self) -> Self {
        Self { number: -self.number, unit: PhantomData }
    }
}

impl<U, V, N: Mul<Output = N>> Mul<Quantity<V, N>> for Quantity<U, N> {
    type Output = Quantity<Product<U, V>, N>;

    fn mul(self, other: Quantity<V, N>) -> Self::Output {
        Quantity { number: self.number * other.number, unit: PhantomData }
    }
}

impl<U, V, N: Div<Output = N>> Div<Quantity<V, N>> for Quantity<U, N> {
    type Output = Quantity<Quotient<U, V>, N>;

    fn div(self, other: Quantity<V, N>) -> Self::Output {
        Quantity { number: self.number / other.number, unit: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_are_those_of_the_standard() {
        assert_eq!(Metre::CODE.to_bytes(), [0, 128, 128, 130, 128, 128, 128, 128, 128, 128]);
        assert_eq!(MetrePerSecondSquared::CODE.to_bytes(), [0, 128, 128, 130, 128, 124, 128, 128, 128, 128]);
        assert_eq!(Volt::CODE.to_bytes(), [0, 128, 128, 132, 130, 122, 126, 128, 128, 128]);
        assert_eq!(<[u8; 92]>::TYPE.unit.to_bytes()[0], 4);
    }

    #[test]
    fn units_read_as_people_write_them() {
        assert_eq!(std::format!("{}", Volt::CODE), "m^2·kg·s^-3·A^-1");
        assert_eq!(std::format!("{}", One::CODE), "1");
        assert_eq!(std::format!("{}", UnitCode::DIGITAL), "bytes");
        assert_eq!(std::format!("{}", Quantity::<MetrePerSecond, f32>::new(2.5)), "2.5 m·s^-1");
        let mut root = Metre::CODE.to_bytes();
        root[3] = 129;
        assert_eq!(std::format!("{}", UnitCode::from_bytes(root).unwrap()), "m^(1/2)");
    }

    #[test]
    fn differently_written_units_may_be_the_same() {
        type Other = Product<Metre, Product<Kilogram, Quotient<Hertz, Second>>>;
        assert_eq!(Newton::CODE, Other::CODE);
        assert_ne!(Newton::CODE, Joule::CODE);
        let force: Quantity<Newton, i32> = Quantity::<Other, i32>::new(5).same_as();
        assert_eq!((force + force - -force).number(), 15);
    }

    #[test]
    fn other_interpretations_are_refused() {
        let mut code = Metre::CODE.to_bytes();
        for interpretation in [1, 2, 3, 4, 5, 255] {
            code[0] = interpretation;
            assert_eq!(UnitCode::from_bytes(code), None, "{interpretation}");
        }
    }

    proptest! {
        #[test]
        fn values_survive_the_message(numbers: [f64; 3], integer: i32, bytes: [u8; 16]) {
            let position = numbers.map(Quantity::<Metre, f64>::new);
            let mut room = [0; 24];
            position.write(&mut room);
            let again = <[Quantity<Metre, f64>; 3]>::read(&room).unwrap();
            prop_assert_eq!(again.map(|q| q.number().to_bits()), numbers.map(f64::to_bits));
            prop_assert!(<[Quantity<Metre, f64>; 3]>::read(&room[..23]).is_none());

            let mut room = [0; 4];
            Quantity::<Second, i32>::new(integer).write(&mut room);
            prop_assert_eq!(Quantity::<Second, i32>::read(&room).unwrap().number(), integer);

            let mut room = [0; 16];
            bytes.write(&mut room);
            prop_assert_eq!(<[u8; 16]>::read(&room), Some(bytes));
        }
    }
}
