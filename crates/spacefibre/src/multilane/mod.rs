//! Multi-lane layer (5.6): one link over 1 to 16 lanes.
//!
//! The data link layer sends and receives rows. A row of a data frame has one word per data-sending lane; a control
//! word, and each word of a broadcast or idle frame, is carried by all of them. The CRC-16 and the scrambling of data
//! frames are each lane's own, so they are computed here: the CRC field of an EDF is filled in when it is sent, and
//! checked when it is received.
//!
//! In each word time call
//! 1. [`MultiLane::receive`] for each word that a lane's decoder returned, and for each lane without signal,
//! 2. [`MultiLane::next_row`] until it returns `None`,
//! 3. [`MultiLane::next_event`] until it returns `None`,
//! 4. [`MultiLane::transmit`] once.
//!
//! Lanes are aligned by the words ACTIVE and ALIGN, which tolerates a skew of up to 3 words. If a lane fails, the
//! others are aligned again and carry the rows; words in flight are lost, which is reported as [`RxRow::RxErr`] and
//! repaired by the data link layer. With one lane, or a far end that has only one, rows are words of lane 0 (bypass,
//! 5.6.3).
//!
//! A lane that sends only or receives only needs another one of the same link in both directions (5.6.9).
//!
//! Where the standard leaves a choice, or does not prevent that an end waits for ever:
//! - A link stays in Not Ready until it has sent 7 ACTIVE words, because the far end needs two equal ones.
//! - A link that receives nothing but ACTIVE words for 5000 word times returns to Not Ready
//!   ([`Misalignment::FarEndStuck`]).
//! - Only lanes that send only are activated by the far end's ACTIVE words (FarEndActive, 5.6.9.2).
//! - A row of an EDF has a CRC error if some lane received another control word. Otherwise the word of the lowest lane
//!   is passed up (5.6.5e), and others are not compared with it.
//!
//! ```
//! use shotline_spacefibre::multilane::{MAX_LANES, MultiLane, MultiLaneConfig, RxRow, TxRow};
//! use shotline_wire::spacefibre::{ControlWord, Word};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = MultiLaneConfig::at_rate(2, 6_250_000_000);
//! let mut ends = [MultiLane::new(config)?, MultiLane::new(config)?];
//! ends[0].set_start(0b11, true);
//! ends[1].set_auto_start(0b11, true);
//! let mut lines = [[None; MAX_LANES]; 2];
//! let mut received = None;
//! while received.is_none() {
//!     for (end, other) in [(0, 1), (1, 0)] {
//!         for lane in 0..2 {
//!             ends[end].receive(lane, lines[other][lane]);
//!         }
//!         while let Some(row) = ends[end].next_row() {
//!             if let RxRow::Control { word, .. } = row {
//!                 received = Some(word);
//!             }
//!         }
//!     }
//!     for end in 0..2 {
//!         ends[end].transmit(|_words| Some(TxRow::Control(ControlWord::Retry.emit())), &mut lines[end]);
//!     }
//! }
//! assert_eq!(received, Some(Word::comma([0xFC, 0x87, 0x00, 0x00])));
//! # Ok(()) }
//! ```

mod align;
mod column;
mod control;
mod fifo;
mod kind;
mod manager;
#[cfg(test)]
mod tests;
mod transmit;
mod types;

pub use types::{
    Alignment, LaneCountError, MAX_LANES, Misalignment, MisalignmentCounters, MultiLaneConfig, MultiLaneCounters,
    MultiLaneEvent, RxRow, TxRow,
};

use crate::events::Events;
use crate::lane::{Lane, State};
use align::{Aligner, Row};
use arrayvec::ArrayVec;
use column::{Decoder, Encoder};
use fifo::{Entry, Fifo};
use kind::Kind;
use manager::Manager;
use shotline_wire::spacefibre::{Scrambler, Word};

/// Frame that received rows belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// No frame, or one whose beginning was not received.
    None,
    /// A data frame.
    Data,
    /// A broadcast frame within a data frame.
    BroadcastInData,
    /// Another broadcast frame.
    Broadcast,
    /// An idle frame.
    Idle,
}

impl Frame {
    /// Returns the frame that follows a control word.
    const fn after(self, kind: Kind) -> Self {
        match (kind, self) {
            (Kind::StartData, _) => Self::Data,
            (Kind::StartIdle, _) => Self::Idle,
            (Kind::EndData | Kind::Retry, _) => Self::None,
            (Kind::StartBroadcast, Self::Data | Self::BroadcastInData) => Self::BroadcastInData,
            (Kind::StartBroadcast, _) => Self::Broadcast,
            (Kind::EndBroadcast, Self::BroadcastInData) => Self::Data,
            (Kind::EndBroadcast, _) => Self::None,
            _ => self,
        }
    }
}

/// One lane with what the multi-lane layer keeps for it.
#[derive(Clone, Debug)]
struct Port {
    lane: Lane,
    encoder: Encoder,
    decoder: Decoder,
    /// State that [`Manager`] has seen.
    state: State,
}

impl Port {
    /// Returns `true` if the lane has changed its state or has an event.
    #[inline]
    fn has_changed(&self) -> bool {
        self.lane.state() != self.state || self.lane.has_event()
    }
}

/// Multi-lane layer of one end of a link, with its lanes.
#[derive(Clone, Debug)]
pub struct MultiLane {
    config: MultiLaneConfig,
    ports: ArrayVec<Port, MAX_LANES>,
    manager: Manager,
    aligner: Aligner,
    /// Words of lane 0 in bypass.
    bypass_words: Fifo,
    /// Frame of the received rows.
    frame: Frame,
    /// Words of the row that [`Self::next_row`] has returned.
    row: [Word; MAX_LANES],
    /// Word times until the next SKIP.
    skip_words: u32,
    /// Rows sent since the last ALIGN.
    slot: u8,
    /// Random words of the hot redundant lanes.
    redundant: Scrambler,
    events: Events<MultiLaneEvent, 64>,
    counters: MultiLaneCounters,
}

impl MultiLane {
    /// Creates a multi-lane layer whose lanes are in [`State::ClearLine`].
    ///
    /// # Errors
    /// If the number of lanes is not 1 to 16.
    pub fn new(config: MultiLaneConfig) -> Result<Self, LaneCountError> {
        let found = config.lanes;
        if found == 0 || found > MAX_LANES {
            return Err(LaneCountError { found });
        }
        let port = Port {
            lane: Lane::new(config.lane),
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            state: State::ClearLine,
        };
        let mut layer = Self {
            config,
            ports: std::iter::repeat_n(port, found).collect(),
            manager: Manager::new(&config),
            aligner: Aligner::new(config.settle_words),
            bypass_words: Fifo::new(),
            frame: Frame::None,
            row: [Word::RXERR; MAX_LANES],
            skip_words: config.skip_interval_words,
            slot: 0,
            redundant: Scrambler::new(),
            events: Events::new(),
            counters: MultiLaneCounters::default(),
        };
        layer.update_lanes();
        Ok(layer)
    }

    /// Takes a word that a lane's line decoder returned, or `None` if it has no signal.
    ///
    /// # Panics
    /// If the link does not have this lane.
    #[inline(always)]
    pub fn receive(&mut self, lane: usize, word: Option<Word>) {
        let port = &mut self.ports[lane];
        match word {
            Some(Word { characters, control: 0 }) if port.lane.passes_data() => {
                let word = Word::data(port.decoder.decode_data(characters));
                if self.manager.is_bypass() {
                    self.receive_word_in_bypass(lane, Kind::Data, word, false);
                } else {
                    self.aligner.receive_data(lane, word);
                }
            }
            Some(word) if port.lane.passes(word) => self.receive_word(lane, word),
            _ => self.receive_any(lane, word),
        }
    }

    /// [`Self::receive`] for a word that may change the lane's state.
    fn receive_any(&mut self, lane: usize, word: Option<Word>) {
        let port = &mut self.ports[lane];
        let word = port.lane.receive_any(word);
        if port.has_changed() {
            self.update_lanes();
        }
        if let Some(word) = word {
            self.receive_word(lane, word);
        }
    }

    /// Takes another word that a lane passed up.
    fn receive_word(&mut self, lane: usize, word: Word) {
        let kind = Kind::of(word);
        let (word, crc_error) = self.ports[lane].decoder.decode(kind, word);
        if self.manager.is_bypass() {
            self.receive_word_in_bypass(lane, kind, word, crc_error);
        } else if let Some(far_active) = self.aligner.receive(lane, kind, word, crc_error)
            && self.manager.set_far_active(far_active)
        {
            self.update_lanes();
        }
    }

    /// Takes a word in bypass. The multi-lane layer's own words and other lanes' are discarded (5.6.3).
    #[inline]
    fn receive_word_in_bypass(&mut self, lane: usize, kind: Kind, word: Word, crc_error: bool) {
        if lane != 0 || matches!(kind, Kind::Pad | Kind::Active | Kind::Align) {
            return;
        }
        let is_stored = self.bypass_words.push(Entry { word, class: 0, crc_error });
        self.counters.overrun_words += u64::from(!is_stored);
    }

    /// Removes and returns the oldest row received.
    #[inline]
    pub fn next_row(&mut self) -> Option<RxRow<'_>> {
        let row = if self.manager.is_bypass() { self.next_bypass_row() } else { self.aligner.next_row(&mut self.row) };
        Some(match row? {
            Row::Data(len) => {
                // A broadcast or idle frame's words are the same on all lanes (5.6.4.3a, 5.6.4.4a).
                let is_replicated = matches!(self.frame, Frame::BroadcastInData | Frame::Broadcast | Frame::Idle);
                RxRow::Data(&self.row[..if is_replicated { 1 } else { len }])
            }
            Row::Control { word, crc_error } => {
                self.frame = self.frame.after(Kind::of(word));
                self.counters.crc_errors += u64::from(crc_error);
                RxRow::Control { word, crc_error }
            }
            Row::RxErr => {
                self.frame = Frame::None;
                self.counters.rxerr_rows += 1;
                RxRow::RxErr
            }
        })
    }

    /// Removes and returns the oldest row in bypass.
    fn next_bypass_row(&mut self) -> Option<Row> {
        let Entry { word, crc_error, .. } = self.bypass_words.head()?;
        self.bypass_words.pop();
        Some(match Kind::of(word) {
            Kind::Data => {
                self.row[0] = word;
                Row::Data(1)
            }
            Kind::RxErr => Row::RxErr,
            _ => Row::Control { word, crc_error },
        })
    }
}

/// Control and status.
impl MultiLane {
    /// Discards the words that the multi-lane layer holds, and aligns the lanes again (link reset, 5.7.10b). A changed
    /// maximum number of data-sending lanes takes effect.
    pub fn reset_link(&mut self) {
        self.aligner.reset();
        self.bypass_words.clear();
        (self.frame, self.slot) = (Frame::None, 0);
        self.manager.apply_max_data_lanes();
        self.update_lanes();
        self.reset_columns(u16::MAX);
    }

    /// Resets all lanes (LaneReset, 5.7.9.3b.2).
    pub fn reset_lanes(&mut self) {
        self.ports.iter_mut().for_each(|port| port.lane.reset());
        self.update_lanes();
    }

    /// Resets one lane.
    ///
    /// # Panics
    /// If the link does not have this lane.
    pub fn reset_lane(&mut self, lane: usize) {
        self.ports[lane].lane.reset();
        self.update_lanes();
    }

    /// Sets or clears LaneStart of these lanes: bit i for lane i.
    pub fn set_start(&mut self, lanes: u16, start: bool) {
        self.for_lanes(lanes, |lane| lane.set_start(start));
    }

    /// Sets or clears AutoStart of these lanes: bit i for lane i.
    pub fn set_auto_start(&mut self, lanes: u16, auto_start: bool) {
        self.for_lanes(lanes, |lane| lane.set_auto_start(auto_start));
    }

    /// Calls a function for each of these lanes that the link has.
    fn for_lanes(&mut self, lanes: u16, mut function: impl FnMut(&mut Lane)) {
        for (_, port) in self.ports.iter_mut().enumerate().filter(|(lane, _)| lanes >> lane & 1 == 1) {
            function(&mut port.lane);
        }
    }

    /// Returns the state of the alignment. A link in bypass is ready while its lane is active.
    pub fn alignment(&self) -> Alignment {
        match (self.manager.is_bypass(), self.ports[0].lane.is_active()) {
            (true, true) => Alignment::BothEndsReady,
            (true, false) => Alignment::NotReady,
            (false, _) => self.aligner.state(),
        }
    }

    /// Returns `true` if at least one lane is active.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.manager.active() != 0
    }

    /// Returns the number of words that a row of data has now, or 0 while no rows are sent.
    #[inline]
    pub fn data_lanes(&self) -> usize {
        if self.manager.is_bypass() {
            usize::from(self.ports[0].lane.is_active())
        } else if self.aligner.state() == Alignment::NotReady {
            0
        } else {
            self.manager.data_lanes()
        }
    }

    /// Returns the lanes that are active: bit i for lane i.
    pub fn active_lanes(&self) -> u16 {
        self.manager.active()
    }

    /// Returns the lanes that send data: bit i for lane i.
    pub fn data_sending_lanes(&self) -> u16 {
        if self.manager.is_bypass() { self.manager.active() & 1 } else { self.manager.data_sending() }
    }

    /// Returns the lanes that receive data: bit i for lane i.
    pub fn data_receiving_lanes(&self) -> u16 {
        if self.manager.is_bypass() { self.manager.active() & 1 } else { self.aligner.receiving() }
    }

    /// Returns `true` if only lane 0 is used.
    pub fn is_bypass(&self) -> bool {
        self.manager.is_bypass()
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.ports.len()
    }

    /// Returns a lane, for what its line decoder needs and for its status.
    ///
    /// # Panics
    /// If the link does not have this lane.
    #[inline]
    pub fn lane(&self, lane: usize) -> &Lane {
        &self.ports[lane].lane
    }

    /// Removes and returns the oldest event. Take them all in each word time: up to 64 are kept.
    #[inline]
    pub fn next_event(&mut self) -> Option<MultiLaneEvent> {
        self.events.pop()
    }

    /// Returns the counters.
    pub fn counters(&self) -> MultiLaneCounters {
        MultiLaneCounters { misalignments: self.aligner.counters(), events_lost: self.events.lost(), ..self.counters }
    }
}
