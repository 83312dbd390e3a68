//! VITA 49 (VRT): packets of samples with a time stamp, and packets that say what the samples mean.
//!
//! ANSI/VITA 49.0-2015 and 49.2-2017, to which clauses here refer; a packet of 49.0 is one of 49.2 with fewer things
//! in it. Words are of 32 bits, big-endian. A packet is
//!
//! ```text
//! header (1 word) | stream id (0 or 1) | class id (0 or 2) | seconds (0 or 1) | fraction (0 or 2) |
//! samples, or the context's fields | trailer (0 or 1, data only)
//! ```
//!
//! [`Prologue`] is all that stands before the samples, of any packet; [`Data`] and [`Context`] are whole packets.
//! Command packets are recognised, and their contents are not read.
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

/// The UDP port that is used by convention.
pub const PORT: u16 = 4991;

/// Bytes of the longest prologue.
pub const MAX_PROLOGUE: usize = 7 * WORD;

const WHAT: &str = "VITA 49 packet";

/// What a packet is (5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Samples of a signal.
    Data,
    /// Anything else that somebody calls data.
    ExtensionData,
    /// What the samples mean.
    Context,
    /// Context of a form that is not in the standard.
    ExtensionContext,
    /// Control and acknowledgement (49.2).
    Command,
    /// Commands of a form that is not in the standard.
    ExtensionCommand,
}

/// Who defines a packet's contents (5.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    /// Bits of the payload's last word that are no data, 0 to 31.
    pub pad_bits: u8,
    /// Organisation, 24 bits (an OUI or a CID of the IEEE).
    pub organisation: u32,
    /// Information class.
    pub information: u16,
    /// Packet class.
    pub packet: u16,
}

/// All that stands before a packet's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prologue {
    /// What it is.
    pub kind: Kind,
    /// Stream identifier. Only data may lack it: of other packets nothing is emitted as 0.
    pub stream: Option<u32>,
    /// Class identifier.
    pub class: Option<Class>,
    /// The header's bits 26 to 24, which mean something else for each kind: [`Prologue::TRAILER`] and the others.
    pub flags: u8,
    /// Of the first sample, or from when on the context holds.
    pub time: Time,
    /// One more for each packet of the stream and kind, modulo 16.
    pub count: u8,
    /// Words of the whole packet.
    pub words: u16,
}

impl Prologue {
    /// Flag of data: a trailer follows the samples.
    pub const TRAILER: u8 = 0b100;
    /// Flag of data and context: it says what only 49.2 can say.
    pub const NOT_49_0: u8 = 0b010;
    /// Flag of data: spectra instead of samples.
    pub const SPECTRA: u8 = 0b001;
    /// Flag of context: the time is only that of the nearest packet of data.
    pub const COARSE: u8 = 0b001;

    /// Of a packet of samples with this stream identifier, so far without any.
    pub fn data(stream: u32) -> Self {
        let (kind, stream, class) = (Kind::Data, Some(stream), None);
        Self { kind, stream, class, flags: 0, time: Time::default(), count: 0, words: 2 }
    }

    /// The same with the size that it has with so many bytes of contents, which are filled up to a word, and with
    /// the trailer if it has that flag. At most 65535 words: what exceeds them is lost.
    #[must_use]
    pub fn sized(self, contents: usize) -> Self {
        let words = self.size() / WORD + contents.div_ceil(WORD) + usize::from(self.has_trailer());
        Self { words: words.min(u16::MAX.into()) as u16, ..self }
    }

    /// Whether its last word is a trailer.
    pub fn has_trailer(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::ExtensionData) && self.flags & Self::TRAILER != 0
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        let Time { seconds, fraction } = self.time;
        let stream = usize::from(self.stream.is_some() || !self.may_lack_stream());
        let class = 2 * usize::from(self.class.is_some());
        WORD * (1 + stream + class + usize::from(seconds.is_some()) + 2 * usize::from(fraction.is_some()))
    }

    fn may_lack_stream(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::ExtensionData)
    }

    /// Bytes of the prologue that begins so, as its first word says; 4 if not even that is there.
    pub fn len_seen(first: &[u8]) -> usize {
        let Some(word) = first.first_chunk().map(|word| u32::from_be_bytes(*word)) else { return WORD };
        let stream = usize::from(!matches!(word >> 28, 0 | 2));
        let class = 2 * (word >> 27 & 1) as usize;
        let (seconds, fraction) = (word >> 22 & 3, word >> 20 & 3);
        WORD * (1 + stream + class + usize::from(seconds != 0) + 2 * usize::from(fraction != 0))
    }

    /// The prologue and the packet's contents, its trailer included; what follows the packet is not looked at.
    ///
    /// # Errors
    /// If the packet does not end where it says, is of no known kind, or its time is no time.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let prologue = Self::head(bytes)?;
        let total = usize::from(prologue.words) * WORD;
        match bytes.get(prologue.size()..total) {
            Some(contents) => Ok((prologue, contents)),
            None => Err(ParseError::Truncated { what: WHAT, needed: total, found: bytes.len() }),
        }
    }

    /// The prologue alone, of a packet whose contents are elsewhere.
    ///
    /// # Errors
    /// If it is cut short, is of no known kind, says a size that itself exceeds, or its time is no time.
    pub fn head(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::of(WHAT, bytes);
        let word = fields.u32()?;
        let (kind, named) = match word >> 28 {
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
        let stream = if named { Some(fields.u32()?) } else { None };
        let class = if word & 1 << 27 != 0 { Some(Class::parse(&mut fields)?) } else { None };
        let time = Time::parse(word >> 22 & 3, word >> 20 & 3, &mut fields)?;
        let flags = (word >> 24 & 7) as u8;
        let prologue = Self { kind, stream, class, flags, time, count: (word >> 16 & 15) as u8, words: word as u16 };
        let least = prologue.size() + if prologue.has_trailer() { WORD } else { 0 };
        let total = usize::from(prologue.words) * WORD;
        if total < least {
            let (least, most, found) = (least as u64, u64::from(u16::MAX) * WORD as u64, total as u64);
            return Err(ParseError::Range { what: "bytes of a VITA 49 packet", least, most, found });
        }
        Ok(prologue)
    }

    /// The prologue's bytes.
    pub fn emit(&self) -> ArrayVec<u8, MAX_PROLOGUE> {
        let named = self.stream.is_some() || !self.may_lack_stream();
        let kind = match self.kind {
            Kind::Data => u32::from(named),
            Kind::ExtensionData => 2 + u32::from(named),
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
        if named {
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

/// A packet of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// What stands before them.
    pub prologue: Prologue,
    /// The samples, whole words.
    pub payload: &'a [u8],
    /// What stands behind them.
    pub trailer: Option<Trailer>,
}

impl<'a> Data<'a> {
    /// A whole packet.
    ///
    /// # Errors
    /// If [`Prologue::parse`] refuses it, or it is no packet of data.
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
