//! Rows of a recording's tables, as bytes and as HDF5 types.
//!
//! Rows are packed little-endian structs. The HDF5 compound type in the file has the same offsets, so any HDF5 reader
//! sees named fields while the recorder appends plain bytes.

use crate::shot::{Loss, ShotMeta};
use hdf5::types::{CompoundField, CompoundType, EnumMember, EnumType, FloatSize, IntSize, TypeDescriptor};
use serde::Serialize;
use shotline_wire::crc;
use shotline_wire::shot::{DropCause, DropCounters, Presence};

/// State of a shot in a row of a link's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// The shot is not in the file; its samples read as zeros.
    Lost = 0,
    /// Packets are missing or not verified by the end-of-shot record; missing packets read as zeros.
    Partial = 1,
    /// Every byte is present and verified by the CRC of the end-of-shot record.
    Complete = 2,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Lost, Self::Partial, Self::Complete];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Partial => "partial",
            Self::Complete => "complete",
        }
    }
}

/// Byte offsets of the fields that every row has.
const NUMBER: usize = 0;
const STAMP: usize = 8;
const VALID_BYTES: usize = 16;
const PACKETS: usize = 20;
const PLACED: usize = 24;
const STATE: usize = 28;
const FLAGS: usize = 29;
const RECORD_GOOD: usize = 30;
const PRESENCE: usize = 32;
/// Number of fields that are not drop causes.
const FIELDS: usize = 13;
/// Bytes of the two time fields.
const TIMES_BYTES: usize = 16;
/// Bytes of the two CRC fields at the end of a row.
const CHECKS_BYTES: usize = 8;

/// Shot number of a lost row whose shot is unknown, in a run that is aligned by timestamps.
pub const NO_NUMBER: u64 = u64::MAX;

/// Returns the first of `rows` rows whose shot number is `number` or higher, by binary search. Numbers ascend from row
/// to row, except for rows without a number ([`NO_NUMBER`]), which belong to the next row that has one.
/// `number_of` returns the number of a row.
///
/// # Errors
/// Returns the error of `number_of`.
pub fn first_row<E>(rows: u64, number: u64, mut number_of: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
    let (mut low, mut high) = (0, rows);
    while low < high {
        let middle = low + (high - low) / 2;
        let (mut at, mut found) = (middle, number_of(middle)?);
        while found == NO_NUMBER && at + 1 < high {
            at += 1;
            found = number_of(at)?;
        }
        if found < number {
            low = at + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// One row of `/linkN/shots`. Counts of causes that the file has no field for are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Shot number.
    pub number: u64,
    /// Time of the first sample in TAI nanoseconds, 0 if unknown.
    pub stamp_tai_ns: u64,
    /// Time at which the kernel received the first packet, in TAI nanoseconds; 0 if unknown.
    pub arrived_tai_ns: u64,
    /// Time at which the shot was complete or its reassembly ended, in TAI nanoseconds; 0 if unknown.
    pub completed_tai_ns: u64,
    /// Sample bytes that arrived.
    pub valid_bytes: u32,
    /// Packets of a complete shot.
    pub packets: u32,
    /// Packets present in the file.
    pub placed: u32,
    /// Dropped packets, by cause.
    pub drops: [u32; DropCause::ALL.len()],
    /// State of the shot in the file.
    pub state: State,
    /// Flags of the end-of-shot record.
    pub flags: u8,
    /// The end-of-shot record arrived and its CRC holds.
    pub record_good: bool,
    /// Presence map: bit `i % 8` of byte `i / 8` is packet `i`.
    pub presence: Vec<u8>,
    /// CRC-32 of the shot as written, if no valid end-of-shot record covers it; 0 otherwise.
    pub slot_crc32: u32,
    /// The CRC of the row matches.
    pub crc_valid: bool,
}

impl Row {
    /// Returns `true` if packet `index` is present.
    pub fn contains(&self, index: u32) -> bool {
        self.presence.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }
}

/// Row layout of a shots table. It depends on the number of packets of a shot, and on the number of drop causes when
/// the file was made. New causes are only appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFormat {
    packets: u32,
    causes: usize,
    /// Initial value of a row's CRC, computed over the run id so that rows of another run fail the check.
    seed: u32,
}

impl RowFormat {
    /// Creates the current format for shots of `packets` packets, in the run with this id.
    pub fn new(packets: u32, run_id: &str) -> Self {
        let seed = crc::register(u32::MAX, run_id.as_bytes());
        Self { packets, causes: DropCause::ALL.len(), seed }
    }
    /// Returns the format of a file's table; `None` if one of its drop causes or another field is unknown.
    pub fn of(packets: u32, run_id: &str, row: &TypeDescriptor) -> Option<Self> {
        let TypeDescriptor::Compound(compound) = row else { return None };
        let causes = compound.fields.len().checked_sub(FIELDS)?;
        let format = Self { causes, ..Self::new(packets, run_id) };
        Some(format).filter(|format| causes <= DropCause::ALL.len() && format.descriptor() == *row)
    }
    /// Maps a cause to one that this file has a field for: older files have fewer.
    pub fn recordable_cause(self, cause: DropCause) -> DropCause {
        if (cause as usize) < self.causes { cause } else { DropCause::SinkError }
    }
    /// Offset of the drop counters.
    fn drops_offset(self) -> usize {
        (PRESENCE + self.presence_bytes()).next_multiple_of(4)
    }
    fn presence_bytes(self) -> usize {
        self.packets.div_ceil(8) as usize
    }
    /// Offset of the two times.
    fn times_offset(self) -> usize {
        (self.drops_offset() + 4 * self.causes).next_multiple_of(8)
    }
    /// Offset of the two CRCs.
    fn checks_offset(self) -> usize {
        self.times_offset() + TIMES_BYTES
    }
    /// Bytes of a row.
    pub fn bytes(self) -> usize {
        self.checks_offset() + CHECKS_BYTES
    }
    /// Appends the row of a shot that is in the file. `slot_crc32` is the CRC-32 of its bytes if no valid record
    /// covers them, else 0.
    pub fn push(self, meta: &ShotMeta, slot_crc32: u32, out: &mut Vec<u8>) {
        let state = if meta.is_complete() { State::Complete } else { State::Partial };
        self.push_as(meta.number, Some(meta), state, &meta.drops, slot_crc32, out);
    }
    /// Appends the row of a shot that never arrived.
    pub fn push_lost(self, number: u64, out: &mut Vec<u8>) {
        self.push_as(number, None, State::Lost, &DropCounters::default(), 0, out);
    }
    /// Changes a row to that of a lost shot, and counts its packets as dropped for this cause.
    pub fn mark_lost(self, row: &mut [u8], cause: DropCause) {
        let (placed, valid) = (u32_at(row, PLACED), VALID_BYTES..VALID_BYTES + 4);
        row[valid].fill(0);
        row[PLACED..][..4].fill(0);
        (row[STATE], row[RECORD_GOOD]) = (State::Lost as u8, 0);
        row[PRESENCE..][..self.presence_bytes()].fill(0);
        if (cause as usize) < self.causes {
            let at = self.drops_offset() + 4 * cause as usize;
            let count = u32_at(row, at).saturating_add(placed.max(1));
            row[at..][..4].copy_from_slice(&count.to_le_bytes());
        }
        self.seal(0, row);
    }
    /// Returns the state in an encoded row.
    pub fn state(row: &[u8]) -> State {
        State::ALL[usize::from(row[STATE])]
    }

    fn push_as(
        self,
        number: u64,
        meta: Option<&ShotMeta>,
        state: State,
        drops: &DropCounters,
        slot_crc32: u32,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + self.bytes(), 0);
        let row = &mut out[start..];
        let head = row.first_chunk_mut::<PRESENCE>().expect("a row has all fields that are not named for a cause");
        head[NUMBER..][..8].copy_from_slice(&number.to_le_bytes());
        head[PACKETS..][..4].copy_from_slice(&self.packets.to_le_bytes());
        head[STATE] = state as u8;
        if let Some(meta) = meta {
            head[STAMP..][..8].copy_from_slice(&meta.stamp_tai_ns.to_le_bytes());
            head[FLAGS] = meta.flags;
        }
        if let Some(meta) = meta.filter(|_| state != State::Lost) {
            head[VALID_BYTES..][..4].copy_from_slice(&meta.valid_bytes.to_le_bytes());
            head[PLACED..][..4].copy_from_slice(&meta.presence.received().to_le_bytes());
            head[RECORD_GOOD] = u8::from(meta.record_good);
            push_presence(&meta.presence, &mut row[PRESENCE..][..self.presence_bytes()]);
        }
        // Skipped for most shots, which have no drops.
        if drops.total() > 0 {
            // Files of earlier versions have no fields for later causes.
            for (cause, count) in drops.iter().filter(|(cause, _)| (*cause as usize) < self.causes) {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                row[self.drops_offset() + 4 * cause as usize..][..4].copy_from_slice(&count.to_le_bytes());
            }
        }
        if let Some(meta) = meta {
            let times = &mut row[self.times_offset()..][..TIMES_BYTES];
            times[..8].copy_from_slice(&meta.arrived_tai_ns.to_le_bytes());
            times[8..].copy_from_slice(&meta.completed_tai_ns.to_le_bytes());
        }
        self.seal(slot_crc32, row);
    }

    /// Writes the two CRCs.
    fn seal(self, slot_crc32: u32, row: &mut [u8]) {
        let offset = self.checks_offset();
        row[offset..][..4].copy_from_slice(&slot_crc32.to_le_bytes());
        let check = self.check(row);
        row[offset + 4..][..4].copy_from_slice(&check.to_le_bytes());
    }

    /// Computes the CRC-32 of the run id and a row without its last field.
    fn check(self, row: &[u8]) -> u32 {
        !crc::register(self.seed, &row[..self.checks_offset() + 4])
    }

    /// Parses a row of [`Self::bytes`] bytes; `None` if it is too short or its state is invalid.
    pub fn parse(self, row: &[u8]) -> Option<Row> {
        let u32_at = |at: usize| row.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let u64_at = |at: usize| row.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let mut drops = [0; DropCause::ALL.len()];
        for (index, count) in drops.iter_mut().take(self.causes).enumerate() {
            *count = u32_at(self.drops_offset() + 4 * index)?;
        }
        let state = usize::from(*row.get(STATE)?);
        let row = row.get(..self.bytes())?;
        Some(Row {
            number: u64_at(NUMBER)?,
            stamp_tai_ns: u64_at(STAMP)?,
            arrived_tai_ns: u64_at(self.times_offset())?,
            completed_tai_ns: u64_at(self.times_offset() + 8)?,
            valid_bytes: u32_at(VALID_BYTES)?,
            packets: u32_at(PACKETS)?,
            placed: u32_at(PLACED)?,
            drops,
            state: *State::ALL.get(state)?,
            flags: *row.get(FLAGS)?,
            record_good: *row.get(RECORD_GOOD)? != 0,
            presence: row.get(PRESENCE..PRESENCE + self.presence_bytes())?.to_vec(),
            slot_crc32: u32_at(self.checks_offset())?,
            crc_valid: u32_at(self.checks_offset() + 4)? == self.check(row),
        })
    }

    /// Returns the HDF5 type of a row.
    pub fn descriptor(self) -> TypeDescriptor {
        let mut fields = vec![
            field("number", U64, NUMBER),
            field("stamp_tai_ns", U64, STAMP),
            field("valid_bytes", U32, VALID_BYTES),
            field("packets", U32, PACKETS),
            field("placed", U32, PLACED),
            field("state", enumeration(&State::ALL.map(State::name)), STATE),
            field("flags", U8, FLAGS),
            field("record_good", TypeDescriptor::Boolean, RECORD_GOOD),
            field("presence", TypeDescriptor::FixedArray(Box::new(U8), self.presence_bytes()), PRESENCE),
        ];
        let causes = DropCause::ALL.into_iter().take(self.causes);
        fields.extend(causes.map(|cause| field(cause.name(), U32, self.drops_offset() + 4 * cause as usize)));
        fields.extend([
            field("arrived_tai_ns", U64, self.times_offset()),
            field("completed_tai_ns", U64, self.times_offset() + 8),
            field("slot_crc32", U32, self.checks_offset()),
            field("row_crc32", U32, self.checks_offset() + 4),
        ]);
        compound(fields, self.bytes())
    }
}

/// Units and meanings of the shots table's fields, written as HDF5 attributes.
pub const ROW_FIELDS: [(&str, &str); 14] = [
    (
        "number",
        "shot number, 64 bits, unwrapped; 18446744073709551615 where the file's aligned_by is stamp and the link has no shot in this row",
    ),
    (
        "stamp_tai_ns",
        "nanoseconds since 1970-01-01 00:00:00 TAI of the first sample, by the sender's clock; 0: unknown",
    ),
    ("valid_bytes", "bytes of samples that arrived"),
    ("packets", "packets of a complete shot"),
    ("placed", "packets received and placed"),
    (
        "state",
        "lost: nothing is in the file, samples read as zeros; partial: missing packets read as zeros, or the record does not verify the rest; complete: every byte verified by the record's CRC",
    ),
    ("flags", "of the end-of-shot record: bit 0 clock locked, bit 1 triggered"),
    (
        "record_good",
        "the end-of-shot record arrived and its CRC-32 matches the complete shot; where the link's attribute trailer is not record: all packets arrived, and with them the trailer, if there is one",
    ),
    ("presence", "bit i % 8 of byte i / 8: packet i is present"),
    (
        "arrived_tai_ns",
        "when the kernel received the first packet of this shot, by the recorder's clock (the file's attribute clock_source); 0: unknown",
    ),
    ("completed_tai_ns", "when this shot was completed or discarded, by the same clock; 0: unknown"),
    (
        "slot_crc32",
        "CRC-32 of the shot's bytes in its slot, with zeros for packets that did not arrive, if the shot's own record does not verify them; 0: it does, or the shot is lost",
    ),
    ("row_crc32", "CRC-32 of the attribute run_id and this row's other bytes"),
    ("(fields named for a cause)", "packets of this shot that were dropped for that cause"),
];

fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
}

fn push_presence(presence: &Presence, out: &mut [u8]) {
    for (bytes, word) in out.chunks_mut(8).zip(presence.words()) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// Bytes of a row of `/losses`.
pub const LOSS_BYTES: usize = 24;

/// Appends a row of `/losses`.
pub fn push_loss(loss: &Loss, out: &mut Vec<u8>) {
    out.extend(loss.first.to_le_bytes());
    out.extend(loss.count.to_le_bytes());
    out.extend(loss.stream.to_le_bytes());
    out.extend([loss.cause as u8, 0, 0, 0]);
}

/// Parses a row of `/losses`; `None` if it is too short or its cause is unknown.
pub fn parse_loss(row: &[u8]) -> Option<Loss> {
    Some(Loss {
        first: u64::from_le_bytes(row.get(..8)?.try_into().ok()?),
        count: u64::from_le_bytes(row.get(8..16)?.try_into().ok()?),
        stream: u32::from_le_bytes(row.get(16..20)?.try_into().ok()?),
        cause: *DropCause::ALL.get(usize::from(*row.get(20)?))?,
    })
}

/// Returns the HDF5 type of a row of `/losses`.
pub fn loss_descriptor() -> TypeDescriptor {
    let cause = enumeration(&DropCause::ALL.map(DropCause::name));
    compound(
        vec![field("first", U64, 0), field("count", U64, 8), field("stream", U32, 16), field("cause", cause, 20)],
        LOSS_BYTES,
    )
}

/// Bytes of the name in a row of `/counters`.
pub const COUNTER_NAME_BYTES: usize = 44;
/// Bytes of a row of `/counters`.
pub const COUNTER_BYTES: usize = 56;

/// Appends a row of `/counters`. A name longer than [`COUNTER_NAME_BYTES`] is truncated.
pub fn push_counter(stream: u32, name: &str, value: u64, out: &mut Vec<u8>) {
    let name = &name.as_bytes()[..name.len().min(COUNTER_NAME_BYTES)];
    out.extend(value.to_le_bytes());
    out.extend(stream.to_le_bytes());
    out.extend(name);
    out.resize(out.len() + COUNTER_NAME_BYTES - name.len(), 0);
}

/// Parses a row of `/counters`: stream, name, value.
pub fn parse_counter(row: &[u8]) -> Option<(u32, String, u64)> {
    let name = row.get(12..12 + COUNTER_NAME_BYTES)?;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(COUNTER_NAME_BYTES);
    Some((
        u32::from_le_bytes(row.get(8..12)?.try_into().ok()?),
        String::from_utf8_lossy(&name[..len]).into_owned(),
        u64::from_le_bytes(row.get(..8)?.try_into().ok()?),
    ))
}

/// Returns the HDF5 type of a row of `/counters`.
pub fn counter_descriptor() -> TypeDescriptor {
    let name = TypeDescriptor::FixedAscii(COUNTER_NAME_BYTES);
    compound(vec![field("value", U64, 0), field("stream", U32, 8), field("name", name, 12)], COUNTER_BYTES)
}

pub(crate) const U8: TypeDescriptor = TypeDescriptor::Unsigned(IntSize::U1);
pub(crate) const U32: TypeDescriptor = TypeDescriptor::Unsigned(IntSize::U4);
pub(crate) const U64: TypeDescriptor = TypeDescriptor::Unsigned(IntSize::U8);
pub(crate) const I64: TypeDescriptor = TypeDescriptor::Integer(IntSize::U8);
pub(crate) const F32: TypeDescriptor = TypeDescriptor::Float(FloatSize::U4);
pub(crate) const F64: TypeDescriptor = TypeDescriptor::Float(FloatSize::U8);

pub(crate) fn field(name: &str, ty: TypeDescriptor, offset: usize) -> CompoundField {
    CompoundField { name: name.into(), ty, offset, index: 0 }
}

pub(crate) fn compound(mut fields: Vec<CompoundField>, size: usize) -> TypeDescriptor {
    for (index, field) in fields.iter_mut().enumerate() {
        field.index = index;
    }
    TypeDescriptor::Compound(CompoundType { fields, size })
}

fn enumeration(names: &[&str]) -> TypeDescriptor {
    let members = names.iter().zip(0..).map(|(name, value)| EnumMember { name: (*name).into(), value }).collect();
    TypeDescriptor::Enum(EnumType { size: IntSize::U1, signed: false, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_row_skips_rows_without_a_number() {
        let find =
            |numbers: &[u64], number| first_row::<()>(numbers.len() as u64, number, |row| Ok(numbers[row as usize]));
        const NONE: u64 = NO_NUMBER;
        for numbers in [&[3, 4, 7, 9][..], &[NONE, 3, NONE, NONE, 4, 7, NONE, 9, NONE], &[NONE, NONE], &[]] {
            for number in 0..12 {
                let at = find(numbers, number).unwrap() as usize;
                assert!(numbers[..at].iter().all(|found| *found < number || *found == NONE), "{numbers:?} {number}");
                assert!(numbers[at..].iter().all(|found| *found >= number), "{numbers:?} {number}");
            }
        }
    }

    #[test]
    fn row_round_trips_and_its_crc_detects_any_change() {
        let mut presence = Presence::empty(71);
        for index in (0..71).filter(|index| index % 3 != 0) {
            presence.insert(index);
        }
        let mut drops = DropCounters::default();
        drops.add(DropCause::WireGap, 20);
        drops.add(DropCause::BadIcrc, 4);
        let meta = ShotMeta {
            stream: 3,
            number: u64::MAX - 1,
            stamp_tai_ns: 123,
            arrived_tai_ns: 456,
            completed_tai_ns: 789,
            flags: 3,
            record_good: false,
            valid_bytes: 99,
            presence: std::sync::Arc::new(presence.clone()),
            drops,
        };
        let format = RowFormat::new(71, "a run");
        let mut bytes = Vec::new();
        format.push(&meta, 0x1234, &mut bytes);
        assert_eq!(bytes.len(), format.bytes());
        let row = format.parse(&bytes).unwrap();
        assert_eq!((row.number, row.stamp_tai_ns, row.flags, row.state), (u64::MAX - 1, 123, 3, State::Partial));
        assert_eq!((row.arrived_tai_ns, row.completed_tai_ns), (456, 789));
        assert_eq!((row.packets, row.placed, row.drops[0], row.drops[1]), (71, presence.received(), 20, 4));
        assert!((0..80).all(|index| row.contains(index) == presence.contains(index)));
        assert_eq!((row.slot_crc32, row.crc_valid), (0x1234, true));
        assert!(!RowFormat::new(71, "another run").parse(&bytes).unwrap().crc_valid, "a row of another run");
        for at in (0..bytes.len()).filter(|at| *at != STATE) {
            bytes[at] ^= 1;
            assert!(!format.parse(&bytes).unwrap().crc_valid, "byte {at} was changed");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn tables_with_fewer_drop_causes_are_read() {
        let old = RowFormat { causes: 5, ..RowFormat::new(71, "") };
        assert_eq!(RowFormat::of(71, "", &old.descriptor()), Some(old));
        let narrower = RowFormat { packets: 70, ..old };
        assert_eq!(RowFormat::of(70, "", &old.descriptor()), Some(narrower), "as many bytes");
        assert_eq!(RowFormat::of(64, "", &old.descriptor()), None);
        let mut bytes = vec![0; old.bytes()];
        bytes[old.drops_offset() + 4 * 4] = 9;
        let row = old.parse(&bytes).unwrap();
        assert_eq!((row.drops[4], row.drops[5..].iter().sum::<u32>()), (9, 0));
    }

    #[test]
    fn lost_row_names_its_cause_and_has_no_bytes() {
        let mut presence = Presence::empty(4);
        (0..3).for_each(|index| assert!(presence.insert(index)));
        let meta = ShotMeta {
            stream: 0,
            number: 5,
            stamp_tai_ns: 7,
            arrived_tai_ns: 8,
            completed_tai_ns: 9,
            flags: 0,
            record_good: true,
            valid_bytes: 10,
            presence: std::sync::Arc::new(presence),
            drops: DropCounters::default(),
        };
        let format = RowFormat::new(4, "a run");
        let mut bytes = Vec::new();
        format.push(&meta, 0x1234, &mut bytes);
        assert_eq!(RowFormat::state(&bytes), State::Partial);
        format.mark_lost(&mut bytes, DropCause::SinkError);
        let row = format.parse(&bytes).unwrap();
        assert_eq!((row.state, row.placed, row.valid_bytes, row.record_good), (State::Lost, 0, 0, false));
        assert_eq!((row.number, row.stamp_tai_ns, row.arrived_tai_ns, row.completed_tai_ns), (5, 7, 8, 9));
        assert_eq!((row.slot_crc32, row.crc_valid), (0, true));
        assert_eq!(row.drops[DropCause::SinkError as usize], 3);
        assert!(!row.contains(0));
        bytes.clear();
        format.push_lost(6, &mut bytes);
        let row = format.parse(&bytes).unwrap();
        assert_eq!((row.number, row.state, row.drops.iter().sum::<u32>(), row.crc_valid), (6, State::Lost, 0, true));
    }

    #[test]
    fn losses_and_counters_round_trip() {
        let loss = Loss { stream: 9, cause: DropCause::SinkBusy, first: 1 << 40, count: 3 };
        let mut bytes = Vec::new();
        push_loss(&loss, &mut bytes);
        assert_eq!((bytes.len(), parse_loss(&bytes)), (LOSS_BYTES, Some(loss)));
        let mut bytes = Vec::new();
        push_counter(2, "packets_placed", 77, &mut bytes);
        assert_eq!((bytes.len(), parse_counter(&bytes)), (COUNTER_BYTES, Some((2, "packets_placed".into(), 77))));
    }
}
