//! Recording as a library, with framings supplied by the caller, over real sockets.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../examples/02-record-your-own-framing.rs"]
mod example;

use arrayvec::ArrayVec;
use example::record;
use shotline_acquire::config::{Key, Settings};
use shotline_acquire::live::Live;
use shotline_acquire::run::{Outcome, RunError, SenderDescription, run_with_description};
use shotline_backends::{OpenedSender, Options, SenderParameters, Transport};
use shotline_memory::{Region, Registrar, Sge};
use shotline_store::read::Recording;
use shotline_transport::{PacketIo, Seal, TxPacket};
use shotline_wire::ParseError;
use shotline_wire::framing::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Udp};
use shotline_wire::shot::{DropCause, Geometry, Packetization, Packing, Trailer};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of frames of a cycle; the second of each cycle lacks a packet.
const FRAMES: u32 = 3;
/// Number of frames recorded.
const SHOTS: u64 = 12;
/// Time between two frames: the receive buffer holds enough of them while the receiver is not scheduled.
const PAUSE: Duration = Duration::from_millis(10);
const PACKET: usize = 4096;
/// Bytes of a frame of 64 x 128 pixels of 16 bits.
const FRAME: usize = 4 * PACKET;

/// Returns the byte at an offset of a frame.
fn pixel(frame: u32, at: usize) -> u8 {
    (at as u8).wrapping_mul(3).wrapping_add(frame as u8)
}

/// Sends frames until the receiver has them; of frame 1 the packet at 8192 is never sent.
fn send(to: SocketAddr, over: &AtomicBool) {
    let camera = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    // The receiver may not be listening yet, so frames are sent until it has enough.
    let mut number = 0_u32;
    while !over.load(Ordering::Relaxed) && number < 100_000 {
        for offset in (0..FRAME).step_by(PACKET) {
            if number % FRAMES == 1 && offset == 2 * PACKET {
                continue;
            }
            let mut packet = Vec::with_capacity(8 + PACKET);
            packet.extend(number.to_le_bytes());
            packet.extend((offset as u32).to_le_bytes());
            packet.extend((offset..offset + PACKET).map(|at| pixel(number, at)));
            // An error is the receiver's closed port: before it listens, or after it is done.
            let _ = camera.send_to(&packet, to);
        }
        number += 1;
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn the_example_records_its_own_framing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("camera.h5");
    // A separate address, so that no other test takes the port between the two sockets.
    let listen = UdpSocket::bind(("127.0.2.2", 0)).unwrap().local_addr().unwrap();
    let settings = Settings {
        listen: Some(listen),
        out: Some(vec![out.clone()]),
        shots: Some(SHOTS),
        capacity: Some(SHOTS),
        // A frame that lacks a packet is closed by those after it, and not by a pause of the sender.
        window: Some(4),
        timeout_ms: Some(60_000),
        ..Settings::default()
    };
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| send(listen, &over));
        let outcome = record(&settings).map_err(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
        outcome
    })
    .unwrap();
    let total = outcome.total();
    total.balance().unwrap();
    assert_eq!(outcome.rows, SHOTS);
    assert_eq!((total.complete, total.partial), assert_frames(&out));
}

/// Checks each frame byte by byte, except for the packet that was never sent, which is missing and zeros. The receiver
/// may have begun to listen within the first one. Returns the numbers of complete and of partial frames.
fn assert_frames(out: &Path) -> (u64, u64) {
    let recording = Recording::open(out).unwrap();
    assert_eq!((recording.run().framing.as_str(), recording.run().instrument.as_str()), ("camera", "camera"));
    let mut slots = recording.slot_reader();
    let (mut complete, mut partial) = (0, 0);
    for (index, row) in (0..).zip(recording.rows_of(0).map(Result::unwrap)) {
        let number = row.number as u32;
        let slot = slots.read(index, 0).unwrap();
        let arrived = |packet: usize| row.presence[0] >> packet & 1 == 1;
        let missing: Vec<usize> = (0..FRAME / PACKET).filter(|packet| !arrived(*packet)).collect();
        let left_out: &[usize] = if number % FRAMES == 1 { &[2] } else { &[] };
        if index == 0 {
            assert!(left_out.iter().all(|packet| missing.contains(packet)), "frame {number} lacks {missing:?}");
        } else {
            assert_eq!(missing, left_out, "missing of frame {number}");
        }
        for (packet, bytes) in slot[..FRAME].chunks(PACKET).enumerate() {
            let expected = |at: usize| if arrived(packet) { pixel(number, packet * PACKET + at) } else { 0 };
            assert!(
                bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)),
                "frame {number}, packet {packet}"
            );
        }
        *(if missing.is_empty() { &mut complete } else { &mut partial }) += 1;
    }
    let expected = SHOTS / u64::from(FRAMES);
    assert!((expected..=expected + 1).contains(&partial), "{complete} complete frames and {partial} partial ones");
    (complete, partial)
}

/// Packets like those of [`Udp`], followed by an ICRC.
#[derive(Debug)]
struct Sealed;

impl NoExtras for Sealed {}

impl Framing for Sealed {
    fn name(&self) -> &'static str {
        "sealed"
    }
    fn has_icrc(&self) -> bool {
        true
    }
    fn header_len(&self, first: &[u8]) -> usize {
        Udp.header_len(first)
    }
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        Udp.key(header)
    }
    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        Udp.place(header, payload_len, g)
    }
    fn emit(&self, link: &Link, packet: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        Udp.emit(link, packet, out);
    }
}

/// Describes a sender of two packets per shot.
fn sealed() -> SenderDescription {
    let geometry =
        Geometry::with_packetization((8, 512), (8, Packing::Uint8), 0, Trailer::None, Packetization::uniform(2048))
            .unwrap();
    SenderDescription { framing: Arc::new(Sealed), geometry, name: "sealed".into() }
}

fn received(settings: &Settings, sender: SenderDescription) -> Result<Outcome, RunError> {
    let (transport, options) = (Transport::default(), Options::default());
    run_with_description(settings, sender, &AtomicBool::new(false), &Live::default(), |parameters, regions| {
        transport.open(parameters, &options, regions)
    })
}

/// Sends shots on two links until the receiver has them; every third shot of link 1 has a packet with a wrong ICRC.
fn send_sealed(to: SocketAddr, over: &AtomicBool) {
    let geometry = sealed().geometry;
    let mut registrar = Registrar::new();
    let payload = registrar.add(Region::host(2048).unwrap());
    let regions = registrar.finish();
    let sending = SenderParameters { source: None, to, sealed: true, frames: 0, scratch: Sge::EMPTY };
    let OpenedSender { mut io, .. } =
        Transport::default().open_sender(&sending, &Options::default(), &regions).unwrap();
    for shot in (0..100_000).take_while(|_| !over.load(Ordering::Relaxed)) {
        for (stream, index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let packet = Packet::nth(&geometry, 0, shot, index).unwrap();
            let mut header = ArrayVec::<u8, MAX_HEADER>::new();
            Sealed.emit(&Link { stream, ..Link::default() }, &packet, &mut header);
            let gather = [Sge { region: payload, offset: 0, len: packet.len }];
            let is_wrong = stream == 1 && shot % 3 == 0 && index == 1;
            let seal = if is_wrong { Seal::Forced(0) } else { Seal::Compute };
            // An error is the receiver's closed port: before it listens, or after it is done.
            let _ = io.send(to, &[TxPacket { header: &header, gather: &gather, seal }]);
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_callers_sealed_framing_is_received_by_its_keys() {
    let listen = UdpSocket::bind(("::1", 0)).unwrap().local_addr().unwrap();
    let settings = Settings {
        listen: Some(listen),
        links: Some(2),
        discard: Some(true),
        shots: Some(SHOTS),
        window: Some(4),
        timeout_ms: Some(60_000),
        ..Settings::default()
    };
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| send_sealed(listen, &over));
        let outcome = received(&settings, sealed());
        over.store(true, Ordering::Relaxed);
        outcome
    })
    .unwrap();
    let [first, second] = outcome.streams.as_slice() else { panic!("{} streams", outcome.streams.len()) };
    // The receiver may have begun to listen within the first shot, and ends within the last one.
    assert!(first.complete >= SHOTS - 2 && first.icrc_good == first.placed, "{first:?}");
    assert!(second.partial >= SHOTS / 3 && second.icrc_good == second.placed, "{second:?}");
    let wrong = outcome.unknown.packet_drops;
    assert!(wrong.get(DropCause::BadIcrc) >= SHOTS / 3 && wrong.total() == wrong.get(DropCause::BadIcrc), "{wrong:?}");
}

#[test]
fn settings_of_a_described_sender_are_refused() {
    let listens = Settings { listen: "[::1]:0".parse().ok(), discard: Some(true), ..Settings::default() };
    for (settings, key) in [
        (Settings { framing: "digitizer".parse().ok(), ..listens.clone() }, Key::framing),
        (Settings { samples: Some(500), ..listens.clone() }, Key::samples),
        (Settings { q_key: Some(17), ..listens.clone() }, Key::q_key),
        (Settings { listen: None, probe: listens.listen, ..listens }, Key::probe),
    ] {
        match received(&settings, sealed()) {
            Err(RunError::Invalid(invalid)) => assert_eq!(invalid.key, key),
            other => panic!("{key}: {:?}", other.map(|outcome| outcome.end)),
        }
    }
}
