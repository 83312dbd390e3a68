//! Throughput of the carriers of a link, with pieces of 1 KiB in datagrams of 16 KiB.
//!
//! `cargo run --release -p shotline-transport --example carrier_throughput [seconds]`
//!
//! The sender appends the pieces, passes each datagram on, and sleeps if the path stays full; the receiver counts what
//! has arrived in its private buffer, and sleeps if nothing arrives. Each runs on a processor of its own. `copy` is one copy
//! into memory and one out of it, by one thread. The rate is the mean and that of the best millisecond, to which the time of a
//! KiB belongs.

use rustix::thread::{CpuSet, sched_setaffinity};
use shotline_memory::Region;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_transport::carrier::udp::UdpCarrier;

use shotline_transport::IoError;
use shotline_transport::carrier::{self, Carrier, inproc};
use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PIECE: usize = 1 << 10;
const DATAGRAM: usize = 16 << 10;
/// Other load on the machine disturbs less in the best window.
const WINDOW: Duration = Duration::from_millis(1);
/// Number of fruitless calls after which an end sleeps.
const SPINS: u32 = 2000;

type AnyResult<T> = Result<T, Box<dyn Error>>;

/// Waits briefly at first, then sleeps.
fn idle(carrier: &mut impl Carrier, spins: &mut u32) -> Result<(), IoError> {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
        return Ok(());
    }
    carrier::wait(carrier, Duration::from_millis(10))
}

/// Sends until the peer has gone or `stop` is set. Returns the number of bytes.
fn send(mut carrier: impl Carrier, stop: &AtomicBool) -> Result<u64, IoError> {
    let piece = [0x5A; PIECE];
    let (mut sent, mut spins) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        if carrier.remaining() == 0 {
            carrier.flush()?;
            match carrier.receive() {
                Err(IoError::Disconnected) => break,
                received => received.map(drop)?,
            }
            idle(&mut carrier, &mut spins)?;
            continue;
        }
        spins = 0;
        for _ in 0..DATAGRAM / PIECE {
            carrier.append(&piece);
        }
        carrier.finish()?;
        carrier.flush()?;
        sent += DATAGRAM as u64;
    }
    Ok(sent)
}

/// What was measured.
struct Rates {
    received: u64,
    seconds: f64,
    /// Bytes per second in the best window.
    best: f64,
}

impl Rates {
    /// Calls `step`, which returns a number of bytes, for this time.
    fn measure(seconds: f64, mut step: impl FnMut() -> Result<u64, IoError>) -> Result<Self, IoError> {
        let mut rates = Self { received: 0, seconds: 0.0, best: 0.0 };
        let begin = Instant::now();
        while rates.seconds < seconds {
            let (window_begin, before) = (Instant::now(), rates.received);
            while window_begin.elapsed() < WINDOW {
                for _ in 0..64 {
                    rates.received += step()?;
                }
            }
            let rate = (rates.received - before) as f64 / window_begin.elapsed().as_secs_f64();
            rates.best = rates.best.max(rate);
            rates.seconds = begin.elapsed().as_secs_f64();
        }
        Ok(rates)
    }

    fn print(&self, name: &str, lost: Option<f64>) {
        let mean = self.received as f64 / self.seconds;
        let lost = lost.map(|lost| format!("{:8.1}", 100.0 * lost)).unwrap_or_default();
        println!("{name:<20} {:>8.2} {:>8.2} {:>11.1} {lost}", mean / 1e9, self.best / 1e9, 1024e9 / self.best);
    }
}

/// Receives for this time.
fn receive(carrier: &mut impl Carrier, seconds: f64) -> Result<Rates, IoError> {
    let mut spins = 0;
    while carrier.receive()?.is_none() {
        idle(carrier, &mut spins)?;
    }
    Rates::measure(seconds, || {
        if let Some(datagram) = carrier.receive()? {
            spins = 0;
            return Ok(datagram.len() as u64);
        }
        idle(carrier, &mut spins)?;
        Ok(0)
    })
}

/// Measures two threads.
fn threads<C: Carrier + Send>(name: &str, (near, mut far): (C, C), seconds: f64) -> AnyResult<()> {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let rates = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin_to_cpu(1);
            send(near, &stop).map(|bytes| sent.store(bytes, Ordering::Relaxed))
        });
        let rates = receive(&mut far, seconds);
        stop.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| "the sender panicked")??;
        AnyResult::Ok(rates?)
    })?;
    let sent = sent.into_inner() as f64;
    rates.print(name, name.starts_with("udp").then_some(1.0 - (rates.received as f64 / sent).min(1.0)));
    Ok(())
}

/// Measures shared memory between this process and a second one, which inherits its end of the socket as standard
/// input.
fn processes(seconds: f64) -> AnyResult<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut sender = Command::new(std::env::current_exe()?).arg("sender").stdin(Stdio::from(far)).spawn()?;
    let mut near = ShmCarrier::over(near)?;
    let rates = receive(&mut near, seconds)?;
    drop(near);
    sender.wait()?;
    rates.print("shm, two processes", None);
    Ok(())
}

/// Copies a datagram into a region piece by piece, and out of it.
fn copies(seconds: f64) -> AnyResult<()> {
    let ring = Region::memfd("copies", 4 << 20)?;
    let (piece, mut datagram, mut at) = ([0x5A; PIECE], vec![0; DATAGRAM], 0);
    let rates = Rates::measure(seconds, || {
        (0..DATAGRAM).step_by(PIECE).for_each(|offset| ring.write(at + offset, &piece));
        ring.read(at, &mut datagram);
        at = (at + DATAGRAM) % ring.len();
        Ok(DATAGRAM as u64)
    })?;
    rates.print("copy", None);
    Ok(())
}

fn pin_to_cpu(number: usize) {
    let mut set = CpuSet::new();
    set.set(number);
    let _ = sched_setaffinity(None, &set);
}

fn udp(ip: &str) -> AnyResult<(UdpCarrier, UdpCarrier)> {
    let bind = || UdpCarrier::bind(std::net::SocketAddr::new(ip.parse().unwrap_or([127, 0, 0, 1].into()), 0));
    let (near, far) = (bind()?, bind()?);
    let (to, from) = (far.local_addr(), near.local_addr());
    Ok((near.connect(to, None)?, far.connect(from, None)?))
}

fn main() -> AnyResult<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("sender") {
        pin_to_cpu(1);
        let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0)?;
        send(ShmCarrier::over(socket)?, &AtomicBool::new(false))?;
        return Ok(());
    }
    let seconds = argument.map_or(Ok(1.0), |text| text.parse())?;
    pin_to_cpu(0);
    println!("{:<20} {:>8} {:>8} {:>11} {:>8}", "", "GB/s", "best", "ns per KiB", "lost %");
    copies(seconds)?;
    processes(seconds)?;
    threads("shm, two threads", ShmCarrier::pair()?, seconds)?;
    threads("inproc", inproc::pair(64)?, seconds)?;
    threads("udp, 127.0.0.1", udp("127.0.0.1")?, seconds)?;
    threads("udp, ::1", udp("::1")?, seconds)?;
    Ok(())
}
