use super::symbol::is_code;
use super::*;
use crate::spacefibre::{Capability, ControlWord, SequenceNumber};
use proptest::prelude::*;
use shotline_random::SplitMix64;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// The running disparities, negative and positive, as in `Symbol` and as in `Character`.
const DISPARITIES: [(u32, u32); 2] = [(Symbol::NEGATIVE, 0), (Symbol::POSITIVE, 1)];

/// Returns the symbol of a character (plus 256 for a K-code).
fn encoded(index: usize, disparity: u32) -> Symbol {
    ENCODE[index | disparity as usize]
}

/// Symbols of a character (plus 256 for a K-code) at each running disparity, written with the first bit first.
fn symbols_of(index: usize) -> [String; 2] {
    DISPARITIES.map(|(disparity, _)| bits(encoded(index, disparity).bits(), 10))
}

/// Index of a word's character in the table of symbols.
fn key(word: Word, index: usize) -> usize {
    usize::from(word.characters[index]) | usize::from(word.control >> index & 1) << 8
}

fn bits(value: u64, len: u32) -> String {
    (0..len).map(|bit| if value >> bit & 1 == 1 { '1' } else { '0' }).collect()
}

#[test]
fn symbols_match_published_tables() {
    let d = |x: usize, y: usize| y * 32 + x;
    let k = |x: usize, y: usize| d(x, y) + 256;
    for (index, negative, positive) in [
        (k(28, 0), "0011110100", "1100001011"),
        (k(28, 1), "0011111001", "1100000110"),
        (k(28, 2), "0011110101", "1100001010"),
        (k(28, 3), "0011110011", "1100001100"),
        (k(28, 4), "0011110010", "1100001101"),
        (k(28, 5), "0011111010", "1100000101"),
        (k(28, 6), "0011110110", "1100001001"),
        (k(28, 7), "0011111000", "1100000111"),
        (k(23, 7), "1110101000", "0001010111"),
        (k(27, 7), "1101101000", "0010010111"),
        (k(29, 7), "1011101000", "0100010111"),
        (k(30, 7), "0111101000", "1000010111"),
        (d(0, 0), "1001110100", "0110001011"),
        (d(3, 0), "1100011011", "1100010100"),
        (d(7, 3), "1110001100", "0001110011"),
        (d(10, 2), "0101010101", "0101010101"),
        (d(11, 7), "1101001110", "1101001000"), // A7 at positive disparity
        (d(14, 6), "0111000110", "0111000110"),
        (d(16, 2), "0110110101", "1001000101"),
        (d(17, 7), "1000110111", "1000110001"), // A7 at negative disparity
        (d(20, 7), "0010110111", "0010110001"),
        (d(21, 5), "1010101010", "1010101010"),
        (d(31, 7), "1010110001", "0101001110"),
    ] {
        assert_eq!(symbols_of(index), [negative, positive], "{index:#x}");
    }
}

/// Returns what a symbol is at a running disparity: a character, plus 256 for a K-code, and the disparity after it.
fn decoded(symbol: u64, disparity: u32) -> Option<(u32, u32)> {
    let character = DECODE[symbol as usize];
    // D21.5 is valid at both running disparities, and does not change them.
    let neutral = DECODE[0b01_0101_0101];
    let results = [0, 1, 2, 3].map(|position| {
        let mut characters = [neutral; 4];
        characters[position] = character;
        let characters = Characters::new(characters);
        let after = characters.after(disparity)?;
        assert_eq!(after, character.after(disparity));
        Some((key(characters.word(), position) as u32, after))
    });
    assert_eq!(results, [results[0]; 4], "at all positions in a word");
    assert!([0, 1].contains(&character.after(disparity)));
    results[0]
}

#[test]
fn symbols_match_another_implementation() {
    // CRC-32 of all symbols as text, by character and then disparity, as the logic of LiteX (code_8b10b.py) forms them.
    let codes = (0..512).filter(|index| is_code(*index));
    let text: String = codes.flat_map(symbols_of).collect();
    assert_eq!((text.len(), crate::crc::crc32(text.as_bytes())), (5360, 0x273D_D4B3));
}

#[test]
fn every_character_decodes_to_itself() {
    let codes: Vec<usize> = (0..512).filter(|index| is_code(*index)).collect();
    assert_eq!(codes.len(), 256 + 12);
    for index in codes {
        for (n, (sender, receiver)) in DISPARITIES.into_iter().enumerate() {
            let symbol = encoded(index, sender).bits();
            // As many ones as zeros, or two more of those that the running disparity lacks.
            let changes = encoded(index, sender).after() != sender;
            assert_eq!(symbol.count_ones(), if changes { [6, 4][n] } else { 5 });
            let after = DISPARITIES[n ^ usize::from(changes)];
            assert_eq!(encoded(index, sender).after(), after.0);
            assert_eq!(decoded(symbol, receiver), Some((index as u32, after.1)), "{index:#x}");
        }
    }
}

#[test]
fn all_symbols_have_a_definite_result() {
    for (sender, receiver) in DISPARITIES {
        let mut valid = 0;
        for symbol in 0..1024 {
            if let Some((index, _)) = decoded(symbol, receiver) {
                valid += 1;
                assert_eq!(encoded(index as usize, sender).bits(), symbol);
            }
            // A last block that is not balanced determines the running disparity, whatever the first one is.
            let after = DECODE[symbol as usize].after(receiver);
            match (symbol >> 6).count_ones() {
                0 | 1 => assert_eq!(after, 0, "{symbol:#x}"),
                2 => {}
                _ => assert_eq!(after, 1, "{symbol:#x}"),
            }
        }
        assert_eq!(valid, 268);
    }
}

#[test]
fn single_bit_errors_are_found_at_once_or_by_disparity() {
    let (mut found, mut later) = (0, 0);
    for index in (0..512).filter(|index| is_code(*index)) {
        for (sender, receiver) in DISPARITIES {
            let sent = encoded(index, sender).bits();
            let (_, good) = decoded(sent, receiver).unwrap();
            for bit in 0..10 {
                match decoded(sent ^ 1 << bit, receiver) {
                    None => found += 1,
                    // Another character, after which the running disparity is wrong until the next unbalanced symbol.
                    Some((other, bad)) => {
                        later += 1;
                        assert_ne!(other, index as u32);
                        assert_ne!(good, bad);
                    }
                }
            }
        }
    }
    assert_eq!((found, later), (3440, 1920));
}

#[test]
fn unbalanced_symbols_are_errors_at_the_wrong_disparity() {
    for index in (0..512).filter(|index| is_code(*index) && encoded(*index, 0).after() != 0) {
        assert_eq!(decoded(encoded(index, Symbol::POSITIVE).bits(), 0), None, "{index:#x}");
        assert_eq!(decoded(encoded(index, 0).bits(), 1), None, "{index:#x}");
    }
}

#[test]
fn commas_are_found_at_any_position() {
    for code in [0xBC_usize, 0xFC] {
        for (disparity, _) in DISPARITIES {
            let comma = encoded(256 + code, disparity).bits();
            for at in 0..54 {
                // Alternating bits around the comma contain none.
                let around = 0x5555_5555_5555_5555_u64 & !(SYMBOL << at);
                assert_eq!(commas(around | comma << at) & ((1 << 54) - 1), 1 << at, "{code:#x} {disparity} {at}");
            }
        }
    }
    // The other symbols with the same first seven bits, and their neighbours.
    for comma in ["0011111001", "1100000110", "0011110110", "0011111100", "1100001000"] {
        let value = (0..10).fold(0, |value, bit| value | u64::from(comma.as_bytes()[bit] == b'1') << bit);
        assert_eq!(commas(value | 0x5555_5555_5555 << 10) & 0x3FF, 0, "{comma}");
    }
}

/// Words that a lane may send.
fn any_word() -> impl Strategy<Value = Word> {
    let seq = any::<u8>().prop_map(SequenceNumber::from_bits);
    let control = prop_oneof![
        Just(ControlWord::Skip),
        Just(ControlWord::Idle),
        Just(ControlWord::Init1),
        Just(ControlWord::Init2),
        Just(ControlWord::Pad),
        Just(ControlWord::Retry),
        Just(ControlWord::AlignRedundant),
        any::<u8>().prop_map(|bits| ControlWord::Init3(Capability::from_bits(bits))),
        any::<u8>().prop_map(|reason| ControlWord::Standby { reason }),
        any::<u16>().prop_map(|lanes| ControlWord::Active { lanes }),
        (0..16_u8, 1..17_u8).prop_map(|(lane, lanes)| ControlWord::Align { lane, lanes }),
        any::<u8>().prop_map(|vc| ControlWord::StartDataFrame { vc }),
        any::<(u8, u8)>().prop_map(|(channel, kind)| ControlWord::StartBroadcastFrame { channel, kind }),
        seq.prop_flat_map(|seq| {
            prop_oneof![
                any::<u16>().prop_map(move |crc| ControlWord::EndDataFrame { seq, crc }),
                any::<u8>().prop_map(move |crc| ControlWord::EndBroadcastFrame {
                    status: Default::default(),
                    seq,
                    crc
                }),
                any::<(u8, u8)>().prop_map(move |(vc, multiplier)| ControlWord::FlowControlToken {
                    vc,
                    multiplier,
                    seq
                }),
                Just(ControlWord::StartIdleFrame { seq }),
                Just(ControlWord::Ack { seq }),
                Just(ControlWord::Nack { seq }),
                Just(ControlWord::Full { seq }),
            ]
        }),
    ];
    let end = (any::<[u8; 4]>(), 0..5_u32, any::<bool>()).prop_map(|(mut characters, len, eep)| {
        let len = len as usize;
        characters[len.min(3)..].fill(0xFB);
        if let Some(end) = characters.get_mut(len) {
            *end = if eep { 0xFE } else { 0xFD };
        }
        Word { characters, control: 0xF << len.min(3) & 0xF }
    });
    prop_oneof![4 => control.prop_map(ControlWord::emit), 4 => any::<[u8; 4]>().prop_map(Word::data), 1 => end]
}

/// Line bits of words, one bit in each element.
fn line(words: &[Word]) -> Vec<bool> {
    let mut encoder = Encoder::new();
    let words = words.iter().map(|word| encoder.encode(*word));
    words.flat_map(|line| (0..LINE_BITS).map(move |bit| line >> bit & 1 == 1)).collect()
}

/// Passes line bits to a decoder in chunks of 40; bits of an incomplete last chunk are not passed.
fn receive(decoder: &mut Decoder, line: &[bool]) -> Vec<Word> {
    let chunks = line.chunks_exact(LINE_BITS as usize);
    let chunk = |bits: &[bool]| bits.iter().rev().fold(0, |chunk, bit| chunk << 1 | u64::from(*bit));
    chunks.map(|bits| decoder.decode(chunk(bits))).collect()
}

/// Words before each test: the decoder finds their commas and becomes ready.
fn idle() -> Vec<Word> {
    [ControlWord::Idle.emit(); 4].to_vec()
}

/// Returns whether `words` ends with `end`.
fn ends_with(words: &[Word], end: &[Word]) -> bool {
    words.len() >= end.len() && words[words.len() - end.len()..] == *end
}

proptest! {
    #[test]
    fn words_are_received_at_any_offset(
        words in prop::collection::vec(any_word(), 1..40), shift in 0..40_usize, inverted: bool,
    ) {
        let mut sent = idle();
        sent.extend(&words);
        sent.extend(idle());
        let mut bits: Vec<bool> = (0..shift).map(|bit| bit & 1 == 1).collect();
        bits.extend(line(&sent).into_iter().map(|bit| bit ^ inverted));
        let mut decoder = Decoder::new();
        decoder.set_inverted(inverted);
        let received = receive(&mut decoder, &bits);
        prop_assert_eq!(decoder.sync(), SyncState::Ready);
        let first = received.iter().position(|word| *word == sent[0]).unwrap();
        prop_assert!(first <= 5, "ready after {} words", first);
        // The last two words are still in the decoder, and one may be incomplete.
        prop_assert!(ends_with(&sent[..sent.len() - 2], &received[first + 1..]) || ends_with(&sent[..sent.len() - 1], &received[first + 1..]));
        prop_assert!(received.len() - first >= words.len() + 2);
    }

    #[test]
    fn lines_are_balanced_and_have_runs_of_at_most_five(words in prop::collection::vec(any_word(), 1..200)) {
        let bits = line(&words);
        let mut balance = -1;
        for symbol in bits.chunks(10) {
            balance += symbol.iter().map(|bit| if *bit { 1 } else { -1 }).sum::<i32>();
            prop_assert!(balance == -1 || balance == 1);
        }
        prop_assert!(bits.windows(6).all(|run| run.iter().any(|bit| *bit != run[0])));
    }

    #[test]
    fn words_have_no_comma_but_in_the_first_position(words in prop::collection::vec(any_word(), 1..200)) {
        let bits = line(&words);
        for (at, window) in bits.windows(10).enumerate() {
            let value = window.iter().rev().fold(0, |value, bit| value << 1 | u64::from(*bit));
            if commas(value) & 1 == 1 {
                prop_assert_eq!(at % 40, 0);
                prop_assert!(words[at / 40].is_code(0, 0xFC) || words[at / 40].is_code(0, 0xBC));
            }
        }
    }

    #[test]
    fn any_bits_are_decoded_without_panic(chunks in prop::collection::vec(any::<u64>(), 0..200), inverted: bool) {
        let mut decoder = Decoder::new();
        decoder.set_inverted(inverted);
        for chunk in chunks {
            let word = decoder.decode(chunk);
            prop_assert!(word.control < 16);
            let known = (0..4).all(|index| is_code(key(word, index)));
            prop_assert!(word == Word::RXERR || known);
        }
    }

    #[test]
    fn any_word_can_be_encoded(characters: [u8; 4], control: u8) {
        let bits = line(&[Word { characters, control }]);
        prop_assert!(bits.windows(6).all(|run| run.iter().any(|bit| *bit != run[0])));
    }

    #[test]
    fn characters_that_do_not_exist_are_received_as_rxerr(word in any::<[u8; 4]>().prop_map(Word::comma)) {
        let comma = word.is_code(0, 0xFC) || word.is_code(0, 0xBC);
        let sent = [idle(), [word].into(), idle()].concat();
        let received = receive(&mut Decoder::new(), &line(&sent));
        let expected = if is_code(key(word, 0)) { word } else { Word::RXERR };
        // After a comma, some characters form a second one.
        prop_assert!(comma || received[4 + DECODER_LATENCY] == expected);
    }
}

#[test]
fn first_comma_and_next_word_make_the_decoder_ready() {
    let words =
        [Word::data([1; 4]), ControlWord::Idle.emit(), Word::data([2; 4]), Word::data([3; 4]), Word::data([4; 4])];
    let mut decoder = Decoder::new();
    let mut encoder = Encoder::new();
    let mut step = |word| (decoder.decode(encoder.encode(word)), decoder.sync());
    assert_eq!(step(words[0]), (Word::RXERR, SyncState::LostSync));
    assert_eq!(step(words[1]), (Word::RXERR, SyncState::LostSync));
    assert_eq!(step(words[2]), (Word::RXERR, SyncState::CheckSync));
    assert_eq!(step(words[3]), (Word::RXERR, SyncState::Ready));
    assert_eq!(step(words[4]), (words[2], SyncState::Ready));
}

#[test]
fn word_with_an_error_and_the_word_before_it_are_rxerr() {
    let words: Vec<Word> = (0..8).map(|n| Word::data([n, 21, 21, 21])).collect();
    let sent = [idle(), words.clone(), idle()].concat();
    let good = receive(&mut Decoder::new(), &line(&sent));
    assert_eq!(good[4 + DECODER_LATENCY..][..8], words);
    for bit in 0..LINE_BITS as usize {
        let mut bits = line(&sent);
        bits[(4 + 3) * 40 + bit] ^= true;
        let mut decoder = Decoder::new();
        let received = receive(&mut decoder, &bits);
        let errors: Vec<usize> = (0..8).filter(|n| received[4 + DECODER_LATENCY + n].is_rxerr()).collect();
        // The bit in word 3 is found there, or by the disparity of word 4.
        assert!([vec![2, 3], vec![3, 4], vec![2, 3, 4]].contains(&errors), "bit {bit}: {errors:?}");
        assert!((0..8).all(|n| errors.contains(&n) || received[4 + DECODER_LATENCY + n] == words[n]), "bit {bit}");
        assert_eq!(decoder.sync(), SyncState::Ready);
    }
}

#[test]
fn five_words_with_errors_in_a_row_lose_the_synchronisation() {
    for (errors, lost) in [(1, false), (4, false), (5, true)] {
        let mut decoder = Decoder::new();
        let mut encoder = Encoder::new();
        let mut step = |word| decoder.decode(encoder.encode(word));
        idle().into_iter().for_each(|word| _ = step(word));
        (0..errors).for_each(|_| _ = step(Word::RXERR));
        let received: Vec<Word> = (0..6).map(|n| step(Word::data([n; 4]))).collect();
        assert_eq!(decoder.sync(), if lost { SyncState::LostSync } else { SyncState::Ready });
        let expected = if lost { Word::RXERR } else { Word::data([3; 4]) };
        assert_eq!(received[5], expected, "{errors} errors");
        // The next comma restores it; the word with the comma is not received.
        let mut step = |word| decoder.decode(encoder.encode(word));
        step(ControlWord::Skip.emit());
        let after: Vec<Word> = (0..4).map(|n| step(Word::data([n; 4]))).collect();
        assert_eq!(after[1], if lost { Word::RXERR } else { ControlWord::Skip.emit() });
        assert_eq!(after[2..], [Word::data([0; 4]), Word::data([1; 4])]);
    }
}

#[test]
fn errors_that_are_not_in_a_row_do_not_lose_it() {
    let mut decoder = Decoder::new();
    let mut encoder = Encoder::new();
    idle().into_iter().for_each(|word| _ = decoder.decode(encoder.encode(word)));
    for _ in 0..20 {
        for word in [Word::RXERR, Word::RXERR, Word::RXERR, Word::RXERR, Word::data([7; 4])] {
            decoder.decode(encoder.encode(word));
            assert_ne!(decoder.sync(), SyncState::LostSync);
        }
    }
}

#[test]
fn lost_and_doubled_bits_are_found_at_the_next_comma() {
    let mut random = SplitMix64::new(11);
    let mut found = 0;
    for _ in 0..2000 {
        let mut data = |count: usize| -> Vec<Word> {
            (0..count).map(|_| Word::data((random.next_u64() as u32).to_le_bytes())).collect()
        };
        let (before, between, after) = (data(5), data(5), data(8));
        let sent = [idle(), before.clone(), between, idle()[..1].to_vec(), after.clone(), idle()].concat();
        let mut bits = line(&sent);
        let at = (4 + 5) * 40 + random.below(5 * 40 - 7) as usize;
        let change: i32 = [-1, 1, 2, -7][random.below(4) as usize];
        match change {
            1.. => (0..change).for_each(|_| bits.insert(at, bits[at])),
            _ => _ = bits.drain(at..at + change.unsigned_abs() as usize),
        }
        let received = receive(&mut Decoder::new(), &bits);
        // The change may form a comma that begins in the last word before it.
        assert!(received.windows(3).any(|words| words == &before[..3]), "words before the change");
        assert!(received.windows(8).any(|words| words == after), "words after the next comma, {change} bits at {at}");
        let comma = received.windows(8).position(|words| words == after).unwrap();
        found += usize::from(received[comma - 2..comma] == [Word::RXERR; 2]);
    }
    // In rare cases the change itself forms a comma, and at the new position of words.
    assert!((1990..=2000).contains(&found), "comma and the word before it are RXERR in {found} of 2000");
}

#[test]
fn first_inverted_words_show_that_the_polarity_is_inverted() {
    for (word, inverted) in
        [(ControlWord::Init1, ControlWord::InvertedInit1), (ControlWord::Init2, ControlWord::InvertedInit2)]
    {
        let bits: Vec<bool> = line(&[word.emit(); 8]).into_iter().map(|bit| !bit).collect();
        let mut decoder = Decoder::new();
        let received = receive(&mut decoder, &bits);
        assert_eq!(received[3..], [inverted.emit(); 5]);
        decoder.set_inverted(true);
        let received = receive(&mut decoder, &bits);
        assert_eq!(received[3..], [word.emit(); 5]);
        decoder.set_inverted(false);
        decoder.reset();
        assert_eq!(decoder.sync(), SyncState::LostSync);
    }
}

#[test]
fn bit_errors_seldom_pass_as_another_word() {
    // Only if the next unbalanced symbol is later than in the next word. The CRC of the frame then finds the error.
    let mut random = SplitMix64::new(5);
    let (mut wrong, mut moved) = (0, 0);
    for _ in 0..20_000 {
        let words: Vec<Word> = (0..20).map(|_| Word::data((random.next_u64() as u32).to_le_bytes())).collect();
        let mut bits = line(&[idle(), words.clone(), idle()].concat());
        bits[4 * 40 + random.below(20 * 40) as usize] ^= true;
        let received = receive(&mut Decoder::new(), &bits);
        let received = &received[4 + DECODER_LATENCY..];
        let errors = received.iter().filter(|word| word.is_rxerr()).count();
        assert!(errors > 0, "every single-bit error makes a word RXERR");
        // A false comma moves the position of words until the next comma.
        moved += usize::from(errors > 3);
        wrong += words.iter().zip(received).filter(|(word, got)| !got.is_rxerr() && got != word).count();
    }
    assert!((1..400).contains(&wrong), "{wrong} wrong words after 20,000 bit errors");
    assert!((1..1000).contains(&moved), "{moved} false commas in 20,000 bit errors");
}
