//! Time-slots.

use super::link::{FRAME, Link, share};
use shotline_random::SplitMix64;
use shotline_spacefibre::qos::{ALL_SLOTS, QosError, VcQos};
use shotline_testing::seeds;

#[test]
fn frames_start_only_in_time_slots_of_their_channel() {
    for seed in seeds(0..8) {
        let mut random = SplitMix64::new(seed);
        let all: Vec<_> = (0..32)
            .map(|_| VcQos {
                slots: random.next_u64() & random.next_u64() | 1 << random.below(64),
                ..VcQos::new(random.below(16) as u8, share(2048))
            })
            .collect();
        let mut link = Link::new(&all);
        for _ in 0..20_000 {
            let slot = random.below(64) as u8;
            link.access.set_slot(slot).unwrap();
            let ready = random.next_u64() as u32;
            let allowed = (0..32).filter(|vc| ready >> vc & 1 != 0 && all[*vc].slots >> slot & 1 != 0).count();
            match link.send(ready, FRAME) {
                Some(vc) => assert!(all[usize::from(vc)].slots >> slot & 1 != 0, "channel {vc} in time-slot {slot}"),
                None => assert_eq!(allowed, 0, "a channel that may send in time-slot {slot} did not"),
            }
        }
    }
}

#[test]
fn each_time_slot_belongs_to_its_bit() {
    for slot in 0..64 {
        let mut link = Link::new(&[VcQos { slots: 1 << slot, ..VcQos::new(0, share(660)) }]);
        for current in 0..64 {
            link.access.set_slot(current).unwrap();
            assert_eq!(link.access.slot(), current);
            assert_eq!(link.access.select(1), (current == slot).then_some(0), "{slot} {current}");
        }
    }
}

#[test]
fn time_slots_precede_priority_and_credit() {
    let high = VcQos { slots: !(1 << 7), ..VcQos::new(0, share(32_768)) };
    let mut link = Link::new(&[high, VcQos { slots: 1 << 7, ..VcQos::new(15, share(660)) }]);
    link.access.sent(Some(1), 10_000);
    assert_eq!(link.access.select(0b11), Some(0));
    link.access.set_slot(7).unwrap();
    assert_eq!(link.access.select(0b11), Some(1));
    assert_eq!(link.access.select(0b01), None, "a time-slot without its channel stays free");
}

#[test]
fn unknown_time_slots_are_refused_and_the_former_stays() {
    let mut link = Link::new(&[VcQos::new(0, share(660))]);
    link.access.set_slot(63).unwrap();
    for slot in [64, 255] {
        assert_eq!(link.access.set_slot(slot), Err(QosError::TimeSlot { slot }));
        assert_eq!(link.access.slot(), 63);
    }
}

#[test]
fn shares_are_kept_within_a_schedule() {
    // Channels 0 and 1 have half of the time-slots each, channel 2 all; each time-slot lasts for 40 frames, so that
    // 84480 words are sent between the time-slots of a channel: less than 1.9 B.
    let parts = [19_660, 19_660, 26_216];
    let slots = [0xFFFF_FFFF, 0xFFFF_FFFF << 32, ALL_SLOTS];
    let all: Vec<_> = (0..3).map(|vc| VcQos { slots: slots[vc], ..VcQos::new(2, share(parts[vc])) }).collect();
    let mut link = Link::new(&all);
    for frame in 0..128 * 40 * 20_u32 {
        link.access.set_slot((frame / 40 % 64) as u8).unwrap();
        link.send(0b111, FRAME);
    }
    link.assert_shares(&parts);
}
