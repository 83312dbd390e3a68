//! Errors of the configuration of the quality of service.

use super::{MAX_CHANNELS, PRIORITIES, TIME_SLOTS};

/// Reason why a configuration is refused. The previous one stays in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QosError {
    /// More virtual channels than a link can have.
    #[error("expected up to {MAX_CHANNELS} virtual channels, found {found}")]
    TooManyChannels {
        /// Number of channels.
        found: usize,
    },
    /// A virtual channel that was not given to `new`.
    #[error("expected a virtual channel below {channels}, found {vc}")]
    UnknownChannel {
        /// The channel.
        vc: u8,
        /// Number of channels.
        channels: usize,
    },
    /// A priority level that does not exist.
    #[error("virtual channel {vc}: expected a priority below {PRIORITIES}, found {priority}")]
    Priority {
        /// The channel.
        vc: u8,
        /// Its priority.
        priority: u8,
    },
    /// A share of a channel that has no time-slot to send in.
    #[error("virtual channel {vc} has a share but no time-slot: allocate one, or set its share to 0")]
    NoTimeSlot {
        /// The channel.
        vc: u8,
    },
    /// A share so small that one frame costs more than 0.1 B: the channel could send more than its share.
    #[error(
        "virtual channel {vc}: expected a share of 0 or of at least {min} parts per 65536, found {parts}: \
         increase the share or the bandwidth credit limit"
    )]
    ShareTooSmall {
        /// The channel.
        vc: u8,
        /// Its share in parts per 65536.
        parts: u32,
        /// Smallest share in parts per 65536.
        min: u32,
    },
    /// Shares that add up to more than the bandwidth of the link.
    #[error(
        "expected shares of up to 65536 parts per 65536 in total, found {parts}: reduce another channel's share first"
    )]
    Oversubscribed {
        /// Sum of the shares in parts per 65536.
        parts: u32,
    },
    /// A time-slot that does not exist.
    #[error("expected a time-slot below {TIME_SLOTS}, found {slot}")]
    TimeSlot {
        /// The time-slot.
        slot: u8,
    },
    /// A bandwidth credit limit out of range.
    #[error("expected a bandwidth credit limit from {min} to {max} words, found {found}")]
    CreditLimit {
        /// The limit in words.
        found: u32,
        /// Lowest limit: the length of ten frames.
        min: u32,
        /// Highest limit.
        max: u32,
    },
}
