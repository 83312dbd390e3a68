//! Environment of the checks: memory, a sender, a receiver, and a steer that records what it receives.

use crate::inproc::{InprocConfig, InprocIo, pair};
use crate::{
    BatchInfo, Capabilities, Icrc, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv, RxPacket, SCRATCH_BYTES,
    Seal, Steer, TxPacket,
};
use shotline_conformance::{Failure, ensure};
use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the header of every packet in the checks.
pub const HEADER: usize = 24;
/// Capacity that a receiver must have, and one more than the highest id that is posted.
pub const BUFFERS: u64 = 128;
/// Bytes of a buffer.
const BUFFER_BYTES: u32 = 4096;
/// Destination queue pair of every header, for receivers that demultiplex.
pub const QUEUE_PAIR: u32 = 0x0012_3456;
/// Queue key of every header.
pub const Q_KEY: u32 = 0x1122_3344;
/// Time after which a check that receives no packets fails. Only a check that hangs reaches it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns a header that differs for each index: that of a UD SEND with immediate data, to [`QUEUE_PAIR`] with
/// [`Q_KEY`].
pub fn header(index: u8) -> [u8; HEADER] {
    let mut header = [index; HEADER];
    header[..2].copy_from_slice(&[0x65, 0]); // the ICRC masks byte 4
    header[5..8].copy_from_slice(&QUEUE_PAIR.to_be_bytes()[1..]);
    header[12..16].copy_from_slice(&Q_KEY.to_be_bytes());
    header
}

/// Memory of a check: a source of payloads, and buffers to receive them.
#[derive(Clone, Debug)]
pub struct Memory {
    source: Arc<Region>,
    source_sge: Sge,
    buffers_sge: Sge,
    /// Scratch memory for payloads without a destination.
    pub scratch: Sge,
    /// The table of all regions.
    pub regions: Regions,
}

impl Memory {
    /// Allocates all regions.
    ///
    /// # Panics
    /// If less than 1 MiB of memory can be allocated.
    pub fn new() -> Self {
        let mut registrar = Registrar::new();
        let mut add = |len: u32| {
            let region = Region::host(len as usize).expect("memory for a check");
            (Arc::clone(&region), Sge { region: registrar.add(region), offset: 0, len })
        };
        let (source, source_sge) = add(1 << 16);
        let (_, buffers_sge) = add(BUFFERS as u32 * BUFFER_BYTES);
        let (_, scratch) = add(SCRATCH_BYTES);
        for at in 0..source.len() / 4 {
            source.write(at * 4, &(at as u32).wrapping_mul(2_654_435_761).to_le_bytes());
        }
        Self { source, source_sge, buffers_sge, scratch, regions: registrar.finish() }
    }

    /// Returns a payload as a gather list, and its bytes.
    pub fn payload(&self, offset: u64, len: u32) -> ([Sge; 2], Vec<u8>) {
        let mut bytes = vec![0; len as usize];
        self.source.read(offset as usize, &mut bytes);
        ([Sge { offset, len, ..self.source_sge }, Sge::EMPTY], bytes)
    }

    /// Returns the first `len` bytes of a buffer.
    pub fn buffer(&self, index: u64, len: u32) -> Sge {
        Sge { offset: index * u64::from(BUFFER_BYTES), len, ..self.buffers_sge }
    }

    /// Sets all bytes of an element to `byte`.
    pub fn fill(&self, sge: Sge, byte: u8) {
        self.regions.get(sge.region).write(sge.offset as usize, &vec![byte; sge.len as usize]);
    }

    /// Reads the bytes of an element.
    pub fn read(&self, sge: Sge) -> Vec<u8> {
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

/// A packet as a [`Collector`] received it.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// Location of its payload.
    pub landed: PayloadLocation,
    /// Its payload.
    pub bytes: Vec<u8>,
    /// Its header.
    pub header: Vec<u8>,
    /// As [`RxPacket::icrc`].
    pub icrc: Icrc,
    /// As [`RxPacket::payload_crc`].
    pub payload_crc: u32,
    /// As [`RxPacket::stamp_ns`].
    pub stamp_ns: u64,
    /// As [`RxPacket::congested`].
    pub congested: bool,
    /// As [`RxPacket::fault`].
    pub fault: Option<DropCause>,
    /// Number of packets that landed before this one's batch.
    pub landed_before: usize,
}

/// A steer with preset choices, one per packet, that records the packets that land.
#[derive(Debug)]
pub struct Collector<'a> {
    /// The memory that payloads land in.
    pub memory: &'a Memory,
    /// Its choices, from the front; scratch memory when it is empty.
    pub choices: VecDeque<PayloadDestination>,
    /// Header lengths that it sets ([`Pick::header_len`]), starting with the first packet of every batch.
    pub header_lens: Vec<Option<u16>>,
    /// What it predicts ([`Steer::predict`]).
    pub predictions: Vec<Pick>,
    /// Bytes around the predicted destinations that may be overwritten ([`Steer::margins`]).
    pub margins: [u32; 2],
    /// The packets that landed, in order.
    pub received: Vec<ReceivedPacket>,
}

impl<'a> Collector<'a> {
    /// Creates a steer with these choices, without predictions.
    pub fn new(memory: &'a Memory, choices: VecDeque<PayloadDestination>) -> Self {
        Self {
            memory,
            choices,
            header_lens: Vec::new(),
            predictions: Vec::new(),
            margins: [0; 2],
            received: Vec::new(),
        }
    }
}

impl Steer for Collector<'_> {
    fn header_len(&mut self, _seen: &BatchInfo<'_>) -> usize {
        HEADER
    }
    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        assert_eq!(picks.len(), seen.packets, "one pick for each packet of the batch");
        for (index, pick) in picks.iter_mut().enumerate() {
            pick.header_len = self.header_lens.get(index).copied().flatten();
            pick.destination = self.choices.pop_front().unwrap_or_default();
        }
    }
    fn predict(&mut self, picks: &mut [Pick]) -> usize {
        let count = picks.len().min(self.predictions.len());
        picks[..count].copy_from_slice(&self.predictions[..count]);
        self.predictions.drain(..count);
        count
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        self.margins
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        let landed_before = self.received.len();
        for done in batch {
            let sges = match done.landed {
                PayloadLocation::Posted(id) => [self.memory.buffer(u64::from(id), done.len), Sge::EMPTY],
                PayloadLocation::Scratch(sge) => [sge, Sge::EMPTY],
                PayloadLocation::Memory(sges) => sges,
            };
            let mut bytes = sges.map(|sge| self.memory.read(sge)).concat();
            bytes.truncate(done.len as usize);
            self.received.push(ReceivedPacket {
                landed: done.landed,
                bytes,
                header: done.header.to_vec(),
                icrc: done.icrc,
                payload_crc: done.payload_crc,
                stamp_ns: done.stamp_ns,
                congested: done.congested,
                fault: done.fault,
                landed_before,
            });
        }
    }
}

/// Polls until this many packets have landed with the steer, and returns them.
///
/// # Errors
/// If they do not arrive in time, or receiving fails.
pub fn receive(
    rx: &mut impl PacketIo,
    mut steer: Collector<'_>,
    packets: usize,
) -> Result<Vec<ReceivedPacket>, Failure> {
    let end = Instant::now() + TIMEOUT;
    while steer.received.len() < packets {
        ensure!(Instant::now() < end, "{} of {packets} packets arrived", steer.received.len());
        if rx.poll(&mut steer, 4).map_err(|error| error.to_string())? == 0 {
            rx.wait(Duration::from_millis(50)).map_err(|error| error.to_string())?;
        }
    }
    Ok(steer.received)
}

/// A sender and a receiver that reach each other.
#[derive(Debug)]
pub struct EndpointPair<T, R> {
    /// The sender.
    pub tx: T,
    /// The receiver.
    pub rx: R,
    /// Address at which the sender reaches the receiver.
    pub to: SocketAddr,
}

impl<R> EndpointPair<InprocIo, R> {
    /// Creates both ends of an in-process queue, the receiver wrapped by `wrap`: to run the suite over a wrapper.
    pub fn in_process(memory: &Memory, sealed: bool, wrap: impl FnOnce(InprocIo) -> R) -> Self {
        let (scratch, capacity) = (memory.scratch, BUFFERS as usize);
        let end = |port| InprocConfig { address: ([127, 0, 0, 1], port).into(), sealed, capacity, scratch };
        let (tx, rx) = pair(1000, (end(1), &memory.regions), (end(2), &memory.regions));
        Self { tx, rx: wrap(rx), to: end(2).address }
    }
}

/// The environment of one check.
#[derive(Debug)]
pub struct Stage<'a, T, R> {
    /// The memory of both ends.
    pub memory: &'a Memory,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Capabilities that the receiver must report.
    pub capabilities: Capabilities,
    /// Address at which the sender reaches the receiver.
    pub to: SocketAddr,
    /// The sender.
    pub tx: T,
    /// The receiver.
    pub rx: R,
}

impl<T: PacketIo, R: PacketIo> Stage<'_, T, R> {
    /// Returns the verdict on a packet whose ICRC, if it has one, is correct.
    pub(super) fn good(&self) -> Icrc {
        if self.sealed { Icrc::Good } else { Icrc::Absent }
    }

    /// Returns the seal of a valid packet.
    pub(super) fn seal(&self) -> Seal {
        if self.sealed { Seal::Compute } else { Seal::None }
    }

    /// Sends all of these packets, with as many calls as necessary.
    pub(super) fn send(&mut self, packets: &[TxPacket<'_>]) -> Result<(), Failure> {
        let end = Instant::now() + TIMEOUT;
        let mut sent = 0;
        while sent < packets.len() {
            ensure!(Instant::now() < end, "{sent} of {} packets were accepted", packets.len());
            sent += self.tx.send(self.to, &packets[sent..]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Receives one packet per id; each payload is directed to the posted receive of its id, or to scratch memory.
    pub(super) fn receive(&mut self, ids: &[Option<u32>]) -> Result<Vec<ReceivedPacket>, Failure> {
        let choices = ids.iter().map(|id| id.map_or(PayloadDestination::Scratch, PayloadDestination::Posted)).collect();
        receive(&mut self.rx, Collector::new(self.memory, choices), ids.len())
    }

    /// Posts the buffers of these ids.
    pub(super) fn post(&mut self, ids: std::ops::Range<u32>) -> Result<(), Failure> {
        let buffer = |id| Recv { id, sge: [self.memory.buffer(id.into(), BUFFER_BYTES), Sge::EMPTY] };
        let receives: Vec<Recv> = ids.map(buffer).collect();
        let posted = self.rx.post(&receives);
        ensure!(posted == receives.len(), "{posted} of {} receives were accepted", receives.len());
        Ok(())
    }

    /// Withdraws all receives that a previous check has left posted.
    pub(super) fn withdraw_all(&mut self) {
        let all: Vec<u32> = (0..BUFFERS as u32).collect();
        self.rx.withdraw(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::roce::ud_header;

    #[test]
    fn headers_are_ud_headers_to_one_queue_pair() {
        for index in [0, 1, 77, 255] {
            let read = ud_header(&header(index)).unwrap();
            assert_eq!((read.dest_qp, read.q_key, read.pad), (QUEUE_PAIR, Q_KEY, 0), "{index}");
            assert_ne!(header(index), header(index ^ 1));
        }
    }
}
