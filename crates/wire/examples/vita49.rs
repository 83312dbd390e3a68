//! Prints VITA 49 packets, one per line: the packet in hexadecimal and its fields under their Wireshark names.
//! `tests/test_vita49.py` decodes them with tshark and compares.

use shotline_wire::vita49::{
    Class, Context, Decibels, Format, Fraction, Hertz, Indicator, Kind, Prologue, Seconds, State, Time, Trailer,
};

fn main() {
    let payload: Vec<u8> = (0..64).collect();
    let trailer = Trailer::default()
        .with(Indicator::ValidData, true)
        .with(Indicator::ReferenceLock, false)
        .with(Indicator::OverRange, true)
        .with(Indicator::SampleLoss, false)
        .with_contexts(3);
    let class = Class { pad_bits: 0, organisation: 0x12_3456, information: 0x789a, packet: 0xbcde };
    let seconds = [None, Some(Seconds::Utc(1_700_000_000)), Some(Seconds::Gps(4_000_000_000)), Some(Seconds::Other(7))];
    let fractions = [
        None,
        Some(Fraction::Samples(499_999_999)),
        Some(Fraction::Picoseconds(999_999_999_999)),
        Some(Fraction::FreeRunning(1 << 40)),
    ];
    for n in 0..64_usize {
        let time = Time { seconds: seconds[n % 4], fraction: fractions[n / 4 % 4] };
        let stream = (n & 16 != 0).then_some(0xdead_0000 | n as u32);
        let class = (n & 32 != 0).then_some(class);
        let flags = if n % 3 == 0 { Prologue::TRAILER } else { 0 };
        let prologue = Prologue { stream, class, flags, time, count: (n % 16) as u8, ..Prologue::data(0) };
        let prologue = prologue.sized(payload.len());
        let mut packet = prologue.emit().to_vec();
        packet.extend(&payload);
        let mut fields = describe(&prologue, stream.is_some().into());
        fields.push(format!("vrt.tflag={}", u8::from(prologue.has_trailer())));
        fields.push(format!("vrt.data={}", hex(&payload)));
        if prologue.has_trailer() {
            packet.extend(trailer.emit());
            fields.extend(
                ["valid=1", "reflock=0", "overrng=1", "sampleloss=0", "acpc=3"].map(|field| format!("vrt.{field}")),
            );
            fields.push(format!("vrt.trailer={:#010x}", trailer.0));
        }
        println!("{} {}", hex(&packet), fields.join(" "));
    }
    let context = Context {
        changed: true,
        bandwidth: Some(Hertz::new(400e6)),
        rf_reference: Some(Hertz::new(1.09e9)),
        reference_level: Some(Decibels::new(-10.5)),
        sample_rate: Some(Hertz::new(500e6)),
        state: Some(State::default().with(Indicator::CalibratedTime, true)),
        format: Some(Format::IQ16),
        ..Context::default()
    };
    let contents = context.emit();
    let prologue = Prologue {
        kind: Kind::Context,
        count: 9,
        time: Time { seconds: seconds[2], fraction: fractions[2] },
        ..Prologue::data(0xfeed_beef)
    };
    let prologue = prologue.sized(contents.len());
    println!("{}{} {}", hex(&prologue.emit()), hex(&contents), describe(&prologue, 4).join(" "));
}

fn describe(prologue: &Prologue, kind: u8) -> Vec<String> {
    let mut fields = vec![
        format!("vrt.type={kind}"),
        format!("vrt.cidflag={}", u8::from(prologue.class.is_some())),
        format!("vrt.seq={}", prologue.count),
        format!("vrt.len={}", prologue.words),
    ];
    if let Some(stream) = prologue.stream {
        fields.push(format!("vrt.sid={stream:#010x}"));
    }
    if let Some(class) = prologue.class {
        fields.extend([format!("vrt.oui={}", class.organisation), format!("vrt.icc={}", class.information)]);
        fields.push(format!("vrt.pcc={}", class.packet));
    }
    let (kind, seconds) = match prologue.time.seconds {
        None => (0, None),
        Some(Seconds::Utc(seconds)) => (1, Some(seconds)),
        Some(Seconds::Gps(seconds)) => (2, Some(seconds)),
        Some(Seconds::Other(seconds)) => (3, Some(seconds)),
    };
    fields.push(format!("vrt.tsi={kind}"));
    fields.extend(seconds.map(|seconds| format!("vrt.ts_int={seconds}")));
    fields.extend(match prologue.time.fraction {
        None => vec!["vrt.tsf=0".into()],
        Some(Fraction::Samples(count)) => vec!["vrt.tsf=1".into(), format!("vrt.ts_frac_sample={count}")],
        Some(Fraction::Picoseconds(ps)) => vec!["vrt.tsf=2".into(), format!("vrt.ts_frac_picosecond={ps}")],
        Some(Fraction::FreeRunning(count)) => vec!["vrt.tsf=3".into(), format!("vrt.ts_frac_sample={count}")],
    });
    fields
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
