//! What is sent in each row: frames, and the control words inserted in them (ECSS 5.3.10).

use super::segments::Segments;
use crate::frames::Source;
use crate::link::{Control, DataLink, FRAME_ROWS};
use crate::multilane::TxRow;
use shotline_wire::spacefibre::{ControlWord, Scrambler, Word};
use std::ops::Range;

/// Random words of an idle frame (ECSS 5.3.8.3).
const IDLE_WORDS: u8 = FRAME_ROWS as u8;

/// Sender of rows.
#[derive(Clone, Debug)]
pub(super) struct Transmitter {
    segments: Segments,
    /// Words that are left of the data frame that is sent, unless a broadcast frame interrupts it.
    data: Option<Range<usize>>,
    /// Words of a broadcast frame.
    broadcast: [Word; 4],
    /// Those of them that were sent.
    broadcast_sent: usize,
    /// Words left of an idle frame, 0 if there is none.
    idle_left: u8,
    /// Random words of idle frames, continuous from link reset.
    idle: Scrambler,
}

impl Transmitter {
    /// Creates a sender of segments of up to `max_words` words.
    pub(super) fn new(max_words: u32) -> Self {
        Self {
            segments: Segments::new(max_words as usize),
            data: None,
            broadcast: [Word::RXERR; 4],
            broadcast_sent: 4,
            idle_left: 0,
            idle: Scrambler::new(),
        }
    }

    /// Abandons the present frame (link reset, 5.7.10b).
    pub(super) fn reset(&mut self) {
        self.abandon();
        self.idle = Scrambler::new();
    }

    fn abandon(&mut self) {
        (self.data, self.broadcast_sent, self.idle_left) = (None, 4, 0);
    }

    /// Returns the next row, of up to `lanes` words if it is one of data.
    #[inline]
    pub(super) fn next_row(&mut self, link: &mut DataLink, source: &mut impl Source, lanes: usize) -> TxRow<'_> {
        link.on_row();
        if self.broadcast_sent < self.broadcast.len() && !link.is_retry_pending() {
            let word = self.broadcast[self.broadcast_sent];
            self.broadcast_sent += 1;
            return TxRow::Control(word);
        }
        if let Some(control) = link.next_control() {
            return TxRow::Control(self.begin_control(control));
        }
        let Some(words) = &mut self.data else {
            return TxRow::Control(self.between_data_frames(link, source, lanes));
        };
        if words.start == words.end {
            self.data = None;
            return TxRow::Control(ControlWord::EndDataFrame { seq: link.finish_segment(), crc: 0 }.emit());
        }
        let first = words.start;
        words.start = words.end.min(first + lanes);
        TxRow::Data(self.segments.words(first..words.start))
    }

    /// Returns a control word, or the first word of a broadcast frame.
    fn begin_control(&mut self, control: Control) -> Word {
        match control {
            Control::Word(word) => word.emit(),
            Control::Broadcast(message, seq) => {
                self.idle_left = 0;
                (self.broadcast, self.broadcast_sent) = (message.encode(seq), 1);
                self.broadcast[0]
            }
            Control::Retry => {
                self.abandon();
                ControlWord::Retry.emit()
            }
        }
    }

    /// Returns SDF if there is a segment, or else a word of an idle frame, or FULL.
    fn between_data_frames(&mut self, link: &mut DataLink, source: &mut impl Source, lanes: usize) -> Word {
        if let Some(word) = self.begin_data_frame(link, source, lanes) {
            self.idle_left = 0;
            return word;
        }
        if self.idle_left > 0 && !link.is_probe_pending() {
            self.idle_left -= 1;
            link.pass_idle_rows(1);
            if self.idle_left == 0 {
                // An ACK may have been lost with its whole word, which shows nowhere else.
                link.probe();
            }
            return Word::data(self.idle.next_word());
        }
        let word = link.idle_word();
        if let ControlWord::StartIdleFrame { .. } = word {
            self.idle_left = IDLE_WORDS;
        }
        word.emit()
    }

    /// Begins the data frame of a segment to send again, or of a new one, and returns its SDF.
    fn begin_data_frame(&mut self, link: &mut DataLink, source: &mut impl Source, lanes: usize) -> Option<Word> {
        let segment = match link.unsent_segment() {
            Some(segment) => segment,
            None => {
                let vc = link.select(source.ready())?;
                // A far end may have fewer lanes, and then accepts no longer frames.
                let limit = link.segment_limit(vc).min(FRAME_ROWS * lanes as u32);
                let (characters, end) = source.read(vc, 4 * limit as usize);
                let words = self.segments.store(link.next_slot(), characters, end);
                link.admit(vc, words)
            }
        };
        self.data = Some(self.segments.range(segment));
        Some(ControlWord::StartDataFrame { vc: segment.vc }.emit())
    }
}
