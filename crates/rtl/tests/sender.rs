//! Tests of the RTL's model against `shotline_wire`, frame by frame.

use shotline_rtl::registers::sender as register;
use shotline_rtl::soak::Coverage;
use shotline_rtl::{Config, Framing, Limits, Sender, Shot, Side, WriteError, expected, soak};
use shotline_testing::seeds;
use shotline_wire::framing::Link;
use shotline_wire::icrc::{Flow, Network};
use shotline_wire::shot::{Geometry, Packing};
use std::ops::Range;

fn config(framing: Framing, ipv6: bool) -> Config {
    let network = if ipv6 {
        Network::V6 { src: *b"\xfd\0source-address", dst: *b"\xfd\0destinationadr" }
    } else {
        Network::V4 { src: [192, 168, 0, 1], dst: [192, 168, 0, 2], id: 0 }
    };
    Config {
        framing,
        destination_mac: [2, 0x11, 0x22, 0x33, 0x44, 0x55],
        source_mac: [2, 0x66, 0x77, 0x88, 0x99, 0xAA],
        class: 0x2E,
        hop_limit: 63,
        flow: Flow { network, src_port: 0xC123, dst_port: 4791 },
        link: Link { dest_qp: 0x2B67, src_qp: 0x11, q_key: 0x1122_3344, stream: 0 },
        psn: Some(0xFF_FFFF),
        ..Config::default()
    }
}

/// Returns the shape of a shot of `count` bytes.
fn bytes(count: u32) -> Option<Geometry> {
    Geometry::new(1, count, 8, Packing::Uint8, 40_000_000).ok()
}

fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(next).collect()
}

const SHOT: Shot = Shot { number: 0x1_2345_6789, time: 1_700_000_037_000_000_000, stream: 3, event: 7, flags: 3 };

fn assert_frames(sender: &Sender, expected: &[Vec<u8>], what: &str) {
    let frames = sender.frames().map(|frame| frame.bytes).collect::<Vec<_>>();
    for (index, (frame, expected)) in frames.iter().zip(expected).enumerate() {
        assert_eq!(frame, expected, "{what}: frame {index} of {} bytes", expected.len());
    }
    assert_eq!(frames.len(), expected.len(), "{what}");
    assert_eq!(sender.failed_assertions(), 0, "{what}");
}

#[test]
fn ud_packet_over_ipv4_matches_the_wire_crate() {
    let mut sender = Sender::new(1);
    let config = Config { packet_mode: true, ..config(Framing::Ud, false) };
    sender.configure(&config).unwrap();
    let payload = noise(1, 128);
    sender.send(&SHOT, &payload);
    sender.run(Limits::default());
    assert_frames(&sender, &[expected::packet(&config, 0xFF_FFFF, &SHOT, &payload)], "ud");
}

#[test]
fn shots_of_all_framings_match_the_wire_crate() {
    for framing in Framing::ALL {
        for ipv6 in [false, true] {
            for count in [1, 63, 64, 65, 4031, 4032, 4033, 4096, 10_000] {
                let mut sender = Sender::new(count.into());
                let config = Config { geometry: bytes(count), ..config(framing, ipv6) };
                sender.configure(&config).unwrap();
                let samples = noise(count.into(), count as usize);
                sender.send(&SHOT, &samples);
                sender.run(Limits::default());
                let (frames, _) = expected::shot(&config, 0xFF_FFFF, &SHOT, &samples).unwrap();
                assert_frames(&sender, &frames, &format!("{framing:?} {ipv6} {count}"));
            }
        }
    }
}

#[test]
fn packets_of_every_length_are_right_and_back_to_back() {
    for framing in Framing::ALL {
        for ipv6 in [false, true] {
            let config = Config { packet_mode: true, ..config(framing, ipv6) };
            let mut sender = Sender::new(7);
            sender.configure(&config).unwrap();
            let noise = noise(3, 4096);
            let mut frames = Vec::new();
            for length in 1..=4096 {
                let shot = Shot { number: length as u64, ..SHOT };
                frames.push(expected::packet(&config, 0xFF_FFFF + frames.len() as u32, &shot, &noise[..length]));
                sender.send(&shot, &noise[..length]);
            }
            sender.run(Limits::default());
            assert_frames(&sender, &frames, &format!("{framing:?} {ipv6}"));
            // The distance from one frame's last word to the next frame's is the number of words of the latter.
            let clocks = sender.frames().map(|frame| frame.clock).collect::<Vec<_>>();
            for (index, pair) in clocks.windows(2).enumerate() {
                let length = index + 2;
                let words = config.frame_words(length) as u64;
                assert_eq!(pair[1] - pair[0], words, "{framing:?} {ipv6}, {length} bytes");
            }
        }
    }
}

#[test]
fn short_packets_before_long_ones_cost_no_clock() {
    let config = Config { packet_mode: true, ..config(Framing::Ud, false) };
    assert_eq!(config.frame_words(4096), 66);
    let mut sender = Sender::new(8);
    sender.configure(&config).unwrap();
    let noise = noise(4, 4096);
    // Runs of the shortest packets fill the descriptor FIFO before the longest packet.
    let lengths = (0..40).flat_map(|run| std::iter::repeat_n(1 + run, 100).chain([4096, 4095, 3])).collect::<Vec<_>>();
    for &length in &lengths {
        sender.send(&SHOT, &noise[..length]);
    }
    sender.run(Limits::default());
    let clocks = sender.frames().map(|frame| frame.clock).collect::<Vec<_>>();
    assert_eq!(clocks.len(), lengths.len());
    for (pair, &length) in clocks.windows(2).zip(&lengths[1..]) {
        assert_eq!(pair[1] - pair[0], config.frame_words(length) as u64, "{length} bytes");
    }
}

#[test]
fn consecutive_shots_leave_back_to_back() {
    for count in [1, 64, 65, 4032, 4096, 20_000] {
        let config = Config { geometry: bytes(count), ..config(Framing::Ud, true) };
        let mut sender = Sender::new(9);
        sender.configure(&config).unwrap();
        let samples = noise(5, count as usize);
        let shots = 200_000 / count.max(2000);
        let mut frames = Vec::new();
        for number in 0..shots {
            let shot = Shot { number: number.into(), ..SHOT };
            let (more, _) = expected::shot(&config, 0xFF_FFFF + frames.len() as u32, &shot, &samples).unwrap();
            frames.extend(more);
            sender.send(&shot, &samples);
        }
        sender.run(Limits::default());
        assert_frames(&sender, &frames, &format!("{count}"));
        let clocks = sender.frames().map(|frame| frame.clock).collect::<Vec<_>>();
        for (pair, frame) in clocks.windows(2).zip(&frames[1..]) {
            assert_eq!(pair[1] - pair[0], frame.len().div_ceil(64) as u64, "{count}");
        }
    }
}

#[test]
fn a_pause_at_any_clock_changes_no_frame() {
    for (framing, ipv6) in [(Framing::Ud, false), (Framing::Counted, false), (Framing::Udp, true)] {
        // Three packets; the ICRC of the second framing crosses a word boundary.
        let config = Config { geometry: bytes(333), mtu: 192, ..config(framing, ipv6) };
        let mut sender = Sender::new(10);
        sender.configure(&config).unwrap();
        let samples = noise(6, 333);
        let mut psn = 0xFF_FFFF;
        let mut send_paused = |side, from: u64, clocks: u64| {
            let (frames, next) = expected::shot(&config, psn, &SHOT, &samples).unwrap();
            let begin = sender.clocks();
            sender.pause(side, 0, begin + from..begin + from + clocks);
            sender.send(&SHOT, &samples);
            sender.run(Limits { quiet: 150, ..Limits::default() });
            assert_frames(&sender, &frames, &format!("{framing:?}: {side:?} pauses at {from} for {clocks}"));
            psn = next;
            let last = sender.frames().last().map(|frame| frame.clock - begin);
            sender.discard(frames.len());
            last.unwrap()
        };
        let whole = send_paused(Side::Output, 0, 0);
        assert!(whole > 20 && whole < 100, "{whole} clocks");
        for from in 0..=whole {
            for clocks in [1, 2, 100] {
                send_paused(Side::Output, from, clocks);
                send_paused(Side::Input, from, clocks);
            }
        }
    }
}

#[test]
fn a_new_configuration_takes_effect_with_the_next_shot() {
    let mut sender = Sender::new(11);
    let old = Config { geometry: bytes(9000), ..config(Framing::Ud, false) };
    let new = Config { geometry: bytes(500), psn: None, mtu: 256, stream: Some(9), ..config(Framing::Udp, true) };
    let (samples, few) = (noise(7, 9000), noise(8, 500));
    sender.configure(&old).unwrap();
    sender.send(&SHOT, &samples);
    sender.run(Limits { clocks: 40, ..Limits::default() }); // in the middle of the first packet
    sender.configure(&new).unwrap();
    assert!(sender.is_configuring());
    sender.send(&SHOT, &few);
    sender.run(Limits::default());
    assert!(!sender.is_configuring());
    let (mut frames, psn) = expected::shot(&old, 0xFF_FFFF, &SHOT, &samples).unwrap();
    frames.extend(expected::shot(&new, psn, &SHOT, &few).unwrap().0);
    assert_frames(&sender, &frames, "old, then new");
    // Framing `udp` counts packets, too, though it does not send the sequence number.
    assert_eq!(u64::from(sender.read(register::NEXT_PSN)), (0xFF_FFFF + frames.len() as u64) & 0xFF_FFFF);
}

#[test]
fn registers_read_back_and_enable_gates_the_input() {
    let mut sender = Sender::new(12);
    assert_eq!(sender.read(register::ID), register::ID_RESET);
    assert_eq!(sender.read(register::MTU), register::MTU_RESET);
    sender.send(&SHOT, &[1; 64]);
    sender.run(Limits { quiet: 200, ..Limits::default() });
    assert_eq!((sender.waiting(), sender.frames().len()), (1, 0));
    let config = config(Framing::Ud, true);
    let config = Config { geometry: bytes(64), ..config };
    for (address, value) in config.writes() {
        sender.write(address, value).unwrap();
        if address != register::CONTROL {
            assert_eq!(sender.read(address), value, "{address:#x}");
        }
    }
    assert_eq!(sender.write(register::ID, 0), Err(WriteError { address: register::ID }));
    assert_eq!(sender.write(0x7FC, 0), Err(WriteError { address: 0x7FC }));
    sender.run(Limits::default());
    assert_eq!((sender.waiting(), sender.frames().len()), (0, 1));
    // Disabled again.
    sender.configure(&Config { enable: false, ..config }).unwrap();
    sender.send(&SHOT, &[1; 64]);
    sender.run(Limits { quiet: 200, ..Limits::default() });
    assert_eq!(sender.waiting(), 1);
}

#[test]
fn counters_match_frames_bytes_shots_stalls_length_errors() {
    let mut sender = Sender::new(13);
    let config = Config { geometry: bytes(10_000), ..config(Framing::Ud, false) };
    sender.configure(&config).unwrap();
    let samples = noise(9, 10_000);
    for _ in 0..5 {
        sender.send(&SHOT, &samples);
    }
    sender.run(Limits { quiet: 200, ..Limits::default() });
    let (frames, _) = expected::shot(&config, 0xFF_FFFF, &SHOT, &samples).unwrap();
    let frame_bytes = 5 * frames.iter().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(sender.counter(register::FRAMES), 5 * frames.len() as u64);
    assert_eq!(sender.counter(register::FRAME_BYTES), frame_bytes);
    assert_eq!(sender.counter(register::SHOTS), 5);
    assert_eq!(sender.counter(register::STALL_MAC), 0);
    assert_eq!(sender.counter(register::LENGTH_ERRORS), 0);
    assert!(sender.counter(register::STALL_PAYLOAD) >= 100, "clocks without payload count as stalls");
    assert_eq!(sender.read(register::STATUS), 0);

    // The MAC stops for 500 clocks while payload continues: the FIFO is full after 128 clocks plus 30.
    sender.write(register::CONTROL, register::CONTROL_CLEAR_COUNTERS).unwrap();
    assert_eq!(sender.counter(register::FRAMES), 0);
    let begin = sender.clocks() + 200;
    sender.pause(Side::Output, 0, begin..begin + 500);
    for _ in 0..5 {
        sender.send(&SHOT, &samples);
    }
    sender.run(Limits::default());
    assert_eq!(sender.counter(register::STALL_MAC), 500);
    let full = sender.counter(register::STALL_FIFO);
    assert!((350..520).contains(&full), "{full}");

    // Sizes that differ from `sample_bytes`.
    for wrong in [9999, 10_001, 9984, 10_048, 64] {
        let before = sender.counter(register::LENGTH_ERRORS);
        sender.send(&SHOT, &noise(1, wrong));
        sender.run(Limits { quiet: 200, ..Limits::default() });
        assert_eq!(sender.counter(register::LENGTH_ERRORS), before + 1, "{wrong} bytes");
    }
}

#[test]
fn an_input_longer_than_a_packet_is_cut_and_counted() {
    let mut sender = Sender::new(14);
    let config = Config { packet_mode: true, mtu: 128, ..config(Framing::Udp, false) };
    sender.configure(&config).unwrap();
    sender.send(&SHOT, &noise(1, 128));
    sender.send(&SHOT, &noise(1, 300));
    sender.run(Limits::default());
    let lengths = sender.frames().map(|frame| frame.bytes.len()).collect::<Vec<_>>();
    assert_eq!(lengths, [128, 128, 128, 44].map(|payload| config.frame_len(payload)));
    assert_eq!(sender.counter(register::LENGTH_ERRORS), 1);
}

/// Seeds of every test run, which together reach all corner cases; other seeds may miss some.
const SEEDS: Range<u64> = 0..16;
const FRAMES: u64 = 1000;

#[test]
fn random_shots_and_packets_cover_every_corner_case() {
    let mut coverage = Coverage::default();
    let mut done = Vec::new();
    for seed in seeds(SEEDS) {
        let summary = soak::run(seed, FRAMES, |_| ()).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        assert!(summary.frames >= FRAMES, "seed {seed}");
        coverage += &summary.coverage;
        done.push(seed);
    }
    if done.iter().copied().eq(SEEDS) {
        assert_eq!(coverage.holes(), []);
    }
}

#[test]
fn header_bytes_match_the_wire_format() {
    let mut sender = Sender::new(15);
    let config = Config { geometry: bytes(200), ..config(Framing::Ud, false) };
    sender.configure(&config).unwrap();
    sender.send(&SHOT, &noise(1, 200));
    sender.run(Limits::default());
    let frame = sender.frames().next().unwrap().bytes;
    // Written by hand from docs/wire-formats.md, independent of the crate that the other tests compare with.
    assert_eq!(frame[..14], [2, 0x11, 0x22, 0x33, 0x44, 0x55, 2, 0x66, 0x77, 0x88, 0x99, 0xAA, 8, 0]);
    assert_eq!(frame[14..16], [0x45, 0x2E]);
    assert_eq!(frame[34..38], [0xC1, 0x23, 0x12, 0xB7]);
    assert_eq!(frame[42..54], [0x65, 0xC0, 0xFF, 0xFF, 0, 0, 0x2B, 0x67, 0, 0xFF, 0xFF, 0xFF]);
    assert_eq!(frame[54..66], [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0x11, 0x56, 0x78, 0x90, 0]);
    assert_eq!(frame[66 + 256..66 + 260], *b"SHOT");
    assert_eq!(frame.len(), 66 + 256 + 64 + 4);
}
