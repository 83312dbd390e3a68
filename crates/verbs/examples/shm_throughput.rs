//! Throughput and latency of writing and reading another process's memory through the shared-memory provider.
//!
//! `cargo run --release -p shotline-verbs --example shm_throughput [seconds [target's processor [own processor]]]`
//!
//! Starts itself a second time as the target, which sleeps during the throughput measurement and answers a ping-pong
//! for the latency. Hot: the same buffer repeatedly, as in `ucx_perftest`. Cold: buffers spread over 512 MiB on both
//! sides.
//!
//! For comparison: `UCX_TLS=posix,cma,self ucx_perftest -p PORT` on one processor, and on another
//! `UCX_TLS=posix,cma,self ucx_perftest 127.0.0.1 -p PORT -t ucp_put_bw -s SIZE` (`ucp_get`, `ucp_put_lat`).

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    Remote, SendWr, Status,
};
use shotline_verbs::shm::{ShmEndpoint, ShmListener};
use shotline_wire::aeth::RnrTimer;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMORY: u64 = 512 << 20;
/// Requests posted with one doorbell.
const GROUP: usize = 32;
/// Offset of the peer's counter, and of the source of our own, for the ping-pong.
const PING_OFFSET: usize = 0;
const PONG_SOURCE: u64 = 64;
const ROUNDS: u64 = 200_000;

type AnyResult<T> = Result<T, Box<dyn Error>>;

struct Side {
    shm: ShmEndpoint,
    cq: Cq,
    qp: Qp,
    region: Arc<Region>,
    mr: Mr,
}

impl Side {
    fn new(mut shm: ShmEndpoint) -> AnyResult<Self> {
        let pd = shm.alloc_pd()?;
        let cq = shm.create_cq(1024)?;
        let qp = shm.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
        let region = Region::memfd("throughput", MEMORY as usize)?;
        let mr = shm.reg_mr(pd, &region, 0, MEMORY, Access::ALL, Addressing::ZeroBased)?;
        shm.publish("memory", &mr)?;
        Ok(Self { shm, cq, qp, region, mr })
    }

    /// Connects to the peer's queue pair, and waits for the key of its memory.
    fn connect(&mut self, peer: u32) -> AnyResult<u32> {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse()?, peer)),
            mtu: Mtu::B4096,
            psn: 0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).ok_or("no such timer")?,
            ack_every: 0,
        };
        let timeout = Duration::from_secs(5);
        let send = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        for change in [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
            self.shm.modify_qp(self.qp, change)?;
        }
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Some(memory) = self.shm.peer_region("memory") {
                return Ok(memory.rkey);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("the peer has published no memory".into())
    }

    /// Returns GiB/s and nanoseconds per operation in CPU time, so that other load on the machine has less influence.
    fn rate(&mut self, rkey: u32, size: u64, spread: u64, write: bool, seconds: f64) -> AnyResult<(f64, f64)> {
        let group = GROUP as u64;
        // Whole groups in sequence; a single buffer has one slot.
        let slots = (spread / size.max(1) / group * group).max(1);
        let step = if slots == 1 { 0 } else { size };
        let (mut done, mut posted, mut slot) = (0_u64, 0_u64, 0_u64);
        let mut out = [Completion::default(); GROUP];
        let (begin, cpu_start) = (Instant::now(), cpu_time());
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..(1 << 20) / (size * group).max(1 << 14) + 1 {
                let elements: [Element; GROUP] = std::array::from_fn(|index| {
                    let address = slot * step + index as u64 * step;
                    Element { address, len: size as u32, lkey: self.mr.lkey }
                });
                let requests: [SendWr<'_>; GROUP] = std::array::from_fn(|index| {
                    let remote = Remote { address: elements[index].address, rkey };
                    let operation = if write { Operation::Write(remote) } else { Operation::Read(remote) };
                    SendWr::new(posted, operation, Data::Elements(std::slice::from_ref(&elements[index])))
                });
                self.shm.post_send(self.qp, &requests).map_err(|(_, error)| error)?;
                slot = if slot + 2 * group > slots { 0 } else { slot + group };
                posted += group;
                while done < posted {
                    let found = self.shm.poll_cq(self.cq, &mut out)?;
                    if out[..found].iter().any(|done| done.status != Status::Success) {
                        return Err("an operation failed".into());
                    }
                    done += found as u64;
                }
            }
        }
        let elapsed = cpu_time() - cpu_start;
        Ok(((done * size) as f64 / elapsed / f64::from(1 << 30), elapsed * 1e9 / done as f64))
    }

    /// Returns GiB/s of a plain copy in this process's memory, the upper bound of the throughput.
    fn copy_rate(&self, size: u64, spread: u64, seconds: f64) -> f64 {
        let slots = (spread / 2 / size).max(1);
        let (mut done, begin, cpu_start) = (0_u64, Instant::now(), cpu_time());
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..(1 << 20) / size.max(1 << 14) * 4 + 1 {
                let offset = (done % slots * size) as usize;
                self.region.copy_from(MEMORY as usize / 2 + offset, &self.region, offset, size as usize);
                done += 1;
            }
        }
        (done * size) as f64 / (cpu_time() - cpu_start) / f64::from(1 << 30)
    }

    /// Writes an 8-byte counter to the peer's memory, and polls the completion.
    fn ping(&mut self, rkey: u32, ping: u64) -> AnyResult<()> {
        self.region.write(PONG_SOURCE as usize, &ping.to_ne_bytes());
        let element = [Element { address: PONG_SOURCE, len: 8, lkey: self.mr.lkey }];
        let operation = Operation::Write(Remote { address: PING_OFFSET as u64, rkey });
        self.shm.post_send(self.qp, &[SendWr::new(ping, operation, Data::Elements(&element))]).map_err(|(_, e)| e)?;
        self.shm.poll_cq(self.cq, &mut [Completion::default()])?;
        Ok(())
    }
    fn await_ping(&self, ping: u64) {
        let mut bytes = [0; 8];
        while u64::from_ne_bytes(bytes) != ping {
            std::hint::spin_loop();
            self.region.read(PING_OFFSET, &mut bytes);
        }
    }
}

/// Returns the CPU time of this thread in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn pin_to_cpu(number: usize) {
    let mut set = CpuSet::new();
    set.set(number);
    let _ = sched_setaffinity(None, &set);
}

/// Reads a number from a line of the other process.
fn number(from: &mut impl BufRead) -> AnyResult<u32> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim().parse()?)
}

fn main() -> AnyResult<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, target, path, processor] = &arguments[..]
        && target == "target"
    {
        return serve(path, processor.parse()?);
    }
    let argument = |index: usize, default: f64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let seconds = argument(1, 1.0)?;
    pin_to_cpu(argument(3, 1.0)? as usize);
    let path = std::env::temp_dir().join(format!("shm-throughput-{}", std::process::id()));
    let listener = ShmListener::bind(&path)?;
    let mut target = Command::new(std::env::current_exe()?)
        .args(["target", &path.to_string_lossy(), &argument(2, 0.0)?.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut side = Side::new(listener.accept()?)?;
    let (mut to, mut from) = (target.stdin.take().ok_or("no pipe")?, target.stdout.take().map(BufReader::new));
    writeln!(to, "{}", side.qp.0)?;
    let peer = number(from.as_mut().ok_or("no pipe")?)?;
    let rkey = side.connect(peer)?;

    println!(
        "{:>9} {:>5} {:>12} {:>9} {:>12} {:>9} {:>12}",
        "bytes", "", "write GiB/s", "ns", "read GiB/s", "ns", "copy GiB/s"
    );
    for size in [8, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        for (name, spread) in [("hot", size), ("cold", MEMORY)] {
            let (write, write_ns) = side.rate(rkey, size, spread, true, seconds)?;
            let (read, read_ns) = side.rate(rkey, size, spread, false, seconds)?;
            let copy = side.copy_rate(size, spread, seconds);
            println!("{size:>9} {name:>5} {write:>12.2} {write_ns:>9.1} {read:>12.2} {read_ns:>9.1} {copy:>12.2}");
        }
    }
    let (_, post) = side.rate(rkey, 0, 1, true, seconds)?;
    println!("post and completion without data, in groups of {GROUP}: {post:.1} ns per operation");
    side.region.zero(PING_OFFSET, 8);
    writeln!(to, "1")?;
    number(from.as_mut().ok_or("no pipe")?)?;
    let begin = Instant::now();
    for ping in 1..=ROUNDS {
        side.ping(rkey, ping)?;
        side.await_ping(ping);
    }
    println!("latency of a polled WRITE of 8 bytes (half of the round trip): {:.1} ns", {
        begin.elapsed().as_secs_f64() * 1e9 / (2 * ROUNDS) as f64
    });
    target.wait()?;
    Ok(())
}

/// The target: sleeps, then answers each ping.
fn serve(path: &str, processor: usize) -> AnyResult<()> {
    pin_to_cpu(processor);
    let mut side = Side::new(ShmEndpoint::connect(path)?)?;
    println!("{}", side.qp.0);
    let mut from = std::io::stdin().lock();
    let peer = number(&mut from)?;
    let rkey = side.connect(peer)?;
    number(&mut from)?;
    side.region.zero(PING_OFFSET, 8);
    println!("1");
    for ping in 1..=ROUNDS {
        side.await_ping(ping);
        side.ping(rkey, ping)?;
    }
    Ok(())
}
