//! Tests of the card as a device, with the memory and the software of each test.

use shotline_random::SplitMix64;
use shotline_rtl::card::{Counters, Device, Dma, KEY, channel_register};
use shotline_rtl::registers::{card_channel as register, card_distributor};
use shotline_wire::crc::crc32;

type Result<T = ()> = std::result::Result<T, String>;

/// First address of the memory, and its bytes for each channel.
const BASE: u64 = 0x7_0000_0000;
const EACH: u64 = 1 << 17;
/// Offsets in the memory of a channel.
const REPORT: u64 = 1 << 12;
const BUFFERS: u64 = 1 << 13;
const BUFFER: u64 = 2048;
const RING_LOG2: u32 = 5;
/// An address at which there is no memory.
const NOWHERE: u64 = BASE - (1 << 20);

/// Memory between two addresses.
struct Ram(Vec<u8>);

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        self.0.get_mut(start..start.checked_add(length)?)
    }

    fn read_u64(&mut self, address: u64) -> u64 {
        u64::from_le_bytes(self.at(address, 8).unwrap().try_into().unwrap())
    }
}

impl Dma for Ram {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.at(address, bytes.len()).map(|from| bytes.copy_from_slice(from)).is_some()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.at(address, bytes.len()).map(|to| to.copy_from_slice(bytes)).is_some()
    }

    fn write_report(&mut self, address: u64, report: u64) -> bool {
        self.write(address, &report.to_le_bytes())
    }
}

/// A card with a minimal driver: packets in one buffer, all descriptors given at once.
struct Driver {
    device: Device<Ram>,
    channels: usize,
}

impl Driver {
    fn new(channels: usize) -> Result<Self> {
        let ram = Ram(vec![0; channels * EACH as usize]);
        let mut driver = Self { device: Device::new(100.0, ram, 1 << 60, 1)?, channels };
        driver.distribute()?;
        Ok(driver)
    }

    /// Sets up the distributor: entry n of the table is channel n modulo the number of channels.
    fn distribute(&mut self) -> Result {
        for (&address, word) in card_distributor::KEY.iter().zip(KEY.as_chunks().0) {
            self.write(address, u32::from_le_bytes(*word))?;
        }
        for entry in 0..1024 {
            let channel = entry % self.channels as u32;
            self.write(card_distributor::TABLE, entry | channel << card_distributor::TABLE_CHANNEL_LSB)?;
        }
        Ok(())
    }

    fn write(&mut self, address: u16, value: u32) -> Result {
        match self.device.try_write(address, value)? {
            true => Ok(()),
            false => Err(format!("{address:#x} refuses {value:#x}")),
        }
    }

    fn base(channel: usize) -> u64 {
        BASE + channel as u64 * EACH
    }

    /// Starts a channel and gives all descriptors, with the buffers at `buffers`.
    fn start(&mut self, channel: usize, generation: u8, [ring, report, buffers]: [u64; 3]) -> Result {
        for (address, value) in [
            (register::RING_LOW, ring as u32),
            (register::RING_HIGH, (ring >> 32) as u32),
            (register::RING, RING_LOG2),
            (register::BUFFER, BUFFER as u32),
            (register::REPORT_LOW, report as u32),
            (register::REPORT_HIGH, (report >> 32) as u32),
            (register::REPORT, 4),
            (register::INTERRUPT, register::INTERRUPT_ENABLE),
            (register::CONTROL, register::CONTROL_RUN | u32::from(generation) << register::CONTROL_GENERATION_LSB),
        ] {
            self.write(channel_register(address, channel), value)?;
        }
        for index in 0..1_u64 << RING_LOG2 {
            let word = index | (channel as u64) << 16 | u64::from(generation) << 24;
            let at = Self::base(channel) + 16 * index;
            let memory = self.device.memory_mut();
            assert!(memory.write(at, &(buffers + BUFFER * index).to_le_bytes()));
            assert!(memory.write(at + 8, &word.to_le_bytes()));
        }
        self.write(channel_register(register::SOFTWARE_POINTER, channel), 1 << RING_LOG2)
    }

    fn start_all(&mut self, generation: u8) -> Result {
        for channel in 0..self.channels {
            self.start(channel, generation, Self::addresses(channel))?;
        }
        self.settle()
    }

    /// Returns the addresses of ring, report and buffers.
    fn addresses(channel: usize) -> [u64; 3] {
        let base = Self::base(channel);
        [base, base + REPORT, base + BUFFERS]
    }

    /// Runs until nothing happens any more.
    fn settle(&mut self) -> Result {
        loop {
            self.device.tick()?;
            if self.device.quiet() > Device::<Ram>::idle_clocks(0) {
                return Ok(());
            }
        }
    }

    /// Returns the frames that the last report of a channel counts.
    fn received(&mut self, channel: usize) -> Vec<Vec<u8>> {
        let [_, report, buffers] = Self::addresses(channel);
        let memory = self.device.memory_mut();
        let used = memory.read_u64(report) & 0xFFFF;
        let frame = |memory: &mut Ram, index| {
            let at = buffers + BUFFER * index;
            let length = memory.read_u64(at) as u16;
            memory.at(at + 16, usize::from(length) - 16).unwrap().to_vec()
        };
        (0..used).map(|index| frame(memory, index)).collect()
    }

    fn state(&mut self, channel: usize) -> Result<[u32; 2]> {
        let state = self.device.read(channel_register(register::STATE, channel))?;
        Ok([state & register::STATE_STATE, (state & register::STATE_ERROR) >> register::STATE_ERROR_LSB])
    }

    fn counters(&mut self) -> Result<Vec<Counters>> {
        (0..self.channels).map(|channel| self.device.counters(channel)).collect()
    }
}

/// Returns a frame with FCS, an IPv4 header and random addresses.
fn frame(length: usize, random: &mut SplitMix64) -> Vec<u8> {
    let mut frame = vec![0; length];
    random.fill_bytes(&mut frame);
    frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    let (front, fcs) = frame.split_at_mut(length - 4);
    fcs.copy_from_slice(&crc32(front).to_le_bytes());
    frame
}

#[test]
fn frames_arrive_whole_with_reports_and_interrupts() -> Result {
    let mut driver = Driver::new(4)?;
    driver.start_all(7)?;
    assert_eq!(driver.device.interrupts().count(), 0);
    let mut random = SplitMix64::new(1);
    let frames = (0..60).map(|n| frame(64 + n * 23, &mut random)).collect::<Vec<_>>();
    frames.iter().for_each(|frame| driver.device.send(frame.clone(), 0));
    assert_eq!(driver.device.waiting(), 60);
    driver.settle()?;
    assert_eq!((driver.device.waiting(), driver.device.arrived()), (0, 60));
    let received = (0..4).flat_map(|channel| driver.received(channel)).collect::<Vec<_>>();
    assert_eq!(received.len(), 60);
    assert!(frames.iter().all(|frame| received.iter().any(|found| *found == frame[..frame.len() - 4])));
    assert!(driver.device.interrupts().eq(0..4));
    let used = (0..4).map(|channel| driver.device.used(channel)).sum::<u16>();
    let distributed = driver.device.distributed()?;
    assert_eq!((used, distributed.delivered, distributed.total()), (60, 60, 60));
    Ok(())
}

#[test]
fn refused_accesses_stop_only_their_channel() -> Result {
    let mut driver = Driver::new(4)?;
    let [ring, report, buffers] = Driver::addresses(0);
    driver.start(0, 1, [ring, report, NOWHERE])?;
    driver.start(1, 1, [NOWHERE, Driver::addresses(1)[1], Driver::addresses(1)[2]])?;
    let [ring, _, buffers_2] = Driver::addresses(2);
    driver.start(2, 1, [ring, NOWHERE, buffers_2])?;
    driver.start(3, 1, Driver::addresses(3))?;
    driver.settle()?;
    let mut random = SplitMix64::new(2);
    (0..80).for_each(|_| driver.device.send(frame(100, &mut random), 0));
    driver.settle()?;
    let states = (0..4).map(|channel| driver.state(channel)).collect::<Result<Vec<_>>>()?;
    assert_eq!(states, [[0, 4], [0, 2], [0, 4], [2, 0]]);
    let counters = driver.counters()?;
    assert_eq!(counters.iter().map(|counters| counters.total().packets).sum::<u64>(), 80);
    assert_eq!(driver.received(3).len() as u64, counters[3].received.packets);
    // The others run again with the right addresses.
    driver.start(0, 2, [Driver::addresses(0)[0], report, buffers])?;
    driver.settle()?;
    assert_eq!(driver.state(0)?, [2, 0]);
    Ok(())
}

#[test]
fn channels_stop_and_start_and_a_reset_forgets_all() -> Result {
    let mut driver = Driver::new(1)?;
    let mut random = SplitMix64::new(3);
    let control = channel_register(register::CONTROL, 0);
    for generation in 1..4 {
        driver.start_all(generation)?;
        assert!(!driver.device.try_write(control, register::CONTROL_RUN)?, "it runs");
        (0..5).for_each(|_| driver.device.send(frame(200, &mut random), 0));
        driver.settle()?;
        assert_eq!((driver.received(0).len(), driver.device.used(0)), (5, 5));
        driver.write(control, 0)?;
        driver.settle()?;
        let report = driver.device.memory_mut().read_u64(BASE + REPORT);
        assert_eq!((report, driver.state(0)?), (5 | u64::from(generation) << 16 | 1 << 24, [0, 0]));
    }
    let now_ns = driver.device.now_ns();
    driver.device.skip_to(now_ns + 1_000_000_000);
    driver.device.reset(Ram(vec![0; EACH as usize]))?;
    assert!(driver.device.now_ns() > now_ns + 1_000_000_000);
    assert_eq!((driver.device.arrived(), driver.counters()?), (0, vec![Counters::default()]));
    driver.distribute()?;
    driver.start_all(9)?;
    let at_ns = driver.device.now_ns() + 10_000;
    driver.device.send(frame(300, &mut random), at_ns);
    driver.settle()?;
    assert_eq!(driver.received(0).len(), 1);
    let time = driver.device.memory_mut().read_u64(BASE + BUFFERS + 8);
    assert!((at_ns..at_ns + 50).contains(&time), "{}", time - at_ns);
    Ok(())
}
