//! A link word by word: one end, from packets to the words of each lane.
//!
//! It is the same link as [`frames`](crate::frames) has, with the same [`Source`] and [`Sink`], but with lanes: the
//! [lane layer](crate::lane) initialises them, the [multi-lane layer](crate::multilane) aligns them, and control words
//! and broadcast frames are inserted in data frames. Use it where lanes matter: against hardware, in a simulation of a
//! line, or to see the words of a link.
//!
//! Call order, in each word time:
//! 1. [`WordLink::receive`] for each word that a lane's line decoder returned, and once with `None` for each lane
//!    without signal. [`Lines`] has the decoders: then call [`Lines::receive`] instead.
//! 2. [`WordLink::release`] for data that the sink did not consume at once.
//! 3. [`WordLink::step`], which passes what has arrived to the sink, and returns the word of each lane to be sent.
//!    [`Lines::encode`] returns their line bits.
//!
//! Before the first word time call [`WordLink::start`] or [`WordLink::start_automatically`].
//!
//! # Link reset
//!
//! A new end resets the link (cold reset), and so do [`WordLink::reset`], a protocol error, data without credit, and a
//! far end that announces its own reset in INIT3. All lanes are then initialised again, and neither end sends frames
//! before both are reset (5.7.9). [`Source::on_reset`] and [`Sink::on_reset`] report it: packets that are not complete are
//! cut. Lanes that fail and return without a link reset lose nothing: what was not acknowledged is sent again.
//!
//! Where the standard leaves a choice, or does not prevent that an end waits for ever:
//! - INIT3 has the reset flag until the far end sends a row, and further reports of the far end's reset are ignored until
//!   then: each lane reports the same one, and an error in the last INIT3 sets a lane back.
//! - An end that has active lanes and has not received the far end's reset flag for 10,000 word times resets the link
//!   again.
//! - After each idle frame of full length a FULL is sent if something is not acknowledged: an ACK may have been lost with
//!   its whole word.
//! - A data frame has at most 64 words for each lane that sends data now; one of up to 64 for each lane of this end is
//!   accepted.
//! - A data frame is dropped as with a CRC-16 error if a word has K-codes other than EOP or EEP and Fills after it: the
//!   CRC-16 does not cover K flags.
//!
//! ```
//! use shotline_spacefibre::frames::{Sink, Source};
//! use shotline_spacefibre::link::{BroadcastMessage, VcConfig};
//! use shotline_spacefibre::multilane::MAX_LANES;
//! use shotline_spacefibre::qos::{Share, VcQos};
//! use shotline_spacefibre::words::{WordConfig, WordLink};
//! use shotline_wire::spacefibre::datagram::PacketEnd;
//!
//! /// Packets of virtual channel 0 to send, or received, and the one that is being sent.
//! #[derive(Default)]
//! struct Packets(Vec<Vec<u8>>, Vec<u8>);
//!
//! impl Source for Packets {
//!     fn ready(&self) -> u32 {
//!         u32::from(!self.0.is_empty())
//!     }
//!     fn read(&mut self, _vc: u8, _max: usize) -> (&[u8], Option<PacketEnd>) {
//!         self.1 = self.0.pop().unwrap_or_default();
//!         (&self.1, Some(PacketEnd::Eop))
//!     }
//!     fn on_reset(&mut self) {}
//! }
//!
//! impl Sink for Packets {
//!     fn write(&mut self, _vc: u8, data: &[u8], _end: Option<PacketEnd>) -> bool {
//!         self.0.push(data.to_vec());
//!         true
//!     }
//!     fn broadcast(&mut self, _message: &BroadcastMessage) {}
//!     fn on_reset(&mut self) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = WordConfig::at_rate(2, 6_250_000_000);
//! let channel = VcConfig { qos: VcQos::new(0, Share::WHOLE), input_words: 1024 };
//! let mut ends = [WordLink::new(config, &[channel])?, WordLink::new(config, &[channel])?];
//! ends[0].start();
//! ends[1].start_automatically();
//! let mut source = Packets(vec![b"hello".to_vec()], Vec::new());
//! let (mut nothing, mut sink) = (Packets::default(), Packets::default());
//! let mut words = [[None; MAX_LANES]; 2];
//! while sink.0.is_empty() {
//!     for lane in 0..2 {
//!         ends[0].receive(lane, words[1][lane]);
//!         ends[1].receive(lane, words[0][lane]);
//!     }
//!     ends[0].step(&mut source, &mut Packets::default(), &mut words[0]);
//!     ends[1].step(&mut nothing, &mut sink, &mut words[1]);
//! }
//! assert_eq!(sink.0, [b"hello"]);
//! # Ok(()) }
//! ```

mod counters;
mod line;
mod receive;
mod reset;
mod segments;
mod transmit;

pub use counters::WordCounters;
pub use line::Lines;

use crate::frames::{Sink, Source};
use crate::link::{DataLink, FRAME_ROWS, LinkCounters, ResetCause, VcConfig};
use crate::multilane::{LaneCountError, MAX_LANES, MultiLane, MultiLaneConfig, MultiLaneEvent, RxRow};
use crate::qos::{QosError, Share};
use receive::Receiver;
use reset::LinkReset;
use shotline_wire::spacefibre::{Capability, Word};
use transmit::Transmitter;

/// Share of the link for broadcast frames.
const BROADCAST_SHARE: Share = Share::WHOLE;

/// Options of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordConfig {
    /// Lanes of the link.
    pub lanes: MultiLaneConfig,
    /// Scrambles data frames that are sent.
    pub scrambled: bool,
}

impl WordConfig {
    /// Creates the default configuration for a number of lanes with this data signalling rate each, in line bits per
    /// second.
    pub const fn at_rate(lanes: usize, bits_per_second: u64) -> Self {
        Self { lanes: MultiLaneConfig::at_rate(lanes, bits_per_second), scrambled: true }
    }
}

/// Configuration that a link cannot have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WordLinkError {
    /// Of its lanes.
    #[error(transparent)]
    Lanes(#[from] LaneCountError),
    /// Of the quality of service of its channels.
    #[error(transparent)]
    Qos(#[from] QosError),
}

/// One end of a link.
#[derive(Clone, Debug)]
pub struct WordLink {
    config: WordConfig,
    lanes: MultiLane,
    link: DataLink,
    reset: LinkReset,
    transmitter: Transmitter,
    receiver: Receiver,
}

impl WordLink {
    /// Creates an end that is not started.
    ///
    /// # Errors
    /// If there are not 1 to 16 lanes, or the quality of service of the channels cannot be kept.
    ///
    /// # Panics
    /// If there are not 1 to 32 channels.
    pub fn new(config: WordConfig, channels: &[VcConfig]) -> Result<Self, WordLinkError> {
        let lanes = MultiLane::new(config.lanes)?;
        let data_lanes = config.lanes.max_data_lanes.clamp(1, lanes.lanes());
        let mut link = DataLink::new(data_lanes as u8, channels, BROADCAST_SHARE)?;
        link.count_single_rows();
        let mut end = Self {
            config,
            transmitter: Transmitter::new(link.max_segment()),
            receiver: Receiver::new(FRAME_ROWS as usize * lanes.lanes()),
            lanes,
            link,
            reset: LinkReset::new(),
        };
        end.announce(true);
        Ok(end)
    }

    /// Initialises all lanes (LaneStart).
    pub fn start(&mut self) {
        self.lanes.set_start(u16::MAX, true);
    }
    /// Initialises each lane as soon as it has a signal (AutoStart).
    pub fn start_automatically(&mut self) {
        self.lanes.set_auto_start(u16::MAX, true);
    }
    /// Requests a link reset with the next [`Self::step`]: what is in flight is lost.
    pub fn reset(&mut self) {
        self.link.request_reset(ResetCause::Requested);
    }

    /// Returns `true` while both ends are reset and at least one lane carries data to the far end.
    pub fn is_up(&self) -> bool {
        self.reset.is_initialised() && self.lanes.data_lanes() > 0
    }
    /// Returns the multi-lane layer and its lanes, for their status.
    #[inline]
    pub fn lanes(&self) -> &MultiLane {
        &self.lanes
    }
    /// Returns the multi-lane layer to control single lanes. Its capability, its rows and its events belong to the link.
    pub fn lanes_mut(&mut self) -> &mut MultiLane {
        &mut self.lanes
    }
    /// Returns the data link layer: credit, quality of service, broadcast messages.
    pub fn link(&mut self) -> &mut DataLink {
        &mut self.link
    }
    /// Returns the counters of the data link layer.
    pub fn link_counters(&self) -> &LinkCounters {
        self.link.counters()
    }
    /// Returns the counters of received frames.
    pub fn counters(&self) -> &WordCounters {
        &self.receiver.counters
    }
    /// Returns `true` while a data frame is being received.
    pub fn is_receiving_data(&self) -> bool {
        self.receiver.is_in_data_frame()
    }
    /// Frees the space of words that a sink has consumed later ([`Sink::write`]).
    pub fn release(&mut self, vc: u8, words: u32) {
        self.link.release(vc, words);
    }

    /// Takes a word that a lane's line decoder returned, or `None` if it has no signal.
    ///
    /// # Panics
    /// If the link does not have this lane.
    #[inline(always)]
    pub fn receive(&mut self, lane: usize, word: Option<Word>) {
        self.lanes.receive(lane, word);
    }

    /// Ends a word time: processes what was received, and returns each lane's word to be sent, or `None` for a lane whose
    /// driver is off. The entries of lanes that the link does not have stay as they are.
    #[inline]
    pub fn step(&mut self, source: &mut impl Source, sink: &mut impl Sink, words: &mut [Option<Word>; MAX_LANES]) {
        while let Some(event) = self.lanes.next_event() {
            self.on_event(event);
        }
        let mut is_first_row = false;
        while let Some(row) = self.lanes.next_row() {
            if self.reset.is_initialised() {
                is_first_row |= !matches!(row, RxRow::RxErr) && self.reset.on_row();
                self.receiver.receive(row, &mut self.link, sink);
            }
        }
        if is_first_row {
            self.announce(false);
        }
        if self.link.take_reset().is_some() {
            self.reset_link(source, sink);
        }
        if self.reset.tick(self.lanes.is_active()) {
            self.receiver.counters.reset_time_outs += 1;
            self.reset_link(source, sink);
        }
        if !self.is_up() {
            self.link.delay_broadcasts();
        }
        let Self { lanes, link, transmitter, reset, .. } = self;
        let is_initialised = reset.is_initialised();
        lanes.transmit(move |lanes| is_initialised.then(move || transmitter.next_row(link, source, lanes)), words);
    }

    fn on_event(&mut self, event: MultiLaneEvent) {
        let MultiLaneEvent::FarCapability { capability, no_lane_active, .. } = event else { return };
        if self.reset.on_far_capability(capability.contains(Capability::LINK_RESET), no_lane_active) {
            self.link.request_reset(ResetCause::FarEnd);
        }
    }

    /// Near-End Reset (5.7.9.3, 5.7.10).
    fn reset_link(&mut self, source: &mut impl Source, sink: &mut impl Sink) {
        self.reset.begin();
        self.announce(true);
        self.lanes.reset_link();
        self.lanes.reset_lanes();
        self.link.reset();
        self.transmitter.reset();
        self.receiver.discard_frame();
        source.on_reset();
        sink.on_reset();
    }

    /// Sets the capability of the next initialisation of each lane.
    fn announce(&mut self, is_reset: bool) {
        let capability = Capability::default()
            .with(Capability::LINK_RESET, is_reset)
            .with(Capability::DATA_SCRAMBLED, self.config.scrambled);
        self.lanes.set_capability(capability);
    }
}
