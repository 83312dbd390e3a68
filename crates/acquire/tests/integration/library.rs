//! Recording as a library, with a framing of the caller's: the example's, over real sockets.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../examples/02-record-your-own-framing.rs"]
mod example;

use example::record;
use shotline_acquire::config::Settings;
use shotline_store::read::Recording;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of so many frames in a row the second lacks a packet.
const FRAMES: u32 = 3;
/// Frames that are recorded.
const SHOTS: u64 = 12;
/// Between two frames: the receive buffer holds those of a receiver that the machine does not run for long.
const PAUSE: Duration = Duration::from_millis(10);
const PACKET: usize = 4096;
/// 64 x 128 pixels of 16 bits.
const FRAME: usize = 4 * PACKET;

/// The byte at a place of a frame.
fn pixel(frame: u32, at: usize) -> u8 {
    (at as u8).wrapping_mul(3).wrapping_add(frame as u8)
}

/// Sends frames to the receiver until it has them; of frame 1 the packet at 8192 is never sent.
fn send(to: SocketAddr, over: &AtomicBool) {
    let camera = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    // The receiver may not listen yet, so frames before those that are checked are sent again and again.
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
            // An error is the receiver's closed port: before it listens, or when it is done.
            let _ = camera.send_to(&packet, to);
        }
        number += 1;
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn the_example_records_a_framing_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("camera.h5");
    // An address of its own, so that no other test takes the port between the two sockets.
    let listen = UdpSocket::bind(("127.0.2.2", 0)).unwrap().local_addr().unwrap();
    let settings = Settings {
        listen: Some(listen),
        out: Some(vec![out.clone()]),
        shots: Some(SHOTS),
        capacity: Some(SHOTS),
        // A frame that lacks a packet is closed by those after it, and by no pause of the sender.
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

/// Each frame has come byte for byte but for the packet that was never sent, which is missing and zeros. The receiver may
/// have begun to listen in the middle of the first one. Returns the numbers of complete and of partial frames.
fn assert_frames(out: &Path) -> (u64, u64) {
    let recording = Recording::open(out).unwrap();
    assert_eq!((recording.run().framing.as_str(), recording.run().instrument.as_str()), ("camera", "camera"));
    let mut slots = recording.slots();
    let (mut complete, mut partial) = (0, 0);
    for (index, row) in (0..).zip(recording.rows_of(0).map(Result::unwrap)) {
        let number = row.number as u32;
        let slot = slots.read(index, 0).unwrap();
        let came = |packet: usize| row.presence[0] >> packet & 1 == 1;
        let missing: Vec<usize> = (0..FRAME / PACKET).filter(|packet| !came(*packet)).collect();
        let left_out: &[usize] = if number % FRAMES == 1 { &[2] } else { &[] };
        if index == 0 {
            assert!(left_out.iter().all(|packet| missing.contains(packet)), "frame {number} lacks {missing:?}");
        } else {
            assert_eq!(missing, left_out, "missing of frame {number}");
        }
        for (packet, bytes) in slot[..FRAME].chunks(PACKET).enumerate() {
            let expected = |at: usize| if came(packet) { pixel(number, packet * PACKET + at) } else { 0 };
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
