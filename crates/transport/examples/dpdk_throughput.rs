//! Measures the throughput of a DPDK port, for `bench/memif.py`, which also runs `dpdk-testpmd`.
//!
//! ```text
//! cargo run --release --features dpdk --example dpdk_throughput -- ROLE DEVICE SECONDS [BYTES [POOL_MIB [LOOK]]]
//! ```
//!
//! Roles: `slots` receives datagrams in frames of `BYTES` bytes, payloads into consecutive slots; `frames` sends such
//! frames as prebuilt ones; `shots` receives shots of a probe as RoCEv2 UD packets of 4096 bytes into contiguous
//! buffers, one fewer than the probe has patterns, and verifies every ICRC; `probe` sends them, and computes every
//! ICRC. The receivers open a memif as its server, wait for the sender, and print one JSON object `SECONDS` after its
//! first packet; with `LOOK` they read each frame's header before choosing its destination. Senders stop when the link
//! goes down; with `zero-copy=yes` in the device's arguments their frames are read in place.

use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_transport::dpdk::{DpdkConfig, DpdkIo, EalConfig};
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::{
    BatchInfo, Icrc, PacketIo, PayloadDestination, PayloadLocation, Pick, RxPacket, SCRATCH_BYTES, Seal, Steer,
    TxPacket,
};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::deth::Deth;
use shotline_wire::imm::ImmDt;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PAYLOAD: u32 = 4096;
const HEADER: usize = Bth::LEN + Deth::LEN + ImmDt::LEN;
/// Packets of a shot of 96 channels, 2000 samples of 12 bits each, with its record.
const PACKETS: u32 = 71;
/// Number of distinct shot numbers.
const SHOTS: u32 = 1 << 20;
const SHOT_BYTES: u32 = PACKETS * PAYLOAD;
const QUEUE_PAIR: u32 = 0x11;
const Q_KEY: u32 = 0x1234_5678;
const BATCH: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, device, seconds, rest @ ..] = words.as_slice() else {
        return Err("expected ROLE DEVICE SECONDS [BYTES [POOL_MIB [LOOK]]]".into());
    };
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let frame: u32 = rest.first().map_or(Ok(PAYLOAD), |text| text.parse())?;
    let pool_mib: u32 = rest.get(1).map_or(Ok(32), |text| text.parse())?;
    let predicts = rest.get(2).is_none();
    let memory = Memory::new(pool_mib.clamp(1, 2048) << 20)?;
    let sealed = matches!(role.as_str(), "shots" | "probe");
    // The addresses in dpdk-testpmd's packets, which it sends to the second.
    let (sender, receiver) = ("198.18.0.1:49152".parse()?, "198.18.0.2:4791".parse()?);
    let bind: SocketAddr = if matches!(role.as_str(), "slots" | "shots") { receiver } else { sender };
    let mut config = DpdkConfig { sealed, remainders: false, ..DpdkConfig::new(device, bind, memory.scratch) };
    config.eal = EalConfig { memory_mib: 128 + pool_mib, ..EalConfig::default() };
    let mut io = DpdkIo::open(config, &memory.regions)?;
    match role.as_str() {
        "slots" => receive(
            &mut io,
            &mut Slots { memory: &memory, payload: frame - FRAME_HEADERS, predicts, next: 0, bytes: 0, packets: 0 },
            duration,
        ),
        "shots" => receive(&mut io, &mut Shots::new(&memory, predicts), duration),
        "frames" => send_frames(&mut io, &memory, receiver, frame, duration),
        "probe" => send_shots(&mut io, &memory, receiver, duration),
        _ => Err(format!("no role {role}: slots, shots, frames or probe").into()),
    }
}

/// A pool and scratch memory.
struct Memory {
    pool: Arc<Region>,
    pool_sge: Sge,
    scratch: Sge,
    regions: Regions,
}

impl Memory {
    fn new(bytes: u32) -> Outcome<Self> {
        let mut registrar = Registrar::new();
        let pool = Region::huge(bytes as usize).or_else(|_| Region::host(bytes as usize))?;
        for page in 0..bytes as usize / 4096 {
            pool.zero(page * 4096, 8); // touch each page before the measurement
        }
        let pool_sge = Sge { region: registrar.add(Arc::clone(&pool)), offset: 0, len: bytes };
        let scratch = registrar.add(Region::host(SCRATCH_BYTES as usize)?);
        let scratch = Sge { region: scratch, offset: 0, len: SCRATCH_BYTES };
        Ok(Self { pool, pool_sge, scratch, regions: registrar.finish() })
    }

    fn at(&self, offset: u32, len: u32) -> Sge {
        Sge { offset: u64::from(offset), len, ..self.pool_sge }
    }

    /// Number of whole shots that fit in the pool.
    fn shots(&self) -> u32 {
        self.pool_sge.len / SHOT_BYTES
    }

    /// Fills the pool with words that depend on their offset.
    fn fill(&self) {
        for at in (0..u64::from(self.pool_sge.len)).step_by(8) {
            self.pool.write(at as usize, &word(at));
        }
    }
}

/// Returns the processor time of this thread, in seconds.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn word(at: u64) -> [u8; 8] {
    at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

/// A steer with counters for the measurement.
trait MeasuredSteer: Steer {
    /// Returns the bytes that the rate is computed from, and the packets.
    fn bytes_and_packets(&self) -> (u64, u64);
    /// Returns further results, as members of a JSON object.
    fn details(&self) -> Outcome<String>;
}

fn receive<S: MeasuredSteer>(io: &mut DpdkIo, steer: &mut S, duration: Duration) -> Outcome<()> {
    io.wait_link(TIMEOUT)?;
    let mut run = |until: Instant, first: bool| -> Outcome<()> {
        while Instant::now() < until && (!first || steer.bytes_and_packets().1 == 0) {
            for _ in 0..64 {
                io.poll(steer, 4 * BATCH)?;
            }
        }
        Ok(())
    };
    run(Instant::now() + TIMEOUT, true)?;
    eprintln!("receiving");
    run(Instant::now() + duration / 4, false)?; // warm up caches, and let the sender reach its full rate
    let (before, started) = (steer.bytes_and_packets(), Instant::now());
    // Processor time, excluding polls that return nothing.
    let mut cpu = 0.0;
    let until = started + duration;
    while Instant::now() < until {
        let before = thread_seconds();
        let packets = io.poll(steer, 4 * BATCH)?;
        cpu += if packets > 0 { thread_seconds() - before } else { 0.0 };
    }
    let seconds = started.elapsed().as_secs_f64();
    let (bytes, packets) = steer.bytes_and_packets();
    let (bytes, packets) = (bytes - before.0, packets - before.1);
    let counters = io.dpdk_counters();
    println!(
        "{{\"gbps\": {:.3}, \"packets\": {packets}, \"seconds\": {seconds:.6}, \"cpu_s\": {cpu:.6}, \"link_downs\": {}, \"missed\": {}, {}}}",
        bytes as f64 * 8e-9 / seconds,
        counters.link_downs,
        counters.causes().iter().map(|(_, count)| count).sum::<u64>(),
        steer.details()?
    );
    Ok(())
}

/// Receives every payload into the next slot. Counts the bytes of frames with their headers, as testpmd does.
struct Slots<'a> {
    memory: &'a Memory,
    payload: u32,
    predicts: bool,
    next: u32,
    bytes: u64,
    packets: u64,
}

/// Bytes of Ethernet, IPv4 and UDP headers.
const FRAME_HEADERS: u32 = 42;

impl Slots<'_> {
    fn wrap_at_end(&mut self, bytes: u32) {
        if self.next + bytes > self.memory.pool_sge.len {
            self.next = 0;
        }
    }
}

impl Steer for Slots<'_> {
    fn header_len(&mut self, _seen: &BatchInfo<'_>) -> usize {
        0
    }
    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        let slot = seen.segment.next_multiple_of(64);
        for pick in picks {
            self.wrap_at_end(slot);
            pick.destination = PayloadDestination::Memory([self.memory.at(self.next, slot), Sge::EMPTY]);
        }
    }
    fn predict(&mut self, picks: &mut [Pick]) -> usize {
        if !self.predicts {
            return 0;
        }
        self.wrap_at_end(self.payload);
        picks[0] = Pick {
            destination: PayloadDestination::Memory([self.memory.at(self.next, self.payload), Sge::EMPTY]),
            header_len: Some(0),
        };
        1
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [self.next, self.memory.pool_sge.len - self.next - self.payload]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        for done in batch.iter().filter(|done| done.fault.is_none()) {
            self.next += done.len.next_multiple_of(64);
            self.bytes += u64::from(done.len + FRAME_HEADERS);
            self.packets += 1;
        }
    }
}

impl MeasuredSteer for Slots<'_> {
    fn bytes_and_packets(&self) -> (u64, u64) {
        (self.bytes, self.packets)
    }
    fn details(&self) -> Outcome<String> {
        Ok("\"what\": \"frames\"".into())
    }
}

/// Receives every payload to its offset in its shot.
struct Shots<'a> {
    memory: &'a Memory,
    /// For each buffer: its shot, and a bitmap of the packets received.
    buffers: Vec<(u32, u128)>,
    /// The expected next shot and packet.
    next: (u32, u32),
    predicts: bool,
    complete: u64,
    bytes: u64,
    packets: u64,
    faults: u64,
}

impl<'a> Shots<'a> {
    fn new(memory: &'a Memory, predicts: bool) -> Self {
        Self {
            memory,
            next: (0, 0),
            predicts,
            buffers: vec![(u32::MAX, 0); memory.shots() as usize - 1],
            complete: 0,
            bytes: 0,
            packets: 0,
            faults: 0,
        }
    }

    /// Returns the shot and packet number of a header.
    fn numbers(header: &[u8]) -> Option<(u32, u32)> {
        let (bth, rest) = Bth::parse(header).ok()?;
        let (deth, rest) = Deth::parse(rest).ok()?;
        let (imm, _) = ImmDt::parse(rest).ok()?;
        let ours = bth.opcode == Opcode::UdSendOnlyImm && bth.dest_qp == QUEUE_PAIR && deth.q_key == Q_KEY;
        let (shot, packet) = (imm.0 >> 12, imm.0 & 0xFFF);
        (ours && packet < PACKETS).then_some((shot, packet))
    }

    fn buffer(&self, shot: u32) -> u32 {
        shot % self.buffers.len() as u32
    }
}

impl Steer for Shots<'_> {
    fn header_len(&mut self, _seen: &BatchInfo<'_>) -> usize {
        HEADER
    }
    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        let Some((shot, packet)) = Self::numbers(seen.first) else { return };
        let begin = self.buffer(shot) * SHOT_BYTES;
        for (pick, packet) in picks.iter_mut().zip(packet..PACKETS) {
            pick.destination =
                PayloadDestination::Memory([self.memory.at(begin + packet * PAYLOAD, PAYLOAD), Sge::EMPTY]);
        }
    }
    fn predict(&mut self, picks: &mut [Pick]) -> usize {
        if !self.predicts || self.packets == 0 {
            return 0;
        }
        let (shot, packet) = self.next;
        let slot = self.memory.at(self.buffer(shot) * SHOT_BYTES + packet * PAYLOAD, PAYLOAD);
        picks[0] =
            Pick { destination: PayloadDestination::Memory([slot, Sge::EMPTY]), header_len: Some(HEADER as u16) };
        1
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [self.next.1 * PAYLOAD, (PACKETS - 1 - self.next.1) * PAYLOAD]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        for done in batch {
            let numbers = Self::numbers(done.header);
            let good =
                done.icrc == Icrc::Good && matches!(done.landed, PayloadLocation::Memory(_)) && done.len == PAYLOAD;
            let Some((shot, packet)) = numbers.filter(|_| good) else {
                self.faults += 1;
                continue;
            };
            self.next = if packet + 1 == PACKETS { ((shot + 1) % SHOTS, 0) } else { (shot, packet + 1) };
            let index = self.buffer(shot) as usize;
            let (held, seen) = &mut self.buffers[index];
            if *held != shot {
                (*held, *seen) = (shot, 0);
            }
            *seen |= 1 << packet;
            self.complete += u64::from(packet + 1 == PACKETS && seen.count_ones() == PACKETS);
            self.bytes += u64::from(done.len);
            self.packets += 1;
        }
    }
}

impl MeasuredSteer for Shots<'_> {
    fn bytes_and_packets(&self) -> (u64, u64) {
        (self.bytes, self.packets)
    }
    /// Verifies the content of every buffer that holds a complete shot.
    fn details(&self) -> Outcome<String> {
        let mut bytes = vec![0; SHOT_BYTES as usize];
        let mut checked = 0;
        for (index, (shot, seen)) in self.buffers.iter().enumerate() {
            if seen.count_ones() != PACKETS {
                continue;
            }
            self.memory.pool.read(index * SHOT_BYTES as usize, &mut bytes);
            let begin = u64::from(shot % self.memory.shots()) * u64::from(SHOT_BYTES);
            let (words, _) = bytes.as_chunks::<8>();
            if !words.iter().zip((begin..).step_by(8)).all(|(found, at)| *found == word(at)) {
                return Err(format!("shot {shot} is not as it was sent").into());
            }
            checked += 1;
        }
        Ok(format!("\"shots\": {}, \"faults\": {}, \"shots_compared\": {checked}", self.complete, self.faults))
    }
}

fn send_frames(io: &mut DpdkIo, memory: &Memory, to: SocketAddr, frame: u32, duration: Duration) -> Outcome<()> {
    let stride = frame.next_multiple_of(64);
    let mut region = memory.pool_sge.region;
    if let Some(own) = io.frame_memory(memory.pool_sge.len as usize)? {
        let (regions, id) = memory.regions.with(own).ok_or("too many regions")?;
        io.register(&regions);
        region = id;
    }
    let run = FrameRun { region, offset: 0, stride, len: frame, count: memory.pool_sge.len / stride };
    for index in 0..run.count {
        io.prebuild(to, run.frame(index))?;
    }
    io.wait_link(TIMEOUT)?;
    let end = Instant::now() + duration;
    while io.link_is_up() && Instant::now() < end {
        let mut taken = 0;
        while taken < run.count as usize && io.link_is_up() {
            taken += io.send_prebuilt(to, run.after(taken))?;
        }
    }
    Ok(())
}

fn send_shots(io: &mut DpdkIo, memory: &Memory, to: SocketAddr, duration: Duration) -> Outcome<()> {
    memory.fill();
    io.wait_link(TIMEOUT)?;
    let end = Instant::now() + duration;
    let mut headers = [[0; HEADER]; BATCH];
    let mut gathers = [[Sge::EMPTY; 1]; BATCH];
    let mut psn = 0_u32;
    for shot in (0..SHOTS).cycle() {
        if !io.link_is_up() || Instant::now() >= end {
            break;
        }
        let begin = shot % memory.shots() * SHOT_BYTES;
        let mut next = 0;
        while next < PACKETS {
            let count = BATCH.min((PACKETS - next) as usize);
            for (index, packet) in (next..).take(count).enumerate() {
                let bth = Bth { solicited: packet + 1 == PACKETS, ..Bth::new(Opcode::UdSendOnlyImm, QUEUE_PAIR, psn) };
                psn = (psn + 1) & 0xFF_FFFF;
                headers[index][..12].copy_from_slice(&bth.emit());
                headers[index][12..20].copy_from_slice(&Deth { q_key: Q_KEY, src_qp: QUEUE_PAIR }.emit());
                headers[index][20..].copy_from_slice(&ImmDt(shot << 12 | packet).emit());
                gathers[index] = [memory.at(begin + packet * PAYLOAD, PAYLOAD)];
            }
            let sends: [TxPacket<'_>; BATCH] =
                std::array::from_fn(|i| TxPacket { header: &headers[i], gather: &gathers[i], seal: Seal::Compute });
            let mut taken = 0;
            while taken < count && io.link_is_up() {
                taken += io.send(to, &sends[taken..count])?;
            }
            next += count as u32;
        }
    }
    Ok(())
}
