//! Priority, and its loss by over-use.

use super::link::{CREDIT, FRAME, Link, share};
use shotline_random::SplitMix64;
use shotline_spacefibre::qos::{Limits, VcQos};
use shotline_testing::seeds;

#[test]
fn levels_precede_in_the_order_of_their_numbers() {
    let all: Vec<_> = (0..16).map(|vc| VcQos::new(15 - vc, share(4096))).collect();
    let mut link = Link::new(&all);
    for ready in [0xFFFF, 0x7FFF, 0x0101, 0x0001] {
        let highest = (31 - u32::leading_zeros(ready)) as u8;
        assert_eq!(link.send(ready, FRAME), Some(highest));
    }
    assert_eq!(link.send(0, FRAME), None);
    assert_eq!(link.send(0xFFFF_0000, FRAME), None, "channels that do not exist");
}

#[test]
fn higher_level_precedes_any_credit_of_a_lower_one() {
    // Channel 0 is just above -0.9 B, channel 1 at +B.
    let mut link = Link::new(&[VcQos::new(6, share(32_768)), VcQos::new(7, share(32_768))]);
    link.run(0b01, 893 * u64::from(FRAME));
    assert_eq!((link.credit(0), link.credit(1)), (-893 * 66, 893 * 66));
    link.access.sent(None, 10);
    assert!(!link.over_use(0));
    assert_eq!(link.access.select(0b11), Some(0));
}

#[test]
fn high_priority_waits_at_most_one_frame_within_its_share() {
    for seed in seeds(0..8) {
        let mut random = SplitMix64::new(seed);
        let mut all = vec![VcQos::new(0, share(13_107))];
        all.extend((1..32).map(|_| VcQos::new(1 + random.below(15) as u8, share(1_691))));
        let mut link = Link::new(&all);
        let mut within = 0;
        for _ in 0..50_000 {
            // A frame of any channel is being sent; channel 0 has a segment at its end in 15 % of the cases.
            let is_ready = random.chance(0.15);
            let has_priority = !link.over_use(0);
            let vc = link.send(u32::MAX - 1 + u32::from(is_ready), random.between(3, 66) as u32);
            within += u32::from(is_ready && has_priority);
            assert!(!is_ready || !has_priority || vc == Some(0), "channel 0 waited for {vc:?}");
        }
        assert!(within > 7_000, "{within}");
    }
}

#[test]
fn over_use_loses_the_priority_below_0_9_b() {
    // Each frame of channel 0 costs 132 words of credit and adds 66; -0.9 B is -58982.4 words.
    let mut link = Link::new(&[VcQos::new(0, share(32_768)), VcQos::new(15, share(32_768))]);
    for frame in 1..=894 {
        assert_eq!(link.send(0b11, FRAME), Some(0));
        assert_eq!(link.credit(0), -66 * frame);
        assert_eq!(link.over_use(0), frame == 894);
    }
    // From then on it has its priority after each frame of the other: half of the link.
    for _ in 0..100 {
        assert_eq!(link.send(0b11, FRAME), Some(1));
        assert!(!link.over_use(0));
        assert_eq!(link.send(0b11, FRAME), Some(0));
        assert!(link.over_use(0));
    }
}

#[test]
fn at_exactly_0_9_b_over_use_is_reported_and_priority_kept() {
    // -0.9 B is -1188 words: 18 frames.
    let limits = Limits { credit: 1320, ..Limits::default() };
    let mut link = Link::with_limits(&[VcQos::new(0, share(32_768)), VcQos::new(15, share(32_768))], limits);
    link.run(0b11, 18 * u64::from(FRAME));
    assert_eq!((link.credit(0), link.over_use(0)), (-1188, true));
    assert_eq!(link.send(0b11, FRAME), Some(0));
    link.access.sent(None, FRAME - 1);
    assert_eq!((link.credit(0), link.access.select(0b11)), (-1189, Some(1)));
    link.access.sent(None, 1);
    assert_eq!((link.credit(0), link.access.select(0b11)), (-1188, Some(0)));
}

#[test]
fn over_users_compete_by_credit_whatever_their_levels() {
    let mut link = Link::new(&[15, 0, 15].map(|priority| VcQos::new(priority, share(4096))));
    assert_eq!(link.access.select(0b011), Some(1));
    link.access.sent(Some(0), 6_000);
    link.access.sent(Some(1), 6_000);
    assert_eq!((link.credit(0), link.credit(1)), (-65_536 + 6_000, -65_536));
    assert!(link.over_use(0) && link.over_use(1) && !link.over_use(2));
    assert_eq!(link.access.select(0b011), Some(0), "it has more credit, although its level is lower");
    assert_eq!(link.access.select(0b111), Some(2), "a channel within its share precedes both");
}

#[test]
fn link_without_other_traffic_is_used_in_over_use() {
    let mut link = Link::new(&[VcQos::new(0, share(660))]);
    link.run(1, 1_000_000);
    assert_eq!(link.sent[0], link.words);
    assert_eq!((link.credit(0), link.over_use(0)), (-(CREDIT as i32), true));
}

#[test]
fn equal_precedence_is_resolved_by_waiting_time_then_number() {
    let mut link = Link::new(&[VcQos::new(1, share(16_384)); 3]);
    assert_eq!(link.access.select(0b110), Some(1), "the lowest number");
    // From +B, channel 2 sends first, then 1, then 0: they reach +B in this order.
    link.access.sent(None, CREDIT);
    for vc in [2, 1, 0] {
        link.access.sent(Some(vc), FRAME);
    }
    link.access.sent(None, 10 * CREDIT);
    for vc in 0..3 {
        assert_eq!(link.credit(vc), CREDIT as i32);
    }
    assert_eq!(link.access.select(0b111), Some(2));
    assert_eq!(link.access.select(0b011), Some(1));
}

#[test]
fn under_use_is_reported_after_the_idle_time_limit() {
    let limits = Limits { credit: 2000, idle: 500, ..Limits::default() };
    let mut link = Link::with_limits(&[VcQos::new(0, share(32_768)); 2], limits);
    link.access.sent(None, 2499);
    assert_eq!((link.credit(0), link.under_use(0), link.under_use(1)), (2000, false, false));
    link.access.sent(None, 1);
    assert!(link.under_use(0) && link.under_use(1));
    // A frame ends it; the credit is then below +B.
    link.access.sent(Some(0), FRAME);
    assert_eq!((link.credit(0), link.under_use(0)), (1934, false));
    assert!(link.under_use(1));
}

#[test]
fn flags_stay_until_they_are_taken() {
    let limits = Limits { credit: 1320, idle: 100, ..Limits::default() };
    let mut link = Link::with_limits(&[VcQos::new(0, share(32_768)), VcQos::new(1, share(32_768))], limits);
    link.run(0b01, 19 * u64::from(FRAME));
    link.access.sent(None, 200);
    assert!(!link.over_use(0) && link.under_use(1));
    // Channel 1 is in under-use now; channel 0 was in over-use before.
    let flags = link.access.take_flags();
    assert_eq!((flags.over_use, flags.under_use), (0b01, 0b10));
    link.access.sent(Some(1), FRAME);
    let flags = link.access.take_flags();
    assert_eq!((flags.over_use, flags.under_use), (0, 0b10), "under-use ended after the last call");
    let flags = link.access.take_flags();
    assert_eq!((flags.over_use, flags.under_use), (0, 0));
}

#[test]
fn reset_clears_credits_and_flags_and_keeps_parameters() {
    let mut link = Link::new(&[VcQos::new(0, share(660)), VcQos { slots: 1, ..VcQos::new(1, share(660)) }]);
    link.run(0b01, 100_000);
    link.access.set_slot(5).unwrap();
    link.access.reset();
    assert_eq!((link.credit(0), link.credit(1), link.access.slot()), (0, 0, 0));
    assert_eq!(link.access.take_flags(), Default::default());
    assert_eq!(link.access.select(0b11), Some(0), "it is no longer in over-use");
    assert_eq!(link.access.select(0b10), Some(1));
}
