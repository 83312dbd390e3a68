//! Configuration: what is refused, and changes while the link is in use.

use super::link::{CREDIT, FRAME, Link, share};
use shotline_spacefibre::qos::{Limits, MediumAccess, QosError, Share, VcQos};

fn error(channels: &[VcQos]) -> Option<QosError> {
    MediumAccess::new(channels).err()
}

#[test]
fn parameters_out_of_range_are_refused() {
    let qos = VcQos::new(0, share(700));
    assert_eq!(error(&[qos; 33]), Some(QosError::TooManyChannels { found: 33 }));
    assert_eq!(error(&[qos, VcQos::new(16, share(700))]), Some(QosError::Priority { vc: 1, priority: 16 }));
    assert_eq!(error(&[VcQos { slots: 0, ..qos }]), Some(QosError::NoTimeSlot { vc: 0 }));
    assert_eq!(error(&[VcQos::new(0, share(659))]), Some(QosError::ShareTooSmall { vc: 0, parts: 659, min: 660 }));
    assert_eq!(error(&[]), None);
    assert_eq!(error(&[VcQos { slots: 0, ..VcQos::new(15, Share::NONE) }]), None, "it never sends");
    assert_eq!(error(&[VcQos::new(15, share(660)); 32]), None);
}

#[test]
fn shares_above_the_whole_link_are_refused() {
    assert_eq!(error(&[VcQos::new(0, share(32_768)); 2]), None);
    let too_much = [VcQos::new(0, share(32_768)), VcQos::new(15, share(32_769))];
    assert_eq!(error(&too_much), Some(QosError::Oversubscribed { parts: 65_537 }));
    assert_eq!(error(&[VcQos::new(0, Share::WHOLE); 32]), Some(QosError::Oversubscribed { parts: 32 << 16 }));
}

#[test]
fn limits_out_of_range_are_refused() {
    for (credit, frame) in [(0, 0), (659, 66), (u32::MAX, 66), (1 << 31, u32::MAX)] {
        let limits = Limits { credit, frame, idle: u32::MAX };
        let result = MediumAccess::with_limits(&[], limits);
        assert!(matches!(result, Err(QosError::CreditLimit { .. })), "{limits:?}");
    }
}

#[test]
fn refused_changes_leave_the_configuration() {
    let all = [VcQos::new(0, share(32_768)), VcQos::new(3, share(32_768))];
    let mut access = MediumAccess::new(&all).unwrap();
    let more = VcQos::new(3, share(32_769));
    assert_eq!(access.configure(1, more), Err(QosError::Oversubscribed { parts: 65_537 }));
    assert_eq!(access.configure(2, all[0]), Err(QosError::UnknownChannel { vc: 2, channels: 2 }));
    assert_eq!(access.configure(255, all[0]), Err(QosError::UnknownChannel { vc: 255, channels: 2 }));
    assert_eq!(access.configure(0, VcQos { slots: 0, ..all[0] }), Err(QosError::NoTimeSlot { vc: 0 }));
    assert_eq!([access.qos(0), access.qos(1), access.qos(2)], [Some(&all[0]), Some(&all[1]), None]);
    assert_eq!(access.reserved(), Share::WHOLE);
    // Reducing the other share first makes room.
    access.configure(0, VcQos::new(0, share(32_767))).unwrap();
    access.configure(1, more).unwrap();
    assert_eq!(access.reserved(), Share::WHOLE);
}

#[test]
fn changed_priority_and_share_take_effect_at_once() {
    let mut link = Link::new(&[VcQos::new(0, share(16_384)), VcQos::new(1, share(16_384))]);
    assert_eq!(link.access.select(0b11), Some(0));
    link.access.configure(0, VcQos::new(2, share(16_384))).unwrap();
    assert_eq!(link.access.select(0b11), Some(1));
    link.access.configure(1, VcQos::new(1, Share::NONE)).unwrap();
    assert_eq!(link.access.select(0b11), Some(0));
    assert_eq!(link.access.select(0b10), None);
    link.access.configure(1, VcQos::new(2, share(49_152))).unwrap();
    link.run(0b11, 1_000_000);
    link.assert_shares(&[16_384, 49_152]);
}

#[test]
fn channel_that_gets_a_share_begins_without_credit() {
    let mut link = Link::new(&[VcQos::new(0, share(32_768)), VcQos::new(0, Share::NONE)]);
    link.run(0b11, 1_000_000);
    assert_eq!(link.sent[1], 0);
    link.access.configure(1, VcQos::new(0, share(32_768))).unwrap();
    assert_eq!((link.credit(1), link.over_use(1), link.under_use(1)), (0, false, false));
}

#[test]
fn channel_whose_share_is_taken_and_given_has_its_priority() {
    let all = [VcQos::new(0, share(6_553)), VcQos::new(1, share(32_768))];
    let mut link = Link::new(&all);
    link.run(0b01, 100_000);
    assert_eq!((link.credit(0), link.access.select(0b11)), (-(CREDIT as i32), Some(1)));
    link.access.configure(0, VcQos::new(0, Share::NONE)).unwrap();
    assert_eq!(link.access.status(0).map(|status| (status.credit, status.over_use)), Some((0, false)));
    link.access.configure(0, all[0]).unwrap();
    assert_eq!((link.credit(0), link.access.select(0b11)), (0, Some(0)));
}

#[test]
fn unknown_channels_have_no_status_and_count_as_other_words() {
    let mut link = Link::new(&[VcQos::new(0, share(32_768))]);
    for vc in [1, 31, 32, 255] {
        assert_eq!(link.access.status(vc), None);
        link.access.sent(Some(vc), FRAME);
    }
    assert_eq!(link.credit(0), 4 * 66);
}
