//! A medium access controller as the standard words it: every credit is updated by every word, and the precedence is
//! the number of 5.7.4.4. [`MediumAccess`] must select the same channels.

use super::link::{FRAME, Link, channels, share};
use proptest::prelude::*;
use shotline_spacefibre::qos::{Limits, MediumAccess, Share, VcQos};
use shotline_testing::cases;

/// Units of a credit per word.
const WORD: i64 = 1 << 16;

#[derive(Clone, Copy)]
struct Channel {
    qos: VcQos,
    credit: i64,
    /// Words since the credit reached +B, in units of a credit.
    waited: i64,
}

struct Model {
    channels: Vec<Channel>,
    limits: Limits,
    slot: u8,
}

impl Model {
    fn new(channels: &[VcQos], limits: Limits) -> Self {
        let channels = channels.iter().map(|qos| Channel { qos: *qos, credit: 0, waited: 0 }).collect();
        Self { channels, limits, slot: 0 }
    }

    fn limit(&self) -> i64 {
        i64::from(self.limits.credit) * WORD
    }

    fn precedence(&self, channel: &Channel) -> i64 {
        let (limit, levels) = (self.limit(), 16);
        let is_over = 10 * channel.credit < -9 * limit;
        let level = 2 * limit * (levels - 1 - i64::from(channel.qos.priority)) + limit;
        channel.credit + if is_over { 0 } else { level }
    }

    fn select(&self, ready: u32) -> Option<u8> {
        (0_u8..)
            .zip(&self.channels)
            .filter(|(vc, channel)| {
                let may_send = channel.qos.share != Share::NONE && channel.qos.slots >> self.slot & 1 != 0;
                ready >> vc & 1 != 0 && may_send
            })
            .max_by_key(|(vc, channel)| (self.precedence(channel), channel.waited, u8::MAX - vc))
            .map(|(vc, _)| vc)
    }

    fn sent(&mut self, vc: Option<u8>, words: u32) {
        let limit = self.limit();
        for (index, channel) in (0..).zip(&mut self.channels) {
            channel.credit += i64::from(words) * WORD;
            if vc == Some(index) && channel.qos.share != Share::NONE {
                let cost = (u64::from(words) << 32) / u64::from(channel.qos.share.parts());
                channel.credit = (channel.credit - cost as i64).clamp(-limit, limit);
                channel.waited = 0;
            } else {
                channel.waited += (channel.credit - limit).max(0);
                channel.credit = channel.credit.min(limit);
            }
        }
    }

    fn configure(&mut self, vc: u8, qos: VcQos) {
        let channel = &mut self.channels[usize::from(vc)];
        if channel.qos.share == Share::NONE {
            (channel.credit, channel.waited) = (0, 0);
        }
        channel.qos = qos;
    }

    #[track_caller]
    fn assert_equal(&self, access: &MediumAccess) {
        for (vc, channel) in (0..).zip(&self.channels).filter(|(_, channel)| channel.qos.share != Share::NONE) {
            let status = access.status(vc).unwrap();
            assert_eq!(i64::from(status.credit), channel.credit >> 16, "credit of channel {vc}");
            assert_eq!(status.over_use, 10 * channel.credit <= -9 * self.limit(), "channel {vc}");
            let is_idle = channel.credit == self.limit() && channel.waited >= i64::from(self.limits.idle) * WORD;
            assert_eq!(status.under_use, is_idle, "channel {vc}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Sends a frame of the channel that is selected.
    Frame {
        ready: u32,
        words: u32,
    },
    /// Sends a frame of this channel, or of none.
    Sent {
        vc: Option<u8>,
        words: u32,
    },
    Slot(u8),
    Configure(u8, VcQos),
}

fn qos(max_parts: u32) -> impl Strategy<Value = VcQos> {
    let parts = prop_oneof![1 => Just(0), 9 => 660..=max_parts];
    let slots = prop_oneof![Just(u64::MAX), any::<u64>().prop_map(|slots| slots | 1)];
    // Few levels, so that channels share them.
    let priority = prop_oneof![0..3_u8, 0..16_u8];
    (priority, parts, slots).prop_map(|(priority, parts, slots)| VcQos { priority, share: share(parts), slots })
}

fn step() -> impl Strategy<Value = Step> {
    let words = || prop_oneof![3..=66_u32, 1..=2000_u32];
    prop_oneof![
        40 => (any::<u32>(), words()).prop_map(|(ready, words)| Step::Frame { ready, words }),
        10 => words().prop_map(|words| Step::Frame { ready: u32::MAX, words }),
        5 => (proptest::option::of(0..40_u8), words()).prop_map(|(vc, words)| Step::Sent { vc, words }),
        1 => Just(Step::Sent { vc: None, words: u32::MAX }),
        3 => (0..64_u8).prop_map(Step::Slot),
        2 => (0..32_u8, qos(4000)).prop_map(|(vc, qos)| Step::Configure(vc, qos)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn selection_and_credits_are_those_of_the_standard(
        all in proptest::collection::vec(qos(2000), 1..=32),
        credit in prop_oneof![Just(65_536_u32), 66_000..400_000_u32],
        steps in proptest::collection::vec(step(), 1..600),
    ) {
        let limits = Limits { credit, idle: 10_000, ..Limits::default() };
        let mut access = MediumAccess::with_limits(&all, limits).unwrap();
        let mut model = Model::new(&all, limits);
        for step in steps {
            match step {
                Step::Frame { ready, words } => {
                    let vc = access.select(ready);
                    prop_assert_eq!(vc, model.select(ready));
                    access.sent(vc, words);
                    model.sent(vc, words);
                }
                Step::Sent { vc, words } => {
                    access.sent(vc, words);
                    model.sent(vc, words);
                }
                Step::Slot(slot) => {
                    access.set_slot(slot).unwrap();
                    model.slot = slot;
                }
                Step::Configure(vc, qos) => {
                    if access.configure(vc, qos).is_ok() {
                        model.configure(vc, qos);
                    }
                }
            }
            model.assert_equal(&access);
        }
    }

    #[test]
    fn any_call_is_answered(calls in proptest::collection::vec(any::<(u8, Option<u8>, u32, u8, u32, u64)>(), 1..300)) {
        let mut access = MediumAccess::new(&channels(&[2000; 20])).unwrap();
        for (slot, vc, words, priority, parts, slots) in calls {
            let _ = access.set_slot(slot);
            access.sent(vc, words);
            if let Some(vc) = access.select(words) {
                prop_assert!(words >> vc & 1 != 0 && vc < 20);
            }
            let qos = VcQos { priority, share: Share::from_parts(parts).unwrap_or(share(parts % 3000)), slots };
            let _ = access.configure(vc.unwrap_or(slot), qos);
            access.take_flags();
        }
    }
}

/// Words that remain until the origin moves in the links of [`before_the_origin_moves`].
const REMAINING: u32 = 256 * 118;

/// A link whose origin moves during the next frames, with all credits 0.
fn before_the_origin_moves(all: &[VcQos]) -> Link {
    let mut link = Link::new(&channels(&vec![0; all.len()]));
    for _ in 0..256 {
        link.access.sent(None, u32::MAX - (REMAINING / 256 - 1));
    }
    for (vc, qos) in (0..).zip(all) {
        link.access.configure(vc, *qos).unwrap();
    }
    link
}

#[test]
fn selection_does_not_depend_on_the_number_of_words_sent() {
    let all = channels(&[800, 9_000, 20_000, 30_000]);
    for ready in [0b1111, 0b0111, 0b0001, 0b1001] {
        let (mut late, mut early) = (before_the_origin_moves(&all), Link::new(&all));
        for frame in 0..20_000 {
            let ready = if frame % 7 == 3 { 0b1111 } else { ready };
            assert_eq!(late.send(ready, FRAME), early.send(ready, FRAME), "frame {frame}");
            (0..4).for_each(|vc| assert_eq!(late.access.status(vc), early.access.status(vc), "frame {frame}"));
        }
    }
}

#[test]
fn priority_returns_after_any_number_of_words_sent() {
    let mut link = before_the_origin_moves(&[VcQos::new(0, share(4096)), VcQos::new(1, share(4096))]);
    link.access.sent(Some(0), REMAINING - 1000);
    // The origin moves while channel 0 is in over-use, which ends 0.1 B words after its frame.
    for (words, is_over) in [(999, true), (1, true), (5_000, true), (554, false)] {
        link.access.sent(None, words);
        assert_eq!((link.over_use(0), link.access.select(0b11)), (is_over, Some(u8::from(is_over))));
    }
}
