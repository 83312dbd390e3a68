//! Alignment and rows, without lines and lanes.

use super::super::align::{ACTIVE_WORDS, Aligner, Row};
use super::super::kind::Kind;
use super::super::types::MisalignmentCounters;
use super::*;
use shotline_wire::spacefibre::ControlWord;

/// Words in which an RXERR shows that the lanes are not aligned.
const SETTLE: u32 = 10;
const DATA: Word = Word::data([1, 2, 3, 4]);
const SDF: Word = Word::comma([0xFC, 0x50, 0, 0]);
const ACK: Word = Word::comma([0xFC, 0xA2, 0x01, 0xAC]);
const EDF: Word = Word::comma([0x1C, 1, 2, 3]);
const PAD: Word = Word { characters: [0xFC, 0xFB, 0xFB, 0xFB], control: 0xF };
const IDLE_FRAME: Word = Word::comma([0xFC, 0x44, 0x00, 0x44]);

fn data(first: u8) -> Word {
    Word::data([first, 0, 0, 0])
}

fn active(lanes: u16) -> Word {
    ControlWord::Active { lanes }.emit()
}

fn align(lane: usize, lanes: usize) -> Word {
    ControlWord::Align { lane: lane as u8, lanes: lanes as u8 }.emit()
}

/// A row as the data link layer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Data(Vec<Word>),
    Control(Word, bool),
    RxErr,
}

use Seen::{Control, RxErr};

/// An aligner whose lanes are all active.
struct Receiver {
    aligner: Aligner,
    lanes: usize,
}

impl Receiver {
    /// Creates one that is not ready and has sent what precedes an ALIGN.
    fn new(lanes: usize) -> Self {
        let mut aligner = Aligner::new(SETTLE);
        let all = u16::MAX >> (MAX_LANES - lanes);
        aligner.set_lanes(all, all);
        (0..ACTIVE_WORDS).for_each(|_| aligner.sent_active());
        Self { aligner, lanes }
    }

    /// Creates one that is ready at this end.
    fn near_end_ready(lanes: usize) -> Self {
        let mut receiver = Self::new(lanes);
        let all = u16::MAX >> (MAX_LANES - lanes);
        assert_eq!(receiver.same(active(all)), []);
        assert_eq!(receiver.same(active(all)), []);
        assert_eq!(receiver.aligned_row(), []);
        assert_eq!(receiver.aligner.state(), Alignment::NearEndReady);
        receiver
    }

    /// Creates one that is ready at both ends, and not new any more.
    fn ready(lanes: usize) -> Self {
        let mut receiver = Self::near_end_ready(lanes);
        assert_eq!(receiver.same(DATA), [Seen::Data(vec![DATA; lanes])]);
        assert_eq!(receiver.aligner.state(), Alignment::BothEndsReady);
        (0..SETTLE).for_each(|_| receiver.aligner.tick());
        receiver
    }

    /// Takes words of some lanes.
    fn take(&mut self, words: &[(usize, Word)]) -> Vec<Seen> {
        for (lane, word) in words {
            self.aligner.receive(*lane, Kind::of(*word), *word, false);
        }
        self.rows()
    }

    fn rows(&mut self) -> Vec<Seen> {
        let mut words = [Word::RXERR; MAX_LANES];
        let mut rows = Vec::new();
        while let Some(row) = self.aligner.next_row(&mut words) {
            rows.push(match row {
                Row::Data(len) => Seen::Data(words[..len].to_vec()),
                Row::Control { word, crc_error } => Control(word, crc_error),
                Row::RxErr => RxErr,
            });
        }
        rows
    }

    /// Takes one word of each lane.
    fn row(&mut self, words: &[Word]) -> Vec<Seen> {
        let words: Vec<_> = words.iter().copied().enumerate().collect();
        self.take(&words)
    }

    /// Takes the same word of each lane.
    fn same(&mut self, word: Word) -> Vec<Seen> {
        self.row(&vec![word; self.lanes])
    }

    /// Takes a valid ALIGN of each lane.
    fn aligned_row(&mut self) -> Vec<Seen> {
        let words: Vec<_> = (0..self.lanes).map(|lane| align(lane, self.lanes)).collect();
        self.row(&words)
    }

    fn state(&self) -> Alignment {
        self.aligner.state()
    }

    fn counters(&self) -> MisalignmentCounters {
        self.aligner.counters()
    }
}

#[test]
fn align_words_wait_for_those_of_all_lanes() {
    // With 5 words, an ALIGN would wait for the one before that of the other lane.
    for skew in 0..=4 {
        let mut receiver = Receiver::new(2);
        let words: Vec<_> = (0..40).map(|word| if word % 8 == 7 { None } else { Some(active(0b11)) }).collect();
        for time in 0..40 {
            let mut arriving = vec![(0, words[time].unwrap_or(align(0, 2)))];
            if let Some(late) = time.checked_sub(skew) {
                arriving.push((1, words[late].unwrap_or(align(1, 2))));
            }
            assert_eq!(receiver.take(&arriving), []);
        }
        assert_eq!(receiver.state() == Alignment::NearEndReady, skew <= 3, "skew {skew}");
    }
}

#[test]
fn valid_rows_are_passed_up_in_the_order_of_lanes() {
    let mut receiver = Receiver::ready(4);
    let row = [data(1), data(2), data(3), data(4)];
    assert_eq!(receiver.row(&row), [Seen::Data(row.to_vec())]);
    assert_eq!(receiver.row(&[data(1), data(2), PAD, PAD]), [Seen::Data(vec![data(1), data(2)])]);
    assert_eq!(receiver.row(&[data(1), PAD, PAD, PAD]), [Seen::Data(vec![data(1)])]);
    assert_eq!(receiver.same(PAD), []);
    assert_eq!(receiver.aligned_row(), []);
    for word in [SDF, ACK, IDLE_FRAME, EDF] {
        assert_eq!(receiver.same(word), [Control(word, false)]);
    }
    assert_eq!((receiver.state(), receiver.counters()), (Alignment::BothEndsReady, Default::default()));
}

#[test]
fn crc_errors_of_any_lane_are_errors_of_the_edf() {
    for lane in 0..3 {
        let mut receiver = Receiver::ready(3);
        for other in 0..3 {
            receiver.aligner.receive(other, Kind::EndData, EDF, other == lane);
        }
        assert_eq!(receiver.rows(), [Control(EDF, true)]);
        // The word of the lowest lane is passed up (5.6.5e), but a lane without EDF has not checked its CRC.
        let mut words = [EDF; 3];
        words[lane] = ACK;
        assert_eq!(receiver.row(&words), [Control(words[0], lane != 0)]);
        words = [ACK; 3];
        words[lane] = SDF;
        assert_eq!(receiver.row(&words), [Control(words[0], false)]);
        assert_eq!(receiver.state(), Alignment::BothEndsReady);
    }
}

#[test]
fn invalid_rows_end_the_alignment() {
    for words in [[DATA, SDF], [SDF, DATA], [PAD, EDF], [ACK, PAD]] {
        let mut receiver = Receiver::ready(2);
        assert_eq!(receiver.row(&words), [RxErr]);
        assert_eq!((receiver.state(), receiver.counters().invalid_rows), (Alignment::NotReady, 1));
        // Rows of other words than ACTIVE and ALIGN are errors until the lanes are aligned again.
        assert_eq!([receiver.same(DATA), receiver.same(SDF)], [[RxErr], [RxErr]]);
        assert_eq!([receiver.same(active(3)), receiver.row(&[active(3), align(1, 2)])].concat(), []);
    }
}

#[test]
fn rows_with_errors_are_replaced_without_ending_the_alignment() {
    for words in [[DATA, Word::RXERR], [Word::RXERR, SDF], [Word::RXERR, Word::RXERR], [PAD, Word::RXERR]] {
        let mut receiver = Receiver::ready(2);
        assert_eq!(receiver.row(&words), [RxErr]);
        assert_eq!(receiver.same(DATA), [Seen::Data(vec![DATA; 2])]);
        assert_eq!((receiver.state(), receiver.counters()), (Alignment::BothEndsReady, Default::default()));
    }
}

#[test]
fn errors_just_after_the_alignment_end_it() {
    for ticks in 0..=SETTLE {
        let mut receiver = Receiver::near_end_ready(2);
        (0..ticks).for_each(|_| receiver.aligner.tick());
        assert_eq!(receiver.row(&[SDF, Word::RXERR]), [RxErr]);
        let is_late = ticks == SETTLE;
        assert_eq!(receiver.state(), if is_late { Alignment::NearEndReady } else { Alignment::NotReady });
        assert_eq!(receiver.counters().early_rxerrs, u64::from(!is_late));
    }
}

#[test]
fn active_words_show_that_the_far_end_is_not_ready() {
    let mut receiver = Receiver::ready(2);
    assert_eq!(receiver.same(active(3)), []);
    assert_eq!(receiver.state(), Alignment::NearEndReady);
    assert_eq!(receiver.same(SDF), [Control(SDF, false)]);
    assert_eq!(receiver.state(), Alignment::NearEndReady);
    assert_eq!(receiver.same(DATA).len(), 1);
    assert_eq!(receiver.state(), Alignment::BothEndsReady);
    // A row with other words is an error, within the time after the alignment one that ends it.
    assert_eq!(receiver.row(&[active(3), DATA]), [RxErr]);
    assert_eq!((receiver.state(), receiver.counters().early_rxerrs), (Alignment::NotReady, 1));
}

#[test]
fn both_ends_must_have_the_same_active_lanes() {
    let mut receiver = Receiver::new(2);
    // One ACTIVE word is not valid, nor are two that differ.
    for words in [[active(3), active(1)], [active(1), active(3)]] {
        receiver.row(&words);
        receiver.aligned_row();
        assert_eq!(receiver.state(), Alignment::NotReady);
    }
    // Two on the same lane are.
    receiver.row(&[active(3), active(3)]);
    assert_eq!(receiver.aligned_row(), []);
    assert_eq!(receiver.state(), Alignment::NearEndReady);
    receiver.same(active(1));
    assert_eq!(receiver.state(), Alignment::NearEndReady);
    assert_eq!(receiver.same(active(1)), [RxErr]);
    assert_eq!((receiver.state(), receiver.counters().far_end_lanes), (Alignment::NotReady, 1));
    receiver.aligned_row();
    assert_eq!(receiver.state(), Alignment::NotReady);
}

#[test]
fn not_ready_lasts_until_the_far_end_could_count_active_words() {
    let mut aligner = Aligner::new(SETTLE);
    aligner.set_lanes(0b11, 0b11);
    let mut receiver = Receiver { aligner, lanes: 2 };
    receiver.same(active(3));
    receiver.same(active(3));
    receiver.aligned_row();
    for _ in 0..ACTIVE_WORDS {
        assert_eq!(receiver.state(), Alignment::NotReady);
        receiver.aligner.sent_active();
    }
    assert_eq!(receiver.state(), Alignment::NearEndReady);
}

#[test]
fn align_words_must_be_valid_for_their_lane() {
    for (words, causes) in [
        ([align(1, 2), align(0, 2)], 1),
        ([align(0, 3), align(1, 2)], 1),
        ([align(0, 2), align(1, 1)], 1),
        ([align(0, 2), Word::comma([0xFC, 0x77, 0x12, 0x12])], 0), // not correct, so any control word
    ] {
        let mut receiver = Receiver::ready(2);
        receiver.row(&words);
        assert_eq!(receiver.counters().invalid_aligns, causes, "{words:?}");
        assert_eq!(receiver.state(), Alignment::NotReady, "{words:?}");
    }
    let mut receiver = Receiver::ready(2);
    let incorrect = Word::comma([0xFC, 0x77, 0x02, 0x02]);
    assert_eq!(receiver.row(&[incorrect, incorrect]), [RxErr]);
    assert_eq!(receiver.state(), Alignment::BothEndsReady);
}

#[test]
fn align_words_of_redundant_lanes_remove_them_from_the_rows() {
    let mut receiver = Receiver::ready(3);
    let redundant = ControlWord::AlignRedundant.emit();
    assert_eq!(receiver.row(&[align(0, 3), redundant, align(2, 3)]), [RxErr]);
    (0..ACTIVE_WORDS).for_each(|_| receiver.aligner.sent_active());
    assert_eq!((receiver.aligner.receiving(), receiver.state()), (0b101, Alignment::NearEndReady));
    assert_eq!(receiver.counters().receiving_lanes, 1);
    assert_eq!(receiver.row(&[data(1), data(2), data(3)]), [Seen::Data(vec![data(1), data(3)])]);
    // A lane that is not correct stays out.
    assert_eq!(receiver.row(&[SDF, Word::comma([0xFC, 0x77, 0x02, 0x02]), SDF]), [Control(SDF, false)]);
    assert_eq!(receiver.aligner.receiving(), 0b101);
}

#[test]
fn slips_and_overflows_end_the_alignment() {
    let mut receiver = Receiver::ready(2);
    assert_eq!(receiver.row(&[align(0, 2), DATA]), [RxErr]);
    assert_eq!((receiver.state(), receiver.counters().slips), (Alignment::NotReady, 1));
    receiver = Receiver::ready(2);
    assert_eq!(receiver.take(&[(1, DATA); 4]), []);
    assert_eq!(receiver.take(&[(1, DATA)]), [RxErr]);
    assert_eq!((receiver.state(), receiver.counters().fifo_overflows), (Alignment::NotReady, 1));
}

#[test]
fn changes_of_the_active_lanes_end_the_alignment() {
    let mut receiver = Receiver::ready(3);
    receiver.take(&[(0, DATA), (1, DATA)]);
    receiver.aligner.set_lanes(0b011, 0b011);
    assert_eq!(receiver.rows(), [RxErr, RxErr]);
    assert_eq!((receiver.state(), receiver.counters().near_end_lanes), (Alignment::NotReady, 1));
    receiver.lanes = 2;
    (0..ACTIVE_WORDS).for_each(|_| receiver.aligner.sent_active());
    receiver.same(active(0b011));
    receiver.same(active(0b011));
    receiver.aligned_row();
    assert_eq!((receiver.state(), receiver.aligner.receiving()), (Alignment::NearEndReady, 0b011));
}

#[test]
fn link_reset_discards_words_and_the_alignment() {
    let mut receiver = Receiver::ready(2);
    receiver.take(&[(0, DATA), (0, DATA)]);
    receiver.aligner.reset();
    assert_eq!((receiver.rows(), receiver.state()), (vec![], Alignment::NotReady));
    (0..ACTIVE_WORDS).for_each(|_| receiver.aligner.sent_active());
    receiver.aligned_row();
    assert_eq!(receiver.state(), Alignment::NearEndReady);
}

#[test]
fn a_far_end_that_stays_not_ready_gets_active_words_again() {
    let mut receiver = Receiver::ready(2);
    let mut rows = 0;
    while receiver.state() != Alignment::NotReady {
        receiver.same(active(3));
        rows += 1;
        if rows % 7 == 0 {
            receiver.aligned_row();
        }
    }
    assert_eq!((rows, receiver.counters().far_end_stuck), (4375, 1));
}

proptest::proptest! {
    #[test]
    fn arbitrary_words_do_not_panic(words in proptest::collection::vec((0..3_usize, 0..16_u8, 0..5_u8), 0..500)) {
        let mut receiver = Receiver::ready(3);
        for (lane, choice, other) in words {
            let word = match choice {
                0 => active(7),
                1 => active(other.into()),
                2 => align(lane, 3),
                3 => align(other.into(), 3),
                4 => ControlWord::AlignRedundant.emit(),
                5 => PAD,
                6 => Word::RXERR,
                7 => EDF,
                8 => SDF,
                9 => { receiver.aligner.set_lanes(other.into(), other.into()); DATA }
                _ => DATA,
            };
            for row in receiver.take(&[(lane, word)]) {
                let is_ready = receiver.state() != Alignment::NotReady;
                proptest::prop_assert!(is_ready || row == RxErr);
                proptest::prop_assert!(!matches!(row, Seen::Data(words) if words.is_empty() || words.len() > 3));
            }
        }
    }
}
