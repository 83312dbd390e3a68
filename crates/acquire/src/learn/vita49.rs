//! Learns a VITA 49 stream: rate and format from a context packet, blocks from the spacing of its packets.
//!
//! VITA 49 has no blocks. A block of a recording has the samples set by `--samples`; otherwise those between two
//! context packets, if whole packets fill them; otherwise as many whole packets as fit a mebibyte.

use super::learner::{Hints, LearnedStream, Learner, Shape};
use shotline_wire::framing::{MAX_HEADER, SampleContext, Vita49};
use shotline_wire::shot::{MAX_PACKETS, Packetization, Packing, Trailer};
use shotline_wire::vita49::{Arrangement, Context, Format, Item, Kind, Prologue, Time};
use std::sync::Arc;

/// Default bytes of a block.
const DEFAULT_BLOCK_BYTES: u64 = 1 << 20;
/// Maximum number of packets examined before a second context packet: more than two blocks have.
const MAX_PACKETS_EXAMINED: u64 = 2 * MAX_PACKETS as u64 + 2;
/// Maximum duration of the samples examined before a second context packet, in seconds.
const MAX_SECONDS: u64 = 2;

/// Learner of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    hints: Hints,
    seen: u64,
    rate: Option<u64>,
    format: Option<Format>,
    meaning: SampleContext,
    /// Stamp of the first packet, the origin of positions.
    origin: Option<Time>,
    /// Length of the longest payload.
    longest: u64,
    /// End of the newest packet, by its stamp and length.
    newest_end: u64,
    /// Position of the newest context packet, and the spacing of the packets since.
    edge: Option<(u64, Spacing)>,
}

/// Spacing of the packets after an edge.
#[derive(Clone, Copy, Debug, Default)]
struct Spacing {
    /// Bytes of each packet but the last.
    each: u64,
    /// Bytes of all packets.
    bytes: u64,
    /// Set after a shorter packet, which must be the last.
    ended: bool,
    irregular: bool,
}

impl Spacing {
    fn add(&mut self, at: u64, bytes: u64) {
        self.irregular |= self.ended || at != self.bytes || self.each > 0 && bytes > self.each;
        self.ended = self.each > 0 && bytes < self.each;
        self.each = self.each.max(bytes);
        self.bytes = at + bytes;
    }
}

/// Returns the channels, and the bytes of an instant's samples, of a format that can be recorded.
fn shape_of(format: Format) -> Result<(u16, u64), String> {
    let parts = match format.arrangement() {
        Some(Arrangement::Real) => 1,
        Some(Arrangement::Complex) => 2,
        _ => 0,
    };
    let fits = format.item() == Some(Item::Signed) && format.packing_bits() == 16 && format.item_bits() == 16;
    let channels = u16::try_from(parts * format.vector()).ok().filter(|channels| fits && *channels > 0);
    let channels = channels.ok_or_else(|| {
        format!("its samples have the format {:016x}: only 16-bit integers, real or complex, are supported", format.0)
    })?;
    Ok((channels, 2 * u64::from(channels)))
}

impl Stream {
    fn context(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String> {
        let Ok((prologue, context)) = Context::parse(packet) else { return Ok(None) };
        if packet.len() > MAX_HEADER {
            return Err(format!(
                "one of its context packets has {} bytes, at most {MAX_HEADER} are supported",
                packet.len()
            ));
        }
        if let Some(rate) = context.sample_rate {
            let whole =
                rate.whole().ok_or_else(|| format!("its sample rate of {} Hz is not a whole number", rate.hz()))?;
            if self.rate.replace(whole) != Some(whole) {
                self.edge = None;
            }
        }
        self.format = context.format.or(self.format);
        self.meaning = Vita49::sample_context_of(&context).or(self.meaning);
        if prologue.time.fraction.is_some() {
            self.origin.get_or_insert(prologue.time);
        }
        let Some((origin, rate, instant)) = self.units()? else { return Ok(None) };
        let at = match prologue.time.samples_since(origin, rate).map(u64::try_from) {
            Some(Ok(at)) => at,
            _ => return Ok(None),
        };
        let before = self.edge.replace((at, Spacing::default()));
        let Some((begin, spacing)) = before.filter(|_| self.hints.samples.is_none()) else { return Ok(None) };
        let samples = at.saturating_sub(begin);
        if spacing.irregular || spacing.bytes == 0 || spacing.bytes != samples * instant {
            return Ok(None);
        }
        // The context was repeated without samples in between, or the block is too large: this is no edge of a block.
        let is_too_large = spacing.bytes.div_ceil(spacing.each) > MAX_PACKETS.into();
        if is_too_large { Ok(None) } else { self.learned(at, samples, spacing.each).map(Some) }
    }

    /// Returns the origin of positions, the rate and the bytes of an instant, as soon as they are known.
    fn units(&self) -> Result<Option<(Time, u64, u64)>, String> {
        let Some(rate) = self.rate.or(self.hints.sample_rate_hz.map(u64::from).filter(|rate| *rate > 0)) else {
            return Ok(None);
        };
        let Some(origin) = self.origin else { return Ok(None) };
        shape_of(self.format.unwrap_or(Format::IQ16)).map(|(_, instant)| Some((origin, rate, instant)))
    }

    fn data(&mut self, prologue: &Prologue, bytes: u64) -> Result<Option<LearnedStream>, String> {
        if prologue.has_trailer() {
            return Err("its packets have trailers, which are not supported: switch them off".into());
        }
        if prologue.time.fraction.is_none() {
            return Err("its packets have no start time: their timestamps have no fraction of a second".into());
        }
        if bytes == 0 {
            return Ok(None);
        }
        self.origin.get_or_insert(prologue.time);
        let Some((origin, rate, instant)) = self.units()? else { return Ok(None) };
        let Some(Ok(at)) = prologue.time.samples_since(origin, rate).map(u64::try_from) else { return Ok(None) };
        if !bytes.is_multiple_of(instant) {
            return Err(format!("its payloads of {bytes} bytes are not whole samples of {instant} bytes"));
        }
        // Two consecutive packets show the packet length; a single one may be a shorter last one.
        let follows = at == self.newest_end && self.longest > 0;
        self.newest_end = at + bytes / instant;
        self.longest = self.longest.max(bytes);
        if let Some((edge, spacing)) = &mut self.edge {
            spacing.add(at.saturating_sub(*edge) * instant, bytes);
        }
        let each = self.longest / instant;
        match self.hints.samples.map(u64::from) {
            Some(samples) if follows && bytes == self.longest => {
                if samples % each != 0 {
                    return Err(format!("its packets have {each} samples each: --samples must be a multiple of that"));
                }
                self.learned(self.newest_end, samples, self.longest).map(Some)
            }
            Some(_) => Ok(None),
            None => {
                let enough = self.seen > MAX_PACKETS_EXAMINED || at > MAX_SECONDS * rate;
                let samples = (DEFAULT_BLOCK_BYTES / self.longest).clamp(1, MAX_PACKETS.into()) * each;
                let spacing = follows && bytes == self.longest && enough;
                if spacing { self.learned(self.newest_end, samples, self.longest).map(Some) } else { Ok(None) }
            }
        }
    }

    /// Returns the result for blocks of `samples` from position `at` on, in payloads of `each` bytes. The block that
    /// begins there is block 0.
    fn learned(&self, at: u64, samples: u64, each: u64) -> Result<LearnedStream, String> {
        let format = self.format.unwrap_or(Format::IQ16);
        let (Some((origin, rate, instant)), (channels, _)) = (self.units()?, shape_of(format)?) else {
            return Err("its sample rate is not known".into());
        };
        let too_large = || format!("blocks of {samples} samples are too large: use a smaller --samples");
        let sample_bytes = u32::try_from(samples * instant).map_err(|_| too_large())?;
        let begin = origin.after(at, rate);
        let kind = if format.arrangement() == Some(Arrangement::Complex) { "IQ" } else { "real" };
        let centre = self.meaning.centre_hz.map_or(String::new(), |hz| format!(", {:.6} MHz", hz / 1e6));
        Ok(LearnedStream {
            framing: Arc::new(Vita49 {
                begin,
                rate,
                sample_bytes: instant as u32,
                format,
                sample_context: self.meaning,
            }),
            key: 0,
            stream: None,
            sample_bytes,
            trailer: Trailer::Context,
            packetization: Packetization::uniform(each as u32),
            shape: Some(Shape {
                channels,
                packing: Packing::Int16Be,
                bits: 16,
                sample_rate_hz: u32::try_from(rate).map_err(|_| format!("its rate of {rate} Hz is too high"))?,
            }),
            // Packets of block 0 may have arrived together with the last one that was examined.
            first_shot: Some(1),
            description: format!(
                "VITA 49: blocks of {samples} {kind} samples at {:.3} MS/s{centre}, in packets of {each}",
                rate as f64 / 1e6
            ),
        })
    }
}

impl Learner for Stream {
    /// Blocks arrive as fast as memory allows.
    const KEEPS_PACKETS: bool = false;

    fn new(hints: Hints) -> Self {
        Self {
            hints,
            seen: 0,
            rate: None,
            format: None,
            meaning: SampleContext::default(),
            origin: None,
            longest: 0,
            newest_end: 0,
            edge: None,
        }
    }

    fn header_len(first: &[u8]) -> usize {
        Prologue::peek_len(first)
    }

    fn key(packet: &[u8]) -> Option<u32> {
        let (prologue, _) = Prologue::parse(packet).ok()?;
        matches!(prologue.kind, Kind::Data | Kind::Context).then_some(prologue.stream.unwrap_or(0))
    }

    fn examine(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String> {
        let Ok((prologue, contents)) = Prologue::parse(packet) else { return Ok(None) };
        self.seen += 1;
        let stream = prologue.stream;
        let learned = match prologue.kind {
            Kind::Context => self.context(packet)?,
            Kind::Data => self.data(&prologue, contents.len() as u64)?,
            _ => None,
        };
        Ok(learned.map(|learned| LearnedStream {
            key: stream.unwrap_or(0),
            stream,
            description: match stream {
                Some(stream) => learned.description.replacen("VITA 49:", &format!("VITA 49 stream {stream:#x}:"), 1),
                None => learned.description,
            },
            ..learned
        }))
    }

    fn missing(&self) -> String {
        let seen = self.seen;
        if self.rate.is_none() && self.hints.sample_rate_hz.is_none() {
            return format!(
                "a context packet with the sample rate, or --sample-rate-hz: {seen} packets arrived without it"
            );
        }
        format!("two consecutive packets of samples, and the size of the blocks (--samples): {seen} packets arrived")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_wire::vita49::{Fraction, Hertz, Seconds, WORD};

    const RATE: u64 = 1_000_000;

    fn time(at: u64) -> Time {
        let begin = Time { seconds: Some(Seconds::Gps(1_400_000_000)), fraction: Some(Fraction::Picoseconds(7)) };
        begin.after(at, RATE)
    }

    fn data(at: u64, samples: u64) -> Vec<u8> {
        let prologue = Prologue { time: time(at), ..Prologue::data(9) }.sized(4 * samples as usize);
        [&prologue.emit()[..], &vec![3; 4 * samples as usize]].concat()
    }

    fn context(at: u64, context: Context) -> Vec<u8> {
        let fields = context.emit();
        let prologue = Prologue { kind: Kind::Context, time: time(at), ..Prologue::data(9) }.sized(fields.len());
        [&prologue.emit()[..], &fields].concat()
    }

    fn tuned() -> Context {
        Context {
            sample_rate: Some(Hertz::new(RATE as f64)),
            rf_reference: Some(Hertz::new(1.3e9)),
            ..Context::default()
        }
    }

    /// Examines packets until the stream is learned. Returns the number of packets before the last one, and the result.
    fn learned_from(hints: Hints, packets: impl IntoIterator<Item = Vec<u8>>) -> (usize, LearnedStream) {
        let mut stream = Stream::new(hints);
        let mut packets = packets.into_iter().enumerate();
        packets.find_map(|(index, packet)| stream.examine(&packet).unwrap().map(|learned| (index, learned))).unwrap()
    }

    /// Generates packets of blocks with a context before each.
    fn blocks(samples: u64, each: u64) -> impl Iterator<Item = Vec<u8>> {
        (0..1000).map(move |block| block * samples).flat_map(move |begin| {
            let pieces = (0..samples).step_by(each as usize);
            let pieces = pieces.map(move |at| data(begin + at, each.min(samples - at)));
            std::iter::once(context(begin, tuned())).chain(pieces)
        })
    }

    #[test]
    fn blocks_extend_between_packets_of_context() {
        for (samples, each) in [(1000_u64, 100), (1050, 100), (90, 100)] {
            let packets = 1 + samples.div_ceil(each) as usize;
            // Starting within a block: the context that completes learning begins the third one.
            let (index, learned) = learned_from(Hints::default(), blocks(samples, each).skip(1));
            assert_eq!(index + 1, 2 * packets, "{samples} in {each}");
            assert_eq!((learned.sample_bytes, learned.key), (4 * samples as u32, 9));
            assert_eq!(learned.packetization, Packetization::uniform(4 * each.min(samples) as u32));
            let description = format!(
                "VITA 49 stream 0x9: blocks of {samples} IQ samples at 1.000 MS/s, 1300.000000 MHz, in packets of {}",
                4 * each.min(samples)
            );
            assert_eq!(learned.description, description);
        }
    }

    #[test]
    fn blocks_with_a_gap_are_not_learned() {
        let lossy = blocks(1000, 100).enumerate().filter(|(index, _)| *index != 5).map(|(_, packet)| packet);
        let (index, learned) = learned_from(Hints::default(), lossy);
        assert_eq!((index, learned.sample_bytes), (21, 4000), "the second block is the first whole one");
        assert_eq!(learned_from(Hints::default(), blocks(1000, 100)).0, 11, "if nothing is lost, it is the first one");
    }

    #[test]
    fn a_configured_block_length_needs_only_two_packets() {
        let hints = Hints { samples: Some(300), ..Hints::default() };
        let (index, learned) = learned_from(hints, blocks(1000, 100));
        assert_eq!((index, learned.sample_bytes), (2, 1200));
        let mut stream = Stream::new(Hints { samples: Some(250), ..Hints::default() });
        let refused = blocks(1000, 100).find_map(|packet| stream.examine(&packet).err()).unwrap();
        assert!(refused.contains("100 samples each"), "{refused}");
        // Without any context, if the rate is given, too.
        let hints = Hints { sample_rate_hz: Some(RATE as u32), ..hints };
        let (index, learned) = learned_from(hints, (0..10).map(|packet| data(packet * 100, 100)));
        assert_eq!((index, learned.description.contains("MHz")), (1, false));
    }

    #[test]
    fn a_single_context_gives_default_blocks() {
        let packets = std::iter::once(context(0, tuned())).chain((0..).map(|packet| data(packet * 1000, 1000)));
        let (_, learned) = learned_from(Hints::default(), packets);
        assert_eq!(learned.sample_bytes, 262 * 4000);
    }

    #[test]
    fn streams_that_cannot_be_recorded_are_refused() {
        let refuse = |fields: Context, packet: Vec<u8>| {
            let mut stream = Stream::new(Hints::default());
            stream.examine(&context(0, fields)).and_then(|_| stream.examine(&packet)).unwrap_err()
        };
        let floats = Format(0x2e00_07df_0000_0000);
        assert!(refuse(Context { format: Some(floats), ..tuned() }, data(0, 10)).contains("16-bit integers"));
        assert!(refuse(Context { sample_rate: Some(Hertz(1)), ..tuned() }, data(0, 10)).contains("not a whole number"));
        let mut trailing = data(0, 10);
        trailing[0] |= Prologue::TRAILER;
        assert!(refuse(tuned(), trailing).contains("trailers"));
        let untimed = Prologue::data(9).sized(8);
        assert!(refuse(tuned(), [&untimed.emit()[..], &[0; 8]].concat()).contains("timestamps"));
        let odd = Context { format: Some(Format(0x2000_03cf_0000_0002)), ..tuned() };
        assert!(refuse(odd, data(0, 10)).contains("whole samples"));
    }

    proptest! {
        #[test]
        fn any_input_is_refused_or_gives_a_valid_block_shape(
            packets in prop::collection::vec((any::<bool>(), 0_u64..4000, 0_u64..300, any::<u32>()), 1..60),
            samples in prop::option::of(0_u32..2000),
        ) {
            let mut stream = Stream::new(Hints { samples, ..Hints::default() });
            for (is_context, at, samples, noise) in packets {
                let mut packet = if is_context { context(at, tuned()) } else { data(at, samples) };
                if noise % 4 == 0 {
                    let at = noise as usize % packet.len();
                    packet[at] ^= (noise >> 24) as u8;
                }
                prop_assert!(Stream::header_len(&packet) >= WORD);
                let _ = Stream::key(&packet);
                if let Ok(Some(learned)) = stream.examine(&packet) {
                    prop_assert!(learned.sample_bytes > 0 && learned.packetization.rest > 0);
                    prop_assert!(learned.packetization.rest <= learned.sample_bytes);
                }
                let _ = stream.missing();
            }
        }
    }
}
