//! Senders of other vendors, with every fault of a network, against an oracle of what was sent: SPEAD heaps
//! whose first packet has a different header, frames of a sensor bridge whose last packet has.
//!
//! Packets are of one size, so that batches extend beyond the ends of shots, and a loss within one shifts headers of
//! one length to where those of another were predicted.

use crate::faults::Random;
use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_acquire::learn::{BufferedIo, Hints, LearnCallbacks, learn};
use shotline_acquire::{Item, Receiver, ReceiverConfig, StreamConfig, receiver};
use shotline_memory::{Pool, Region, Regions, Registrar, Sge};
use shotline_store::shot::Loss;
use shotline_testing::{cases, seeds};
use shotline_transport::inproc::{InprocConfig, InprocIo, pair};
use shotline_transport::{MAX_HEADER, PacketIo, SCRATCH_BYTES, Seal, TxPacket};
use shotline_wire::framing::{Framing, Hsb, Kind, Link, Packet, Spead};
use shotline_wire::hsb::Metadata;
use shotline_wire::shot::{DropCause, Geometry, Packetization, Packing, Trailer};
use shotline_wire::spead::Flavour;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const FIRST_PSN: u32 = 0xF_FFF0; // wraps early, at 2^20
const PAGES: u32 = 4;
const QUEUE_PAIR: u32 = 2;
const TIMEOUT_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// Heaps; `exact`: the last packet is as large as the others.
    Spead { exact: bool },
    /// Frames; `separate`: their metadata has a packet of its own.
    Bridge { separate: bool },
}

impl Sender {
    const ALL: [Self; 4] = [
        Self::Spead { exact: true },
        Self::Spead { exact: false },
        Self::Bridge { separate: true },
        Self::Bridge { separate: false },
    ];

    fn geometry(self) -> Geometry {
        let (samples, trailer, cut) = match self {
            // Three more items in the first packet, 24 bytes.
            Self::Spead { exact } => {
                let samples = if exact { 576 } else { 550 };
                (samples, Trailer::None, Packetization { first: 76, rest: 100, separate_trailer: false })
            }
            // 132 bytes and a header of 28 are as much as 128 and one of 32.
            Self::Bridge { separate: true } => {
                (528, Trailer::HsbMetadata, Packetization { separate_trailer: true, ..Packetization::uniform(132) })
            }
            // 140 bytes are as much as the last 136 of 1536 and a longer header.
            Self::Bridge { separate: false } => (1400, Trailer::HsbMetadata, Packetization::uniform(140)),
        };
        Geometry::new(1, samples, 8, Packing::Uint8, 0).unwrap().sent_as(trailer, cut).unwrap()
    }

    fn kind(self) -> Kind {
        if let Self::Spead { .. } = self { Kind::Spead } else { Kind::Hsb }
    }

    fn framing(self) -> Arc<dyn Framing> {
        match self {
            Self::Spead { .. } => Arc::new(Spead { flavour: Flavour::F48, first_items: 7, items: 4 }),
            Self::Bridge { .. } => {
                let step = self.geometry().shot_bytes();
                Arc::new(Hsb { base: 0x1000_0000, step, pages: PAGES, r_key: 0x1234 })
            }
        }
    }

    /// Number of shots needed to learn the sender.
    fn shots_to_learn(self) -> u64 {
        if let Self::Spead { .. } = self { 1 } else { u64::from(PAGES) + 1 }
    }

    fn header(self, packet: &Packet) -> ArrayVec<u8, MAX_HEADER> {
        let mut header = ArrayVec::new();
        self.framing().emit(&Link { dest_qp: QUEUE_PAIR, ..Link::default() }, packet, &mut header);
        if let Self::Spead { .. } = self
            && packet.index == 0
        {
            header[7] += 3;
            for id in 0x1600_u64..0x1603 {
                header.try_extend_from_slice(&(1 << 63 | id << 48 | packet.shot).to_be_bytes()).unwrap();
            }
        }
        header
    }

    /// Returns a shot as it is stored in memory.
    fn bytes(self, number: u64) -> Vec<u8> {
        let g = self.geometry();
        let byte = |i: u64| (i * 31 + 1).wrapping_add(number.wrapping_mul(7)) as u8;
        let mut bytes: Vec<u8> = (0..g.sample_bytes().into()).map(byte).collect();
        bytes.resize(g.trailer_offset() as usize, 0);
        if g.trailer() == Trailer::HsbMetadata {
            let (first_ns, frame) = (stamp(number), number as u16);
            let metadata = Metadata { first_ns, frame, valid_bytes: g.sample_bytes().into(), ..Metadata::default() };
            bytes.extend(metadata.emit());
        }
        bytes
    }
}

fn stamp(number: u64) -> u64 {
    number + 1000
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::new("fd00::1".parse().unwrap(), port)
}

#[derive(Clone, Copy, Debug)]
struct PlannedPacket {
    shot: u64,
    index: u32,
    corrupt: bool,
}

/// Returns the packets to send, in order, with faults selected by random bytes; the first `spared` shots have none.
fn plan(sender: Sender, shots: u64, spared: u64, faults: &[u8]) -> Vec<PlannedPacket> {
    let mut plan = Vec::new();
    let mut fault = faults.iter().cycle();
    for shot in 0..shots {
        for index in 0..sender.geometry().packets() {
            let packet = PlannedPacket { shot, index, corrupt: false };
            let corrupt = PlannedPacket { corrupt: true, ..packet };
            match fault.next().copied().filter(|_| shot >= spared).unwrap_or(255) {
                0..=9 => {}
                10..=19 => plan.extend([packet, packet]),
                20..=29 => plan.push(corrupt),
                // Overtakes one to four packets sent before it.
                30..=49 if shot > spared => {
                    let at = plan.len() - plan.len().min(1 + usize::from(shot as u8 + index as u8) % 4);
                    plan.insert(at, packet);
                }
                _ => plan.push(packet),
            }
        }
    }
    // Without an ICRC corruption would be undetected: SPEAD leaves that to the UDP checksum.
    plan.retain(|packet| !packet.corrupt || sender.kind() == Kind::Hsb);
    plan
}

struct Bench {
    kind: Sender,
    sender: InprocIo,
    wire: Arc<Region>,
    wire_sge: Sge,
    receiver: Receiver<BufferedIo<InprocIo>>,
}

impl Bench {
    /// Creates a receiver that has the sender's description, or that learns it from the packets sent before.
    fn new(kind: Sender, before: Option<&[PlannedPacket]>) -> Self {
        let g = kind.geometry();
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, 128, g.slot_bytes()).unwrap();
        let wire = Region::host(1 << 16).unwrap();
        let wire_sge = Sge { region: registrar.add(wire.clone()), offset: 0, len: 1 << 16 };
        let mut element = |len| Sge { region: registrar.add(Region::host(len as usize).unwrap()), offset: 0, len };
        let (scratch, spare) = (element(SCRATCH_BYTES), element(receiver::SPARE_BYTES));
        let regions = registrar.finish();
        let sealed = kind.framing().has_icrc();
        let config = InprocConfig { address: address(4791), sealed, capacity: 1 << 13, scratch };
        let sending = InprocConfig { address: address(5), ..config };
        let (io, mut sender) = pair(1 << 16, (config, &regions), (sending, &regions));
        for planned in before.unwrap_or(&[]) {
            send(kind, &mut sender, (&wire, wire_sge), planned);
        }
        let (framing, io, first_shot) = match before {
            None => (kind.framing(), BufferedIo::empty(io, &regions, scratch), None),
            Some(_) => learned(kind, io, &regions, scratch),
        };
        let stream = StreamConfig {
            stream: 0,
            key: if sealed { QUEUE_PAIR } else { 0 },
            geometry: g,
            source: None,
            first_shot,
            first_psn: None,
            window: 6,
            timeout_ns: TIMEOUT_NS,
        };
        let config = ReceiverConfig { framing, streams: vec![stream], pool, regions, spare, clock: None };
        Self { kind, sender, wire, wire_sge, receiver: Receiver::new(io, config) }
    }

    fn send(&mut self, planned: &PlannedPacket) {
        send(self.kind, &mut self.sender, (&self.wire, self.wire_sge), planned);
    }

    fn drain(&mut self, items: &mut Vec<Item>) {
        self.drain_at(1, items);
    }

    fn drain_at(&mut self, now_ns: u64, items: &mut Vec<Item>) {
        while self.receiver.poll(now_ns, 100, items).unwrap() > 0 {}
    }
}

/// Learns the sender from the packets sent, and checks the result.
fn learned(
    kind: Sender,
    io: InprocIo,
    regions: &Regions,
    scratch: Sge,
) -> (Arc<dyn Framing>, BufferedIo<InprocIo>, Option<u64>) {
    let g = kind.geometry();
    let ended = |silence: std::time::Duration| silence.as_secs() > 10;
    // Learning continues until shots can be received.
    let mut polls = 0;
    let ready = || {
        polls += 1;
        polls > 5
    };
    let callbacks = LearnCallbacks { ready, ended, refused: |_, _: &str| {} };
    let (mut learned, io) = learn(kind.kind(), Hints::default(), io, (regions, scratch), callbacks).unwrap();
    assert!(polls > 5);
    let learned = learned.remove(0);
    assert_eq!(format!("{:?}", learned.framing), format!("{:?}", kind.framing()));
    assert_eq!(
        (learned.sample_bytes, learned.trailer, learned.packetization),
        (g.sample_bytes(), g.trailer(), g.packetization())
    );
    (learned.framing, io, learned.first_shot)
}

fn send(kind: Sender, sender: &mut InprocIo, (wire, wire_sge): (&Region, Sge), planned: &PlannedPacket) {
    let g = kind.geometry();
    let bytes = kind.bytes(planned.shot);
    let psn = FIRST_PSN.wrapping_add((planned.shot as u32).wrapping_mul(g.packets())).wrapping_add(planned.index);
    let packet = Packet::nth(&g, psn, planned.shot, planned.index).unwrap();
    let payload = &bytes[packet.offset as usize..(packet.offset + packet.len) as usize];
    wire.write(0, payload);
    let mut seal = if kind.framing().has_icrc() { Seal::Compute } else { Seal::None };
    if planned.corrupt {
        // One bit of the payload changes after the CRC was computed.
        seal = Seal::Remainder(shotline_wire::crc::remainder(payload));
        wire.write(17, &[payload[17] ^ 0x20]);
    }
    let gather = [Sge { len: packet.len, ..wire_sge }, Sge::EMPTY];
    let sent =
        sender.send(address(4791), &[TxPacket { header: &kind.header(&packet), gather: &gather, seal }]).unwrap();
    assert_eq!(sent, 1);
}

/// Received shots, checked byte by byte against those sent.
#[derive(Default)]
struct Output {
    complete: BTreeSet<u64>,
    partial: BTreeMap<u64, Vec<u32>>,
    lost: BTreeSet<u64>,
}

impl Output {
    fn of(kind: Sender, items: Vec<Item>) -> Self {
        let mut output = Self::default();
        for item in items {
            match item {
                Item::Loss(loss) => output.lost.extend(loss.first..loss.first + loss.count),
                Item::Shot(shot) => output.check(kind, &shot),
            }
        }
        output
    }

    fn check(&mut self, kind: Sender, shot: &shotline_store::shot::Shot) {
        let g = kind.geometry();
        let number = shot.meta.number;
        let mut expected = kind.bytes(number);
        expected.resize(g.slot_bytes() as usize, 0);
        let missing: Vec<u32> = shot.meta.presence.missing().collect();
        for index in &missing {
            let (from, len) = (g.packet_offset(*index), g.packet_bytes(*index));
            expected[from as usize..(from + len) as usize].fill(0);
        }
        let mut bytes = vec![0; g.slot_bytes() as usize];
        shot.buffer.read(0, &mut bytes);
        let differ = bytes.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differ, None, "shot {number} without {missing:?} has a wrong byte");
        let has_stamp = g.trailer() == Trailer::HsbMetadata && !missing.contains(&(g.packets() - 1));
        assert_eq!(shot.meta.stamp_tai_ns, if has_stamp { stamp(number) } else { 0 });
        assert_eq!(shot.meta.is_complete(), missing.is_empty());
        if missing.is_empty() {
            assert!(self.complete.insert(number));
        } else {
            assert!(self.partial.insert(number, missing).is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(1000)))]
    #[test]
    fn loss_duplication_reordering_corruption_are_counted_exactly(
        faults in prop::collection::vec(any::<u8>(), 40..200),
        shots in 8_u64..24,
        polls in prop::collection::vec(1_usize..40, 1..8),
        burst in 1_usize..60,
        kind in prop::sample::select(Sender::ALL.to_vec()),
        learning: bool,
    ) {
        let plan = plan(kind, shots, if learning { kind.shots_to_learn() } else { 1 }, &faults);
        let mut bench = Bench::new(kind, learning.then_some(plan.as_slice()));
        let mut items = Vec::new();
        if !learning {
            for (burst, size) in plan.chunks(burst).zip(polls.iter().cycle()) {
                burst.iter().for_each(|packet| bench.send(packet));
                bench.receiver.poll(1, *size, &mut items).unwrap();
            }
        }
        bench.drain(&mut items);
        bench.receiver.finish(&[Some(shots)], &mut items);
        let output = Output::of(kind, items);

        let good: BTreeSet<_> = plan.iter().filter(|p| !p.corrupt).map(|p| (p.shot, p.index)).collect();
        let corrupted = plan.iter().filter(|p| p.corrupt).count() as u64;
        let repeated = plan.len() as u64 - corrupted - good.len() as u64;
        let total = bench.receiver.total();
        prop_assert_eq!(total.balance(), Ok(()));
        prop_assert_eq!(total.packets, plan.len() as u64);
        prop_assert_eq!(total.packet_drops.get(DropCause::BadIcrc), corrupted);
        prop_assert_eq!(total.placed, good.len() as u64);
        let duplicates = total.packet_drops.get(DropCause::Duplicate) + total.packet_drops.get(DropCause::Late);
        prop_assert_eq!(duplicates, repeated);
        prop_assert_eq!(total.shots, shots);
        let packets = kind.geometry().packets();
        for shot in 0..shots {
            let missing: Vec<u32> = (0..packets).filter(|index| !good.contains(&(shot, *index))).collect();
            match missing.len() as u32 {
                0 => prop_assert!(output.complete.contains(&shot)),
                all if all == packets => prop_assert!(output.lost.contains(&shot)),
                _ => prop_assert_eq!(output.partial.get(&shot), Some(&missing)),
            }
        }
    }
}

#[test]
fn mispredicted_headers_cost_only_a_copy() {
    for kind in [Sender::Spead { exact: true }, Sender::Bridge { separate: true }, Sender::Bridge { separate: false }] {
        let whole = plan(kind, 6, 6, &[255]);
        let packets = kind.geometry().packets() as usize;
        for lost in packets..2 * packets {
            let mut bench = Bench::new(kind, None);
            // A batch of more than two shots, without one packet of the second.
            let (batch, rest) = whole.split_at(3 * packets);
            batch.iter().enumerate().filter(|(at, _)| *at != lost).for_each(|(_, packet)| bench.send(packet));
            let mut items = Vec::new();
            bench.drain(&mut items);
            rest.iter().for_each(|packet| bench.send(packet));
            bench.drain(&mut items);
            bench.receiver.finish(&[Some(6)], &mut items);
            let output = Output::of(kind, items);
            assert_eq!(output.partial, BTreeMap::from([(1, vec![(lost - packets) as u32])]), "{kind:?}");
            assert_eq!(output.complete.len(), 5, "{kind:?}");
            let total = bench.receiver.total();
            assert!(total.repaired > 0, "{kind:?}: packets after {lost} were shifted");
            assert_eq!(total.balance(), Ok(()));
        }
    }
}

#[test]
fn nothing_is_copied_twice_where_nothing_is_lost() {
    for kind in Sender::ALL {
        let mut bench = Bench::new(kind, None);
        let mut items = Vec::new();
        for shot in plan(kind, 6, 6, &[255]).chunks(kind.geometry().packets() as usize) {
            shot.iter().for_each(|packet| bench.send(packet));
            bench.drain(&mut items);
        }
        let total = bench.receiver.total();
        assert_eq!((total.complete, total.repaired), (6, 0), "{kind:?}");
    }
}

#[test]
fn a_bridges_corrupt_packet_is_missing_from_the_frame() {
    let kind = Sender::Bridge { separate: false };
    let mut bench = Bench::new(kind, None);
    let mut plan = plan(kind, 3, 3, &[255]);
    plan[kind.geometry().packets() as usize + 5].corrupt = true;
    plan.iter().for_each(|packet| bench.send(packet));
    let mut items = Vec::new();
    bench.drain(&mut items);
    bench.receiver.finish(&[Some(3)], &mut items);
    let output = Output::of(kind, items);
    assert_eq!((output.complete.len(), output.partial), (2, BTreeMap::from([(1, vec![5])])));
}

/// Restarts a sender at this shot: it sends eight shots before and eight after. Returns the sender's number of each
/// shot by that of the run, and the losses.
fn restarted(kind: Sender, at: u64, learned: Option<u64>) -> (Bench, BTreeMap<u64, u64>, Vec<Loss>) {
    let mut bench = Bench::new(kind, None);
    if let Some(first) = learned {
        let known = StreamConfig { first_shot: Some(first), ..bench.receiver.config(0) };
        bench.receiver.reconfigure(0, known);
    }
    let mut items = Vec::new();
    let eight = |first| (first..first + 8).flat_map(move |shot| whole(kind, shot));
    eight(at).for_each(|packet| bench.send(&packet));
    bench.drain(&mut items);
    for (step, packet) in eight(0).enumerate() {
        bench.send(&packet);
        bench.drain_at(3 * TIMEOUT_NS + step as u64, &mut items);
    }
    bench.receiver.finish(&[None], &mut items);
    let (mut shots, mut losses) = (BTreeMap::new(), Vec::new());
    for item in items {
        match item {
            Item::Loss(loss) => losses.push(loss),
            Item::Shot(shot) => {
                assert!(shot.meta.is_complete());
                let mut bytes = vec![0; kind.geometry().sample_bytes() as usize];
                shot.buffer.read(0, &mut bytes);
                let sent = (0..8).chain(at..at + 8).find(|number| kind.bytes(*number).starts_with(&bytes));
                assert!(shots.insert(shot.meta.number, sent.expect("it was sent")).is_none(), "a number twice");
            }
        }
    }
    assert_eq!(bench.receiver.total().balance(), Ok(()));
    (bench, shots, losses)
}

/// Returns the packets of one shot.
fn whole(kind: Sender, shot: u64) -> impl Iterator<Item = PlannedPacket> {
    (0..kind.geometry().packets()).map(move |index| PlannedPacket { shot, index, corrupt: false })
}

#[test]
fn a_restarted_sender_continues_with_the_runs_numbers() {
    for (kind, learned) in Sender::ALL.into_iter().flat_map(|kind| [(kind, None), (kind, Some(1000))]) {
        // The packets of a ring do not contain the number of the first frame.
        let learned = learned.filter(|_| kind.kind() == Kind::Spead);
        let (bench, shots, losses) = restarted(kind, 1000, learned);
        let first = *shots.keys().next().unwrap();
        let pair_at = |at: u64, shot: u64| (first + at, shot);
        let before = (0..8).map(|shot| pair_at(shot, 1000 + shot));
        // The packets of shot 0 are evidence of the restart, and are not placed.
        let after = (1..8).map(|shot| pair_at(8 + shot, shot));
        assert_eq!(shots, before.chain(after).collect(), "{kind:?}");
        let expected = Loss { stream: 0, cause: DropCause::SenderRestart, first: first + 8, count: 1 };
        assert_eq!(losses, [expected], "{kind:?}");
        let total = bench.receiver.total();
        let packets = u64::from(kind.geometry().packets());
        assert_eq!((total.restarts, total.shots), (1, 16));
        assert_eq!(total.packet_drops.iter().collect::<Vec<_>>(), [(DropCause::SenderRestart, packets)], "{kind:?}");
        assert_eq!(total.packets_missing, 0);
    }
}

#[test]
fn frame_numbers_reveal_a_restart_that_seems_far_ahead() {
    for kind in [Sender::Bridge { separate: true }, Sender::Bridge { separate: false }] {
        // Its sequence numbers are nearly half way round: those after a restart are ahead.
        let at = 0x9_0000 / u64::from(kind.geometry().packets());
        let (bench, shots, losses) = restarted(kind, at, None);
        let sent: Vec<_> = shots.values().copied().collect();
        assert_eq!(sent, (at..at + 8).chain(0..8).collect::<Vec<_>>());
        assert_eq!((losses.len(), bench.receiver.total().restarts), (0, 1));
        assert_eq!(shots.keys().last().unwrap() - shots.keys().next().unwrap(), 15);
    }
}

#[test]
fn an_outage_of_a_bridges_link_is_no_restart() {
    let kind = Sender::Bridge { separate: false };
    let mut bench = Bench::new(kind, None);
    let mut items = Vec::new();
    for (now_ns, first) in [(1, 0), (3 * TIMEOUT_NS, 40_000)] {
        (first..first + 8).flat_map(|shot| whole(kind, shot)).for_each(|packet| bench.send(&packet));
        bench.drain_at(now_ns, &mut items);
    }
    bench.receiver.finish(&[None], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.restarts, total.complete, total.shot_drops.get(DropCause::WireGap)), (0, 16, 39_992));
    assert_eq!(Output::of(kind, items).complete.len(), 16);
}

#[test]
fn a_ring_is_joined_at_a_whole_frame_despite_reordering() {
    for seed in seeds(0..300) {
        let (kind, mut random) = (Sender::Bridge { separate: seed.is_multiple_of(2) }, Random::new(seed));
        let mut sent: Vec<_> = (4..16).flat_map(|shot| whole(kind, shot)).collect();
        random.reorder(&mut sent, 5);
        let mut bench = Bench::new(kind, None);
        let mut items = Vec::new();
        // Start anywhere in the first frames.
        let begin = random.below(30) as usize;
        for packet in &sent[begin..] {
            bench.send(packet);
            bench.drain(&mut items);
        }
        bench.receiver.finish(&[None], &mut items);
        let total = bench.receiver.total();
        let unplaced = sent.len() as u64 - begin as u64 - total.placed;
        assert_eq!(total.balance(), Ok(()));
        assert_eq!((total.partial, total.shot_drops.total(), total.packets_missing), (0, 0, 0), "seed {seed}");
        assert_eq!(total.packet_drops.get(DropCause::BeforeStart), unplaced, "seed {seed}");
        let whole = (sent.len() - begin) as u64 / u64::from(kind.geometry().packets());
        assert!(total.complete + 3 >= whole, "seed {seed}: {} frames of {whole}", total.complete);
    }
}

#[test]
fn a_heap_with_data_is_a_shot_despite_a_stop_of_its_number() {
    let kind = Sender::Spead { exact: false };
    let packets = kind.geometry().packets() as usize;
    let mut bench = Bench::new(kind, None);
    let sent = plan(kind, 2, 2, &[255]);
    let (last, before) = sent.split_last().unwrap();
    assert_eq!(before.len(), 2 * packets - 1);
    before.iter().for_each(|packet| bench.send(packet));
    // An empty heap of another size, with the counter of the heap that is still open.
    let stop = Packet { shot: 1, ..Packet::default() };
    let mut header = ArrayVec::<u8, MAX_HEADER>::new();
    kind.framing().emit(&Link::default(), &stop, &mut header);
    let send = TxPacket { header: &header, gather: &[], seal: Seal::None };
    assert_eq!(bench.sender.send(address(4791), &[send]).unwrap(), 1);
    let mut items = Vec::new();
    bench.drain(&mut items);
    bench.send(last);
    bench.drain(&mut items);
    bench.receiver.finish(&[None], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.complete, total.shots, total.packet_drops.get(DropCause::NotData)), (2, 2, 1));
    let output = Output::of(kind, items);
    assert_eq!((output.complete.len(), output.lost.len()), (2, 0));
}
