//! Tests of the probe with a recording transport and the receiver's side of the protocol.

use super::faults::FaultRates;
use super::link::framing_by_id;
use super::pace::Pace;
use super::*;
use crate::fake::{DESTINATION, FakeLink, Log, SOURCE, Sent};
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_wire::framing::{self, Framing, Kind, Position};
use shotline_wire::record::{self, Record};
use shotline_wire::setup::{
    Acknowledgement, Body, Configure, Message, Mode, Refusal, Reply, Report, Request, Sequence, Source, Start, Trigger,
    Verdict,
};
use shotline_wire::shot::{Geometry, Packing};
use shotline_wire::{crc, icrc};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Returns `true` if a packet's ICRC matches its IP packet.
fn icrc_is_right(sent: &Sent) -> bool {
    let udp_len = (sent.bytes.len() + 8) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((udp_len + 20).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(SOURCE.0);
    ip.extend(DESTINATION);
    ip.extend(SOURCE.1.to_be_bytes());
    ip.extend(sent.to.port().to_be_bytes());
    ip.extend(udp_len.to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(&sent.bytes);
    icrc::verify_ip_packet(&ip).unwrap()
}

/// A probe with a recording transport, and the receiver's side of its set-up.
struct Bench<Open> {
    probe: Probe<FakeLink, Open>,
    log: Log,
    sequence: u32,
    now: u64,
}

type Open = Box<dyn FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<FakeLink>, IoError>>;

fn bench(config: Config) -> Bench<Open> {
    bench_with_capacity(config, usize::MAX)
}

fn bench_with_capacity(config: Config, capacity: usize) -> Bench<Open> {
    let log = Log::default();
    let link_log = log.clone();
    let open: Open = Box::new(move |request, regions| {
        let io = FakeLink { link: request.link, regions: regions.clone(), capacity, log: link_log.clone() };
        Ok(LinkTransport::new(io, SocketAddr::from(SOURCE)))
    });
    Bench { probe: Probe::new(config, open).unwrap(), log, sequence: 0, now: 0 }
}

fn config() -> Config {
    Config { samples: Some(200), seed: Some(1), free_running: Pace::Max, distinct_shots: 3, ..Config::default() }
}

fn geometry(samples: u32) -> Geometry {
    Geometry::new(96, samples, 12, Packing::Packed12, 0).unwrap()
}

fn configure(link: u8, framing: Kind) -> Configure {
    Configure {
        link,
        framing: framing.id().unwrap(),
        geometry: geometry(200),
        destination: SocketAddr::from((DESTINATION, 4791)),
        dest_qp: 0x100 + u32::from(link),
        q_key: 0x1111_1111,
        stream: 40 + u32::from(link),
    }
}

impl Bench<Open> {
    fn message(&mut self, message: Message) -> Reply {
        let reply = self.probe.receive(&message.emit(), self.now).unwrap();
        let reply = Message::parse(&reply).unwrap();
        assert_eq!((reply.sequence, reply.token), (message.sequence, message.token));
        let Body::Reply(reply) = reply.body else { panic!("the probe sent a request: {reply:?}") };
        reply
    }

    fn ask(&mut self, token: u32, take_over: bool, request: Request) -> Reply {
        self.sequence += 1;
        self.message(Message::request(self.sequence, token, take_over, request))
    }

    fn configure(&mut self, token: u32, request: Configure) -> (Configure, Source) {
        match self.ask(token, false, Request::Configure(request)) {
            Reply::Configured(configure, source) => (configure, source),
            other => panic!("{other:?}"),
        }
    }

    fn start(&mut self, token: u32, mode: Mode, shots: u64) -> u64 {
        match self.ask(token, false, Request::Start(Start { mode, shots })) {
            Reply::Started { first_shot } => first_shot,
            other => panic!("{other:?}"),
        }
    }

    fn stop(&mut self, token: u32) -> Report {
        match self.ask(token, false, Request::Stop { link: 0 }) {
            Reply::Stopped(report) => report,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, token: u32, request: Request) -> Refusal {
        match self.ask(token, false, request) {
            Reply::Refused { kind, refusal } if kind == request.kind() => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Runs the probe until it waits for a message; each shot takes 1 us.
    fn work(&mut self) {
        loop {
            match self.probe.next(self.now) {
                Step::Idle | Step::Trigger => return,
                Step::At(time) => self.now = time,
                Step::Fire => {
                    let stamp = Stamp { tai_ns: 1_000_000 + self.now, locked: true };
                    self.probe.fire(stamp, &mut || true).unwrap();
                    self.now += 1000;
                    self.probe.sent(self.now);
                }
            }
        }
    }

    fn take_sent(&self) -> Vec<Sent> {
        self.log.sent.take()
    }
}

/// Assembles packets by link and shot, as a receiver does.
fn assemble(
    sent: &[Sent],
    framing: &dyn Framing,
    sources: &[(Configure, Source)],
) -> BTreeMap<(u8, u64), BTreeMap<u32, Vec<u8>>> {
    let mut shots: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for packet in sent {
        let trailer = if framing.has_icrc() { 4 } else { 0 };
        let (header, payload) = packet.bytes[..packet.bytes.len() - trailer].split_at(packet.header_len);
        let (configure, source) = &sources[usize::from(packet.link)];
        let destination = framing.place(header, payload.len() as u32, &configure.geometry).unwrap();
        let (shot, offset) = match destination.position {
            Position::Shot { number, offset, .. } => (number, offset),
            Position::Sequence { number, .. } => {
                let count = number.wrapping_sub(source.first_psn) & 0xff_ffff;
                let packets = configure.geometry.packets();
                (u64::from(count / packets), count % packets * 4096)
            }
            Position::Paged { .. } => unreachable!("no probe has pages"),
        };
        let packets = shots.entry((packet.link, shot)).or_default();
        assert!(packets.insert(offset, payload[..destination.len as usize].to_vec()).is_none(), "sent twice");
    }
    shots
}

#[test]
fn every_framing_carries_complete_shots_with_checksums() {
    for kind in Kind::with_set_up() {
        let framing = kind.id().and_then(framing_by_id).unwrap();
        let mut bench = bench(config());
        let sources = [0, 1].map(|link| bench.configure(7, configure(link, kind)));
        assert_eq!(bench.start(7, Mode::FreeRunning, 5), 0);
        bench.work();
        let sent = bench.take_sent();
        assert!(!framing.has_icrc() || sent.iter().all(icrc_is_right));
        let shots = assemble(&sent, &*framing, &sources);
        assert_eq!(shots.len(), 10);
        for ((link, shot), packets) in shots {
            let bytes: Vec<u8> = packets.into_values().flatten().collect();
            assert!(record::is_whole(crc::register(u32::MAX, &bytes)), "{kind} {link} {shot}");
            let geometry = geometry(200);
            let mut expected = vec![0; geometry.sample_bytes() as usize];
            shotline_compute::prbs::write_shot(40 + u32::from(link), shot % 3, &geometry, &mut expected);
            assert_eq!(bytes[..expected.len()], expected);
            let record = Record::parse(bytes.last_chunk().unwrap()).unwrap();
            assert_eq!((record.shot, record.stream, record.event as u64), (shot, 40 + u32::from(link), shot % 3));
            assert_eq!((record.sample_rate_hz, record.triggered, record.clock_locked), (40_000_000, false, true));
            assert_eq!(record.tai_ns, 1_000_000 + shot * 1000);
        }
        assert_eq!(bench.probe.next(bench.now), Step::Idle);
    }
}

#[test]
fn a_path_of_small_capacity_receives_all_packets_in_order() {
    let run = |capacity| {
        let mut bench = bench_with_capacity(config(), capacity);
        bench.configure(7, configure(0, Kind::Ud));
        bench.start(7, Mode::FreeRunning, 3);
        bench.work();
        let counts = bench.probe.counters().links[0].counters;
        assert_eq!((counts.packets, counts.discarded, counts.shots), (3 * 8, 0, 3));
        (bench.take_sent().into_iter().map(|sent| sent.bytes).collect::<Vec<_>>(), counts.tx_full)
    };
    let (in_one_call, never_full) = run(usize::MAX);
    let (pieces, full) = run(3);
    assert_eq!((in_one_call == pieces, never_full, full), (true, 0, 6));
}

#[test]
fn packets_discarded_by_a_stopped_probe_are_counted() {
    let mut bench = bench_with_capacity(config(), 5);
    bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::FreeRunning, 1);
    assert_eq!(bench.probe.next(0), Step::Fire);
    bench.probe.fire(Stamp::default(), &mut || false).unwrap();
    let counts = bench.probe.counters().links[0].counters;
    assert_eq!((counts.packets, counts.discarded), (5, 3));
}

#[test]
fn the_report_and_the_fault_log_match_the_sent_packets() {
    let faults = FaultRates { loss: 0.03, duplicate: 0.03, reorder: 0.05, corrupt: 0.03, reorder_depth: 30 };
    for seed in shotline_testing::seeds(0..10) {
        let config = Config { faults, list_faults: true, seed: Some(seed), ..config() };
        let mut bench = bench(config);
        let sources = [0, 1].map(|link| bench.configure(7, configure(link, Kind::Ud)));
        bench.start(7, Mode::FreeRunning, 100);
        bench.work();
        let sent = bench.take_sent();
        let state = bench.probe.state();
        let stats = bench.probe.counters();
        assert_eq!(
            (state.counters.links, state.counters.faults.len(), state.is_running),
            (stats.links.clone(), 0, false)
        );
        assert_eq!(state.destinations, [0, 1].map(|link| Some(configure(link, Kind::Ud).destination)));
        for link in 0..2 {
            let Reply::Status(report) = bench.ask(7, false, Request::Status { link }) else { panic!() };
            let mine: Vec<_> = sent.iter().filter(|sent| sent.link == link).collect();
            let good: Vec<_> = mine.iter().filter(|sent| icrc_is_right(sent)).collect();
            assert_eq!(report.packets_sent, mine.len() as u64);
            assert_eq!(report.corrupted as usize, mine.len() - good.len());
            assert_eq!(u64::from(report.lost), 800 + u64::from(report.duplicated) - report.packets_sent);
            let counts = stats.links[usize::from(link)].faults;
            let listed = stats.faults.iter().filter(|fault| fault.link == link).count() as u64;
            assert_eq!(counts.lost + counts.duplicated + counts.reordered + counts.corrupted, listed);
            // Valid packets are placed correctly even after a corrupted copy of the same packet.
            for sent in good {
                let one = [Sent { bytes: sent.bytes.clone(), ..**sent }];
                assemble(&one, &framing::Ud, &sources);
            }
        }
    }
}

#[test]
fn numbers_continue_across_stop_start_and_take_over() {
    let mut bench = bench(config());
    let (_, before) = bench.configure(7, configure(0, Kind::Ud));
    assert_eq!(bench.start(7, Mode::FreeRunning, 0), 0);
    for _ in 0..4 {
        assert_eq!(bench.probe.next(bench.now), Step::Fire);
        bench.probe.fire(Stamp::default(), &mut || true).unwrap();
        bench.probe.sent(bench.now);
    }
    bench.take_sent();

    // Another receiver is refused, then takes over under traffic: the run ends after a complete shot.
    assert_eq!(bench.refused(8, Request::Configure(configure(1, Kind::Ud))), Refusal::Owned);
    bench.now += 41_000_000_000;
    assert_eq!(bench.refused(8, Request::Stop { link: 0 }), Refusal::Owned);
    let owner_silence = |bench: &mut Bench<Open>, token| match bench.ask(token, false, Request::Status { link: 0 }) {
        Reply::Status(report) => report.owner_silent_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!(owner_silence(&mut bench, 8), 41_000, "any receiver may query the owner's silence");
    assert_eq!((owner_silence(&mut bench, 7), owner_silence(&mut bench, 8)), (1, 1), "a query by the owner resets it");
    let elsewhere = Configure { destination: SocketAddr::from((DESTINATION, 5000)), ..configure(0, Kind::Ud) };
    let Reply::Configured(_, after) = bench.ask(8, true, Request::Configure(elsewhere)) else { panic!() };
    assert_eq!((after.qp, after.first_psn), (before.qp, (before.first_psn + 4 * 8) & 0xff_ffff));
    assert_eq!(bench.probe.next(bench.now), Step::Idle);
    assert_eq!(bench.refused(7, Request::Start(Start { mode: Mode::FreeRunning, shots: 0 })), Refusal::Owned);
    assert_eq!(bench.start(8, Mode::FreeRunning, 1), 4);
    bench.work();
    assert!(bench.take_sent().iter().all(|sent| sent.to.port() == 5000));
    let report = bench.stop(8);
    assert_eq!((report.next_shot, report.shots_sent, report.packets_sent, report.running), (5, 1, 8, false));
}

#[test]
fn shot_and_sequence_numbers_wrap_as_on_the_wire() {
    for first_shot in [(1_u64 << 20) - 1, u64::from(u32::MAX)] {
        let mut bench = bench(Config { first_shot, ..config() });
        let (_, source) = bench.configure(7, configure(0, Kind::Ud));
        assert_eq!(bench.start(7, Mode::FreeRunning, 2), first_shot);
        bench.work();
        let sent = bench.take_sent();
        let immediates: Vec<_> =
            sent.iter().map(|sent| u32::from_be_bytes(sent.bytes[20..24].try_into().unwrap())).collect();
        assert_eq!((immediates[0], immediates[8]), (0xffff_f000, 0));
        let psn = |sent: &Sent| u32::from_be_bytes([0, sent.bytes[9], sent.bytes[10], sent.bytes[11]]);
        assert!((0..).zip(&sent).all(|(i, sent)| psn(sent) == (source.first_psn + i) & 0xff_ffff));
        let record = Record::parse(sent[15].bytes[..sent[15].bytes.len() - 4].last_chunk().unwrap()).unwrap();
        assert_eq!(record.shot, first_shot + 1);
    }
}

#[test]
fn invalid_requests_are_refused_and_change_nothing() {
    let mut bench = bench(config());
    let start = |mode| Request::Start(Start { mode, shots: 1 });
    assert_eq!(bench.refused(7, start(Mode::FreeRunning)), Refusal::NotConfigured);
    let good = configure(0, Kind::Ud);
    for (request, refusal) in [
        (Configure { link: 2, ..good }, Refusal::Link),
        (Configure { framing: 7, ..good }, Refusal::Framing),
        (Configure { geometry: geometry(201), ..good }, Refusal::Geometry),
        (Configure { geometry: Geometry::new(95, 200, 12, Packing::Packed12, 0).unwrap(), ..good }, Refusal::Geometry),
        (Configure { geometry: Geometry::new(96, 200, 12, Packing::Int16Le, 0).unwrap(), ..good }, Refusal::Geometry),
        (Configure { geometry: Geometry::new(96, 200, 12, Packing::Packed12, 1).unwrap(), ..good }, Refusal::Geometry),
        (Configure { destination: SocketAddr::from((DESTINATION, 0)), ..good }, Refusal::Destination),
        (Configure { destination: SocketAddr::from(([0; 4], 4791)), ..good }, Refusal::Destination),
        (Configure { destination: SocketAddr::from(([224, 0, 0, 1], 4791)), ..good }, Refusal::Destination),
    ] {
        assert_eq!(bench.refused(7, Request::Configure(request)), refusal, "{request:?}");
        assert_eq!(bench.refused(7, start(Mode::FreeRunning)), Refusal::NotConfigured);
    }
    assert_eq!(bench.refused(7, Request::Status { link: 2 }), Refusal::Link);
    bench.configure(7, good);
    bench.start(7, Mode::FreeRunning, 0);
    assert_eq!(bench.refused(7, Request::Configure(good)), Refusal::Running);
    assert_eq!(bench.refused(7, start(Mode::FreeRunning)), Refusal::Running);
    assert_eq!(bench.probe.counters().requests_refused, 22);
    assert!(bench.probe.receive(&[0; 128], 0).is_none());
}

#[test]
fn a_repeated_request_gets_the_same_reply() {
    let mut bench = bench(config());
    bench.configure(7, configure(0, Kind::Ud));
    let start = Message::request(100, 7, false, Request::Start(Start { mode: Mode::FreeRunning, shots: 2 }));
    assert_eq!(bench.message(start), Reply::Started { first_shot: 0 });
    bench.ask(9, false, Request::Query); // a query by another receiver in between
    assert_eq!(bench.message(start), Reply::Started { first_shot: 0 });
    bench.work();
    assert_eq!(bench.message(start), Reply::Started { first_shot: 0 });
    assert_eq!(bench.probe.next(bench.now), Step::Idle);
    assert_eq!(bench.take_sent().len(), 2 * 8);
}

#[test]
fn the_receiver_may_request_shorter_shots_and_a_stream() {
    let mut bench = bench(config());
    let Reply::Describe(describe) = bench.ask(1, false, Request::Query) else { panic!() };
    assert_eq!((describe.links, describe.channels, describe.bits, describe.max_samples), (2, 96, 12, 200));
    assert_eq!((describe.sample_rate_hz, describe.framings, describe.pattern_period), (40_000_000, 0b111, 3));
    for samples in [100, 200, 2] {
        let request = Configure { geometry: geometry(samples), stream: samples, ..configure(0, Kind::Ud) };
        let source = bench.configure(1, request);
        assert_eq!(source.0.geometry.sample_rate_hz(), 40_000_000);
        let first_shot = bench.start(1, Mode::FreeRunning, 1);
        bench.work();
        let shots = assemble(&bench.take_sent(), &framing::Ud, &[source]);
        let bytes: Vec<u8> = shots.into_values().flat_map(BTreeMap::into_values).flatten().collect();
        let mut expected = vec![0; geometry(samples).sample_bytes() as usize];
        shotline_compute::prbs::write_shot(samples, first_shot % 3, &geometry(samples), &mut expected);
        assert_eq!(bytes[..expected.len()], expected);
        assert!(record::is_whole(crc::register(u32::MAX, &bytes)));
    }
}

#[test]
fn lost_and_repeated_trigger_commands_are_distinguished() {
    let mut bench = bench(config());
    let (source, _) = bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::ExternalTrigger, 0);
    assert_eq!(bench.probe.next(bench.now), Step::Trigger);
    for sequence in [5, 6, 6, 5, 9] {
        bench.now += 100_000;
        assert!(bench.probe.receive(&Trigger::new(sequence).emit(), bench.now).is_none());
        bench.work();
    }
    // The second of two arrives while the first one's shot is sampled: missed.
    for sequence in [10, 11] {
        assert!(bench.probe.receive(&Trigger::new(sequence).emit(), bench.now).is_none());
    }
    let triggered_at = bench.now;
    bench.work();
    let report = bench.stop(7);
    assert_eq!((report.shots_sent, report.triggers_missed), (4, 2 + 1));
    let sent = bench.take_sent();
    assert_eq!(source.geometry.packets() as usize * 4, sent.len());
    let last = sent.last().unwrap();
    let record = Record::parse(last.bytes[..last.bytes.len() - 4].last_chunk().unwrap()).unwrap();
    // The shot is sent after sampling, with the timestamp of its first sample.
    assert_eq!((record.triggered, record.tai_ns), (true, 1_000_000 + triggered_at));
}

#[test]
fn a_trigger_input_just_too_fast_halves_the_shot_rate() {
    let mut bench = bench(Config { samples: Some(2000), trigger_hz: Some(20_000.0), ..config() });
    bench.configure(7, Configure { geometry: geometry(2000), ..configure(0, Kind::Ud) });
    bench.start(7, Mode::ExternalTrigger, 50);
    bench.work();
    let Reply::Status(report) = bench.ask(7, false, Request::Status { link: 0 }) else { panic!() };
    assert_eq!((report.shots_sent, report.triggers_missed, report.running), (50, 49, false));
    assert_eq!(bench.now, 49 * 100_000 + 1000);
}

#[test]
fn a_fixed_rate_is_kept() {
    let mut bench = bench(config());
    bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::FixedRate { millihertz: 2_500_000 }, 10);
    bench.work();
    assert_eq!(bench.now, 9 * 400_000 + 1000);
}

/// Sends a trigger that requests an acknowledgement and returns the verdict.
fn verdict(bench: &mut Bench<Open>, trigger: Trigger) -> Verdict {
    let trigger = Trigger { acknowledge: true, ..trigger };
    let sent = trigger.emit();
    let acknowledgement = bench.probe.receive(&sent, bench.now).unwrap();
    assert_eq!(acknowledgement.len(), sent.len(), "no amplification");
    let acknowledgement = Acknowledgement::parse(&acknowledgement).unwrap();
    assert_eq!(acknowledgement.trigger, trigger);
    acknowledgement.verdict
}

#[test]
fn a_trigger_is_acknowledged_before_its_shot() {
    let mut bench = bench(Config { first_shot: 40, ..config() });
    bench.configure(7, configure(0, Kind::Ud));
    assert_eq!(verdict(&mut bench, Trigger::new(5)), Verdict::NotRunning);
    bench.start(7, Mode::FreeRunning, 1);
    assert_eq!(verdict(&mut bench, Trigger::new(5)), Verdict::NotRunning, "this run takes no commands");
    bench.work();
    bench.start(7, Mode::ExternalTrigger, 2);
    assert_eq!(verdict(&mut bench, Trigger::new(5)), Verdict::Accepted { shot: 41 });
    assert_eq!(verdict(&mut bench, Trigger::new(5)), Verdict::Repeated);
    assert_eq!(verdict(&mut bench, Trigger::new(6)), Verdict::Busy);
    bench.take_sent();
    bench.work();
    assert_eq!(bench.take_sent().len(), 8, "one shot, after its acknowledgement");
    assert_eq!(verdict(&mut bench, Trigger::new(7)), Verdict::Accepted { shot: 42 });
    bench.work();
    assert_eq!(verdict(&mut bench, Trigger::new(8)), Verdict::NotRunning, "two shots were requested");
}

#[test]
fn a_trigger_of_another_receiver_must_take_over() {
    let mut bench = bench(config());
    let of = |token, sequence| Trigger { token, ..Trigger::new(sequence) };
    assert_eq!(verdict(&mut bench, of(9, 1)), Verdict::NotRunning, "an idle probe has no owner");
    bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::ExternalTrigger, 0);
    assert_eq!(verdict(&mut bench, of(9, 2)), Verdict::Owned);
    assert_eq!(bench.probe.receive(&of(9, 3).emit(), bench.now), None);
    bench.work();
    assert!(bench.take_sent().is_empty(), "no shot is sent and no number is used");
    for (shot, trigger) in [of(7, 2), of(0, 3), Trigger { take_over: true, ..of(9, 4) }].into_iter().enumerate() {
        assert_eq!(verdict(&mut bench, trigger), Verdict::Accepted { shot: shot as u64 });
        bench.work();
    }
    assert_eq!((bench.stop(7).triggers_missed, bench.probe.counters().requests_refused), (0, 2));
}

#[test]
fn a_command_only_trigger_starts_no_shot() {
    let mut bench = bench(config());
    bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::ExternalTrigger, 0);
    let command = |sequence| Trigger { command_only: true, ..Trigger::new(sequence) };
    for _ in 0..3 {
        assert_eq!(verdict(&mut bench, command(9)), Verdict::Accepted { shot: 0 });
        assert_eq!(bench.probe.next(bench.now), Step::Trigger);
    }
    assert_eq!(bench.probe.receive(&command(9).emit(), bench.now), None);
    assert_eq!(verdict(&mut bench, Trigger::new(9)), Verdict::Accepted { shot: 0 });
    assert_eq!(verdict(&mut bench, command(9)), Verdict::Repeated);
    // Busy while the shot is sampled and sent; a command-only trigger does not count as missed.
    assert_eq!(verdict(&mut bench, command(10)), Verdict::Busy);
    bench.now += 1_000_000;
    assert_eq!(verdict(&mut bench, command(10)), Verdict::Busy);
    bench.work();
    assert_eq!(verdict(&mut bench, command(20)), Verdict::Accepted { shot: 1 });
    let report = bench.stop(7);
    assert_eq!((report.shots_sent, report.triggers_missed), (1, 0));
}

#[test]
fn an_acknowledgement_is_not_acknowledged() {
    let mut bench = bench(config());
    bench.configure(7, configure(0, Kind::Ud));
    bench.start(7, Mode::ExternalTrigger, 0);
    let trigger = Trigger { acknowledge: true, ..Trigger::new(1) };
    let acknowledgement = Acknowledgement { trigger, verdict: Verdict::Busy };
    assert_eq!(bench.probe.receive(&acknowledgement.emit(), 0), None, "two probes would answer each other forever");
    assert_eq!(bench.probe.next(0), Step::Trigger);
}

/// Returns the transmit events in the records sent on link 0, where every eighth packet has a record.
fn events(bench: &Bench<Open>) -> Vec<u32> {
    let records = bench.take_sent().into_iter().filter(|sent| sent.link == 0).skip(7).step_by(8);
    records.map(|sent| Record::parse(sent.bytes[..sent.bytes.len() - 4].last_chunk().unwrap()).unwrap().event).collect()
}

#[test]
fn a_transmit_sequence_restarts_with_each_run() {
    let mut bench = bench(Config { first_shot: 100, ..config() });
    let set = |events: &[u16]| Request::Sequence(Sequence::new(events).unwrap());
    bench.configure(7, configure(0, Kind::Ud));
    bench.configure(7, configure(1, Kind::Ud));
    let Reply::Sequenced(now) = bench.ask(7, false, set(&[3, 0, 65535])) else { panic!() };
    assert_eq!(now.events(), [3, 0, 65535]);
    for _ in 0..2 {
        bench.start(7, Mode::FreeRunning, 5);
        assert_eq!(bench.refused(7, set(&[1])), Refusal::Running);
        bench.work();
        assert_eq!(events(&bench), [3, 0, 65535, 3, 0]);
    }
    bench.ask(7, false, set(&[]));
    bench.start(7, Mode::FreeRunning, 2);
    bench.work();
    assert_eq!(events(&bench), [110 % 3, 111 % 3], "indices of the distinct shots");
}

#[test]
fn a_transmit_sequence_belongs_to_its_owner() {
    let mut bench = bench(config());
    let set = |events: &[u16]| Request::Sequence(Sequence::new(events).unwrap());
    bench.configure(7, configure(0, Kind::Ud));
    bench.ask(7, false, set(&[9]));
    assert_eq!(bench.refused(8, set(&[1])), Refusal::Owned);
    bench.configure(8, configure(0, Kind::Ud));
    bench.start(8, Mode::FreeRunning, 2);
    bench.work();
    assert_eq!(events(&bench), [0, 1]);
}
