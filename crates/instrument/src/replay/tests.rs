//! Tests of a replay from memory, with the receiver's side of the protocol.

use super::*;
use crate::fake::{FakeLink, Log, SOURCE};
use crate::probe::pace::Pace;
use crate::probe::{Config, LinkRequest, LinkTransport, Probe, ReadError, Stamp, Step};
use shotline_memory::{Regions, Registrar};
use shotline_transport::IoError;
use shotline_wire::crc;
use shotline_wire::framing::{self, Framing, Kind, Position};
use shotline_wire::record::{self, Record};
use shotline_wire::setup::{Body, Configure, Message, Mode, Refusal, Reply, Report, Request, Sequence, Start};
use shotline_wire::shot::{Geometry, Packing};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

const PACKETS: u32 = 3;

fn geometry() -> Geometry {
    Geometry::new(10, 450, 16, Packing::Int16Le, 1_000_000).unwrap()
}

/// Shot number of a row and, per link, the packets present; `None` if the shot is lost.
type Row = (u64, Vec<Option<[bool; PACKETS as usize]>>);

/// A recording in memory. The bytes of each shot are unique to its number and stream.
#[derive(Clone)]
struct Memory {
    links: Vec<RecordedLink>,
    rows: Vec<Row>,
    numbers: Range<u64>,
    /// This row cannot be read.
    broken: Option<u64>,
}

fn bytes(stream: u32, number: u64) -> Vec<u8> {
    let geometry = geometry();
    let mut bytes: Vec<u8> = (0..geometry.trailer_offset()).map(|at| (at as u64 * 3 + number * 5) as u8).collect();
    bytes[0] = stream as u8;
    let record = Record { shot: number, stream, tai_ns: recorded_ns(number), triggered: true, ..Record::of(&geometry) };
    bytes.extend(record.finish(crc::register(u32::MAX, &bytes)));
    bytes
}

fn recorded_ns(number: u64) -> u64 {
    1_000_000_000 + number * 1000 + if number >= 15 { 50_000 } else { 0 }
}

impl RecordingReader for Memory {
    fn links(&self) -> &[RecordedLink] {
        &self.links
    }
    fn rows(&self) -> Range<u64> {
        0..self.rows.len() as u64
    }
    fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }
    fn pattern_period(&self) -> u32 {
        7
    }
    fn row(&mut self, row: u64) -> Result<(u64, u64), ReadError> {
        let number = self.rows[row as usize].0;
        if self.broken == Some(row) {
            return Err(ReadError("the disk is gone".into()));
        }
        Ok((number, recorded_ns(number)))
    }
    fn shot(&mut self, row: u64, link: usize, take: &mut dyn FnMut(&ShotMetadata<'_>, &[u8])) -> Result<(), ReadError> {
        let (number, shots) = &self.rows[row as usize];
        if let Some(packets) = shots[link] {
            let presence = (0..PACKETS).fold(0, |bits, packet| bits | u8::from(packets[packet as usize]) << packet);
            let mut slot = bytes(self.links[link].stream, *number);
            slot.resize(geometry().slot_bytes() as usize, 0);
            let verified = packets == [true; PACKETS as usize];
            take(
                &ShotMetadata { presence: &[presence], verified, stamp_tai_ns: recorded_ns(*number), flags: 2 },
                &slot,
            );
        }
        Ok(())
    }
}

const COMPLETE: Option<[bool; 3]> = Some([true; 3]);

/// Numbers 10 to 19. 12 has no row, 14 has no shot of link 1, 16 lacks packet 1 of link 0, 19 lacks its last packet.
fn recording() -> Memory {
    let row = |number| {
        let first = match number {
            16 => Some([true, false, true]),
            19 => Some([true, true, false]),
            _ => COMPLETE,
        };
        (number, vec![first, if number == 14 { None } else { COMPLETE }])
    };
    let links = [0, 1].map(|stream| RecordedLink { stream, geometry: geometry() }).to_vec();
    let rows = (10..20).filter(|number| *number != 12).map(row).collect();
    Memory { links, rows, numbers: 10..21, broken: None }
}

type Open = Box<dyn FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<FakeLink>, IoError>>;

struct Bench {
    probe: Probe<FakeLink, Open, RecordedShots<Memory>>,
    log: Log,
    sequence: u32,
}

fn bench(recording: Memory, pace: Pace, stamps: StampSource, passes: Option<u64>) -> Bench {
    let log = Log::default();
    let link_log = log.clone();
    let open: Open = Box::new(move |request, regions| {
        let io = FakeLink { link: request.link, regions: regions.clone(), capacity: usize::MAX, log: link_log.clone() };
        Ok(LinkTransport::new(io, SocketAddr::from(SOURCE)))
    });
    let mut registrar = Registrar::new();
    let converters = recording.links.iter().map(|link| ShotConverter::new(link.geometry, Kind::Ud).unwrap()).collect();
    let shots = RecordedShots::new(recording, "run.h5", converters, stamps, passes, &mut registrar).unwrap();
    let config = Config { links: 2, free_running: pace, seed: Some(1), ..Config::default() };
    let probe = Probe::with(shots, registrar.finish(), config, open).unwrap();
    Bench { probe, log, sequence: 0 }
}

fn configure(link: u8, framing: Kind, stream: u32) -> Configure {
    Configure {
        link,
        framing: framing.id().unwrap(),
        geometry: geometry(),
        destination: SocketAddr::from(([127, 0, 0, 1], 4791)),
        dest_qp: 0x100,
        q_key: 0x1111_1111,
        stream,
    }
}

impl Bench {
    fn ask(&mut self, token: u32, request: Request) -> Reply {
        self.sequence += 1;
        let message = Message::request(self.sequence, token, false, request);
        let reply = self.probe.receive(&message.emit(), self.log.now.get()).unwrap();
        match Message::parse(&reply).unwrap().body {
            Body::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Configures both links and starts; returns the first sequence numbers and the first shot number.
    fn start(&mut self, token: u32, framing: Kind, streams: [u32; 2], start: Start) -> ([u32; 2], u64) {
        let first_psn = [0, 1].map(|link| {
            match self.ask(token, Request::Configure(configure(link, framing, streams[usize::from(link)]))) {
                Reply::Configured(_, source) => source.first_psn,
                other => panic!("{other:?}"),
            }
        });
        match self.ask(token, Request::Start(start)) {
            Reply::Started { first_shot } => (first_psn, first_shot),
            other => panic!("{other:?}"),
        }
    }

    /// Runs the replay until it is idle. Time does not advance while the recording is read.
    fn work(&mut self) {
        loop {
            let now = self.log.now.get();
            match self.probe.next(now) {
                Step::Idle | Step::Trigger => return,
                Step::At(time) if time == now + 200_000 => std::thread::yield_now(),
                Step::At(time) => self.log.now.set(time),
                Step::Fire => {
                    self.probe.fire(Stamp { tai_ns: 9_000_000 + now, locked: true }, &mut || true).unwrap();
                    self.probe.sent(now);
                }
            }
        }
    }

    fn report(&mut self, link: u8) -> Report {
        match self.ask(1, Request::Status { link }) {
            Reply::Status(report) => report,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the sent packets by link and shot, as index and payload.
    fn shots(&mut self, framing: &dyn Framing, (psn, first): ([u32; 2], u64)) -> BTreeMap<(u8, u64), Packets> {
        let mut shots = BTreeMap::<_, Packets>::new();
        for sent in self.log.sent.borrow_mut().drain(..) {
            assert!(sent.remainder_is_correct);
            let trailer = if framing.has_icrc() { 4 } else { 0 };
            let (header, payload) = sent.bytes[..sent.bytes.len() - trailer].split_at(sent.header_len);
            let (number, offset) = match framing.place(header, payload.len() as u32, &geometry()).unwrap().position {
                Position::Shot { number, offset, .. } => (number, offset),
                Position::Sequence { number, .. } => {
                    let count = number.wrapping_sub(psn[usize::from(sent.link)]) & 0xff_ffff;
                    (first + u64::from(count / PACKETS), geometry().packet_offset(count % PACKETS))
                }
                Position::Paged { .. } => unreachable!("no probe has pages"),
            };
            let index = geometry().packet_at(offset).unwrap();
            assert!(shots.entry((sent.link, number)).or_default().insert(index, payload.to_vec()).is_none());
        }
        shots
    }
}

type Packets = BTreeMap<u32, Vec<u8>>;

const ALL: Start = Start { mode: Mode::FreeRunning, shots: 0 };

#[test]
fn every_framing_carries_exactly_the_recorded_packets() {
    let framings: [(Kind, &dyn Framing); 3] =
        [(Kind::Ud, &framing::Ud), (Kind::Counted, &framing::Counted), (Kind::Udp, &framing::Udp)];
    assert!(Kind::with_set_up().eq(framings.map(|(kind, _)| kind)));
    for (kind, framing) in framings {
        let mut bench = bench(recording(), Pace::Max, StampSource::Original, Some(1));
        let begun = bench.start(1, kind, [0, 1], ALL);
        assert_eq!(begun.1, 10);
        bench.work();
        let shots = bench.shots(framing, begun);
        for (link, number) in [0, 1].into_iter().flat_map(|link| (10..21).map(move |number| (link, number))) {
            let row = recording().rows.into_iter().find(|(other, _)| *other == number);
            let present = row.and_then(|(_, shots)| shots[usize::from(link)]).unwrap_or_default();
            let expected: Packets = (0..PACKETS)
                .filter(|packet| present[*packet as usize])
                .map(|packet| {
                    let at = geometry().packet_offset(packet) as usize;
                    (packet, bytes(link.into(), number)[at..at + geometry().packet_bytes(packet) as usize].to_vec())
                })
                .collect();
            assert_eq!(shots.get(&(link, number)).cloned().unwrap_or_default(), expected, "{kind} {number}");
        }
        // 12 and 20 have no row but still count: a receiver sees them as lost shots.
        let [first, second] = [0, 1].map(|link| bench.report(link));
        assert_eq!((first.shots_sent, first.next_shot, first.running), (11, 21, false));
        assert_eq!((first.lost, first.packets_sent), (3 + 3 + 2, 11 * 3 - 8));
        assert_eq!((second.lost, second.packets_sent), (3 + 3 + 3, 11 * 3 - 9));
        assert!(bench.probe.has_ended());
    }
}

#[test]
fn shots_keep_their_spacing_across_passes() {
    let mut bench = bench(recording(), Pace::Recorded(2.0), StampSource::Original, Some(2));
    bench.log.now.set(77);
    let begun = bench.start(1, Kind::Udp, [0, 1], ALL);
    bench.work();
    let mut times = BTreeMap::new();
    for sent in bench.log.sent.borrow().iter().filter(|sent| sent.link == 1) {
        let number = u64::from_be_bytes(sent.bytes[12..20].try_into().unwrap());
        times.insert(number, sent.sent_ns);
    }
    // The gap between passes is the average gap: 59 us / 8.
    let pass_ns = 59_000 + 59_000 / 8;
    for (number, at) in times {
        let (pass, number) = ((number - 10) / 11, 10 + (number - 10) % 11);
        assert_eq!(at, 77 + (recorded_ns(number) - recorded_ns(10) + pass * pass_ns).div_ceil(2), "{pass} {number}");
    }
    let shots = bench.shots(&framing::Udp, begun);
    for ((link, number), packets) in shots.iter().filter(|(_, packets)| packets.len() == 3) {
        let bytes: Vec<u8> = packets.values().flatten().copied().collect();
        assert!(record::is_whole(crc::register(u32::MAX, &bytes)), "{link} {number}");
        assert_eq!(Record::parse(bytes.last_chunk().unwrap()).unwrap().shot, *number);
    }
    assert_eq!((shots.keys().next().unwrap().1, shots.keys().last().unwrap().1), (10, 30));
}

#[test]
fn changed_streams_and_times_are_in_valid_records() {
    let mut bench = bench(recording(), Pace::Max, StampSource::Now, Some(1));
    let begun = bench.start(1, Kind::Ud, [40, 41], ALL);
    bench.work();
    let shots = bench.shots(&framing::Ud, begun);
    for ((link, number), packets) in shots.into_iter().filter(|(_, packets)| packets.len() == 3) {
        let bytes: Vec<u8> = packets.into_values().flatten().collect();
        assert!(record::is_whole(crc::register(u32::MAX, &bytes)));
        let record = Record::parse(bytes.last_chunk().unwrap()).unwrap();
        assert_eq!((record.stream, record.shot), (40 + u32::from(link), number));
        assert_eq!((record.tai_ns, record.clock_locked, record.triggered), (9_000_000, true, true));
    }
}

#[test]
fn a_new_receiver_rewinds_and_the_same_one_continues() {
    let mut bench = bench(recording(), Pace::Max, StampSource::Original, Some(1));
    // Four numbers, one of which has no row.
    let begun = bench.start(1, Kind::Ud, [0, 1], Start { shots: 4, ..ALL });
    bench.work();
    assert_eq!(bench.shots(&framing::Ud, begun).keys().map(|(_, number)| *number).max(), Some(13));
    assert!(!bench.probe.has_ended());
    assert!(matches!(bench.ask(1, Request::Start(ALL)), Reply::Started { first_shot: 14 }));
    bench.work();
    let numbers: Vec<_> = bench.shots(&framing::Ud, begun).keys().map(|(_, number)| *number).collect();
    assert_eq!((numbers.iter().min(), numbers.iter().max()), (Some(&14), Some(&19)));
    let begun = bench.start(2, Kind::Counted, [0, 1], Start { shots: 3, ..ALL });
    bench.work();
    assert_eq!(begun.1, 10);
    let shots = bench.shots(&framing::Counted, begun);
    assert_eq!(shots.keys().map(|(_, number)| *number).max(), Some(11), "the third number has no row");
    assert_eq!(bench.report(0).next_shot, 13);
}

#[test]
fn geometry_and_events_of_a_recording_are_fixed() {
    let mut bench = bench(recording(), Pace::Max, StampSource::Original, Some(1));
    let fewer = Geometry::new(10, 449, 16, Packing::Int16Le, 0).unwrap();
    let refusal = |reply| match reply {
        Reply::Refused { refusal, .. } => refusal,
        other => panic!("{other:?}"),
    };
    let request = Request::Configure(Configure { geometry: fewer, ..configure(0, Kind::Ud, 0) });
    assert_eq!(refusal(bench.ask(1, request)), Refusal::Geometry);
    bench.start(1, Kind::Ud, [0, 1], Start { shots: 1, ..ALL });
    bench.work();
    assert_eq!(refusal(bench.ask(1, Request::Sequence(Sequence::new(&[1]).unwrap()))), Refusal::Kind);
    let Reply::Describe(describe) = bench.ask(3, Request::Query) else { panic!() };
    assert_eq!((describe.model.as_str(), describe.max_samples), ("replay of run.h5", 450));
    assert_eq!((describe.pattern_period, describe.sample_rate_hz), (7, 1_000_000));
}

#[test]
fn a_pattern_period_is_announced_only_if_it_holds() {
    let period = |passes, streams: [u32; 2]| {
        let mut recording = recording();
        recording.links.iter_mut().zip(streams).for_each(|(link, stream)| link.stream = stream);
        let mut bench = bench(recording, Pace::Max, StampSource::Original, passes);
        match bench.ask(1, Request::Query) {
            Reply::Describe(describe) => describe.pattern_period,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((period(Some(1), [0, 1]), period(Some(2), [0, 1]), period(Some(1), [1, 2])), (7, 0, 0));
}

#[test]
fn a_read_error_is_returned_by_its_shot() {
    let mut bench = bench(Memory { broken: Some(3), ..recording() }, Pace::Max, StampSource::Original, Some(1));
    bench.start(1, Kind::Ud, [0, 1], ALL);
    let error = loop {
        if bench.probe.next(0) == Step::Fire
            && let Err(error) = bench.probe.fire(Stamp::default(), &mut || true)
        {
            break error;
        }
        bench.probe.sent(0);
        std::thread::yield_now();
    };
    assert_eq!(error.to_string(), "the disk is gone");
    assert_eq!(bench.report(0).next_shot, 14);
    assert_eq!(bench.probe.next(0), Step::Idle);
}

#[test]
fn empty_recordings_and_differing_links_are_refused() {
    let refused = |recording: Memory, stamps| {
        let converters =
            recording.links.iter().map(|link| ShotConverter::new(link.geometry, Kind::Ud).unwrap()).collect();
        RecordedShots::new(recording, "", converters, stamps, Some(1), &mut Registrar::new()).unwrap_err().to_string()
    };
    assert!(refused(Memory { rows: Vec::new(), ..recording() }, StampSource::Original).contains("no shot to send"));
    let mut other = recording();
    other.links[1].geometry = Geometry::new(10, 401, 16, Packing::Int16Le, 0).unwrap();
    assert!(refused(other, StampSource::Original).contains("link 1"));
}
