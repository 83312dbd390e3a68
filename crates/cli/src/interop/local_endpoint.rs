//! The local endpoint, with its memory and one queue pair.

use super::common::{Common, Service};
use crate::Result;
use shotline_memory::{Access, Addressing, Mr, Pd, Region, RegistrationCounters};
use shotline_transport::lossy::Lossy;
use shotline_transport::udp::UdpIo;
use shotline_verbs::api::{
    Completion, Cq, Data, Destination, Element, Modify, Mtu, Notices as _, Operation, Provider as _, Qp, QpConfig,
    ReadyToReceive, ReadyToSend, RecvWr, SendWr, Status,
};
use shotline_verbs::cm::message::Bits24;
use shotline_verbs::cm::{Endpoint as _, EndpointCounters};
use shotline_verbs::rdma_cm::message::reason;
use shotline_verbs::rdma_cm::{Event, Services};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_wire::aeth::RnrTimer;
use shotline_wire::udp::ROCE_PORT;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The Q_Key of rdma-core's examples and of perftest.
const Q_KEY: u32 = 0x1111_1111;
/// Maximum number of READs and atomic operations in flight, in either direction.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Maximum number of outstanding work requests, of sends and of receives.
pub const MAX_WR: u32 = 1024;
/// Minimum length of a buffer in bytes: perftest cycles through this many.
const MIN_BUFFER_BYTES: u64 = 4096;
/// Maximum time to sleep. It bounds the delay of a signal that arrives just before the sleep.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Queue pair information that the two sides exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerQp {
    /// IP address.
    pub ip: IpAddr,
    /// Queue pair number.
    pub qp: u32,
    /// First sequence number.
    pub psn: u32,
    /// Number of READs and atomic operations that the side answers at once.
    pub rd_atomic: u8,
}

/// The local endpoint, with its memory and one queue pair.
pub struct LocalEndpoint {
    provider: SoftEndpoint<Lossy<UdpIo>>,
    pd: Pd,
    service: Service,
    cq: Cq,
    qp: Qp,
    memory: Mr,
    region: Arc<Region>,
    slot: u32,
    psn: u32,
    to: Option<Destination>,
    done: VecDeque<Completion>,
    /// Services of queue pair 1, if connections are managed.
    services: Option<Services>,
    events: VecDeque<Event>,
    /// The queue pair belongs to a connection.
    is_connected: bool,
    stop: Arc<AtomicBool>,
    timeout: Duration,
}

fn config(service: Service, pd: Pd, cq: Cq) -> QpConfig {
    let (max_send_wr, max_recv_wr) = (MAX_WR, MAX_WR);
    QpConfig { max_send_wr, max_recv_wr, max_sge: 1, strict: true, ..QpConfig::new(service.into(), pd, cq, cq) }
}

/// Remaining time for which the other side may be silent. A pause of this process does not count: each check subtracts
/// at most two sleeps.
pub struct Deadline {
    remaining: Duration,
    last_check: Instant,
}

impl Deadline {
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.remaining = self.remaining.saturating_sub((now - self.last_check).min(2 * MAX_SLEEP));
        self.last_check = now;
        self.remaining.is_zero()
    }
}

impl LocalEndpoint {
    /// Opens an endpoint with buffers for one outgoing and one incoming operation of `size` bytes.
    pub fn open(common: &Common, size: u32, stop: Arc<AtomicBool>) -> Result<Self> {
        let mut provider = SoftEndpoint::lossy_udp(common.bind, UdpOptions::default(), common.loss, 1)?;
        let pd = provider.alloc_pd()?;
        let slot = u64::from(size).max(MIN_BUFFER_BYTES);
        let region = Region::heap(2 * slot as usize)?;
        let memory = provider.reg_mr(pd, &region, 0, 2 * slot, Access::ALL, Addressing::ZeroBased)?;
        let cq = provider.create_cq(2 * MAX_WR)?;
        let qp = provider.create_qp(&config(common.qp, pd, cq))?;
        let psn = Bits24::random().ok_or("the operating system's random source cannot be read")?.get();
        let (service, timeout, slot) = (common.qp, common.timeout, slot as u32);
        let (done, events) = Default::default();
        let (to, services, is_connected) = (None, None, false);
        Ok(Self {
            provider,
            pd,
            service,
            cq,
            qp,
            memory,
            region,
            slot,
            psn,
            to,
            done,
            services,
            events,
            is_connected,
            stop,
            timeout,
        })
    }

    /// Returns the information for the other side. The number of READs and atomic operations is this side's maximum.
    pub fn own_qp(&self) -> PeerQp {
        PeerQp { ip: self.provider.address().ip(), qp: self.qp.0, psn: self.psn, rd_atomic: MAX_RD_ATOMIC }
    }

    /// Replaces the first sequence number to send, and returns the old one.
    pub fn replace_psn(&mut self, psn: u32) -> u32 {
        std::mem::replace(&mut self.psn, psn)
    }

    /// Returns the key and the address of the memory that the other side uses.
    pub fn remote_memory(&self) -> (u32, u64) {
        (self.memory.rkey, self.memory.address)
    }

    /// Returns the endpoint, to drive another [queue pair](Self::queue_pair).
    pub fn provider(&mut self) -> &mut impl shotline_verbs::api::Provider {
        &mut self.provider
    }

    /// Creates another reliable queue pair, with a completion queue and a registration of a whole region.
    pub fn queue_pair(&mut self, region: &Arc<Region>, access: Access) -> Result<(Cq, Qp, Mr)> {
        let len = region.len() as u64;
        let memory = self.provider.reg_mr(self.pd, region, 0, len, access, Addressing::ZeroBased)?;
        let cq = self.provider.create_cq(2 * MAX_WR)?;
        let qp = self.provider.create_qp(&config(Service::Rc, self.pd, cq))?;
        Ok((cq, qp, memory))
    }

    /// Moves the queue pair to the ready-to-send state.
    pub fn connect(&mut self, peer: &PeerQp, mtu: Mtu) -> Result {
        self.bring_up(self.qp, self.service, peer, self.psn, mtu)?;
        let address = SocketAddr::new(peer.ip, ROCE_PORT);
        self.to = (self.service == Service::Ud).then_some(Destination { address, qp: peer.qp, q_key: Q_KEY });
        self.is_connected = true;
        Ok(())
    }

    /// Undoes [`Self::connect`] and restores the first sequence number of `own`.
    pub fn reset(&mut self, own: &PeerQp) -> Result {
        self.provider.modify_qp(self.qp, Modify::Reset)?;
        (self.psn, self.is_connected) = (own.psn, false);
        self.done.clear();
        Ok(())
    }

    /// Moves any queue pair to the ready-to-send state, with `psn` as its first sequence number.
    pub fn bring_up(&mut self, qp: Qp, service: Service, peer: &PeerQp, psn: u32, mtu: Mtu) -> Result {
        let address = SocketAddr::new(peer.ip, ROCE_PORT);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        // 0.64 ms: enough time for a peer that is a program on an emulated machine.
        let min_rnr_timer = RnrTimer::from_code(12).ok_or("the RNR timer code is invalid")?;
        self.provider.modify_qp(qp, Modify::Init { access, q_key: Q_KEY })?;
        let receive = ReadyToReceive {
            peer: (service != Service::Ud).then_some((address, peer.qp)),
            mtu,
            psn: peer.psn,
            max_dest_rd_atomic: MAX_RD_ATOMIC,
            min_rnr_timer,
            ack_every: 0,
        };
        self.provider.modify_qp(qp, Modify::ReadyToReceive(receive))?;
        let send = ReadyToSend {
            psn,
            timeout: Duration::from_millis(67), // 4.096 us x 2^14, as the peers use
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: peer.rd_atomic.min(MAX_RD_ATOMIC),
        };
        self.provider.modify_qp(qp, Modify::ReadyToSend(send))?;
        Ok(())
    }

    /// Posts an operation of `len` bytes of the outgoing buffer.
    pub fn post(&mut self, operation: Operation, len: u32) -> Result {
        self.post_at(operation, u64::from(self.slot), len)
    }

    /// Posts an operation of `len` bytes at an offset of the memory.
    pub fn post_at(&mut self, operation: Operation, offset: u64, len: u32) -> Result {
        let element = [Element { address: self.memory.address + offset, len, lkey: self.memory.lkey }];
        let request = SendWr { destination: self.to, ..SendWr::new(0, operation, Data::Elements(&element)) };
        self.provider.post_send(self.qp, &[request]).map_err(|(_, error)| error.into())
    }

    /// Posts a receive into the incoming buffer.
    pub fn post_receive(&mut self) -> Result {
        let element = [Element { address: self.memory.address, len: self.slot, lkey: self.memory.lkey }];
        let request = RecvWr { id: 0, elements: &element };
        self.provider.post_recv(self.qp, &[request]).map_err(|(_, error)| error.into())
    }

    /// Returns the memory.
    pub fn memory(&self) -> &Region {
        &self.region
    }

    /// Opens queue pair 1 for connection management, if it is not open yet, and returns it.
    pub fn manage(&mut self) -> Result<&mut Services> {
        if self.services.is_none() {
            self.services = Some(Services::open(&mut self.provider)?);
        }
        self.services.as_mut().ok_or_else(|| "queue pair 1 is not open".into())
    }

    /// Returns the next event of a connection, or `None` if a completion comes first.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        let mut deadline = self.deadline();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if !self.done.is_empty() {
                return Ok(None);
            }
            self.drive(None)?;
            self.check(&mut deadline)?;
        }
    }

    /// Waits for the end of the connection. Completions are discarded, with any status.
    pub fn until_ended(&mut self) -> Result {
        loop {
            match self.next_event()? {
                Some(Event::Disconnected(_) | Event::Unreachable(_)) => return Ok(()),
                Some(_) => {}
                None => self.done.clear(),
            }
        }
    }

    /// Returns the next completion.
    pub fn next(&mut self) -> Result<Completion> {
        let mut deadline = self.deadline();
        loop {
            if let Some(completion) = self.done.pop_front() {
                return match completion.status {
                    Status::Success => Ok(completion),
                    status => Err(format!("{:?} ended with {status:?}", completion.kind).into()),
                };
            }
            match self.events.pop_front() {
                None | Some(Event::Established(_)) => {} // the first message may arrive before this event
                Some(event) => return Err(format!("the connection broke: {event}").into()),
            }
            self.drive(None)?;
            self.check(&mut deadline)?;
        }
    }

    /// Polls for completions and events, then sleeps until a file descriptor may be readable, unless there is more to
    /// do.
    pub fn drive(&mut self, other: Option<rustix::fd::BorrowedFd<'_>>) -> Result {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut done = [Completion::default(); 64];
        let count = self.provider.poll_cq(self.cq, &mut done)?;
        self.done.extend(&done[..count]);
        if let Some(services) = &mut self.services {
            match services.progress(&mut self.provider)? {
                Some(Event::Requested(other, ..)) if self.is_connected => {
                    let (manager, now) = services.manager();
                    manager.reject(now, other, reason::NO_QP);
                }
                event => self.events.extend(event),
            }
        }
        if count > 0 || self.provider.progress()? {
            return Ok(());
        }
        let own = self.provider.fd();
        let mut fds: Vec<_> =
            [Some(own), other].into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: MAX_SLEEP.as_nanos() as i64 };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("cannot wait: {error}").into()),
        }
    }

    /// Answers for 300 ms more, because the last answer may be lost and requested again.
    pub fn linger(&mut self) -> Result {
        let mut deadline = Deadline { remaining: Duration::from_millis(300), last_check: Instant::now() };
        while !deadline.is_over() {
            self.drive(None)?;
        }
        Ok(())
    }

    /// Starts a new deadline.
    pub fn deadline(&self) -> Deadline {
        Deadline { remaining: self.timeout, last_check: Instant::now() }
    }

    /// Checks that no signal has arrived and that the deadline has not expired.
    pub fn check(&self, deadline: &mut Deadline) -> Result {
        if self.stop.load(Ordering::Relaxed) {
            return Err("ended by a signal".into());
        }
        if deadline.is_over() {
            return Err(format!("no packet from the other side for {} s", self.timeout.as_secs_f64()).into());
        }
        Ok(())
    }

    /// Returns the counters of the queue pair, including packets that the endpoint dropped before they reached a queue
    /// pair.
    pub fn counters(&self) -> EndpointCounters {
        let mut counters = self.provider.counters_of(self.qp);
        self.provider.total_counters().drops.iter().for_each(|(cause, count)| {
            *counters.drops.entry(cause).or_default() += count;
        });
        counters
    }

    /// Returns what the other side did with the memory.
    pub fn usage(&self) -> Result<RegistrationCounters> {
        Ok(self.provider.mr_usage(&self.memory)?)
    }

    /// Returns the sum of the 64-bit words of the other side's memory, which is what atomic operations have added.
    pub fn sum(&self) -> u64 {
        let mut bytes = vec![0; self.slot as usize];
        self.region.read(0, &mut bytes);
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        words.map(u64::from_ne_bytes).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_of_this_process_does_not_expire_deadline() {
        let before = Instant::now() - Duration::from_secs(1);
        assert!(!Deadline { remaining: 4 * MAX_SLEEP, last_check: before }.is_over());
        assert!(Deadline { remaining: 2 * MAX_SLEEP, last_check: before }.is_over());
    }
}
