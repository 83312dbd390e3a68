//! This side: an endpoint with memory and one queue pair.

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
/// READs and atomic operations under way at once, either way.
pub const RD_ATOMIC: u8 = 16;
/// Room for requests of either kind.
pub const MOST: u32 = 1024;
/// A buffer has at least so many bytes: perftest walks through as many.
const LEAST: u64 = 4096;
/// Longest sleep, for a signal that comes just before it.
const NAP: Duration = Duration::from_millis(50);

/// What the other side says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub ip: IpAddr,
    /// Its queue pair.
    pub qp: u32,
    /// Its first sequence number.
    pub psn: u32,
    /// READs and atomic operations that it answers at once.
    pub reads: u8,
}

/// An endpoint with memory and one queue pair.
pub struct Side {
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
    /// Queue pair 1, where connections are managed there.
    services: Option<Services>,
    events: VecDeque<Event>,
    /// The queue pair belongs to somebody.
    taken: bool,
    stop: Arc<AtomicBool>,
    patience: Duration,
}

fn config(service: Service, pd: Pd, cq: Cq) -> QpConfig {
    let (max_send_wr, max_recv_wr) = (MOST, MOST);
    QpConfig { max_send_wr, max_recv_wr, max_sge: 1, strict: true, ..QpConfig::new(service.into(), pd, cq, cq) }
}

/// How long the other side may still be silent. A pause of this program is no silence: between two looks no more passes
/// than two naps take.
pub struct Deadline {
    left: Duration,
    looked: Instant,
}

impl Deadline {
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.left = self.left.saturating_sub((now - self.looked).min(2 * NAP));
        self.looked = now;
        self.left.is_zero()
    }
}

impl Side {
    /// With room for one operation of `size` bytes out, and one in.
    pub fn open(common: &Common, size: u32, stop: Arc<AtomicBool>) -> Result<Self> {
        let mut provider = SoftEndpoint::lossy_udp(common.bind, UdpOptions::default(), common.loss, 1)?;
        let pd = provider.alloc_pd()?;
        let slot = u64::from(size).max(LEAST);
        let region = Region::heap(2 * slot as usize)?;
        let memory = provider.reg_mr(pd, &region, 0, 2 * slot, Access::ALL, Addressing::ZeroBased)?;
        let cq = provider.create_cq(2 * MOST)?;
        let qp = provider.create_qp(&config(common.qp, pd, cq))?;
        let psn = Bits24::random().ok_or("the operating system's random source cannot be read")?.get();
        let (service, patience, slot) = (common.qp, common.patience, slot as u32);
        let (done, events) = Default::default();
        let (to, services, taken) = (None, None, false);
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
            taken,
            stop,
            patience,
        })
    }

    /// What the other side has to know. READs and atomic operations are as many as this side takes.
    pub fn own(&self) -> Peer {
        Peer { ip: self.provider.address().ip(), qp: self.qp.0, psn: self.psn, reads: RD_ATOMIC }
    }

    /// Begins to send with this sequence number instead of its own, which it returns.
    pub fn begin_at(&mut self, psn: u32) -> u32 {
        std::mem::replace(&mut self.psn, psn)
    }

    /// Key and address of the memory that is the other side's to use.
    pub fn window(&self) -> (u32, u64) {
        (self.memory.rkey, self.memory.address)
    }

    /// The endpoint, to drive a [queue pair](Self::queue_pair) of one's own.
    pub fn provider(&mut self) -> &mut impl shotline_verbs::api::Provider {
        &mut self.provider
    }

    /// One more reliable queue pair with a completion queue, and a registration of all of a region.
    pub fn queue_pair(&mut self, region: &Arc<Region>, access: Access) -> Result<(Cq, Qp, Mr)> {
        let len = region.len() as u64;
        let memory = self.provider.reg_mr(self.pd, region, 0, len, access, Addressing::ZeroBased)?;
        let cq = self.provider.create_cq(2 * MOST)?;
        let qp = self.provider.create_qp(&config(Service::Rc, self.pd, cq))?;
        Ok((cq, qp, memory))
    }

    /// Takes the queue pair to where it can send.
    pub fn connect(&mut self, peer: &Peer, mtu: Mtu) -> Result {
        self.bring_up(self.qp, self.service, peer, self.psn, mtu)?;
        let address = SocketAddr::new(peer.ip, ROCE_PORT);
        self.to = (self.service == Service::Ud).then_some(Destination { address, qp: peer.qp, q_key: Q_KEY });
        self.taken = true;
        Ok(())
    }

    /// Is as before [`Self::connect`], with what was this side's own then.
    pub fn forget(&mut self, own: &Peer) -> Result {
        self.provider.modify_qp(self.qp, Modify::Reset)?;
        (self.psn, self.taken) = (own.psn, false);
        self.done.clear();
        Ok(())
    }

    /// Takes any queue pair to where it can send, beginning with this sequence number.
    pub fn bring_up(&mut self, qp: Qp, service: Service, peer: &Peer, psn: u32, mtu: Mtu) -> Result {
        let address = SocketAddr::new(peer.ip, ROCE_PORT);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        // 0.64 ms: time enough for a peer that is a program on an emulated machine.
        let min_rnr_timer = RnrTimer::from_code(12).ok_or("there is no such timer")?;
        self.provider.modify_qp(qp, Modify::Init { access, q_key: Q_KEY })?;
        let receive = ReadyToReceive {
            peer: (service != Service::Ud).then_some((address, peer.qp)),
            mtu,
            psn: peer.psn,
            max_dest_rd_atomic: RD_ATOMIC,
            min_rnr_timer,
            ack_every: 0,
        };
        self.provider.modify_qp(qp, Modify::ReadyToReceive(receive))?;
        let send = ReadyToSend {
            psn,
            timeout: Duration::from_millis(67), // 4.096 us x 2^14, as the peers have it
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: peer.reads.min(RD_ATOMIC),
        };
        self.provider.modify_qp(qp, Modify::ReadyToSend(send))?;
        Ok(())
    }

    /// Posts an operation of `len` bytes of the outgoing half of the memory.
    pub fn post(&mut self, operation: Operation, len: u32) -> Result {
        self.post_at(operation, u64::from(self.slot), len)
    }

    /// Posts an operation of `len` bytes from a place of the memory.
    pub fn post_at(&mut self, operation: Operation, at: u64, len: u32) -> Result {
        let element = [Element { address: self.memory.address + at, len, lkey: self.memory.lkey }];
        let request = SendWr { destination: self.to, ..SendWr::new(0, operation, Data::Elements(&element)) };
        self.provider.post_send(self.qp, &[request]).map_err(|(_, error)| error.into())
    }

    /// Posts a receive into the incoming half of the memory.
    pub fn post_receive(&mut self) -> Result {
        let element = [Element { address: self.memory.address, len: self.slot, lkey: self.memory.lkey }];
        let request = RecvWr { id: 0, elements: &element };
        self.provider.post_recv(self.qp, &[request]).map_err(|(_, error)| error.into())
    }

    /// The memory itself.
    pub fn memory(&self) -> &Region {
        &self.region
    }

    /// Has connections managed by queue pair 1.
    pub fn manage(&mut self) -> Result<&mut Services> {
        if self.services.is_none() {
            self.services = Some(Services::open(&mut self.provider)?);
        }
        self.services.as_mut().ok_or_else(|| "there is no queue pair 1".into())
    }

    /// What happens next to a connection; `None` if a completion comes first.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        let mut end = self.deadline();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if !self.done.is_empty() {
                return Ok(None);
            }
            self.turn(None)?;
            self.check(&mut end)?;
        }
    }

    /// Waits for the end of the connection. What completes meanwhile, and how, does not matter any more.
    pub fn until_ended(&mut self) -> Result {
        loop {
            match self.next_event()? {
                Some(Event::Disconnected(_) | Event::Unreachable(_)) => return Ok(()),
                Some(_) => {}
                None => self.done.clear(),
            }
        }
    }

    /// The next completion.
    pub fn next(&mut self) -> Result<Completion> {
        let mut end = self.deadline();
        loop {
            if let Some(completion) = self.done.pop_front() {
                return match completion.status {
                    Status::Success => Ok(completion),
                    status => Err(format!("{:?} ended with {status:?}", completion.kind).into()),
                };
            }
            match self.events.pop_front() {
                None | Some(Event::Established(_)) => {} // its first message has said so before
                Some(event) => return Err(format!("the connection broke: {event}").into()),
            }
            self.turn(None)?;
            self.check(&mut end)?;
        }
    }

    /// Works until a file descriptor may have something to read, or there is nothing left to do.
    pub fn turn(&mut self, beside: Option<rustix::fd::BorrowedFd<'_>>) -> Result {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut done = [Completion::default(); 64];
        let count = self.provider.poll_cq(self.cq, &mut done)?;
        self.done.extend(&done[..count]);
        if let Some(services) = &mut self.services {
            match services.progress(&mut self.provider)? {
                Some(Event::Requested(other, ..)) if self.taken => {
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
            [Some(own), beside].into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let nap = rustix::time::Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
        match poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("cannot wait: {error}").into()),
        }
    }

    /// Answers for a while: what is answered last may get lost, and is asked for again.
    pub fn linger(&mut self) -> Result {
        let mut end = Deadline { left: Duration::from_millis(300), looked: Instant::now() };
        while !end.is_over() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Patience that begins now.
    pub fn deadline(&self) -> Deadline {
        Deadline { left: self.patience, looked: Instant::now() }
    }

    /// That nobody asked for the end, and that it is not too late.
    pub fn check(&self, end: &mut Deadline) -> Result {
        if self.stop.load(Ordering::Relaxed) {
            return Err("ended by a signal".into());
        }
        if end.is_over() {
            return Err(format!("the other side was silent for {} s", self.patience.as_secs_f64()).into());
        }
        Ok(())
    }

    /// What happened to the queue pair, and to the endpoint before any queue pair saw it.
    pub fn tally(&self) -> EndpointCounters {
        let mut tally = self.provider.qp_counters(self.qp);
        self.provider.total_counters().refused.iter().for_each(|(cause, count)| {
            *tally.refused.entry(cause).or_default() += count;
        });
        qp_counters
    }

    /// What the other side did with the memory.
    pub fn usage(&self) -> Result<RegistrationCounters> {
        Ok(self.provider.mr_usage(&self.memory)?)
    }

    /// The sum of the words of 64 bits of the memory that is the other side's to use: what atomic operations have added.
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
    fn a_pause_of_this_program_is_no_silence_of_the_other_side() {
        let before = Instant::now() - Duration::from_secs(1);
        assert!(!Deadline { left: 4 * NAP, looked: before }.is_over());
        assert!(Deadline { left: 2 * NAP, looked: before }.is_over());
    }
}
