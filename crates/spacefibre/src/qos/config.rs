//! Parameters of the quality of service, as the management information base has them (ECSS 5.9.3).

use super::{ALL_SLOTS, MAX_CHANNELS, PRIORITIES, QosError};

/// Fraction of the words that a link sends, in parts per 65536, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// Share of a channel that never sends.
    pub const NONE: Self = Self(0);
    /// Share of a channel that may use the whole link.
    pub const WHOLE: Self = Self(1 << 16);

    /// Creates a share from parts per 65536; `None` if there are more than 65536.
    #[must_use]
    pub const fn from_parts(parts: u32) -> Option<Self> {
        if parts <= Self::WHOLE.0 { Some(Self(parts)) } else { None }
    }

    /// Creates a share from a percentage, rounded down so that percentages that add up to 100 are accepted together;
    /// `None` above 100.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Option<Self> {
        if percent <= 100 { Some(Self(percent * Self::WHOLE.0 / 100)) } else { None }
    }

    /// Returns the parts per 65536.
    #[must_use]
    pub const fn parts(self) -> u32 {
        self.0
    }

    /// Returns whether the share is 0.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Quality of service of a virtual channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VcQos {
    /// Priority level from 0, the highest, to 15 (5.7.4.6).
    pub priority: u8,
    /// Expected bandwidth as a share of the link's bandwidth (5.7.4.5). A channel with a share of 0 never sends.
    pub share: Share,
    /// Time-slots in which frames of the channel may start (5.7.4.3): bit i is time-slot i.
    pub slots: u64,
}

impl VcQos {
    /// Creates the quality of service of a channel that may send in all time-slots.
    #[must_use]
    pub const fn new(priority: u8, share: Share) -> Self {
        Self { priority, share, slots: ALL_SLOTS }
    }
}

/// Parameters of the medium access controller that all virtual channels share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bandwidth credit limit B in words, from 10 frames to 2^30 words (5.7.4.5).
    ///
    /// A large B keeps small shares: see [`min_share`](Self::min_share). It also keeps the shares of channels with few
    /// time-slots, between which the link must send less than 1.9 B words. With a small B a channel that was idle
    /// delays others for a shorter time, at most 2B x share words.
    pub credit: u32,
    /// Virtual channel idle time limit: words for which a channel's credit stays at +B until under-use is reported.
    pub idle: u32,
    /// Words of the longest data frame, SDF and EDF included.
    pub frame: u32,
}

impl Limits {
    /// Highest bandwidth credit limit in words.
    pub const MAX_CREDIT: u32 = 1 << 30;

    /// Returns the smallest share other than 0 that can be kept, in parts per 65536: that with which one frame costs
    /// 0.1 B of credit.
    ///
    /// A channel that babbles has its priority until its credit is -0.9 B. If a frame cost more than the 0.1 B that are
    /// left, saturation at -B would spare the channel the rest, and it would take from lower levels more than its
    /// share.
    ///
    /// # Panics
    /// If the credit limit is 0.
    #[must_use]
    pub const fn min_share(&self) -> u32 {
        (self.frame as u64 * Share::WHOLE.0 as u64 * 10).div_ceil(self.credit as u64) as u32
    }

    /// Returns the parameters of a channel after an interface reset (5.7.4.5q, r, 5.7.4.6h): lowest priority, all
    /// time-slots, a share of 10 % for virtual channel 0 and the smallest share for others.
    ///
    /// # Panics
    /// If the credit limit is 0.
    #[must_use]
    pub fn after_interface_reset(&self, vc: u8) -> VcQos {
        let min = Share(self.min_share().min(Share::WHOLE.0));
        VcQos::new(PRIORITIES - 1, if vc == 0 { min.max(Share(Share::WHOLE.0 / 10)) } else { min })
    }

    /// Checks the limits.
    pub(super) const fn check(&self) -> Result<(), QosError> {
        let min = if self.frame == 0 { 1 } else { self.frame.saturating_mul(10) };
        if self.credit < min || self.credit > Self::MAX_CREDIT {
            return Err(QosError::CreditLimit { found: self.credit, min, max: Self::MAX_CREDIT });
        }
        Ok(())
    }

    /// Checks the parameters of one channel.
    pub(super) const fn check_channel(&self, vc: u8, qos: &VcQos) -> Result<(), QosError> {
        let (parts, min) = (qos.share.0, self.min_share());
        if qos.priority >= PRIORITIES {
            Err(QosError::Priority { vc, priority: qos.priority })
        } else if qos.share.is_none() {
            Ok(())
        } else if qos.slots == 0 {
            Err(QosError::NoTimeSlot { vc })
        } else if parts < min {
            Err(QosError::ShareTooSmall { vc, parts, min })
        } else {
            Ok(())
        }
    }
}

impl Default for Limits {
    /// A credit limit of 65536 words, with which shares from 1 % can be kept; an idle time limit of 156250 words, which
    /// is 1 ms at 6.25 Gbit/s; data frames of 64 words, as on one lane.
    fn default() -> Self {
        Self { credit: 65_536, idle: 156_250, frame: 66 }
    }
}

/// Checks that the shares of all channels together do not exceed the link's bandwidth.
pub(super) fn check_sum(channels: &[VcQos]) -> Result<(), QosError> {
    debug_assert!(channels.len() <= MAX_CHANNELS);
    let parts = channels.iter().map(|qos| qos.share.0).sum();
    if parts > Share::WHOLE.0 { Err(QosError::Oversubscribed { parts }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_from_nothing_to_the_whole_link() {
        assert_eq!(Share::from_parts(0), Some(Share::NONE));
        assert_eq!(Share::from_parts(65_536), Some(Share::WHOLE));
        assert_eq!(Share::from_parts(65_537), None);
        assert_eq!(Share::from_percent(10).map(Share::parts), Some(6_553));
        assert_eq!(Share::from_percent(100), Some(Share::WHOLE));
        assert_eq!(Share::from_percent(101), None);
        assert_eq!(Share::from_percent(u32::MAX), None);
    }

    #[test]
    fn percentages_that_add_up_to_100_fit_the_link() {
        for parts in [[33, 33, 34], [7, 13, 80], [1, 1, 98]] {
            let channels = parts.map(|percent| VcQos::new(0, Share::from_percent(percent).unwrap()));
            assert_eq!(check_sum(&channels), Ok(()));
        }
    }

    #[test]
    fn one_frame_of_the_smallest_share_costs_a_tenth_of_the_limit() {
        assert_eq!(Limits::default().min_share(), 660);
        assert_eq!(Limits { credit: 660 * 65_536, ..Limits::default() }.min_share(), 1);
        assert_eq!(Limits { credit: 660, ..Limits::default() }.min_share(), 65_536);
        assert_eq!(Limits { credit: 661, ..Limits::default() }.min_share(), 65_437);
    }

    #[test]
    fn limits_must_hold_ten_frames_and_fit_the_arithmetic() {
        let check = |credit, frame| Limits { credit, frame, idle: 0 }.check().is_ok();
        assert!(check(660, 66) && check(1 << 30, 66) && check(1, 0));
        assert!(!check(659, 66) && !check((1 << 30) + 1, 66) && !check(0, 0) && !check(u32::MAX, u32::MAX));
    }

    #[test]
    fn values_after_an_interface_reset_can_be_kept() {
        let limits = Limits::default();
        let channels: [_; MAX_CHANNELS] = std::array::from_fn(|vc| limits.after_interface_reset(vc as u8));
        assert_eq!(check_sum(&channels), Ok(()));
        for (vc, qos) in channels.iter().enumerate() {
            assert_eq!(limits.check_channel(vc as u8, qos), Ok(()));
        }
        assert_eq!((channels[0].priority, channels[0].share.parts()), (15, 6_553));
        assert_eq!((channels[31].priority, channels[31].share.parts()), (15, 660));
    }
}
