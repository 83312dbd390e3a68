//! Every fault of a network, in all combinations and thousands of seeds, against an oracle of what was sent: no
//! wrong byte in a complete shot, zeros where packets are missing, exact counters.

use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_acquire::{EndReason, Item, Receiver, ReceiverConfig, StreamConfig, receiver};
use shotline_memory::{Pool, Region, Registrar, Sge};
use shotline_testing::{cases, seeds};
use shotline_transport::inproc::{InprocConfig, InprocIo, pair};
use shotline_transport::{PacketIo, SCRATCH_BYTES, Seal, TxPacket};
use shotline_wire::framing::{Framing, Kind, Link, Packet};
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const STREAMS: u32 = 2;
const FIRST_PSN: u32 = 0x00ff_fff0; // wraps early
const TIMEOUT_NS: u64 = 1_000_000;

fn address(port: u16) -> SocketAddr {
    SocketAddr::new("fd00::1".parse().unwrap(), port)
}

fn geometry() -> Geometry {
    Geometry::new(8, 1000, 12, Packing::Packed12, 0).unwrap()
}

/// Returns the bytes of a shot as its sender created them.
fn shot_bytes(stream: u32, number: u64) -> Vec<u8> {
    let g = geometry();
    let mut bytes: Vec<u8> = (0..u64::from(g.trailer_offset()))
        .map(|i| (i * 31 + u64::from(stream) * 3 + 1).wrapping_add(number.wrapping_mul(7)) as u8)
        .collect();
    bytes[g.sample_bytes() as usize..].fill(0);
    let record = Record { shot: number, stream, tai_ns: number.wrapping_add(1000), ..Record::of(&g) };
    let register = shotline_wire::crc::register(u32::MAX, &bytes);
    bytes.extend(record.finish(register));
    bytes
}

#[derive(Clone, Copy, Debug)]
struct PlannedPacket {
    stream: u32,
    shot: u64,
    index: u32,
    corrupt: bool,
}

struct Bench {
    sender: InprocIo,
    wire: Arc<Region>,
    wire_sge: Sge,
    receiver: Receiver<InprocIo>,
    framing: Arc<dyn Framing>,
}

impl Bench {
    fn new(framing: Kind, first_shot: Option<u64>, window: u64) -> Self {
        let framing = receiver::framing(framing).unwrap();
        let g = geometry();
        let configs: Vec<StreamConfig> = (0..STREAMS)
            .map(|stream| StreamConfig {
                stream,
                key: if framing.has_icrc() { 0x100 + stream } else { stream },
                geometry: g,
                source: Some(address(5)),
                first_shot,
                first_psn: Some(FIRST_PSN),
                window,
                timeout_ns: TIMEOUT_NS,
            })
            .collect();
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, 128, g.slot_bytes()).unwrap();
        let wire = Region::host(1 << 16).unwrap();
        let wire_sge = Sge { region: registrar.add(wire.clone()), offset: 0, len: 1 << 16 };
        let mut element = |len| Sge { region: registrar.add(Region::host(len as usize).unwrap()), offset: 0, len };
        let (scratch, spare) = (element(SCRATCH_BYTES), element(receiver::SPARE_BYTES));
        let regions = registrar.finish();
        let config = InprocConfig {
            address: address(4791),
            sealed: framing.has_icrc(),
            capacity: receiver::capacity(&configs),
            scratch,
        };
        let (io, sender) = pair(10_000, (config, &regions), (InprocConfig { address: address(5), ..config }, &regions));
        let config =
            ReceiverConfig { framing: Arc::clone(&framing), streams: configs, pool, regions, spare, clock: None };
        let receiver = Receiver::new(io, config);
        Self { sender, wire, wire_sge, receiver, framing }
    }

    fn send(&mut self, planned: &PlannedPacket) {
        let g = geometry();
        let bytes = shot_bytes(planned.stream, planned.shot);
        let psn = FIRST_PSN.wrapping_add((planned.shot as u32).wrapping_mul(g.packets())).wrapping_add(planned.index);
        let packet = Packet::nth(&g, psn, planned.shot, planned.index).unwrap();
        let link = Link { dest_qp: 0x100 + planned.stream, src_qp: 9, q_key: 1, stream: planned.stream };
        let mut header = ArrayVec::new();
        self.framing.emit(&link, &packet, &mut header);
        let payload = &bytes[packet.offset as usize..(packet.offset + packet.len) as usize];
        self.wire.write(0, payload);
        let mut seal = Seal::Compute;
        if planned.corrupt {
            // One bit of the payload changes after the CRC was computed.
            seal = Seal::Remainder(shotline_wire::crc::remainder(payload));
            self.wire.write(17, &[payload[17] ^ 0x20]);
        }
        let gather = [Sge { len: packet.len, ..self.wire_sge }, Sge::EMPTY];
        let sent = self.sender.send(address(4791), &[TxPacket { header: &header, gather: &gather, seal }]).unwrap();
        assert_eq!(sent, 1);
    }

    /// Receives all pending packets.
    fn drain(&mut self, now_ns: u64, items: &mut Vec<Item>) {
        while self.receiver.poll(now_ns, 100, items).unwrap() > 0 {}
    }
}

/// Received shots, checked byte by byte against those sent.
#[derive(Default)]
struct Output {
    complete: BTreeSet<(u32, u64)>,
    partial: BTreeMap<(u32, u64), Vec<u32>>,
    lost: BTreeSet<(u32, u64)>,
}

impl Output {
    fn of(items: Vec<Item>) -> Self {
        let mut output = Self::default();
        for item in items {
            match item {
                Item::Loss(loss) => {
                    for number in loss.first..loss.first + loss.count {
                        assert!(output.lost.insert((loss.stream, number)));
                    }
                }
                Item::Shot(shot) => output.check(&shot),
            }
        }
        output
    }

    fn check(&mut self, shot: &shotline_store::shot::Shot) {
        let g = geometry();
        let key = (shot.meta.stream, shot.meta.number);
        let mut expected = shot_bytes(key.0, key.1);
        expected.resize(g.slot_bytes() as usize, 0);
        let missing: Vec<u32> = shot.meta.presence.missing().collect();
        for index in &missing {
            let (from, len) = (index * 4096, g.packet_bytes(*index));
            expected[from as usize..(from + len) as usize].fill(0);
        }
        let mut bytes = vec![0; g.slot_bytes() as usize];
        shot.buffer.read(0, &mut bytes);
        let differ = bytes.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differ, None, "shot {key:?} without {missing:?} has a wrong byte");
        if shot.meta.is_complete() {
            assert_eq!(shot.meta.stamp_tai_ns, 1000 + key.1);
            assert!(self.complete.insert(key));
        } else {
            assert!(!missing.is_empty());
            assert!(self.partial.insert(key, missing).is_none());
        }
    }
}

/// Returns the packets to send, in order, with faults selected by random bytes.
fn plan(shots: u64, first: u64, faults: &[u8]) -> Vec<PlannedPacket> {
    let mut plan = Vec::new();
    let mut fault = faults.iter().cycle();
    for shot in first..first + shots {
        for stream in 0..STREAMS {
            for index in 0..geometry().packets() {
                let packet = PlannedPacket { stream, shot, index, corrupt: false };
                let corrupt = PlannedPacket { corrupt: true, ..packet };
                match fault.next().copied().unwrap_or(255) {
                    0..=9 => {}
                    10..=19 => plan.extend([packet, packet]),
                    20..=29 => plan.push(corrupt),
                    30..=34 => plan.extend([corrupt, packet]),
                    // Overtakes one to four packets sent before it.
                    35..=54 => {
                        let at = plan.len() - plan.len().min(1 + usize::from(shot as u8 + index as u8) % 4);
                        plan.insert(at, packet);
                    }
                    _ => plan.push(packet),
                }
            }
        }
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]
    #[test]
    fn loss_duplication_reordering_corruption_are_counted_exactly(
        faults in prop::collection::vec(any::<u8>(), 40..200),
        shots in 5_u64..30,
        polls in prop::collection::vec(1_usize..40, 1..8),
        framing in prop::sample::select(Kind::with_set_up().collect::<Vec<_>>()),
    ) {
        let mut bench = Bench::new(framing, Some(0), 6);
        let mut plan = plan(shots, 0, &faults);
        if !bench.framing.has_icrc() {
            plan.retain(|packet| !packet.corrupt); // plain UDP leaves that to the record's CRC
        }
        let mut items = Vec::new();
        for (burst, size) in plan.chunks(7).zip(polls.iter().cycle()) {
            burst.iter().for_each(|packet| bench.send(packet));
            bench.receiver.poll(1, *size, &mut items).unwrap();
        }
        bench.drain(1, &mut items);
        bench.receiver.finish(&[Some(shots); STREAMS as usize], &mut items);
        let output = Output::of(items);

        let good: BTreeSet<_> = plan.iter().filter(|p| !p.corrupt).map(|p| (p.stream, p.shot, p.index)).collect();
        let corrupted = plan.iter().filter(|p| p.corrupt).count() as u64;
        let repeated = plan.len() as u64 - corrupted - good.len() as u64;
        let total = bench.receiver.total();
        prop_assert_eq!(total.balance(), Ok(()));
        prop_assert_eq!(total.packets, plan.len() as u64);
        prop_assert_eq!(total.packet_drops.get(DropCause::BadIcrc), corrupted);
        prop_assert_eq!(total.placed, good.len() as u64);
        let duplicates = total.packet_drops.get(DropCause::Duplicate) + total.packet_drops.get(DropCause::Late);
        prop_assert_eq!(duplicates, repeated);
        prop_assert_eq!(total.shots, shots * u64::from(STREAMS));
        let packets = geometry().packets();
        for key in (0..STREAMS).flat_map(|stream| (0..shots).map(move |shot| (stream, shot))) {
            let missing: Vec<u32> = (0..packets).filter(|i| !good.contains(&(key.0, key.1, *i))).collect();
            match missing.len() as u32 {
                0 => prop_assert!(output.complete.contains(&key)),
                all if all == packets => prop_assert!(output.lost.contains(&key)),
                _ => prop_assert_eq!(output.partial.get(&key), Some(&missing)),
            }
        }
    }
}

#[test]
fn live_traffic_is_joined_at_a_whole_shot_and_its_number() {
    let first = (5 << 20) + 7; // the wire carries 20 bits of it
    let mut bench = Bench::new(Kind::Ud, None, 4);
    let mut items = Vec::new();
    plan(6, first, &[255])[1..].iter().for_each(|packet| bench.send(packet));
    bench.drain(1, &mut items);
    bench.receiver.finish(&[None, None], &mut items);
    let output = Output::of(items);
    assert_eq!(output.complete.iter().filter(|(stream, _)| *stream == 0).count(), 5);
    assert!(output.complete.contains(&(1, first)) && !output.complete.contains(&(0, first)));
    assert!(output.partial.is_empty() && output.lost.is_empty());
    let total = bench.receiver.total();
    assert_eq!(total.balance(), Ok(()));
    assert_eq!(total.packet_drops.get(DropCause::BeforeStart), 2);
}

/// Random number generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end` (xorshift).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Reorders items: each may overtake others by up to `distance` positions.
    pub(crate) fn reorder<T>(&mut self, sent: &mut Vec<T>, distance: u64) {
        let keys = (0..).zip(sent.drain(..)).map(|(at, item)| (at + self.below(distance + 1), item));
        let mut keyed: Vec<_> = keys.collect();
        keyed.sort_by_key(|(key, _)| *key);
        sent.extend(keyed.into_iter().map(|(_, item)| item));
    }
}

#[test]
fn the_record_counts_losses_after_the_number_wrapped() {
    let mut bench = Bench::new(Kind::Ud, Some(0), 4);
    let (before, after) = (3, (5 << 20) + 7); // the wire carries 20 bits of it
    let mut items = Vec::new();
    plan(before, 0, &[255]).iter().chain(&plan(3, after, &[255])).for_each(|packet| bench.send(packet));
    bench.drain(1, &mut items);
    bench.drain(1 + 2 * TIMEOUT_NS, &mut items);
    bench.receiver.finish(&[None, None], &mut items);
    for stream in 0..STREAMS {
        let counters = bench.receiver.counters(stream as usize);
        assert_eq!((counters.shots, counters.complete, counters.partial), (after + 3, 6, 0));
        assert_eq!(counters.shot_drops.get(DropCause::WireGap), after - before);
    }
    items.retain(|item| matches!(item, Item::Shot(_)));
    let output = Output::of(items);
    assert!(output.complete.contains(&(0, after)) && output.complete.contains(&(1, after + 2)));
}

#[test]
fn first_packets_out_of_order_lose_no_shot() {
    for seed in seeds(0..300) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new([Kind::Ud, Kind::Udp][seed as usize % 2], None, 4);
        let mut sent: Vec<_> = plan(12, 5, &[255]).into_iter().filter(|packet| packet.stream == 0).collect();
        random.reorder(&mut sent, 5);
        let mut items = Vec::new();
        for packet in &sent {
            bench.send(packet);
            bench.drain(1, &mut items);
        }
        bench.receiver.finish(&[None, None], &mut items);
        let total = bench.receiver.total();
        assert_eq!((total.placed, total.complete, total.shots), (36, 12, 12), "seed {seed}: {total:?}");
        assert_eq!((Output::of(items).complete.len(), total.balance()), (12, Ok(())));
    }
}

#[test]
fn a_few_packets_are_joined_after_the_timeout() {
    let mut bench = Bench::new(Kind::Udp, None, 4);
    let patient = StreamConfig { timeout_ns: u64::MAX, ..bench.receiver.config(0) };
    bench.receiver.reconfigure(0, patient);
    let mut items = Vec::new();
    plan(1, 5, &[255]).iter().filter(|packet| packet.stream == 0).for_each(|packet| bench.send(packet));
    bench.drain(1, &mut items);
    assert_eq!(items.len(), 0, "earlier packets may still arrive");
    bench.drain(1_000_000_000, &mut items);
    assert_eq!(Output::of(items).complete.len(), 1);
}

#[test]
fn a_restart_ends_the_run_if_shots_contain_numbers() {
    let mut bench = Bench::new(Kind::Ud, None, 4);
    for stream in 0..STREAMS as usize {
        let unnamed = StreamConfig { source: None, ..bench.receiver.config(stream) };
        bench.receiver.reconfigure(stream, unnamed);
    }
    let mut items = Vec::new();
    plan(8, 0, &[255]).iter().for_each(|packet| bench.send(packet));
    bench.drain(1, &mut items);
    assert_eq!(bench.receiver.ended(), None);
    for (step, packet) in plan(8, 0, &[255]).iter().enumerate() {
        bench.send(packet);
        bench.drain(3 * TIMEOUT_NS + step as u64, &mut items);
    }
    assert_eq!(bench.receiver.ended(), Some(EndReason::Restarted));
    bench.receiver.finish(&[None, None], &mut items);
    let total = bench.receiver.total();
    assert_eq!((Output::of(items).complete.len(), total.shots, total.restarts), (16, 16, u64::from(STREAMS)));
    assert_eq!((total.packet_drops.get(DropCause::SenderRestart), total.balance()), (48, Ok(())));
}

#[test]
fn stragglers_before_a_pause_are_no_restart() {
    let mut bench = Bench::new(Kind::Ud, Some(0), 4);
    let mut items = Vec::new();
    let sent = plan(4, 0, &[255]);
    for _ in 0..2 {
        sent.iter().for_each(|packet| bench.send(packet));
        bench.drain(1, &mut items);
    }
    bench.drain(3 * TIMEOUT_NS, &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.restarts, total.packet_drops.get(DropCause::Late)), (0, sent.len() as u64));
    assert_eq!(bench.receiver.next(0), Some(4), "the numbers continue");
}

#[test]
fn corruption_found_only_by_the_record_makes_a_shot_partial() {
    let mut bench = Bench::new(Kind::Udp, Some(0), 4);
    let mut plan = plan(3, 0, &[255]);
    plan[1].corrupt = true;
    plan.iter().for_each(|packet| bench.send(packet));
    let mut items = Vec::new();
    bench.drain(1, &mut items);
    let bad: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Shot(shot) if !shot.meta.is_complete() => Some((shot.meta.stream, shot.meta.number)),
            _ => None,
        })
        .collect();
    assert_eq!(bad, [(0, 0)]);
    let counters = bench.receiver.counters(0);
    assert_eq!((counters.complete, counters.partial), (2, 1));
}

#[test]
fn a_silent_link_does_not_hold_back_the_other() {
    let mut bench = Bench::new(Kind::Ud, Some(0), 4);
    let mut items = Vec::new();
    for (step, packet) in plan(20, 0, &[255]).iter().filter(|packet| packet.stream == 0).enumerate() {
        bench.send(packet);
        bench.drain(1 + step as u64 * TIMEOUT_NS / 10, &mut items);
    }
    let lost: u64 = items
        .iter()
        .filter_map(|item| match item {
            Item::Loss(loss) if loss.stream == 1 && loss.cause == DropCause::WireGap => Some(loss.count),
            _ => None,
        })
        .sum();
    assert!(lost >= 14, "{lost}");
}

#[test]
fn another_sender_on_the_same_stream_changes_nothing() {
    let mut bench = Bench::new(Kind::Ud, Some(0), 4);
    // Set-up configured another address than the source of these packets.
    let elsewhere = StreamConfig { source: Some(address(6)), ..bench.receiver.config(0) };
    bench.receiver.reconfigure(0, elsewhere);
    plan(2, 0, &[255]).iter().for_each(|packet| bench.send(packet));
    let mut items = Vec::new();
    bench.drain(1, &mut items);
    let (foreign, own) = (bench.receiver.counters(0), bench.receiver.counters(1));
    assert_eq!((foreign.placed, foreign.packet_drops.get(DropCause::UnknownStream)), (0, 6));
    assert_eq!((own.complete, own.placed), (2, 6));
}

#[test]
fn an_exhausted_pool_drops_whole_shots_as_no_buffer() {
    let mut bench = Bench::new(Kind::Ud, Some(0), 4);
    let mut buffered = Vec::new(); // a sink that never releases its buffers
    plan(120, 0, &[255]).iter().for_each(|packet| {
        bench.send(packet);
        bench.drain(1, &mut buffered);
    });
    bench.receiver.finish(&[Some(120); 2], &mut buffered);
    let total = bench.receiver.total();
    assert_eq!(total.complete, 128, "one for each buffer of the pool");
    assert_eq!(total.shot_drops.get(DropCause::NoBuffer), 2 * 120 - 128);
    assert_eq!(total.packet_drops.get(DropCause::NoBuffer), 3 * (2 * 120 - 128));
    assert_eq!(total.balance(), Ok(()));
}

#[test]
fn a_number_beyond_the_maximum_is_malformed() {
    let mut bench = Bench::new(Kind::Udp, Some(0), 4);
    let mut items = Vec::new();
    for packet in plan(6, 0, &[255]) {
        bench.send(&packet);
        // Two of them, which would confirm each other.
        for index in 0..2 {
            bench.send(&PlannedPacket { shot: u64::MAX - 1, index, ..packet });
        }
        bench.drain(1, &mut items);
    }
    bench.receiver.finish(&[Some(6); 2], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.complete, total.shots), (12, 12));
    assert_eq!(total.packet_drops.get(DropCause::Malformed), 2 * 36);
    assert_eq!(total.balance(), Ok(()));
}

#[test]
fn a_far_jump_without_an_icrc_needs_a_second_packet() {
    let mut bench = Bench::new(Kind::Udp, Some(0), 4);
    let mut items = Vec::new();
    let mut plan = plan(6, 0, &[255]);
    plan.insert(7, PlannedPacket { stream: 0, shot: 1 << 40, index: 1, corrupt: false });
    for packet in &plan {
        bench.send(packet);
        bench.drain(1, &mut items);
    }
    bench.receiver.finish(&[Some(6); 2], &mut items);
    let total = bench.receiver.total();
    assert_eq!((total.complete, total.shots, total.packet_drops.get(DropCause::Malformed)), (12, 12, 1));
}
