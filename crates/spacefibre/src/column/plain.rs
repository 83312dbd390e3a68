//! The kernels in plain Rust. They also process parts of a row: `states` begins at the lane of the first word.

use super::form::Form;
use super::tables::{KEYS, PADDING};
use shotline_wire::spacefibre::crc::crc16_update;

/// The kernels, for any processor.
pub(super) static FORM: Form = Form {
    name: "plain",
    scramble: |words, to, rows, states| {
        rows.check(words);
        rows.check(to);
        scramble((words, to), rows.lanes.into(), rows.first.into(), states)
    },
    descramble: |words, rows, states| {
        rows.check(words);
        descramble(words, rows.lanes.into(), rows.first.into(), states)
    },
    checksum: |words, rows, states| {
        rows.check(words);
        checksum(words, rows.lanes.into(), rows.first.into(), states)
    },
};

pub(super) fn scramble((words, to): (&[[u8; 4]], &mut [[u8; 4]]), lanes: usize, row: usize, states: &mut [u16]) {
    for ((words, to), key) in words.chunks(lanes).zip(to.chunks_mut(lanes)).zip(&KEYS[PADDING + row..]) {
        for ((word, to), state) in words.iter().zip(to).zip(&mut *states) {
            *to = (u32::from_le_bytes(*word) ^ key).to_le_bytes();
            *state = crc16_update(*state, to);
        }
    }
}

pub(super) fn descramble(words: &mut [[u8; 4]], lanes: usize, row: usize, states: &mut [u16]) {
    for (words, key) in words.chunks_mut(lanes).zip(&KEYS[PADDING + row..]) {
        for (word, state) in words.iter_mut().zip(&mut *states) {
            *state = crc16_update(*state, word);
            *word = (u32::from_le_bytes(*word) ^ key).to_le_bytes();
        }
    }
}

/// The row does not matter: it is a parameter for the same signature as that of the others.
pub(super) fn checksum(words: &[[u8; 4]], lanes: usize, _row: usize, states: &mut [u16]) {
    for words in words.chunks(lanes) {
        for (word, state) in words.iter().zip(&mut *states) {
            *state = crc16_update(*state, word);
        }
    }
}
