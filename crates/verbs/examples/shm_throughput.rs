//! How fast one process writes and reads another's memory through the shared-memory provider.
//!
//! `cargo run --release -p shotline-verbs --example shm_throughput [seconds [target's processor [own processor]]]`
//!
//! Starts itself a second time as the target, which sleeps while its memory is written and read, and plays ping-pong for
//! the latency. Hot: one buffer again and again, as `ucx_perftest` has it. Cold: buffers all over 512 MiB on both sides.
//!
//! To compare: `UCX_TLS=posix,cma,self ucx_perftest -p PORT` on one processor, and on another
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
/// Requests with one doorbell.
const GROUP: usize = 32;
/// Where the other side writes its turn, and where a turn is written from.
const TURN: usize = 0;
const OUT: u64 = 64;
const TURNS: u64 = 200_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Side {
    shm: ShmEndpoint,
    cq: Cq,
    qp: Qp,
    region: Arc<Region>,
    mr: Mr,
}

impl Side {
    fn new(mut shm: ShmEndpoint) -> Outcome<Self> {
        let pd = shm.alloc_pd()?;
        let cq = shm.create_cq(1024)?;
        let qp = shm.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
        let region = Region::memfd("throughput", MEMORY as usize)?;
        let mr = shm.reg_mr(pd, &region, 0, MEMORY, Access::ALL, Addressing::ZeroBased)?;
        shm.publish("memory", &mr)?;
        Ok(Self { shm, cq, qp, region, mr })
    }

    /// Connects with the peer's queue pair, and waits for its memory's key.
    fn connect(&mut self, peer: u32) -> Outcome<u32> {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse()?, peer)),
            mtu: Mtu::B4096,
            psn: 0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).ok_or("no such timer")?,
            ack_every: 0,
        };
        let timeout = Duration::from_secs(5);
        let send = ReadyToSend { psn: 0, timeout, retries: 7, rnr_retries: 7, max_rd_atomic: 1 };
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
        Err("the peer told of no memory".into())
    }

    /// GiB/s and nanoseconds of an operation, by the processor's time, so that other work on the machine counts less.
    fn rate(&mut self, rkey: u32, size: u64, spread: u64, write: bool, seconds: f64) -> Outcome<(f64, f64)> {
        let group = GROUP as u64;
        // Whole groups, one after the other; a single buffer has one place.
        let places = (spread / size.max(1) / group * group).max(1);
        let step = if places == 1 { 0 } else { size };
        let (mut done, mut posted, mut place) = (0_u64, 0_u64, 0_u64);
        let mut out = [Completion::default(); GROUP];
        let (begin, spent) = (Instant::now(), processor_time());
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..(1 << 20) / (size * group).max(1 << 14) + 1 {
                let elements: [Element; GROUP] = std::array::from_fn(|index| {
                    let address = place * step + index as u64 * step;
                    Element { address, len: size as u32, lkey: self.mr.lkey }
                });
                let requests: [SendWr<'_>; GROUP] = std::array::from_fn(|index| {
                    let remote = Remote { address: elements[index].address, rkey };
                    let operation = if write { Operation::Write(remote) } else { Operation::Read(remote) };
                    SendWr::new(posted, operation, Data::Elements(std::slice::from_ref(&elements[index])))
                });
                self.shm.post_send(self.qp, &requests).map_err(|(_, error)| error)?;
                place = if place + 2 * group > places { 0 } else { place + group };
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
        let passed = processor_time() - spent;
        Ok(((done * size) as f64 / passed / f64::from(1 << 30), passed * 1e9 / done as f64))
    }

    /// GiB/s of copying alone, in this process's own memory: the most that there is to have.
    fn copy_rate(&self, size: u64, spread: u64, seconds: f64) -> f64 {
        let places = (spread / 2 / size).max(1);
        let (mut done, begin, spent) = (0_u64, Instant::now(), processor_time());
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..(1 << 20) / size.max(1 << 14) * 4 + 1 {
                let at = (done % places * size) as usize;
                self.region.copy_from(MEMORY as usize / 2 + at, &self.region, at, size as usize);
                done += 1;
            }
        }
        (done * size) as f64 / (processor_time() - spent) / f64::from(1 << 30)
    }

    /// Writes the number of a turn to the other's memory, 8 bytes, and takes the completion.
    fn turn(&mut self, rkey: u32, turn: u64) -> Outcome<()> {
        self.region.write(OUT as usize, &turn.to_ne_bytes());
        let element = [Element { address: OUT, len: 8, lkey: self.mr.lkey }];
        let operation = Operation::Write(Remote { address: TURN as u64, rkey });
        self.shm.post_send(self.qp, &[SendWr::new(turn, operation, Data::Elements(&element))]).map_err(|(_, e)| e)?;
        self.shm.poll_cq(self.cq, &mut [Completion::default()])?;
        Ok(())
    }
    fn await_turn(&self, turn: u64) {
        let mut bytes = [0; 8];
        while u64::from_ne_bytes(bytes) != turn {
            std::hint::spin_loop();
            self.region.read(TURN, &mut bytes);
        }
    }
}

/// What this thread has used so far, in seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn on_processor(number: usize) {
    let mut set = CpuSet::new();
    set.set(number);
    let _ = sched_setaffinity(None, &set);
}

/// What the other process writes, one number a line.
fn number(from: &mut impl BufRead) -> Outcome<u32> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim().parse()?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, target, path, processor] = &arguments[..]
        && target == "target"
    {
        return serve(path, processor.parse()?);
    }
    let argument = |index: usize, default: f64| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let seconds = argument(1, 1.0)?;
    on_processor(argument(3, 1.0)? as usize);
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
    println!("posting and completing, in groups of {GROUP}, without bytes: {post:.1} ns");
    side.region.zero(TURN, 8);
    writeln!(to, "1")?;
    number(from.as_mut().ok_or("no pipe")?)?;
    let begin = Instant::now();
    for turn in 1..=TURNS {
        side.turn(rkey, turn)?;
        side.await_turn(turn);
    }
    println!("latency of a write of 8 bytes, polled, half a round trip: {:.1} ns", {
        begin.elapsed().as_secs_f64() * 1e9 / (2 * TURNS) as f64
    });
    target.wait()?;
    Ok(())
}

/// The target: sleeps, then answers each turn.
fn serve(path: &str, processor: usize) -> Outcome<()> {
    on_processor(processor);
    let mut side = Side::new(ShmEndpoint::connect(path)?)?;
    println!("{}", side.qp.0);
    let mut from = std::io::stdin().lock();
    let peer = number(&mut from)?;
    let rkey = side.connect(peer)?;
    number(&mut from)?;
    side.region.zero(TURN, 8);
    println!("1");
    for turn in 1..=TURNS {
        side.await_turn(turn);
        side.turn(rkey, turn)?;
    }
    Ok(())
}
