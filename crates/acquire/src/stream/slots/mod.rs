//! Memory that a stream's packets land in.
//!
//! A stream has a fixed number of *entries*. An entry owns one buffer, and a receive is posted for each of its packets;
//! it is *ready* until a new shot takes it. Each receive has an id: entry by entry, packet by packet, followed by the
//! spares of a queue ([`receive_queue`]) for a device that consumes receives in order.

use super::config::StreamConfig;
use receive_queue::ReceiveQueue;
use shotline_memory::{Buffer, Pool, Regions, Sge};
use shotline_transport::Recv;
use shotline_wire::crc::{self, Shift};
use shotline_wire::shot::{DropCause, DropCounters, Geometry, Presence, RECORD_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

mod receive_queue;

pub(crate) use receive_queue::{SPARES, queue_buffers};

#[derive(Debug)]
struct Entry {
    buffer: Option<Buffer>,
    presence: Presence,
    /// CRC remainders of the packets that are present.
    remainders: Vec<u32>,
    drops: DropCounters,
}

/// Contents of an entry when its shot leaves it.
#[derive(Debug)]
pub(super) struct TakenShot {
    /// Buffer of the shot; none if a copy was needed and no buffer was free.
    pub(super) buffer: Option<Buffer>,
    /// Shared from here on: a presence map is too large (2 KiB) to be passed on by value.
    pub(super) presence: Arc<Presence>,
    /// Packets of the shot that were dropped, by cause.
    pub(super) drops: DropCounters,
    /// Bytes copied because the device owns receives of the entry's buffer.
    pub(super) copied_bytes: u64,
}

/// Entries of a stream, and the ids of their receives.
#[derive(Debug)]
pub(crate) struct Slots {
    geometry: Geometry,
    packets: u32,
    /// First receive id of this stream.
    base_id: u32,
    entries: Vec<Entry>,
    /// Entries with a buffer and without a shot, in the order of their use.
    ready: VecDeque<usize>,
    /// Operator that shifts a CRC register over one full packet.
    full: Shift,
    /// The receive queue, for a device that consumes receives in order.
    queue: Option<ReceiveQueue>,
}

impl Slots {
    /// Creates entries without buffers: [`Self::refill`] adds these.
    pub(super) fn new(config: &StreamConfig, base_id: u32, depth: usize) -> Self {
        let packets = config.geometry.packets();
        let entry = || Entry {
            buffer: None,
            presence: Presence::empty(packets),
            remainders: vec![0; packets as usize],
            drops: DropCounters::default(),
        };
        Self {
            geometry: config.geometry,
            packets,
            base_id,
            entries: (0..depth).map(|_| entry()).collect(),
            ready: VecDeque::with_capacity(depth),
            full: Shift::new(u64::from(config.geometry.packetization().rest)),
            queue: None,
        }
    }

    /// Switches to a device that consumes receives in order.
    pub(crate) fn use_receive_queue(&mut self, pool: &Arc<Pool>, regions: &Regions) {
        self.queue = Some(ReceiveQueue::new(pool, regions, self.geometry, self.base_id, self.entries.len()));
    }

    /// Takes the queue's own buffers, after those of the entries.
    pub(crate) fn take_queue_buffers(&mut self) {
        self.queue.iter_mut().for_each(ReceiveQueue::take_buffers);
    }

    /// Returns the receive ids of this stream.
    #[inline]
    pub(crate) fn ids(&self) -> Range<u32> {
        if let Some(queue) = &self.queue {
            return queue.ids();
        }
        self.base_id..self.base_id + self.entries.len() as u32 * self.packets
    }

    /// Returns the receive id of an entry's packet.
    #[inline]
    pub(crate) fn id(&self, entry: usize, index: u32) -> u32 {
        self.base_id + entry as u32 * self.packets + index
    }

    /// Returns the entry and packet index of one of this stream's receive ids.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> (usize, u32) {
        let position = id - self.base_id;
        ((position / self.packets) as usize, position % self.packets)
    }

    /// Returns the destination of a packet of an entry.
    #[inline]
    pub(crate) fn destination(&self, entry: usize, index: u32) -> Option<Sge> {
        let (offset, bytes) = (self.geometry.packet_offset(index), self.geometry.packet_bytes(index));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes))
    }

    /// Returns the memory in which the packet of a receive landed.
    fn landing_memory(&self, id: u32) -> Option<Sge> {
        if let Some(destination) = self.queue.as_ref().and_then(|queue| queue.spare_memory(id)) {
            return Some(destination);
        }
        // The receives of a queue are longer than the packets that belong there.
        let (entry, index) = self.slot(id);
        let geometry = &self.geometry;
        let (offset, bytes) =
            (geometry.packet_offset(index), geometry.packetization().rest.max(geometry.packet_bytes(index)));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes.min(buffer.len() - offset)))
    }

    /// Assigns a buffer to every empty entry, and appends the receives to post for it.
    pub(crate) fn refill(&mut self, pool: &Arc<Pool>, posts: &mut Vec<Recv>) {
        self.queue.iter_mut().for_each(ReceiveQueue::reserve_buffer);
        while let Some(queue) = &mut self.queue
            && let Some(entry) = queue.next_to_append()
        {
            if let Some(buffer) = &self.entries[entry].buffer {
                queue.append(entry, buffer, posts);
                self.ready.push_back(entry);
            }
        }
        for entry in 0..self.entries.len() {
            if self.entries[entry].buffer.is_some() {
                continue;
            }
            let Some(buffer) = pool.take() else { break };
            let buffer = self.entries[entry].buffer.insert(buffer);
            if let Some(queue) = &mut self.queue {
                queue.append(entry, buffer, posts);
                self.ready.push_back(entry);
                continue;
            }
            for index in 0..self.packets {
                if let Some(sge) = self.destination(entry, index) {
                    posts.push(Recv { id: self.id(entry, index), sge: [sge, Sge::EMPTY] });
                }
            }
            self.ready.push_back(entry);
        }
        if let Some(queue) = &mut self.queue {
            queue.append_spares(posts);
        }
    }

    /// Returns the entry that the shot after `ahead` other new ones will take.
    #[inline]
    pub(super) fn ready(&self, ahead: usize) -> Option<usize> {
        self.ready.get(ahead).copied()
    }

    /// Takes the next ready entry for a new shot.
    #[inline]
    pub(super) fn take_ready(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// Returns `true` if the packet of a slot has arrived.
    #[inline]
    pub(crate) fn is_filled(&self, entry: usize, index: u32) -> bool {
        self.entries[entry].presence.contains(index)
    }

    /// Marks a packet as arrived.
    ///
    /// # Errors
    /// If it is a duplicate, or cannot be moved to its destination: the drop is then counted for its shot.
    #[inline]
    pub(super) fn fill(&mut self, entry: usize, index: u32, remainder: u32) -> Result<(), DropCause> {
        if let Some(queue) = &self.queue
            && !self.is_filled(entry, index)
            && queue.is_blocked(self.id(entry, index))
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

    /// Returns `true` if a shot is complete, and all of it in its buffer.
    #[inline]
    pub(super) fn is_whole(&self, entry: usize) -> bool {
        self.entries[entry].presence.is_complete() && !self.queue.as_ref().is_some_and(|queue| queue.has_posted(entry))
    }

    /// Returns the packets of an entry's shot that have not arrived, ascending.
    pub(super) fn missing(&self, entry: usize) -> impl Iterator<Item = u32> + '_ {
        self.entries[entry].presence.missing()
    }

    /// Returns the buffer of an entry and the packets present.
    pub(super) fn contents(&self, entry: usize) -> Option<(&Buffer, &Presence)> {
        let entry = &self.entries[entry];
        entry.buffer.as_ref().map(|buffer| (buffer, &entry.presence))
    }

    /// Takes the shot out of an entry, which is then empty. If the device owns receives of its buffer, the shot leaves
    /// in a copy, and the entry keeps the buffer for another shot.
    pub(super) fn take(&mut self, entry: usize) -> TakenShot {
        let (buffer, copied_bytes) = match &self.queue {
            Some(queue) if queue.has_posted(entry) => self.copy_out(entry),
            _ => (self.entries[entry].buffer.take(), 0),
        };
        let state = &mut self.entries[entry];
        let presence = Arc::new(state.presence.clone());
        state.presence = Presence::empty(self.packets);
        TakenShot { buffer, presence, drops: std::mem::take(&mut state.drops), copied_bytes }
    }

    /// Copies an entry's shot to another buffer, if there is one. Returns it and the number of bytes copied.
    fn copy_out(&mut self, entry: usize) -> (Option<Buffer>, u64) {
        let (geometry, state) = (&self.geometry, &self.entries[entry]);
        let first_id = self.base_id + entry as u32 * self.packets;
        let Some(queue) = &mut self.queue else { return (None, 0) };
        queue.keep_buffer(entry);
        let copy = queue.take_buffer();
        let mut copied_bytes = 0;
        for index in (0..self.packets).filter(|index| state.presence.contains(*index)) {
            let (offset, bytes) = (geometry.packet_offset(index), geometry.packet_bytes(index));
            let parked = queue.unpark(first_id + index);
            let from = parked.or_else(|| state.buffer.as_ref().map(|buffer| buffer.sge(offset, bytes)));
            if let Some((from, copy)) = from.zip(copy.as_ref()) {
                queue.copy(Sge { len: bytes, ..from }, copy.sge(offset, bytes));
                copied_bytes += u64::from(bytes);
            }
        }
        (copy, copied_bytes)
    }

    /// Zeroes the missing packets of a shot that was taken, and the bytes outside of all packets; `withdraw` gets the
    /// receives of its missing packets. Returns the number of sample bytes received.
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
        if geometry.packetization().separate_trailer || !geometry.trailer().is_sent() {
            buffer.zero(geometry.sample_bytes(), geometry.trailer_offset() - geometry.sample_bytes());
        }
        valid_bytes
    }

    /// Returns `true` if the CRC over a whole shot that was taken is correct, combined from the packets' CRC
    /// remainders.
    pub(super) fn is_crc_good(&self, entry: usize) -> bool {
        let (last, full) = self.entries[entry].remainders.split_last().unwrap_or((&0, &[]));
        let register = full.iter().fold(u32::MAX, |register, remainder| self.full.apply(register) ^ remainder);
        let last_bytes = self.geometry.packet_bytes(self.packets - 1);
        crc::shift(register, u64::from(last_bytes)) ^ last == crc::RESIDUE
    }

    /// Notes that a packet has landed in this receive, the oldest of a queue. Returns `false` if there is no queue.
    pub(crate) fn note_landed(&mut self, id: u32) -> bool {
        self.queue.as_mut().map(|queue| queue.note_landed(id)).is_some()
    }

    /// Notes that the packet that has just landed in a queue has no destination.
    pub(crate) fn note_no_destination(&mut self) {
        self.queue.iter_mut().for_each(ReceiveQueue::note_no_destination);
    }

    /// Assigns the packet that has just landed in the receive `id` to this slot. Returns source and destination of the
    /// copy; none if the payload is in its destination.
    pub(crate) fn assign(&mut self, id: u32, entry: usize, index: u32) -> Option<(Sge, Sge)> {
        let (from, destination) = (self.landing_memory(id), self.destination(entry, index));
        let slot = self.id(entry, index);
        let to = self.queue.as_mut().zip(destination).and_then(|(queue, destination)| queue.assign(slot, destination));
        from.zip(to)
    }

    /// Returns the payload parked for the destination of this id, if any, and that destination. It is no longer parked.
    pub(crate) fn unpark(&mut self, id: u32) -> Option<(Sge, Sge)> {
        let from = self.queue.as_mut()?.unpark(id)?;
        let (entry, index) = self.slot(id);
        self.destination(entry, index).map(|to| (from, to))
    }

    /// Returns the last bytes of a packet that landed in this receive, as long as a record, if the packet has the
    /// length of a shot's last one.
    pub(super) fn read_end(&self, id: u32, len: u32) -> Option<[u8; RECORD_BYTES as usize]> {
        if len != self.geometry.packet_bytes(self.packets - 1) {
            return None;
        }
        let destination = self.landing_memory(id)?;
        let offset = destination.offset + u64::from(len.checked_sub(RECORD_BYTES)?);
        let mut bytes = [0; RECORD_BYTES as usize];
        self.queue.as_ref()?.read(destination.region, offset, &mut bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::Registrar;

    /// Creates two entries of three packets whose ids begin at 100, and a pool of this number of buffers.
    fn slots(buffers: u32) -> (Slots, Arc<Pool>, Regions) {
        let config = StreamConfig::of_three_packets();
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, buffers, config.geometry.slot_bytes()).unwrap();
        (Slots::new(&config, 100, 2), pool, registrar.finish())
    }

    #[test]
    fn each_destination_has_one_receive_id() {
        let (mut slots, pool, _) = slots(2);
        let mut posts = Vec::new();
        slots.refill(&pool, &mut posts);
        assert_eq!(posts.iter().map(|post| post.id).collect::<Vec<_>>(), slots.ids().collect::<Vec<_>>());
        for post in posts {
            let (entry, index) = slots.slot(post.id);
            assert_eq!((slots.id(entry, index), slots.destination(entry, index)), (post.id, Some(post.sge[0])));
        }
    }

    #[test]
    fn entries_are_ready_while_the_pool_has_buffers() {
        let (mut slots, pool, _) = slots(1);
        slots.refill(&pool, &mut Vec::new());
        assert_eq!((slots.ready(0), slots.ready(1)), (Some(0), None));
        assert_eq!((slots.take_ready(), slots.take_ready()), (Some(0), None));
        drop(slots.take(0));
        let mut posts = Vec::new();
        slots.refill(&pool, &mut posts);
        assert_eq!((slots.ready(0), posts.len()), (Some(0), 3), "the buffer was returned");
    }

    #[test]
    fn a_shot_accepts_each_packet_once_and_empties_its_entry() {
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
    fn a_shot_leaves_in_a_copy_while_the_device_owns_its_buffer() {
        let extra = 64; // at least the number of extra buffers for shots of three packets
        let (mut slots, pool, regions) = slots(2 + extra);
        slots.use_receive_queue(&pool, &regions);
        slots.refill(&pool, &mut Vec::new());
        slots.take_queue_buffers();
        let own = slots.destination(0, 0).unwrap();
        assert!(slots.note_landed(100));
        assert_eq!((slots.assign(100, 0, 0), slots.fill(0, 0, 0)), (None, Ok(())), "it is in its place");
        let taken = slots.take(0);
        assert_eq!(taken.copied_bytes, 4096);
        assert_ne!(taken.buffer.unwrap().sge(0, 4096), own);
        assert_eq!(slots.destination(0, 0), Some(own), "the entry keeps its buffer");
    }
}
