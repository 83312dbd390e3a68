//! Single cases. Round trips, and the comparison with another implementation, are in `tests/integration/vita49.rs`.

use super::*;

#[test]
fn first_word_matches_the_standard() {
    let time = Time { seconds: Some(Seconds::Utc(1)), fraction: Some(Fraction::Picoseconds(2)) };
    let prologue = Prologue { time, count: 5, words: 9, ..Prologue::data(3) };
    assert_eq!(prologue.emit()[..4], 0x1065_0009_u32.to_be_bytes());
}

#[test]
fn time_stamps_of_different_clocks_are_not_compared() {
    let stamp = |seconds, fraction| Time { seconds, fraction };
    let utc = stamp(Some(Seconds::Utc(5)), None);
    assert_eq!(utc.samples_since(stamp(Some(Seconds::Gps(5)), None), 1), None);
    assert_eq!(utc.samples_since(stamp(Some(Seconds::Utc(5)), Some(Fraction::Samples(0))), 1), None);
    assert_eq!(Time::default().samples_since(Time::default(), 1), None);
    let free = |count| stamp(None, Some(Fraction::FreeRunning(count)));
    assert_eq!(free(u64::MAX).samples_since(free(0), 7), Some(u64::MAX.into()));
    let absurd = |ps| stamp(None, Some(Fraction::Picoseconds(ps)));
    assert_eq!(absurd(u64::MAX).samples_since(absurd(0), u64::MAX), None);
    assert_eq!(utc.samples_since(utc, 0), Some(0));
}

#[test]
fn unsupported_fields_are_skipped_by_their_length() {
    // Reference point; GPS (11 words), reference id, text of two words, lists of 1, 2, 1 and 2 streams with tags; a
    // second indicator word with a field after all others.
    let bits: u32 = 1 << 30 | 1 << 14 | 1 << 10 | 1 << 9 | 1 << 8 | 1 << 1;
    let mut words = std::vec![bits, 1 << 31, 77];
    words.extend([0; 11 + 1]);
    words.extend([0xffffff, 2, 0, 0]);
    words.extend([1 << 16 | 2, 1 << 16 | 1 << 15 | 2]);
    words.extend([0; 1 + 2 + 1 + 2 + 2]);
    words.push(5);
    let prologue = Prologue { kind: Kind::Context, ..Prologue::data(1) };
    let packet = |words: &[u32]| {
        let mut packet = prologue.sized(words.len() * WORD).emit().to_vec();
        packet.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        packet
    };
    let (_, context) = Context::parse(&packet(&words)).unwrap();
    assert_eq!((context.reference_point, context.skipped), (Some(77), bits & !(1 << 30)));
    assert!(Context::parse(&packet(&words[..words.len() - 2])).is_err(), "the last list is cut");
    for bit in [0, 4, 5, 6, 7] {
        words[0] = bits | 1 << bit;
        assert!(Context::parse(&packet(&words)).is_err(), "bit {bit} is refused");
    }
    let plain = packet(&[1 << 30, 77, 78]);
    assert_eq!(Context::parse(&plain), Err(ParseError::Length { what: "VITA 49 context", expected: 8, found: 12 }));
}

#[test]
fn malformed_packets_are_refused() {
    let prologue = Prologue::data(1).sized(0);
    let word = |word: u32| {
        let mut packet = prologue.emit().to_vec();
        packet[..4].copy_from_slice(&word.to_be_bytes());
        packet
    };
    assert!(Prologue::parse(&word(0x1000_0002)).is_ok());
    assert!(Prologue::parse(&word(0x1000_0001)).is_err(), "shorter than its prologue");
    assert!(Prologue::parse(&word(0x1400_0002)).is_err(), "no space for the trailer");
    assert!(Prologue::parse(&word(0x1000_0003)).is_err(), "longer than the datagram");
    assert!(Prologue::parse(&word(0x8000_0002)).is_err(), "an undefined kind");
    assert!(Data::parse(&word(0x4000_0002)).is_err() && Context::parse(&word(0x1000_0002)).is_err());
    let late = Time { seconds: None, fraction: Some(Fraction::Picoseconds(PS_PER_SECOND)) };
    assert!(Prologue::parse(&Prologue { time: late, ..prologue }.sized(0).emit()).is_err(), "a whole second");
}

#[test]
fn fixed_point_numbers_are_rounded() {
    assert_eq!((Hertz::new(1.0), Hertz::new(-0.5), Hertz::new(f64::NAN)), (Hertz(1 << 20), Hertz(-1 << 19), Hertz(0)));
    assert_eq!((Decibels::new(-3.0039), Decibels::new(1e9)), (Decibels(-384), Decibels(i16::MAX)));
    assert_eq!((Celsius::new(25.5).degrees(), Hertz::new(500e6).hz()), (25.5, 500e6));
    let format = Format::IQ16;
    assert_eq!((format.arrangement(), format.item()), (Some(Arrangement::Complex), Some(Item::Signed)));
    assert_eq!((format.item_bits(), format.packing_bits(), format.vector(), format.dense()), (16, 16, 1, false));
}

#[test]
fn indicators_are_set_and_cleared() {
    let trailer =
        Trailer::default().with(Indicator::ValidData, true).with(Indicator::SampleLoss, false).with_contexts(3);
    assert_eq!(trailer.get(Indicator::ValidData), Some(true));
    assert_eq!(trailer.get(Indicator::SampleLoss), Some(false));
    assert_eq!((trailer.get(Indicator::OverRange), trailer.contexts()), (None, Some(3)));
    assert_eq!(trailer.with(Indicator::ValidData, false).get(Indicator::ValidData), Some(false));
    let state = State::default().with(Indicator::ReferenceLock, true);
    assert_eq!(
        (state.get(Indicator::ReferenceLock), state.get(Indicator::OverRange), state.user()),
        (Some(true), None, 0)
    );
}
