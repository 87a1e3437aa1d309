//! Types of values, and the form in which they travel.

use core::fmt;

use super::{Format, Number, Quantity, Unit, UnitCode};

/// Type of a value: its unit, the representation of its numbers, and their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataType {
    /// Unit of the numbers.
    pub unit: UnitCode,
    /// Representation of the numbers.
    pub format: Format,
    /// Count of the numbers.
    pub count: u16,
}

impl DataType {
    /// Size of a value, bytes.
    pub const fn size(&self) -> usize {
        self.format.size() * self.count as usize
    }

    /// True if it has at least one number, and bytes are in no unit, and numbers in one.
    pub const fn is_sound(&self) -> bool {
        self.count > 0 && matches!(self.format, Format::Bytes) == self.unit.is(UnitCode::DIGITAL)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            Format::Bytes => write!(f, "{} bytes", self.count),
            format => write!(f, "{} × {format:?} in {}", self.count, self.unit),
        }
    }
}

/// A value that can be published.
pub trait Data: Sized + 'static {
    /// Type of the value.
    const TYPE: DataType;

    /// Writes it into exactly [`DataType::size`] bytes.
    fn write(&self, bytes: &mut [u8]);

    /// Reads it from as many bytes; `None` if they are no such value.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl<U: Unit, N: Number> Data for Quantity<U, N> {
    const TYPE: DataType = DataType { unit: U::CODE, format: N::FORMAT, count: 1 };

    fn write(&self, bytes: &mut [u8]) {
        self.number.write(bytes);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        N::read(bytes).map(Self::new)
    }
}

/// Several numbers of one unit, such as the three of a position.
impl<U: Unit, N: Number, const COUNT: usize> Data for [Quantity<U, N>; COUNT] {
    const TYPE: DataType = DataType { unit: U::CODE, format: N::FORMAT, count: count(COUNT) };

    fn write(&self, bytes: &mut [u8]) {
        let size = const { N::FORMAT.size() };
        for (quantity, bytes) in self.iter().zip(bytes.chunks_exact_mut(size)) {
            quantity.write(bytes);
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let size = const { N::FORMAT.size() };
        if bytes.len() != size * COUNT {
            return None;
        }
        let mut all = [Quantity::new(N::read(&bytes[..size])?); COUNT];
        for (quantity, bytes) in all.iter_mut().zip(bytes.chunks_exact(size)) {
            *quantity = Quantity::read(bytes)?;
        }
        Some(all)
    }
}

/// Digital data: bytes in no unit.
impl<const COUNT: usize> Data for [u8; COUNT] {
    const TYPE: DataType = DataType { unit: UnitCode::DIGITAL, format: Format::Bytes, count: count(COUNT) };

    fn write(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

const fn count(count: usize) -> u16 {
    assert!(count > 0 && count <= u16::MAX as usize, "a value has from 1 to 65535 numbers");
    count as u16
}
