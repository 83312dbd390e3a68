//! What every backend promises, and what its tests share.

use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_testing::PATIENCE;
use shotline_transport::{Done, Icrc, Landed, PacketIo, Pick, Recv, SCRATCH_BYTES, Seal, Seen, Send, Steer, To};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const HEADER: usize = 24;
pub const PLACES: u64 = 128;
const PLACE_BYTES: u32 = 4096;

/// Memory of a test: a source of payloads, and places for them.
#[derive(Clone)]
pub struct Memory {
    source: Arc<Region>,
    source_sge: Sge,
    places_sge: Sge,
    pub scratch: Sge,
    pub regions: Regions,
}

impl Memory {
    pub fn new() -> Self {
        let mut registrar = Registrar::new();
        let mut add = |len: u32| {
            let region = Region::host(len as usize).unwrap();
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

    pub fn payload(&self, offset: u64, len: u32) -> ([Sge; 2], Vec<u8>) {
        let mut bytes = vec![0; len as usize];
        self.source.read(offset as usize, &mut bytes);
        ([Sge { offset, len, ..self.source_sge }, Sge::EMPTY], bytes)
    }

    pub fn place(&self, index: u64, len: u32) -> Sge {
        Sge { offset: index * u64::from(PLACE_BYTES), len, ..self.places_sge }
    }

    pub fn fill(&self, sge: Sge, byte: u8) {
        self.regions.get(sge.region).write(sge.offset as usize, &vec![byte; sge.len as usize]);
    }

    pub fn at(&self, sge: Sge) -> Vec<u8> {
        let mut bytes = vec![0; sge.len as usize];
        self.regions.get(sge.region).read(sge.offset as usize, &mut bytes);
        bytes
    }
}

/// What a test saw of one packet.
#[derive(Debug)]
pub struct Got {
    pub landed: Landed,
    pub bytes: Vec<u8>,
    pub header: Vec<u8>,
    pub icrc: Icrc,
    pub payload_crc: u32,
    pub stamp_ns: u64,
    pub congested: bool,
    pub fault: Option<DropCause>,
    /// Packets that were told before this one's batch.
    pub told_before: usize,
}

/// Wants what it was told to, one packet after the other, and notes what landed.
pub struct Noting<'a> {
    pub memory: &'a Memory,
    /// From its front on; scratch when it is empty.
    pub wanted: VecDeque<To>,
    /// What it foretells of headers, from the first packet of every batch on.
    pub foretold: Vec<Option<u16>>,
    /// What it expects of packets that cannot be looked at.
    pub expected: Vec<Pick>,
    /// Bytes around the places that it expects packets in.
    pub around: [u32; 2],
    pub got: Vec<Got>,
}

impl<'a> Noting<'a> {
    pub fn new(memory: &'a Memory, wanted: VecDeque<To>) -> Self {
        Self { memory, wanted, foretold: Vec::new(), expected: Vec::new(), around: [0; 2], got: Vec::new() }
    }
}

impl Steer for Noting<'_> {
    fn header_len(&mut self, _seen: &Seen<'_>) -> usize {
        HEADER
    }
    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        assert_eq!(picks.len(), seen.packets);
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

/// Receives until `packets` have come.
pub fn receive<P: PacketIo>(rx: &mut P, memory: &Memory, ids: Vec<Option<u32>>, packets: usize) -> Vec<Got> {
    receive_foretold(rx, memory, ids, Vec::new(), packets)
}

pub fn receive_foretold<P: PacketIo>(
    rx: &mut P,
    memory: &Memory,
    ids: Vec<Option<u32>>,
    foretold: Vec<Option<u16>>,
    packets: usize,
) -> Vec<Got> {
    let wanted = ids.into_iter().map(|id| id.map_or(To::Scratch, To::Posted)).collect();
    receive_with(rx, Noting { foretold, ..Noting::new(memory, wanted) }, packets)
}

/// Receives until `packets` have come to this steer.
pub fn receive_with<P: PacketIo>(rx: &mut P, mut steer: Noting<'_>, packets: usize) -> Vec<Got> {
    let end = Instant::now() + PATIENCE;
    while steer.got.len() < packets {
        assert!(Instant::now() < end, "{} of {packets} packets came", steer.got.len());
        if rx.poll(&mut steer, 4).unwrap() == 0 {
            rx.wait(Duration::from_millis(50)).unwrap();
        }
    }
    steer.got
}

pub fn header(index: u8) -> [u8; HEADER] {
    let mut header = [index; HEADER];
    header[0] = 0x65; // so that byte 4 is what the ICRC masks
    header
}

pub fn post(rx: &mut impl PacketIo, memory: &Memory, ids: std::ops::Range<u32>) {
    let receives: Vec<Recv> =
        ids.map(|id| Recv { id, sge: [memory.place(id.into(), PLACE_BYTES), Sge::EMPTY] }).collect();
    assert_eq!(rx.post(&receives), receives.len());
}

pub fn conforms<P: PacketIo>(memory: &Memory, to: SocketAddr, tx: &mut P, rx: &mut P, sealed: bool) {
    let good = if sealed { Icrc::Good } else { Icrc::Absent };
    let seal = if sealed { Seal::Compute } else { Seal::None };

    // Payloads land where they were steered, whole batches of them, the last one shorter.
    post(rx, memory, 0..40);
    let headers: Vec<_> = (0..40).map(header).collect();
    let packets: Vec<_> =
        (0..40_u32).map(|i| memory.payload(u64::from(i) * 8, if i == 39 { 1344 } else { 4096 })).collect();
    let sends: Vec<_> =
        headers.iter().zip(&packets).map(|(header, (gather, _))| Send { header, gather, seal }).collect();
    let mut sent = 0;
    while sent < sends.len() {
        sent += tx.send(to, &sends[sent..]).unwrap();
    }
    let got = receive(rx, memory, (0..40).rev().map(Some).collect(), 40);
    for (index, got) in got.iter().enumerate() {
        assert_eq!(got.landed, Landed::Slot(39 - index as u32));
        assert_eq!((got.bytes == packets[index].1, got.icrc, got.fault), (true, good, None), "packet {index}");
        assert_eq!(got.header, headers[index]);
        assert_eq!(got.payload_crc, crc::remainder(&packets[index].1));
    }

    // A place is used up by one packet; what has no place, or one that is too small, is in scratch.
    post(rx, memory, 50..53);
    rx.withdraw(&[52]);
    assert_eq!(rx.post(&[Recv { id: 53, sge: [memory.place(53, 100), Sge::EMPTY] }]), 1);
    let head = header(7);
    let (gather, bytes) = memory.payload(64, 4096);
    let one = Send { header: &head, gather: &gather, seal };
    for (ids, slot) in [
        (vec![Some(50)], Some(50)),
        (vec![Some(50)], None),
        (vec![Some(52)], None),
        (vec![Some(53)], None),
        (vec![None], None),
        (vec![Some(u32::MAX)], None),
    ] {
        assert_eq!(tx.send(to, &[one]).unwrap(), 1);
        let got = receive(rx, memory, ids.clone(), 1);
        assert_eq!(matches!(got[0].landed, Landed::Slot(id) if Some(id) == slot), slot.is_some(), "{ids:?}");
        assert_eq!((got[0].bytes == bytes, got[0].icrc), (true, good));
    }
    assert_eq!(tx.send(to, &[one, one]).unwrap(), 2);
    let twice = receive(rx, memory, vec![Some(51), Some(51)], 2);
    assert_eq!(twice.iter().filter(|got| got.landed == Landed::Slot(51)).count(), 1);
    assert!(twice.iter().all(|got| got.bytes == bytes));

    // A place in two pieces, and a payload from two.
    let (front, back) = (memory.place(60, 1000), memory.place(70, 4000));
    assert_eq!(rx.post(&[Recv { id: 60, sge: [front, back] }]), 1);
    let halves = [Sge { len: 2000, ..gather[0] }, Sge { offset: gather[0].offset + 2000, len: 2096, ..gather[0] }];
    assert_eq!(tx.send(to, &[Send { gather: &halves, ..one }]).unwrap(), 1);
    let got = receive(rx, memory, vec![Some(60)], 1);
    assert_eq!((got[0].landed, got[0].icrc), (Landed::Slot(60), good));
    assert_eq!(memory.at(front), bytes[..1000]);
    assert_eq!(memory.at(memory.place(70, 3096)), bytes[1000..]);

    // An empty payload is a packet; one shorter than its header is malformed.
    assert_eq!(tx.send(to, &[Send { gather: &[], ..one }]).unwrap(), 1);
    assert_eq!(tx.send(to, &[Send { header: &head[..9], gather: &[], seal }]).unwrap(), 1);
    let got = receive(rx, memory, vec![None, None], 2);
    assert_eq!((got[0].bytes.len(), got[0].icrc, got[0].fault), (0, good, None));
    assert_eq!(got[1].fault, Some(DropCause::Malformed));

    // Headers that differ are split where the steer foretells, and no byte or verdict changes, right or wrong.
    post(rx, memory, 80..83);
    let payloads: Vec<_> = (0..3).map(|i| memory.payload(512 * i, if i == 2 { 60 } else { 1000 })).collect();
    let sends: Vec<_> = payloads.iter().map(|(gather, _)| Send { header: &head, gather, seal }).collect();
    assert_eq!(tx.send(to, &sends).unwrap(), 3);
    let got = receive_foretold(rx, memory, (80..83).map(Some).collect(), vec![None, Some(32), Some(200)], 3);
    for (got, (_, bytes)) in got.iter().zip(&payloads) {
        assert_eq!([got.header.as_slice(), &got.bytes].concat(), [head.as_slice(), bytes].concat());
        assert_eq!((got.icrc, got.fault), (good, None));
    }
    let one_by_one = got[1].header.len() == HEADER; // a backend that saw each packet alone foretold nothing
    assert!(one_by_one || (got[1].header.len(), got[1].bytes.len(), got[2].bytes.len()) == (32, 992, 0));

    named_memory(memory, to, tx, rx, seal);
    small_among_large(memory, to, tx, rx, seal);
    new_table(memory, to, tx, rx, seal);

    // Its descriptor, if it has one, is readable exactly while packets wait.
    if rx.fd().is_some() {
        assert!(!is_readable(rx, Duration::ZERO));
        assert_eq!(tx.send(to, &[one]).unwrap(), 1);
        assert!(is_readable(rx, PATIENCE));
        receive(rx, memory, vec![None], 1);
        assert!(!is_readable(rx, Duration::ZERO));
    }

    if sealed {
        // A known remainder seals without reading; a wrong one, or a forced value, is caught.
        let remainder = crc::remainder(&bytes);
        for (seal, verdict) in [
            (Seal::Remainder(remainder), Icrc::Good),
            (Seal::Remainder(remainder ^ 1), Icrc::Bad),
            (Seal::Forced(0x1234_5678), Icrc::Bad),
        ] {
            assert_eq!(tx.send(to, &[Send { seal, ..one }]).unwrap(), 1);
            let got = receive(rx, memory, vec![None], 1);
            let fault = (verdict == Icrc::Bad).then_some(DropCause::BadIcrc);
            assert_eq!((got[0].icrc, got[0].fault), (verdict, fault), "{seal:?}");
        }
    }
}

fn is_readable<P: PacketIo>(rx: &P, patience: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(rx.fd().unwrap(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
}

/// Payloads land in the memory that the steer names, in one piece or two, or in scratch if it is too small.
fn named_memory<P: PacketIo>(memory: &Memory, to: SocketAddr, tx: &mut P, rx: &mut P, seal: Seal) {
    let good = if seal == Seal::None { Icrc::Absent } else { Icrc::Good };
    let head = header(11);
    let payloads: Vec<_> = (0..10).map(|i| memory.payload(i * 40, if i == 9 { 77 } else { 1000 })).collect();
    let sends: Vec<_> = payloads.iter().map(|(gather, _)| Send { header: &head, gather, seal }).collect();
    let named = |place: u64, len| To::Memory([memory.place(place, len), Sge::EMPTY]);
    let halves = |place: u64, first, second| To::Memory([memory.place(place, first), memory.place(place + 1, second)]);
    let wanted = [
        (named(0, 1000), true),
        (named(1, 4096), true),
        (named(2, 999), false),
        (halves(3, 1, 999), true),
        (halves(5, 999, 1), true),
        (halves(7, 600, 399), false),
        (To::Memory([Sge::EMPTY; 2]), false),
        (halves(9, 1000, 5), true),
        (To::Scratch, false),
        (named(11, 77), true),
    ];
    for together in [true, false] {
        for place in 0..12 {
            memory.fill(memory.place(place, PLACE_BYTES), 0xEE);
        }
        let mut sent = 0;
        while sent < sends.len() {
            let some = if together { &sends[sent..] } else { &sends[sent..=sent] };
            sent += tx.send(to, some).unwrap();
        }
        let got = receive_with(rx, Noting::new(memory, wanted.iter().map(|(to, _)| *to).collect()), 10);
        for (index, (got, (to, fits))) in got.iter().zip(wanted).enumerate() {
            let landed_there = matches!((got.landed, to), (Landed::Memory(at), To::Memory(named)) if at == named);
            assert_eq!(landed_there, fits, "packet {index}");
            assert_eq!((got.bytes == payloads[index].1, got.icrc, got.fault), (true, good, None), "packet {index}");
        }
        // Nothing beside the payloads was touched.
        for (place, used) in [(0, 1000), (1, 1000), (2, 0), (3, 1), (4, 999), (5, 999), (6, 1), (7, 0), (8, 0), (10, 0)]
        {
            let bytes = memory.at(memory.place(place, PLACE_BYTES));
            assert!(bytes[used..].iter().all(|byte| *byte == 0xEE), "place {place}");
        }
    }
}

/// Whatever sizes follow each other, each payload lands where it was steered to.
fn small_among_large<P: PacketIo>(memory: &Memory, to: SocketAddr, tx: &mut P, rx: &mut P, seal: Seal) {
    let lens = (0..20).chain([1500; 20]).chain([4000, 7, 4000, 4000]).chain([64; 30]).chain([3000, 64, 0, 9]);
    for burst in [1, 5, 98] {
        post(rx, memory, 0..PLACES as u32);
        let lens: Vec<u32> = lens.clone().collect();
        for (at, lens) in lens.chunks(burst).enumerate() {
            let payloads: Vec<_> = lens.iter().map(|len| memory.payload(u64::from(*len), *len)).collect();
            let heads: Vec<_> = (0..lens.len()).map(|i| header(i as u8)).collect();
            for (head, (gather, _)) in heads.iter().zip(&payloads) {
                assert_eq!(tx.send(to, &[Send { header: head, gather, seal }]).unwrap(), 1);
            }
            let first = (at * burst) as u32;
            let ids = (first..first + lens.len() as u32).map(Some).collect();
            let got = receive(rx, memory, ids, lens.len());
            for (index, got) in got.iter().enumerate() {
                let what = (got.header == heads[index], got.bytes == payloads[index].1, got.fault);
                assert_eq!(what, (true, true, None), "{} bytes, number {index} of {burst}", lens[index]);
                let slot = Landed::Slot(first + index as u32);
                assert!(got.landed == slot || lens[index] == 0, "number {index} of {burst}: {:?}", got.landed);
            }
        }
        let all: Vec<u32> = (0..PLACES as u32).collect();
        rx.withdraw(&all);
    }
}

/// Memory that came later is known once the table with it is registered, and what was posted before stays posted.
fn new_table<P: PacketIo>(memory: &Memory, to: SocketAddr, tx: &mut P, rx: &mut P, seal: Seal) {
    post(rx, memory, 90..91);
    let region = Region::host(8192).unwrap();
    region.write(0, &[0xA5; 4096]);
    let (regions, id) = memory.regions.with(Arc::clone(&region)).unwrap();
    tx.register(&regions);
    rx.register(&regions);
    let head = header(13);
    let payload = Sge { region: id, offset: 0, len: 3000 };
    let place = Sge { region: id, offset: 5000, len: 3000 };
    assert_eq!(tx.send(to, &[Send { header: &head, gather: &[payload], seal }; 2]).unwrap(), 2);
    let larger = Memory { regions, ..memory.clone() };
    let wanted = VecDeque::from([To::Memory([place, Sge::EMPTY]), To::Posted(90)]);
    let got = receive_with(rx, Noting::new(&larger, wanted), 2);
    assert_eq!((got[0].landed, got[1].landed), (Landed::Memory([place, Sge::EMPTY]), Landed::Slot(90)));
    assert!(got.iter().all(|got| got.bytes == [0xA5; 3000]));
    tx.register(&memory.regions);
    rx.register(&memory.regions);
    assert_eq!(Arc::strong_count(&region), 2, "of the table that was taken away, nobody keeps the memory");
}
