//! Frames whose contents follow from their number, so that the receiver can verify them.

use super::super::{RxRow, TxRow};
use shotline_random::{SplitMix64, mix};
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::{ControlWord, Scrambler, SequenceNumber, Word};

/// Returns the words of data frame `number`, of which the first is the number.
fn frame(number: u32) -> Vec<Word> {
    let len = mix(number.into()) % 100;
    let mut words = vec![Word::data(number.to_le_bytes())];
    words.extend((0..len).map(|index| Word::data((mix(u64::from(number) << 8 | index) as u32).to_le_bytes())));
    if number.is_multiple_of(3) {
        words.push(Word { characters: [7, 0xFD, 0xFB, 0xFB], control: 0b1110 });
    }
    words
}

/// Returns a broadcast frame, whose contents follow from its channel.
fn broadcast(channel: u8) -> [Word; 4] {
    let start = ControlWord::StartBroadcastFrame { channel, kind: 1 }.emit();
    let [first, second] = [Word::data([channel; 4]), Word::data([!channel; 4])];
    let mut end = ControlWord::EndBroadcastFrame { status: Default::default(), seq: seq(0), crc: 0 }.emit();
    end.characters[3] = crc_of([start, first, second, end]);
    [start, first, second, end]
}

/// Returns the CRC-8 of a broadcast frame.
fn crc_of(words: [Word; 4]) -> u8 {
    let characters = words.map(|word| word.characters);
    crc8(&characters.as_flattened()[..15])
}

fn seq(number: u32) -> SequenceNumber {
    SequenceNumber::from_bits(number as u8 & 0x7F)
}

/// Sends data frames with broadcast frames and control words inside, and idle frames between them.
pub(super) struct Source {
    random: SplitMix64,
    numbers: u32,
    tokens: u32,
    /// Words of the data frame that are not sent yet.
    data: Vec<Word>,
    /// Words that follow on all lanes.
    replicated: std::collections::VecDeque<Word>,
    is_in_frame: bool,
    row: Vec<Word>,
    idle: Scrambler,
    /// Whether only IDLE words are sent.
    pub(super) is_silent: bool,
}

impl Source {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            numbers: 0,
            tokens: 0,
            data: Vec::new(),
            replicated: Default::default(),
            is_in_frame: false,
            row: Vec::new(),
            idle: Scrambler::new(),
            is_silent: false,
        }
    }

    /// Starts again with other frames.
    pub(super) fn restart(&mut self) {
        let numbers = self.numbers + 1000;
        *self = Self { numbers, ..Self::new(self.random.next_u64()) };
    }

    pub(super) fn next_row(&mut self, lanes: usize) -> Option<TxRow<'_>> {
        if self.is_silent {
            return None;
        }
        if let Some(word) = self.replicated.pop_front() {
            return Some(TxRow::Control(word));
        }
        match self.random.below(50) {
            0 => {
                self.replicated.extend(broadcast(self.random.below(256) as u8));
                return self.next_row(lanes);
            }
            1 => {
                self.tokens += 1;
                let token = ControlWord::FlowControlToken { vc: 1, multiplier: 1, seq: seq(self.tokens) };
                return Some(TxRow::Control(token.emit()));
            }
            _ => {}
        }
        if !self.is_in_frame {
            self.start_frame();
            return self.next_row(lanes);
        }
        if self.data.is_empty() {
            self.is_in_frame = false;
            return Some(TxRow::Control(ControlWord::EndDataFrame { seq: seq(self.numbers), crc: 0 }.emit()));
        }
        self.row = self.data.drain(..lanes.min(self.data.len())).collect();
        Some(TxRow::Data(&self.row))
    }

    /// Starts a data frame, sometimes after an idle frame.
    fn start_frame(&mut self) {
        if self.random.chance(0.2) {
            self.replicated.push_back(ControlWord::StartIdleFrame { seq: seq(self.numbers) }.emit());
            let words = self.random.below(20);
            self.replicated.extend((0..words).map(|_| Word::data(self.idle.next_word())));
        }
        self.numbers += 1;
        self.is_in_frame = true;
        self.data = frame(self.numbers);
        self.replicated.push_back(ControlWord::StartDataFrame { vc: self.numbers as u8 & 0x1F }.emit());
    }
}

/// Frame that a sink receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Frame {
    #[default]
    None,
    Data,
    Broadcast {
        is_in_data: bool,
    },
    Idle,
}

/// Verifies received rows.
///
/// Panics if a frame without a reported error differs from what was sent, or if frames are missing and no error was
/// reported.
#[derive(Default)]
pub(super) struct Sink {
    frame: Frame,
    words: Vec<Word>,
    broadcast: Vec<Word>,
    /// Number of the last data frame received, and sequence number of the last token.
    last: Option<u32>,
    last_token: Option<SequenceNumber>,
    /// Data frames received without error.
    pub(super) frames: u64,
    /// Rows of RXERR, and CRC errors.
    pub(super) errors: u64,
    /// Rows of data by the number of their words.
    pub(super) widths: [u64; 17],
    /// Errors when the last frame and the last token were received.
    errors_at_last: u64,
    errors_at_token: u64,
}

impl Sink {
    /// Notes that the receiver was reset.
    pub(super) fn reset(&mut self) {
        self.receive(RxRow::RxErr);
    }

    pub(super) fn receive(&mut self, row: RxRow<'_>) {
        match row {
            RxRow::RxErr => {
                self.errors += 1;
                self.frame = Frame::None;
            }
            RxRow::Data(words) => self.receive_data(words),
            RxRow::Control { word, crc_error } => self.receive_control(word, crc_error),
        }
    }

    fn receive_data(&mut self, words: &[Word]) {
        match self.frame {
            Frame::None => {}
            Frame::Data => {
                self.widths[words.len()] += 1;
                self.words.extend(words);
            }
            Frame::Broadcast { .. } => {
                assert_eq!(words.len(), 1);
                self.broadcast.extend(words);
            }
            Frame::Idle => assert_eq!(words.len(), 1),
        }
    }

    fn receive_control(&mut self, word: Word, crc_error: bool) {
        match ControlWord::parse(word) {
            Ok(Some(ControlWord::StartDataFrame { .. })) => {
                // The data link layer finds a missing EDF.
                self.errors += u64::from(self.frame == Frame::Data);
                self.words.clear();
                self.frame = Frame::Data;
            }
            Ok(Some(ControlWord::StartIdleFrame { .. })) => {
                self.errors += u64::from(self.frame == Frame::Data);
                self.frame = Frame::Idle;
            }
            Ok(Some(ControlWord::StartBroadcastFrame { .. })) => {
                // It also finds a frame in another one of the same kind.
                self.errors += u64::from(matches!(self.frame, Frame::Broadcast { .. }));
                self.frame = Frame::Broadcast { is_in_data: self.frame == Frame::Data };
                self.broadcast = vec![word];
            }
            Ok(Some(ControlWord::EndBroadcastFrame { .. })) => {
                if let Frame::Broadcast { is_in_data } = self.frame {
                    self.broadcast.push(word);
                    let frame: Option<[Word; 4]> = self.broadcast[..].try_into().ok();
                    match frame.filter(|frame| frame[3].characters[3] == crc_of(*frame)) {
                        Some(frame) => assert_eq!(frame, broadcast(frame[0].characters[2])),
                        None => self.errors += 1,
                    }
                    self.frame = if is_in_data { Frame::Data } else { Frame::None };
                }
            }
            Ok(Some(ControlWord::FlowControlToken { seq, .. })) => {
                // The data link layer finds a missing token by its sequence number.
                let is_next = self.last_token.is_none_or(|last| seq == last.next());
                self.errors += u64::from(!is_next && self.errors == self.errors_at_token);
                (self.last_token, self.errors_at_token) = (Some(seq), self.errors);
            }
            Ok(Some(ControlWord::EndDataFrame { seq: number, .. })) => {
                if crc_error {
                    self.errors += 1;
                } else if self.frame == Frame::Data {
                    self.receive_frame(number);
                }
                self.frame = Frame::None;
            }
            // Bit errors make other control words.
            _ => self.errors += 1,
        }
    }

    fn receive_frame(&mut self, number: SequenceNumber) {
        let received = u32::from_le_bytes(self.words[0].characters);
        assert_eq!(seq(received), number);
        assert_eq!(self.words, frame(received));
        let is_next = self.last.is_none_or(|last| received == last + 1);
        let is_later = self.last.is_none_or(|last| received > last);
        assert!(is_next || (is_later && self.errors > self.errors_at_last), "frame {received} after {:?}", self.last);
        (self.last, self.errors_at_last) = (Some(received), self.errors);
        self.frames += 1;
    }
}
