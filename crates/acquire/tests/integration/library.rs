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

const FRAMES: u32 = 3;
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
        std::thread::sleep(std::time::Duration::from_millis(2));
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
        shots: Some(u64::from(FRAMES) * 4),
        capacity: Some(u64::from(FRAMES) * 4),
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
    outcome.total().balance().unwrap();
    assert_eq!(outcome.rows, u64::from(FRAMES) * 4);
    assert_frames(&out);
}

/// What the file says came is there byte for byte, what it says did not come is zeros, and the packet that was left out
/// never came.
fn assert_frames(out: &Path) {
    let recording = Recording::open(out).unwrap();
    assert_eq!((recording.run().framing.as_str(), recording.run().instrument.as_str()), ("camera", "camera"));
    let mut slots = recording.slots();
    let mut left_out = 0;
    for row in recording.rows_of(0).map(Result::unwrap).enumerate() {
        let (index, row) = (row.0 as u64, row.1);
        let number = row.number as u32;
        let slot = slots.read(index, 0).unwrap();
        for (packet, bytes) in slot[..FRAME].chunks(PACKET).enumerate() {
            let came = row.presence[0] >> packet & 1 == 1;
            assert!(!came || number % FRAMES != 1 || packet != 2, "frame {number} has a packet that was never sent");
            let expected = |at: usize| if came { pixel(number, packet * PACKET + at) } else { 0 };
            assert!(
                bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)),
                "frame {number}, packet {packet}"
            );
        }
        left_out += u64::from(number % FRAMES == 1);
    }
    assert!(left_out > 0, "no frame with a missing packet among {}", recording.rows());
}
