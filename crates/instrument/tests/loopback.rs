//! Tests of the probe on real sockets, with a receiver that uses only the wire formats.

use shotline_instrument::probe::{Config, LinkTransport, ProbeCounters, Server, pace::Pace};
use shotline_memory::Sge;
use shotline_testing::WAIT_TIMEOUT;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_wire::framing::Kind;
use shotline_wire::record;
use shotline_wire::setup::{
    Acknowledgement, Body, Configure, LEN, Message, Mode, Reply, Report, Request, Start, Trigger, Verdict,
};
use shotline_wire::shot::{Geometry, Packing};
use shotline_wire::{crc, roce};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a probe at 127.0.0.2 together with `receiver` and returns the probe's counters.
fn with_probe(config: Config, receiver: impl FnOnce(Receiver)) -> ProbeCounters {
    with_server(config, false, receiver)
}

fn with_server(config: Config, busy_poll: bool, receiver: impl FnOnce(Receiver)) -> ProbeCounters {
    let stop = AtomicBool::new(false);
    let server = Server::bind(config, ([127, 0, 0, 2], 0).into(), |request, regions| {
        let bind = SocketAddr::from(([127, 0, 0, 2], 0));
        let config = UdpConfig {
            bind,
            sealed: request.sealed,
            capacity: 0,
            scratch: Sge::EMPTY,
            receive_buffer: 0,
            remainders: false,
            stamps: false,
            ecn: false,
        };
        let io = UdpIo::open(&config, regions)?;
        let source = io.local_addr();
        Ok(LinkTransport::new(io, source))
    })
    .unwrap()
    .busy_poll(busy_poll);
    let probe = server.local_addr().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop));
        let stopper = Stopper(&stop);
        receiver(Receiver::new(probe));
        drop(stopper);
        running.join().unwrap().unwrap()
    })
}

/// Stops the probe on drop, so also when the receiver's side of a test panics.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Receiver {
    control: UdpSocket,
    data: UdpSocket,
    sequence: u32,
}

impl Receiver {
    fn new(probe: SocketAddr) -> Self {
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (control, data) = (socket(), socket());
        control.connect(probe).unwrap();
        for socket in [&control, &data] {
            socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        }
        Self { control, data, sequence: 0 }
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.sequence += 1;
        self.control.send(&Message::request(self.sequence, 77, false, request).emit()).unwrap();
        let mut reply = [0; LEN];
        let len = self.control.recv(&mut reply).unwrap();
        match Message::parse(&reply[..len]).unwrap().body {
            Body::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn configure(&mut self, samples: u32) -> SocketAddr {
        self.configure_to(self.data.local_addr().unwrap(), samples)
    }

    /// Configures the link to send shots to `destination`.
    fn configure_to(&mut self, destination: SocketAddr, samples: u32) -> SocketAddr {
        let configure = Configure {
            link: 0,
            framing: Kind::Ud.id().unwrap(),
            geometry: Geometry::new(96, samples, 12, Packing::Packed12, 0).unwrap(),
            destination,
            dest_qp: 0x17,
            q_key: 5,
            stream: 3,
        };
        match self.ask(Request::Configure(configure)) {
            Reply::Configured(_, source) => source.address,
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self) -> Report {
        match self.ask(Request::Status { link: 0 }) {
            Reply::Status(report) => report,
            other => panic!("{other:?}"),
        }
    }

    fn packet(&self, from: SocketAddr) -> Vec<u8> {
        let mut packet = vec![0; 5000];
        let (len, source) = self.data.recv_from(&mut packet).unwrap();
        assert_eq!(source, from);
        packet.truncate(len);
        packet
    }

    /// Receives a complete shot from packets in order.
    fn shot(&self, from: SocketAddr, packets: u32) -> Vec<u8> {
        let payload = |_| roce::Packet::parse(&self.packet(from)).unwrap().payload.to_vec();
        (0..packets).flat_map(payload).collect()
    }
}

fn config() -> Config {
    Config { links: 1, samples: Some(200), free_running: Pace::Rate(500.0), ..Config::default() }
}

#[test]
fn a_counted_run_arrives_completely() {
    let stats = with_probe(Config { samples: Some(100), ..config() }, |mut receiver| {
        let from = receiver.configure(100);
        // Few enough for any receive buffer.
        receiver.ask(Request::Start(Start { mode: Mode::FreeRunning, shots: 5 }));
        for number in 0..5 {
            let shot = receiver.shot(from, 4);
            assert!(record::is_whole(crc::register(u32::MAX, &shot)));
            assert_eq!(record::Record::parse(shot.last_chunk().unwrap()).unwrap().shot, number);
        }
        let report = receiver.status();
        assert_eq!((report.running, report.shots_sent, report.packets_sent), (false, 5, 20));
    });
    assert_eq!((stats.next_shot, stats.links[0].counters.packets), (5, 20));
}

#[test]
fn a_trigger_command_starts_one_shot() {
    with_probe(config(), |mut receiver| {
        let from = receiver.configure(200);
        receiver.ask(Request::Start(Start { mode: Mode::ExternalTrigger, shots: 0 }));
        for sequence in 0..20 {
            receiver.control.send(&Trigger::new(sequence).emit()).unwrap();
            assert!(record::is_whole(crc::register(u32::MAX, &receiver.shot(from, 8))));
        }
        let report = receiver.status();
        assert_eq!((report.shots_sent, report.running), (20, true));
    });
}

#[test]
fn an_acknowledgement_holds_the_shot_number() {
    for busy_poll in [false, true] {
        with_server(Config { first_shot: 7, ..config() }, busy_poll, |mut receiver| {
            let from = receiver.configure(200);
            receiver.ask(Request::Start(Start { mode: Mode::ExternalTrigger, shots: 0 }));
            for sequence in 0..20 {
                let trigger = Trigger { acknowledge: true, ..Trigger::new(sequence) };
                receiver.control.send(&trigger.emit()).unwrap();
                let mut answer = [0; Trigger::LEN + 1];
                let len = receiver.control.recv(&mut answer).unwrap();
                let verdict = Verdict::Accepted { shot: 7 + u64::from(sequence) };
                assert_eq!(Acknowledgement::parse(&answer[..len]), Ok(Acknowledgement { trigger, verdict }));
                let shot = receiver.shot(from, 8);
                let record = record::Record::parse(shot.last_chunk().unwrap()).unwrap();
                assert_eq!((record.shot, record.triggered), (7 + u64::from(sequence), true));
            }
        });
    }
}

#[test]
fn invalid_messages_are_ignored() {
    let stats = with_probe(config(), |mut receiver| {
        for len in [0, 1, 64, 127, 128, 129, 1400] {
            receiver.control.send(&vec![0xa5; len]).unwrap();
        }
        assert!(!receiver.status().running);
    });
    assert_eq!(stats.requests_refused, 0);
}

#[test]
fn a_send_error_ends_the_run_and_not_the_probe() {
    let stats = with_probe(config(), |mut receiver| {
        // The broadcast address of the loopback network, to which the kernel refuses to send.
        receiver.configure_to(([127, 255, 255, 255], 9).into(), 200);
        receiver.ask(Request::Start(Start { mode: Mode::FreeRunning, shots: 0 }));
        while receiver.status().running {}
        let from = receiver.configure(200);
        receiver.ask(Request::Start(Start { mode: Mode::FreeRunning, shots: 1 }));
        assert!(record::is_whole(crc::register(u32::MAX, &receiver.shot(from, 8))));
    });
    assert_eq!(stats.failures.runs, 1);
    assert!(stats.failures.last_error.is_some_and(|error| error.contains("127.255.255.255:9")));
    assert_eq!((stats.links[0].counters.discarded, stats.links[0].counters.packets), (8, 8));
}
