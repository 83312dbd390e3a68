//! Receives that a device takes in their order, whatever the packet is: an RDMA device's receive queue.
//!
//! Places stand in a line, and each packet lands in the foremost. As long as everything comes, that is its own. After a
//! loss every payload lands before its place, after a packet of a stranger behind it, and is moved. A place is the
//! device's until a packet has landed there, which has three consequences:
//!
//! - A payload whose place is still the device's is *parked* until the place is free: two copies.
//! - A shot that has to leave while places of its buffer are the device's leaves in another buffer.
//! - What slid stays so until the line is through. Then it is straight again, because whoever appends to the line knows
//!   which packet is due there: places whose packets will have landed before are left out, and *spare* places take those
//!   that come before theirs.
//!
//! The line also gets spares when strangers' packets have shortened it, so that it never runs dry while there are buffers.

use shotline_memory::{Buffer, Pool, RegionId, Regions, Sge};
use shotline_transport::Recv;
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::sync::Arc;

/// Places of no packet of their own, at most.
pub(crate) const SPARES: usize = 64;

/// Buffers that a line keeps for spares and for payloads that wait.
fn extra_buffers(geometry: &Geometry) -> usize {
    let packets = geometry.packets() as usize;
    // A slide that begins in a shot and ends in another is shorter than two shots.
    (2 * SPARES + 2 * packets).div_ceil(packets)
}

/// Buffers that a line keeps beside those of its entries.
pub(crate) fn extra(geometry: &Geometry) -> usize {
    extra_buffers(geometry) + 1
}

/// One stream's line.
#[derive(Debug)]
pub(super) struct Line {
    pool: Arc<Pool>,
    regions: Regions,
    geometry: Geometry,
    base_id: u32,
    /// Places of entries; the ids behind them are spares'.
    slots: u32,
    /// By id from the base: the device has it.
    lent: Vec<bool>,
    /// By entry: how many of its places the device has.
    lent_of: Vec<u32>,
    /// By slot: where the payload is that belongs there.
    parked: Vec<Option<u16>>,
    free_parks: Vec<u16>,
    free_spares: Vec<u32>,
    /// Memory of spares, and then of parked payloads.
    extra: Vec<Buffer>,
    /// For a shot that has to leave in another buffer.
    relief: Option<Buffer>,
    /// By entry: its place among all that were ever appended.
    ordinals: Vec<u64>,
    /// Entries appended.
    laid: u64,
    /// Places appended and landed in.
    posted: u64,
    landed: u64,
    /// How many places further back than it landed the newest packet belongs.
    shift: i64,
    /// Where the packet landed that is being looked at.
    at: u32,
    /// Entries that kept their buffers, to be appended again.
    again: VecDeque<usize>,
}

impl Line {
    /// A line for so many entries, without spares and without room to park.
    pub(super) fn new(pool: &Arc<Pool>, regions: &Regions, geometry: Geometry, base_id: u32, entries: usize) -> Self {
        let packets = geometry.packets();
        let slots = entries as u32 * packets;
        Self {
            pool: Arc::clone(pool),
            regions: regions.clone(),
            geometry,
            base_id,
            slots,
            lent: vec![false; slots as usize + SPARES],
            lent_of: vec![0; entries],
            parked: vec![None; slots as usize],
            free_parks: Vec::new(),
            free_spares: Vec::new(),
            extra: Vec::new(),
            relief: None,
            ordinals: vec![0; entries],
            laid: 0,
            posted: 0,
            landed: 0,
            shift: 0,
            at: 0,
            again: VecDeque::with_capacity(entries),
        }
    }

    /// Takes buffers for spares, for payloads that wait, and for one shot that has to leave in another buffer; they are
    /// kept. [`extra`] says how many the pool should have for it.
    pub(super) fn furnish(&mut self) {
        let buffers = extra_buffers(&self.geometry);
        self.extra = (0..buffers).map_while(|_| self.pool.take()).collect();
        let places = self.extra.len() * self.geometry.packets() as usize;
        let spares = places.min(SPARES);
        self.free_parks = (spares..places.min(usize::from(u16::MAX))).rev().map(|place| place as u16).collect();
        self.free_spares = (0..spares as u32).map(|spare| self.base_id + self.slots + spare).collect();
        self.relieve();
    }

    /// Keeps a buffer for a shot that has to leave in another one.
    pub(super) fn relieve(&mut self) {
        if self.relief.is_none() && !self.extra.is_empty() {
            self.relief = self.pool.take();
        }
    }

    /// A buffer for a shot that has to leave in another one.
    pub(super) fn fresh(&mut self) -> Option<Buffer> {
        self.pool.take().or_else(|| self.relief.take())
    }

    /// Has an entry that keeps its buffer appended again.
    pub(super) fn keep(&mut self, entry: usize) {
        self.again.push_back(entry);
    }

    /// The next entry that kept its buffer and is to be appended again.
    pub(super) fn next_kept(&mut self) -> Option<usize> {
        self.again.pop_front()
    }

    /// Copies a payload.
    pub(super) fn copy(&self, from: Sge, to: Sge) {
        self.regions.copy(from, to);
    }

    /// Reads what lies at an offset of a region.
    pub(super) fn read(&self, region: RegionId, offset: u64, bytes: &mut [u8]) {
        self.regions.get(region).read(offset as usize, bytes);
    }

    /// The packet that has just landed has no place.
    pub(super) fn refuse(&mut self) {
        self.shift -= 1;
    }

    /// Receive ids that are this line's.
    pub(super) fn ids(&self) -> std::ops::Range<u32> {
        self.base_id..self.base_id + self.slots + SPARES as u32
    }

    fn place_in(&self, buffer: &Buffer, index: u32) -> Sge {
        // Whatever lands must fit wherever it lands.
        let offset = self.geometry.packet_offset(index);
        let bytes = self.geometry.cut().rest.max(self.geometry.packet_bytes(index));
        buffer.sge(offset, bytes.min(buffer.len() - offset))
    }

    /// The place of one of the extra buffers' packets.
    fn extra_place(&self, place: u32) -> Sge {
        let packets = self.geometry.packets();
        self.place_in(&self.extra[(place / packets) as usize], place % packets)
    }

    /// The place of a spare; none if the id is a slot's.
    pub(super) fn spare_place(&self, id: u32) -> Option<Sge> {
        (id - self.base_id).checked_sub(self.slots).map(|spare| self.extra_place(spare))
    }

    /// Appends the places of an entry, and spares before them, so that each stands where its packet will land.
    pub(super) fn lay(&mut self, entry: usize, buffer: &Buffer, posts: &mut Vec<Recv>) {
        self.straighten(posts);
        let mut skip = self.gap();
        self.ordinals[entry] = self.laid;
        self.laid += 1;
        for index in 0..self.geometry.packets() {
            let slot = entry as u32 * self.geometry.packets() + index;
            if skip > 0 {
                skip -= 1;
            } else if !self.lent[slot as usize] {
                self.lend(slot, self.place_in(buffer, index), posts);
                self.lent_of[entry] += 1;
            }
        }
    }

    /// How many packets the line's end is ahead of the next entry's first: those land before it.
    fn gap(&self) -> i64 {
        self.shift + self.posted as i64 - (self.laid * u64::from(self.geometry.packets())) as i64
    }

    /// Appends spares where packets are due that have their places in front.
    pub(super) fn straighten(&mut self, posts: &mut Vec<Recv>) {
        while self.gap() < 0 {
            let Some(id) = self.free_spares.pop() else { return };
            let Some(place) = self.spare_place(id) else { return };
            self.lend(id - self.base_id, place, posts);
        }
    }

    fn lend(&mut self, position: u32, place: Sge, posts: &mut Vec<Recv>) {
        self.lent[position as usize] = true;
        self.posted += 1;
        posts.push(Recv { id: self.base_id + position, sge: [place, Sge::EMPTY] });
    }

    /// A packet has landed in the place of this id, which is ours again.
    pub(super) fn land(&mut self, id: u32) {
        let position = id - self.base_id;
        self.lent[position as usize] = false;
        self.landed += 1;
        self.at = id;
        if position < self.slots {
            self.lent_of[(position / self.geometry.packets()) as usize] -= 1;
        } else {
            self.free_spares.push(id);
        }
    }

    /// Whether the device has any place of an entry.
    pub(super) fn has_lent(&self, entry: usize) -> bool {
        self.lent_of[entry] > 0
    }

    /// Whether the packet that has just landed could not be brought to this place: it is the device's, and nowhere is
    /// room to wait.
    pub(super) fn is_stuck(&self, id: u32) -> bool {
        self.free_parks.is_empty() && self.lent[(id - self.base_id) as usize]
    }

    /// The packet that has just landed belongs to this slot. Returns where its payload is to be copied to; none if it is
    /// there already.
    pub(super) fn bring(&mut self, id: u32, place: Sge) -> Option<Sge> {
        let slot = id - self.base_id;
        let (entry, index) = (slot / self.geometry.packets(), slot % self.geometry.packets());
        let belongs = self.ordinals[entry as usize] * u64::from(self.geometry.packets()) + u64::from(index) + 1;
        self.shift = belongs as i64 - self.landed as i64;
        if id == self.at {
            return None;
        }
        if !self.lent[slot as usize] {
            return Some(place);
        }
        let park = self.free_parks.pop()?;
        self.parked[slot as usize] = Some(park);
        Some(self.extra_place(park.into()))
    }

    /// Where the payload of a slot waits, if it does. It waits no longer.
    pub(super) fn fetch(&mut self, id: u32) -> Option<Sge> {
        let slot = id - self.base_id;
        let park = self.parked.get_mut(slot as usize)?.take()?;
        self.free_parks.push(park);
        Some(self.extra_place(park.into()))
    }
}
