//! Senders that are not ours, with every fault of a wire, against an oracle that knows what was sent: heaps of
//! SPEAD whose first packet has another header than the others, frames of a sensor bridge whose last one has.
//!
//! Packets are of one size, so that batches reach over the ends of shots, and a loss within one shifts headers of
//! one length to where those of another were foretold.

use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_acquire::learn::{Held, Hints, learn};
use shotline_acquire::{Item, Receiver, ReceiverConfig, StreamConfig, receiver};
use shotline_memory::{Pool, Region, Regions, Registrar, Sge};
use shotline_testing::cases;
use shotline_transport::inproc::{InprocConfig, InprocIo, pair};
use shotline_transport::{MAX_HEADER, PacketIo, SCRATCH_BYTES, Seal, Send};
use shotline_wire::framing::{Framing, Hsb, Link, Packet, Spead};
use shotline_wire::hsb::Metadata;
use shotline_wire::shot::{Cut, DropCause, Geometry, Packing, Trailer};
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
    /// Heaps; the last packet is as large as the others, or not.
    Spead { exact: bool },
    /// Frames with their metadata in the last packet, or in one of their own.
    Bridge { apart: bool },
}

impl Sender {
    const ALL: [Self; 4] = [
        Self::Spead { exact: true },
        Self::Spead { exact: false },
        Self::Bridge { apart: true },
        Self::Bridge { apart: false },
    ];

    fn geometry(self) -> Geometry {
        let (samples, trailer, cut) = match self {
            // Three items more in the first packet, 24 bytes.
            Self::Spead { exact } => {
                let samples = if exact { 576 } else { 550 };
                (samples, Trailer::None, Cut { first: 76, rest: 100, trailer_apart: false })
            }
            // 132 and a header of 28 bytes are as much as 128 and one of 32.
            Self::Bridge { apart: true } => {
                (528, Trailer::HsbMetadata, Cut { trailer_apart: true, ..Cut::uniform(132) })
            }
            // And so are 140 bytes and the last 136 of 1536.
            Self::Bridge { apart: false } => (1400, Trailer::HsbMetadata, Cut::uniform(140)),
        };
        Geometry::new(1, samples, 8, Packing::Uint8, 0).unwrap().sent_as(trailer, cut).unwrap()
    }

    fn name(self) -> &'static str {
        if let Self::Spead { .. } = self { "spead" } else { "hsb" }
    }

    fn framing(self) -> Box<dyn Framing> {
        match self {
            Self::Spead { .. } => Box::new(Spead { flavour: Flavour::F48, first_items: 7, items: 4 }),
            Self::Bridge { .. } => {
                let step = self.geometry().shot_bytes();
                Box::new(Hsb { base: 0x1000_0000, step, pages: PAGES, r_key: 0x1234 })
            }
        }
    }

    /// Shots that it takes to learn the sender.
    fn lesson(self) -> u64 {
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

    /// A shot as it is in memory.
    fn bytes(self, number: u64) -> Vec<u8> {
        let g = self.geometry();
        let byte = |i: u64| (i * 31 + 1).wrapping_add(number.wrapping_mul(7)) as u8;
        let mut bytes: Vec<u8> = (0..g.sample_bytes().into()).map(byte).collect();
        bytes.resize(g.trailer_offset() as usize, 0);
        if g.trailer() == Trailer::HsbMetadata {
            let metadata =
                Metadata { first_ns: stamp(number), valid_bytes: g.sample_bytes().into(), ..Metadata::default() };
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
struct Planned {
    shot: u64,
    index: u32,
    corrupt: bool,
}

/// What is sent, in order, with the faults of a tape of random bytes; the first shots are spared.
fn plan(sender: Sender, shots: u64, spared: u64, faults: &[u8]) -> Vec<Planned> {
    let mut plan = Vec::new();
    let mut fault = faults.iter().cycle();
    for shot in 0..shots {
        for index in 0..sender.geometry().packets() {
            let packet = Planned { shot, index, corrupt: false };
            let corrupt = Planned { corrupt: true, ..packet };
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
    // Without an ICRC nothing would tell: SPEAD leaves that to the UDP checksum.
    plan.retain(|packet| !packet.corrupt || sender.name() == "hsb");
    plan
}

struct Bench {
    kind: Sender,
    sender: InprocIo,
    wire: Arc<Region>,
    wire_sge: Sge,
    receiver: Receiver<Held<InprocIo>>,
}

impl Bench {
    /// With a receiver that was told of the sender, or that learns it from the packets that are sent before.
    fn new(kind: Sender, before: Option<&[Planned]>) -> Self {
        let g = kind.geometry();
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, 128, g.slot_bytes()).unwrap();
        let wire = Region::host(1 << 16).unwrap();
        let wire_sge = Sge { region: registrar.add(wire.clone()), offset: 0, len: 1 << 16 };
        let mut element = |len| Sge { region: registrar.add(Region::host(len as usize).unwrap()), offset: 0, len };
        let (scratch, spare) = (element(SCRATCH_BYTES), element(receiver::SPARE_BYTES));
        let regions = registrar.finish();
        let sealed = kind.framing().sealed();
        let config = InprocConfig { address: address(4791), sealed, capacity: 1 << 13, scratch };
        let sending = InprocConfig { address: address(5), ..config };
        let (io, mut sender) = pair(1 << 16, (config, &regions), (sending, &regions));
        for planned in before.unwrap_or(&[]) {
            send(kind, &mut sender, (&wire, wire_sge), planned);
        }
        let (framing, io, first_shot) = match before {
            None => (kind.framing(), Held::nothing(io, &regions, scratch), None),
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
        let framing: &'static dyn Framing = Box::leak(framing);
        let config = ReceiverConfig { framing, streams: vec![stream], pool, regions, spare, clock: None };
        Self { kind, sender, wire, wire_sge, receiver: Receiver::new(io, config) }
    }

    fn send(&mut self, planned: &Planned) {
        send(self.kind, &mut self.sender, (&self.wire, self.wire_sge), planned);
    }

    fn drain(&mut self, items: &mut Vec<Item>) {
        self.drain_at(1, items);
    }

    fn drain_at(&mut self, now_ns: u64, items: &mut Vec<Item>) {
        while self.receiver.poll(now_ns, 100, items).unwrap() > 0 {}
    }
}

/// What the learner makes of what was sent, which must be what the sender is.
fn learned(
    kind: Sender,
    io: InprocIo,
    regions: &Regions,
    scratch: Sge,
) -> (Box<dyn Framing>, Held<InprocIo>, Option<u64>) {
    let g = kind.geometry();
    let ended = |silence: Option<std::time::Duration>| silence.is_some_and(|silence| silence.as_secs() > 10);
    let (mut learned, io) = learn(kind.name(), Hints::default(), io, (regions, scratch), ended).unwrap();
    let learned = learned.remove(0);
    assert_eq!(format!("{:?}", learned.framing), format!("{:?}", kind.framing()));
    assert_eq!((learned.sample_bytes, learned.trailer, learned.cut), (g.sample_bytes(), g.trailer(), g.cut()));
    (learned.framing, io, learned.first_shot)
}

fn send(kind: Sender, sender: &mut InprocIo, (wire, wire_sge): (&Region, Sge), planned: &Planned) {
    let g = kind.geometry();
    let bytes = kind.bytes(planned.shot);
    let psn = FIRST_PSN.wrapping_add((planned.shot as u32).wrapping_mul(g.packets())).wrapping_add(planned.index);
    let packet = Packet::nth(&g, psn, planned.shot, planned.index).unwrap();
    let payload = &bytes[packet.offset as usize..(packet.offset + packet.len) as usize];
    wire.write(0, payload);
    let mut seal = if kind.framing().sealed() { Seal::Compute } else { Seal::None };
    if planned.corrupt {
        // One bit of the payload changes after the CRC was made.
        seal = Seal::Remainder(shotline_wire::crc::remainder(payload));
        wire.write(17, &[payload[17] ^ 0x20]);
    }
    let gather = [Sge { len: packet.len, ..wire_sge }, Sge::EMPTY];
    let sent = sender.send(address(4791), &[Send { header: &kind.header(&packet), gather: &gather, seal }]).unwrap();
    assert_eq!(sent, 1);
}

/// What came out, checked byte for byte against what was sent.
#[derive(Default)]
struct Seen {
    complete: BTreeSet<u64>,
    partial: BTreeMap<u64, Vec<u32>>,
    lost: BTreeSet<u64>,
}

impl Seen {
    fn of(kind: Sender, items: Vec<Item>) -> Self {
        let mut seen = Self::default();
        for item in items {
            match item {
                Item::Loss(loss) => seen.lost.extend(loss.first..loss.first + loss.count),
                Item::Shot(shot) => seen.check(kind, &shot),
            }
        }
        seen
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
        let told = g.trailer() == Trailer::HsbMetadata && !missing.contains(&(g.packets() - 1));
        assert_eq!(shot.meta.stamp_tai_ns, if told { stamp(number) } else { 0 });
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
    fn loss_duplication_reordering_and_corruption_are_named_exactly(
        faults in prop::collection::vec(any::<u8>(), 40..200),
        shots in 8_u64..24,
        polls in prop::collection::vec(1_usize..40, 1..8),
        burst in 1_usize..60,
        kind in prop::sample::select(Sender::ALL.to_vec()),
        learning: bool,
    ) {
        let plan = plan(kind, shots, if learning { kind.lesson() } else { 1 }, &faults);
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
        let seen = Seen::of(kind, items);

        let good: BTreeSet<_> = plan.iter().filter(|p| !p.corrupt).map(|p| (p.shot, p.index)).collect();
        let corrupted = plan.iter().filter(|p| p.corrupt).count() as u64;
        let repeated = plan.len() as u64 - corrupted - good.len() as u64;
        let total = bench.receiver.total();
        prop_assert_eq!(total.balance(), Ok(()));
        prop_assert_eq!(total.packets, plan.len() as u64);
        prop_assert_eq!(total.packet_drops.get(DropCause::BadIcrc), corrupted);
        prop_assert_eq!(total.placed, good.len() as u64);
        let doubles = total.packet_drops.get(DropCause::Duplicate) + total.packet_drops.get(DropCause::Late);
        prop_assert_eq!(doubles, repeated);
        prop_assert_eq!(total.shots, shots);
        let packets = kind.geometry().packets();
        for shot in 0..shots {
            let missing: Vec<u32> = (0..packets).filter(|index| !good.contains(&(shot, *index))).collect();
            match missing.len() as u32 {
                0 => prop_assert!(seen.complete.contains(&shot)),
                all if all == packets => prop_assert!(seen.lost.contains(&shot)),
                _ => prop_assert_eq!(seen.partial.get(&shot), Some(&missing)),
            }
        }
    }
}

#[test]
fn headers_that_are_not_where_they_were_foretold_cost_a_copy_and_nothing_else() {
    for kind in [Sender::Spead { exact: true }, Sender::Bridge { apart: true }, Sender::Bridge { apart: false }] {
        let whole = plan(kind, 6, 6, &[255]);
        let packets = kind.geometry().packets() as usize;
        for lost in packets..2 * packets {
            let mut bench = Bench::new(kind, None);
            // A batch of two shots and more, without one packet of the second.
            let (batch, rest) = whole.split_at(3 * packets);
            batch.iter().enumerate().filter(|(at, _)| *at != lost).for_each(|(_, packet)| bench.send(packet));
            let mut items = Vec::new();
            bench.drain(&mut items);
            rest.iter().for_each(|packet| bench.send(packet));
            bench.drain(&mut items);
            bench.receiver.finish(&[Some(6)], &mut items);
            let seen = Seen::of(kind, items);
            assert_eq!(seen.partial, BTreeMap::from([(1, vec![(lost - packets) as u32])]), "{kind:?}");
            assert_eq!(seen.complete.len(), 5, "{kind:?}");
            let total = bench.receiver.total();
            assert!(total.repaired > 0, "{kind:?}: what came behind packet {lost} had slid");
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
fn corruption_that_a_bridges_icrc_sees_is_not_in_the_frame() {
    let kind = Sender::Bridge { apart: false };
    let mut bench = Bench::new(kind, None);
    let mut plan = plan(kind, 3, 3, &[255]);
    plan[kind.geometry().packets() as usize + 5].corrupt = true;
    plan.iter().for_each(|packet| bench.send(packet));
    let mut items = Vec::new();
    bench.drain(&mut items);
    bench.receiver.finish(&[Some(3)], &mut items);
    let seen = Seen::of(kind, items);
    assert_eq!((seen.complete.len(), seen.partial), (2, BTreeMap::from([(1, vec![5])])));
}

#[test]
fn a_bridge_whose_sequence_numbers_begin_anew_is_followed_and_counted() {
    let kind = Sender::Bridge { apart: false };
    let packets = kind.geometry().packets() as usize;
    let mut bench = Bench::new(kind, None);
    let mut items = Vec::new();
    let late = plan(kind, 1008, 1008, &[255]);
    late[1000 * packets..].iter().for_each(|packet| bench.send(packet));
    bench.drain(&mut items);
    // It was switched off and on: sequence numbers that lie a thousand frames back, and nothing else.
    for (step, packet) in plan(kind, 8, 8, &[255]).iter().enumerate() {
        bench.send(packet);
        bench.drain_at(3 * TIMEOUT_NS + step as u64, &mut items);
    }
    bench.receiver.finish(&[None], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.restarts, total.balance()), (1, Ok(())));
    assert!(total.complete > 8 + 4, "{} of 8 and 8 frames", total.complete);
}

#[test]
fn a_heap_that_has_data_is_a_shot_although_the_stop_bears_its_number() {
    let kind = Sender::Spead { exact: false };
    let packets = kind.geometry().packets() as usize;
    let mut bench = Bench::new(kind, None);
    let sent = plan(kind, 2, 2, &[255]);
    let (last, before) = sent.split_last().unwrap();
    assert_eq!(before.len(), 2 * packets - 1);
    before.iter().for_each(|packet| bench.send(packet));
    // An empty heap of another size, with the counter of the one that is still open.
    let stop = Packet { shot: 1, ..Packet::default() };
    let mut header = ArrayVec::<u8, MAX_HEADER>::new();
    kind.framing().emit(&Link::default(), &stop, &mut header);
    let send = Send { header: &header, gather: &[], seal: Seal::None };
    assert_eq!(bench.sender.send(address(4791), &[send]).unwrap(), 1);
    let mut items = Vec::new();
    bench.drain(&mut items);
    bench.send(last);
    bench.drain(&mut items);
    bench.receiver.finish(&[None], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.complete, total.shots, total.packet_drops.get(DropCause::NotData)), (2, 2, 1));
    let seen = Seen::of(kind, items);
    assert_eq!((seen.complete.len(), seen.lost.len()), (2, 0));
}
