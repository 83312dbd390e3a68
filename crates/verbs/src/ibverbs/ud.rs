//! Reception of unreliable datagrams through a device, as in Cossettini et al., "A RDMA Interface for Ultra-Fast
//! Ultrasound Data-Streaming over an Optical Link": [`UdIo`].
//!
//! Each posted slot is one receive work request: 40 bytes for the global route header, then the payload, which the
//! device writes to its destination without a copy. The header's bytes go to a null memory region where the device has
//! one (mlx5), else to a buffer of 40 bytes for each request, which contains the sender's address. Requests are posted
//! as lists, completions polled in batches, and a sleeping thread is woken by the solicited-event bit, which a sender
//! sets on the last packet of a shot.
//!
//! The device uses receives in order, regardless of the packet: after a loss payloads are shifted, and the layer above
//! moves them. A slot belongs to the device until its request has completed, so [`PacketIo::withdraw`] does nothing:
//! the caller must not touch a posted slot until its packet has landed.
//!
//! The fields of a completion ([`UdCompletion`]) replace the packet's header. The device has checked the ICRC and the
//! Q_Key ([`Icrc::Device`]); neither sequence number nor solicited event is available.
//!
//! A datagram longer than its slot moves the queue pair to the error state (IBTA volume 1, clause 10.8.3.2). Any sender
//! that has its number and key can cause this, so it is not fatal: the queue pair is reset, all receives are posted
//! again, and the error is counted ([`DeviceCounters::queue_pair_errors`]). Packets that arrive meanwhile are lost.

use super::convert::{GRH_BYTES, sender};
use super::selector::{DeviceSelector, OpenPort};
use super::sys::abi::*;
use super::sys::{AsyncEvent, Channel, Context, Cq, Mr, Pd, Qp, QpConfig, RecvList, remainder};
use crate::random::fresh_q_key;
use crate::ud::{UdCompletion, substitute_port};
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Region, Regions, Sge};
use shotline_transport::{
    Capabilities, DeviceCounters, Icrc, IoError, MAX_BATCH, PacketIo, PayloadLocation, Recv, RxPacket, Steer, TxPacket,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of work requests in a list.
const MAX_LIST: usize = 64;
/// Distance between two buffers for global route headers, in bytes: the next power of two, so that none straddles two
/// cache lines.
const GRH_STRIDE: usize = 64;

/// Configuration of [`UdIo`].
#[derive(Clone, Debug)]
pub struct UdConfig {
    /// Device, port and address.
    pub selector: DeviceSelector,
    /// Local address for packets, unless `selector` has a GID index.
    pub local: IpAddr,
    /// Maximum number of posted receives; their ids are below it.
    pub capacity: usize,
    /// Compute the CRC remainder of each payload ([`RxPacket::payload_crc`]).
    pub remainders: bool,
    /// Keep global route headers, which contain a packet's source, even if the device could discard them.
    pub keep_headers: bool,
}

/// UD queue pair of a device that only receives.
pub struct UdIo {
    // Dropped in this order: the queue pair first, so that the device no longer writes when the memory is released.
    pair: Qp,
    cq: Arc<Cq>,
    channel: Arc<Channel>,
    memory: Memory,
    context: Arc<Context>,
    port: u8,
    local: SocketAddr,
    q_key: u32,
    list: RecvList,
    /// Destination of the payload of each receive, by its id.
    slots: Vec<[Sge; 2]>,
    /// Ids of posted receives, oldest first.
    posted: VecDeque<u32>,
    completions: Box<[ibv_wc; MAX_BATCH]>,
    /// Headers emitted from the completions, for the layer above.
    headers: Box<[[u8; UdCompletion::LEN]; MAX_BATCH]>,
    /// Number of completions that were polled while preparing to sleep.
    prefetched: usize,
    remainders: bool,
    counters: DeviceCounters,
    /// Hardware counters when the queue pair was opened.
    initial_counters: Vec<(String, u64)>,
    /// Error of a call that could not return it; the next poll returns it.
    pending_error: Option<IoError>,
}

/// Memory that the device may write.
struct Memory {
    pd: Arc<Pd>,
    regions: Regions,
    /// Registration of each region, by its id.
    keys: Vec<Option<(Arc<Region>, Mr)>>,
    headers: GrhBuffers,
}

/// Destination of global route headers.
enum GrhBuffers {
    /// Null memory region: they are discarded.
    Null(Mr),
    /// A buffer for each id.
    PerSlot(Arc<Region>, Mr),
}

impl UdIo {
    /// Opens a device and brings its queue pair to a state that can receive.
    ///
    /// # Errors
    /// If there is no library, device or address, or the port is down or its MTU too small; the error says what to do.
    pub fn open(config: &UdConfig, regions: &Regions) -> Result<Self, IoError> {
        let opened = config.selector.open_at(config.local)?;
        check_mtu(&opened)?;
        let OpenPort { context, port, gid, .. } = opened;
        let local = gid.ip();
        let pd = Pd::new(&context)?;
        let capacity = u32::try_from(config.capacity).unwrap_or(u32::MAX);
        let limit = u32::try_from(context.attributes()?.max_qp_wr).unwrap_or(0);
        if capacity > limit {
            return Err(IoError::Config(format!(
                "expected at most {limit} receives for a queue pair of {}, found {capacity}: use a smaller --window",
                context.name()
            )));
        }
        let channel = Channel::new(&context)?;
        // One entry more than receives, so that the queue cannot overrun: an overrun breaks it.
        let cq = Cq::new(&context, capacity.saturating_add(1), Some(&channel), 0)?;
        let cap =
            ibv_qp_cap { max_send_wr: 1, max_recv_wr: capacity, max_send_sge: 1, max_recv_sge: 3, max_inline_data: 0 };
        let pair = QpConfig { kind: IBV_QPT_UD, send_cq: &cq, recv_cq: &cq, srq: None, cap, signal_all: false };
        let pair = Qp::new(&pd, &pair)?;
        let q_key = fresh_q_key()?;
        let headers = GrhBuffers::new(&pd, config)?;
        let mut memory = Memory { pd, regions: regions.clone(), keys: Vec::new(), headers };
        memory.register(regions)?;
        let initial_counters = super::counters::read(&context.sysfs(port));
        let mut io = Self {
            pair,
            cq,
            channel,
            memory,
            context,
            port,
            local: SocketAddr::new(local, shotline_wire::udp::ROCE_PORT),
            q_key,
            list: RecvList::new(MAX_LIST, 3),
            slots: vec![[Sge::EMPTY; 2]; config.capacity],
            posted: VecDeque::with_capacity(config.capacity),
            completions: Box::new([ibv_wc::default(); MAX_BATCH]),
            headers: Box::new([[0; UdCompletion::LEN]; MAX_BATCH]),
            prefetched: 0,
            remainders: config.remainders,
            counters: DeviceCounters::default(),
            initial_counters,
            pending_error: None,
        };
        io.bring_up()?;
        Ok(io)
    }

    /// Returns the address that senders must use.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Brings the queue pair from `RESET` to `RTS`, and posts its receives.
    fn bring_up(&mut self) -> Result<(), IoError> {
        let attributes = ibv_qp_attr { port_num: self.port, qkey: self.q_key, ..Default::default() };
        let to = |qp_state| ibv_qp_attr { qp_state, ..attributes };
        self.pair.modify(&to(IBV_QPS_INIT), IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)?;
        self.repost()?;
        self.pair.modify(&to(IBV_QPS_RTR), IBV_QP_STATE)?;
        self.pair.modify(&to(IBV_QPS_RTS), IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Posts the receives in `posted` again, in order.
    fn repost(&mut self) -> Result<(), IoError> {
        for index in 0..self.posted.len() {
            let id = self.posted[index];
            self.memory.push(&mut self.list, id, self.slots[id as usize]);
            if self.list.is_full() {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Posts the requests of the list.
    fn flush(&mut self) -> Result<(), IoError> {
        self.pair.post_recv(&mut self.list).map_err(|(_, source)| IoError::System {
            what: format!("posting receives to {}", self.context.name()),
            source,
            hint: "",
        })
    }

    /// Like [`Self::flush`], but an error is returned by the next poll.
    fn flush_or_defer(&mut self) {
        if let Err(error) = self.flush() {
            self.pending_error.get_or_insert(error);
        }
    }

    /// Handles the device's asynchronous events.
    fn handle_async_events(&mut self) -> Result<(), IoError> {
        while let Some(event) = self.context.next_event()? {
            match event {
                AsyncEvent::Qp { number, kind: IBV_EVENT_QP_FATAL } if number == self.pair.number() => {
                    self.recover()?
                }
                AsyncEvent::Cq(_) | AsyncEvent::Device(IBV_EVENT_DEVICE_FATAL) => {
                    return Err(IoError::Config(format!(
                        "the device {} has failed: see the kernel's log (dmesg)",
                        self.context.name()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Polls completions to the front of [`Self::completions`].
    #[inline]
    fn poll_cq(&mut self) -> Result<usize, IoError> {
        match std::mem::take(&mut self.prefetched) {
            0 => self.cq.poll(&mut self.completions[..]),
            count => Ok(count),
        }
    }

    /// Resets the queue pair after an error, and posts its receives again.
    fn recover(&mut self) -> Result<(), IoError> {
        self.counters.queue_pair_errors += 1;
        self.pair.modify(&ibv_qp_attr { qp_state: IBV_QPS_RESET, ..Default::default() }, IBV_QP_STATE)?;
        // The remaining completions are flushed receives, into which nothing was written.
        while self.cq.poll(&mut self.completions[..])? > 0 {}
        self.bring_up()
    }

    /// Passes the packets of the first `count` completions, all successful, to the steer.
    fn deliver<S: Steer>(&mut self, steer: &mut S, count: usize) {
        self.posted.drain(..count.min(self.posted.len()));
        let mut batch = ArrayVec::<RxPacket<'_>, MAX_BATCH>::new();
        for (wc, header) in self.completions[..count].iter().zip(self.headers.iter_mut()) {
            let imm = (wc.wc_flags & IBV_WC_WITH_IMM != 0).then_some(u32::from_be(wc.imm_data));
            *header = UdCompletion { dest_qp: wc.qp_num, src_qp: wc.src_qp, imm }.emit();
            let id = wc.wr_id as u32;
            let len = wc.byte_len.saturating_sub(GRH_BYTES);
            let payload_crc =
                if self.remainders { remainder(&self.memory.regions, self.slots[id as usize], len) } else { 0 };
            batch.push(RxPacket {
                landed: PayloadLocation::Posted(id),
                header,
                len,
                source: SocketAddr::new(self.memory.headers.source(id), substitute_port(wc.src_qp)),
                stamp_ns: 0,
                icrc: Icrc::Device,
                payload_crc,
                congested: false,
                fault: None,
            });
        }
        steer.landed(&batch);
    }
}

impl PacketIo for UdIo {
    fn device_counters(&self) -> DeviceCounters {
        self.counters
    }

    fn counters(&self) -> Vec<(String, u64)> {
        super::counters::since(&self.initial_counters, &self.context.sysfs(self.port))
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        // The device chooses the number; the key is from the operating system's random source.
        Some((self.pair.number(), self.q_key))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { steers: false, credits: false }
    }

    fn register(&mut self, regions: &Regions) {
        if let Err(error) = self.memory.register(regions) {
            self.pending_error.get_or_insert(error);
        }
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        let posted = receives.len().min(self.slots.len() - self.posted.len());
        self.posted.extend(receives[..posted].iter().map(|receive| receive.id));
        for receive in &receives[..posted] {
            self.slots[receive.id as usize] = receive.sge;
            self.memory.push(&mut self.list, receive.id, receive.sge);
            if self.list.is_full() {
                self.flush_or_defer();
            }
        }
        self.flush_or_defer();
        posted
    }

    fn withdraw(&mut self, _ids: &[u32]) {}

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        if let Some(error) = self.pending_error.take() {
            return Err(error);
        }
        let mut landed = 0;
        for _ in 0..max {
            let count = self.poll_cq()?;
            if count == 0 {
                break;
            }
            let good = self.completions[..count].iter().take_while(|wc| wc.status == IBV_WC_SUCCESS).count();
            if good > 0 {
                self.deliver(steer, good);
            }
            landed += good;
            if good < count {
                self.recover()?;
            }
        }
        Ok(landed)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        while self.channel.next_event()?.is_some() {}
        self.cq.arm(true)?;
        // Completions from before the queue was armed raise no event.
        self.prefetched = self.poll_cq()?;
        if self.prefetched > 0 {
            return Ok(());
        }
        self.handle_async_events()?;
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(self.channel.fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => {
                Err(IoError::System { what: "waiting for completions".into(), source: error.into(), hint: "" })
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.fd())
    }

    fn send(&mut self, _to: SocketAddr, _packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        Err(IoError::Config("this queue pair of an RDMA device only receives: send over UDP sockets".into()))
    }
}

impl Memory {
    /// Registers new regions of the table, and deregisters removed ones.
    fn register(&mut self, regions: &Regions) -> Result<(), IoError> {
        let mut keys: Vec<Option<(Arc<Region>, Mr)>> = Vec::new();
        for (id, region) in regions.iter().filter(|(_, region)| region.is_mapped() && region.is_writable()) {
            let index = usize::from(id.0);
            keys.resize_with(keys.len().max(index + 1), || None);
            let before = self.keys.get_mut(index).and_then(|key| key.take_if(|(known, _)| Arc::ptr_eq(known, region)));
            keys[index] = Some(match before {
                Some(key) => key,
                None => {
                    let mr = Mr::new(&self.pd, region, 0, region.len() as u64, Access::LOCAL_WRITE)?;
                    (Arc::clone(region), mr)
                }
            });
        }
        (self.keys, self.regions) = (keys, regions.clone());
        Ok(())
    }

    /// Appends the receive request of a slot.
    ///
    /// # Panics
    /// If the slot is outside registered memory, which is an error of the caller.
    #[inline]
    fn push(&self, list: &mut RecvList, id: u32, slot: [Sge; 2]) {
        let (addr, lkey) = self.headers.buffer(id);
        list.push_with(id.into(), |elements| {
            elements[0] = ibv_sge { addr, length: GRH_BYTES, lkey };
            let mut count = 1;
            for sge in slot.into_iter().filter(|sge| sge.len > 0) {
                let key = self.keys[usize::from(sge.region.0)].as_ref();
                let (region, mr) = key.expect("the slot's region is registered");
                let addr = region.address(sge.offset as usize, sge.len as usize) as u64;
                elements[count] = ibv_sge { addr, length: sge.len, lkey: mr.lkey() };
                count += 1;
            }
            count
        });
    }
}

impl GrhBuffers {
    fn new(pd: &Arc<Pd>, config: &UdConfig) -> Result<Self, IoError> {
        if let Some(null) = Mr::null(pd).filter(|_| !config.keep_headers) {
            return Ok(Self::Null(null));
        }
        let region = Region::host((config.capacity * GRH_STRIDE).max(1))
            .map_err(|error| IoError::Config(format!("cannot allocate buffers for route headers: {error}")))?;
        let mr = Mr::new(pd, &region, 0, region.len() as u64, Access::LOCAL_WRITE)?;
        Ok(Self::PerSlot(region, mr))
    }

    #[inline]
    fn buffer(&self, id: u32) -> (u64, u32) {
        match self {
            Self::Null(mr) => (0, mr.lkey()),
            Self::PerSlot(_, mr) => (mr.address() + u64::from(id) * GRH_STRIDE as u64, mr.lkey()),
        }
    }

    /// Returns the sender of the packet with this id; the unspecified address if it is unknown.
    #[inline]
    fn source(&self, id: u32) -> IpAddr {
        match self {
            Self::Null(_) => Ipv6Addr::UNSPECIFIED.into(),
            Self::PerSlot(region, _) => {
                let mut header = [0; GRH_BYTES as usize];
                region.read(id as usize * GRH_STRIDE, &mut header);
                sender(&header).unwrap_or(Ipv6Addr::UNSPECIFIED.into())
            }
        }
    }
}

/// Rejects a port whose MTU is too small for payloads of 4096 bytes.
fn check_mtu(opened: &OpenPort) -> Result<(), IoError> {
    let OpenPort { context, port, attributes, gid } = opened;
    if attributes.active_mtu >= IBV_MTU_4096 {
        return Ok(());
    }
    let interface = gid.netdev.clone().unwrap_or_else(|| format!("the interface of {}", gid.ip()));
    Err(IoError::Config(format!(
        "packets of 4096 bytes exceed the MTU of port {port} of {} ({} bytes): ip link set {interface} mtu 4200",
        context.name(),
        128_u32 << attributes.active_mtu.min(5)
    )))
}
