//! Links over lines without errors, except where a test makes some.

use super::*;
use crate::lane::{Cause, Event, State};
use shotline_wire::spacefibre::{Capability, ControlWord, LostSignalCause};

const SKIP: Word = Word::comma([0xFC, 0xCE, 0x7F, 0x7F]);
const IDLE: Word = Word::comma([0xFC, 0xCE, 0xCF, 0xCF]);

/// Runs until an end has this alignment.
#[track_caller]
fn run_until(link: &mut Link, end: usize, alignment: Alignment) {
    let limit = link.words + 40_000;
    while link.ends[end].layer.alignment() != alignment {
        assert!(link.words < limit, "{}", link.status());
        link.step();
    }
}

/// Runs word times without SKIP, and returns what each of the first two lanes of end 0 sends.
fn sent(link: &mut Link, words: usize) -> [Vec<Option<Word>>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    while sent[0].len() < words {
        link.step();
        let words = link.ends[0].sent;
        if words[0] != Some(SKIP) {
            sent[0].push(words[0]);
            sent[1].push(words[1]);
        }
    }
    sent
}

#[test]
fn rows_arrive_on_every_number_of_lanes() {
    for lanes in 1..=MAX_LANES {
        let mut link = Link::started(lanes);
        let all = u16::MAX >> (MAX_LANES - lanes);
        link.run_until_ready([all; 2]);
        link.run_without_errors(5_000);
        for end in &link.ends {
            assert_eq!(end.layer.is_bypass(), lanes == 1);
            assert_eq!((end.layer.data_receiving_lanes(), end.layer.data_lanes()), (all, lanes));
            let widest = end.sink.widths.iter().rposition(|rows| *rows > 0);
            assert_eq!(widest, Some(lanes), "{:?}", end.sink.widths);
        }
    }
}

#[test]
fn alignment_sends_the_words_of_the_standard() {
    let mut link = Link::started(2);
    link.ends.iter_mut().for_each(|end| end.source.is_silent = true);
    // Lanes with this skew cannot be aligned.
    link.ends.iter_mut().for_each(|end| end.lines[1].words.extend([None; 4]));
    link.run(5_000);
    let active = |lanes| Some(Word::comma([0xFC, 0x20, lanes, 0x00]));
    let align = |lane, inverse| Some(Word::comma([0xFC, 0x77, lane, inverse]));
    // Not Ready: 7 ACTIVE and 1 ALIGN.
    let mut group = sent(&mut link, 16);
    let first = group[0].iter().position(|word| *word != active(3)).unwrap();
    group.iter_mut().for_each(|words| words.rotate_left(first + 1));
    let expected = |last| [&[active(3); 7][..], &[last], &[active(3); 7], &[last]].concat();
    assert_eq!(group, [expected(align(0x02, 0xFD)), expected(align(0x12, 0xED))]);
    // Near-End Ready: 7 rows, here of IDLE, and 1 ALIGN.
    link.ends.iter_mut().for_each(|end| drop(end.lines[1].words.drain(..4)));
    run_until(&mut link, 0, Alignment::NearEndReady);
    link.run(100);
    let idle = sent(&mut link, 800);
    for (lane, align) in [(0, align(0x02, 0xFD)), (1, align(0x12, 0xED))] {
        let first = idle[lane].iter().position(|word| *word == align).unwrap();
        for (index, word) in idle[lane].iter().enumerate() {
            assert_eq!(*word, if (index + 8 - first) % 8 == 0 { align } else { Some(IDLE) }, "{index}");
        }
    }
    // Both-Ends Ready: rows only.
    link.ends.iter_mut().for_each(|end| end.source.is_silent = false);
    link.run_until_ready([0b11; 2]);
    let rows = sent(&mut link, 2000);
    let is_own = |word: &Option<Word>| word.is_some_and(|word| word.characters[..2] == [0xFC, 0x77]);
    assert!(!rows.iter().flatten().any(is_own));
    link.run_without_errors(1000);
}

#[test]
fn short_rows_end_with_pad_before_the_edf() {
    let mut link = Link::started(2);
    link.run_until_ready([0b11; 2]);
    let rows = sent(&mut link, 5000);
    let pads: Vec<_> = (0..5000).filter(|row| rows[1][*row] == Some(ControlWord::Pad.emit())).collect();
    assert!(pads.len() > 10, "{pads:?}");
    for row in pads {
        assert!(rows[0][row].is_some_and(Word::is_data));
        let mut next = rows[0][row + 1..].iter().flatten().filter(|word| !word.is_data());
        assert!(next.next().is_some_and(|word| {
            [0x1C, 0x5D, 0x7C].contains(&word.characters[usize::from(word.characters[0] == 0xFC)])
        }));
    }
}

#[test]
fn skip_is_sent_on_all_lanes_at_once() {
    let mut link = Link::new([MultiLaneConfig { skip_interval_words: 5000, ..config(3) }; 2], |_| 3);
    link.start();
    link.run_until_ready([0b111; 2]);
    let mut skips = Vec::new();
    for _ in 0..20_000 {
        link.step();
        let is_skip = link.ends[0].sent.map(|word| word == Some(SKIP));
        assert!(is_skip[..3] == [is_skip[0]; 3]);
        if is_skip[0] {
            skips.push(link.words);
        }
    }
    assert_eq!(skips.len(), 4);
    assert!(skips.windows(2).all(|pair| pair[1] - pair[0] == 5000), "{skips:?}");
    assert_eq!(link.ends[1].sink.errors, link.ends[1].layer.counters().rxerr_rows);
}

#[test]
fn skew_of_up_to_three_words_is_tolerated() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let lanes = random.between(2, 16) as usize;
        let mut link = Link::new([config(lanes); 2], |lane| (mix(seed, lane) % 4) as usize);
        link.start();
        link.run_until_ready([u16::MAX >> (MAX_LANES - lanes); 2]);
        link.run_without_errors(2_000);
    }
    let mut link = Link::new([config(3); 2], |lane| [0, 4, 2][lane]);
    link.start();
    link.run(20_000);
    assert_eq!(link.ends[0].layer.alignment(), Alignment::NotReady);
    assert_eq!(link.ends[0].layer.active_lanes(), 0b111);
}

fn mix(seed: u64, lane: usize) -> u64 {
    shotline_random::mix(seed << 8 | lane as u64)
}

#[test]
fn inverted_lanes_and_scrambled_frames_are_restored() {
    for seed in 0..10 {
        let mut link = Link::started(4);
        for (end, shift) in [(0, 0), (1, 4)] {
            for lane in 0..4 {
                link.ends[end].lines[lane].is_inverted = seed >> (lane + shift) & 1 == 1 || seed == 9;
            }
            let is_scrambled = seed >> end & 1 == 1;
            link.ends[end]
                .layer
                .set_capability(Capability::DATA_SCRAMBLED.with(Capability::DATA_SCRAMBLED, is_scrambled));
        }
        link.run_until_ready([0b1111; 2]);
        link.run_without_errors(2_000);
        let inverted = (0..4).map(|lane| link.ends[1].layer.lane(lane).invert_rx());
        assert!(inverted.eq(link.ends[0].lines.iter().map(|line| line.is_inverted)));
    }
}

#[test]
fn capabilities_arrive_once_per_initialisation() {
    let mut link = Link::started(2);
    link.ends[1].layer.set_capability(Capability::LINK_RESET);
    link.run_until_ready([0b11; 2]);
    link.run(2_000);
    let capabilities = |events: &[MultiLaneEvent]| -> Vec<_> {
        let values = events.iter().filter_map(|event| match event {
            MultiLaneEvent::FarCapability { lane, capability, no_lane_active } => {
                Some((*lane, *capability, *no_lane_active))
            }
            MultiLaneEvent::Lane { .. } => None,
        });
        values.collect()
    };
    // LINK_RESET, LANE_START and MULTI_LANE.
    let capability = Capability::from_bits(0b0000_1011);
    assert_eq!(capabilities(&link.ends[0].events), [(0, capability, true), (1, capability, true)]);
    link.ends[0].events.clear();
    link.ends[1].layer.set_capability(Capability::default());
    link.ends[1].layer.reset_lane(1);
    link.run_until_ready([0b01; 2]);
    link.run_until_ready([0b11; 2]);
    assert_eq!(capabilities(&link.ends[0].events), [(1, Capability::from_bits(0b0000_1010), false)]);
}

#[test]
fn failed_lanes_leave_and_join_the_rows() {
    let mut link = Link::new([config(4); 2], |lane| [2, 0, 3, 1][lane]);
    link.start();
    link.run_until_ready([0b1111; 2]);
    for lane in [0, 3, 1, 2] {
        let rest = 0b1111 & !(1 << lane);
        link.ends[0].lines[lane].is_cut = true;
        link.run_until_ready([rest; 2]);
        link.run_without_errors(3_000);
        link.ends[0].lines[lane].is_cut = false;
        link.run_until_ready([0b1111; 2]);
        link.run_without_errors(3_000);
    }
    assert!(link.ends[1].sink.widths[3] > 100 && link.ends[1].sink.widths[4] > 100);
    let no_signal = Event::Inactive(Cause::NoSignal);
    assert!(link.ends[1].events.contains(&MultiLaneEvent::Lane { lane: 3, event: no_signal }));
    let lost = Event::Inactive(Cause::FarLostSignal(LostSignalCause::NoSignal));
    assert!(link.ends[0].events.contains(&MultiLaneEvent::Lane { lane: 3, event: lost }));
    assert!(link.ends[1].layer.counters().misalignments.near_end_lanes >= 8);
}

#[test]
fn overflow_of_the_rxerr_counter_restarts_a_lane() {
    let mut link = Link::started(3);
    link.run_until_ready([0b111; 2]);
    let lost = Event::Inactive(Cause::FarLostSignal(LostSignalCause::ReceiveErrors));
    while !link.ends[0].events.contains(&MultiLaneEvent::Lane { lane: 2, event: lost }) {
        link.ends[0].lines[2].flips = if link.words.is_multiple_of(3) { 1 << (link.words % 40) } else { 0 };
        link.step();
    }
    let overflow = Event::Inactive(Cause::RxErrOverflow);
    assert!(link.ends[1].events.contains(&MultiLaneEvent::Lane { lane: 2, event: overflow }));
    assert_eq!(link.ends[1].layer.lane(2).counters().rxerr_overflows, 1);
    link.ends[0].lines[2].flips = 0;
    link.run_until_ready([0b111; 2]);
    link.run_without_errors(3_000);
}

#[test]
fn hot_redundant_lanes_replace_failed_ones() {
    let hot = MultiLaneConfig { max_data_lanes: 2, ..config(4) };
    let mut link = Link::new([hot, config(4)], |_| 3);
    link.start();
    link.run_until_ready([0b0011, 0b1111]);
    link.run_without_errors(3_000);
    assert_eq!(link.ends.each_ref().map(|end| end.layer.data_receiving_lanes()), [0b1111, 0b0011]);
    // Redundant lanes carry random words.
    let redundant = link.ends[0].sent[2].unwrap();
    assert!(redundant.is_data() && link.ends[0].sent[3] == Some(redundant));
    link.ends[1].lines[0].is_cut = true;
    link.run_until_ready([0b0110, 0b1110]);
    link.run_without_errors(3_000);
    link.ends[1].lines[1].is_cut = true;
    link.run_until_ready([0b1100, 0b1100]);
    link.run_without_errors(3_000);
    link.ends[1].lines[..2].iter_mut().for_each(|line| line.is_cut = false);
    link.run_until_ready([0b0011, 0b1111]);
    link.run_without_errors(3_000);
    // A changed maximum takes effect with a link reset.
    link.ends[0].layer.set_max_data_lanes(3);
    assert_eq!(link.ends[0].layer.data_sending_lanes(), 0b0011);
    link.ends[0].layer.reset_link();
    link.run_until_ready([0b0111, 0b1111]);
    link.run_without_errors(3_000);
}

#[test]
fn asymmetric_links_have_lanes_in_one_direction() {
    let near = MultiLaneConfig { tx_enabled: 0b111, rx_enabled: 0b101, ..config(3) };
    let far = MultiLaneConfig { tx_enabled: 0b101, rx_enabled: 0b111, ..config(3) };
    let mut link = Link::new([near, far], |lane| lane);
    link.ends[0].layer.set_capability(Capability::DATA_SCRAMBLED);
    link.start();
    link.run_until_ready([0b111, 0b101]);
    link.run_without_errors(3_000);
    assert_eq!(link.ends[1].layer.active_lanes(), 0b111);
    assert_eq!(link.ends[1].sent[1], None, "lane 1 receives only");
    // If its receiver fails, the sender is reset because the far end does not report it any more.
    link.ends[1].layer.reset_lane(1);
    link.run_until_ready([0b101, 0b101]);
    let reset = MultiLaneEvent::Lane { lane: 1, event: Event::Inactive(Cause::Reset) };
    assert!(link.ends[0].events.contains(&reset));
    link.run_until_ready([0b111, 0b101]);
    link.run_without_errors(3_000);
    // Without a lane in both directions there is no link.
    link.ends[0].lines[0].is_cut = true;
    link.ends[0].lines[2].is_cut = true;
    link.run(5_000);
    assert_eq!(link.ends.each_ref().map(|end| end.layer.data_lanes()), [0, 0]);
    link.ends[0].lines[2].is_cut = false;
    link.run_until_ready([0b110, 0b100]);
    link.run_without_errors(3_000);
}

#[test]
fn disabled_lanes_stay_in_reset() {
    let mut link = Link::started(3);
    link.run_until_ready([0b111; 2]);
    link.ends[0].layer.set_enabled(0b101, 0b101);
    assert_eq!(link.ends[0].layer.lane(1).state(), State::ClearLine);
    assert_eq!(link.ends[0].layer.active_lanes(), 0b101);
    link.run_until_ready([0b101; 2]);
    link.run_without_errors(3_000);
    assert_eq!(link.ends[0].layer.lane(1).state(), State::ClearLine);
    link.ends[0].layer.set_enabled(u16::MAX, u16::MAX);
    link.run_until_ready([0b111; 2]);
    link.run_without_errors(3_000);
}

#[test]
fn far_ends_with_one_lane_select_the_bypass() {
    let single = MultiLaneConfig { bypass: true, ..config(3) };
    for far in [single, config(1)] {
        let mut link = Link::new([config(3), far], |_| 2);
        link.start();
        link.run_until_ready([0b001; 2]);
        link.run_without_errors(3_000);
        assert!(link.ends[0].layer.is_bypass());
        assert_eq!(link.ends[0].layer.lane(1).state(), State::ClearLine);
        assert_eq!(link.ends[0].sink.widths[2..], [0; 15]);
    }
}

#[test]
fn exchanged_lanes_are_not_aligned() {
    let mut link = Link::started(3);
    for _ in 0..20_000 {
        for end in &mut link.ends {
            end.layer.transmit(|lanes| end.source.next_row(lanes), &mut end.sent);
            end.sent.swap(1, 2);
        }
        let [near, far] = &mut link.ends;
        deliver(near, far);
        deliver(far, near);
    }
    assert_eq!(link.ends[0].layer.active_lanes(), 0b111);
    assert_eq!(link.ends[0].layer.alignment(), Alignment::NotReady);
}

#[test]
fn a_link_in_standby_starts_again() {
    let mut link = Link::started(2);
    link.ends[1].layer.set_auto_start(0b11, true);
    link.ends[1].layer.set_start(0b11, false);
    link.run_until_ready([0b11; 2]);
    link.ends[0].layer.set_start(0b11, false);
    link.run(3_000);
    assert_eq!(link.ends.each_ref().map(|end| end.layer.lane(1).state()), [State::Disabled, State::Wait]);
    assert!(!link.ends[0].layer.is_active() && !link.ends[1].layer.is_active());
    let standby = MultiLaneEvent::Lane { lane: 0, event: Event::Inactive(Cause::FarStandby(0)) };
    assert!(link.ends[1].events.contains(&standby));
    link.ends[0].layer.set_start(0b11, true);
    link.run_until_ready([0b11; 2]);
    link.run_without_errors(3_000);
}

#[test]
fn a_slip_at_one_end_does_not_disturb_what_it_sends() {
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let mut link = Link::started(4);
        link.run_until_ready([0b1111; 2]);
        link.run(random.between(1000, 2000));
        let errors = link.ends[0].sink.errors;
        let word = link.ends[0].lines[1].words[0];
        link.ends[0].lines[1].words.push_front(word);
        link.run(100);
        link.run_until_ready([0b1111; 2]);
        link.run(1000);
        let counters = link.ends[1].layer.counters().misalignments;
        assert_eq!(counters.slips + counters.invalid_rows + counters.invalid_aligns, 1, "{counters:?}");
        assert_eq!(link.ends[0].sink.errors, errors, "{}", link.status());
    }
}

#[test]
fn lane_counts_are_checked() {
    for found in [0, 17] {
        let error = MultiLane::new(config(found)).unwrap_err();
        assert_eq!(error.to_string(), format!("expected 1 to 16 lanes, found {found}: configure between 1 and 16"));
    }
}
