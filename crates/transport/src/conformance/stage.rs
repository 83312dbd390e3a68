//! What the checks act on: memory, a sender, a receiver, and a steer that keeps what it saw.

use crate::inproc::{InprocConfig, InprocIo, pair};
use crate::{Capabilities, Done, Icrc, Landed, PacketIo, Pick, Recv, SCRATCH_BYTES, Seal, Seen, Send, Steer, To};
use shotline_conformance::{Failure, ensure};
use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the header that every packet of the checks has.
pub const HEADER: usize = 24;
/// Places that a receiver must have room for, and one more than the highest id that is posted.
pub const PLACES: u64 = 128;
/// Bytes of a place.
const PLACE_BYTES: u32 = 4096;
/// The queue pair that every header names, for receivers that demultiplex.
pub const QUEUE_PAIR: u32 = 0x0012_3456;
/// The queue key that every header carries.
pub const Q_KEY: u32 = 0x1122_3344;
/// How long a check waits for packets. Nothing is measured: this only ends what hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A header that differs for each index: that of a UD SEND with immediate data, to [`QUEUE_PAIR`] with [`Q_KEY`].
pub fn header(index: u8) -> [u8; HEADER] {
    let mut header = [index; HEADER];
    header[..2].copy_from_slice(&[0x65, 0]); // the ICRC masks byte 4
    header[5..8].copy_from_slice(&QUEUE_PAIR.to_be_bytes()[1..]);
    header[12..16].copy_from_slice(&Q_KEY.to_be_bytes());
    header
}

/// Memory of a check: a source of payloads, and places for them.
#[derive(Clone, Debug)]
pub struct Memory {
    source: Arc<Region>,
    source_sge: Sge,
    places_sge: Sge,
    /// For payloads without a place.
    pub scratch: Sge,
    /// The table of all of it.
    pub regions: Regions,
}

impl Memory {
    /// Allocates it.
    ///
    /// # Panics
    /// If the machine has not enough of it: less than 1 MiB.
    pub fn new() -> Self {
        let mut registrar = Registrar::new();
        let mut add = |len: u32| {
            let region = Region::host(len as usize).expect("memory for a check");
            (Arc::clone(&region), Sge { region: registrar.add(region), offset: 0, len })
        };
        let (source, source_sge) = add(1 << 16);
        let (_, places_sge) = add(PLACES as u32 * PLACE_BYTES);
        let (_, scratch) = add(SCRATCH_BYTES);
        for at in 0..source.len() / 4 {
            source.write(at * 4, &(at as u32).wrapping_mul(2_654_435_761).to_le_bytes());
        }
        Self { source, source_sge, places_sge, scratch, regions: registrar.finish() }
    }

    /// A payload as pieces to gather, and its bytes.
    pub fn payload(&self, offset: u64, len: u32) -> ([Sge; 2], Vec<u8>) {
        let mut bytes = vec![0; len as usize];
        self.source.read(offset as usize, &mut bytes);
        ([Sge { offset, len, ..self.source_sge }, Sge::EMPTY], bytes)
    }

    /// The first bytes of a place.
    pub fn place(&self, index: u64, len: u32) -> Sge {
        Sge { offset: index * u64::from(PLACE_BYTES), len, ..self.places_sge }
    }

    /// Sets all bytes of an element.
    pub fn fill(&self, sge: Sge, byte: u8) {
        self.regions.get(sge.region).write(sge.offset as usize, &vec![byte; sge.len as usize]);
    }

    /// The bytes of an element.
    pub fn at(&self, sge: Sge) -> Vec<u8> {
        let mut bytes = vec![0; sge.len as usize];
        self.regions.get(sge.region).read(sge.offset as usize, &mut bytes);
        bytes
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// What a [`Collector`] saw of one packet.
#[derive(Debug)]
pub struct Got {
    /// Where its payload landed.
    pub landed: Landed,
    /// Its payload.
    pub bytes: Vec<u8>,
    /// Its header.
    pub header: Vec<u8>,
    /// As [`Done::icrc`].
    pub icrc: Icrc,
    /// As [`Done::payload_crc`].
    pub payload_crc: u32,
    /// As [`Done::stamp_ns`].
    pub stamp_ns: u64,
    /// As [`Done::congested`].
    pub congested: bool,
    /// As [`Done::fault`].
    pub fault: Option<DropCause>,
    /// Packets that landed before this one's batch.
    pub told_before: usize,
}

/// A steer that chooses what it was told to, one packet after the other, and keeps what landed.
#[derive(Debug)]
pub struct Collector<'a> {
    /// Where payloads may land.
    pub memory: &'a Memory,
    /// Its choices, from the front on; scratch when it is empty.
    pub wanted: VecDeque<To>,
    /// Header lengths that it foretells, from the first packet of every batch on.
    pub foretold: Vec<Option<u16>>,
    /// What it expects of packets that cannot be looked at.
    pub expected: Vec<Pick>,
    /// Bytes around the places that it expects packets in.
    pub around: [u32; 2],
    /// What landed, in order.
    pub got: Vec<Got>,
}

impl<'a> Collector<'a> {
    /// Foretells and expects nothing.
    pub fn new(memory: &'a Memory, wanted: VecDeque<To>) -> Self {
        Self { memory, wanted, foretold: Vec::new(), expected: Vec::new(), around: [0; 2], got: Vec::new() }
    }
}

impl Steer for Collector<'_> {
    fn header_len(&mut self, _seen: &Seen<'_>) -> usize {
        HEADER
    }
    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        assert_eq!(picks.len(), seen.packets, "one pick for each packet of the batch");
        for (index, pick) in picks.iter_mut().enumerate() {
            pick.header_len = self.foretold.get(index).copied().flatten();
            pick.to = self.wanted.pop_front().unwrap_or_default();
        }
    }
    fn expect(&mut self, picks: &mut [Pick]) -> usize {
        let count = picks.len().min(self.expected.len());
        picks[..count].copy_from_slice(&self.expected[..count]);
        self.expected.drain(..count);
        count
    }
    fn around(&self, _to: To) -> [u32; 2] {
        self.around
    }
    fn landed(&mut self, batch: &[Done<'_>]) {
        let told_before = self.got.len();
        for done in batch {
            let sges = match done.landed {
                Landed::Slot(id) => [self.memory.place(u64::from(id), done.len), Sge::EMPTY],
                Landed::Scratch(sge) => [sge, Sge::EMPTY],
                Landed::Memory(sges) => sges,
            };
            let mut bytes = sges.map(|sge| self.memory.at(sge)).concat();
            bytes.truncate(done.len as usize);
            self.got.push(Got {
                landed: done.landed,
                bytes,
                header: done.header.to_vec(),
                icrc: done.icrc,
                payload_crc: done.payload_crc,
                stamp_ns: done.stamp_ns,
                congested: done.congested,
                fault: done.fault,
                told_before,
            });
        }
    }
}

/// Polls until this many packets have landed with the steer, and returns what it got.
///
/// # Errors
/// If they do not come, or receiving fails.
pub fn receive(rx: &mut impl PacketIo, mut steer: Collector<'_>, packets: usize) -> Result<Vec<Got>, Failure> {
    let end = Instant::now() + PATIENCE;
    while steer.got.len() < packets {
        ensure!(Instant::now() < end, "{} of {packets} packets came", steer.got.len());
        if rx.poll(&mut steer, 4).map_err(|error| error.to_string())? == 0 {
            rx.wait(Duration::from_millis(50)).map_err(|error| error.to_string())?;
        }
    }
    Ok(steer.got)
}

/// A sender and a receiver that reach each other.
#[derive(Debug)]
pub struct Ends<T, R> {
    /// Sends.
    pub tx: T,
    /// Receives.
    pub rx: R,
    /// Where the sender reaches the receiver.
    pub to: SocketAddr,
}

impl<R> Ends<InprocIo, R> {
    /// Both ends of an in-process queue, the receiving one as `wrap` makes it: for the suite over a wrapper.
    pub fn in_process(memory: &Memory, sealed: bool, wrap: impl FnOnce(InprocIo) -> R) -> Self {
        let (scratch, capacity) = (memory.scratch, PLACES as usize);
        let end = |port| InprocConfig { address: ([127, 0, 0, 1], port).into(), sealed, capacity, scratch };
        let (tx, rx) = pair(1000, (end(1), &memory.regions), (end(2), &memory.regions));
        Self { tx, rx: wrap(rx), to: end(2).address }
    }
}

/// What one check acts on.
#[derive(Debug)]
pub struct Stage<'a, T, R> {
    /// The memory of both ends.
    pub memory: &'a Memory,
    /// Whether packets end in an ICRC.
    pub sealed: bool,
    /// What the receiver must say that it can do.
    pub capabilities: Capabilities,
    /// Where the sender reaches the receiver.
    pub to: SocketAddr,
    /// The sender.
    pub tx: T,
    /// The receiver.
    pub rx: R,
}

impl<T: PacketIo, R: PacketIo> Stage<'_, T, R> {
    /// The verdict on a packet whose ICRC, if it has one, is right.
    pub(super) fn good(&self) -> Icrc {
        if self.sealed { Icrc::Good } else { Icrc::Absent }
    }

    /// The seal of a packet that is to arrive well.
    pub(super) fn seal(&self) -> Seal {
        if self.sealed { Seal::Compute } else { Seal::None }
    }

    /// Sends all of these, however often it takes.
    pub(super) fn send(&mut self, packets: &[Send<'_>]) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        let mut sent = 0;
        while sent < packets.len() {
            ensure!(Instant::now() < end, "{sent} of {} packets were taken", packets.len());
            sent += self.tx.send(self.to, &packets[sent..]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Receives this many packets; each payload is wanted in the posted receive of its id, or in scratch memory.
    pub(super) fn receive(&mut self, ids: &[Option<u32>]) -> Result<Vec<Got>, Failure> {
        let wanted = ids.iter().map(|id| id.map_or(To::Scratch, To::Posted)).collect();
        receive(&mut self.rx, Collector::new(self.memory, wanted), ids.len())
    }

    /// Posts the places of these ids.
    pub(super) fn post(&mut self, ids: std::ops::Range<u32>) -> Result<(), Failure> {
        let place = |id| Recv { id, sge: [self.memory.place(id.into(), PLACE_BYTES), Sge::EMPTY] };
        let receives: Vec<Recv> = ids.map(place).collect();
        let posted = self.rx.post(&receives);
        ensure!(posted == receives.len(), "{posted} of {} receives were taken", receives.len());
        Ok(())
    }

    /// Takes back whatever a check before has left posted.
    pub(super) fn withdraw_all(&mut self) {
        let all: Vec<u32> = (0..PLACES as u32).collect();
        self.rx.withdraw(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::roce::ud_header;

    #[test]
    fn every_header_is_a_datagrams_to_one_queue_pair() {
        for index in [0, 1, 77, 255] {
            let read = ud_header(&header(index)).unwrap();
            assert_eq!((read.dest_qp, read.q_key, read.pad), (QUEUE_PAIR, Q_KEY, 0), "{index}");
            assert_ne!(header(index), header(index ^ 1));
        }
    }
}
