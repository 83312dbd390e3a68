//! Packet headers of prebuilt frames and their per-block fields.

use super::block::Block;
use super::config::{BlockStart, Config, Framing, SAMPLE_BYTES};
use arrayvec::ArrayVec;
use shotline_wire::framing::digitizer::{self, HEADER_LEN, STAMP_OFFSET};
use shotline_wire::shot::Geometry;
use shotline_wire::vita49::{
    Context, Format, Fraction, Hertz, Indicator, Kind, MAX_CONTEXT, MAX_PROLOGUE, PS_PER_SECOND, Prologue, Seconds,
    State, TAI_MINUS_GPS, Time,
};

/// Length of the longest header in bytes.
const MAX_HEADER: usize = if HEADER_LEN > MAX_PROLOGUE { HEADER_LEN } else { MAX_PROLOGUE };

/// A header or part of one.
pub(super) type Bytes = ArrayVec<u8, MAX_HEADER>;

/// Header template of a framing.
#[derive(Clone, Debug)]
pub(super) enum Headers {
    /// Shotline's own framing, with the fields common to all packets.
    Digitizer(digitizer::Header),
    /// VITA 49.
    Vita49(Vita49),
}

/// Fields common to all VITA 49 packets of a stream.
#[derive(Clone, Debug)]
pub(super) struct Vita49 {
    stream: u32,
    packets: u32,
    ps_per_sample: f64,
    context: Context,
}

impl Headers {
    pub(super) fn new(config: &Config, geometry: &Geometry, locked: bool) -> Self {
        let &Config { stream, sample_rate_hz, centre_hz, volts_per_count, .. } = config;
        match config.framing {
            Framing::Digitizer => Self::Digitizer(digitizer::Header {
                locked,
                triggered: matches!(config.block_start, BlockStart::Trigger(_)),
                channels: 2,
                bits: 16,
                stream,
                block_bytes: geometry.shot_bytes(),
                sample_rate_hz,
                centre_hz,
                volts_per_count,
                ..digitizer::Header::default()
            }),
            Framing::Vita49 => {
                let state =
                    State::default().with(Indicator::CalibratedTime, locked).with(Indicator::ReferenceLock, locked);
                let context = Context {
                    bandwidth: Some(Hertz::new(sample_rate_hz)),
                    if_reference: Some(Hertz(0)),
                    rf_reference: Some(Hertz::new(centre_hz)),
                    sample_rate: Some(Hertz::new(sample_rate_hz)),
                    state: Some(state.with(Indicator::SampleLoss, false)),
                    format: Some(Format::IQ16),
                    ..Context::default()
                };
                let ps_per_sample = PS_PER_SECOND as f64 / sample_rate_hz;
                Self::Vita49(Vita49 { stream, packets: geometry.packets(), ps_per_sample, context })
            }
        }
    }

    /// Returns the header length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Digitizer(_) => HEADER_LEN,
            Self::Vita49(_) => Prologue { time: time(0, 0), ..Prologue::data(0) }.size(),
        }
    }

    /// Returns the length of the context packet in bytes; 0 if there is none.
    pub(super) fn context_len(&self) -> usize {
        match self {
            Self::Digitizer(_) => 0,
            Self::Vita49(vita) => self.len() + vita.context.emit().len(),
        }
    }

    /// Returns a packet's header with block number and time zero.
    pub(super) fn initial(&self, geometry: &Geometry, packet: u32) -> Bytes {
        match self {
            Self::Digitizer(header) => {
                let (offset, len) = (geometry.packet_offset(packet), geometry.packet_bytes(packet));
                let header = digitizer::Header { last: packet + 1 == geometry.packets(), offset, len, ..*header };
                header.emit().into()
            }
            Self::Vita49(vita) => vita.prologue(geometry, packet, 0, time(0, 0)),
        }
    }

    /// Returns the per-block fields of a packet's header and their offset in the header.
    pub(super) fn stamp(&self, geometry: &Geometry, packet: u32, block: &Block) -> (usize, Bytes) {
        match self {
            Self::Digitizer(header) => {
                let header = digitizer::Header { block: block.number, tai_ns: block.tai_ns, ..*header };
                (STAMP_OFFSET, header.stamped().into_iter().collect())
            }
            Self::Vita49(vita) => {
                let samples = geometry.packet_offset(packet) / SAMPLE_BYTES;
                let time = time(block.tai_ns, (f64::from(samples) * vita.ps_per_sample).round() as u64);
                // The packet count covers sent packets only (5.1.1.3), so lost blocks do not advance it.
                let block_sent = block.number.wrapping_sub(block.overrun);
                let count = block_sent.wrapping_mul(vita.packets.into()).wrapping_add(packet.into());
                (0, vita.prologue(geometry, packet, count, time))
            }
        }
    }

    /// Returns the context packet that is sent before a block.
    pub(super) fn context(&self, block: &Block) -> ArrayVec<u8, { MAX_CONTEXT + MAX_PROLOGUE }> {
        let mut out = ArrayVec::new();
        if let Self::Vita49(vita) = self {
            // Sample loss is an event (5.1.6.1): it applies to the block after this context packet only.
            let lost = block.lost > 0;
            let state = vita.context.state.map(|state| state.with(Indicator::SampleLoss, lost));
            let fields = Context { state, changed: lost, ..vita.context }.emit();
            let prologue = Prologue {
                kind: Kind::Context,
                time: time(block.tai_ns, 0),
                count: (block.number.wrapping_sub(block.overrun) % 16) as u8,
                ..Prologue::data(vita.stream)
            };
            out.extend(prologue.sized(fields.len()).emit());
            out.extend(fields);
        }
        out
    }
}

impl Vita49 {
    fn prologue(&self, geometry: &Geometry, packet: u32, count: u64, time: Time) -> Bytes {
        let prologue = Prologue { time, count: (count % 16) as u8, ..Prologue::data(self.stream) };
        prologue.sized(geometry.packet_bytes(packet) as usize).emit().into_iter().collect()
    }
}

/// Converts a TAI time plus `more_ps` picoseconds to GPS time. Times before the GPS epoch (1980) have seconds 0.
fn time(tai_ns: u64, more_ps: u64) -> Time {
    let ps = u128::from(tai_ns) * 1000 + u128::from(more_ps);
    let (seconds, ps) = (ps / u128::from(PS_PER_SECOND), ps % u128::from(PS_PER_SECOND));
    let seconds = (seconds as u64).saturating_sub(TAI_MINUS_GPS) as u32;
    Time { seconds: Some(Seconds::Gps(seconds)), fraction: Some(Fraction::Picoseconds(ps as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::tests::config;

    #[test]
    fn sample_loss_is_flagged_in_the_next_context_only() {
        let config = Config { framing: Framing::Vita49, payload: 4096, block_bytes: 12_288, ..config() };
        let geometry = config.check().unwrap();
        let headers = Headers::new(&config, &geometry, true);
        let mut seen = Vec::new();
        for (number, overrun, lost) in [(0, 0, 0), (4, 3, 3), (5, 3, 0)] {
            let block = Block { number, tai_ns: 1 << 60, clock_offset_ns: 0, overrun, lost };
            let (prologue, context) = Context::parse(&headers.context(&block)).unwrap();
            let (_, first) = headers.stamp(&geometry, 0, &block);
            let data = Prologue::head(&first).unwrap();
            let sample_loss = context.state.unwrap().get(Indicator::SampleLoss);
            seen.push((sample_loss, context.changed, prologue.count, data.count));
        }
        assert_eq!(seen, [(Some(false), false, 0, 0), (Some(true), true, 1, 3), (Some(false), false, 2, 6)]);
    }

    #[test]
    fn gps_time_is_tai_less_19_seconds() {
        // The GPS epoch, 1980-01-06 00:00:00 UTC, was 1980-01-06 00:00:19 TAI.
        let at = |tai_ns, ps| time(tai_ns, ps);
        let expected =
            |seconds, ps| Time { seconds: Some(Seconds::Gps(seconds)), fraction: Some(Fraction::Picoseconds(ps)) };
        assert_eq!(at(315_964_819_000_000_000, 0), expected(0, 0));
        assert_eq!(at(1_700_000_037_999_999_999, 2_500), expected(1_700_000_038 - 315_964_819, 1_500));
    }
}
