//! Constrained-random test of the model with shots and packets; every frame is compared with [`expected`].
//!
//! Configurations, lengths and pauses are drawn so that corner cases are frequent (lengths around word boundaries, an
//! ICRC that crosses a word boundary, a MAC without and with nearly permanent back-pressure), and [`Coverage`] counts
//! them.

use super::config::{Config, Framing, Shot};
use super::expected;
use super::model::{Sender, Side};
use super::sys::Limits;
use shotline_wire::framing::Link;
use shotline_wire::icrc::{Flow, Network};
use shotline_wire::shot::{Geometry, Packing};
use std::collections::VecDeque;
use std::fmt;
use std::ops::AddAssign;

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Frames compared, all of them correct.
    pub frames: u64,
    /// Clocks simulated.
    pub clocks: u64,
    /// Configurations applied.
    pub configurations: u64,
    /// Corner cases reached.
    pub coverage: Coverage,
}

/// Number of frames for each corner case: framing, IP version, mode, and bytes of a frame's last word.
#[derive(Clone, Debug)]
pub struct Coverage {
    tails: [[u64; 64]; 12],
}

impl Default for Coverage {
    fn default() -> Self {
        Self { tails: [[0; 64]; 12] }
    }
}

impl AddAssign<&Coverage> for Coverage {
    fn add_assign(&mut self, other: &Coverage) {
        for (count, more) in self.tails.as_flattened_mut().iter_mut().zip(other.tails.as_flattened()) {
            *count += more;
        }
    }
}

impl Coverage {
    fn count(&mut self, config: &Config, frame: &[u8]) {
        let kind = config.framing as usize * 4 + usize::from(config.is_ipv6()) * 2 + usize::from(config.packet_mode);
        self.tails[kind][frame.len() % 64] += 1;
    }

    /// Returns the possible corner cases that no frame reached: framing, IPv6, packet mode, bytes of the last word (0
    /// for 64).
    pub fn holes(&self) -> Vec<(Framing, bool, bool, usize)> {
        let mut holes = Vec::new();
        for (kind, tails) in self.tails.iter().enumerate() {
            let (framing, ipv6, packets) = (Framing::ALL[kind / 4], kind & 2 != 0, kind & 1 != 0);
            for (tail, &count) in tails.iter().enumerate() {
                let config = Config { framing, flow: flow(ipv6, [0; 32], 0, 0), ..Config::default() };
                // A shot's payloads are multiples of 64; those of RoCE are padded to multiples of 4.
                let unit = if packets { 1 } else { 64 };
                let possible = (unit..=4096).step_by(unit).any(|payload| config.frame_len(payload) % 64 == tail);
                if possible && count == 0 {
                    holes.push((framing, ipv6, packets, tail));
                }
            }
        }
        holes
    }
}

/// The first error of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

/// Sends at least `frames` frames of random shots and packets, and compares each. `progress` is called after each
/// configuration.
///
/// # Errors
/// At the first frame that is wrong, missing or unexpected, and if an assertion of the RTL failed.
pub fn run(seed: u64, frames: u64, mut progress: impl FnMut(&Summary)) -> Result<Summary, Mismatch> {
    let mut random = Random::new(seed);
    let mut sender = Sender::new(seed);
    let mut expected = VecDeque::new();
    let mut summary = Summary::default();
    let mut psn = random.bits(24);
    let mut noise = vec![0; 1 << 18];
    random.fill(&mut noise);
    while summary.frames < frames {
        let load = summary.configurations == 0 || random.one_in(4);
        if load {
            psn = random.bits(24);
        }
        let config = configuration(&mut random, load.then_some(psn));
        // Frames of the previous configuration may still be in flight.
        sender.configure(&config).map_err(|error| Mismatch(error.to_string()))?;
        summary.configurations += 1;
        for side in [Side::Input, Side::Output] {
            let chance = if random.one_in(64) { 0xF000 } else { [0, 0, 0, 0x1000, 0x8000][random.below(5)] };
            sender.pause(side, chance, 0..0);
        }
        for _ in 0..1 + random.below(64) {
            let shot = shot(&mut random);
            let length = match config.geometry {
                Some(geometry) => geometry.sample_bytes() as usize,
                None => length(&mut random, config.mtu as usize),
            };
            let from = random.below(noise.len() - length);
            let bytes = &noise[from..from + length];
            sender.send(&shot, bytes);
            if config.packet_mode {
                let frame = expected::packet(&config, psn, &shot, bytes);
                summary.coverage.count(&config, &frame);
                expected.push_back(frame);
                psn = (psn + 1) & 0xFF_FFFF;
            } else {
                let frames = expected::shot(&config, psn, &shot, bytes);
                let (frames, next) = frames.ok_or_else(|| Mismatch("the generator produced an invalid shot".into()))?;
                frames.iter().for_each(|frame| summary.coverage.count(&config, frame));
                expected.extend(frames);
                psn = next;
            }
        }
        while sender.waiting() > 0 || expected.len() > 2000 {
            let before = sender.output_words();
            sender.run(Limits {
                frames: 1000,
                quiet: 10_000,
                inputs_accepted: expected.len() <= 2000,
                ..Limits::default()
            });
            compare(seed, &mut sender, &mut expected, &mut summary)?;
            if sender.output_words() == before && sender.waiting() > 0 {
                return Err(Mismatch(format!(
                    "seed {seed}: no frame was sent, and {} inputs are pending",
                    sender.waiting()
                )));
            }
        }
        summary.clocks = sender.clocks();
        progress(&summary);
    }
    sender.run(Limits { quiet: 10_000, ..Limits::default() });
    compare(seed, &mut sender, &mut expected, &mut summary)?;
    if !expected.is_empty() {
        return Err(Mismatch(format!("seed {seed}: {} frames were not sent", expected.len())));
    }
    summary.clocks = sender.clocks();
    Ok(summary)
}

/// Compares the frames that were sent with the oldest expected ones, and discards both.
fn compare(
    seed: u64,
    sender: &mut Sender,
    expected: &mut VecDeque<Vec<u8>>,
    summary: &mut Summary,
) -> Result<(), Mismatch> {
    let mut count = 0;
    for frame in sender.frames() {
        let number = summary.frames;
        let Some(reference) = expected.pop_front() else {
            return Err(Mismatch(format!("seed {seed}: unexpected frame {number}")));
        };
        if frame.bytes != reference {
            let at = frame.bytes.iter().zip(&reference).position(|(a, b)| a != b);
            let lengths = (frame.bytes.len(), reference.len());
            return Err(Mismatch(format!("seed {seed}: frame {number} differs at byte {at:?}; lengths {lengths:?}")));
        }
        summary.frames += 1;
        count += 1;
    }
    sender.discard(count);
    match sender.failed_assertions() {
        0 => Ok(()),
        failed => Err(Mismatch(format!("seed {seed}: {failed} assertions failed"))),
    }
}

fn configuration(random: &mut Random, psn: Option<u32>) -> Config {
    let mut macs = [0; 12];
    random.fill(&mut macs);
    let mut addresses = [0; 32];
    random.fill(&mut addresses);
    let packet_mode = random.one_in(2);
    let mtu = if random.one_in(2) { 4096 } else { 64 * (1 + random.below(64) as u32) };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = macs;
    Config {
        framing: Framing::ALL[random.below(3)],
        packet_mode,
        mtu,
        destination_mac: [a, b, c, d, e, f],
        source_mac: [g, h, i, j, k, l],
        class: random.bits(8) as u8,
        hop_limit: random.bits(8) as u8,
        flow: flow(random.one_in(2), addresses, random.bits(16) as u16, random.bits(16) as u16),
        link: Link { dest_qp: random.bits(24), src_qp: random.bits(24), q_key: random.bits(32), stream: 0 },
        partition_key: random.bits(16) as u16,
        stream: random.one_in(2).then(|| random.bits(32)),
        geometry: if packet_mode { None } else { Some(geometry(random, mtu)) },
        psn,
        enable: true,
    }
}

fn flow(ipv6: bool, addresses: [u8; 32], src_port: u16, dst_port: u16) -> Flow {
    let (src, dst) = addresses.split_at(16);
    let network = if ipv6 {
        Network::V6 { src: src.try_into().expect("16 bytes"), dst: dst.try_into().expect("16 bytes") }
    } else {
        let four = |bytes: &[u8]| [bytes[0], bytes[1], bytes[2], bytes[3]];
        Network::V4 { src: four(src), dst: four(dst), id: 0 }
    };
    Flow { network, src_port, dst_port }
}

/// Returns the shape of shots of up to about a dozen packets, most of them small.
fn geometry(random: &mut Random, mtu: u32) -> Geometry {
    loop {
        let max_bytes = (mtu as usize * 12).min(40_000);
        let bytes = if random.one_in(4) { 1 + random.below(max_bytes) } else { 1 + random.below(700) };
        let packing = [Packing::Int16Le, Packing::Packed12, Packing::Uint8][random.below(3)];
        let channels = if random.one_in(2) { 1 } else { 1 + random.below(96) };
        let samples = bytes * 8 / packing.bits_per_sample() as usize / channels;
        let bits = 1 + random.below(packing.bits_per_sample() as usize) as u8;
        if let Ok(geometry) = Geometry::new(channels as u16, samples as u32, bits, packing, random.bits(32)) {
            return geometry;
        }
    }
}

/// Returns the bytes of a packet's payload: often short, often around a word boundary, sometimes full.
fn length(random: &mut Random, mtu: usize) -> usize {
    let length = match random.below(8) {
        0..=2 => 1 + random.below(130),
        3..=5 => (64 * random.below(65) + 60 + random.below(9)).saturating_sub(64),
        6 => 1 + random.below(4096),
        _ => mtu - random.below(4),
    };
    length.clamp(1, mtu)
}

fn shot(random: &mut Random) -> Shot {
    let number = u64::from(random.bits(32)) << 16 | u64::from(random.bits(16));
    let time = u64::from(random.bits(32)) << 32 | u64::from(random.bits(32));
    Shot { number, time, stream: random.bits(32), event: random.bits(32), flags: random.bits(2) as u8 }
}

/// Marsaglia's xorshift generator; the same sequence on every platform.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn bits(&mut self, count: u32) -> u32 {
        (self.next() >> (64 - count)) as u32
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.bits(8) as u8);
    }
}
