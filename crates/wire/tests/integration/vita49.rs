//! VITA 49 packets: round trips, and comparison with the `vita49` crate.

use ::vita49::prelude as other;
use other::{Cif0Manipulators, DekuContainerRead, DekuContainerWrite};
use proptest::prelude::*;
use shotline_wire::vita49::*;

fn time() -> impl Strategy<Value = Time> {
    let seconds = prop_oneof![
        any::<u32>().prop_map(Seconds::Utc),
        any::<u32>().prop_map(Seconds::Gps),
        any::<u32>().prop_map(Seconds::Other)
    ];
    let fraction = prop_oneof![
        any::<u64>().prop_map(Fraction::Samples),
        (0..PS_PER_SECOND).prop_map(Fraction::Picoseconds),
        any::<u64>().prop_map(Fraction::FreeRunning),
    ];
    (prop::option::of(seconds), prop::option::of(fraction)).prop_map(|(seconds, fraction)| Time { seconds, fraction })
}

fn class() -> impl Strategy<Value = Class> {
    (0_u8..32, 0_u32..1 << 24, any::<u16>(), any::<u16>())
        .prop_map(|(pad_bits, organisation, information, packet)| Class { pad_bits, organisation, information, packet })
}

prop_compose! {
    fn prologue(kinds: &'static [Kind])(
        kind in prop::sample::select(kinds), stream: Option<u32>, class in prop::option::of(class()), flags in 0_u8..8,
        time in time(), count in 0_u8..16,
    ) -> Prologue {
        let stream = if matches!(kind, Kind::Data | Kind::ExtensionData) { stream } else { stream.or(Some(0)) };
        Prologue { kind, stream, class, flags, time, count, words: 0 }
    }
}

const ALL_KINDS: &[Kind] =
    &[Kind::Data, Kind::ExtensionData, Kind::Context, Kind::ExtensionContext, Kind::Command, Kind::ExtensionCommand];

prop_compose! {
    fn context()(
        changed: bool, words: [Option<u32>; 3], rates: [Option<i64>; 6], halves: [Option<i16>; 2],
        gain: Option<(i16, i16)>, adjustment: Option<i64>, device in prop::option::of((0_u32..1 << 24, any::<u16>())),
        state: Option<u32>, format: Option<u64>,
    ) -> Context {
        let [reference_point, over_range, time_calibrated] = words;
        let [bandwidth, if_reference, rf_reference, rf_offset, if_band_offset, sample_rate] = rates.map(|n| n.map(Hertz));
        Context {
            changed, reference_point, bandwidth, if_reference, rf_reference, rf_offset, if_band_offset,
            reference_level: halves[0].map(Decibels), gain: gain.map(|(a, b)| [Decibels(a), Decibels(b)]), over_range,
            sample_rate, time_adjustment_fs: adjustment, time_calibrated, temperature: halves[1].map(Celsius), device,
            state: state.map(State), format: format.map(Format), skipped: 0,
        }
    }
}

/// Returns an encoded data packet.
fn data_packet(prologue: Prologue, payload: &[u8], trailer: Trailer) -> Vec<u8> {
    let prologue = prologue.sized(payload.len());
    let mut packet = prologue.emit().to_vec();
    packet.extend(payload);
    if prologue.has_trailer() {
        packet.extend(trailer.emit());
    }
    packet
}

fn context_packet(prologue: Prologue, context: &Context) -> Vec<u8> {
    let contents = context.emit();
    let mut packet = prologue.sized(contents.len()).emit().to_vec();
    packet.extend(contents);
    packet
}

proptest! {
    #[test]
    fn prologue_parse_inverts_emit(prologue in prologue(ALL_KINDS), extra in 0_usize..20) {
        let prologue = prologue.sized(4 * extra);
        let mut bytes = prologue.emit().to_vec();
        prop_assert_eq!(bytes.len(), prologue.size());
        prop_assert_eq!(bytes.len(), Prologue::peek_len(&bytes));
        bytes.resize(usize::from(prologue.words) * WORD, 0x55);
        let (parsed, contents) = Prologue::parse(&bytes).unwrap();
        prop_assert_eq!(parsed, prologue);
        prop_assert_eq!(contents.len(), bytes.len() - prologue.size());
        prop_assert!(Prologue::parse(&bytes[..bytes.len() - 1]).is_err());
        bytes.push(0); // a byte after the packet
        prop_assert_eq!(Prologue::parse(&bytes).unwrap().0, prologue);
    }

    #[test]
    fn data_packets_agree_with_the_vita49_crate(
        prologue in prologue(&[Kind::Data]), words in prop::collection::vec(any::<u32>(), 0..50), trailer: u32,
    ) {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let packet = data_packet(prologue, &payload, Trailer(trailer));
        let data = Data::parse(&packet).unwrap();
        prop_assert_eq!(data.prologue, prologue.sized(payload.len()));
        prop_assert_eq!(data.payload, &payload[..]);
        prop_assert_eq!(data.trailer, prologue.has_trailer().then_some(Trailer(trailer)));

        let (_, theirs) = other::Vrt::from_bytes((&packet, 0)).unwrap();
        prop_assert_eq!(theirs.stream_id(), prologue.stream);
        prop_assert_eq!(theirs.header().packet_count(), prologue.count);
        prop_assert_eq!(usize::from(theirs.header().packet_size()) * WORD, packet.len());
        prop_assert_eq!(their_time(&theirs), prologue.time);
        let class = theirs.class_id().map(|class| Class {
            pad_bits: class.pad_bit_count(), organisation: class.oui(), information: class.information_class_code(),
            packet: class.packet_class_code(),
        });
        prop_assert_eq!(class, prologue.class);
        prop_assert_eq!(theirs.signal_payload().unwrap(), &payload[..]);
        if let Some(trailer) = data.trailer {
            let theirs = theirs.trailer().unwrap();
            let indicators = [
                theirs.cal_time_indicator(), theirs.valid_data_indicator(), theirs.reference_lock_indicator(),
                theirs.agc_indicator(), theirs.detected_signal_indicator(), theirs.spectral_inversion_indicator(),
                theirs.over_range_indicator(), theirs.sample_loss_indicator(),
            ];
            prop_assert_eq!(Indicator::ALL.map(|indicator| trailer.get(indicator)), indicators);
            prop_assert_eq!(trailer.contexts(), theirs.associated_context_packet_count());
        }
        prop_assert_eq!(theirs.to_bytes().unwrap(), packet);
    }

    #[test]
    fn context_packets_agree_with_the_vita49_crate(prologue in prologue(&[Kind::Context]), context in context()) {
        let packet = context_packet(prologue, &context);
        let (parsed, back) = Context::parse(&packet).unwrap();
        prop_assert_eq!((parsed.stream, parsed.time, back), (prologue.stream, prologue.time, context));

        let (_, theirs) = other::Vrt::from_bytes((&packet, 0)).unwrap();
        prop_assert_eq!(their_time(&theirs), prologue.time);
        let fields = theirs.payload().context().unwrap();
        prop_assert_eq!(fields.context_changed(), context.changed);
        prop_assert_eq!(fields.reference_point_id().copied(), context.reference_point);
        let hertz = |value: Option<Hertz>| value.map(Hertz::hz);
        prop_assert_eq!(fields.if_ref_freq_hz(), hertz(context.if_reference));
        prop_assert_eq!(fields.rf_ref_freq_offset_hz(), hertz(context.rf_offset));
        prop_assert_eq!(fields.if_band_offset_hz(), hertz(context.if_band_offset));
        // These fields are unsigned in the other crate, so only non-negative values are compared.
        let non_negative = |value: Option<Hertz>| value.is_none_or(|value| value.0 >= 0);
        if non_negative(context.bandwidth) {
            prop_assert_eq!(fields.bandwidth_hz(), hertz(context.bandwidth));
        }
        if non_negative(context.rf_reference) {
            prop_assert_eq!(fields.rf_ref_freq_hz(), hertz(context.rf_reference));
        }
        if non_negative(context.sample_rate) {
            prop_assert_eq!(fields.sample_rate_sps(), hertz(context.sample_rate));
        }
        prop_assert_eq!(fields.reference_level_db().map(f64::from), context.reference_level.map(Decibels::db));
        let gain = fields.gain().map(|gain| [gain.stage_1_gain_db(), gain.stage_2_gain_db()].map(f64::from));
        prop_assert_eq!(gain, context.gain.map(|gain| gain.map(Decibels::db)));
        prop_assert_eq!(fields.over_range_count().copied(), context.over_range);
        prop_assert_eq!(fields.timestamp_adjustment().copied(), context.time_adjustment_fs.map(|fs| fs as u64));
        prop_assert_eq!(fields.timestamp_cal_time().copied(), context.time_calibrated);
        prop_assert_eq!(fields.temperature().map(|word| *word as i16), context.temperature.map(|t| t.0));
        let device = fields.device_id().map(|device| (device.manufacturer_oui(), device.device_code()));
        prop_assert_eq!(device, context.device);
        prop_assert_eq!(fields.state_indicators().copied(), context.state.map(|state| state.0));
        prop_assert_eq!(fields.signal_data_payload_format().copied(), context.format.map(|format| format.0));
        prop_assert_eq!(theirs.to_bytes().unwrap(), packet);
    }

    #[test]
    fn parse_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), bits: Option<u32>) {
        if let (Some(bits), Some(word)) = (bits, bytes.first_chunk_mut()) {
            // A context packet of the right length, so that parsing reaches its fields.
            *word = 0x4000_0000_u32.to_be_bytes();
            let words = (bytes.len() / WORD) as u8;
            bytes[3] = words;
            if let Some(first) = bytes.get_mut(8..12) {
                first.copy_from_slice(&(bits & !0xf1).to_be_bytes());
            }
        }
        let _ = (Prologue::parse(&bytes), Data::parse(&bytes), Context::parse(&bytes), Prologue::peek_len(&bytes));
    }

    #[test]
    fn samples_since_counts_across_seconds(
        rate in 1_u64..20_000_000_000, samples in 0_u64..1_000_000_000_000, begin in 0_u64..1_000_000_000_000,
    ) {
        let at = |sample: u64| {
            let ps = u128::from(sample) * u128::from(PS_PER_SECOND) / u128::from(rate);
            let (second, ps) = (ps / u128::from(PS_PER_SECOND), ps % u128::from(PS_PER_SECOND));
            Time { seconds: Some(Seconds::Gps(second as u32)), fraction: Some(Fraction::Picoseconds(ps as u64)) }
        };
        prop_assume!((begin + samples) / rate < u64::from(u32::MAX));
        prop_assert_eq!(at(begin + samples).samples_since(at(begin), rate), Some(samples.into()));
        prop_assert_eq!(at(begin).samples_since(at(begin + samples), rate), Some(-i128::from(samples)));
        let at = |sample: u64| Time {
            seconds: Some(Seconds::Utc((sample / rate) as u32)), fraction: Some(Fraction::Samples(sample % rate)),
        };
        prop_assert_eq!(at(begin + samples).samples_since(at(begin), rate), Some(samples.into()));
    }
}

fn their_time(packet: &other::Vrt) -> Time {
    let seconds = packet.integer_timestamp().map(|seconds| match packet.header().tsi() {
        other::Tsi::Utc => Seconds::Utc(seconds),
        other::Tsi::Gps => Seconds::Gps(seconds),
        _ => Seconds::Other(seconds),
    });
    let fraction = packet.fractional_timestamp().map(|fraction| match packet.header().tsf() {
        other::Tsf::SampleCount => Fraction::Samples(fraction),
        other::Tsf::RealTimePs => Fraction::Picoseconds(fraction),
        _ => Fraction::FreeRunning(fraction),
    });
    Time { seconds, fraction }
}
