//! Tests of a single lane, and of two that are connected word by word.

use super::*;
use proptest::prelude::*;
use shotline_random::SplitMix64;
use shotline_wire::spacefibre::SequenceNumber;

const INIT1: Word = Word::comma([0xBC, 0xCE, 0x46, 0x46]);
const INIT2: Word = Word::comma([0xBC, 0xCE, 0xA6, 0xA6]);
const INVERTED_INIT1: Word = Word::comma([0xBC, 0x31, 0xB9, 0xB9]);
const INVERTED_INIT2: Word = Word::comma([0xBC, 0x31, 0x59, 0x59]);
const IDLE: Word = Word::comma([0xFC, 0xCE, 0xCF, 0xCF]);
const SKIP: Word = Word::comma([0xFC, 0xCE, 0x7F, 0x7F]);
const DATA: Word = Word::data([1, 2, 3, 4]);

const fn init3(capability: u8) -> Word {
    Word::comma([0xBC, 0xCE, 0x38, capability])
}

const fn standby(reason: u8) -> Word {
    Word::comma([0xFC, 0xCE, 0x7E, reason])
}

const fn lost_signal(cause: u8) -> Word {
    Word::comma([0xFC, 0xCE, 0x64, cause])
}

/// A lane with LaneStart, without random words after INIT1 and INIT2.
fn started() -> Lane {
    Lane::new(LaneConfig { start: true, init_random_words: 0, ..LaneConfig::default() })
}

/// One word time for each word: returns what is passed up.
fn feed(lane: &mut Lane, words: &[Word]) -> Vec<Word> {
    let mut up = Vec::new();
    for word in words {
        up.extend(lane.receive(Some(*word)));
        lane.transmit(None);
    }
    up
}

/// Word times without a call of `receive`, until the state is reached: returns the words sent.
fn wait(lane: &mut Lane, state: State) -> Vec<Option<Word>> {
    let mut words = Vec::new();
    while lane.state() != state {
        assert!(words.len() < 10_000, "still in {:?}", lane.state());
        words.push(lane.transmit(None));
    }
    words
}

fn events(lane: &mut Lane) -> Vec<Event> {
    std::iter::from_fn(|| lane.next_event()).collect()
}

/// A lane in Active whose far end announced a capability.
fn active() -> Lane {
    let mut lane = started();
    wait(&mut lane, State::Started);
    feed(&mut lane, &[INIT1; 1023]);
    feed(&mut lane, &[INIT2; 3]);
    feed(&mut lane, &[init3(0x04); 3]);
    assert!(lane.is_active());
    events(&mut lane);
    lane
}

#[test]
fn initialisation_sends_the_words_of_the_standard() {
    let mut lane = Lane::new(LaneConfig { start: true, ..LaneConfig::default() });
    lane.set_capability(Capability::LINK_RESET.with(Capability::DATA_SCRAMBLED, true));
    let silent = wait(&mut lane, State::Started);
    assert!(silent.len() == 315 && silent.iter().all(Option::is_none), "2 us at 6.25 Gbit/s, Disabled and Wait");
    let mut step = |received| {
        lane.receive(Some(received));
        lane.transmit(None)
    };
    let sent: Vec<_> = (0..1023).map(|_| step(INIT1)).collect();
    for (index, word) in sent.iter().enumerate() {
        let expected = match index % 65 {
            0 => INIT1,
            1 => Word::data([0xFF, 0x17, 0xC0, 0x14]),
            random => Word::data(KEYSTREAM[random - 1]),
        };
        assert_eq!(*word, Some(if index == 1022 { INIT2 } else { expected }), "{index}");
    }
    assert_eq!([step(INIT2), step(INIT2)], [1, 2].map(|index| Some(Word::data(KEYSTREAM[index - 1]))));
    // LaneStart is the lane's own flag, 1 << 1.
    assert_eq!([(); 4].map(|()| step(INIT2)), [Some(init3(0x07)); 4]);
    assert_eq!([(); 3].map(|()| step(init3(0x1C))), [Some(init3(0x07)), Some(init3(0x07)), Some(IDLE)]);
    assert_eq!(lane.transmit(Some(DATA)), Some(DATA));
    assert_eq!(events(&mut lane), [Event::FarCapability(Capability::from_bits(0x1C)), Event::Active]);
}

#[test]
fn automatic_start_waits_for_a_signal() {
    let mut lane = Lane::new(LaneConfig { auto_start: true, ..LaneConfig::default() });
    for _ in 0..1000 {
        lane.receive(None);
        assert_eq!(lane.transmit(None), None);
    }
    assert_eq!(lane.state(), State::Wait);
    lane.receive(Some(DATA));
    assert_eq!(lane.state(), State::Started);
    lane.reset();
    lane.set_auto_start(false);
    wait(&mut lane, State::Disabled);
    feed(&mut lane, &[INIT1; 100]);
    assert_eq!(lane.state(), State::Disabled);
}

#[test]
fn initialisation_times_out_after_5000_words() {
    let mut lane = started();
    wait(&mut lane, State::Started);
    let words = wait(&mut lane, State::ClearLine);
    assert_eq!(words, [Some(INIT1); 5000]);
    assert_eq!((events(&mut lane), lane.counters().time_outs), (vec![Event::Cleared(Cause::TimeOut)], 1));
    // The time-out runs through all states of the initialisation.
    wait(&mut lane, State::Started);
    feed(&mut lane, &[INIT1; 1023]);
    feed(&mut lane, &[INIT2; 3]);
    assert_eq!(lane.state(), State::Connected);
    assert_eq!(wait(&mut lane, State::ClearLine).len(), 5000 - 1026);
}

#[test]
fn started_needs_1023_words_with_an_init_and_without_errors() {
    let mut lane = started();
    wait(&mut lane, State::Started);
    feed(&mut lane, &[DATA; 1200]);
    assert_eq!(lane.state(), State::Started, "no INIT word");
    feed(&mut lane, &[Word::RXERR, INIT2]);
    feed(&mut lane, &[DATA; 1021]);
    assert_eq!(lane.state(), State::Started);
    feed(&mut lane, &[Word::RXERR, INIT1]);
    feed(&mut lane, &[DATA; 1021]);
    assert_eq!(lane.state(), State::Started);
    lane.receive(Some(DATA));
    assert_eq!(lane.state(), State::Connecting);
}

#[test]
fn inverted_words_invert_the_receiver_until_the_line_is_cleared() {
    for inverted in [INVERTED_INIT1, INVERTED_INIT2] {
        let mut lane = started();
        wait(&mut lane, State::Started);
        feed(&mut lane, &[inverted, DATA, inverted, Word::RXERR, inverted, inverted, DATA]);
        assert_eq!((lane.state(), lane.invert_rx()), (State::Started, false), "interrupted by an RXERR");
        feed(&mut lane, &[inverted]);
        assert_eq!((lane.state(), lane.invert_rx()), (State::InvertRxPolarity, true));
        feed(&mut lane, &[inverted; 10]);
        assert_eq!((lane.state(), lane.counters().inverted), (State::InvertRxPolarity, 1));
        feed(&mut lane, &[INIT1; 1023]);
        assert_eq!((lane.state(), lane.invert_rx()), (State::Connecting, true));
        lane.receive(None);
        assert_eq!((lane.state(), lane.invert_rx()), (State::ClearLine, false));
        assert_eq!(events(&mut lane), [Event::Cleared(Cause::NoSignal)]);
    }
}

#[test]
fn init3_words_must_be_equal_and_without_errors() {
    let mut lane = started();
    wait(&mut lane, State::Started);
    feed(&mut lane, &[INIT1; 1023]);
    feed(&mut lane, &[INIT2, INIT2, Word::RXERR, INIT2, INIT2]);
    assert_eq!(lane.state(), State::Connecting);
    feed(&mut lane, &[init3(1), init3(1), init3(0), init3(0), Word::RXERR, init3(0), init3(0)]);
    assert_eq!(lane.state(), State::Connecting);
    lane.receive(Some(init3(0)));
    assert_eq!((lane.state(), events(&mut lane)), (State::Connected, vec![]));
    // Three have been received; three must be sent.
    assert_eq!([(); 3].map(|()| lane.transmit(None)), [Some(init3(0x02)); 3]);
    assert_eq!((lane.state(), events(&mut lane).len()), (State::Active, 2));
}

#[test]
fn commas_in_connected_clear_the_line() {
    for comma in [IDLE, SKIP, Word::comma([0xFC, 0x50, 0, 0]), ControlWord::Pad.emit()] {
        let mut lane = started();
        wait(&mut lane, State::Started);
        feed(&mut lane, &[INIT1; 1023]);
        feed(&mut lane, &[INIT2, INIT2, INIT2, DATA]);
        assert_eq!(lane.state(), State::Connected);
        lane.receive(Some(comma));
        assert_eq!((lane.state(), events(&mut lane)), (State::ClearLine, vec![Event::Cleared(Cause::Comma)]));
    }
}

#[test]
fn active_passes_up_all_words_but_those_of_the_lane() {
    let mut lane = active();
    let seq = SequenceNumber::from_bits(1);
    let passed = [
        DATA,
        Word { characters: [0xFD, 0xFB, 0xFB, 0xFB], control: 0xF },
        ControlWord::Active { lanes: 3 }.emit(),
        ControlWord::Align { lane: 1, lanes: 2 }.emit(),
        ControlWord::Pad.emit(),
        ControlWord::Ack { seq }.emit(),
        Word::comma([0xFC, 0xA2, 0x00, 0x00]), // wrong CRC
        Word::RXERR,
        Word::comma([0x1C, 0, 0, 0]),
    ];
    assert_eq!(feed(&mut lane, &passed), passed);
    assert_eq!(feed(&mut lane, &[IDLE, SKIP, INIT2, init3(0), INVERTED_INIT1, INVERTED_INIT2]), []);
    assert_eq!(feed(&mut lane, &[standby(1), lost_signal(1)]), [Word::RXERR; 2]);
    assert_eq!((lane.state(), lane.rxerr_counter(), lane.counters().rxerr_words), (State::Active, 1, 1));
    assert_eq!(feed(&mut lane, &[INIT1, DATA, DATA]), [Word::RXERR]);
}

#[test]
fn leaving_active_passes_up_one_rxerr() {
    type Leave = fn(&mut Lane);
    let leave: [(Leave, Cause, State); 6] = [
        (Lane::reset, Cause::Reset, State::ClearLine),
        (|lane| _ = lane.receive(None), Cause::NoSignal, State::LossOfSignal),
        (|lane| _ = lane.receive(Some(INIT1)), Cause::Init1, State::LossOfSignal),
        (|lane| lane.set_start(false), Cause::Stopped, State::PrepareStandby),
        (|lane| _ = feed(lane, &[lost_signal(2); 3]), Cause::FarLostSignal(LostSignalCause::Init1), State::ClearLine),
        (|lane| _ = feed(lane, &[standby(7); 3]), Cause::FarStandby(7), State::ClearLine),
    ];
    for (leave, cause, state) in leave {
        let mut lane = active();
        let mut up = Vec::new();
        leave(&mut lane);
        lane.transmit(None);
        up.extend(lane.receive(Some(DATA)));
        up.extend(lane.receive(Some(DATA)));
        assert_eq!((lane.state(), events(&mut lane)), (state, vec![Event::Inactive(cause)]));
        assert!(up.len() <= 1 && up.iter().all(|word| word.is_rxerr()), "{cause:?}: {up:?}");
    }
    let mut lane = active();
    assert_eq!(lane.receive(None), Some(Word::RXERR));
    assert_eq!(lane.receive(None), None);
    lane = active();
    lane.reset();
    assert_eq!((lane.receive(Some(DATA)), lane.receive(Some(DATA))), (Some(Word::RXERR), None));
}

#[test]
fn exits_of_active_have_the_order_of_the_standard() {
    // Each condition holds together with all later ones.
    let mut lane = active();
    feed(&mut lane, &[Word::RXERR; 254]);
    lane.set_start(false);
    lane.receive(None);
    assert_eq!(events(&mut lane), [Event::Inactive(Cause::NoSignal)]);
    lane = active();
    feed(&mut lane, &[Word::RXERR; 254]);
    lane.set_start(false);
    lane.receive(Some(Word::RXERR));
    assert_eq!(events(&mut lane), [Event::Inactive(Cause::RxErrOverflow)]);
    lane = active();
    lane.set_start(false);
    lane.receive(Some(INIT1));
    assert_eq!(events(&mut lane), [Event::Inactive(Cause::Init1)]);
    lane = active();
    feed(&mut lane, &[lost_signal(0); 2]);
    lane.set_start(false);
    lane.receive(Some(lost_signal(0)));
    assert_eq!(events(&mut lane), [Event::Inactive(Cause::Stopped)]);
}

#[test]
fn lanes_say_why_they_stop_in_32_words() {
    let mut lane = active();
    lane.receive(None);
    assert_eq!(wait(&mut lane, State::ClearLine), [Some(lost_signal(0)); 32]);
    lane = active();
    feed(&mut lane, &[Word::RXERR; 254]);
    lane.receive(Some(Word::RXERR));
    assert_eq!(wait(&mut lane, State::ClearLine), [Some(lost_signal(1)); 32]);
    assert_eq!(lane.rxerr_counter(), 255, "until the lane is initialised again");
    lane = active();
    lane.receive(Some(INIT1));
    assert_eq!(wait(&mut lane, State::ClearLine), [Some(lost_signal(2)); 32]);
    lane = Lane { config: LaneConfig { standby_reason: 0x5A, ..lane.config }, ..active() };
    lane.set_start(false);
    assert_eq!(lane.transmit(Some(DATA)), Some(DATA));
    assert_eq!(wait(&mut lane, State::ClearLine), [Some(standby(0x5A)); 32]);
    assert_eq!(wait(&mut lane, State::Disabled), [None; 313]);
}

#[test]
fn far_end_stops_are_three_words_in_sequence() {
    let mut lane = active();
    let interrupted =
        [lost_signal(0), lost_signal(0), DATA, lost_signal(0), standby(0), standby(0), lost_signal(0), IDLE];
    feed(&mut lane, &interrupted);
    feed(&mut lane, &[lost_signal(0), Word::RXERR, lost_signal(0), lost_signal(0)]);
    assert!(lane.is_active());
    feed(&mut lane, &[SKIP, lost_signal(1)]);
    let cause = Cause::FarLostSignal(LostSignalCause::ReceiveErrors);
    assert_eq!((lane.state(), events(&mut lane)), (State::ClearLine, vec![Event::Inactive(cause)]));
    wait(&mut lane, State::Started);
    feed(&mut lane, &[standby(3); 3]);
    assert_eq!((lane.state(), events(&mut lane)), (State::ClearLine, vec![Event::Cleared(Cause::FarStandby(3))]));
}

#[test]
fn rxerr_counter_leaks_and_is_cleared_in_connected() {
    let mut lane = active();
    for _ in 0..10 {
        feed(&mut lane, &[Word::RXERR; 25]);
        feed(&mut lane, &[DATA; 16384 - 25]);
    }
    assert_eq!((lane.rxerr_counter(), lane.counters().rxerr_words), (240, 250));
    feed(&mut lane, &[DATA; 16384]);
    assert_eq!(lane.rxerr_counter(), 239);
    feed(&mut lane, &[Word::RXERR; 15]);
    assert!(lane.is_active());
    lane.receive(Some(Word::RXERR));
    assert_eq!((lane.state(), lane.rxerr_counter()), (State::LossOfSignal, 255));
    wait(&mut lane, State::Started);
    assert_eq!(lane.rxerr_counter(), 255);
    feed(&mut lane, &[INIT1; 1023]);
    feed(&mut lane, &[INIT2; 3]);
    assert_eq!((lane.state(), lane.rxerr_counter()), (State::Connected, 0));
}

#[test]
fn lanes_that_send_only_need_the_far_end_to_be_active() {
    let mut lane = started();
    lane.set_tx_only(true);
    wait(&mut lane, State::Started);
    for _ in 0..100 {
        assert_eq!((lane.receive(Some(INVERTED_INIT1)), lane.transmit(None)), (None, Some(INIT1)));
        assert!(!lane.receives());
    }
    assert_eq!(lane.state(), State::Started);
    lane.set_far_end_active(true);
    let sent: Vec<_> = (0..4).map(|_| lane.transmit(None)).collect();
    assert_eq!(sent, [INIT1, INIT2, init3(0x02), IDLE].map(Some));
    assert_eq!((lane.receive(None), lane.receive(Some(INIT1))), (None, None));
    assert!(lane.is_active());
    assert_eq!(lane.transmit(Some(DATA)), Some(DATA));
    lane.reset();
    assert_eq!(lane.receive(None), None, "no RXERR without a receiver");
}

#[test]
fn lanes_that_receive_only_ignore_initialisation_once_active() {
    let mut lane = started();
    lane.set_rx_only(true);
    wait(&mut lane, State::Started);
    for word in [INIT1; 1023] {
        assert_eq!((lane.receive(Some(word)), lane.transmit(None)), (None, None));
    }
    lane.receive(Some(INIT1));
    assert!(lane.is_active());
    assert_eq!(feed(&mut lane, &[INIT1, INIT2, init3(0), DATA]), [Word::RXERR, DATA]);
    lane.receive(None);
    assert_eq!((lane.state(), lane.transmit(None)), (State::LossOfSignal, None));
}

#[test]
fn held_lanes_stay_in_clear_line() {
    let mut lane = active();
    lane.hold_reset(true);
    for _ in 0..1000 {
        lane.receive(Some(INIT1));
        assert_eq!((lane.transmit(None), lane.state()), (None, State::ClearLine));
    }
    lane.hold_reset(false);
    assert_eq!(wait(&mut lane, State::Disabled).len(), 1);
    lane.reset();
    wait(&mut lane, State::Started);
    lane.reset();
    assert_eq!((lane.state(), lane.counters().resets), (State::ClearLine, 3));
}

/// Connects two lanes by lines that delay, lose and damage words.
struct Line {
    words: std::collections::VecDeque<Option<Word>>,
}

impl Line {
    fn new(delay: usize) -> Self {
        Self { words: vec![None; delay].into() }
    }

    fn transfer(&mut self, from: &mut Lane, to: &mut Lane, mut damage: impl FnMut() -> bool) -> Option<Word> {
        self.words.push_back(from.transmit(None));
        let word = self.words.pop_front().flatten();
        to.receive(word.map(|word| if damage() { Word::RXERR } else { word }))
    }
}

#[test]
fn lanes_become_active_whatever_the_order_of_their_starts() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let mut new = || {
            let clear_line_words = random.between(1, 400) as u32;
            Lane::new(LaneConfig {
                clear_line_words,
                init_random_words: random.below(65) as u8,
                ..LaneConfig::default()
            })
        };
        let (mut near, mut far) = (new(), new());
        far.set_auto_start(random.chance(0.5));
        far.set_start(!far.config.auto_start);
        let [near_start, far_reset] = [random.below(12_000), random.between(12_000, 20_000)];
        let (mut there, mut back) = (Line::new(random.below(40) as usize), Line::new(random.below(40) as usize));
        let error_rate = random.choose(&[0.0, 0.0, 1e-4, 1e-3]);
        let mut active_since = None;
        for word in 0..60_000 {
            match word {
                _ if word == near_start => near.set_start(true),
                _ if word == far_reset => far.reset(),
                _ => {}
            }
            there.transfer(&mut near, &mut far, || random.chance(error_rate));
            back.transfer(&mut far, &mut near, || random.chance(error_rate));
            let both = near.is_active() && far.is_active();
            active_since = if both { active_since.or(Some(word)) } else { None };
            events(&mut near);
            events(&mut far);
        }
        assert!(active_since.is_some_and(|word| word > far_reset), "seed {seed}: {:?} {:?}", near.state(), far.state());
        assert_eq!(near.far_capability().contains(Capability::LANE_START), far.config.start);
        assert_eq!((near.counters().events_lost, far.counters().events_lost), (0, 0));
    }
}

#[test]
fn standby_stops_both_ends_and_one_starts_both() {
    let mut near = Lane::new(LaneConfig { start: true, standby_reason: 9, ..LaneConfig::default() });
    let mut far = Lane::new(LaneConfig { auto_start: true, ..LaneConfig::default() });
    let (mut there, mut back) = (Line::new(5), Line::new(5));
    let mut run = |near: &mut Lane, far: &mut Lane, words| {
        for _ in 0..words {
            there.transfer(near, far, || false);
            back.transfer(far, near, || false);
        }
        (near.state(), far.state())
    };
    assert_eq!(run(&mut near, &mut far, 10_000), (State::Active, State::Active));
    near.set_start(false);
    assert_eq!(run(&mut near, &mut far, 10_000), (State::Disabled, State::Wait));
    assert!(events(&mut far).contains(&Event::Inactive(Cause::FarStandby(9))));
    near.set_start(true);
    assert_eq!(run(&mut near, &mut far, 10_000), (State::Active, State::Active));
}

proptest! {
    #[test]
    fn arbitrary_words_neither_panic_nor_reach_the_line(
        words in prop::collection::vec((prop::option::weighted(0.98, (any::<[u8; 4]>(), 0..16_u8)), 0..24_u8), 0..2000),
        prepared in 0..3,
    ) {
        let mut lane = if prepared == 0 { started() } else { active() };
        let known = [INIT1, INIT2, INVERTED_INIT1, init3(1), IDLE, SKIP, standby(1), lost_signal(3), Word::RXERR];
        for (word, choice) in words {
            let word = word.map(|(characters, control)| {
                known.get(usize::from(choice)).copied().unwrap_or(Word { characters, control })
            });
            let was_active = lane.is_active();
            let up = lane.receive(word);
            prop_assert!(was_active || up.is_none_or(Word::is_rxerr));
            let sent = lane.transmit(None);
            prop_assert!(sent.is_none_or(|word| !word.is_rxerr() && word.characters[1] != 0x31));
            prop_assert_eq!(lane.is_steady, lane.is_active());
        }
    }
}
