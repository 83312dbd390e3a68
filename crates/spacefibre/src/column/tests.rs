use super::*;
use proptest::prelude::*;
use shotline_random::SplitMix64;
use shotline_wire::spacefibre::Scrambler;
use shotline_wire::spacefibre::character::{EOP, FILL};

/// What is done with the words of a frame.
#[derive(Clone, Copy, Debug)]
enum Step {
    Scramble,
    Descramble,
    Checksum,
}

const STEPS: [Step; 3] = [Step::Scramble, Step::Descramble, Step::Checksum];

fn pass(step: Step, columns: &mut Columns, data: &mut [u8]) {
    let from = data.to_vec();
    match step {
        Step::Scramble => columns.scramble(&from, data),
        Step::Descramble => columns.descramble(data),
        Step::Checksum => columns.checksum(data),
    }
}

/// CRC bit by bit, as the shift register of figure 5-45.
fn serial(state: u16, bytes: &[u8]) -> u16 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| u16::from(byte >> bit & 1)));
    bits.fold(state, |state, bit| if (state ^ bit) & 1 == 1 { state >> 1 ^ 0x8408 } else { state >> 1 })
}

/// The scrambler and the CRC of each lane on their own, word by word.
struct Reference {
    lanes: Vec<(Scrambler, u16)>,
    words: usize,
}

impl Reference {
    fn new(vc: u8, lanes: usize) -> Self {
        let lane = (Scrambler::new(), serial(0xFFFF, &[0xFC, 0x50, vc, 0]));
        Self { lanes: vec![lane; lanes], words: 0 }
    }

    fn pass(&mut self, step: Step, word: Word) -> Word {
        let lanes = self.lanes.len();
        let (scrambler, state) = &mut self.lanes[self.words % lanes];
        self.words += 1;
        let changed = scrambler.scramble(word);
        let (result, covered) = match step {
            Step::Scramble => (changed, changed),
            Step::Descramble => (changed, word),
            Step::Checksum => (word, word),
        };
        *state = serial(*state, &covered.characters);
        result
    }

    fn crcs(&self, seq: u8) -> Vec<u16> {
        self.lanes.iter().map(|(_, state)| serial(*state, &[0x1C, seq])).collect()
    }
}

fn crcs(columns: &Columns, seq: u8) -> Vec<u16> {
    (0..columns.lanes).map(|lane| columns.crc(lane, SequenceNumber::from_bits(seq))).collect()
}

fn random_bytes(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    SplitMix64::new(seed).fill_bytes(&mut data);
    data
}

#[test]
fn one_lane_has_the_words_and_crcs_of_the_standard() {
    for form in Form::available() {
        // Figure 5-42, with the CRC of such a frame of virtual channel 1.
        let mut columns = Columns::with_form(form, 1, 1);
        let mut data = [0; 8];
        columns.scramble(&[0, 1, 2, 3, 4, 5, 6, 7], &mut data);
        assert_eq!(data, [0xFF, 0x16, 0xC2, 0x17, 0xB6, 0xE2, 0x04, 0x85], "{form:?}");
        assert_eq!(crcs(&columns, 1), [0x6131], "{form:?}");
        let end = Word { characters: [8, EOP, FILL, FILL], control: 0b1110 };
        let sent = Word { characters: [0x7A, EOP, FILL, FILL], control: 0b1110 };
        assert_eq!(columns.clone().scramble_word(end), sent, "{form:?}");
        assert_eq!(columns.descramble_word(sent), end, "{form:?}");

        let mut columns = Columns::with_form(form, 1, 1);
        columns.descramble(&mut data);
        assert_eq!((data, crcs(&columns, 1)), ([0, 1, 2, 3, 4, 5, 6, 7], vec![0x6131]), "{form:?}");

        // Without scrambling; the second is figure 5-44.
        for (vc, bytes, seq, crc) in [
            (1, [0, 1, 2, 3, 4, 5, 6, 7].as_slice(), 0x01, 0x7261),
            (2, [0, 0, 0, 0, EOP, FILL, FILL, FILL].as_slice(), 0x41, 0x978A),
            (1, [0, EOP, FILL, FILL].as_slice(), 0x7D, 0x353D),
            (1, [0, 1, 2, EOP].as_slice(), 0x7E, 0xB7A1),
        ] {
            let mut columns = Columns::with_form(form, vc, 1);
            columns.checksum(bytes);
            assert_eq!(crcs(&columns, seq), [crc], "{form:?}, {bytes:X?}");
        }
    }
}

#[test]
fn each_lane_has_the_words_and_crc_of_a_link_of_its_own() {
    // Two lanes: 00..03 and 08..0B on lane 0, 04..07 and 0C..0F on lane 1.
    let lanes = [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]];
    let expected = lanes.map(|mut words| {
        let mut columns = Columns::new(31, 1);
        columns.scramble(&words.clone(), &mut words);
        (words, columns.crc(0, SequenceNumber::from_bits(0x85)))
    });
    for form in Form::available() {
        let mut data: [u8; 16] = std::array::from_fn(|index| index as u8);
        let mut columns = Columns::with_form(form, 31, 2);
        columns.scramble(&data.clone(), &mut data);
        let [[a, b], [c, d]] = expected
            .map(|(words, _)| [[words[0], words[1], words[2], words[3]], [words[4], words[5], words[6], words[7]]]);
        assert_eq!(data.as_slice(), [a, c, b, d].concat(), "{form:?}");
        assert_eq!(crcs(&columns, 0x85), expected.map(|(_, crc)| crc), "{form:?}");
    }
}

#[test]
fn every_length_on_every_number_of_lanes_is_right() {
    for lanes in 1..=MAX_LANES {
        let bytes = random_bytes(lanes as u64, MAX_ROWS * lanes * 4);
        for step in STEPS {
            let (mut reference, mut expected) = (Reference::new(lanes as u8, lanes), Vec::new());
            for words in 0..=MAX_ROWS * lanes {
                for form in Form::available() {
                    let mut data = bytes.clone();
                    let mut columns = Columns::with_form(form, lanes as u8, lanes);
                    pass(step, &mut columns, &mut data[..words * 4]);
                    assert_eq!(crcs(&columns, 9), reference.crcs(9), "{step:?} {form:?}, {words} words, {lanes} lanes");
                    assert!(data[..words * 4] == expected, "{step:?} {form:?}, {words} words, {lanes} lanes");
                    assert!(data[words * 4..] == bytes[words * 4..], "{form:?} changed bytes after {words} words");
                }
                if let Some(word) = bytes.as_chunks().0.get(words) {
                    expected.extend(reference.pass(step, Word::data(*word)).characters);
                }
            }
        }
    }
}

/// Kernels at each place in a frame, with states that no start of a frame has, and bytes of any alignment around.
#[test]
fn kernels_agree_on_rows_at_any_place() {
    let mut random = SplitMix64::new(1);
    for lanes in 1..=MAX_LANES as u8 {
        for first in 0..MAX_ROWS as u8 {
            let count = 1 + random.below(MAX_ROWS as u64 - u64::from(first)) as u8;
            let rows = Rows { first, count, lanes };
            let shift = random.below(64) as usize;
            let bytes = random_bytes(random.next_u64(), 192 + usize::from(count) * usize::from(lanes) * 4);
            let states: States = std::array::from_fn(|_| random.next_u64() as u16);
            for step in STEPS {
                let results = Form::available().map(|form| {
                    let (mut bytes, mut states) = (bytes.clone(), states);
                    let words = bytes[64 + shift..][..usize::from(count) * usize::from(lanes) * 4].as_chunks_mut().0;
                    let from = words.to_vec();
                    match step {
                        Step::Scramble => (form.scramble)(&from, words, rows, &mut states),
                        Step::Descramble => (form.descramble)(words, rows, &mut states),
                        Step::Checksum => (form.checksum)(words, rows, &mut states),
                    }
                    (form, bytes, states)
                });
                let results: Vec<_> = results.collect();
                let (plain, expected, crcs) = results.last().unwrap();
                for (form, bytes, states) in &results {
                    let what = format!("{step:?} {form:?} {plain:?}, {lanes} lanes, {count} rows from {first}");
                    assert!(bytes == expected, "{what}");
                    assert_eq!(states, crcs, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_copy_gives_the_crc_for_another_sequence_number() {
    let mut columns = Columns::new(0, 4);
    columns.scramble(&random_bytes(2, 1024), &mut [0; 1024]);
    let again = columns;
    assert_eq!(crcs(&again, 3), crcs(&columns, 3));
    assert_ne!(crcs(&again, 0x84), crcs(&columns, 3));
}

#[test]
fn forms_have_names_and_end_with_plain_rust() {
    let names: Vec<_> = Form::available().map(Form::name).collect();
    assert_eq!(names.last(), Some(&"plain"));
    assert_eq!(Form::fastest().name(), names[0]);
    assert_eq!(format!("{:?}", Form::fastest()), names[0]);
}

#[test]
#[should_panic(expected = "a frame has at most 64 rows of 3 words, found 193 words")]
fn a_frame_of_more_than_64_rows_is_refused() {
    let mut columns = Columns::new(0, 3);
    columns.checksum(&[0; 64 * 3 * 4]);
    columns.scramble_word(Word::data([0; 4]));
}

#[test]
#[should_panic(expected = "data words have 4 bytes, found 3 more")]
fn a_part_of_a_word_is_refused() {
    Columns::new(0, 1).scramble(&[0; 7], &mut [0; 7]);
}

#[test]
#[should_panic(expected = "a link has 1 to 16 lanes, found 17")]
fn more_than_16_lanes_are_refused() {
    Columns::new(0, 17);
}

#[test]
#[should_panic(expected = "virtual channels are 0 to 31, found 32")]
fn more_than_32_channels_are_refused() {
    Columns::new(32, 1);
}

proptest! {
    /// Frames with words that end packets, passed in any pieces, are restored by the receiver, whose CRCs are equal.
    #[test]
    fn pieces_and_single_words_make_the_same_frame(
        lanes in 1..=MAX_LANES,
        vc in 0..32_u8,
        pieces in prop::collection::vec((0..100_usize, any::<u8>()), 0..40),
        seed: u64,
    ) {
        for form in Form::available() {
            let mut random = SplitMix64::new(seed);
            let (mut sender, mut receiver) = (Columns::with_form(form, vc, lanes), Columns::with_form(form, vc, lanes));
            let mut reference = Reference::new(vc, lanes);
            for (words, control) in &pieces {
                if reference.words + words + 1 > MAX_ROWS * lanes {
                    break;
                }
                let data = random_bytes(random.next_u64(), words * 4);
                let expected = data.as_chunks().0.iter().map(|word| reference.pass(Step::Scramble, Word::data(*word)));
                let expected: Vec<u8> = expected.flat_map(|word| word.characters).collect();
                let mut sent = data.clone();
                sender.scramble(&data, &mut sent);
                prop_assert_eq!(&sent, &expected);
                receiver.descramble(&mut sent);
                prop_assert_eq!(&sent, &data);

                let word = Word { characters: (random.next_u64() as u32).to_le_bytes(), control: control & 0xF };
                let sent = sender.scramble_word(word);
                prop_assert_eq!(sent, reference.pass(Step::Scramble, word));
                prop_assert_eq!(receiver.descramble_word(sent), word);
            }
            prop_assert_eq!(crcs(&sender, vc), reference.crcs(vc));
            prop_assert_eq!(crcs(&receiver, vc), reference.crcs(vc));
        }
    }
}
