//! What an AF_XDP or AF_PACKET receiver takes from an interface, for `bench/xdp.py`, which runs `dpdk-testpmd` beside it.
//!
//! ```text
//! cargo run --release --example xdp_throughput -- receive HOW:INTERFACE ADDRESS:PORT SECONDS [POOL_MIB]
//! cargo run --release --example xdp_throughput -- send ADDRESS:PORT ADDRESS:PORT SECONDS BYTES
//! ```
//!
//! HOW is `xdp`, `ring` (AF_PACKET, through a ring) or `calls` (AF_PACKET, by system calls). `receive` copies the payload of each datagram into registered memory, one place after the other, for so long after
//! the first has come, and prints one JSON object. `send` sends datagrams of so many bytes from the first address to the
//! second, through a socket, in batches that the kernel cuts (GSO).

use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::xdp::{XdpConfig, XdpIo};
use shotline_transport::{Done, IoError, PacketIo, Pick, SCRATCH_BYTES, Seal, Seen, Send, Steer, To};
use std::error::Error;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of Ethernet, IPv4 and UDP headers.
const FRAME_HEADERS: u64 = 42;
const BATCH: usize = 16;
/// As many descriptors as testpmd's driver has by itself.
const CHUNKS: u32 = 2048;
/// A receiver that measures its processor time a packet sleeps where there is nothing.
const NAP: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

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
    pool.zero(0, bytes as usize); // its first touch is not measured
    let pool = Sge { region: registrar.add(pool), offset: 0, len: bytes };
    let scratch = registrar.add(Region::host(SCRATCH_BYTES as usize)?);
    Ok((registrar.finish(), pool, Sge { region: scratch, offset: 0, len: SCRATCH_BYTES }))
}

/// One place after the other.
struct Slots {
    pool: Sge,
    next: u32,
    packets: u64,
    bytes: u64,
}

impl Steer for Slots {
    fn header_len(&mut self, _seen: &Seen<'_>) -> usize {
        0
    }
    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        let room = seen.segment.next_multiple_of(64);
        for pick in picks {
            if self.next + room > self.pool.len {
                self.next = 0;
            }
            let place = Sge { offset: self.pool.offset + u64::from(self.next), len: room, ..self.pool };
            pick.to = To::Memory([place, Sge::EMPTY]);
            self.next += room;
        }
    }
    fn expect(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }
    fn around(&self, _to: To) -> [u32; 2] {
        [0; 2]
    }
    fn landed(&mut self, batch: &[Done<'_>]) {
        for done in batch.iter().filter(|done| done.fault.is_none()) {
            self.bytes += u64::from(done.len) + FRAME_HEADERS;
            self.packets += 1;
        }
    }
}

fn receive(how: &str, bind: &str, length: Duration, pool: u32) -> Outcome<()> {
    let (regions, pool, scratch) = memory(pool)?;
    let (how, interface) = how.split_once(':').ok_or("expected HOW:INTERFACE")?;
    let slots = Slots { pool, next: 0, packets: 0, bytes: 0 };
    let ring = match how {
        "xdp" => {
            let config = XdpConfig::new(interface, bind.parse()?, scratch);
            let config = XdpConfig { sealed: false, remainders: false, chunks: CHUNKS, ..config };
            let io = XdpIo::open(config, &regions)?;
            eprintln!("listening, {}", if io.is_native() { "in the driver" } else { "in the kernel's own path" });
            let lost = |io: &XdpIo| io.statistics().no_chunk + io.statistics().dropped;
            return measure(io, slots, length, None, lost);
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
    measure(io, slots, length, Some(NAP), |io| io.device().lost())
}

/// Receives for so long after the first packet; `nap` is how long to sleep at most where there is nothing.
fn measure<P: PacketIo>(
    mut io: P,
    mut slots: Slots,
    length: Duration,
    nap: Option<Duration>,
    lost: impl Fn(&P) -> u64,
) -> Outcome<()> {
    let opened = Instant::now();
    while slots.packets == 0 {
        io.wait(Duration::from_millis(10))?;
        io.poll(&mut slots, BATCH)?;
        if opened.elapsed() > PATIENCE {
            return Err(IoError::Config("nothing came".into()).into());
        }
    }
    let (begun, before) = (Instant::now(), processor()?);
    (slots.packets, slots.bytes) = (0, 0);
    while begun.elapsed() < length {
        // Without a nap: as testpmd does.
        for _ in 0..64 {
            if let (0, Some(nap)) = (io.poll(&mut slots, 64)?, nap) {
                io.wait(nap)?;
                break;
            }
        }
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), (processor()? - before).as_secs_f64());
    println!(
        r#"{{"packets": {}, "seconds": {seconds:.3}, "cpu_s": {cpu:.3}, "gbps": {:.3}, "lost": {}}}"#,
        slots.packets,
        slots.bytes as f64 * 8e-9 / seconds,
        lost(&io),
    );
    Ok(())
}

/// What this process has used of the processor.
fn processor() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ran: u64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(ran))
}

fn send(bind: &str, to: &str, length: Duration, bytes: u32) -> Outcome<()> {
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
    let batch = [Send { header: &[], gather: &gather, seal: Seal::None }; BATCH];
    let (begun, mut packets) = (Instant::now(), 0);
    while begun.elapsed() < length {
        for _ in 0..64 {
            packets += io.send(to, &batch)?;
        }
    }
    println!(r#"{{"packets": {packets}, "seconds": {:.3}}}"#, begun.elapsed().as_secs_f64());
    Ok(())
}
