//! Throughput and latency of software endpoints over UDP between two threads of this machine.
//!
//! `cargo run --release -p shotline-verbs --example soft_throughput -- [what] [bytes] [seconds] [queue pairs]`
//!
//! `write`, `read`, `send`: a group of requests in flight, two threads. `latency`: one WRITE at a time. `cpu-write` and
//! so on: both ends in one thread, CPU time of each (the figure to use on a machine with other load). `pong`: SENDs in
//! both directions. `post`: CPU time of posting and of polling completions.

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::udp::UdpIo;
use shotline_verbs::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_wire::aeth::RnrTimer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MEMORY: usize = 64 << 20;
const GROUP: usize = 64;
type Result<T> = std::result::Result<T, VerbsError>;

struct Side {
    endpoint: SoftEndpoint<UdpIo>,
    mr: Mr,
    cq: Cq,
    qps: Vec<Qp>,
}

impl Side {
    fn open(address: &str, pairs: usize) -> Result<Self> {
        let address = address.parse().map_err(|_| VerbsError::Invalid(format!("{address} is not a socket address")))?;
        let mut endpoint = SoftEndpoint::udp(address, UdpOptions::default())?;
        let pd = endpoint.alloc_pd()?;
        let region = Region::host(MEMORY)?;
        let mr = endpoint.reg_mr(pd, &region, 0, MEMORY as u64, Access::ALL, Addressing::ZeroBased)?;
        let cq = endpoint.create_cq(4096)?;
        let config = QpConfig::new(QpType::Rc, pd, cq, cq);
        let qps = (0..pairs).map(|_| endpoint.create_qp(&config)).collect::<Result<_>>()?;
        Ok(Self { endpoint, mr, cq, qps })
    }

    fn connect(&mut self, other: &Self) -> Result<()> {
        for (qp, peer) in self.qps.iter().zip(&other.qps) {
            let rtr = ReadyToReceive {
                peer: Some((other.endpoint.address(), peer.0)),
                mtu: Mtu::B4096,
                psn: 0,
                max_dest_rd_atomic: 16,
                min_rnr_timer: RnrTimer::from_code(1).unwrap_or_else(|| unreachable!()),
                ack_every: 0,
            };
            let timeout = Duration::from_millis(67);
            let rts = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 16 };
            let init = Modify::Init { access: Access::ALL, q_key: 0 };
            for change in [init, Modify::ReadyToReceive(rtr), Modify::ReadyToSend(rts)] {
                self.endpoint.modify_qp(*qp, change)?;
            }
        }
        Ok(())
    }

    fn post_receives(&mut self, count: usize, len: u32) {
        let into = [Element { address: 0, len, lkey: self.mr.lkey }];
        let receives = vec![RecvWr { id: 0, elements: &into }; count];
        let qp = self.qps[0];
        self.endpoint.post_recv(qp, &receives).expect("space for receives");
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let text = |index: usize, default: &str| args.get(index).cloned().unwrap_or_else(|| default.into());
    let what = text(1, "write");
    let bytes: u32 = text(2, "65536").parse().unwrap_or(65_536);
    let seconds = Duration::from_secs_f64(text(3, "2").parse().unwrap_or(2.0));
    let pairs = text(4, "1").parse().unwrap_or(1);
    let (mut a, mut b) = (Side::open("127.0.0.2:0", pairs)?, Side::open("127.0.0.3:0", pairs)?);
    a.connect(&b)?;
    b.connect(&a)?;
    println!("receive buffers: {} bytes granted", b.endpoint.io().receive_buffer());
    let remote = Remote { address: 0, rkey: b.mr.rkey };
    if what == "post" {
        return post(&mut a, &mut b, remote, seconds);
    }
    if what == "pong" {
        return pong(&mut a, &mut b, bytes, seconds);
    }
    if let Some(what) = what.strip_prefix("cpu-") {
        return cpu(&mut a, &mut b, remote, what, bytes, seconds);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let target = {
        let (stop, what) = (Arc::clone(&stop), what.clone());
        std::thread::spawn(move || {
            if what == "send" {
                b.post_receives(128, bytes);
            }
            let mut out = [Completion::default(); 64];
            while !stop.load(Ordering::Relaxed) {
                let count = b.endpoint.poll_cq(b.cq, &mut out).expect("polling");
                if what == "send" && count > 0 {
                    b.post_receives(count, bytes);
                }
            }
            (b.endpoint.counters(), b.qps.first().and_then(|qp| b.endpoint.qp_counters(*qp)).copied())
        })
    };
    match what.as_str() {
        "latency" => latency(&mut a, remote, bytes, seconds)?,
        _ => throughput(&mut a, remote, &what, bytes, seconds)?,
    }
    stop.store(true, Ordering::Relaxed);
    let (counters, qp_counters) = target.join().expect("the target");
    println!("initiator {:?}\n  {:?}", a.endpoint.counters(), a.endpoint.qp_counters(a.qps[0]));
    println!("target {counters:?}\n  {qp_counters:?}");
    Ok(())
}

fn throughput(a: &mut Side, remote: Remote, what: &str, bytes: u32, time: Duration) -> Result<()> {
    let operation = match what {
        "read" => Operation::Read(remote),
        "send" => Operation::Send,
        _ => Operation::Write(remote),
    };
    let elements = [Element { address: 0, len: bytes, lkey: a.mr.lkey }];
    let request = SendWr::new(0, operation, Data::Elements(&elements));
    let group = if a.qps.len() > 1 { 1 } else { GROUP };
    for qp in a.qps.clone() {
        a.endpoint.post_send(qp, &vec![request; group]).map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
    }
    let mut out = [Completion::default(); GROUP];
    let (start, mut done) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        let count = a.endpoint.poll_cq(a.cq, &mut out)?;
        for completion in &out[..count] {
            if completion.status != Status::Success {
                println!("{completion:?}");
                return Ok(());
            }
            a.endpoint
                .post_send(Qp(completion.qp), &[request])
                .map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
        }
        done += count as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = done as f64 * f64::from(bytes) / seconds;
    println!(
        "{what} {bytes}: {:.2} Gbit/s, {:.2} GiB/s, {:.0} ops/s",
        rate * 8e-9,
        rate / (1 << 30) as f64,
        done as f64 / seconds
    );
    Ok(())
}

fn latency(a: &mut Side, remote: Remote, bytes: u32, time: Duration) -> Result<()> {
    let elements = [Element { address: 0, len: bytes, lkey: a.mr.lkey }];
    let request = SendWr::new(0, Operation::Write(remote), Data::Elements(&elements));
    let mut out = [Completion::default(); 1];
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let before = Instant::now();
        let qp = a.qps[0];
        a.endpoint.post_send(qp, &[request]).map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
        while a.endpoint.poll_cq(a.cq, &mut out)? == 0 {}
        times.push(before.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 2000.0;
    println!(
        "half round trip of a WRITE of {bytes} bytes: {:.2} µs median, {:.2} µs 99th percentile, {:.2} µs minimum",
        at(0.5),
        at(0.99),
        at(0.0)
    );
    Ok(())
}

/// Returns the CPU time of this thread in seconds.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// CPU time of both ends in one thread: on two cores the slower end determines the throughput.
fn cpu(a: &mut Side, b: &mut Side, remote: Remote, what: &str, bytes: u32, time: Duration) -> Result<()> {
    let elements = [Element { address: 0, len: bytes, lkey: a.mr.lkey }];
    let operation = match what {
        "read" => Operation::Read(remote),
        "send" => Operation::Send,
        _ => Operation::Write(remote),
    };
    let request = SendWr::new(0, operation, Data::Elements(&elements));
    let per_qp = if what == "latency" { 1 } else { GROUP.div_ceil(a.qps.len()) };
    if what == "send" {
        b.post_receives(2 * GROUP, bytes);
    }
    for qp in a.qps.clone() {
        a.endpoint
            .post_send(qp, &vec![request; per_qp])
            .map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
    }
    let mut out = [Completion::default(); GROUP];
    let (start, mut done, mut times) = (Instant::now(), 0_u64, [0.0; 2]);
    while start.elapsed() < time {
        let before = cpu_time();
        let count = a.endpoint.poll_cq(a.cq, &mut out)?;
        for completion in &out[..count] {
            assert_eq!(completion.status, Status::Success);
            let posted = a.endpoint.post_send(Qp(completion.qp), &[request]);
            posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
        }
        let between = cpu_time();
        let received = b.endpoint.poll_cq(b.cq, &mut out)?;
        if what == "send" && received > 0 {
            b.post_receives(received, bytes);
        }
        times[0] += between - before;
        times[1] += cpu_time() - between;
        done += count as u64;
    }
    let all = done as f64 * f64::from(bytes);
    for (name, cpu_time) in ["initiator", "target"].into_iter().zip(times) {
        let (per_operation, rate) = (cpu_time * 1e6 / done as f64, all * 8e-9 / cpu_time);
        println!("{what} {bytes}: {name} {per_operation:.2} µs per operation, {rate:.1} Gbit/s per core");
    }
    println!("{:?}\n{:?}", a.endpoint.qp_counters(a.qps[0]), b.endpoint.counters());
    Ok(())
}

/// SENDs in both directions, both ends in one thread: half of the time is the latency from a post to the peer's
/// completion.
fn pong(a: &mut Side, b: &mut Side, bytes: u32, time: Duration) -> Result<()> {
    let payload = vec![0; bytes.min(64) as usize];
    let request = SendWr { signalled: false, ..SendWr::new(0, Operation::Send, Data::Inline(&payload)) };
    let (start, begin, mut times) = (Instant::now(), cpu_time(), Vec::new());
    let mut out = [Completion::default(); 4];
    a.post_receives(8, bytes);
    b.post_receives(8, bytes);
    while start.elapsed() < time {
        let before = Instant::now();
        let (mut near, mut far) = (&mut *a, &mut *b);
        for _ in 0..2 {
            let qp = near.qps[0];
            near.endpoint.post_send(qp, &[request]).map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
            near.endpoint.progress()?;
            while far.endpoint.poll_cq(far.cq, &mut out)? == 0 {}
            far.post_receives(1, bytes);
            std::mem::swap(&mut near, &mut far);
        }
        times.push(before.elapsed().as_nanos() as u64);
    }
    let per_operation = (cpu_time() - begin) * 1e6 / (2 * times.len()) as f64;
    times.sort_unstable();
    let half = times[times.len() / 2] as f64 / 2000.0;
    println!("half round trip of a SEND of {bytes} bytes: {half:.2} µs median, {per_operation:.2} µs CPU time");
    Ok(())
}

/// CPU time of posting and polling a group of operations, without the data transfer.
fn post(a: &mut Side, b: &mut Side, remote: Remote, time: Duration) -> Result<()> {
    let elements = [Element { address: 0, len: 8, lkey: a.mr.lkey }];
    let requests = [SendWr::new(0, Operation::Write(remote), Data::Elements(&elements)); GROUP];
    let mut out = [Completion::default(); GROUP];
    let (start, mut times) = (Instant::now(), Vec::new());
    let qp = a.qps[0];
    while start.elapsed() < time {
        let before = Instant::now();
        a.endpoint.post_send(qp, &requests).map_err(|(_, error)| VerbsError::Invalid(error.to_string()))?;
        let posting = before.elapsed();
        for _ in 0..4 {
            a.endpoint.progress()?;
            b.endpoint.progress()?;
        }
        let before = Instant::now();
        let count = a.endpoint.poll_cq(a.cq, &mut out)?;
        let polling = before.elapsed();
        assert_eq!(count, GROUP);
        times.push((posting.as_nanos(), polling.as_nanos()));
    }
    let middle = |mut times: Vec<u128>| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / GROUP as f64
    };
    let (posting, polling) = times.into_iter().unzip();
    println!("post {:.1} ns, poll {:.1} ns per operation (medians)", middle(posting), middle(polling));
    Ok(())
}
