//! Measures the clocks of the packet card from the last word of a frame at its input to the report in memory that counts
//! the frame: `card_latency [--channels COUNT] [--length BYTES] [--gap CLOCKS] [--count COUNT] [--time UNITS] [--frames
//! COUNT]`. Prints a line of JSON: the median, the 99th percentile and the longest.
//!
//! Frames with FCS of one length come to random channels, `gap` clocks apart (0: at the rate of the wire, 100 Gbit/s). A
//! report is written after `count` descriptors, or after `time` units of 256 clocks; the defaults are those of the DPDK
//! driver.

use shotline_random::SplitMix64;
use shotline_rtl::card::{Device, KEY, Memory, channel_register};
use shotline_rtl::registers::{card_channel as register, card_distributor};
use shotline_wire::crc::crc32;
use std::collections::VecDeque;

/// All descriptors are given before the measurement, so no access of a register disturbs it.
const RING_LOG2: u32 = 15;
const BUFFER: u64 = 2048;
const RING_BYTES: u64 = 16 << RING_LOG2;
/// Addresses of each channel.
const EACH: u64 = 1 << 32;

struct Arguments {
    channels: usize,
    length: usize,
    gap: u64,
    count: u32,
    time: u32,
    frames: usize,
}

fn arguments() -> Result<Arguments, Box<dyn std::error::Error>> {
    let mut all = Arguments { channels: 1, length: 64, gap: 1000, count: 32, time: 1, frames: 2000 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--channels" => all.channels = value.parse()?,
            "--length" => all.length = value.parse()?,
            "--gap" => all.gap = value.parse()?,
            "--count" => all.count = value.parse()?,
            "--time" => all.time = value.parse()?,
            "--frames" => all.frames = value.parse()?,
            _ => return Err(format!("expected an option of card_latency (see its source), found {name}").into()),
        }
    }
    Ok(all)
}

/// The card and its software.
struct Bench {
    device: Device<Memory>,
    /// Descriptors used by each channel.
    used: Vec<u16>,
    /// Clocks of the last words of the frames that no report has counted, by channel.
    pending: Vec<VecDeque<u64>>,
    latencies: Vec<u64>,
}

impl Bench {
    fn new(all: &Arguments) -> Result<Self, String> {
        let count = all.channels;
        let mut bench = Self {
            device: Device::new(100.0, Memory::default(), 0, 1)?,
            used: vec![0; count],
            pending: vec![VecDeque::new(); count],
            latencies: Vec::new(),
        };
        for (&address, word) in card_distributor::KEY.iter().zip(KEY.as_chunks().0) {
            bench.write(address, u32::from_le_bytes(*word))?;
        }
        for entry in 0..1024 {
            let channel = entry % count as u32;
            bench.write(card_distributor::TABLE, entry | channel << card_distributor::TABLE_CHANNEL_LSB)?;
        }
        for channel in 0..count {
            let base = EACH * (channel as u64 + 1);
            for (address, value) in [
                (register::RING_LOW, base as u32),
                (register::RING_HIGH, (base >> 32) as u32),
                (register::RING, RING_LOG2),
                (register::BUFFER, BUFFER as u32),
                (register::REPORT_LOW, (base + RING_BYTES) as u32),
                (register::REPORT_HIGH, ((base + RING_BYTES) >> 32) as u32),
                (register::REPORT, all.count << register::REPORT_COUNT_LSB | all.time << register::REPORT_TIME_LSB),
                (register::INTERRUPT, 0),
                (register::CONTROL, register::CONTROL_RUN | 1 << register::CONTROL_GENERATION_LSB),
            ] {
                bench.write(channel_register(address, channel), value)?;
            }
            bench.give(channel)?;
        }
        bench.settle()?;
        Ok(bench)
    }

    fn write(&mut self, address: u16, value: u32) -> Result<(), String> {
        match self.device.try_write(address, value)? {
            true => Ok(()),
            false => Err(format!("register {address:#x} refuses {value:#x}")),
        }
    }

    /// Gives all descriptors of a channel, each with a buffer of its own.
    fn give(&mut self, channel: usize) -> Result<(), String> {
        let base = EACH * (channel as u64 + 1);
        let memory = self.device.memory_mut();
        for index in 0..1_u64 << RING_LOG2 {
            let place = index | (channel as u64) << 16 | 1 << 24;
            memory.write(base + 16 * index, &(base + EACH / 2 + BUFFER * index).to_le_bytes());
            memory.write(base + 16 * index + 8, &place.to_le_bytes());
        }
        self.write(channel_register(register::SOFTWARE_POINTER, channel), 1 << RING_LOG2)
    }

    /// Runs for one clock. Notes the last word of a frame to `channel`, and what the reports have counted.
    fn tick(&mut self, queue: &mut VecDeque<usize>) -> Result<(), String> {
        let arrived = self.device.arrived();
        self.device.tick()?;
        let clock = self.device.clock();
        for _ in arrived..self.device.arrived() {
            let channel = queue.pop_front().ok_or("a frame that was not sent")?;
            self.pending[channel].push_back(clock);
        }
        for channel in 0..self.used.len() {
            let counted = self.device.used(channel).wrapping_sub(self.used[channel]);
            self.used[channel] = self.device.used(channel);
            let counted = self.pending[channel].drain(..usize::from(counted));
            self.latencies.extend(counted.map(|arrived| clock - arrived));
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        while self.device.quiet() <= Device::<Memory>::idle_clocks(1) {
            self.device.tick()?;
        }
        Ok(())
    }

    /// Returns the channel of a frame: that which uses a descriptor for it.
    fn channel_of(&mut self, frame: Vec<u8>) -> Result<usize, String> {
        self.device.send(frame, 0);
        self.device.tick()?;
        self.settle()?;
        let changed = (0..self.used.len()).find(|&channel| self.device.used(channel) != self.used[channel]);
        let channel = changed.ok_or("a frame was lost")?;
        self.used[channel] = self.device.used(channel);
        Ok(channel)
    }
}

/// Returns a frame with UDP over IPv4 from a random port. Its checksums are wrong: the card looks at none.
fn frame(random: &mut SplitMix64, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    random.fill_bytes(&mut frame);
    frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, (length - 18) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    let (front, fcs) = frame.split_at_mut(length - 4);
    fcs.copy_from_slice(&crc32(front).to_le_bytes());
    frame
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all = arguments()?;
    if all.frames + 4 * all.channels > 1 << RING_LOG2 {
        return Err(format!("expected at most {} frames", (1 << RING_LOG2) - 4 * all.channels).into());
    }
    let mut bench = Bench::new(&all)?;
    let mut random = SplitMix64::new(7);
    let mut frames = Vec::new();
    for _ in 0..4 * all.channels {
        let frame = frame(&mut random, all.length);
        frames.push((bench.channel_of(frame.clone())?, frame));
    }
    let mut queue = VecDeque::new();
    let (mut sent, mut next) = (0, bench.device.clock());
    while sent < all.frames || bench.pending.iter().any(|pending| !pending.is_empty()) || !queue.is_empty() {
        if sent < all.frames && bench.device.clock() >= next && bench.device.waiting() < 4 {
            let (channel, frame) = &frames[random.below(frames.len() as u64) as usize];
            bench.device.send(frame.clone(), 0);
            queue.push_back(*channel);
            sent += 1;
            // Not always at the same phase of the reports' timers.
            next += all.gap + if all.gap > 0 { random.below(256) } else { 0 };
        }
        bench.tick(&mut queue)?;
    }
    bench.latencies.sort_unstable();
    let at = |share: f64| bench.latencies[(share * (bench.latencies.len() - 1) as f64) as usize];
    println!(
        "{{\"channels\": {}, \"length\": {}, \"gap\": {}, \"count\": {}, \"time\": {}, \"frames\": {}, \"median\": {}, \
         \"p99\": {}, \"longest\": {}}}",
        all.channels,
        all.length,
        all.gap,
        all.count,
        all.time,
        bench.latencies.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
