//! The medium access controller (ECSS 5.7.4).
//!
//! Credits are evaluated lazily: the words that the link sends are added to one number, and each channel keeps the
//! value of this number at which its credit is 0. Saturation at +B needs no action, because a credit only increases
//! until the channel sends. A bit mask has the channels that have lost their priority, and one number the time at which
//! the first of them has it again. So [`MediumAccess::sent`] takes the same time for any number of channels, except
//! then.

use super::config::check_sum;
use super::{Limits, MAX_CHANNELS, PRIORITIES, QosError, Share, TIME_SLOTS, VcQos};

/// Fraction bits of a credit.
const FRACTION: u32 = 16;
/// Fraction bits of a channel's inverse share, so that a share of one part per 65536 fits in 64 bits.
const INVERSE_FRACTION: u32 = 47;
/// Words sent, as a credit, at which the origin moves (2^40 words).
const MAX_SENT: i64 = 1 << 56;

const fn credit(words: u32) -> i64 {
    (words as i64) << FRACTION
}

/// Status of a virtual channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VcStatus {
    /// Bandwidth credit in words, rounded down, from -B to B.
    pub credit: i32,
    /// The channel sends more than its share: its credit is -0.9 B or less (5.7.4.5l).
    pub over_use: bool,
    /// The channel sends less than its share: its credit has been B for the idle time limit (5.7.4.5o).
    pub under_use: bool,
}

/// Virtual channels that were in over-use or under-use, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Channels that were in over-use.
    pub over_use: u32,
    /// Channels that were in under-use.
    pub under_use: u32,
}

/// Medium access controller: selects the virtual channel that sends the next data frame.
///
/// Call [`select`](Self::select) when a data frame can start, and [`sent`](Self::sent) for all words that the link
/// sends.
///
/// ```
/// use shotline_spacefibre::qos::{MediumAccess, Share, VcQos};
///
/// let half = Share::from_percent(50).unwrap();
/// let mut access = MediumAccess::new(&[VcQos::new(1, half), VcQos::new(0, half)])?;
/// // Both have a segment: virtual channel 1 has the higher priority.
/// assert_eq!(access.select(0b11), Some(1));
/// access.sent(Some(1), 66);
/// assert_eq!(access.status(1).map(|status| status.credit), Some(66 - 2 * 66));
/// # Ok::<(), shotline_spacefibre::qos::QosError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MediumAccess {
    /// Words sent, as a credit, since the origin.
    sent: i64,
    /// Per channel: the value of `sent` at which its credit is 0. It is at most `sent` + B.
    zero: [i64; MAX_CHANNELS],
    /// Per channel: 1 / share with [`INVERSE_FRACTION`] fraction bits; 0 for a share of 0.
    inverse: [u64; MAX_CHANNELS],
    /// Channels that have a share and the current time-slot.
    allowed: u32,
    /// Per priority level: its channels.
    levels: [u32; PRIORITIES as usize],
    /// Channels without priority: their credit is below -0.9 B.
    demoted: u32,
    /// Lower bound of the value of `sent` at which one of the demoted channels has its priority again.
    restore_at: i64,
    /// +B.
    limit: i64,
    /// 0.9 B: a channel with a credit below its negative has no priority.
    threshold: i64,
    /// Idle time limit.
    idle: i64,
    slot: u8,
    seen: Flags,
    channels: usize,
    qos: [VcQos; MAX_CHANNELS],
    limits: Limits,
}

impl MediumAccess {
    /// Creates a medium access controller with the default [`Limits`], all credits 0, in time-slot 0. Channel i has the
    /// i-th parameters; further channels never send.
    ///
    /// # Errors
    /// If the parameters are out of range or the shares cannot be kept; see [`QosError`].
    pub fn new(channels: &[VcQos]) -> Result<Self, QosError> {
        Self::with_limits(channels, Limits::default())
    }

    /// Creates a medium access controller with these limits.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the limits are out of range.
    pub fn with_limits(channels: &[VcQos], limits: Limits) -> Result<Self, QosError> {
        limits.check()?;
        if channels.len() > MAX_CHANNELS {
            return Err(QosError::TooManyChannels { found: channels.len() });
        }
        for (vc, qos) in (0..).zip(channels) {
            limits.check_channel(vc, qos)?;
        }
        check_sum(channels)?;
        let limit = credit(limits.credit);
        let mut access = Self {
            sent: 0,
            zero: [0; MAX_CHANNELS],
            inverse: [0; MAX_CHANNELS],
            allowed: 0,
            levels: [0; PRIORITIES as usize],
            demoted: 0,
            restore_at: i64::MAX,
            limit,
            threshold: limit * 9 / 10,
            idle: credit(limits.idle),
            slot: 0,
            seen: Flags::default(),
            channels: channels.len(),
            qos: [VcQos::new(0, Share::NONE); MAX_CHANNELS],
            limits,
        };
        for (vc, qos) in channels.iter().enumerate() {
            access.apply(vc, *qos);
        }
        access.allow();
        Ok(access)
    }

    /// Changes the parameters of a channel. It keeps its credit, except that a channel without a share begins with 0.
    ///
    /// To move bandwidth from one channel to another, reduce the former's share first.
    ///
    /// # Errors
    /// If the channel does not exist or its parameters cannot be kept; the former ones stay in effect.
    pub fn configure(&mut self, vc: u8, qos: VcQos) -> Result<(), QosError> {
        let index = usize::from(vc);
        if index >= self.channels {
            return Err(QosError::UnknownChannel { vc, channels: self.channels });
        }
        self.limits.check_channel(vc, &qos)?;
        let mut channels = self.qos;
        channels[index] = qos;
        check_sum(&channels)?;
        if self.qos[index].share.is_none() {
            self.zero[index] = self.sent;
            self.demoted &= !(1 << vc);
        }
        self.apply(index, qos);
        self.allow();
        Ok(())
    }

    fn apply(&mut self, vc: usize, qos: VcQos) {
        for (priority, level) in (0..).zip(&mut self.levels) {
            *level = *level & !(1 << vc) | u32::from(priority == qos.priority) << vc;
        }
        let one = 1 << (INVERSE_FRACTION + Share::WHOLE.parts().ilog2());
        self.inverse[vc] = u64::checked_div(one, qos.share.parts().into()).unwrap_or(0);
        self.qos[vc] = qos;
    }

    /// Sets `allowed` after a change of the time-slot or of a channel's parameters.
    fn allow(&mut self) {
        let allowed = |qos: &VcQos| !qos.share.is_none() && qos.slots >> self.slot & 1 != 0;
        self.allowed = self.qos.iter().rev().fold(0, |mask, qos| mask << 1 | u32::from(allowed(qos)));
    }

    /// Sets the current time-slot, from 0 to 63 (5.7.4.3). A frame that has started in the former time-slot is
    /// finished.
    ///
    /// # Errors
    /// If the time-slot does not exist; the former one stays.
    pub fn set_slot(&mut self, slot: u8) -> Result<(), QosError> {
        if slot >= TIME_SLOTS {
            return Err(QosError::TimeSlot { slot });
        }
        self.slot = slot;
        self.allow();
        Ok(())
    }

    /// Returns the current time-slot.
    #[must_use]
    pub const fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the channel that sends the next data frame; `None` if none of them may. Bit i of `ready` says that
    /// channel i has a segment and flow control credit.
    ///
    /// It is the channel of the highest precedence (5.7.4.4). Of channels with the same precedence, which the standard
    /// leaves open, it is the one whose credit has been +B for the longest time, then the one with the lowest number:
    /// with the number alone, control words beside shares of 100 % would keep the last channels from sending.
    #[inline]
    #[must_use]
    pub fn select(&self, ready: u32) -> Option<u8> {
        let ready = ready & self.allowed;
        if ready.is_power_of_two() {
            return Some(ready.trailing_zeros() as u8);
        }
        let with_priority = ready & !self.demoted;
        let levels = (0..)
            .zip(&self.levels)
            .fold(0_u32, |mask, (priority, level)| mask | u32::from(level & with_priority != 0) << priority);
        // All channels with priority precede those without. `% 16` is for the compiler: it needs no check then.
        let highest = levels.trailing_zeros() as usize % self.levels.len();
        let mut candidates = if levels == 0 { ready } else { self.levels[highest] & with_priority };
        if candidates == 0 {
            return None;
        }
        // The highest credit is that of the lowest zero.
        let (mut lowest, mut selected) = (i64::MAX, 0);
        while candidates != 0 {
            let vc = candidates.trailing_zeros() as usize % MAX_CHANNELS;
            let is_lower = self.zero[vc] < lowest;
            lowest = if is_lower { self.zero[vc] } else { lowest };
            selected = if is_lower { vc } else { selected };
            candidates &= candidates - 1;
        }
        Some(selected as u8)
    }

    /// Counts words that the link has sent (5.7.4.5): of a data frame of channel `vc`, SDF and EDF included, or of
    /// anything else. Words inside a frame that are not its own, such as a broadcast, and frames that are sent again
    /// are counted without a channel.
    #[inline]
    pub fn sent(&mut self, vc: Option<u8>, words: u32) {
        let before = self.sent;
        self.sent += credit(words);
        if let Some(vc) = vc
            && usize::from(vc) < MAX_CHANNELS
            && self.inverse[usize::from(vc)] != 0
        {
            let index = usize::from(vc);
            let raw = before - self.zero[index];
            let cost = (u128::from(words) * u128::from(self.inverse[index])) >> (INVERSE_FRACTION - FRACTION);
            // Beyond 2B only saturation matters. No more than B and the words of the frame is lost from +B.
            let cost = cost.min((self.limit as u128) * 2 + ((words as u128) << FRACTION)) as i64;
            let left = (raw.min(self.limit) + credit(words) - cost).max(-self.limit);
            self.zero[index] = self.sent - left;
            if left < -self.threshold {
                self.demoted |= 1 << vc;
                self.restore_at = self.restore_at.min(self.zero[index] - self.threshold);
            }
            self.seen.over_use |= u32::from(self.is_over(left)) << vc;
            self.seen.under_use |= u32::from(raw >= self.limit + self.idle) << vc;
        }
        if self.sent >= self.restore_at {
            self.restore();
        }
        if self.sent >= MAX_SENT {
            self.move_origin();
        }
    }

    /// Gives channels their priority again whose credit is -0.9 B or more.
    fn restore(&mut self) {
        self.restore_at = i64::MAX;
        let mut demoted = self.demoted;
        while demoted != 0 {
            let vc = demoted.trailing_zeros() as usize % MAX_CHANNELS;
            let restore_at = self.zero[vc] - self.threshold;
            if self.sent >= restore_at {
                self.demoted &= !(1 << vc);
            } else {
                self.restore_at = self.restore_at.min(restore_at);
            }
            demoted &= demoted - 1;
        }
    }

    /// Moves the origin to the present. Channels that have been at +B for more than 2^40 words are then equal.
    #[cold]
    fn move_origin(&mut self) {
        for zero in &mut self.zero {
            *zero = (*zero - self.sent).max(-MAX_SENT);
        }
        self.sent = 0;
        self.restore();
    }

    fn is_over(&self, credit: i64) -> bool {
        10 * credit <= -9 * self.limit
    }

    /// Returns the bandwidth credit and the use of a channel; `None` if it does not exist.
    #[must_use]
    pub fn status(&self, vc: u8) -> Option<VcStatus> {
        let qos = self.qos[..self.channels].get(usize::from(vc))?;
        if qos.share.is_none() {
            return Some(VcStatus { credit: 0, over_use: false, under_use: false });
        }
        let raw = self.sent - self.zero[usize::from(vc)];
        Some(VcStatus {
            credit: (raw.min(self.limit) >> FRACTION) as i32,
            over_use: self.is_over(raw),
            under_use: raw >= self.limit + self.idle,
        })
    }

    /// Returns the channels that were in over-use or under-use at any time since the last call, for flags that stay
    /// until they are read (Table 5-37).
    pub fn take_flags(&mut self) -> Flags {
        let mut flags = std::mem::take(&mut self.seen);
        for vc in 0..self.channels as u8 {
            if let Some(status) = self.status(vc) {
                flags.over_use |= u32::from(status.over_use) << vc;
                flags.under_use |= u32::from(status.under_use) << vc;
            }
        }
        flags
    }

    /// Sets all credits to 0, clears the flags and returns to time-slot 0, as on interface reset (5.7.4.5q). A link
    /// reset does not change them. The parameters stay.
    pub fn reset(&mut self) {
        self.sent = 0;
        self.zero = [0; MAX_CHANNELS];
        self.demoted = 0;
        self.restore_at = i64::MAX;
        self.seen = Flags::default();
        self.slot = 0;
        self.allow();
    }

    /// Returns the parameters of a channel; `None` if it does not exist.
    #[must_use]
    pub fn qos(&self, vc: u8) -> Option<&VcQos> {
        self.qos[..self.channels].get(usize::from(vc))
    }

    /// Returns the sum of the shares. Broadcast frames and control words use what is left of the link; if less is left
    /// than they need, each channel has less than its share.
    #[must_use]
    pub fn reserved(&self) -> Share {
        let parts = self.qos.iter().map(|qos| qos.share.parts()).sum();
        // `check_sum` accepts no more than the whole link.
        Share::from_parts(parts).unwrap_or(Share::WHOLE)
    }

    /// Returns the limits.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
}
