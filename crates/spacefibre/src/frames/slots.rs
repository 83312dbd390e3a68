//! Encoded data frames that wait for their acknowledgement.

use crate::column::{Columns, Form};
use crate::link::DATA_SLOTS;
use shotline_wire::spacefibre::datagram::{PacketEnd, Record};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber, Word, character};

/// Bytes of a record before its data words: record header and SDF.
const HEAD_LEN: usize = Record::HEADER_LEN + 4;

/// Returns the maximum length of the record of a data frame.
pub(super) fn slot_len(lanes: u8) -> usize {
    HEAD_LEN + (256 + 4) * usize::from(lanes)
}

/// State of one slot besides its bytes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Length of the data words in bytes.
    data_len: u32,
    /// The columns before the EDF. The sequence number, which follows, changes when a frame is sent again.
    columns: Columns,
}

/// How the data frames of a link are encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coding {
    pub(super) lanes: u8,
    /// Kernels of this processor.
    form: &'static Form,
}

impl Coding {
    pub(super) fn new(lanes: u8) -> Self {
        Self { lanes, form: Form::fastest() }
    }
    fn columns(self, vc: u8) -> Columns {
        Columns::with_form(self.form, vc, self.lanes.into())
    }
}

/// The contents of all slots. Data words are scrambled once, when they are stored.
#[derive(Debug)]
pub(super) struct Slots {
    coding: Coding,
    is_scrambled: bool,
    slot_len: usize,
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
}

impl Slots {
    pub(super) fn new(coding: Coding, is_scrambled: bool) -> Self {
        let slot_len = slot_len(coding.lanes);
        Self {
            coding,
            is_scrambled,
            slot_len,
            bytes: vec![0; slot_len * DATA_SLOTS].into(),
            slots: vec![Slot { data_len: 0, columns: coding.columns(0) }; DATA_SLOTS].into(),
        }
    }

    /// Encodes the next characters of a packet, and its end if it follows, in a slot. Returns the number of data words.
    #[inline]
    pub(super) fn store(&mut self, slot: usize, vc: u8, characters: &[u8], end: Option<PacketEnd>) -> u32 {
        let Self { coding, slot_len, is_scrambled, .. } = *self;
        let record = &mut self.bytes[slot * slot_len..][..slot_len];
        let (head, data) = record.split_at_mut(HEAD_LEN);
        let count = characters.len() as u16;
        head[..Record::HEADER_LEN].copy_from_slice(&Record::Data { characters: count, end }.emit());
        head[Record::HEADER_LEN..].copy_from_slice(&ControlWord::StartDataFrame { vc }.emit().characters);
        let words = Record::data_words(count, end);
        let data = &mut data[..4 * words as usize];
        let state = &mut self.slots[slot];
        *state = Slot { data_len: data.len() as u32, columns: coding.columns(vc) };
        let columns = &mut state.columns;
        let (whole, rest) = characters.split_at(characters.len() / 4 * 4);
        let (to, last) = data.split_at_mut(whole.len());
        if is_scrambled {
            columns.scramble(whole, to);
        } else {
            to.copy_from_slice(whole);
            columns.checksum(to);
        }
        if let (Some(end), Some(last)) = (end, last.first_chunk_mut()) {
            last[..rest.len()].copy_from_slice(rest);
            end_word(last, rest.len(), end);
            if is_scrambled {
                *last = columns.scramble_word(last_word(*last, rest.len())).characters;
            } else {
                columns.checksum(last);
            }
        }
        words
    }

    /// Adds the EDFs with a sequence number, and returns the record.
    pub(super) fn finish(&mut self, slot: usize, seq: SequenceNumber) -> &[u8] {
        let Slot { data_len, columns } = &self.slots[slot];
        let record = &mut self.bytes[slot * self.slot_len..][..self.slot_len];
        let ends = record[HEAD_LEN + *data_len as usize..].as_chunks_mut::<4>().0;
        for (lane, end) in ends.iter_mut().enumerate().take(self.coding.lanes.into()) {
            *end = end_of_frame(columns, lane, seq);
        }
        let len = HEAD_LEN + *data_len as usize + 4 * usize::from(self.coding.lanes);
        &record[..len]
    }
}

/// A received data frame whose words are intact or not.
pub(super) struct DataFrame<'a> {
    pub(super) vc: u8,
    pub(super) words: u32,
    pub(super) seq: SequenceNumber,
    pub(super) crc16_ok: bool,
    /// Characters of the packet, unscrambled.
    pub(super) data: &'a [u8],
}

/// Decodes the words of a data frame in place. Returns `None` if SDF or EDFs are not where they must be.
pub(super) fn decode(
    body: &mut [u8],
    characters: u16,
    end: Option<PacketEnd>,
    coding: Coding,
    is_scrambled: bool,
) -> Option<DataFrame<'_>> {
    let words = Record::data_words(characters, end);
    let (start, rest) = body.split_first_chunk_mut::<4>()?;
    let Ok(Some(ControlWord::StartDataFrame { vc })) = ControlWord::parse(Word::comma(*start)) else { return None };
    let (data, ends) = rest.split_at_mut_checked(4 * words as usize)?;
    let mut columns = coding.columns(vc);
    let (whole, rest) = data.split_at_mut(usize::from(characters) / 4 * 4);
    if is_scrambled {
        columns.descramble(whole)
    } else {
        columns.checksum(whole)
    }
    let mut crc16_ok = true;
    if let (Some(end), Some(last)) = (end, rest.first_chunk_mut()) {
        let used = usize::from(characters) % 4;
        let mut expected = *last;
        end_word(&mut expected, used, end);
        crc16_ok = expected == *last;
        if is_scrambled {
            *last = columns.descramble_word(last_word(*last, used)).characters;
        } else {
            columns.checksum(last);
        }
    }
    let ends = ends.as_chunks::<4>().0;
    let seq = SequenceNumber::from_bits(ends.first()?[1]);
    for (lane, word) in ends.iter().enumerate() {
        if word[0] != character::END_DATA_FRAME {
            return None;
        }
        crc16_ok &= *word == end_of_frame(&columns, lane, seq);
    }
    Some(DataFrame { vc, words, seq, crc16_ok, data: &data[..characters.into()] })
}

/// Returns the EDF of a lane.
#[inline]
fn end_of_frame(columns: &Columns, lane: usize, seq: SequenceNumber) -> [u8; 4] {
    let [low, high] = columns.crc(lane, seq).to_le_bytes();
    [character::END_DATA_FRAME, seq.bits(), low, high]
}

/// Writes the end of a packet and Fills after `used` characters of its last word.
fn end_word(word: &mut [u8; 4], used: usize, end: PacketEnd) {
    word[used..].fill(character::FILL);
    word[used] = end.character();
}

/// Returns the last word of a packet, whose characters from `used` on are K-codes.
fn last_word(characters: [u8; 4], used: usize) -> Word {
    Word { characters, control: 0xF << used & 0xF }
}
