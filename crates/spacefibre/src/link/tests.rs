//! The data link layer, one call at a time.

use super::*;
use crate::qos::Share;
use shotline_wire::spacefibre::BroadcastStatus;

const LANES: u8 = 4;
const FRAME: u32 = 256;

fn link(vcs: u32) -> DataLink {
    let share = Share::from_parts(65_536 / vcs).unwrap();
    let channel = VcConfig { qos: VcQos::new(0, share), input_words: 4 * FRAME };
    let mut link = DataLink::new(LANES, &vec![channel; vcs as usize], Share::WHOLE).unwrap();
    // An ACK may be sent at once if nothing was sent for a while.
    link.pass_idle_rows(1000);
    link
}

fn seq(count: u8, negative: bool) -> SequenceNumber {
    SequenceNumber { count, negative }
}

/// Gives the link credit for `frames` frames of channel 0, as items 1 to `frames` of the far end.
fn give_credit(link: &mut DataLink, frames: u8) {
    for count in 1..=frames {
        link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 4, seq: seq(count, false) });
    }
}

/// Sends everything but data. Returns the control words in order.
fn controls(link: &mut DataLink) -> Vec<Control> {
    std::iter::from_fn(|| link.next_control()).collect()
}

fn message(kind: u8) -> BroadcastMessage {
    BroadcastMessage { channel: 7, kind, data: *b"tick-008", status: BroadcastStatus::default() }
}

fn late(message: BroadcastMessage) -> BroadcastMessage {
    BroadcastMessage { status: BroadcastStatus { late: true, ..message.status }, ..message }
}

/// Sends a new frame of channel 0 and returns its sequence number.
fn send_frame(link: &mut DataLink, words: u32) -> SequenceNumber {
    assert_eq!(link.select(1), Some(0));
    link.admit(0, words);
    link.finish_segment()
}

#[test]
fn fcts_are_sent_for_the_whole_input_buffer_after_reset() {
    let mut link = link(2);
    let fct = |vc, count| Control::Word(ControlWord::FlowControlToken { vc, multiplier: 4, seq: seq(count, false) });
    let expected: Vec<_> = (1..=8).map(|count| fct((count - 1) % 2, count)).collect();
    assert_eq!(controls(&mut link), expected);
    assert_eq!(link.credit(0), Some((0, 4 * FRAME)));
    link.on_control(ControlWord::Ack { seq: seq(8, false) });
    assert!(link.is_all_acknowledged());
    // Words that are read give new FCTs, as soon as one frame of them is free.
    for vc in [0, 1] {
        assert!(link.on_data_frame(vc, 200, seq(1 + vc, false), true));
        link.release(vc, 200);
    }
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Ack { seq: seq(2, false) })]);
    assert!(link.on_data_frame(0, 56, seq(3, false), true));
    link.release(0, 56);
    assert_eq!(controls(&mut link), [fct(0, 9)]);
}

#[test]
fn fcts_for_a_whole_window_of_data_need_no_acknowledgement() {
    let share = Share::from_parts(65_536 / 2).unwrap();
    let channel = VcConfig { qos: VcQos::new(0, share), input_words: MAX_CREDIT_WORDS };
    let mut link = DataLink::new(LANES, &[channel; 2], Share::WHOLE).unwrap();
    link.pass_idle_rows(1000);
    assert!(controls(&mut link).len() >= DATA_SLOTS);
    assert_eq!(link.unacknowledged(), MAX_UNACKNOWLEDGED - 1, "a broadcast frame could still be sent");
}

#[test]
fn data_are_sent_only_with_credit_and_not_beyond_it() {
    let mut link = link(1);
    controls(&mut link);
    assert_eq!(link.select(1), None);
    link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 1, seq: seq(1, false) });
    assert_eq!((link.select(1), link.segment_limit(0)), (Some(0), 64));
    send_frame(&mut link, 60);
    assert_eq!(link.segment_limit(0), 4);
    send_frame(&mut link, 4);
    assert_eq!(link.select(1), None);
}

#[test]
fn nack_resends_in_the_standards_order_with_new_numbers() {
    let mut link = link(1);
    give_credit(&mut link, 2);
    link.post_broadcast(message(1));
    // ACK, then the broadcast frame, FCTs 2 to 5, and two data frames, 6 and 7.
    let sent = controls(&mut link);
    assert_eq!(sent.len(), 6, "{sent:?}");
    let sent: Vec<_> = (0..2).map(|_| send_frame(&mut link, FRAME)).collect();
    assert_eq!(sent, [seq(6, false), seq(7, false)]);
    // All up to 3 has arrived: three FCTs and two frames remain.
    link.on_control(ControlWord::Nack { seq: seq(3, false) });
    let fct = |count| Control::Word(ControlWord::FlowControlToken { vc: 0, multiplier: 4, seq: seq(count, true) });
    assert_eq!(controls(&mut link), [Control::Retry, fct(4), fct(5)]);
    assert_eq!(link.select(1), None, "stored segments come first");
    let slots: Vec<_> =
        std::iter::from_fn(|| link.unsent_segment().map(|segment| (segment.slot, link.finish_segment()))).collect();
    assert_eq!(slots, [(0, seq(6, true)), (1, seq(7, true))]);
    // The same NACK again, sent before the RETRY arrived, is of the old polarity.
    link.on_control(ControlWord::Nack { seq: seq(3, false) });
    assert_eq!(controls(&mut link), []);
    link.on_control(ControlWord::Ack { seq: seq(7, false) });
    assert!(!link.is_all_acknowledged(), "an ACK of the old polarity counts as nothing");
    link.on_control(ControlWord::Ack { seq: seq(7, true) });
    assert!(link.is_all_acknowledged());
    let counters = link.counters();
    assert_eq!((counters.retries, counters.items_resent, counters.nacks_in), (1, 4, 2));
}

#[test]
fn broadcast_frames_precede_fcts_and_are_resent_first() {
    let mut link = link(1);
    link.post_broadcast(message(1));
    link.post_broadcast(message(2));
    let sent = controls(&mut link);
    assert_eq!(
        sent[..2],
        [Control::Broadcast(message(1), seq(1, false)), Control::Broadcast(message(2), seq(2, false)),]
    );
    link.on_control(ControlWord::Nack { seq: seq(1, false) });
    let resent = controls(&mut link);
    assert_eq!(resent[..2], [Control::Retry, Control::Broadcast(late(message(2)), seq(2, true))]);
}

#[test]
fn messages_that_wait_for_a_retry_or_a_lane_are_late() {
    let mut link = link(1);
    let delayed = BroadcastMessage { status: BroadcastStatus { late: false, delayed: true }, ..message(1) };
    link.post_broadcast(delayed);
    assert_eq!(controls(&mut link)[0], Control::Broadcast(delayed, seq(1, false)), "sent at once");
    link.on_control(ControlWord::Nack { seq: seq(0, false) });
    link.post_broadcast(message(2));
    assert_eq!(link.next_control(), Some(Control::Retry));
    link.post_broadcast(message(3));
    let resent = [late(delayed), late(message(2)), late(message(3))];
    for (message, count) in resent.into_iter().zip(1..) {
        assert_eq!(link.next_control(), Some(Control::Broadcast(message, seq(count, true))));
    }
    // FCTs that are sent again wait for broadcast messages, and not the other way round.
    link.post_broadcast(message(4));
    assert_eq!(link.next_control(), Some(Control::Broadcast(message(4), seq(4, true))));
    link.post_broadcast(message(5));
    link.delay_broadcasts();
    assert_eq!(link.next_control(), Some(Control::Broadcast(late(message(5)), seq(5, true))));
}

#[test]
fn messages_that_wait_for_bandwidth_credit_are_not_late() {
    let share = Share::from_parts(65_536 / 64).unwrap();
    let channel = VcConfig { qos: VcQos::new(0, share), input_words: 4 * FRAME };
    let mut link = DataLink::new(LANES, &[channel], share).unwrap();
    link.post_broadcast(message(1));
    assert!(!controls(&mut link).iter().any(|control| matches!(control, Control::Broadcast(..))));
    link.pass_idle_rows(256);
    assert_eq!(link.next_control(), Some(Control::Broadcast(message(1), seq(5, false))));
}

#[test]
fn error_is_answered_by_one_nack_until_something_is_accepted() {
    let mut link = link(1);
    controls(&mut link);
    assert!(link.on_data_frame(0, FRAME, seq(1, false), true));
    assert!(!link.on_data_frame(0, FRAME, seq(2, false), false), "CRC-16 error");
    assert!(!link.on_data_frame(0, FRAME, seq(3, false), true), "after the error");
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Nack { seq: seq(1, false) })]);
    // Without RETRY: the inverted polarity suffices, because a RETRY may be lost.
    assert!(link.on_data_frame(0, FRAME, seq(2, true), true));
    link.pass_idle_rows(15);
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Ack { seq: seq(2, true) })]);
}

#[test]
fn error_during_a_retry_is_nacked_with_the_new_polarity() {
    let mut link = link(1);
    controls(&mut link);
    link.on_rxerr(true);
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Nack { seq: seq(0, false) })]);
    // The far end sends items 1 and 2 again; 1 is lost.
    assert!(!link.on_data_frame(0, FRAME, seq(2, true), true));
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Nack { seq: seq(0, true) })]);
    assert!(link.on_data_frame(0, FRAME, seq(1, false), true));
}

#[test]
fn idle_frame_shows_that_the_last_item_was_lost() {
    let mut link = link(1);
    controls(&mut link);
    link.on_control(ControlWord::StartIdleFrame { seq: seq(0, false) });
    assert_eq!(controls(&mut link), []);
    link.on_control(ControlWord::StartIdleFrame { seq: seq(1, false) });
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Nack { seq: seq(0, false) })]);
    assert_eq!(link.counters().sequence_errors, 1);
}

#[test]
fn rxerr_outside_of_frames_requests_no_nack() {
    let mut link = link(1);
    controls(&mut link);
    link.on_rxerr(false);
    assert_eq!(controls(&mut link), []);
    // But an acknowledgement may have been lost: FULL asks for it again.
    assert_eq!(link.idle_word(), ControlWord::Full { seq: seq(4, false) });
    assert_eq!(link.idle_word(), ControlWord::StartIdleFrame { seq: seq(4, false) });
}

#[test]
fn acks_are_15_rows_apart() {
    let mut link = link(1);
    controls(&mut link);
    give_credit(&mut link, 2);
    for count in 1..=2 {
        assert!(link.on_data_frame(0, 8, seq(2 + count, false), true));
        let ack = controls(&mut link);
        assert_eq!(ack.len(), usize::from(count == 1), "{ack:?}");
    }
    send_frame(&mut link, FRAME);
    assert_eq!(controls(&mut link), [Control::Word(ControlWord::Ack { seq: seq(4, false) })]);
}

#[test]
fn full_buffer_stops_data_and_sends_full_each_64_rows() {
    let mut link = link(1);
    controls(&mut link);
    link.on_control(ControlWord::Ack { seq: seq(4, false) });
    for count in 1..=DATA_SLOTS as u8 {
        give_credit_after(&mut link, count);
        send_frame(&mut link, 1);
    }
    assert_eq!(link.select(1), None);
    let is_full = |control: &Control| matches!(control, Control::Word(ControlWord::Full { .. }));
    assert_eq!(controls(&mut link).iter().filter(|control| is_full(control)).count(), 1);
    link.pass_idle_rows(62);
    assert_eq!(controls(&mut link), []);
    link.pass_idle_rows(1);
    assert!(controls(&mut link).iter().all(is_full));
    link.on_control(ControlWord::Ack { seq: seq(10, false) });
    assert_eq!(link.select(1), Some(0));
    assert_eq!(controls(&mut link), []);
}

fn give_credit_after(link: &mut DataLink, count: u8) {
    link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 1, seq: seq(count, false) });
}

#[test]
fn acknowledgement_of_what_was_never_sent_resets_the_link() {
    for word in [ControlWord::Ack { seq: seq(5, false) }, ControlWord::Nack { seq: seq(5, false) }] {
        let mut link = link(1);
        controls(&mut link);
        assert_eq!(link.take_reset(), None);
        link.on_control(word);
        assert_eq!(link.take_reset(), Some(ResetCause::Protocol));
        assert_eq!(link.counters().protocol_errors, 1);
    }
}

#[test]
fn data_beyond_the_credit_reset_the_link() {
    for (vc, words) in [(0, 4 * FRAME + 1), (1, 1), (31, 1)] {
        let mut link = link(1);
        controls(&mut link);
        assert!(!link.on_data_frame(vc, words, seq(1, false), true));
        assert_eq!(link.take_reset(), Some(ResetCause::InputOverflow));
    }
}

#[test]
fn credit_saturates_and_the_overflow_is_counted() {
    let mut link = link(1);
    controls(&mut link);
    for count in 1..=127 {
        link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 8, seq: seq(count, false) });
    }
    assert_eq!(link.counters().credit_overflows, 0);
    link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 8, seq: seq(0, false) });
    assert_eq!(link.credit(0).unwrap().0, 1 << 16);
    link.on_control(ControlWord::FlowControlToken { vc: 0, multiplier: 8, seq: seq(1, false) });
    assert_eq!((link.credit(0).unwrap().0, link.counters().credit_overflows), (1 << 16, 1));
}

#[test]
fn reset_returns_to_the_initial_state() {
    let mut link = link(1);
    give_credit(&mut link, 2);
    link.post_broadcast(message(1));
    controls(&mut link);
    send_frame(&mut link, FRAME);
    link.on_rxerr(true);
    link.reset();
    assert!(link.is_all_acknowledged());
    assert_eq!((link.credit(0), link.unacknowledged(), link.has_pending_ack()), (Some((0, 0)), 0, false));
    let first = ControlWord::FlowControlToken { vc: 0, multiplier: 4, seq: seq(1, false) };
    assert_eq!(link.next_control(), Some(Control::Word(first)));
    assert_eq!(link.counters().link_resets, 1);
}

#[test]
fn channel_counters_balance_and_survive_a_reset() {
    let mut link = link(2);
    controls(&mut link);
    for (count, vc) in [0, 1].into_iter().enumerate() {
        link.on_control(ControlWord::FlowControlToken { vc, multiplier: 4, seq: seq(1 + count as u8, false) });
    }
    for (vc, words) in [(0, 100), (1, 7), (0, 30)] {
        link.admit(vc, words);
        link.finish_segment();
    }
    // The NACK has everything sent again, which no channel counts.
    link.on_control(ControlWord::Nack { seq: seq(8, false) });
    while link.unsent_segment().is_some() {
        link.finish_segment();
    }
    assert!(link.on_data_frame(1, 55, seq(3, false), true));
    assert!(!link.on_data_frame(1, 56, seq(4, false), false), "a wrong CRC-16");
    let counts = |link: &DataLink| [0, 1].map(|vc| link.channel(vc).unwrap().counters);
    let first = ChannelCounters { frames_out: 2, words_out: 130, frames_in: 0, words_in: 0 };
    let second = ChannelCounters { frames_out: 1, words_out: 7, frames_in: 1, words_in: 55 };
    assert_eq!(counts(&link), [first, second]);
    let total = link.counters();
    assert_eq!((total.words_out, total.words_in, total.frames_in), (137, 55, 1));
    assert_eq!(total.frames_out, 2 * 3, "frames that were sent again are counted here only");
    link.reset();
    assert_eq!(counts(&link), [first, second]);
    let channel = link.channel(0).unwrap();
    assert_eq!((channel.credit, channel.granted, channel.input_words), (0, 0, 4 * FRAME));
    assert!(link.channel(2).is_none());
}
