//! Carrier datagrams: whole frames and control words of a SpaceFibre link over a packet network.
//!
//! The format is Shotline's own. A datagram begins with a [`Header`] and has any number of records. A record is a
//! [`Record`] of 4 bytes, and the words of the link as they are sent, 4 bytes each; words that are replicated on
//! all lanes appear once, except the EDFs, which have a CRC-16 for each lane:
//!
//! | kind | words |
//! |---|---|
//! | words | control words |
//! | data frame | SDF; data words row by row, without PADs; EDF of each lane |
//! | broadcast frame | SBF, two data words, EBF |
//!
//! Header, 24 bytes, big-endian:
//!
//! | byte | field |
//! |---|---|
//! | 0 | `S` `F` |
//! | 2 | version, 1 |
//! | 3 | flags: bit 0 the sender initialises the link, bit 1 data frames are scrambled, others 0 |
//! | 4 | lanes, 1 to 16 |
//! | 5 | reserved, 0 |
//! | 8 | number of the datagram in its session |
//! | 12 | session of the sender |
//! | 16 | session of the receiver as the sender knows it; 0: unknown |
//! | 20 | CRC-32 of the first 20 bytes |
//!
//! Record header: byte 0 kind (1 words, 2 data frame, 3 broadcast frame); bytes 1 and 2, big-endian, how the packet ends
//! in bits 15:14 (0 not here, 1 EOP, 2 EEP) and the number of characters in bits 12:0: for a data frame those before EOP
//! or EEP, otherwise 4 for each word; byte 3 CRC-8 of the first three bytes. The K flags follow from these numbers.

use super::crc::crc8;
use crate::bytes::{Fields, Header as Writer};
use crate::{ParseError, crc};

/// Characters of a data frame on one lane.
pub const LANE_CHARACTERS: u16 = 256;
/// Maximum number of lanes.
pub const MAX_LANES: u8 = 16;

/// Head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender initialises the link and does not know the receiver's state.
    pub initialises: bool,
    /// The data words of data frames are scrambled.
    pub scrambled: bool,
    /// Number of lanes, 1 to 16.
    pub lanes: u8,
    /// Number of the datagram in its session, from 0; 0 in datagrams that initialise the link.
    pub number: u32,
    /// Session of the sender, not 0.
    pub session: u32,
    /// Session of the receiver as the sender knows it; 0 if unknown.
    pub peer_session: u32,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 24;
    const MAGIC: u16 = u16::from_be_bytes(*b"SF");
    const VERSION: u8 = 1;

    /// Parses a header and returns it with the records.
    ///
    /// # Errors
    /// If it is too short, has another version, or its CRC-32 or a field is not valid.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = Fields::new("SpaceFibre datagram", bytes);
        let value = |what, expected: u64, found: u64| {
            if found == expected { Ok(()) } else { Err(ParseError::Value { what, expected, found }) }
        };
        value("magic of a SpaceFibre datagram", Self::MAGIC.into(), fields.u16()?.into())?;
        value("version of a SpaceFibre datagram", Self::VERSION.into(), fields.u8()?.into())?;
        let flags = fields.u8()?;
        let lanes = fields.u8()?;
        let reserved = fields.u24()?;
        let (number, session, peer_session) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let found = fields.u32()?;
        value("CRC-32 of a SpaceFibre datagram", crc::crc32(&bytes[..Self::LEN - 4]).into(), found.into())?;
        value("reserved flags of a SpaceFibre datagram", 0, (flags & !3).into())?;
        value("reserved bytes of a SpaceFibre datagram", 0, reserved.into())?;
        if !(1..=MAX_LANES).contains(&lanes) {
            return Err(ParseError::Range { what: "lanes", min: 1, max: MAX_LANES.into(), found: lanes.into() });
        }
        if session == 0 {
            return Err(ParseError::Range { what: "session", min: 1, max: u32::MAX.into(), found: 0 });
        }
        let (initialises, scrambled) = (flags & 1 != 0, flags & 2 != 0);
        Ok((Self { initialises, scrambled, lanes, number, session, peer_session }, fields.rest()))
    }

    /// Returns the encoded header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let head: [u8; Self::LEN - 4] = Writer::new()
            .u16(Self::MAGIC)
            .u8(Self::VERSION)
            .u8(u8::from(self.initialises) | u8::from(self.scrambled) << 1)
            .u8(self.lanes)
            .zeros(3)
            .u32(self.number)
            .u32(self.session)
            .u32(self.peer_session)
            .done();
        let mut bytes = [0; Self::LEN];
        bytes[..Self::LEN - 4].copy_from_slice(&head);
        bytes[Self::LEN - 4..].copy_from_slice(&crc::crc32(&head).to_be_bytes());
        bytes
    }
}

/// End of a packet (ECSS 5.3.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketEnd {
    /// EOP: the packet is complete.
    Eop,
    /// EEP: the packet was cut by an error.
    Eep,
}

impl PacketEnd {
    /// Returns the K-code.
    pub const fn character(self) -> u8 {
        match self {
            Self::Eop => super::character::EOP,
            Self::Eep => super::character::EEP,
        }
    }
}

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Control words, at least one.
    Words {
        /// Number of words.
        count: u16,
    },
    /// A data frame.
    Data {
        /// Characters before EOP or EEP; a multiple of 4 if there is neither.
        characters: u16,
        /// How the packet ends.
        end: Option<PacketEnd>,
    },
    /// A broadcast frame.
    Broadcast,
}

impl Record {
    /// Length of the record header, in bytes.
    pub const HEADER_LEN: usize = 4;

    /// Returns the number of data words of a data frame of so many characters.
    pub fn data_words(characters: u16, end: Option<PacketEnd>) -> u32 {
        if end.is_some() { u32::from(characters) / 4 + 1 } else { u32::from(characters) / 4 }
    }

    /// Returns the length in bytes of the words that follow the record header.
    pub fn body_len(self, lanes: u8) -> usize {
        let words = match self {
            Self::Words { count } => count.into(),
            Self::Data { characters, end } => 1 + Self::data_words(characters, end) + u32::from(lanes),
            Self::Broadcast => 4,
        };
        4 * words as usize
    }

    /// Parses a record header of a link with `lanes` lanes, and returns the record, its words and the bytes after them.
    ///
    /// # Errors
    /// If the header's CRC-8 or a field is not valid, or the datagram ends before the words.
    pub fn parse(bytes: &mut [u8], lanes: u8) -> Result<(Self, &mut [u8], &mut [u8]), ParseError> {
        let (head, rest) =
            bytes.split_at_mut_checked(Self::HEADER_LEN).ok_or(ParseError::Missing { what: "record" })?;
        let record = Self::parse_header([head[0], head[1], head[2], head[3]], lanes)?;
        let (needed, found) = (record.body_len(lanes), rest.len());
        let (body, rest) =
            rest.split_at_mut_checked(needed).ok_or(ParseError::Truncated { what: "record", needed, found })?;
        Ok((record, body, rest))
    }

    fn parse_header(head: [u8; 4], lanes: u8) -> Result<Self, ParseError> {
        let (what, expected, found) = ("CRC-8 of a record", crc8(&head[..3]).into(), head[3].into());
        if expected != found {
            return Err(ParseError::Value { what, expected, found });
        }
        let number = u16::from_be_bytes([head[1], head[2]]);
        let (characters, end) = (number & 0x1FFF, number >> 14);
        let end = match end {
            0 => None,
            1 => Some(PacketEnd::Eop),
            2 => Some(PacketEnd::Eep),
            _ => return Err(ParseError::Unknown { what: "packet end", found: end.into() }),
        };
        let record = match head[0] {
            1 => Self::Words { count: characters / 4 },
            2 => Self::Data { characters, end },
            3 => Self::Broadcast,
            kind => return Err(ParseError::Unknown { what: "record kind", found: kind.into() }),
        };
        let words = match record {
            Self::Data { characters, end } => Self::data_words(characters, end),
            Self::Words { count } => count.into(),
            Self::Broadcast => 1,
        };
        let max = u64::from(LANE_CHARACTERS) / 4 * u64::from(lanes);
        if !(1..=max).contains(&words.into()) {
            return Err(ParseError::Range { what: "words of a record", min: 1, max, found: words.into() });
        }
        // The rest of the number is determined by the kind: this leaves one encoding of each record.
        if record.emit() != head {
            return Err(ParseError::Unknown { what: "characters of a record", found: number.into() });
        }
        Ok(record)
    }

    /// Returns the encoded record header.
    pub fn emit(self) -> [u8; Self::HEADER_LEN] {
        let (kind, number) = match self {
            Self::Words { count } => (1, 4 * count),
            Self::Data { characters, end } => {
                let (end, characters) = match end {
                    None => (0, characters & !3),
                    Some(PacketEnd::Eop) => (1, characters),
                    Some(PacketEnd::Eep) => (2, characters),
                };
                (2, end << 14 | characters & 0x1FFF)
            }
            Self::Broadcast => (3, 16),
        };
        let [high, low] = number.to_be_bytes();
        [kind, high, low, crc8(&[kind, high, low])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const HEADER: Header =
        Header { initialises: false, scrambled: true, lanes: 4, number: 7, session: 0x1234_5678, peer_session: 9 };

    #[test]
    fn header_has_its_literal_bytes() {
        let bytes = HEADER.emit();
        assert_eq!(bytes[..20], *b"SF\x01\x02\x04\0\0\0\0\0\0\x07\x12\x34\x56\x78\0\0\0\x09");
        // zlib.crc32 of the 20 bytes.
        assert_eq!(bytes[20..], [0x26, 0xB3, 0x72, 0x70]);
        assert_eq!(Header::parse(&bytes), Ok((HEADER, [].as_slice())));
        let start = Header { initialises: true, number: 0, peer_session: 0, ..HEADER };
        assert_eq!(Header::parse(&start.emit()), Ok((start, [].as_slice())));
    }

    #[test]
    fn every_bit_error_of_a_header_is_found() {
        for bit in 0..8 * Header::LEN {
            let mut bytes = HEADER.emit();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&bytes).is_err(), "bit {bit}");
        }
        for len in 0..Header::LEN {
            assert!(Header::parse(&HEADER.emit()[..len]).is_err());
        }
    }

    #[test]
    fn records_have_their_literal_bytes() {
        let data = |characters, end| Record::Data { characters, end };
        assert_eq!(data(1024, None).emit()[..3], [2, 0x04, 0x00]);
        assert_eq!(data(5, Some(PacketEnd::Eop)).emit()[..3], [2, 0x40, 0x05]);
        assert_eq!(data(0, Some(PacketEnd::Eep)).emit()[..3], [2, 0x80, 0x00]);
        assert_eq!(Record::Words { count: 2 }.emit()[..3], [1, 0, 8]);
        assert_eq!(Record::Broadcast.emit()[..3], [3, 0, 16]);
        assert_eq!(Record::Broadcast.emit()[3], crc8(&[3, 0, 16]));
    }

    #[test]
    fn body_lengths_count_sdf_end_and_the_edf_of_each_lane() {
        let data = |characters, end| Record::Data { characters, end }.body_len(4);
        assert_eq!(data(1024, None), 4 + 1024 + 16);
        assert_eq!(data(1023, Some(PacketEnd::Eop)), 4 + 1024 + 16);
        assert_eq!(data(4, Some(PacketEnd::Eop)), 4 + 8 + 16);
        assert_eq!(Record::Words { count: 3 }.body_len(4), 12);
        assert_eq!(Record::Broadcast.body_len(4), 16);
    }

    /// Records that are valid for 4 lanes.
    fn valid() -> Vec<Record> {
        let ends = [None, Some(PacketEnd::Eop), Some(PacketEnd::Eep)];
        let data = ends.into_iter().flat_map(|end| (0..=1024).map(move |characters| Record::Data { characters, end }));
        let fits = |record: &Record| match *record {
            Record::Data { characters, end: None } => characters > 0 && characters % 4 == 0,
            Record::Data { characters, .. } => characters < 1024,
            Record::Words { .. } | Record::Broadcast => true,
        };
        let words = (1..=256).map(|count| Record::Words { count });
        data.filter(fits).chain(words).chain([Record::Broadcast]).collect()
    }

    #[test]
    fn records_round_trip_and_nothing_else_is_accepted() {
        let valid = valid();
        let mut accepted = 0;
        for bits in 0..=0xFF_FFFF_u32 {
            let [_, kind, high, low] = bits.to_be_bytes();
            let head = [kind, high, low, crc8(&[kind, high, low])];
            if let Ok(record) = Record::parse_header(head, 4) {
                assert_eq!(record.emit(), head);
                accepted += 1;
            }
            if kind > 4 {
                break;
            }
        }
        assert_eq!(accepted, valid.len());
        for record in valid {
            let mut bytes: Vec<u8> = record.emit().to_vec();
            bytes.resize(4 + record.body_len(4), 0);
            bytes.push(7);
            let (found, body, rest) = Record::parse(&mut bytes, 4).unwrap();
            assert_eq!((found, body.len(), &*rest), (record, record.body_len(4), [7].as_slice()));
            bytes.truncate(4 + record.body_len(4) - 1);
            assert!(Record::parse(&mut bytes, 4).is_err());
        }
    }

    #[test]
    fn every_bit_error_of_a_record_header_is_found() {
        for record in valid() {
            for bit in 0..32 {
                let mut head = record.emit();
                head[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::parse_header(head, 4).is_err(), "{record:?}, bit {bit}");
            }
        }
    }
}
