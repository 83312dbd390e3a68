//! Rows, configuration, events and counters of the multi-lane layer.

use crate::lane::{self, LaneConfig, words_in_us};
use shotline_wire::spacefibre::{Capability, Word};

/// Maximum number of lanes of a link.
pub const MAX_LANES: usize = 16;

/// Row to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxRow<'a> {
    /// A word that all data-sending lanes carry: a control word of the data link layer, or a word of a broadcast or
    /// idle frame (5.6.4.1d).
    Control(Word),
    /// Words of a data frame: one for each data-sending lane, or fewer in the last row before the EDF (5.6.4.2b).
    Data(&'a [Word]),
}

/// Row as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxRow<'a> {
    /// A control word of the data link layer, or one that is unknown.
    Control {
        /// The word, as the lowest data-receiving lane received it (5.6.5e).
        word: Word,
        /// An EDF whose CRC-16 failed on some lane.
        crc_error: bool,
    },
    /// Words of a data frame in the order in which they were sent, or one word of a broadcast or idle frame.
    Data(&'a [Word]),
    /// An RXERR: words were received with errors, or may have been lost.
    RxErr,
}

/// Configuration of a multi-lane link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiLaneConfig {
    /// Number of lanes, 1 to 16.
    pub lanes: usize,
    /// Maximum number of lanes that send data. Further active lanes are hot redundant (5.6.10).
    pub max_data_lanes: usize,
    /// Lanes that may send: bit i for lane i (TxEn).
    pub tx_enabled: u16,
    /// Lanes that may receive (RxEn).
    pub rx_enabled: u16,
    /// Uses lane 0 only, without the multi-lane layer's words (5.6.3).
    pub bypass: bool,
    /// Word times from one SKIP to the next (5.5.3d); 0 for a line without an elastic buffer, which needs none.
    pub skip_interval_words: u32,
    /// Words in the 4 us after the lanes were aligned in which an RXERR shows that they are not (5.6.7.1c).
    pub settle_words: u32,
    /// Configuration of each lane.
    pub lane: LaneConfig,
}

impl MultiLaneConfig {
    /// Creates the default configuration for a number of lanes with this data signalling rate each, in line bits per
    /// second. All lanes send and receive.
    pub const fn at_rate(lanes: usize, bits_per_second: u64) -> Self {
        Self {
            lanes,
            max_data_lanes: MAX_LANES,
            tx_enabled: u16::MAX,
            rx_enabled: u16::MAX,
            bypass: false,
            skip_interval_words: 5000,
            settle_words: words_in_us(4, bits_per_second),
            lane: LaneConfig::at_rate(bits_per_second),
        }
    }
}

/// Number of lanes that a link cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 16 lanes, found {found}: configure between 1 and 16")]
pub struct LaneCountError {
    /// The number.
    pub found: usize,
}

/// State of the alignment state machine (figure 5-37).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// The lanes are not aligned: ACTIVE and ALIGN words are sent.
    NotReady,
    /// The lanes are aligned at this end: rows are sent, with ALIGN words between them.
    NearEndReady,
    /// The lanes are aligned at both ends: rows are sent.
    BothEndsReady,
}

/// Why lanes that were aligned are not any more (5.6.7.1c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misalignment {
    /// A lane became active or inactive at this end.
    NearEndLanes,
    /// A lane became active or inactive at the far end.
    FarEndLanes,
    /// A lane began or ended to carry data of the far end.
    ReceivingLanes,
    /// An alignment FIFO was full.
    FifoOverflow,
    /// An ALIGN word had another lane's number, or another number of lanes.
    InvalidAlign,
    /// A row had data words and control words.
    InvalidRow,
    /// A row had ALIGN words on some lanes only.
    Slip,
    /// An RXERR was received in the first 4 us.
    EarlyRxErr,
    /// The far end did not become ready in 5000 words. This is not a condition of the standard, in which such an end
    /// would stay so: it needs ACTIVE words, which this end only sends if it is not ready.
    FarEndStuck,
}

/// Counts of each [`Misalignment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MisalignmentCounters {
    /// [`Misalignment::NearEndLanes`].
    pub near_end_lanes: u64,
    /// [`Misalignment::FarEndLanes`].
    pub far_end_lanes: u64,
    /// [`Misalignment::ReceivingLanes`].
    pub receiving_lanes: u64,
    /// [`Misalignment::FifoOverflow`].
    pub fifo_overflows: u64,
    /// [`Misalignment::InvalidAlign`].
    pub invalid_aligns: u64,
    /// [`Misalignment::InvalidRow`].
    pub invalid_rows: u64,
    /// [`Misalignment::Slip`].
    pub slips: u64,
    /// [`Misalignment::EarlyRxErr`].
    pub early_rxerrs: u64,
    /// [`Misalignment::FarEndStuck`].
    pub far_end_stuck: u64,
}

impl MisalignmentCounters {
    /// Counts a misalignment.
    pub(super) fn count(&mut self, cause: Misalignment) {
        *match cause {
            Misalignment::NearEndLanes => &mut self.near_end_lanes,
            Misalignment::FarEndLanes => &mut self.far_end_lanes,
            Misalignment::ReceivingLanes => &mut self.receiving_lanes,
            Misalignment::FifoOverflow => &mut self.fifo_overflows,
            Misalignment::InvalidAlign => &mut self.invalid_aligns,
            Misalignment::InvalidRow => &mut self.invalid_rows,
            Misalignment::Slip => &mut self.slips,
            Misalignment::EarlyRxErr => &mut self.early_rxerrs,
            Misalignment::FarEndStuck => &mut self.far_end_stuck,
        } += 1;
    }
}

/// Counts of the multi-lane layer since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MultiLaneCounters {
    /// Losses of the alignment by cause.
    pub misalignments: MisalignmentCounters,
    /// Rows passed up as [`RxRow::RxErr`].
    pub rxerr_rows: u64,
    /// Rows passed up with a CRC-16 error.
    pub crc_errors: u64,
    /// Words of a link in bypass that were lost because rows were not taken in time.
    pub overrun_words: u64,
    /// Events that were replaced before they were taken.
    pub events_lost: u64,
}

/// Something that happened in the multi-lane layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MultiLaneEvent {
    /// A lane received the far end's capability. An event, not a level: the link reset state machine must not see one
    /// again (5.7.9).
    FarCapability {
        /// The lane.
        lane: usize,
        /// The capability.
        capability: Capability,
        /// Whether no lane was active when the word time began.
        no_lane_active: bool,
    },
    /// A lane became active or inactive, or started its initialisation again.
    Lane {
        /// The lane.
        lane: usize,
        /// The event; not [`lane::Event::FarCapability`].
        event: lane::Event,
    },
}

/// Returns the numbers of the bits that are set, in ascending order.
#[inline]
pub(super) fn bits(mut set: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (bit < MAX_LANES).then_some(bit)
    })
}
