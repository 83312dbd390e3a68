//! Receives that a device consumes in order, regardless of the packet: the receive queue of an RDMA device.
//!
//! Receives form a queue, and each packet lands in the oldest. Without losses that is its destination. After a loss
//! every payload lands before its destination, after a packet of another sender beyond it, and is moved. A buffer range
//! belongs to the device until a packet has landed there, which has three consequences:
//!
//! - A payload whose destination still belongs to the device is *parked* until it is free: two copies.
//! - A shot that must leave while the device owns ranges of its buffer leaves in another buffer.
//! - A shift persists until the queue has been consumed once. Then it is aligned again, because the position at which
//!   each packet will land is known when receives are appended: destinations whose packets will have landed before are
//!   skipped, and *spare* receives take the packets that arrive before theirs.
//!
//! Spares also replace receives consumed by other senders' packets, so that the queue never runs empty while there are
//! buffers.

use shotline_memory::{Buffer, Pool, RegionId, Regions, Sge};
use shotline_transport::Recv;
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of receives that are no packet's destination.
pub(crate) const SPARES: usize = 64;

/// Returns the number of buffers for spares and parked payloads.
fn extra_buffers(geometry: &Geometry) -> usize {
    let packets = geometry.packets() as usize;
    // A shift that begins in a shot and ends in another is shorter than two shots.
    (2 * SPARES + 2 * packets).div_ceil(packets)
}

/// Returns the number of buffers in addition to those of the entries.
pub(crate) fn queue_buffers(geometry: &Geometry) -> usize {
    extra_buffers(geometry) + 1
}

/// Receive queue of one stream.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    pool: Arc<Pool>,
    regions: Regions,
    geometry: Geometry,
    base_id: u32,
    /// Number of the entries' destinations; the ids after them are those of spares.
    slots: u32,
    /// By id from the base: `true` if the device owns the receive.
    is_posted: Vec<bool>,
    /// By entry: number of its receives that the device owns.
    posted_in: Vec<u32>,
    /// By slot: location of the parked payload that belongs there.
    parked: Vec<Option<u16>>,
    free_parks: Vec<u16>,
    free_spares: Vec<u32>,
    /// Memory of spares, followed by that of parked payloads.
    extra: Vec<Buffer>,
    /// Reserved for a shot that must leave in another buffer.
    reserved: Option<Buffer>,
    /// By entry: its ordinal among all entries ever appended.
    ordinals: Vec<u64>,
    /// Number of entries appended.
    appended: u64,
    /// Number of receives appended.
    posted: u64,
    landed: u64,
    /// Distance from the destination of the newest packet to where it landed, in receives.
    shift: i64,
    /// Receive id in which the current packet landed.
    landed_id: u32,
    /// Entries that kept their buffers, to be appended again.
    to_append: VecDeque<usize>,
}

impl ReceiveQueue {
    /// Creates a queue for this number of entries, without spares and without memory for parked payloads.
    pub(super) fn new(pool: &Arc<Pool>, regions: &Regions, geometry: Geometry, base_id: u32, entries: usize) -> Self {
        let packets = geometry.packets();
        let slots = entries as u32 * packets;
        Self {
            pool: Arc::clone(pool),
            regions: regions.clone(),
            geometry,
            base_id,
            slots,
            is_posted: vec![false; slots as usize + SPARES],
            posted_in: vec![0; entries],
            parked: vec![None; slots as usize],
            free_parks: Vec::new(),
            free_spares: Vec::new(),
            extra: Vec::new(),
            reserved: None,
            ordinals: vec![0; entries],
            appended: 0,
            posted: 0,
            landed: 0,
            shift: 0,
            landed_id: 0,
            to_append: VecDeque::with_capacity(entries),
        }
    }

    /// Takes buffers for spares, for parked payloads, and for one shot that must leave in another buffer; they are
    /// kept. [`queue_buffers`] is the number that the pool should have for it.
    pub(super) fn take_buffers(&mut self) {
        let buffers = extra_buffers(&self.geometry);
        self.extra = (0..buffers).map_while(|_| self.pool.take()).collect();
        let packets_total = self.extra.len() * self.geometry.packets() as usize;
        let spares = packets_total.min(SPARES);
        self.free_parks =
            (spares..packets_total.min(usize::from(u16::MAX))).rev().map(|destination| destination as u16).collect();
        self.free_spares = (0..spares as u32).map(|spare| self.base_id + self.slots + spare).collect();
        self.reserve_buffer();
    }

    /// Reserves a buffer for a shot that must leave in another one.
    pub(super) fn reserve_buffer(&mut self) {
        if self.reserved.is_none() && !self.extra.is_empty() {
            self.reserved = self.pool.take();
        }
    }

    /// Returns a buffer for a shot that must leave in another one.
    pub(super) fn take_buffer(&mut self) -> Option<Buffer> {
        self.pool.take().or_else(|| self.reserved.take())
    }

    /// Notes that an entry keeps its buffer and must be appended again.
    pub(super) fn keep_buffer(&mut self, entry: usize) {
        self.to_append.push_back(entry);
    }

    /// Returns the next entry that kept its buffer and must be appended again.
    pub(super) fn next_to_append(&mut self) -> Option<usize> {
        self.to_append.pop_front()
    }

    /// Copies a payload.
    pub(super) fn copy(&self, from: Sge, to: Sge) {
        self.regions.copy(from, to);
    }

    /// Reads from an offset of a region.
    pub(super) fn read(&self, region: RegionId, offset: u64, bytes: &mut [u8]) {
        self.regions.get(region).read(offset as usize, bytes);
    }

    /// Notes that the packet that has just landed has no destination.
    pub(super) fn note_no_destination(&mut self) {
        self.shift -= 1;
    }

    /// Returns the receive ids of this queue.
    pub(super) fn ids(&self) -> std::ops::Range<u32> {
        self.base_id..self.base_id + self.slots + SPARES as u32
    }

    /// Returns the memory of a packet, and what follows it: any payload must fit wherever it lands.
    fn memory_in(&self, buffer: &Buffer, index: u32) -> [Sge; 2] {
        let (offset, bytes) = (self.geometry.packet_offset(index), self.geometry.packet_bytes(index));
        let rest = self.geometry.packetization().rest.max(bytes).min(buffer.len() - offset) - bytes;
        [buffer.sge(offset, bytes), if rest > 0 { buffer.sge(offset + bytes, rest) } else { Sge::EMPTY }]
    }

    /// Returns the memory of a packet in one of the extra buffers.
    fn extra_memory(&self, destination: u32) -> Sge {
        let packets = self.geometry.packets();
        let [first, second] = self.memory_in(&self.extra[(destination / packets) as usize], destination % packets);
        Sge { len: first.len + second.len, ..first }
    }

    /// Returns the memory of a spare; none if the id is that of a slot.
    pub(super) fn spare_memory(&self, id: u32) -> Option<Sge> {
        (id - self.base_id).checked_sub(self.slots).map(|spare| self.extra_memory(spare))
    }

    /// Appends the receives of an entry, and spares before them, so that each packet lands in its destination.
    pub(super) fn append(&mut self, entry: usize, buffer: &Buffer, posts: &mut Vec<Recv>) {
        self.append_spares(posts);
        let mut skip = self.gap();
        self.ordinals[entry] = self.appended;
        self.appended += 1;
        for index in 0..self.geometry.packets() {
            let slot = entry as u32 * self.geometry.packets() + index;
            if skip > 0 {
                skip -= 1;
            } else if !self.is_posted[slot as usize] {
                self.post(slot, self.memory_in(buffer, index), posts);
                self.posted_in[entry] += 1;
            }
        }
    }

    /// Returns how many packets the queue's end is ahead of the next entry's first packet: those land before it.
    fn gap(&self) -> i64 {
        self.shift + self.posted as i64 - (self.appended * u64::from(self.geometry.packets())) as i64
    }

    /// Appends spares for packets whose destinations come earlier in the queue.
    pub(super) fn append_spares(&mut self, posts: &mut Vec<Recv>) {
        while self.gap() < 0 {
            let Some(id) = self.free_spares.pop() else { return };
            let Some(destination) = self.spare_memory(id) else { return };
            self.post(id - self.base_id, [destination, Sge::EMPTY], posts);
        }
    }

    fn post(&mut self, position: u32, sge: [Sge; 2], posts: &mut Vec<Recv>) {
        self.is_posted[position as usize] = true;
        self.posted += 1;
        posts.push(Recv { id: self.base_id + position, sge });
    }

    /// Notes that a packet has landed in this receive, which no longer belongs to the device.
    pub(super) fn note_landed(&mut self, id: u32) {
        let position = id - self.base_id;
        self.is_posted[position as usize] = false;
        self.landed += 1;
        self.landed_id = id;
        if position < self.slots {
            self.posted_in[(position / self.geometry.packets()) as usize] -= 1;
        } else {
            self.free_spares.push(id);
        }
    }

    /// Returns `true` if the device owns any receive of an entry.
    pub(super) fn has_posted(&self, entry: usize) -> bool {
        self.posted_in[entry] > 0
    }

    /// Returns `true` if the current packet cannot be moved to this slot: the device owns the slot, and there is no
    /// memory to park.
    pub(super) fn is_blocked(&self, id: u32) -> bool {
        self.free_parks.is_empty() && self.is_posted[(id - self.base_id) as usize]
    }

    /// Assigns the current packet to this slot. Returns the memory to copy its payload to; none if it is in its
    /// destination.
    pub(super) fn assign(&mut self, id: u32, destination: Sge) -> Option<Sge> {
        let slot = id - self.base_id;
        let (entry, index) = (slot / self.geometry.packets(), slot % self.geometry.packets());
        let expected = self.ordinals[entry as usize] * u64::from(self.geometry.packets()) + u64::from(index) + 1;
        self.shift = expected as i64 - self.landed as i64;
        if id == self.landed_id {
            return None;
        }
        if !self.is_posted[slot as usize] {
            return Some(destination);
        }
        let park = self.free_parks.pop()?;
        self.parked[slot as usize] = Some(park);
        Some(self.extra_memory(park.into()))
    }

    /// Returns the memory of the payload parked for a slot, and releases it.
    pub(super) fn unpark(&mut self, id: u32) -> Option<Sge> {
        let slot = id - self.base_id;
        let park = self.parked.get_mut(slot as usize)?.take()?;
        self.free_parks.push(park);
        Some(self.extra_memory(park.into()))
    }
}
