//! VITA 49 (VRT): data packets of timestamped samples, and context packets that describe the samples.
//!
//! Clauses refer to ANSI/VITA 49.0-2015 and 49.2-2017; 49.0 packets are a subset of 49.2 packets. Words are 32 bits,
//! big-endian. A packet is
//!
//! ```text
//! header (1 word) | stream id (0 or 1) | class id (0 or 2) | seconds (0 or 1) | fraction (0 or 2) |
//! samples or context fields | trailer (0 or 1, data only)
//! ```
//!
//! [`Prologue`] is the part of any packet before its contents; [`Data`] and [`Context`] are whole packets. Command
//! packets are recognised, but their contents are not parsed.
//!
//! ```
//! use shotline_wire::vita49::{Data, Fraction, Kind, Prologue, Seconds, Time};
//! # fn main() -> Result<(), shotline_wire::ParseError> {
//! let time = Time { seconds: Some(Seconds::Gps(1_000_000_000)), fraction: Some(Fraction::Picoseconds(42)) };
//! let prologue = Prologue { time, ..Prologue::data(7) }.sized(8);
//! let mut packet = prologue.emit().to_vec();
//! packet.extend([0, 1, 0, 2, 0, 3, 0, 4]); // two complex samples
//! let data = Data::parse(&packet)?;
//! assert_eq!((data.prologue, data.payload.len()), (prologue, 8));
//! # Ok(()) }
//! ```

use crate::ParseError;
use crate::bytes::{Fields, append};
use arrayvec::ArrayVec;

mod context;
mod format;
mod time;
mod trailer;
mod word;

#[cfg(test)]
mod tests;

pub use context::{Context, MAX_CONTEXT};
pub use format::{Arrangement, Celsius, Decibels, Format, Hertz, Item};
pub use time::{Fraction, PS_PER_SECOND, Seconds, TAI_MINUS_GPS, Time};
pub use trailer::{Indicator, State, Trailer};
pub use word::WORD;

/// Conventional UDP port.
pub const PORT: u16 = 4991;

/// Maximum length of a prologue, in bytes.
pub const MAX_PROLOGUE: usize = 7 * WORD;

const WHAT: &str = "VITA 49 packet";

/// Packet type (5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Signal data: samples.
    Data,
    /// Data in a form that is not in the standard.
    ExtensionData,
    /// Description of the samples.
    Context,
    /// Context in a form that is not in the standard.
    ExtensionContext,
    /// Control and acknowledgement (49.2).
    Command,
    /// Commands in a form that is not in the standard.
    ExtensionCommand,
}

/// Class identifier: organisation and classes that define the packet's contents (5.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    /// Padding bits in the payload's last word, 0 to 31.
    pub pad_bits: u8,
    /// Organisation, 24 bits (an IEEE OUI or CID).
    pub organisation: u32,
    /// Information class code.
    pub information: u16,
    /// Packet class code.
    pub packet: u16,
}

/// The part of a packet before its contents: header word, identifiers and timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prologue {
    /// Packet type.
    pub kind: Kind,
    /// Stream identifier. Only data packets may omit it: in other packets `None` is emitted as 0.
    pub stream: Option<u32>,
    /// Class identifier.
    pub class: Option<Class>,
    /// Bits 26 to 24 of the header, whose meaning depends on the kind: [`Prologue::TRAILER`] and the others.
    pub flags: u8,
    /// Time of the first sample, or time from which the context is valid.
    pub time: Time,
    /// Packet count of the stream and kind, modulo 16.
    pub count: u8,
    /// Length of the whole packet in words.
    pub words: u16,
}

impl Prologue {
    /// Flag of data packets: a trailer follows the samples.
    pub const TRAILER: u8 = 0b100;
    /// Flag of data and context packets: uses features that 49.0 does not have.
    pub const NOT_49_0: u8 = 0b010;
    /// Flag of data packets: spectra instead of samples.
    pub const SPECTRA: u8 = 0b001;
    /// Flag of context packets: the time has only the resolution of data packets.
    pub const COARSE: u8 = 0b001;

    /// Returns the prologue of an empty data packet with this stream identifier.
    pub fn data(stream: u32) -> Self {
        let (kind, stream, class) = (Kind::Data, Some(stream), None);
        Self { kind, stream, class, flags: 0, time: Time::default(), count: 0, words: 2 }
    }

    /// Returns the prologue with `words` set for this many bytes of contents, rounded up to a word, and for the
    /// trailer if it has that flag. The length is clamped to 65535 words.
    #[must_use]
    pub fn sized(self, contents: usize) -> Self {
        let words = self.size() / WORD + contents.div_ceil(WORD) + usize::from(self.has_trailer());
        Self { words: words.min(u16::MAX.into()) as u16, ..self }
    }

    /// Returns `true` if the last word of the packet is a trailer.
    pub fn has_trailer(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::ExtensionData) && self.flags & Self::TRAILER != 0
    }

    /// Returns the length of the prologue in bytes.
    pub fn size(&self) -> usize {
        let Time { seconds, fraction } = self.time;
        let stream = usize::from(self.stream.is_some() || !self.may_lack_stream());
        let class = 2 * usize::from(self.class.is_some());
        WORD * (1 + stream + class + usize::from(seconds.is_some()) + 2 * usize::from(fraction.is_some()))
    }

    fn may_lack_stream(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::ExtensionData)
    }

    /// Returns the length in bytes of a prologue, given its first word; 4 if `first` is shorter than a word.
    pub fn peek_len(first: &[u8]) -> usize {
        let Some(word) = first.first_chunk().map(|word| u32::from_be_bytes(*word)) else { return WORD };
        let stream = usize::from(!matches!(word >> 28, 0 | 2));
        let class = 2 * (word >> 27 & 1) as usize;
        let (seconds, fraction) = (word >> 22 & 3, word >> 20 & 3);
        WORD * (1 + stream + class + usize::from(seconds != 0) + 2 * usize::from(fraction != 0))
    }

    /// Parses a packet and returns the prologue and the contents, trailer included. Bytes after the packet are ignored.
    ///
    /// # Errors
    /// If the packet is truncated, or its length, kind or time is invalid.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let prologue = Self::head(bytes)?;
        let total = usize::from(prologue.words) * WORD;
        match bytes.get(prologue.size()..total) {
            Some(contents) => Ok((prologue, contents)),
            None => Err(ParseError::Truncated { what: WHAT, needed: total, found: bytes.len() }),
        }
    }

    /// Parses the prologue alone, of a packet whose contents are in another buffer.
    ///
    /// # Errors
    /// If it is truncated, is of unknown kind, is longer than the packet's length field, or its time is invalid.
    pub fn head(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(WHAT, bytes);
        let word = fields.u32()?;
        let (kind, has_stream) = match word >> 28 {
            0 => (Kind::Data, false),
            1 => (Kind::Data, true),
            2 => (Kind::ExtensionData, false),
            3 => (Kind::ExtensionData, true),
            4 => (Kind::Context, true),
            5 => (Kind::ExtensionContext, true),
            6 => (Kind::Command, true),
            7 => (Kind::ExtensionCommand, true),
            found => return Err(ParseError::Unknown { what: "VITA 49 packet type", found: found.into() }),
        };
        let stream = if has_stream { Some(fields.u32()?) } else { None };
        let class = if word & 1 << 27 != 0 { Some(Class::parse(&mut fields)?) } else { None };
        let time = Time::parse(word >> 22 & 3, word >> 20 & 3, &mut fields)?;
        let flags = (word >> 24 & 7) as u8;
        let prologue = Self { kind, stream, class, flags, time, count: (word >> 16 & 15) as u8, words: word as u16 };
        let min = prologue.size() + if prologue.has_trailer() { WORD } else { 0 };
        let total = usize::from(prologue.words) * WORD;
        if total < min {
            let (min, max, found) = (min as u64, u64::from(u16::MAX) * WORD as u64, total as u64);
            return Err(ParseError::Range { what: "bytes of a VITA 49 packet", min, max, found });
        }
        Ok(prologue)
    }

    /// Encodes the prologue.
    pub fn emit(&self) -> ArrayVec<u8, MAX_PROLOGUE> {
        let has_stream = self.stream.is_some() || !self.may_lack_stream();
        let kind = match self.kind {
            Kind::Data => u32::from(has_stream),
            Kind::ExtensionData => 2 + u32::from(has_stream),
            Kind::Context => 4,
            Kind::ExtensionContext => 5,
            Kind::Command => 6,
            Kind::ExtensionCommand => 7,
        };
        let (seconds, fraction) = self.time.codes();
        let (flags, count) = (u32::from(self.flags & 7) << 24, u32::from(self.count & 15) << 16);
        let class = u32::from(self.class.is_some()) << 27;
        let word = kind << 28 | class | flags | seconds << 22 | fraction << 20 | count | u32::from(self.words);
        let mut out = ArrayVec::new();
        append(&mut out, &word.to_be_bytes());
        if has_stream {
            append(&mut out, &self.stream.unwrap_or(0).to_be_bytes());
        }
        if let Some(class) = self.class {
            append(&mut out, &class.emit());
        }
        self.time.emit(&mut out);
        out
    }
}

impl Class {
    fn parse(fields: &mut Fields<'_>) -> Result<Self, ParseError> {
        let word = fields.u32()?;
        let (information, packet) = (fields.u16()?, fields.u16()?);
        Ok(Self { pad_bits: (word >> 27) as u8, organisation: word & 0xff_ffff, information, packet })
    }

    fn emit(self) -> [u8; 2 * WORD] {
        let word = u32::from(self.pad_bits & 31) << 27 | self.organisation & 0xff_ffff;
        crate::bytes::Header::new().u32(word).u16(self.information).u16(self.packet).done()
    }
}

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Header word, identifiers and timestamp.
    pub prologue: Prologue,
    /// Samples, in whole words.
    pub payload: &'a [u8],
    /// Trailer, if the packet has one.
    pub trailer: Option<Trailer>,
}

impl<'a> Data<'a> {
    /// Parses a whole packet.
    ///
    /// # Errors
    /// If [`Prologue::parse`] fails, or the packet is not a data packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (prologue, contents) = Prologue::parse(bytes)?;
        if prologue.kind != Kind::Data {
            let found = prologue.kind as u64;
            return Err(ParseError::Value { what: "kind of VITA 49 packet", expected: Kind::Data as u64, found });
        }
        let (payload, trailer) = match contents.split_last_chunk() {
            Some((payload, trailer)) if prologue.has_trailer() => (payload, Some(Trailer::parse(trailer))),
            _ => (contents, None),
        };
        Ok(Self { prologue, payload, trailer })
    }
}
