//! The examples of a sink and of a transport outside the crates.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../examples/05-custom-sink.rs"]
mod sink;
#[path = "../../../../examples/06-custom-transport/unix_io.rs"]
mod unix_io;

use arrayvec::ArrayVec;
use shotline_acquire::config::Settings;
use shotline_store::read::Recording;
use shotline_testing::{Process, example, wait_until};
use shotline_transport::Capabilities;
use shotline_transport::conformance::{BUFFERS, EndpointPair, Fixture, Memory, run};
use shotline_transport::copier::CopierConfig;
use shotline_wire::framing::{Framing as _, Link, MAX_HEADER, Packet, Udp};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unix_io::UnixIo;

const CHANNELS: usize = 8;
const SAMPLES: usize = 1000;
/// Number of shots that example 05 receives here.
const SHOTS: u64 = 12;

fn geometry() -> Geometry {
    let (shape, cut) = ((CHANNELS as u16, SAMPLES as u32), Packetization::uniform(4096));
    Geometry::with_packetization(shape, (16, Packing::Int16Le), 0, Trailer::None, cut).unwrap()
}

/// Sends shots until the receiver has them. Sample `i` of channel `c` is `i * c` plus the shot's number; of every third
/// shot the second packet is never sent.
fn send(to: SocketAddr, over: &AtomicBool) {
    let (socket, geometry) = (UdpSocket::bind(("127.0.0.1", 0)).unwrap(), geometry());
    for number in (0..100_000).take_while(|_| !over.load(Ordering::Relaxed)) {
        let value = |at: usize| ((at / CHANNELS) * (at % CHANNELS) + number as usize) as i16;
        let shot: Vec<u8> = (0..SAMPLES * CHANNELS).flat_map(|at| value(at).to_le_bytes()).collect();
        for index in (0..geometry.packets()).filter(|index| (number % 3, *index) != (1, 1)) {
            let packet = Packet::nth(&geometry, 0, number, index).unwrap();
            let mut header = ArrayVec::<u8, MAX_HEADER>::new();
            Udp.emit(&Link::default(), &packet, &mut header);
            let payload = &shot[packet.offset as usize..][..packet.len as usize];
            // An error is the receiver's closed port: before it listens, or after it is done.
            let _ = socket.send_to(&[header.as_slice(), payload].concat(), to);
        }
        // The receive buffer holds enough shots while the receiver is not scheduled.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn example_05_writes_means_of_complete_shots_only() {
    // A separate address, so that no other test takes the port between the two sockets.
    let listen = UdpSocket::bind(("127.0.2.5", 0)).unwrap().local_addr().unwrap();
    let settings = Settings {
        listen: Some(listen),
        discard: Some(true),
        shots: Some(SHOTS),
        // A shot that lacks a packet is closed by those after it, and not by a pause of the sender.
        window: Some(4),
        timeout_ms: Some(60_000),
        ..Settings::default()
    };
    let (over, mut out) = (AtomicBool::new(false), Vec::new());
    let (outcome, shots, missing) = std::thread::scope(|scope| {
        scope.spawn(|| send(listen, &over));
        let result = sink::record(&settings, &mut out).map_err(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
        result
    })
    .unwrap();
    let total = outcome.total();
    total.balance().unwrap();
    assert_eq!((shots, missing), (total.complete, total.partial + total.shot_drops.total()));
    assert!(missing >= SHOTS / 3, "{missing} shots are missing");
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<(u64, &str)> = out
        .lines()
        .map(|line| line.split_once(',').unwrap())
        .map(|(number, means)| (number.parse().unwrap(), means))
        .collect();
    assert_eq!(lines.len() as u64, shots);
    let mut sum = 0;
    for (count, (number, means)) in (1..).zip(lines) {
        assert_ne!(number % 3, 1, "an incomplete shot is in the file");
        sum += number;
        // The mean of 0 to 999 times the channel, plus the mean of the numbers.
        let expected: Vec<_> = (0..CHANNELS)
            .map(|channel| format!("{:.3}", 499.5 * channel as f64 + sum as f64 / f64::from(count)))
            .collect();
        assert_eq!(means, expected.join(","), "after shot {number}");
    }
}

#[test]
fn transport_of_example_06_conforms() {
    let memory = Memory::new();
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    for sealed in [true, false] {
        let open = |memory: &Memory| {
            let (tx, rx) = UnixDatagram::pair().map_err(|error| error.to_string())?;
            let end = |socket, port, peer| {
                let (address, scratch) = (address(port), memory.scratch);
                let config = CopierConfig { address, sealed, capacity: BUFFERS as usize, scratch };
                UnixIo::open(socket, config, peer, &memory.regions).map_err(|error| error.to_string())
            };
            Ok(EndpointPair { tx: end(tx, 1, address(2))?, rx: end(rx, 2, address(1))?, to: address(2) })
        };
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture =
            Fixture { name: format!("example 06, sealed: {sealed}"), sealed, capabilities, open, close: |_| Ok(()) };
        run(fixture, &memory).expect_conformance();
    }
}

#[test]
fn example_06_records_every_shot_that_it_sends() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, out) = (folder.path().join("shots.sock"), folder.path().join("run.h5"));
    let mut command = example("06-custom-transport");
    let mut receiver = Process::start(command.args([&socket, &out]).stdout(Stdio::piped()));
    wait_until("the receiver has bound its socket", || socket.exists());
    let sender = example("06-custom-transport").arg(&socket).output().unwrap();
    assert!(sender.status.success(), "{sender:?}");
    let printed = std::io::read_to_string(receiver.stdout.take().unwrap()).unwrap();
    assert!(receiver.wait().unwrap().success());
    assert_eq!(printed, "100 rows, 100 complete; 400 packets\n");
    assert!(!socket.exists(), "the socket is left behind");
    let recording = Recording::open(&out).unwrap();
    let mut slots = recording.slot_reader();
    for index in 0..100 {
        let slot = slots.read(index, 0).unwrap();
        let samples = slot[..SAMPLES * CHANNELS * 2].chunks(2).map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]]));
        let expected = (0..SAMPLES * CHANNELS).map(|at| (at / CHANNELS) as i16 + index as i16);
        assert!(samples.eq(expected), "row {index}");
    }
}
