//! Registry of drop causes, and their counters.

use core::fmt;

/// Defines [`DropCause`] from a table of variant, number, name and meaning, in ascending order of the numbers.
macro_rules! drop_causes {
    ($($cause:ident = $number:literal, $name:literal, $meaning:literal;)+) => {
        /// Reason why a packet or a shot is missing from a recording.
        ///
        /// The numbers are stored in files: new causes get new numbers, which are never changed or reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropCause {
            $(#[doc = $meaning] $cause = $number,)+
        }

        impl DropCause {
            /// All causes, in the order of their numbers.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$cause),+];

            /// Returns the name used in files, metrics and messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// Returns a description of what happened to the packet or shot.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$cause => $meaning,)+
                }
            }
        }
    };
}

drop_causes! {
    WireGap = 0, "wire_gap", "never arrived: a gap in the sequence of its shot";
    BadIcrc = 1, "bad_icrc", "arrived with an invariant CRC that does not match";
    Malformed = 2, "malformed", "truncated, oversized, or not of this framing or geometry";
    Duplicate = 3, "duplicate", "its destination was already filled";
    Late = 4, "late", "its shot was already closed";
    UnknownStream = 5, "unknown_stream", "belongs to no stream of this receiver (queue pair, Q_Key or sender)";
    NoBuffer = 6, "no_buffer", "no shot buffer was free when its shot began";
    SinkBusy = 7, "sink_busy", "the sink was too slow, and the policy discarded this shot";
    SinkError = 8, "sink_error", "the sink failed to store this shot";
    ChannelStopped = 9, "channel_stopped", "its stream was stopped";
    Overrun = 10, "overrun", "the source ran out of buffers";
    BeforeStart = 11, "before_start", "belongs to a shot that was in progress when the receiver joined";
    BadRecord = 12, "bad_record", "the end-of-shot record contradicts the packets, whose CRCs match";
    SinkFull = 13, "sink_full", "the sink has no space left for this shot";
    NotData = 14, "not_data", "stream control or a description, sent among the shots";
    PowerCut = 15, "power_cut", "was passed to the sink, but was not on the drive when the run was interrupted";
    NotTriggered = 16, "not_triggered", "was held for a trigger that did not arrive";
    Unplaced = 17, "unplaced", "its offset is unknown: the packets of its shot have only a count";
    SenderRestart = 18, "sender_restart", "arrived before a restart of its sender was confirmed";
}

/// [`DropCounters`] is indexed by number.
const _: () = {
    let mut index = 0;
    while index < DropCause::ALL.len() {
        assert!(DropCause::ALL[index] as usize == index, "numbers begin at 0 and have no hole");
        index += 1;
    }
};

impl DropCause {
    /// Returns `true` if packets of this cause reached the receiver. The others are detected by a gap in the sequence,
    /// and are not counted as received.
    pub const fn has_arrived(self) -> bool {
        match self {
            Self::WireGap | Self::Overrun => false,
            Self::BadIcrc
            | Self::Malformed
            | Self::Duplicate
            | Self::Late
            | Self::UnknownStream
            | Self::NoBuffer
            | Self::SinkBusy
            | Self::SinkError
            | Self::ChannelStopped
            | Self::BeforeStart
            | Self::BadRecord
            | Self::SinkFull
            | Self::NotData
            | Self::PowerCut
            | Self::NotTriggered
            | Self::Unplaced
            | Self::SenderRestart => true,
        }
    }

    /// Returns `true` if data that belong to the recording are missing because of this cause. The other causes are
    /// superfluous packets, other data, and what was not to be recorded.
    pub const fn is_loss(self) -> bool {
        match self {
            Self::Duplicate | Self::UnknownStream | Self::BeforeStart | Self::NotData | Self::NotTriggered => false,
            Self::WireGap
            | Self::BadIcrc
            | Self::Malformed
            | Self::Late
            | Self::NoBuffer
            | Self::SinkBusy
            | Self::SinkError
            | Self::ChannelStopped
            | Self::Overrun
            | Self::BadRecord
            | Self::SinkFull
            | Self::PowerCut
            | Self::Unplaced
            | Self::SenderRestart => true,
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One counter per drop cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounters([u64; DropCause::ALL.len()]);

impl DropCounters {
    /// Adds `count` to the counter of a cause.
    pub fn add(&mut self, cause: DropCause, count: u64) {
        self.0[cause as usize] += count;
    }

    /// Moves counts that turned out to have another cause to `cause`. Each counter saturates at 0.
    pub fn reclassify(&mut self, counted: &Self, cause: DropCause) {
        for (mine, theirs) in self.0.iter_mut().zip(counted.0) {
            *mine = mine.saturating_sub(theirs);
        }
        self.add(cause, counted.total());
    }

    /// Returns the count of a cause.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the sum over the causes whose packets reached the receiver ([`DropCause::has_arrived`]).
    pub fn arrived(&self) -> u64 {
        self.iter().filter(|(cause, _)| cause.has_arrived()).map(|(_, count)| count).sum()
    }

    /// Returns the causes with a nonzero count, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        let some = |(cause, count): (DropCause, &u64)| (*count > 0).then_some((cause, *count));
        DropCause::ALL.into_iter().zip(&self.0).filter_map(some)
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_sum_by_cause_and_by_arrival() {
        let mut drops = DropCounters::default();
        for cause in DropCause::ALL {
            drops.add(cause, 1 << (cause as u32));
        }
        let all = (1 << DropCause::ALL.len()) - 1;
        let absent = drops.get(DropCause::WireGap) + drops.get(DropCause::Overrun);
        assert_eq!((drops.total(), drops.arrived()), (all, all - absent));
        let mut twice = drops;
        twice.merge(&drops);
        twice.reclassify(&drops, DropCause::SenderRestart);
        assert_eq!(twice.get(DropCause::Late), drops.get(DropCause::Late));
        assert_eq!(twice.total(), 2 * all);
    }

    #[test]
    fn cause_names_are_unique() {
        for cause in DropCause::ALL {
            let same = DropCause::ALL.into_iter().filter(|other| other.name() == cause.name());
            assert_eq!(same.count(), 1, "{cause}");
        }
    }
}
