//! Rows of the tables of shots, and slots.

use super::handle::{check_link, check_rows, shotline_run, with};
use crate::arguments::{Out, OutArray};
use crate::causes::SHOTLINE_MAX_CAUSES;
use crate::status::{Failure, call, shotline_status};
use shotline_store::rows::{NO_NUMBER, Row, State, first_row};
use std::ffi::c_void;

/// Shot number of a row without a shot of this link, in a run that is aligned by timestamps (shotline_run_info).
pub const SHOTLINE_NO_NUMBER: u64 = u64::MAX;
const _: () = assert!(SHOTLINE_NO_NUMBER == NO_NUMBER);

/// Rows that are read from the file at a time.
const BLOCK_ROWS: usize = 1024;

/// State of a shot in the file.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum shotline_state {
    /// The shot is not in the file: its samples read as zeros.
    SHOTLINE_STATE_LOST = 0,
    /// Packets are missing and read as zeros, or the end-of-shot record does not verify the rest.
    SHOTLINE_STATE_PARTIAL = 1,
    /// Every byte is present, and verified as far as the shot's trailer allows.
    SHOTLINE_STATE_COMPLETE = 2,
}

/// What is known of one shot of one link.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_shot {
    /// Shot number, extended to 64 bits; SHOTLINE_NO_NUMBER if unknown.
    pub number: u64,
    /// Time of the first sample in TAI nanoseconds since 1970, by the sender's clock; 0: unknown.
    pub stamp_tai_ns: u64,
    /// When the kernel received the first packet, in TAI nanoseconds by the recorder's clock; 0: unknown.
    pub arrived_tai_ns: u64,
    /// When the shot was completed or discarded, by the same clock; 0: unknown.
    pub completed_tai_ns: u64,
    /// One of shotline_state.
    pub state: u32,
    /// Bytes of samples that arrived.
    pub valid_bytes: u32,
    /// Packets of a complete shot.
    pub packets: u32,
    /// Packets that were received and placed.
    pub placed: u32,
    /// From the end-of-shot record: bit 0 clock locked, bit 1 triggered.
    pub flags: u32,
    /// 1 if the end-of-shot record arrived and its CRC matches; else 0.
    pub record_good: u32,
    /// CRC-32 of the shot in its slot, if its record does not verify it; else 0.
    pub slot_crc32: u32,
    /// 1 if the row's own CRC matches; 0 if the row is damaged.
    pub row_good: u32,
    /// Dropped packets of this shot, by drop cause (shotline_cause_name). Elements of causes that do not exist are 0.
    pub drops: [u32; SHOTLINE_MAX_CAUSES],
    /// Zero, for fields of later versions.
    pub reserved: [u64; 4],
}

/// Reads what is known of the shots of a link in consecutive rows.
///
/// link: index of the link, from 0.
/// first_row, rows: the rows, all of them visible.
/// shots: receives `rows` structures.
///
/// Threads: any, several at once. Errors: INVALID_ARGUMENT (no such link or row), IO, FORMAT, CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_shots(
    run: shotline_run,
    link: u32,
    first_row: u64,
    rows: u64,
    shots: *mut shotline_shot,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let shots = |rows| unsafe { OutArray::new(shots, rows, "shots") };
        with(run, |recording| {
            let link = check_link(recording, link)?;
            let (range, count) = check_rows(recording, first_row, rows)?;
            let mut shots = shots(count)?;
            for first in range.clone().step_by(BLOCK_ROWS) {
                let block = recording.read_rows(link, first..range.end.min(first + BLOCK_ROWS as u64))?;
                let count = block.len();
                shots.fill(block.into_iter().map(shotline_shot::from), "shots")?;
                shots = shots.after(count);
            }
            Ok(())
        })
    })
}

/// Reads the presence maps of the shots of a link in consecutive rows: bit i % 8 of byte i / 8 is set if packet i is present.
///
/// link: index of the link, from 0.
/// first_row, rows: the rows, all of them visible.
/// presence: receives `rows` maps of shotline_link.presence_bytes each.
/// capacity: bytes at `presence`.
///
/// Threads: any, several at once.
/// Errors: INVALID_ARGUMENT (no such link or row), BUFFER_TOO_SMALL, IO, FORMAT, CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_presence(
    run: shotline_run,
    link: u32,
    first_row: u64,
    rows: u64,
    presence: *mut u8,
    capacity: usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let mut presence = unsafe { OutArray::new(presence, capacity, "presence") }?;
        with(run, |recording| {
            let link = check_link(recording, link)?;
            let (range, count) = check_rows(recording, first_row, rows)?;
            let map_bytes = recording.run().links[link].geometry.packets().div_ceil(8) as usize;
            let all = presence.slice(count.saturating_mul(map_bytes), "presence bytes")?;
            let blocks = range.clone().step_by(BLOCK_ROWS).zip(all.chunks_mut(BLOCK_ROWS * map_bytes.max(1)));
            for (first, block) in blocks {
                let rows = recording.read_rows(link, first..range.end.min(first + BLOCK_ROWS as u64))?;
                rows.iter()
                    .zip(block.chunks_exact_mut(map_bytes.max(1)))
                    .for_each(|(row, to)| to.copy_from_slice(&row.presence));
            }
            Ok(())
        })
    })
}

/// Copies the slot of a shot: its bytes as they were on the wire, with zeros for packets that did not arrive, then the
/// trailer and zeros. Compressed shots are decompressed.
///
/// link: index of the link, from 0.
/// row: a visible row.
/// slot: receives shotline_link.slot_bytes bytes.
/// capacity: bytes at `slot`.
///
/// Threads: any, several at once.
/// Errors: INVALID_ARGUMENT (no such link or row), BUFFER_TOO_SMALL, IO, FORMAT (damaged), CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_slot(
    run: shotline_run,
    link: u32,
    row: u64,
    slot: *mut c_void,
    capacity: usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let mut slot = unsafe { OutArray::<u8>::new(slot.cast(), capacity, "slot") }?;
        with(run, |recording| {
            let link = check_link(recording, link)?;
            check_rows(recording, row, 1)?;
            let slot_bytes = recording.run().links[link].geometry.slot_bytes() as usize;
            let to = slot.slice(slot_bytes, "slot bytes")?;
            to.copy_from_slice(recording.slot_reader().read(row, link)?);
            Ok(())
        })
    })
}

/// Finds the first row of a link whose shot number is `number` or higher, by binary search.
///
/// link: index of the link, from 0.
/// row: receives the row. It is the number of visible rows if all shots have lower numbers. Read the row to see whether
/// the shot has this number: it may be lost (shotline_run_read_losses).
///
/// Threads: any, several at once. Errors: INVALID_ARGUMENT (no such link), IO, FORMAT, CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_find_row(
    run: shotline_run,
    link: u32,
    number: u64,
    row: *mut u64,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let row = unsafe { Out::new(row, "row") }?;
        row.set(with(run, |recording| {
            let link = check_link(recording, link)?;
            let number_of = |row| Ok::<_, Failure>(recording.row(row, link)?.number);
            first_row(recording.rows(), number, number_of)
        })?);
        Ok(())
    })
}

impl From<Row> for shotline_shot {
    fn from(row: Row) -> Self {
        let mut drops = [0; SHOTLINE_MAX_CAUSES];
        drops[..row.drops.len()].copy_from_slice(&row.drops);
        let state = match row.state {
            State::Lost => shotline_state::SHOTLINE_STATE_LOST,
            State::Partial => shotline_state::SHOTLINE_STATE_PARTIAL,
            State::Complete => shotline_state::SHOTLINE_STATE_COMPLETE,
        };
        Self {
            number: row.number,
            stamp_tai_ns: row.stamp_tai_ns,
            arrived_tai_ns: row.arrived_tai_ns,
            completed_tai_ns: row.completed_tai_ns,
            state: state as u32,
            valid_bytes: row.valid_bytes,
            packets: row.packets,
            placed: row.placed,
            flags: row.flags.into(),
            record_good: row.record_good.into(),
            slot_crc32: row.slot_crc32,
            row_good: row.crc_valid.into(),
            drops,
            reserved: [0; 4],
        }
    }
}
