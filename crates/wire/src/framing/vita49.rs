//! VITA 49 data packets as blocks of equal length. The position of a payload follows from its timestamp.
//!
//! The timestamp is that of the packet's first sample, so the difference to the timestamp of the first block, times
//! the sample rate, is the number of samples since then; blocks of equal length are counted from there. Packet counts
//! (modulo 16) distinguish packets that the sender left out from packets that the network lost. Context packets are
//! signals: they describe the samples of the blocks that follow. Samples are stored as on the wire
//! (big-endian). Packets with a trailer are refused, since a slot has no space for it after the payload.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Extras, Framing, Link, MAX_HEADER, Packet, Placement, Position, SampleContext, Signal};
use crate::shot::{Geometry, Trailer};
use crate::vita49::{Context, Format, Fraction, Indicator, Kind, PS_PER_SECOND, Prologue, Seconds, Time, WORD};
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "vita49",
    set_up: SetUp::Learned,
    sealed: false,
    header_len: 20,
    trailer: Trailer::Context,
    port: 4991,
    shares_address: false,
    keys: Keys::None,
    completions: Completions::Unsupported,
    replay: Replay::WithoutContext,
    large_shots: true,
};

/// Framing of one VITA 49 stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vita49 {
    /// Timestamp of the first sample of block 0.
    pub begin: Time,
    /// Sample rate in Hz.
    pub rate: u64,
    /// Length of a sample in bytes, at least 1: 4 for a 16-bit I/Q pair. Blocks hold whole samples.
    pub sample_bytes: u32,
    /// Format of the samples, as context packets give it.
    pub format: Format,
    /// Description of the samples before the first context packet.
    pub sample_context: SampleContext,
}

impl Vita49 {
    /// Returns a framing for blocks of which one has this number and begins at this TAI time in ns (0 if the clock is
    /// unknown). [`Self::sample_context`] is left unknown.
    pub fn for_blocks(g: &Geometry, (number, tai_ns): (u64, u64)) -> Self {
        let (rate, second) = (u64::from(g.sample_rate_hz()).max(1), u128::from(PS_PER_SECOND));
        let (before, wide) = (u128::from(number) * u128::from(g.samples()), u128::from(rate));
        let before = before / wide * second + before % wide * second / wide;
        let begin = u128::from(tai_ns) * 1000;
        let unknown = Time { seconds: Some(Seconds::Other(0)), fraction: Some(Fraction::Picoseconds(0)) };
        Self {
            begin: begin.checked_sub(before).and_then(Time::from_tai_ps).unwrap_or(unknown),
            rate,
            sample_bytes: g.sent_bytes() / g.samples().max(1),
            format: if g.channels() == 2 { Format::IQ16 } else { Format::REAL16 },
            sample_context: SampleContext::default(),
        }
    }

    /// Returns the description of the samples in a context packet.
    pub fn sample_context_of(context: &Context) -> SampleContext {
        // The RF reference is at the IF reference in the samples' spectrum, so 0 Hz is below it by that frequency.
        let centre_hz = context.rf_reference.map(|rf| {
            let offset = context.rf_offset.unwrap_or_default().hz();
            rf.hz() + offset - context.if_reference.unwrap_or_default().hz()
        });
        let state = |indicator| context.state.and_then(|state| state.get(indicator));
        let locked = state(Indicator::CalibratedTime).or(state(Indicator::ReferenceLock));
        SampleContext { centre_hz, locked }
    }

    fn changes_format(&self, context: &Context) -> bool {
        let rate = context.sample_rate.is_some_and(|rate| rate.whole() != Some(self.rate));
        rate || context.format.is_some_and(|format| format != self.format)
    }
}

impl Extras for Vita49 {
    fn header_len_at(&self, _index: u32, _g: &Geometry) -> Option<usize> {
        None
    }

    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal> {
        let (prologue, context) = Context::parse(header).ok()?;
        if self.changes_format(&context) {
            return Some(Signal::FormatChange);
        }
        let samples = prologue.time.samples_since(self.begin, self.rate)?;
        let bytes = u128::try_from(samples).unwrap_or(0) * u128::from(self.sample_bytes);
        let first_shot = u64::try_from(bytes.div_ceil(g.sent_bytes().into())).ok()?;
        let lost = context.state.and_then(|state| state.get(Indicator::SampleLoss)) == Some(true);
        Some(Signal::Context { first_shot, context: Self::sample_context_of(&context), lost })
    }

    fn count(&self, header: &[u8]) -> Option<u8> {
        header.get(1).map(|byte| byte & 15)
    }

    fn is_counted(&self) -> bool {
        false
    }

    fn sample_context(&self) -> SampleContext {
        self.sample_context
    }

    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64 {
        let samples = shot.saturating_mul((g.sent_bytes() / self.sample_bytes.max(1)).into());
        self.begin.after(samples, self.rate).tai_ns(self.rate).unwrap_or(0)
    }
}

impl Framing for Vita49 {
    fn name(&self) -> &'static str {
        DESCRIPTION.name
    }

    fn has_icrc(&self) -> bool {
        DESCRIPTION.sealed
    }

    /// The header of a context packet is the whole packet, up to [`MAX_HEADER`] bytes.
    fn header_len(&self, first: &[u8]) -> usize {
        match Prologue::head(first) {
            Ok(prologue) if prologue.kind == Kind::Context => (usize::from(prologue.words) * WORD).min(MAX_HEADER),
            _ => Prologue::peek_len(first),
        }
    }

    /// Returns the stream identifier, or 0 if there is none.
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        Ok(Prologue::head(header)?.stream.unwrap_or(0))
    }

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let prologue = Prologue::head(header)?;
        if prologue.kind != Kind::Data || prologue.has_trailer() {
            return Err(ParseError::Unsupported { what: "a VITA 49 packet other than data without a trailer" });
        }
        let expected = u64::from(prologue.words) * 4;
        let found = prologue.size() as u64 + u64::from(payload_len);
        if found != expected {
            return Err(ParseError::Length { what: "VITA 49 packet", expected, found });
        }
        let samples = prologue.time.samples_since(self.begin, self.rate).and_then(|n| u64::try_from(n).ok());
        let at = samples.and_then(|n| n.checked_mul(self.sample_bytes.into())).ok_or(ParseError::TimeStamp)?;
        let (number, offset) = (at / u64::from(g.sent_bytes()), (at % u64::from(g.sent_bytes())) as u32);
        let packet = Packet::at(g, 0, number, offset)?;
        packet.expect_len(payload_len)?;
        Ok(Placement { position: Position::Shot { number, bits: 64, offset, last: packet.last }, len: payload_len })
    }

    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let at = p.shot.wrapping_mul(p.shot_bytes.into()).wrapping_add(p.offset.into());
        let time = self.begin.after(at / u64::from(self.sample_bytes.max(1)), self.rate);
        let prologue = Prologue { time, count: (p.psn % 16) as u8, ..Prologue::data(link.stream) };
        bytes::append(out, &prologue.sized(p.len as usize).emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::{Packetization, Packing, Trailer};
    use crate::vita49::{Hertz, State};
    use proptest::prelude::*;

    fn blocks(samples: u32, each: u32) -> Geometry {
        let g = Geometry::new(2, samples, 16, Packing::Int16Le, 0).unwrap();
        g.sent_as(Trailer::None, Packetization { first: 4 * each, rest: 4 * each, separate_trailer: false }).unwrap()
    }

    fn of(begin: Time, rate: u64, sample_bytes: u32) -> Vita49 {
        Vita49 { begin, rate, sample_bytes, format: Format::IQ16, sample_context: SampleContext::default() }
    }

    fn begin() -> impl Strategy<Value = Time> {
        let seconds = prop_oneof![Just(Seconds::Utc(1_700_000_000)), Just(Seconds::Gps(7)), Just(Seconds::Other(0))];
        let fraction = prop_oneof![
            (0_u64..1_000_000).prop_map(Fraction::Samples),
            (0_u64..1_000_000_000_000).prop_map(Fraction::Picoseconds),
            (0_u64..1 << 60).prop_map(Fraction::FreeRunning),
        ];
        (seconds, fraction).prop_map(|(seconds, fraction)| Time { seconds: Some(seconds), fraction: Some(fraction) })
    }

    proptest! {
        #[test]
        fn block_packets_are_placed_where_they_were_sent_from(
            begin in begin(), rate in 1_000_000_u64..1_000_000_000, samples in 16_u32..100_000, each in 16_u32..2000,
            shot in 0_u64..1_000_000, stream: u32, index: prop::sample::Index,
        ) {
            let (g, framing) = (blocks(samples, each), of(begin, rate, 4));
            let packet = Packet::nth(&g, 9, shot, index.index(g.packets() as usize) as u32).unwrap();
            let mut header = ArrayVec::new();
            framing.emit(&Link { stream, ..Link::default() }, &packet, &mut header);
            prop_assert_eq!(framing.header_len(&header), header.len());
            prop_assert_eq!(framing.key(&header), Ok(stream));
            let place = framing.place(&header, packet.len, &g).unwrap();
            let position = Position::Shot { number: shot, bits: 64, offset: packet.offset, last: packet.last };
            prop_assert_eq!(place, Placement { position, len: packet.len });
            prop_assert!(framing.place(&header, packet.len + 4, &g).is_err());
            prop_assert!(framing.place(&header[..header.len() - 1], packet.len, &g).is_err());
            let later = begin.after((shot + 1) * u64::from(samples), rate);
            for begin in [Time { fraction: None, ..begin }, later] {
                let other = Vita49 { begin, ..framing };
                prop_assert!(other.place(&header, packet.len, &g).is_err(), "another clock, or a time before block 0");
            }
        }

        #[test]
        fn place_of_any_bytes_is_inside_the_block(
            begin in begin(), rate: u64, header in prop::collection::vec(any::<u8>(), 0..40), len: u32, valid_prefix: bool,
            sample_bytes: u32,
        ) {
            let (g, framing, mut header) = (blocks(1000, 100), of(begin, rate, sample_bytes), header);
            if valid_prefix && header.len() > 4 {
                header[..2].copy_from_slice(&[0x10, 0x60]);
            }
            let _ = (framing.key(&header), framing.header_len(&header), framing.signal(&header, &g), framing.stamp_tai_ns(rate, &g));
            if let Ok(Placement { position: Position::Shot { offset, .. }, len }) = framing.place(&header, len, &g) {
                prop_assert!(offset + len <= g.shot_bytes());
            }
        }
    }

    proptest! {
        #[test]
        fn replayed_blocks_keep_their_time_stamps(
            samples in 16_u32..100_000, rate in 1_u32..1_000_000_000, number in 0_u64..1_000_000,
            second in 1_000_000_000_u64..4_000_000_000, ns in 0_u64..1_000_000_000,
        ) {
            let g = Geometry::new(2, samples, 16, Packing::Int16Le, rate).unwrap();
            let g = g.sent_as(Trailer::Context, Packetization { first: 64, rest: 64, separate_trailer: false }).unwrap();
            let (number, stamp) = (number % (500_000_000 * u64::from(rate) / u64::from(samples) + 1), second * 1_000_000_000 + ns);
            let framing = Vita49::for_blocks(&g, (number, stamp));
            prop_assert_eq!(framing.stamp_tai_ns(number, &g), stamp);
            prop_assert_eq!(Vita49::for_blocks(&g, (number, 0)).stamp_tai_ns(number, &g), 0, "the clock is unknown");
        }
    }

    #[test]
    fn packets_with_a_trailer_and_context_packets_are_not_placed() {
        let time = Time { seconds: Some(Seconds::Gps(1)), fraction: Some(Fraction::Samples(0)) };
        let (g, framing) = (blocks(100, 100), of(time, 1000, 4));
        let data = Prologue { time, ..Prologue::data(1) };
        assert!(framing.place(&data.sized(400).emit(), 400, &g).is_ok());
        let free_running = Time { seconds: None, fraction: Some(Fraction::FreeRunning(0)) };
        let other_clock = Prologue { time: free_running, ..data };
        assert_eq!(framing.place(&other_clock.sized(400).emit(), 400, &g), Err(ParseError::TimeStamp));
        let trailer = Prologue { flags: Prologue::TRAILER, ..data };
        assert!(framing.place(&trailer.sized(396).emit(), 400, &g).is_err());
        assert!(framing.place(&Prologue { kind: Kind::Context, ..data }.sized(400).emit(), 400, &g).is_err());
    }

    #[test]
    fn context_signal_has_description_and_first_block() {
        let begin = Time { seconds: Some(Seconds::Gps(1_000_000_000)), fraction: Some(Fraction::Picoseconds(0)) };
        let (g, framing) = (blocks(100, 50), of(begin, 1000, 4));
        let signal = |after: u64, context: Context| {
            let (fields, time) = (context.emit(), begin.after(after, 1000));
            let prologue = Prologue { kind: Kind::Context, time, ..Prologue::data(1) }.sized(fields.len());
            let packet = [&prologue.emit()[..], &fields].concat();
            assert_eq!(framing.header_len(&packet), packet.len(), "no part of it is a payload");
            framing.signal(&packet, &g)
        };
        let tuned = Context {
            rf_reference: Some(Hertz::new(1.3e9)),
            if_reference: Some(Hertz::new(1e6)),
            rf_offset: Some(Hertz::new(-5.0)),
            state: Some(State::default().with(Indicator::CalibratedTime, true).with(Indicator::SampleLoss, true)),
            ..Context::default()
        };
        let expected = SampleContext { centre_hz: Some(1.3e9 - 1e6 - 5.0), locked: Some(true) };
        assert_eq!(signal(200, tuned), Some(Signal::Context { first_shot: 2, context: expected, lost: true }));
        let nothing = Signal::Context { first_shot: 3, context: SampleContext::default(), lost: false };
        assert_eq!(signal(201, Context::default()), Some(nothing), "in the middle of a block");
        let same = Context { sample_rate: Some(Hertz::new(1000.0)), format: Some(Format::IQ16), ..Context::default() };
        assert_eq!(signal(201, same), Some(nothing));
        for sample_rate in [999.0, 1000.5] {
            let other = Context { sample_rate: Some(Hertz::new(sample_rate)), ..same };
            assert_eq!(signal(300, other), Some(Signal::FormatChange));
        }
        assert_eq!(signal(300, Context { format: Some(Format::REAL16), ..same }), Some(Signal::FormatChange));
    }

    #[test]
    fn time_stamps_are_converted_to_tai() {
        let g = blocks(1000, 100);
        let stamp = |seconds, fraction| {
            of(Time { seconds: Some(seconds), fraction: Some(fraction) }, 1_000_000, 4).stamp_tai_ns(3, &g)
        };
        // At 1980-01-06 00:00:00 UTC, TAI was 19 seconds ahead of UTC; since 2017 it is 37 seconds ahead.
        assert_eq!(stamp(Seconds::Gps(0), Fraction::Picoseconds(5_000)), 315_964_819_003_000_005);
        assert_eq!(stamp(Seconds::Utc(1_700_000_000), Fraction::Samples(999_000)), 1_700_000_038_002_000_000);
        assert_eq!(stamp(Seconds::Other(7), Fraction::Samples(0)), 0, "the clock is unknown");
        assert_eq!(stamp(Seconds::Utc(7), Fraction::FreeRunning(5)), 0);
    }
}
