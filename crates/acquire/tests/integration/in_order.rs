//! A device that puts each packet into its oldest receive, regardless of its contents: no wrong byte in a shot, exact
//! counters, and no copies once the receive queue is aligned again.

use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_acquire::counters::StreamCounters;
use shotline_acquire::{Item, Receiver, ReceiverConfig, StreamConfig, completion, receiver};
use shotline_memory::{Pool, Region, Regions, Registrar, Sge};
use shotline_testing::cases;
use shotline_transport::{
    Capabilities, DeviceCounters, Icrc, IoError, MAX_BATCH, PacketIo, PayloadLocation, Recv, RxPacket, Steer, TxPacket,
};
use shotline_verbs::ud::UdCompletion;
use shotline_wire::ParseError;
use shotline_wire::crc;
use shotline_wire::framing::{Extras, Framing, Kind, Link, MAX_HEADER, Packet, Placement, SampleContext, Signal, ud};
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const PAIR: u32 = 0x123;
const TIMEOUT_NS: u64 = 1_000_000;

fn sender() -> SocketAddr {
    "192.0.2.1:77".parse().unwrap()
}

fn other_sender() -> SocketAddr {
    "192.0.2.9:77".parse().unwrap()
}

/// Receive queue of a device: bytes are written when packets arrive, completions are polled later.
struct Device {
    regions: Regions,
    posted: VecDeque<Recv>,
    completed: VecDeque<(u32, [u8; UdCompletion::LEN], u32, u32, SocketAddr)>,
    /// Packets that arrived while no receive was posted.
    dropped: u64,
    capacity: usize,
}

impl Device {
    fn arrives(&mut self, imm: Option<u32>, payload: &[u8], source: SocketAddr) {
        let Some(receive) = self.posted.pop_front() else {
            self.dropped += 1;
            return;
        };
        let [first, second] = receive.sge;
        assert!(second.len == 0 || second.offset == first.offset + u64::from(first.len));
        let destination = Sge { len: first.len + second.len, ..first };
        assert!(
            payload.len() <= destination.len as usize,
            "{} bytes for a destination of {}",
            payload.len(),
            destination.len
        );
        self.regions.get(destination.region).write(destination.offset as usize, payload);
        let header = UdCompletion { dest_qp: PAIR, src_qp: 77, imm }.emit();
        self.completed.push_back((receive.id, header, payload.len() as u32, crc::remainder(payload), source));
    }
}

impl PacketIo for Device {
    fn device_counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    fn queue_pair(&self) -> Option<(u32, u32)> {
        None
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { steers: false, credits: false }
    }
    fn register(&mut self, regions: &Regions) {
        self.regions = regions.clone();
    }
    fn post(&mut self, receives: &[Recv]) -> usize {
        self.posted.extend(receives);
        assert!(self.posted.len() <= self.capacity, "more receives than the device was opened for");
        receives.len()
    }
    fn withdraw(&mut self, _ids: &[u32]) {}
    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let mut landed = 0;
        for _ in 0..max {
            let taken: Vec<_> = self.completed.drain(..self.completed.len().min(MAX_BATCH)).collect();
            let batch: Vec<_> = taken
                .iter()
                .map(|(id, header, len, payload_crc, source)| RxPacket {
                    landed: PayloadLocation::Posted(*id),
                    header,
                    len: *len,
                    source: *source,
                    stamp_ns: 0,
                    icrc: Icrc::Device,
                    payload_crc: *payload_crc,
                    congested: false,
                    fault: None,
                })
                .collect();
            if batch.is_empty() {
                break;
            }
            landed += batch.len();
            steer.landed(&batch);
        }
        Ok(landed)
    }
    fn wait(&mut self, _timeout: Duration) -> Result<(), IoError> {
        Ok(())
    }
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
    fn send(&mut self, _to: SocketAddr, _packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        Ok(0)
    }
}

/// Shots of three packets with a short last one, of one packet, or of many.
fn geometry(channels: u16) -> Geometry {
    Geometry::new(channels, 1000, 12, Packing::Packed12, 0).unwrap()
}

fn shot_bytes(g: &Geometry, number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..u64::from(g.trailer_offset())).map(|i| (i * 31 + 1).wrapping_add(number.wrapping_mul(7)) as u8).collect();
    bytes[g.sample_bytes() as usize..].fill(0);
    let record = Record { shot: number, stream: 0, tai_ns: number + 1000, ..Record::of(g) };
    let register = crc::register(u32::MAX, &bytes);
    bytes.extend(record.finish(register));
    bytes
}

struct Bench {
    counted: bool,
    geometry: Geometry,
    receiver: Receiver<Device>,
    items: Vec<Item>,
    now_ns: u64,
    sent: u64,
    complete: BTreeSet<u64>,
    partial: BTreeSet<u64>,
    lost: BTreeSet<u64>,
}

impl Bench {
    fn new(channels: u16, slots: u32) -> Self {
        Self::framed(Kind::Ud, channels, slots)
    }

    fn framed(framing: Kind, channels: u16, slots: u32) -> Self {
        Self::over(completion::completion_framing(framing).unwrap(), channels, slots)
    }

    fn over(framing: Arc<dyn Framing>, channels: u16, slots: u32) -> Self {
        let counted = framing.is_counted();
        let geometry = geometry(channels);
        let config = StreamConfig {
            stream: 0,
            key: PAIR,
            geometry,
            source: Some(sender()),
            first_shot: Some(0),
            first_psn: None,
            window: 4,
            timeout_ns: TIMEOUT_NS,
        };
        let mut registrar = Registrar::new();
        let slots = slots + receiver::in_order_buffers(&config) as u32;
        let pool = Pool::new(&mut registrar, slots, geometry.slot_bytes()).unwrap();
        let spare = Region::host(receiver::SPARE_BYTES as usize).unwrap();
        let spare = Sge { region: registrar.add(spare), offset: 0, len: receiver::SPARE_BYTES };
        let regions = registrar.finish();
        let (posted, completed) = (VecDeque::new(), VecDeque::new());
        let capacity = receiver::capacity(&[config]);
        let device = Device { regions: regions.clone(), posted, completed, dropped: 0, capacity };
        let config = ReceiverConfig { framing, streams: vec![config], pool, regions, spare, clock: None };
        let receiver = Receiver::new(device, config);
        let [complete, partial, lost] = [const { BTreeSet::new() }; 3];
        Self { counted, geometry, receiver, items: Vec::new(), now_ns: 1, sent: 0, complete, partial, lost }
    }

    fn arrives(&mut self, shot: u64, index: u32, source: SocketAddr) {
        let bytes = shot_bytes(&self.geometry, shot);
        let from = self.geometry.packet_offset(index) as usize;
        let payload = &bytes[from..from + self.geometry.packet_bytes(index) as usize];
        self.sent += 1;
        let imm = (!self.counted).then(|| ud::immediate(shot, index));
        self.receiver.io().arrives(imm, payload, source);
    }

    fn poll(&mut self) {
        while self.receiver.poll(self.now_ns, 4, &mut self.items).unwrap() > 0 {}
        self.check();
    }

    /// Silence after which every open shot is closed.
    fn pause(&mut self) {
        self.poll();
        self.now_ns += 2 * TIMEOUT_NS;
        self.poll();
    }

    fn whole_shot(&mut self, shot: u64) {
        for index in 0..self.geometry.packets() {
            self.arrives(shot, index, sender());
        }
        self.poll();
    }

    /// Checks the emitted shots byte by byte.
    fn check(&mut self) {
        let g = self.geometry;
        for item in std::mem::take(&mut self.items) {
            let shot = match item {
                Item::Loss(loss) => {
                    self.lost.extend(loss.first..loss.first + loss.count);
                    continue;
                }
                Item::Shot(shot) => shot,
            };
            let mut expected = shot_bytes(&g, shot.meta.number);
            expected.resize(g.slot_bytes() as usize, 0);
            for index in shot.meta.presence.missing() {
                let (from, len) = (g.packet_offset(index) as usize, g.packet_bytes(index) as usize);
                expected[from..from + len].fill(0);
            }
            let mut bytes = vec![0; g.slot_bytes() as usize];
            shot.buffer.read(0, &mut bytes);
            let differ = bytes.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(differ, None, "shot {} has a wrong byte", shot.meta.number);
            let seen = if shot.meta.is_complete() { &mut self.complete } else { &mut self.partial };
            let is_new = seen.insert(shot.meta.number);
            assert!(is_new, "shot {} twice", shot.meta.number);
        }
    }

    /// Ends; returns the counters, which account for everything.
    fn end(&mut self, shots: u64) -> StreamCounters {
        self.poll();
        self.receiver.finish(&[Some(shots)], &mut self.items);
        self.check();
        let total = self.receiver.total();
        assert_eq!(total.balance(), Ok(()));
        assert_eq!(total.packets + self.receiver.io().dropped, self.sent);
        assert_eq!(total.icrc_device + self.receiver.unknown().packets, total.packets);
        let numbers = self.complete.len() + self.partial.len() + self.lost.len();
        assert_eq!(numbers as u64, shots);
        total
    }
}

#[test]
fn without_a_loss_nothing_is_copied() {
    for channels in [1, 8, 96] {
        let mut bench = Bench::new(channels, 32);
        (0..100).for_each(|shot| bench.whole_shot(shot));
        let total = bench.end(100);
        assert_eq!((total.complete, total.repaired, total.repaired_bytes), (100, 0, 0), "{channels} channels");
    }
}

#[test]
fn a_loss_shifts_payloads_until_the_queue_is_consumed() {
    for (channels, lost) in [(8, vec![(5, 1)]), (8, vec![(5, 2), (6, 0), (6, 1)]), (96, vec![(5, 30), (5, 31), (9, 0)])]
    {
        let mut bench = Bench::new(channels, 32);
        for shot in 0..60 {
            for index in (0..bench.geometry.packets()).filter(|index| !lost.contains(&(shot, *index))) {
                bench.arrives(shot, index, sender());
            }
            bench.poll();
        }
        let moved = bench.receiver.total().repaired;
        assert!(moved > 0);
        (60..80).for_each(|shot| bench.whole_shot(shot));
        let total = bench.end(80);
        assert_eq!(total.repaired, moved, "{channels} channels: nothing is shifted any more");
        assert_eq!(total.packets_missing, lost.len() as u64);
        let touched: BTreeSet<u64> = lost.iter().map(|(shot, _)| *shot).collect();
        assert_eq!((total.complete, total.partial), (80 - touched.len() as u64, touched.len() as u64));
    }
}

#[test]
fn the_queue_recovers_from_packets_of_other_senders() {
    let mut bench = Bench::new(8, 32);
    let posted = bench.receiver.io().posted.len();
    for shot in 0..60 {
        if shot < 20 {
            (0..5).for_each(|index| bench.arrives(shot, index % 3, other_sender()));
        }
        bench.whole_shot(shot);
    }
    assert_eq!(bench.receiver.io().posted.len(), posted);
    let moved = bench.receiver.total().repaired;
    (60..80).for_each(|shot| bench.whole_shot(shot));
    let total = bench.end(80);
    assert_eq!((total.complete, total.repaired), (80, moved));
    assert_eq!(total.packet_drops.get(DropCause::UnknownStream), 100);
}

#[test]
fn other_senders_cannot_exhaust_the_queue() {
    let mut bench = Bench::new(8, 32);
    for _ in 0..2000 {
        bench.arrives(0, 0, other_sender());
        bench.poll();
    }
    (0..50).for_each(|shot| bench.whole_shot(shot));
    let total = bench.end(50);
    assert_eq!((total.complete, bench.receiver.io().dropped), (50, 0));
}

#[test]
fn a_shot_without_its_end_leaves_while_the_device_owns_buffers() {
    let mut bench = Bench::new(8, 32);
    for shot in 0..30 {
        for index in 0..2 {
            bench.arrives(shot, index, sender());
        }
        bench.pause();
    }
    let total = bench.end(30);
    assert_eq!((total.partial, total.packets_missing), (30, 30));
}

/// Sends shots without some packets, and ends.
fn counted(channels: u16, shots: u64, without: &[(u64, u32)]) -> (Bench, StreamCounters) {
    let mut bench = Bench::framed(Kind::Counted, channels, 32);
    for shot in 0..shots {
        for index in (0..bench.geometry.packets()).filter(|index| !without.contains(&(shot, *index))) {
            bench.arrives(shot, index, sender());
            bench.poll();
        }
    }
    let total = bench.end(shots);
    (bench, total)
}

#[test]
fn counted_packets_without_loss_are_whole_shots() {
    for channels in [1, 8, 96] {
        let (_, total) = counted(channels, 40, &[]);
        assert_eq!((total.complete, total.repaired), (40, 0));
    }
}

#[test]
fn a_loss_among_counted_packets_discards_the_whole_shot() {
    for (channels, lost) in [(8, (5, 0)), (8, (5, 1)), (96, (5, 17)), (96, (5, 0))] {
        let (bench, total) = counted(channels, 20, &[lost]);
        assert_eq!(bench.partial, BTreeSet::from([5]), "{lost:?}");
        assert_eq!((total.complete, total.packets_missing), (19, 1));
        let arrived = u64::from(bench.geometry.packets() - 1);
        assert_eq!(total.packet_drops.get(DropCause::Unplaced), arrived, "{lost:?}");
        assert_eq!(total.placed + arrived, total.packets);
        assert_eq!(total.placed_bytes, 19 * u64::from(bench.geometry.sent_bytes()), "{lost:?}");
    }
}

#[test]
fn a_counted_shot_without_its_end_is_replaced_by_the_next() {
    let (bench, total) = counted(8, 20, &[(5, 2)]);
    assert_eq!((bench.partial, total.complete), (BTreeSet::from([5]), 19));
    let whole: Vec<_> = (0..3).map(|index| (5, index)).collect();
    let (bench, total) = counted(8, 20, &whole);
    assert!(total.complete >= 18 && bench.lost.len() + bench.partial.len() <= 2, "{total:?}");
}

/// A different framing with the name of counted packets.
#[derive(Debug)]
struct Namesake(Arc<dyn Framing>);

impl Framing for Namesake {
    fn name(&self) -> &'static str {
        Kind::Counted.name()
    }
    fn has_icrc(&self) -> bool {
        self.0.has_icrc()
    }
    fn header_len(&self, first: &[u8]) -> usize {
        self.0.header_len(first)
    }
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        self.0.key(header)
    }
    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        self.0.place(header, payload_len, g)
    }
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        self.0.emit(link, p, out);
    }
}

impl Extras for Namesake {
    fn header_len_at(&self, index: u32, g: &Geometry) -> Option<usize> {
        self.0.header_len_at(index, g)
    }
    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal> {
        self.0.signal(header, g)
    }
    fn count(&self, header: &[u8]) -> Option<u8> {
        self.0.count(header)
    }
    fn is_counted(&self) -> bool {
        self.0.is_counted()
    }
    fn sample_context(&self) -> SampleContext {
        self.0.sample_context()
    }
    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64 {
        self.0.stamp_tai_ns(shot, g)
    }
}

#[test]
fn a_framing_named_counted_keeps_packet_positions() {
    let mut bench = Bench::over(Arc::new(Namesake(completion::completion_framing(Kind::Ud).unwrap())), 8, 32);
    for shot in 0..20 {
        for index in (0..3).filter(|index| (shot, *index) != (5, 1)) {
            bench.arrives(shot, index, sender());
        }
        bench.poll();
    }
    let total = bench.end(20);
    assert_eq!((total.complete, total.partial, total.placed), (19, 1, 59));
    assert_eq!(total.packet_drops.get(DropCause::Unplaced), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]
    #[test]
    fn any_faults_leave_correct_bytes_and_exact_counters(
        faults in prop::collection::vec(any::<u8>(), 40..300),
        channels in prop::sample::select(vec![1_u16, 8, 20]),
        slots in 12_u32..200,
        burst in 1_usize..60,
        pauses in 0_u8..20,
    ) {
        let mut bench = Bench::new(channels, slots);
        let packets = bench.geometry.packets();
        let shots = 24;
        let mut plan = Vec::new();
        let mut fault = faults.iter().cycle();
        for shot in 0..shots {
            for index in 0..packets {
                let packet = (shot, index, sender());
                match *fault.next().unwrap() {
                    0..=24 => {}
                    25..=34 => plan.extend([packet, packet]),
                    35..=44 => plan.extend([(shot, index, other_sender()), packet]),
                    45..=64 => {
                        let at = plan.len() - plan.len().min(1 + usize::from(index as u8 + shot as u8) % 4);
                        plan.insert(at, packet);
                    }
                    65..=67 => plan.extend([packet; 9]),
                    _ => plan.push(packet),
                }
            }
        }
        for (at, (shot, index, source)) in plan.iter().enumerate() {
            bench.arrives(*shot, *index, *source);
            if at % burst == 0 {
                bench.poll();
            }
            if faults[at % faults.len()] < pauses {
                bench.pause();
            }
        }
        bench.pause();
        let total = bench.end(shots);
        prop_assert!(total.placed > 0 || plan.len() < 20, "some of this many packets are placed");
        // With buffers for all packets in flight the queue is never shorter than a burst.
        prop_assert!(slots < 140 || bench.receiver.io().dropped == 0);
    }
}
