//! Context packets: optional fields in the order of their bits in the context indicator field (9.1).

use super::{Celsius, Decibels, Format, Hertz, Kind, Prologue, State, WORD};
use crate::ParseError;
use crate::bytes::{Fields, append};
use arrayvec::ArrayVec;

/// Maximum length of an emitted context, in bytes.
pub const MAX_CONTEXT: usize = 28 * WORD;

const WHAT: &str = "VITA 49 context";

/// Description of the samples of a stream. A field that is `None` is unknown or unchanged.
///
/// The standard has more fields after these: positions (bits 14 to 10), text of a GPS receiver (9), lists of
/// associated streams (8), and three more context indicator words with their fields (3 to 1). They are skipped, and
/// [`Context::skipped`] records which were present. Bits that change the layout of these fields (7, attributes) or
/// that the standard reserves (6 to 4, 0) are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// `true` if a value has changed since the previous context packet.
    pub changed: bool,
    /// Stream identifier of the component at the reference point of the description.
    pub reference_point: Option<u32>,
    /// Usable bandwidth.
    pub bandwidth: Option<Hertz>,
    /// Frequency of the band's reference in the spectrum of the samples.
    pub if_reference: Option<Hertz>,
    /// Frequency of the band's reference at the input of the receiver.
    pub rf_reference: Option<Hertz>,
    /// Offset to add to `rf_reference`.
    pub rf_offset: Option<Hertz>,
    /// Offset from the reference to the middle of the band.
    pub if_band_offset: Option<Hertz>,
    /// Power in dBm of a full-scale (1.0) sample.
    pub reference_level: Option<Decibels>,
    /// Gain of the front end (stage 1) and of the back end (stage 2).
    pub gain: Option<[Decibels; 2]>,
    /// Number of samples beyond the converter's range in the associated data packet.
    pub over_range: Option<u32>,
    /// Sample rate.
    pub sample_rate: Option<Hertz>,
    /// Adjustment to add to timestamps, in femtoseconds.
    pub time_adjustment_fs: Option<i64>,
    /// Time of the last calibration of the timestamps, in seconds of the packet's clock.
    pub time_calibrated: Option<u32>,
    /// Temperature of the component at the reference point.
    pub temperature: Option<Celsius>,
    /// Manufacturer (24 bits) and device code.
    pub device: Option<(u32, u16)>,
    /// States and events.
    pub state: Option<State>,
    /// Format of the samples in data packets.
    pub format: Option<Format>,
    /// Bits of the fields that were present and skipped; they are not emitted.
    pub skipped: u32,
}

/// Lengths in words of the fields of bits 14 to 10.
const POSITIONS: [(u32, usize); 5] = [(14, 11), (13, 11), (12, 13), (11, 13), (10, 1)];

impl Context {
    /// Parses a whole packet.
    ///
    /// # Errors
    /// If [`Prologue::parse`] fails, the packet is not a context packet, its fields exceed it, or it has an indicator
    /// bit that is refused.
    pub fn parse(bytes: &[u8]) -> Result<(Prologue, Self), ParseError> {
        let (prologue, contents) = Prologue::parse(bytes)?;
        if prologue.kind != Kind::Context {
            let (expected, found) = (Kind::Context as u64, prologue.kind as u64);
            return Err(ParseError::Value { what: "kind of VITA 49 packet", expected, found });
        }
        Ok((prologue, Self::fields(contents)?))
    }

    fn fields(contents: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(WHAT, contents);
        let bits = fields.u32()?;
        let refused = bits & 0b1111_0001;
        if refused != 0 {
            return Err(ParseError::Unknown { what: "VITA 49 context indicator bit", found: refused.into() });
        }
        // The other indicator words precede all fields.
        for _ in 0..(bits & 0b1110).count_ones() {
            fields.u32()?;
        }
        let is_present = |bit: u32| bits & 1 << bit != 0;
        let hertz = |fields: &mut Fields<'_>, bit| word_64(fields, is_present(bit)).map(|n| n.map(|n| Hertz(n as i64)));
        let context = Self {
            changed: is_present(31),
            reference_point: word_32(&mut fields, is_present(30))?,
            bandwidth: hertz(&mut fields, 29)?,
            if_reference: hertz(&mut fields, 28)?,
            rf_reference: hertz(&mut fields, 27)?,
            rf_offset: hertz(&mut fields, 26)?,
            if_band_offset: hertz(&mut fields, 25)?,
            reference_level: word_32(&mut fields, is_present(24))?.map(|word| Decibels(word as i16)),
            gain: word_32(&mut fields, is_present(23))?
                .map(|word| [word, word >> 16].map(|half| Decibels(half as i16))),
            over_range: word_32(&mut fields, is_present(22))?,
            sample_rate: hertz(&mut fields, 21)?,
            time_adjustment_fs: word_64(&mut fields, is_present(20))?.map(|fs| fs as i64),
            time_calibrated: word_32(&mut fields, is_present(19))?,
            temperature: word_32(&mut fields, is_present(18))?.map(|word| Celsius(word as i16)),
            device: word_64(&mut fields, is_present(17))?.map(|id| ((id >> 32) as u32 & 0xff_ffff, id as u16)),
            state: word_32(&mut fields, is_present(16))?.map(State),
            format: word_64(&mut fields, is_present(15))?.map(Format),
            skipped: bits & 0x7f0e,
        };
        for (_, words) in POSITIONS.into_iter().filter(|(bit, _)| is_present(*bit)) {
            skip(&mut fields, words)?;
        }
        if is_present(9) {
            let (_manufacturer, words) = (fields.u32()?, fields.u32()?);
            skip(&mut fields, words as usize)?;
        }
        if is_present(8) {
            let (sizes, more) = (fields.u32()?, fields.u32()?);
            let (sources, systems, vectors) = (sizes >> 16 & 0x1ff, sizes & 0x1ff, more >> 16);
            let channels = (more & 0x7fff) * if more & 0x8000 != 0 { 2 } else { 1 }; // with their tags
            skip(&mut fields, (sources + systems + vectors + channels) as usize)?;
        }
        // The remaining bytes are fields of the other indicator words, if present.
        let left = fields.rest().len();
        if left > 0 && bits & 0b1110 == 0 {
            let found = contents.len() as u64;
            return Err(ParseError::Length { what: WHAT, expected: found - left as u64, found });
        }
        Ok(context)
    }

    /// Encodes the packet's contents, which follow its prologue.
    pub fn emit(&self) -> ArrayVec<u8, MAX_CONTEXT> {
        let mut out = ArrayVec::new();
        append(&mut out, &[0; WORD]); // placeholder for the indicator bits
        let mut bits = u32::from(self.changed) << 31;
        let mut put = |bit: u32, words: usize, value: Option<u64>| {
            if let Some(value) = value {
                bits |= 1 << bit;
                append(&mut out, &value.to_be_bytes()[2 * WORD - words * WORD..]);
            }
        };
        let hertz = |value: Option<Hertz>| value.map(|value| value.0 as u64);
        let half = |half: i16| u64::from(half as u16);
        put(30, 1, self.reference_point.map(u64::from));
        put(29, 2, hertz(self.bandwidth));
        put(28, 2, hertz(self.if_reference));
        put(27, 2, hertz(self.rf_reference));
        put(26, 2, hertz(self.rf_offset));
        put(25, 2, hertz(self.if_band_offset));
        put(24, 1, self.reference_level.map(|level| half(level.0)));
        put(23, 1, self.gain.map(|[front, rest]| half(rest.0) << 16 | half(front.0)));
        put(22, 1, self.over_range.map(u64::from));
        put(21, 2, hertz(self.sample_rate));
        put(20, 2, self.time_adjustment_fs.map(|fs| fs as u64));
        put(19, 1, self.time_calibrated.map(u64::from));
        put(18, 1, self.temperature.map(|temperature| half(temperature.0)));
        put(17, 2, self.device.map(|(maker, code)| u64::from(maker & 0xff_ffff) << 32 | u64::from(code)));
        put(16, 1, self.state.map(|state| state.0.into()));
        put(15, 2, self.format.map(|format| format.0));
        if let Some(first) = out.first_chunk_mut() {
            *first = bits.to_be_bytes();
        }
        out
    }
}

fn word_32(fields: &mut Fields<'_>, is_present: bool) -> Result<Option<u32>, ParseError> {
    if is_present { fields.u32().map(Some) } else { Ok(None) }
}

fn word_64(fields: &mut Fields<'_>, is_present: bool) -> Result<Option<u64>, ParseError> {
    if is_present { fields.u64().map(Some) } else { Ok(None) }
}

/// Skips `words` words. Stops with an error at the end of the fields, so an untrusted count is bounded.
fn skip(fields: &mut Fields<'_>, words: usize) -> Result<(), ParseError> {
    (0..words).try_for_each(|_| fields.u32().map(|_| ()))
}
