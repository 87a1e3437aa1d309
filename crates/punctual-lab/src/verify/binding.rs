//! When a program's symbols are bound: at its start, or each when it is first called. Read from the program's own file (ELF, 64 bits,
//! little-endian, as all processors that this library is for have it).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// When symbols are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// All of them at its start: linked with `-z now`.
    AtStart,
    /// It needs none of others: linked statically.
    Static,
    /// Each when it is first called, unless `LD_BIND_NOW` says otherwise.
    WhenCalled,
}

/// `PT_DYNAMIC`.
const DYNAMIC: u32 = 2;
/// `DT_BIND_NOW`, `DT_FLAGS` with `DF_BIND_NOW`, `DT_FLAGS_1` with `DF_1_NOW`.
const BIND_NOW: u64 = 24;
const FLAGS: (u64, u64) = (30, 0x8);
const FLAGS_1: (u64, u64) = (0x6fff_fffb, 0x1);

/// Program headers, and bytes of a dynamic section, that are looked at: real ones are far smaller.
const HEADERS_MAX: u16 = 512;
const SECTION_MAX: u64 = 1 << 20;

/// Of this program.
///
/// # Errors
/// Its file cannot be read, or is no such program.
pub fn of_this_program() -> io::Result<Binding> {
    let file = File::open("/proc/self/exe")?;
    binding(&|place, bytes| file.read_exact_at(bytes, place))
}

/// Reads at a place of the file.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

fn binding(read: Read<'_>) -> io::Result<Binding> {
    let mut head = [0; 64];
    read(0, &mut head)?;
    if head[..6] != *b"\x7fELF\x02\x01" {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no ELF file of 64 bits"));
    }
    let (start, size, count) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56).min(HEADERS_MAX));
    for number in 0..u64::from(count) {
        let mut header = [0; 56];
        read(start.wrapping_add(number * u64::from(size)), &mut header)?;
        if u32::from_le_bytes([header[0], header[1], header[2], header[3]]) == DYNAMIC {
            let mut section = vec![0; u64_at(&header, 32).min(SECTION_MAX) as usize];
            read(u64_at(&header, 8), &mut section)?;
            return Ok(of_section(&section));
        }
    }
    Ok(Binding::Static)
}

/// A dynamic section: pairs of a tag and a value. One without a library that it needs is that of a static program.
fn of_section(section: &[u8]) -> Binding {
    const NEEDED: u64 = 1;
    let pairs = || section.chunks_exact(16).map(|pair| (u64_at(pair, 0), u64_at(pair, 8)));
    let has = |(tag, bit): (u64, u64)| pairs().any(|(found, value)| found == tag && value & bit != 0);
    if pairs().any(|(tag, _)| tag == BIND_NOW) || has(FLAGS) || has(FLAGS_1) {
        Binding::AtStart
    } else if pairs().all(|(tag, _)| tag != NEEDED) {
        Binding::Static
    } else {
        Binding::WhenCalled
    }
}

fn u64_at(bytes: &[u8], place: usize) -> u64 {
    bytes.get(place..place + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn u16_at(bytes: &[u8], place: usize) -> u16 {
    bytes.get(place..place + 2).map_or(0, |bytes| u16::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with one header, of this kind, and this dynamic section.
    fn program(kind: u32, pairs: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes[72..80].copy_from_slice(&120_u64.to_le_bytes());
        bytes[96..104].copy_from_slice(&(pairs.len() as u64 * 16).to_le_bytes());
        pairs.iter().for_each(|(tag, value)| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        });
        bytes
    }

    fn of(bytes: &[u8]) -> io::Result<Binding> {
        binding(&|place, into| {
            let from = usize::try_from(place).map_err(io::Error::other)?;
            let found = from.checked_add(into.len()).and_then(|end| bytes.get(from..end));
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// Goal: each of the three ways to say it is read, other flags are not taken for it, and what needs no library binds nothing.
    #[test]
    fn flags_say_when_symbols_are_bound() {
        let needed = (1, 5);
        for now in [(24, 0), (30, 0x8), (30, 0x18), (0x6fff_fffb, 0x800_0001)] {
            assert_eq!(
                of(&program(DYNAMIC, &[needed, now])).expect("a program"),
                Binding::AtStart,
                "{now:?}"
            );
        }
        for other in [(30, 0x10), (0x6fff_fffb, 0x800_0000), (25, 0x8)] {
            let found = of(&program(DYNAMIC, &[needed, other])).expect("a program");
            assert_eq!(found, Binding::WhenCalled, "{other:?}");
        }
        assert_eq!(of(&program(DYNAMIC, &[(25, 1)])).expect("a program"), Binding::Static);
        assert_eq!(of(&program(1, &[needed])).expect("a program"), Binding::Static);
        assert!(of(b"#!/bin/sh").is_err() && of(&program(DYNAMIC, &[needed])[..130]).is_err());
        of_this_program().expect("this test is a program");
    }
}
