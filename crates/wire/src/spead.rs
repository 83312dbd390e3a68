//! SPEAD, the Streaming Protocol for Exchanging Astronomical Data (revision 1, 2012), in its flavours 64-40 and
//! 64-48: UDP packets that carry parts of *heaps*.
//!
//! A packet begins with 8 bytes (`53`, version 4, width of an item's id, width of a heap address, two zeros,
//! number of items), then items of 8 bytes each: an immediate bit, an id, and a value or an address in the heap.
//! The payload, a part of the heap, follows. All fields are big-endian.

use crate::{ParseError, bytes};

/// First byte of every packet.
pub const MAGIC: u8 = 0x53;
/// Version that this crate reads and writes.
pub const VERSION: u8 = 4;
/// Length of the fixed header and of each item, in bytes.
pub const WORD: usize = 8;

/// Ids of the items that SPEAD defines.
pub mod id {
    /// Heap counter.
    pub const HEAP_COUNTER: u32 = 1;
    /// Length of the whole heap in bytes.
    pub const HEAP_SIZE: u32 = 2;
    /// Byte offset of this packet's payload in the heap.
    pub const HEAP_OFFSET: u32 = 3;
    /// Length of this packet's payload in bytes.
    pub const PAYLOAD_LENGTH: u32 = 4;
    /// Item descriptor.
    pub const DESCRIPTOR: u32 = 5;
    /// Stream control.
    pub const STREAM_CONTROL: u32 = 6;
}

/// Value of the stream-control item that ends a stream.
pub const STREAM_STOP: u64 = 2;

/// SPEAD flavour, by the number of bits of a heap address and of the heap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Flavour {
    /// SPEAD-64-40.
    F40 = 40,
    /// SPEAD-64-48.
    F48 = 48,
}

impl Flavour {
    /// Returns the number of bits of a heap address and of a value.
    pub fn bits(self) -> u32 {
        self as u32
    }
}

/// Header of a packet: the part of a heap that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// SPEAD flavour.
    pub flavour: Flavour,
    /// Number of items in the packet.
    pub items: u16,
    /// Heap counter.
    pub heap: u64,
    /// Length of the whole heap in bytes, if the packet has it.
    pub heap_bytes: Option<u64>,
    /// Byte offset of the payload in the heap.
    pub offset: u64,
    /// Length of the payload in bytes.
    pub len: u64,
    /// `true` if the packet ends the stream.
    pub stop: bool,
    /// `true` if the packet carries stream control or item descriptors.
    pub control: bool,
}

impl Header {
    /// Returns the length in bytes of a header with `items` items.
    pub fn len_of(items: u16) -> usize {
        WORD * (1 + usize::from(items))
    }

    /// Returns the length in bytes of a header, given its first bytes; [`WORD`] if they are too few or not SPEAD.
    pub fn peek_len(first: &[u8]) -> usize {
        match first {
            [MAGIC, VERSION, _, _, _, _, high, low, ..] => Self::len_of(u16::from_be_bytes([*high, *low])),
            _ => WORD,
        }
    }

    /// Parses a header and returns it with the remaining bytes. User-defined items are ignored.
    ///
    /// # Errors
    /// If the packet is truncated, is not of a supported version and flavour, or lacks item 1, 3 or 4.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("SPEAD header", packet);
        let (magic, version, id_bytes, address_bytes) = (fields.u8()?, fields.u8()?, fields.u8()?, fields.u8()?);
        for (what, expected, found) in [("SPEAD magic", MAGIC, magic), ("SPEAD version", VERSION, version)] {
            if found != expected {
                let (expected, found) = (expected.into(), found.into());
                return Err(ParseError::Value { what, expected, found });
            }
        }
        let flavour = match (id_bytes, address_bytes) {
            (3, 5) => Flavour::F40,
            (2, 6) => Flavour::F48,
            _ => {
                let found = u64::from(id_bytes) << 8 | u64::from(address_bytes);
                return Err(ParseError::Unknown { what: "SPEAD flavour (expected 64-40 or 64-48)", found });
            }
        };
        let _reserved = fields.u16()?;
        let items = fields.u16()?;
        let (mut heap, mut heap_bytes, mut offset, mut len) = (None, None, None, None);
        let (mut stop, mut control) = (false, false);
        for _ in 0..items {
            let item = fields.u64()?;
            let value = item & ((1 << flavour.bits()) - 1);
            let immediate = item >> 63 == 1;
            match ((item & !(1 << 63)) >> flavour.bits(), immediate) {
                (known, true) if known == u64::from(id::HEAP_COUNTER) => heap = Some(value),
                (known, true) if known == u64::from(id::HEAP_SIZE) => heap_bytes = Some(value),
                (known, true) if known == u64::from(id::HEAP_OFFSET) => offset = Some(value),
                (known, true) if known == u64::from(id::PAYLOAD_LENGTH) => len = Some(value),
                (known, true) if known == u64::from(id::STREAM_CONTROL) => {
                    control = true;
                    stop |= value == STREAM_STOP;
                }
                (known, _) if known == u64::from(id::DESCRIPTOR) => control = true,
                _ => {}
            }
        }
        let required = |item: Option<u64>, what| item.ok_or(ParseError::Missing { what });
        let header = Self {
            flavour,
            items,
            heap: required(heap, "SPEAD heap counter (item 1)")?,
            heap_bytes,
            offset: required(offset, "SPEAD heap offset (item 3)")?,
            len: required(len, "SPEAD payload length (item 4)")?,
            stop,
            control,
        };
        Ok((header, fields.rest()))
    }

    /// Encodes the header with the four items that every packet has.
    pub fn emit(&self) -> [u8; 5 * WORD] {
        let (id_bytes, address_bytes) = match self.flavour {
            Flavour::F40 => (3, 5),
            Flavour::F48 => (2, 6),
        };
        let item = |id: u32, value: u64| {
            1 << 63 | u64::from(id) << self.flavour.bits() | value & ((1 << self.flavour.bits()) - 1)
        };
        bytes::Header::new()
            .put(&[MAGIC, VERSION, id_bytes, address_bytes, 0, 0, 0, 4])
            .u64(item(id::HEAP_COUNTER, self.heap))
            .u64(item(id::HEAP_SIZE, self.heap_bytes.unwrap_or(0)))
            .u64(item(id::HEAP_OFFSET, self.offset))
            .u64(item(id::PAYLOAD_LENGTH, self.len))
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..][..2], 16).unwrap()).collect()
    }

    #[test]
    fn spead2_packets_are_parsed() {
        let empty = hex(concat!(
            "53040206000000058001000000123456800200000000000180030000000000008004000000000001",
            "000000000000000000"
        ));
        let (header, rest) = Header::parse(&empty).unwrap();
        assert_eq!((header.flavour, header.items, header.heap), (Flavour::F48, 5, 0x12_3456));
        assert_eq!((header.heap_bytes, header.offset, header.len, rest.len()), (Some(1), 0, 1, 1));
        assert!(!header.control && !header.stop);
        let stamped = hex(concat!(
            "530402060000000680010000000000018002000000000010800300000000000080040000000000109600",
            "0123456789ab3300000000000000000102030405060708090a0b0c0d0e0f"
        ));
        let (header, rest) = Header::parse(&stamped).unwrap();
        assert_eq!((header.heap, header.len, rest[15], Header::peek_len(&stamped)), (1, 16, 15, 56));
    }

    #[test]
    fn control_packets_are_distinguished_from_data() {
        let word = |item: u64| item.to_be_bytes();
        let packet = |last: u64| {
            let mut bytes = [MAGIC, VERSION, 2, 6, 0, 0, 0, 4].to_vec();
            for item in [1 << 63 | 1 << 48 | 7, 1 << 63 | 3 << 48, 1 << 63 | 4 << 48, last] {
                bytes.extend(word(item));
            }
            Header::parse(&bytes).map(|(header, _)| (header.control, header.stop))
        };
        assert_eq!(packet(1 << 63 | 6 << 48 | 2), Ok((true, true)), "stop");
        assert_eq!(packet(1 << 63 | 6 << 48), Ok((true, false)), "start");
        assert_eq!(packet(5 << 48), Ok((true, false)), "descriptor");
        assert_eq!(packet(0x1600 << 48 | 9), Ok((false, false)), "a user-defined item");
        let empty = Header::parse(&[MAGIC, VERSION, 2, 6, 0, 0, 0, 0]);
        assert_eq!(empty, Err(ParseError::Missing { what: "SPEAD heap counter (item 1)" }));
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(wide: bool, heap: u64, heap_bytes: u64, offset: u64, len: u64) {
            let flavour = if wide { Flavour::F48 } else { Flavour::F40 };
            let low = |value: u64| value & ((1 << flavour.bits()) - 1);
            let header = Header {
                flavour, items: 4, heap: low(heap), heap_bytes: Some(low(heap_bytes)), offset: low(offset),
                len: low(len), stop: false, control: false,
            };
            let bytes = header.emit();
            prop_assert_eq!(Header::peek_len(&bytes), bytes.len());
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
            prop_assert!(Header::parse(&bytes[..39]).is_err());
        }

        #[test]
        fn parse_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), head: bool) {
            if head && bytes.len() > 4 {
                bytes[..4].copy_from_slice(&[MAGIC, VERSION, 2, 6]);
            }
            let _ = (Header::parse(&bytes), Header::peek_len(&bytes));
        }
    }
}
