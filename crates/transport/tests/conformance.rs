//! What every backend of `PacketIo` promises, run against each of them.

use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_transport::inproc::{self, InprocConfig};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{Done, Icrc, Landed, PacketIo, Pick, Recv, SCRATCH_BYTES, Seal, Seen, Send, Steer};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEADER: usize = 24;
const PLACES: u64 = 128;
const PLACE_BYTES: u32 = 4096;

/// Memory of a test: a source of payloads, and places for them.
struct Memory {
    source: Arc<Region>,
    source_sge: Sge,
    places_sge: Sge,
    scratch: Sge,
    regions: Regions,
}

impl Memory {
    fn new() -> Self {
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

    fn payload(&self, offset: u64, len: u32) -> ([Sge; 2], Vec<u8>) {
        let mut bytes = vec![0; len as usize];
        self.source.read(offset as usize, &mut bytes);
        ([Sge { offset, len, ..self.source_sge }, Sge::EMPTY], bytes)
    }

    fn place(&self, index: u64, len: u32) -> Sge {
        Sge { offset: index * u64::from(PLACE_BYTES), len, ..self.places_sge }
    }

    fn at(&self, sge: Sge) -> Vec<u8> {
        let mut bytes = vec![0; sge.len as usize];
        self.regions.get(sge.region).read(sge.offset as usize, &mut bytes);
        bytes
    }
}

/// What a test saw of one packet.
#[derive(Debug)]
struct Got {
    landed: Landed,
    bytes: Vec<u8>,
    header: Vec<u8>,
    icrc: Icrc,
    payload_crc: u32,
    stamp_ns: u64,
    fault: Option<DropCause>,
    /// Packets that were told before this one's batch.
    told_before: usize,
}

/// Picks the ids that it was told to, one after the other, and notes what landed.
struct Noting<'a> {
    memory: &'a Memory,
    ids: Vec<Option<u32>>,
    /// What it foretells of headers, from the first packet of every batch on.
    foretold: Vec<Option<u16>>,
    /// What it expects of packets that cannot be looked at.
    expected: Vec<Pick>,
    got: Vec<Got>,
}

impl Steer for Noting<'_> {
    fn header_len(&mut self, _seen: &Seen<'_>) -> usize {
        HEADER
    }
    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        assert_eq!(picks.len(), seen.packets);
        for (index, pick) in picks.iter_mut().enumerate() {
            pick.header_len = self.foretold.get(index).copied().flatten();
            pick.id = if self.ids.is_empty() { None } else { self.ids.remove(0) };
        }
    }
    fn expect(&mut self, picks: &mut [Pick]) -> usize {
        let count = picks.len().min(self.expected.len());
        picks[..count].copy_from_slice(&self.expected[..count]);
        self.expected.drain(..count);
        count
    }
    fn landed(&mut self, batch: &[Done<'_>]) {
        let told_before = self.got.len();
        for done in batch {
            let sge = match done.landed {
                Landed::Slot(id) => self.memory.place(u64::from(id), done.len),
                Landed::Scratch(sge) => sge,
            };
            self.got.push(Got {
                landed: done.landed,
                bytes: self.memory.at(sge),
                header: done.header.to_vec(),
                icrc: done.icrc,
                payload_crc: done.payload_crc,
                stamp_ns: done.stamp_ns,
                fault: done.fault,
                told_before,
            });
        }
    }
}

/// Receives until `packets` have come.
fn receive<P: PacketIo>(rx: &mut P, memory: &Memory, ids: Vec<Option<u32>>, packets: usize) -> Vec<Got> {
    receive_foretold(rx, memory, ids, Vec::new(), packets)
}

fn receive_foretold<P: PacketIo>(
    rx: &mut P,
    memory: &Memory,
    ids: Vec<Option<u32>>,
    foretold: Vec<Option<u16>>,
    packets: usize,
) -> Vec<Got> {
    let mut steer = Noting { memory, ids, foretold, expected: Vec::new(), got: Vec::new() };
    let end = Instant::now() + Duration::from_secs(5);
    while steer.got.len() < packets {
        assert!(Instant::now() < end, "{} of {packets} packets came", steer.got.len());
        if rx.poll(&mut steer, 4).unwrap() == 0 {
            rx.wait(Duration::from_millis(50)).unwrap();
        }
    }
    steer.got
}

fn header(index: u8) -> [u8; HEADER] {
    let mut header = [index; HEADER];
    header[0] = 0x65; // so that byte 4 is what the ICRC masks
    header
}

fn post(rx: &mut impl PacketIo, memory: &Memory, ids: std::ops::Range<u32>) {
    let receives: Vec<Recv> =
        ids.map(|id| Recv { id, sge: [memory.place(id.into(), PLACE_BYTES), Sge::EMPTY] }).collect();
    assert_eq!(rx.post(&receives), receives.len());
}

fn conforms<P: PacketIo>(memory: &Memory, to: SocketAddr, tx: &mut P, rx: &mut P, sealed: bool) {
    let good = if sealed { Icrc::Good } else { Icrc::Absent };
    let seal = if sealed { Seal::Compute } else { Seal::None };

    // Payloads land where they were steered, whole batches of them, the last one shorter.
    post(rx, memory, 0..40);
    let headers: Vec<_> = (0..40).map(header).collect();
    let packets: Vec<_> =
        (0..40_u32).map(|i| memory.payload(u64::from(i) * 8, if i == 39 { 1344 } else { 4096 })).collect();
    let sends: Vec<_> =
        headers.iter().zip(&packets).map(|(header, (gather, _))| Send { header, gather: *gather, seal }).collect();
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
    let one = Send { header: &head, gather, seal };
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
    assert_eq!(tx.send(to, &[Send { gather: halves, ..one }]).unwrap(), 1);
    let got = receive(rx, memory, vec![Some(60)], 1);
    assert_eq!((got[0].landed, got[0].icrc), (Landed::Slot(60), good));
    assert_eq!(memory.at(front), bytes[..1000]);
    assert_eq!(memory.at(memory.place(70, 3096)), bytes[1000..]);

    // An empty payload is a packet; one shorter than its header is malformed.
    assert_eq!(tx.send(to, &[Send { gather: [Sge::EMPTY; 2], ..one }]).unwrap(), 1);
    assert_eq!(tx.send(to, &[Send { header: &head[..9], gather: [Sge::EMPTY; 2], seal }]).unwrap(), 1);
    let got = receive(rx, memory, vec![None, None], 2);
    assert_eq!((got[0].bytes.len(), got[0].icrc, got[0].fault), (0, good, None));
    assert_eq!(got[1].fault, Some(DropCause::Malformed));

    // Headers that differ are split where the steer foretells, and no byte or verdict changes, right or wrong.
    post(rx, memory, 80..83);
    let payloads: Vec<_> = (0..3).map(|i| memory.payload(512 * i, if i == 2 { 60 } else { 1000 })).collect();
    let sends: Vec<_> = payloads.iter().map(|(gather, _)| Send { header: &head, gather: *gather, seal }).collect();
    assert_eq!(tx.send(to, &sends).unwrap(), 3);
    let got = receive_foretold(rx, memory, (80..83).map(Some).collect(), vec![None, Some(32), Some(200)], 3);
    for (got, (_, bytes)) in got.iter().zip(&payloads) {
        assert_eq!([got.header.as_slice(), &got.bytes].concat(), [head.as_slice(), bytes].concat());
        assert_eq!((got.icrc, got.fault), (good, None));
    }
    let one_by_one = got[1].header.len() == HEADER; // a backend that saw each packet alone foretold nothing
    assert!(one_by_one || (got[1].header.len(), got[1].bytes.len(), got[2].bytes.len()) == (32, 992, 0));

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

fn udp_pair(memory: &Memory, ip: &str, sealed: bool) -> (UdpIo, UdpIo) {
    let open = || {
        let bind = SocketAddr::new(ip.parse().unwrap(), 0);
        let config = UdpConfig {
            bind,
            sealed,
            capacity: PLACES as usize,
            scratch: memory.scratch,
            receive_buffer: 4 << 20,
            remainders: true,
            stamps: true,
        };
        UdpIo::open(&config, &memory.regions).unwrap()
    };
    (open(), open())
}

#[test]
fn udp_over_ipv6_conforms() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let (mut tx, mut rx) = udp_pair(&memory, "::1", sealed);
        conforms(&memory, rx.local_addr(), &mut tx, &mut rx, sealed);
    }
}

#[test]
fn udp_over_ipv4_conforms_and_its_own_identifications_are_known() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let (mut tx, mut rx) = udp_pair(&memory, "127.0.0.1", sealed);
        conforms(&memory, rx.local_addr(), &mut tx, &mut rx, sealed);
    }
}

#[test]
fn inproc_conforms() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let end = |port| InprocConfig {
            address: SocketAddr::new("fd00::1".parse().unwrap(), port),
            sealed,
            capacity: PLACES as usize,
            scratch: memory.scratch,
        };
        let (mut tx, mut rx) = inproc::pair(1000, (end(1), &memory.regions), (end(2), &memory.regions));
        conforms(&memory, end(2).address, &mut tx, &mut rx, sealed);
    }
}

#[test]
fn inproc_gives_credit_only_for_what_it_can_hold() {
    let memory = Memory::new();
    let end = |port| InprocConfig {
        address: SocketAddr::new("fd00::1".parse().unwrap(), port),
        sealed: true,
        capacity: 1,
        scratch: memory.scratch,
    };
    let (mut tx, mut rx) = inproc::pair(3, (end(1), &memory.regions), (end(2), &memory.regions));
    let head = header(1);
    let packet = Send { header: &head, gather: memory.payload(0, 100).0, seal: Seal::Compute };
    assert_eq!(tx.send(end(2).address, &[packet; 5]).unwrap(), 3);
    assert_eq!(receive(&mut rx, &memory, vec![None; 3], 3).len(), 3);
    assert_eq!(tx.send(end(2).address, &[packet; 5]).unwrap(), 3);
    drop(rx);
    assert!(tx.send(end(2).address, &[packet]).is_err());
}

#[test]
fn an_identification_that_is_not_ours_is_solved_for_and_marked_so() {
    // The kernel numbers a connected socket's packets by itself; the ICRC of such a packet is made for the
    // identification 4660, which no socket shows.
    let memory = Memory::new();
    let (_, mut rx) = udp_pair(&memory, "127.0.0.1", true);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (head, payload) = (header(3), memory.payload(0, 500).1);
    let network = shotline_wire::icrc::Network::V4 { src: [127, 0, 0, 1], dst: [127, 0, 0, 1], id: 4660 };
    let (src_port, dst_port) = (socket.local_addr().unwrap().port(), rx.local_addr().port());
    let prefix = shotline_wire::icrc::Flow { network, src_port, dst_port }.prefix(24 + 500 + 4);
    let after = shotline_wire::icrc::after_header(prefix, &head);
    let icrc = shotline_wire::icrc::seal(after, 500_u64, crc::remainder(&payload));
    let packet = [&head[..], &payload, &icrc.to_le_bytes()].concat();
    socket.send_to(&packet, rx.local_addr()).unwrap();
    assert_eq!(receive(&mut rx, &memory, vec![None], 1)[0].icrc, Icrc::Solved);
}

#[test]
fn whatever_a_stranger_sends_is_a_verdict_and_never_a_panic() {
    let memory = Memory::new();
    for ip in ["::1", "127.0.0.1"] {
        let (_, mut rx) = udp_pair(&memory, ip, true);
        post(&mut rx, &memory, 0..100);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let mut state = 1_u32;
        for len in (0..200).chain([4096, 4124, 4125, 9000, 65_000, 65_507]) {
            let mut bytes = vec![0; len];
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            socket.send_to(&bytes, rx.local_addr()).unwrap();
            let got = receive(&mut rx, &memory, vec![Some(len as u32 % 100)], 1);
            let expected = if len < HEADER + 4 { DropCause::Malformed } else { DropCause::BadIcrc };
            assert_eq!(got[0].fault, Some(expected), "{len} bytes");
        }
    }
}

#[test]
fn the_kernel_says_when_a_batch_came_if_it_is_asked() {
    let memory = Memory::new();
    let (mut tx, mut rx) = udp_pair(&memory, "::1", false);
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let before = now();
    let head = header(1);
    let packet = Send { header: &head, gather: memory.payload(0, 100).0, seal: Seal::None };
    // The kernel turns its stamping on behind the call that asks for it: the first packets may come unstamped.
    for _ in 0..500 {
        assert_eq!(tx.send(rx.local_addr(), &[packet; 3]).unwrap(), 3);
        let got = receive(&mut rx, &memory, vec![None; 3], 3);
        if got.iter().all(|got| got.stamp_ns > 0) {
            assert!(got.iter().all(|got| (before..=now()).contains(&got.stamp_ns)), "{got:?}");
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no packet was stamped");
}

#[test]
fn single_packets_that_are_taken_unseen_lose_nothing_when_the_forecast_is_wrong() {
    let memory = Memory::new();
    for (ip, sealed) in [("::1", true), ("::1", false), ("127.0.0.1", true)] {
        let (mut tx, mut rx) = udp_pair(&memory, ip, sealed);
        let to = rx.local_addr();
        let good = if sealed { Icrc::Good } else { Icrc::Absent };
        let seal = if sealed { Seal::Compute } else { Seal::None };
        let head = header(9);
        let mut send = |len: u32| {
            let (gather, bytes) = memory.payload(u64::from(len % 64), len);
            assert_eq!(tx.send(to, &[Send { header: &head, gather, seal }]).unwrap(), 1);
            bytes
        };
        // So many single packets that the backend takes them for the custom here.
        for _ in 0..64 {
            send(100);
        }
        receive(&mut rx, &memory, vec![None; 64], 64);

        // Places as long as what will come, and as what will not.
        for id in 0..8 {
            assert_eq!(rx.post(&[Recv { id, sge: [memory.place(id.into(), 1000), Sge::EMPTY] }]), 1);
        }
        let lens = [1000, 1000, 999, 1003, 1000, 4096, 0, 1000];
        let sent: Vec<_> = lens.into_iter().map(&mut send).collect();
        let forecast = |id| Pick { id: Some(id), header_len: Some(HEADER as u16) };
        let mut expected: Vec<_> = (0..6).map(forecast).collect();
        expected.push(Pick { id: None, header_len: Some(HEADER as u16) });
        expected.push(forecast(7));
        let mut steer = Noting { memory: &memory, ids: Vec::new(), foretold: Vec::new(), expected, got: Vec::new() };
        while steer.got.len() < 8 {
            rx.poll(&mut steer, 4).unwrap();
        }
        // What lies in places is told at once and first: from then on the steer may move payloads into them.
        let (in_place, others): (Vec<_>, Vec<_>) = (0..8).partition(|index: &usize| lens[*index] == 1000);
        let order: Vec<_> = in_place.iter().chain([&6]).chain(others.iter().filter(|index| **index != 6)).collect();
        let mut first: Vec<_> = steer.got.iter().take_while(|got| got.told_before == 0).collect();
        assert_eq!(first.len(), 5, "{ip}: four in place, and the empty one, which needs none");
        first.sort_by_key(|got| got.bytes.is_empty());
        for (got, index) in first.into_iter().chain(&steer.got[5..]).zip(order) {
            let what = (got.bytes == sent[*index], got.icrc, got.fault);
            assert_eq!(what, (true, good, None), "{ip}, {sealed}: packet {index}");
            let slot = got.landed == Landed::Slot(*index as u32);
            assert_eq!(slot, sent[*index].len() == 1000, "packet {index}");
        }
        // A place that its packet did not come for is still posted.
        send(1000);
        assert_eq!(receive(&mut rx, &memory, vec![Some(2)], 1)[0].landed, Landed::Slot(2));
    }
}

#[test]
fn an_address_that_names_no_host_is_refused_with_the_remedy() {
    let memory = Memory::new();
    let config = UdpConfig {
        bind: "[::]:0".parse().unwrap(),
        sealed: true,
        capacity: 1,
        scratch: memory.scratch,
        receive_buffer: 1 << 16,
        remainders: true,
        stamps: false,
    };
    let error = UdpIo::open(&config, &memory.regions).err().unwrap().to_string();
    assert!(error.contains("[::1]"), "{error}");
}
