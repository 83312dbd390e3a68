use super::*;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

const fn seq(bits: u8) -> SequenceNumber {
    SequenceNumber::from_bits(bits)
}

/// Control words with their characters, of which only the first is a K-code.
const WORDS: [(ControlWord, [u8; 4]); 38] = {
    use ControlWord::*;
    let status = BroadcastStatus { late: false, delayed: false };
    [
        (Skip, [0xFC, 0xCE, 0x7F, 0x7F]),
        (Idle, [0xFC, 0xCE, 0xCF, 0xCF]),
        (Init1, [0xBC, 0xCE, 0x46, 0x46]),
        (InvertedInit1, [0xBC, 0x31, 0xB9, 0xB9]),
        (Init2, [0xBC, 0xCE, 0xA6, 0xA6]),
        (InvertedInit2, [0xBC, 0x31, 0x59, 0x59]),
        (Init3(Capability::LINK_RESET), [0xBC, 0xCE, 0x38, 0x01]),
        (Init3(Capability::LANE_START), [0xBC, 0xCE, 0x38, 0x02]),
        (Init3(Capability::DATA_SCRAMBLED), [0xBC, 0xCE, 0x38, 0x04]),
        (Init3(Capability::MULTI_LANE), [0xBC, 0xCE, 0x38, 0x08]),
        (Init3(Capability::ROUTING_SWITCH), [0xBC, 0xCE, 0x38, 0x10]),
        (Init3(Capability::from_bits(0xE0)), [0xBC, 0xCE, 0x38, 0xE0]),
        (Standby { reason: 0x5A }, [0xFC, 0xCE, 0x7E, 0x5A]),
        (LostSignal(LostSignalCause::NoSignal), [0xFC, 0xCE, 0x64, 0]),
        (LostSignal(LostSignalCause::ReceiveErrors), [0xFC, 0xCE, 0x64, 1]),
        (LostSignal(LostSignalCause::Init1), [0xFC, 0xCE, 0x64, 2]),
        (Active { lanes: 0x800F }, [0xFC, 0x20, 0x0F, 0x80]),
        (Align { lane: 3, lanes: 4 }, [0xFC, 0x77, 0x34, 0xCB]),
        (Align { lane: 15, lanes: 16 }, [0xFC, 0x77, 0xF0, 0x0F]),
        (Align { lane: 0, lanes: 16 }, [0xFC, 0x77, 0x00, 0xFF]),
        (AlignRedundant, [0xFC, 0x77, 0x00, 0x00]),
        (StartDataFrame { vc: 31 }, [0xFC, 0x50, 0x1F, 0x00]),
        (EndDataFrame { seq: seq(0x41), crc: 0x978A }, [0x1C, 0x41, 0x8A, 0x97]),
        (StartBroadcastFrame { channel: 0xAB, kind: 0xCD }, [0xFC, 0x5D, 0xAB, 0xCD]),
        (EndBroadcastFrame { status, seq: seq(0x41), crc: 0x29 }, [0x5C, 0x00, 0x41, 0x29]),
        (
            EndBroadcastFrame { status: BroadcastStatus { late: true, ..status }, seq: seq(0x80), crc: 0 },
            [0x5C, 0x01, 0x80, 0x00],
        ),
        (
            EndBroadcastFrame { status: BroadcastStatus { delayed: true, ..status }, seq: seq(0), crc: 0 },
            [0x5C, 0x02, 0x00, 0x00],
        ),
        (StartIdleFrame { seq: seq(0) }, [0xFC, 0x44, 0x00, 0x44]),
        (StartIdleFrame { seq: seq(1) }, [0xFC, 0x44, 0x01, 0xD5]),
        (FlowControlToken { vc: 1, multiplier: 1, seq: seq(1) }, [0x7C, 0x01, 0x01, 0x4F]),
        (FlowControlToken { vc: 0, multiplier: 1, seq: seq(1) }, [0x7C, 0x00, 0x01, 0x22]),
        (FlowControlToken { vc: 3, multiplier: 4, seq: seq(5) }, [0x7C, 0x63, 0x05, 0xEC]),
        (FlowControlToken { vc: 0, multiplier: 2, seq: seq(1) }, [0x7C, 0x20, 0x01, 0x08]),
        (Ack { seq: seq(0) }, [0xFC, 0xA2, 0x00, 0x3D]),
        (Ack { seq: seq(1) }, [0xFC, 0xA2, 0x01, 0xAC]),
        (Nack { seq: SequenceNumber { count: 0, negative: true } }, [0xFC, 0xBB, 0x80, 0x4F]),
        (Full { seq: seq(0) }, [0xFC, 0x6F, 0x00, 0x33]),
        (Retry, [0xFC, 0x87, 0x00, 0x00]),
    ]
};

#[test]
fn control_words_match_the_standard() {
    for (control, characters) in WORDS {
        assert_eq!(control.emit(), Word::comma(characters), "{control:?}");
        assert_eq!(ControlWord::parse(Word::comma(characters)), Ok(Some(control)));
    }
    let pad = Word { characters: [0xFC, 0xFB, 0xFB, 0xFB], control: 0xF };
    assert_eq!((ControlWord::Pad.emit(), ControlWord::parse(pad)), (pad, Ok(Some(ControlWord::Pad))));
}

#[test]
fn reserved_bits_are_ignored() {
    for (characters, control) in [
        ([0xFC, 0xCE, 0x64, 0xFD], ControlWord::LostSignal(LostSignalCause::ReceiveErrors)),
        ([0xFC, 0xCE, 0x64, 0x03], ControlWord::LostSignal(LostSignalCause::Reserved)),
        ([0xFC, 0x50, 0xE7, 0xFF], ControlWord::StartDataFrame { vc: 7 }),
        ([0xFC, 0x87, 0x01, 0x02], ControlWord::Retry),
    ] {
        assert_eq!(ControlWord::parse(Word::comma(characters)), Ok(Some(control)));
    }
    let Ok(Some(ControlWord::EndBroadcastFrame { status, .. })) = ControlWord::parse(Word::comma([0x5C, 0xFD, 0, 0]))
    else {
        panic!("EBF with reserved bits")
    };
    assert_eq!(status, BroadcastStatus { late: true, delayed: false });
}

#[test]
fn other_words_are_not_control_words() {
    for characters in [
        [0xFC, 0xCE, 0x7F, 0xCF], // SKIP and IDLE in one
        [0xFC, 0xCE, 0x46, 0x46], // INIT1 after the other comma
        [0xBC, 0xCE, 0x7F, 0x7F], // SKIP after the other comma
        [0xBC, 0x31, 0x46, 0x46], // only half inverted
        [0xFC, 0x77, 0x34, 0x34], // ALIGN without its inverse
        [0xFC, 0x84, 0x00, 0x00],
        [0x3C, 0x00, 0x00, 0x00],
        Word::RXERR.characters,
    ] {
        assert_eq!(ControlWord::parse(Word::comma(characters)), Ok(None), "{characters:02X?}");
    }
    for (_, characters) in WORDS {
        for control in (0..16).filter(|control| *control != 1) {
            assert_eq!(ControlWord::parse(Word { characters, control }), Ok(None), "{characters:02X?} {control:#b}");
        }
    }
    for control in 0..15 {
        assert_eq!(ControlWord::parse(Word { control, ..PAD }), Ok(None));
    }
}

#[test]
fn every_single_bit_error_of_a_checked_word_is_found() {
    let checked = WORDS.iter().filter(|(control, _)| {
        use ControlWord::*;
        matches!(control, StartIdleFrame { .. } | FlowControlToken { .. } | Ack { .. } | Nack { .. } | Full { .. })
    });
    let mut words = 0;
    for (control, characters) in checked {
        words += 1;
        // Bits 8 to 15 are the symbol, except for an FCT.
        let first = if characters[0] == 0x7C { 8 } else { 16 };
        for bit in first..32 {
            let word = Word::comma((u32::from_le_bytes(*characters) ^ 1 << bit).to_le_bytes());
            let error = ControlWord::parse(word).expect_err("the CRC finds single-bit errors");
            assert_eq!(error.found, word.characters[3], "{control:?}");
        }
    }
    assert_eq!(words, 10);
}

#[test]
fn wrong_crc_is_reported_by_kind() {
    let error = |characters| ControlWord::parse(Word::comma(characters)).unwrap_err();
    let kinds = [
        ([0xFC, 0x44, 0x00, 0x45], CheckedWord::StartIdleFrame, "CRC-8 of SIF must be 0x44, found 0x45"),
        ([0x7C, 0x01, 0x01, 0x00], CheckedWord::FlowControlToken, "CRC-8 of FCT must be 0x4f, found 0x00"),
        ([0xFC, 0xA2, 0x00, 0x3C], CheckedWord::Ack, "CRC-8 of ACK must be 0x3d, found 0x3c"),
        ([0xFC, 0xBB, 0x80, 0xFF], CheckedWord::Nack, "CRC-8 of NACK must be 0x4f, found 0xff"),
        ([0xFC, 0x6F, 0x00, 0x32], CheckedWord::Full, "CRC-8 of FULL must be 0x33, found 0x32"),
    ];
    for (characters, word, message) in kinds {
        assert_eq!((error(characters).word, error(characters).to_string().as_str()), (word, message));
    }
}

#[test]
fn sequence_numbers_wrap_within_their_polarity() {
    for negative in [false, true] {
        let last = SequenceNumber { count: 127, negative };
        assert_eq!(last.next(), SequenceNumber { count: 0, negative });
        assert_eq!(seq(0x05 | u8::from(negative) << 7).next(), SequenceNumber { count: 6, negative });
    }
    assert!((0..=255).all(|bits| seq(bits).bits() == bits));
    assert_eq!(SequenceNumber { count: 0xFF, negative: false }.bits(), 0x7F);
}

#[test]
fn capabilities_are_sets_of_flags() {
    let both = Capability::MULTI_LANE.with(Capability::LANE_START, true);
    assert_eq!(both.bits(), 0b1010);
    assert!(both.contains(Capability::MULTI_LANE) && !both.contains(Capability::LINK_RESET));
    assert!(!Capability::MULTI_LANE.contains(both));
    assert_eq!(both.with(Capability::MULTI_LANE, false), Capability::LANE_START);
}

fn any_word() -> impl Strategy<Value = Word> {
    let symbols: Vec<[u8; 4]> = WORDS.iter().map(|(_, characters)| *characters).collect();
    let known = (prop::sample::select(symbols), any::<[u8; 4]>(), 0..16_u8).prop_map(|(known, random, keep)| {
        let pick = |index: usize| if keep >> index & 1 == 1 { random[index] } else { known[index] };
        Word::comma([0, 1, 2, 3].map(pick))
    });
    let random = (any::<[u8; 4]>(), 0..16_u8).prop_map(|(characters, control)| Word { characters, control });
    prop_oneof![3 => known, 1 => random]
}

proptest! {
    #[test]
    fn parsed_words_are_emitted_and_parsed_again(word in any_word()) {
        match ControlWord::parse(word) {
            Ok(Some(control)) => prop_assert_eq!(ControlWord::parse(control.emit()), Ok(Some(control))),
            Ok(None) => {}
            Err(error) => {
                // With the expected CRC the word is accepted as it is.
                let [first, second, third, _] = word.characters;
                let good = Word::comma([first, second, third, error.expected]);
                prop_assert_eq!(ControlWord::parse(good).map(|control| control.map(ControlWord::emit)), Ok(Some(good)));
            }
        }
    }
}
