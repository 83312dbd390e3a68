//! The memory that a stream's packets land in.
//!
//! A stream holds a fixed number of *entries*. An entry owns one buffer, whose packets' places are posted; it is *ready*
//! until a new shot takes it. Each place has a receive id: entry by entry, packet by packet, and then the spares of a line
//! ([`line`]), where a device takes receives in their order.

use super::config::StreamConfig;
use line::Line;
use shotline_memory::{Buffer, Pool, Regions, Sge};
use shotline_transport::Recv;
use shotline_wire::crc::{self, Shift};
use shotline_wire::shot::{DropCause, Drops, Geometry, Presence, RECORD_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

mod line;

pub(crate) use line::{SPARES, extra};

#[derive(Debug)]
struct Entry {
    buffer: Option<Buffer>,
    presence: Presence,
    /// CRC remainders of the packets that are present.
    remainders: Vec<u32>,
    drops: Drops,
}

/// What was in an entry when its shot left it.
#[derive(Debug)]
pub(super) struct Taken {
    /// The buffer with all that came; none if there was no other one for a copy.
    pub(super) buffer: Option<Buffer>,
    /// Shared from here on: a presence map is too large (2 KiB) to be passed on by value.
    pub(super) presence: Arc<Presence>,
    /// Packets of the shot that were dropped.
    pub(super) drops: Drops,
    /// Bytes copied to a buffer that no device has places of.
    pub(super) copied_bytes: u64,
}

/// The entries of a stream, and the receive ids of their places.
#[derive(Debug)]
pub(crate) struct Slots {
    geometry: Geometry,
    packets: u32,
    /// The first of this stream's receive ids.
    base_id: u32,
    entries: Vec<Entry>,
    /// Entries with a buffer and without a shot, in the order of their use.
    ready: VecDeque<usize>,
    /// Shifts a CRC register over one full packet.
    full: Shift,
    /// The receives, where a device takes them in their order.
    line: Option<Line>,
}

impl Slots {
    /// Entries without buffers: [`Self::refill`] gives them some.
    pub(super) fn new(config: &StreamConfig, base_id: u32, depth: usize) -> Self {
        let packets = config.geometry.packets();
        let entry = || Entry {
            buffer: None,
            presence: Presence::empty(packets),
            remainders: vec![0; packets as usize],
            drops: Drops::default(),
        };
        Self {
            geometry: config.geometry,
            packets,
            base_id,
            entries: (0..depth).map(|_| entry()).collect(),
            ready: VecDeque::with_capacity(depth),
            full: Shift::new(u64::from(config.geometry.cut().rest)),
            line: None,
        }
    }

    /// From now on a device takes the receives in their order.
    pub(crate) fn stand_in_line(&mut self, pool: &Arc<Pool>, regions: &Regions) {
        self.line = Some(Line::new(pool, regions, self.geometry, self.base_id, self.entries.len()));
    }

    /// Takes the buffers that a line needs beside those of its entries, which have theirs.
    pub(crate) fn furnish_line(&mut self) {
        self.line.iter_mut().for_each(Line::furnish);
    }

    /// Receive ids of this stream.
    #[inline]
    pub(crate) fn ids(&self) -> Range<u32> {
        if let Some(line) = &self.line {
            return line.ids();
        }
        self.base_id..self.base_id + self.entries.len() as u32 * self.packets
    }

    /// The receive id of an entry's packet.
    #[inline]
    pub(crate) fn id(&self, entry: usize, index: u32) -> u32 {
        self.base_id + entry as u32 * self.packets + index
    }

    /// The entry and packet index of one of this stream's receive ids.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> (usize, u32) {
        let position = id - self.base_id;
        ((position / self.packets) as usize, position % self.packets)
    }

    /// Where a packet of an entry belongs.
    #[inline]
    pub(crate) fn place(&self, entry: usize, index: u32) -> Option<Sge> {
        let (offset, bytes) = (self.geometry.packet_offset(index), self.geometry.packet_bytes(index));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes))
    }

    /// Where a packet lies that landed in the place of a receive id.
    fn landing_place(&self, id: u32) -> Option<Sge> {
        if let Some(place) = self.line.as_ref().and_then(|line| line.spare_place(id)) {
            return Some(place);
        }
        // A line's places are longer than packets that belong there.
        let (entry, index) = self.slot(id);
        let geometry = &self.geometry;
        let (offset, bytes) = (geometry.packet_offset(index), geometry.cut().rest.max(geometry.packet_bytes(index)));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes.min(buffer.len() - offset)))
    }

    /// Gives every empty entry a buffer, and lists what to post for it.
    pub(crate) fn refill(&mut self, pool: &Arc<Pool>, posts: &mut Vec<Recv>) {
        self.line.iter_mut().for_each(Line::relieve);
        while let Some(line) = &mut self.line
            && let Some(entry) = line.next_kept()
        {
            if let Some(buffer) = &self.entries[entry].buffer {
                line.lay(entry, buffer, posts);
                self.ready.push_back(entry);
            }
        }
        for entry in 0..self.entries.len() {
            if self.entries[entry].buffer.is_some() {
                continue;
            }
            let Some(buffer) = pool.take() else { break };
            let buffer = self.entries[entry].buffer.insert(buffer);
            if let Some(line) = &mut self.line {
                line.lay(entry, buffer, posts);
                self.ready.push_back(entry);
                continue;
            }
            for index in 0..self.packets {
                if let Some(sge) = self.place(entry, index) {
                    posts.push(Recv { id: self.id(entry, index), sge: [sge, Sge::EMPTY] });
                }
            }
            self.ready.push_back(entry);
        }
        if let Some(line) = &mut self.line {
            line.straighten(posts);
        }
    }

    /// The entry that the shot after `ahead` other new ones will take.
    #[inline]
    pub(super) fn ready(&self, ahead: usize) -> Option<usize> {
        self.ready.get(ahead).copied()
    }

    /// Takes the next ready entry for a new shot.
    #[inline]
    pub(super) fn take_ready(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// Whether the packet of a slot has arrived.
    #[inline]
    pub(crate) fn is_filled(&self, entry: usize, index: u32) -> bool {
        self.entries[entry].presence.contains(index)
    }

    /// Marks a packet as arrived.
    ///
    /// # Errors
    /// If it was there already, or cannot be brought to its place: its shot's drops then have it.
    #[inline]
    pub(super) fn fill(&mut self, entry: usize, index: u32, remainder: u32) -> Result<(), DropCause> {
        if let Some(line) = &self.line
            && !self.is_filled(entry, index)
            && line.is_stuck(self.id(entry, index))
        {
            self.entries[entry].drops.add(DropCause::NoBuffer, 1);
            return Err(DropCause::NoBuffer);
        }
        let entry = &mut self.entries[entry];
        if !entry.presence.insert(index) {
            entry.drops.add(DropCause::Duplicate, 1);
            return Err(DropCause::Duplicate);
        }
        entry.remainders[index as usize] = remainder;
        Ok(())
    }

    /// Notes that a packet of an entry's shot was dropped.
    pub(super) fn note_drop(&mut self, entry: usize, cause: DropCause) {
        self.entries[entry].drops.add(cause, 1);
    }

    /// Whether a shot is complete, and all of it in its buffer.
    #[inline]
    pub(super) fn is_whole(&self, entry: usize) -> bool {
        self.entries[entry].presence.is_complete() && !self.line.as_ref().is_some_and(|line| line.has_lent(entry))
    }

    /// Packets of an entry's shot that have not arrived, ascending.
    pub(super) fn missing(&self, entry: usize) -> impl Iterator<Item = u32> + '_ {
        self.entries[entry].presence.missing()
    }

    /// What has come of an entry's shot.
    pub(super) fn contents(&self, entry: usize) -> Option<(&Buffer, &Presence)> {
        let entry = &self.entries[entry];
        entry.buffer.as_ref().map(|buffer| (buffer, &entry.presence))
    }

    /// Takes the shot out of an entry, which is then empty. Where a device has places of its buffer, the shot leaves in a
    /// copy, and the entry keeps the buffer for another shot.
    pub(super) fn take(&mut self, entry: usize) -> Taken {
        let (buffer, copied_bytes) = match &self.line {
            Some(line) if line.has_lent(entry) => self.copy_out(entry),
            _ => (self.entries[entry].buffer.take(), 0),
        };
        let state = &mut self.entries[entry];
        let presence = Arc::new(state.presence.clone());
        state.presence = Presence::empty(self.packets);
        Taken { buffer, presence, drops: std::mem::take(&mut state.drops), copied_bytes }
    }

    /// Copies an entry's shot to another buffer, if there is one. Returns it and the bytes copied.
    fn copy_out(&mut self, entry: usize) -> (Option<Buffer>, u64) {
        let (geometry, state) = (&self.geometry, &self.entries[entry]);
        let first_id = self.base_id + entry as u32 * self.packets;
        let Some(line) = &mut self.line else { return (None, 0) };
        line.keep(entry);
        let copy = line.fresh();
        let mut copied_bytes = 0;
        for index in (0..self.packets).filter(|index| state.presence.contains(*index)) {
            let (offset, bytes) = (geometry.packet_offset(index), geometry.packet_bytes(index));
            let parked = line.fetch(first_id + index);
            let from = parked.or_else(|| state.buffer.as_ref().map(|buffer| buffer.sge(offset, bytes)));
            if let Some((from, copy)) = from.zip(copy.as_ref()) {
                line.copy(Sge { len: bytes, ..from }, copy.sge(offset, bytes));
                copied_bytes += u64::from(bytes);
            }
        }
        (copy, copied_bytes)
    }

    /// Zeroes what did not come of a shot that was taken, and what no packet brings; `withdraw` gets the receives of its
    /// missing packets. Returns the bytes of samples that came.
    pub(super) fn zero_gaps(&self, entry: usize, buffer: &Buffer, presence: &Presence, withdraw: &mut Vec<u32>) -> u32 {
        let geometry = &self.geometry;
        let mut valid_bytes = 0;
        for index in 0..self.packets {
            let (offset, bytes) = (geometry.packet_offset(index), geometry.packet_bytes(index));
            if presence.contains(index) {
                valid_bytes += (offset + bytes).min(geometry.sample_bytes()).saturating_sub(offset);
            } else {
                buffer.zero(offset, bytes);
                withdraw.push(self.id(entry, index));
            }
        }
        buffer.zero(geometry.shot_bytes(), buffer.len() - geometry.shot_bytes());
        if geometry.cut().trailer_apart || !geometry.trailer().is_sent() {
            buffer.zero(geometry.sample_bytes(), geometry.trailer_offset() - geometry.sample_bytes());
        }
        valid_bytes
    }

    /// Whether the CRC over a whole shot that was taken holds, folded from what the packets' own check left behind.
    pub(super) fn is_crc_good(&self, entry: usize) -> bool {
        let (last, full) = self.entries[entry].remainders.split_last().unwrap_or((&0, &[]));
        let register = full.iter().fold(u32::MAX, |register, remainder| self.full.apply(register) ^ remainder);
        let last_bytes = self.geometry.packet_bytes(self.packets - 1);
        crc::shift(register, u64::from(last_bytes)) ^ last == crc::RESIDUE
    }

    /// A packet has landed in the place of this id, the foremost of a line. False if there is no line.
    pub(crate) fn land(&mut self, id: u32) -> bool {
        self.line.as_mut().map(|line| line.land(id)).is_some()
    }

    /// The packet that has just landed in a line has no place.
    pub(crate) fn refuse(&mut self) {
        self.line.iter_mut().for_each(Line::refuse);
    }

    /// The packet that has just landed in the place of `id` belongs to this slot. Returns from where to where its payload
    /// is to be copied; none if it is there already.
    pub(crate) fn bring(&mut self, id: u32, entry: usize, index: u32) -> Option<(Sge, Sge)> {
        let (from, place) = (self.landing_place(id), self.place(entry, index));
        let slot = self.id(entry, index);
        let to = self.line.as_mut().zip(place).and_then(|(line, place)| line.bring(slot, place));
        from.zip(to)
    }

    /// The payload that waits for the place of this id, if one does, and that place. It waits no longer.
    pub(crate) fn fetch(&mut self, id: u32) -> Option<(Sge, Sge)> {
        let from = self.line.as_mut()?.fetch(id)?;
        let (entry, index) = self.slot(id);
        self.place(entry, index).map(|to| (from, to))
    }

    /// The end of a packet that landed in the place of this id, as long as a record, if the packet is as long as a shot's
    /// last one.
    pub(super) fn read_end(&self, id: u32, len: u32) -> Option<[u8; RECORD_BYTES as usize]> {
        if len != self.geometry.packet_bytes(self.packets - 1) {
            return None;
        }
        let place = self.landing_place(id)?;
        let offset = place.offset + u64::from(len.checked_sub(RECORD_BYTES)?);
        let mut bytes = [0; RECORD_BYTES as usize];
        self.line.as_ref()?.read(place.region, offset, &mut bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::Registrar;

    /// Two entries of three packets whose ids begin at 100, and a pool of this number of buffers.
    fn slots(buffers: u32) -> (Slots, Arc<Pool>, Regions) {
        let config = StreamConfig::of_three_packets();
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, buffers, config.geometry.slot_bytes()).unwrap();
        (Slots::new(&config, 100, 2), pool, registrar.finish())
    }

    #[test]
    fn each_place_has_one_receive_id() {
        let (mut slots, pool, _) = slots(2);
        let mut posts = Vec::new();
        slots.refill(&pool, &mut posts);
        assert_eq!(posts.iter().map(|post| post.id).collect::<Vec<_>>(), slots.ids().collect::<Vec<_>>());
        for post in posts {
            let (entry, index) = slots.slot(post.id);
            assert_eq!((slots.id(entry, index), slots.place(entry, index)), (post.id, Some(post.sge[0])));
        }
    }

    #[test]
    fn entries_are_ready_while_there_are_buffers() {
        let (mut slots, pool, _) = slots(1);
        slots.refill(&pool, &mut Vec::new());
        assert_eq!((slots.ready(0), slots.ready(1)), (Some(0), None));
        assert_eq!((slots.take_ready(), slots.take_ready()), (Some(0), None));
        drop(slots.take(0));
        let mut posts = Vec::new();
        slots.refill(&pool, &mut posts);
        assert_eq!((slots.ready(0), posts.len()), (Some(0), 3), "the buffer came back");
    }

    #[test]
    fn a_shot_takes_each_packet_once_and_leaves_its_entry_empty() {
        let (mut slots, pool, _) = slots(2);
        slots.refill(&pool, &mut Vec::new());
        assert_eq!((slots.fill(0, 1, 5), slots.fill(0, 1, 6)), (Ok(()), Err(DropCause::Duplicate)));
        slots.note_drop(0, DropCause::Malformed);
        assert!(slots.is_filled(0, 1) && !slots.is_filled(1, 1) && !slots.is_whole(0));
        assert_eq!(slots.missing(0).collect::<Vec<_>>(), [0, 2]);
        let taken = slots.take(0);
        let buffer = taken.buffer.unwrap();
        buffer.write(0, &[7; 16]);
        let mut withdraw = Vec::new();
        let valid_bytes = slots.zero_gaps(0, &buffer, &taken.presence, &mut withdraw);
        let mut bytes = [1; 16];
        buffer.read(0, &mut bytes);
        assert_eq!((valid_bytes, withdraw, bytes), (4096, vec![100, 102], [0; 16]));
        assert_eq!([DropCause::Duplicate, DropCause::Malformed].map(|cause| taken.drops.get(cause)), [1, 1]);
        assert!(!slots.is_filled(0, 1) && slots.contents(0).is_none() && slots.contents(1).is_some());
    }

    #[test]
    fn a_shot_leaves_a_line_in_a_copy_while_a_device_has_places() {
        let extra = 64; // at least what a line keeps of shots of three packets
        let (mut slots, pool, regions) = slots(2 + extra);
        slots.stand_in_line(&pool, &regions);
        slots.refill(&pool, &mut Vec::new());
        slots.furnish_line();
        let own = slots.place(0, 0).unwrap();
        assert!(slots.land(100));
        assert_eq!((slots.bring(100, 0, 0), slots.fill(0, 0, 0)), (None, Ok(())), "it is in its place");
        let taken = slots.take(0);
        assert_eq!(taken.copied_bytes, 4096);
        assert_ne!(taken.buffer.unwrap().sge(0, 4096), own);
        assert_eq!(slots.place(0, 0), Some(own), "the entry keeps its buffer");
    }
}
