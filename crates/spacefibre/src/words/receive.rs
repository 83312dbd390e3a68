//! Identification of received words (ECSS 5.7.8), and the packets in them.

use super::counters::WordCounters;
use crate::frames::Sink;
use crate::link::{BroadcastMessage, DataLink, FRAME_ROWS};
use crate::multilane::RxRow;
use arrayvec::ArrayVec;
use shotline_wire::spacefibre::character::{EEP, EOP, FILL};
use shotline_wire::spacefibre::datagram::{PacketEnd, Record};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber, Word};

/// State of the data word identification state machine (figure 5-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// RxNothing.
    Nothing,
    /// RxDataFrame.
    Data,
    /// RxBroadcastFrame.
    Broadcast,
    /// RxBroadcast&DataFrame.
    BroadcastInData,
    /// RxIdleFrame.
    Idle,
}

/// Receiver of rows.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    state: State,
    vc: u8,
    /// Data words of the data frame, or words of the idle frame.
    words: usize,
    /// Characters of the data words.
    characters: Box<[[u8; 4]]>,
    /// Ends of packets in the data frame: each with its word, and its position in that.
    ends: Vec<(usize, usize, PacketEnd)>,
    is_malformed: bool,
    broadcast: ArrayVec<Word, 3>,
    pub(super) counters: WordCounters,
}

impl Receiver {
    /// Creates a receiver of data frames of up to `max_words` words.
    pub(super) fn new(max_words: usize) -> Self {
        Self {
            state: State::Nothing,
            vc: 0,
            words: 0,
            characters: vec![[0; 4]; max_words].into(),
            ends: Vec::with_capacity(max_words),
            is_malformed: false,
            broadcast: ArrayVec::new(),
            counters: WordCounters::default(),
        }
    }

    /// Discards the present frame, without an error if that is expected: by a RETRY or a link reset.
    pub(super) fn discard_frame(&mut self) {
        let has_data = matches!(self.state, State::Data | State::BroadcastInData);
        self.counters.frames_cut += u64::from(has_data);
        self.state = State::Nothing;
    }

    /// Returns `true` in a data frame.
    pub(super) fn is_in_data_frame(&self) -> bool {
        matches!(self.state, State::Data | State::BroadcastInData)
    }

    /// Returns `true` in the states in which an error requests a NACK (5.7.7.2.2a).
    fn is_in_frame(&self) -> bool {
        self.is_in_data_frame() || self.state == State::Broadcast
    }

    /// Processes a row.
    #[inline]
    pub(super) fn receive(&mut self, row: RxRow<'_>, link: &mut DataLink, sink: &mut impl Sink) {
        match row {
            RxRow::Data(words) if self.state == State::Data => self.receive_data(words, link),
            RxRow::Data(words) => self.receive_other_data(words, link),
            RxRow::Control { word, crc_error } => self.receive_control(word, crc_error, link, sink),
            RxRow::RxErr => {
                link.on_rxerr(self.is_in_frame());
                self.discard_frame();
            }
        }
    }

    /// Processes a row of a data frame.
    #[inline]
    fn receive_data(&mut self, words: &[Word], link: &mut DataLink) {
        let first = self.words;
        let Some(characters) = self.characters.get_mut(first..first + words.len()) else {
            return self.on_frame_error(link);
        };
        self.words += words.len();
        let mut control = 0;
        for (to, word) in characters.iter_mut().zip(words) {
            *to = word.characters;
            control |= word.control;
        }
        if control != 0 {
            let ends = (first..).zip(words).filter(|(_, word)| word.control != 0);
            ends.for_each(|(index, word)| self.receive_end(index, *word));
        }
    }

    /// Processes a data word with K-codes: characters, EOP or EEP, and Fills.
    fn receive_end(&mut self, index: usize, Word { characters, control }: Word) {
        let used = control.trailing_zeros() as usize % 4;
        let end = match characters[used] {
            EOP => PacketEnd::Eop,
            EEP => PacketEnd::Eep,
            _ => return self.is_malformed = true,
        };
        self.is_malformed |= control != 0xF << used & 0xF || characters[used + 1..].iter().any(|code| *code != FILL);
        self.ends.push((index, used, end));
    }

    /// Processes a row of another frame, or outside of frames.
    fn receive_other_data(&mut self, words: &[Word], link: &mut DataLink) {
        match self.state {
            State::Nothing | State::Data => {}
            State::Idle => {
                self.words += 1;
                if self.words > FRAME_ROWS as usize {
                    self.on_frame_error(link);
                }
            }
            State::Broadcast | State::BroadcastInData => {
                if let Some(word) = words.first()
                    && self.broadcast.try_push(*word).is_err()
                {
                    self.on_frame_error(link);
                }
            }
        }
    }

    fn on_frame_error(&mut self, link: &mut DataLink) {
        link.on_frame_error();
        self.discard_frame();
    }

    fn receive_control(&mut self, word: Word, crc_error: bool, link: &mut DataLink, sink: &mut impl Sink) {
        let control = match ControlWord::parse(word) {
            Ok(Some(control)) => control,
            // Unknown words are ignored (5.7.8).
            Ok(None) => return,
            Err(_) => {
                link.on_crc8_error(self.is_in_frame());
                return self.discard_frame();
            }
        };
        match control {
            ControlWord::StartDataFrame { vc } => self.begin_data(vc, link),
            ControlWord::EndDataFrame { seq, .. } => self.end_data(seq, crc_error, link, sink),
            ControlWord::StartBroadcastFrame { .. } => self.begin_broadcast(word, link),
            ControlWord::EndBroadcastFrame { seq, .. } => self.end_broadcast(word, seq, link, sink),
            ControlWord::StartIdleFrame { .. } => self.begin_idle(control, link),
            ControlWord::Retry => {
                link.on_control(control);
                self.discard_frame();
            }
            _ => {
                if !link.on_inserted_control(control) {
                    self.discard_frame();
                }
            }
        }
    }

    fn begin_data(&mut self, vc: u8, link: &mut DataLink) {
        if self.is_in_frame() {
            return self.on_frame_error(link);
        }
        (self.state, self.vc, self.words, self.is_malformed) = (State::Data, vc, 0, false);
        self.ends.clear();
        self.counters.data_frames += 1;
    }

    fn end_data(&mut self, seq: SequenceNumber, crc_error: bool, link: &mut DataLink, sink: &mut impl Sink) {
        match self.state {
            State::Nothing => return,
            State::Data => {}
            State::Broadcast | State::BroadcastInData | State::Idle => return self.on_frame_error(link),
        }
        self.state = State::Nothing;
        self.counters.malformed_frames += u64::from(self.is_malformed && !crc_error);
        if link.on_data_frame(self.vc, self.words as u32, seq, !crc_error && !self.is_malformed) {
            self.deliver(link, sink);
        }
    }

    /// Passes the characters of the data frame to the sink.
    fn deliver(&mut self, link: &mut DataLink, sink: &mut impl Sink) {
        let characters = self.characters.as_flattened();
        let mut begin = 0;
        let ends = self.ends.iter().map(|(word, used, end)| (4 * word + used, Some(*end)));
        for (at, end) in ends.chain([(4 * self.words, None)]) {
            let data = &characters[begin..at];
            let words = Record::data_words(data.len() as u16, end);
            begin += 4 * words as usize;
            if words > 0 && sink.write(self.vc, data, end) {
                link.release(self.vc, words);
            }
        }
    }

    fn begin_broadcast(&mut self, word: Word, link: &mut DataLink) {
        self.state = match self.state {
            State::Nothing | State::Idle => State::Broadcast,
            State::Data => State::BroadcastInData,
            State::Broadcast | State::BroadcastInData => return self.on_frame_error(link),
        };
        self.broadcast.clear();
        self.broadcast.push(word);
    }

    fn end_broadcast(&mut self, end: Word, seq: SequenceNumber, link: &mut DataLink, sink: &mut impl Sink) {
        let next = match self.state {
            State::Nothing => return,
            State::Broadcast => State::Nothing,
            State::BroadcastInData => State::Data,
            State::Data | State::Idle => return self.on_frame_error(link),
        };
        // The CRC-8 of a frame without its two data words does not match.
        let message = match self.broadcast[..] {
            [start, first, second] => BroadcastMessage::decode([start, first, second, end]),
            _ => None,
        };
        match message.filter(|(.., crc8_ok)| link.on_broadcast_frame(seq, *crc8_ok)) {
            Some((message, ..)) => {
                self.state = next;
                sink.broadcast(&message);
            }
            None => {
                if message.is_none() {
                    link.on_crc8_error(true);
                }
                self.discard_frame();
            }
        }
    }

    fn begin_idle(&mut self, word: ControlWord, link: &mut DataLink) {
        if !link.on_inserted_control(word) {
            self.discard_frame();
        } else if self.is_in_frame() {
            self.on_frame_error(link);
        } else {
            (self.state, self.words) = (State::Idle, 0);
        }
    }
}
