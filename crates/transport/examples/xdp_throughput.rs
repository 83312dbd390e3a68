//! Measures the throughput of an AF_XDP or AF_PACKET receiver, for `bench/xdp.py`, which also runs `dpdk-testpmd`.
//!
//! ```text
//! cargo run --release --example xdp_throughput -- receive HOW:INTERFACE ADDRESS:PORT SECONDS [POOL_MIB]
//! cargo run --release --example xdp_throughput -- send ADDRESS:PORT ADDRESS:PORT SECONDS BYTES
//! ```
//!
//! HOW is `xdp`, `ring` (AF_PACKET, through a ring) or `calls` (AF_PACKET, by system calls). `receive` copies the
//! payload of each datagram into registered memory, one slot after the other, for SECONDS after the first packet, and
//! prints one JSON object. `send` sends datagrams of BYTES bytes from the first address to the second, through a
//! socket, in batches that the kernel segments (GSO).

use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::xdp::{XdpConfig, XdpIo};
use shotline_transport::{
    BatchInfo, IoError, PacketIo, PayloadDestination, Pick, RxPacket, SCRATCH_BYTES, Seal, Steer, TxPacket,
};
use std::error::Error;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of Ethernet, IPv4 and UDP headers.
const FRAME_HEADERS: u64 = 42;
const BATCH: usize = 16;
/// The default number of descriptors of testpmd's driver.
const CHUNKS: u32 = 2048;
/// Maximum sleep while there are no packets, in measurements of processor time per packet.
const MAX_SLEEP: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["receive", interface, bind, seconds, rest @ ..] => {
            let pool: u32 = rest.first().map_or(Ok(32), |text| text.parse())?;
            receive(interface, bind, Duration::from_secs_f64(seconds.parse()?), pool.clamp(1, 2048) << 20)
        }
        ["send", bind, to, seconds, bytes] => send(bind, to, Duration::from_secs_f64(seconds.parse()?), bytes.parse()?),
        _ => Err("expected receive HOW:INTERFACE ADDRESS:PORT SECONDS, or send FROM TO SECONDS BYTES".into()),
    }
}

fn memory(bytes: u32) -> Outcome<(Regions, Sge, Sge)> {
    let mut registrar = Registrar::new();
    let pool = Region::host(bytes as usize)?;
    pool.zero(0, bytes as usize); // touch each page before the measurement
    let pool = Sge { region: registrar.add(pool), offset: 0, len: bytes };
    let scratch = registrar.add(Region::host(SCRATCH_BYTES as usize)?);
    Ok((registrar.finish(), pool, Sge { region: scratch, offset: 0, len: SCRATCH_BYTES }))
}

/// Receives payloads into one slot after the other.
struct Slots {
    pool: Sge,
    next: u32,
    packets: u64,
    bytes: u64,
}

impl Steer for Slots {
    fn header_len(&mut self, _seen: &BatchInfo<'_>) -> usize {
        0
    }
    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        let slot_bytes = seen.segment.next_multiple_of(64);
        for pick in picks {
            if self.next + slot_bytes > self.pool.len {
                self.next = 0;
            }
            let slot = Sge { offset: self.pool.offset + u64::from(self.next), len: slot_bytes, ..self.pool };
            pick.destination = PayloadDestination::Memory([slot, Sge::EMPTY]);
            self.next += slot_bytes;
        }
    }
    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }
    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        for done in batch.iter().filter(|done| done.fault.is_none()) {
            self.bytes += u64::from(done.len) + FRAME_HEADERS;
            self.packets += 1;
        }
    }
}

fn receive(how: &str, bind: &str, duration: Duration, pool: u32) -> Outcome<()> {
    let (regions, pool, scratch) = memory(pool)?;
    let (how, interface) = how.split_once(':').ok_or("expected HOW:INTERFACE")?;
    let slots = Slots { pool, next: 0, packets: 0, bytes: 0 };
    let ring = match how {
        "xdp" => {
            let config = XdpConfig::new(interface, bind.parse()?, scratch);
            let config = XdpConfig { sealed: false, remainders: false, chunks: CHUNKS, ..config };
            let io = XdpIo::open(config, &regions)?;
            eprintln!("listening, {}", if io.is_native() { "in the driver" } else { "in the kernel's generic path" });
            let lost = |io: &XdpIo| io.xdp_counters().no_chunk + io.xdp_counters().dropped;
            return measure(io, slots, duration, None, lost);
        }
        "ring" => true,
        "calls" => false,
        _ => return Err("expected xdp, ring or calls".into()),
    };
    let config = FrameConfig {
        interface: interface.into(),
        bind: bind.parse()?,
        peer: None,
        sealed: false,
        remainders: false,
        capacity: 1,
        scratch,
        receive_buffer: 64 << 20,
        ring,
        ecn: false,
    };
    eprintln!("listening");
    let io = FrameIo::open(config, &regions)?;
    measure(io, slots, duration, Some(MAX_SLEEP), |io| io.device_counters().lost())
}

/// Receives for `duration` after the first packet; `max_sleep` is the maximum sleep while there are no packets.
fn measure<P: PacketIo>(
    mut io: P,
    mut slots: Slots,
    duration: Duration,
    max_sleep: Option<Duration>,
    lost: impl Fn(&P) -> u64,
) -> Outcome<()> {
    let opened = Instant::now();
    while slots.packets == 0 {
        io.wait(Duration::from_millis(10))?;
        io.poll(&mut slots, BATCH)?;
        if opened.elapsed() > TIMEOUT {
            return Err(IoError::Config("no packet arrived".into()).into());
        }
    }
    let (started, before) = (Instant::now(), processor()?);
    (slots.packets, slots.bytes) = (0, 0);
    while started.elapsed() < duration {
        // Without sleeping, the poll loop is that of testpmd.
        for _ in 0..64 {
            if let (0, Some(max_sleep)) = (io.poll(&mut slots, 64)?, max_sleep) {
                io.wait(max_sleep)?;
                break;
            }
        }
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), (processor()? - before).as_secs_f64());
    println!(
        r#"{{"packets": {}, "seconds": {seconds:.3}, "cpu_s": {cpu:.3}, "gbps": {:.3}, "lost": {}}}"#,
        slots.packets,
        slots.bytes as f64 * 8e-9 / seconds,
        lost(&io),
    );
    Ok(())
}

/// Returns the processor time of this process.
fn processor() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ran: u64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(ran))
}

fn send(bind: &str, to: &str, duration: Duration, bytes: u32) -> Outcome<()> {
    let (regions, pool, scratch) = memory(1 << 20)?;
    let config = UdpConfig {
        bind: bind.parse()?,
        sealed: false,
        capacity: 1,
        scratch,
        receive_buffer: 1 << 16,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    let mut io = UdpIo::open(&config, &regions)?;
    let to = to.parse()?;
    let gather = [Sge { len: bytes, ..pool }];
    let batch = [TxPacket { header: &[], gather: &gather, seal: Seal::None }; BATCH];
    let (started, mut packets) = (Instant::now(), 0);
    while started.elapsed() < duration {
        for _ in 0..64 {
            packets += io.send(to, &batch)?;
        }
    }
    println!(r#"{{"packets": {packets}, "seconds": {:.3}}}"#, started.elapsed().as_secs_f64());
    Ok(())
}
