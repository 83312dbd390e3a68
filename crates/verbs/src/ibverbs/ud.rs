//! Receiving unreliable datagrams through a device, as paper 0 does: [`UdIo`].
//!
//! Each posted place is one receive work request: 40 bytes for the global route header, then the payload, which the
//! device writes to its place without a copy. The header's bytes go to a null memory region where the device has one
//! (mlx5), else to 40 bytes of its own for each request, which tell who sent the packet. Requests are posted as lists,
//! completions taken in batches, and who waits is woken by the solicited-event bit that a sender sets on the last packet
//! of a shot.
//!
//! The device takes the oldest receive, whatever the packet is: after a loss payloads slide, and the layer above moves
//! them. A place is the device's until its request has completed, so [`PacketIo::withdraw`] takes nothing back: whoever
//! posts a place leaves it alone until it has landed.
//!
//! What a completion tells ([`Completed`]) stands in place of the packet's header. The device has checked the ICRC and
//! the Q_Key ([`Icrc::Device`]); neither sequence number nor solicited event is told.
//!
//! A datagram that is longer than its place puts the queue pair into its error state (IBTA volume 1, clause 10.8.3.2).
//! Anyone who knows number and key can send one, so it ends nothing here: the queue pair is reset, everything that was
//! posted is posted again, and the books say so ([`DeviceCounts::queue_pair_errors`]). What came meanwhile is lost.

use super::choice::{Choice, Opened};
use super::sys::abi::*;
use super::sys::{AsyncEvent, Channel, Context, Cq, Mr, Pd, Qp, QpConfig, RecvList, remainder};
use super::words::{GRH, sender};
use crate::random::fresh_q_key;
use crate::ud::{Completed, stand_in_port};
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Region, Regions, Sge};
use shotline_transport::{
    Capabilities, DeviceCounts, Done, Icrc, IoError, Landed, MAX_BATCH, PacketIo, Recv, Send, Steer,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Work requests of one list.
const LIST: usize = 64;
/// A global route header's place in its region: the next power of two, so that none straddles two cache lines.
const GRH_STRIDE: usize = 64;

/// How to open a device.
#[derive(Clone, Debug)]
pub struct UdConfig {
    /// Which, and which of its addresses.
    pub choice: Choice,
    /// The address that packets are to come to, unless the choice says it.
    pub local: IpAddr,
    /// Receives that may be posted at once, and bound of their ids.
    pub capacity: usize,
    /// Whether payload CRC remainders are wanted.
    pub remainders: bool,
    /// Keep route headers, which tell a packet's source, although the device could drop them.
    pub keep_headers: bool,
}

/// One UD queue pair of a device.
pub struct UdIo {
    // Dropped in this order: the queue pair first, so that the device writes nowhere when the memory goes.
    pair: Qp,
    cq: Arc<Cq>,
    channel: Arc<Channel>,
    memory: Memory,
    context: Arc<Context>,
    port: u8,
    local: SocketAddr,
    q_key: u32,
    list: RecvList,
    /// The place of each id.
    places: Vec<[Sge; 2]>,
    /// What the device has, oldest first.
    posted: VecDeque<u32>,
    completions: Box<[ibv_wc; MAX_BATCH]>,
    /// What they tell, for the layer above.
    told: Box<[[u8; Completed::LEN]; MAX_BATCH]>,
    /// Completions in front that were taken while this made ready to sleep.
    taken: usize,
    remainders: bool,
    counts: DeviceCounts,
    before: Vec<(String, u64)>,
    /// What went wrong where nothing could be returned.
    broken: Option<IoError>,
}

/// What the device may write to.
struct Memory {
    pd: Arc<Pd>,
    regions: Regions,
    keys: Vec<Option<(Arc<Region>, Mr)>>,
    headers: Headers,
}

/// Where route headers go.
enum Headers {
    /// Nowhere.
    Null(Mr),
    /// To a place of their own for each id.
    Kept(Arc<Region>, Mr),
}

impl UdIo {
    /// Opens a device and makes its queue pair ready to receive.
    ///
    /// # Errors
    /// With what to do about it: no library, no device, no address, a port that is down or whose packets are too short.
    pub fn open(config: &UdConfig, regions: &Regions) -> Result<Self, IoError> {
        let opened = config.choice.open_at(config.local)?;
        check_mtu(&opened)?;
        let Opened { context, port, gid, .. } = opened;
        let local = gid.ip();
        let pd = Pd::new(&context)?;
        let capacity = u32::try_from(config.capacity).unwrap_or(u32::MAX);
        let most = u32::try_from(context.attributes()?.max_qp_wr).unwrap_or(0);
        if capacity > most {
            return Err(IoError::Config(format!(
                "{capacity} receives are more than a queue pair of {} has ({most}): give a smaller --window",
                context.name()
            )));
        }
        let channel = Channel::new(&context)?;
        // Room for every receive and one more, which no completion can fill: a queue that runs over is broken.
        let cq = Cq::new(&context, capacity.saturating_add(1), Some(&channel), 0)?;
        let cap =
            ibv_qp_cap { max_send_wr: 1, max_recv_wr: capacity, max_send_sge: 1, max_recv_sge: 3, max_inline_data: 0 };
        let pair = QpConfig { kind: IBV_QPT_UD, send_cq: &cq, recv_cq: &cq, srq: None, cap, signal_all: false };
        let pair = Qp::new(&pd, &pair)?;
        let q_key = fresh_q_key()?;
        let headers = Headers::new(&pd, config)?;
        let mut memory = Memory { pd, regions: regions.clone(), keys: Vec::new(), headers };
        memory.register(regions)?;
        let before = super::counters::read(&context.sysfs(port));
        let mut this = Self {
            pair,
            cq,
            channel,
            memory,
            context,
            port,
            local: SocketAddr::new(local, shotline_wire::udp::ROCE_PORT),
            q_key,
            list: RecvList::new(LIST, 3),
            places: vec![[Sge::EMPTY; 2]; config.capacity],
            posted: VecDeque::with_capacity(config.capacity),
            completions: Box::new([ibv_wc::default(); MAX_BATCH]),
            told: Box::new([[0; Completed::LEN]; MAX_BATCH]),
            taken: 0,
            remainders: config.remainders,
            counts: DeviceCounts::default(),
            before,
            broken: None,
        };
        this.raise()?;
        Ok(this)
    }

    /// Where packets are to be sent.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// From the state `RESET` to one that receives and sends.
    fn raise(&mut self) -> Result<(), IoError> {
        let attributes = ibv_qp_attr { port_num: self.port, qkey: self.q_key, ..Default::default() };
        let to = |qp_state| ibv_qp_attr { qp_state, ..attributes };
        self.pair.modify(&to(IBV_QPS_INIT), IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)?;
        self.post_again()?;
        self.pair.modify(&to(IBV_QPS_RTR), IBV_QP_STATE)?;
        self.pair.modify(&to(IBV_QPS_RTS), IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Posts what the device had, in its order.
    fn post_again(&mut self) -> Result<(), IoError> {
        for at in 0..self.posted.len() {
            let id = self.posted[at];
            self.memory.push(&mut self.list, id, self.places[id as usize]);
            if self.list.is_full() {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Gives the device the requests of the list.
    fn flush(&mut self) -> Result<(), IoError> {
        self.pair.post_recv(&mut self.list).map_err(|(_, source)| IoError::System {
            what: format!("posting receives to {}", self.context.name()),
            source,
            hint: "",
        })
    }

    /// The same where an error can only be told later: by the next poll.
    fn flush_or_break(&mut self) {
        if let Err(error) = self.flush() {
            self.broken.get_or_insert(error);
        }
    }

    /// What has happened to the device without a completion that would tell.
    fn look_around(&mut self) -> Result<(), IoError> {
        while let Some(event) = self.context.next_event()? {
            match event {
                AsyncEvent::Qp { number, kind: IBV_EVENT_QP_FATAL } if number == self.pair.number() => {
                    self.recover()?
                }
                AsyncEvent::Cq(_) | AsyncEvent::Device(IBV_EVENT_DEVICE_FATAL) => {
                    return Err(IoError::Config(format!(
                        "the driver of {} has given it up: the kernel's log says why (dmesg)",
                        self.context.name()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes completions to the front of [`Self::completions`].
    #[inline]
    fn take(&mut self) -> Result<usize, IoError> {
        match std::mem::take(&mut self.taken) {
            0 => self.cq.poll(&mut self.completions[..]),
            taken => Ok(taken),
        }
    }

    /// The queue pair has met an error: it is reset, and has what it had before.
    fn recover(&mut self) -> Result<(), IoError> {
        self.counts.queue_pair_errors += 1;
        self.pair.modify(&ibv_qp_attr { qp_state: IBV_QPS_RESET, ..Default::default() }, IBV_QP_STATE)?;
        // What else had completed by then was flushed: nothing landed there.
        while self.cq.poll(&mut self.completions[..])? > 0 {}
        self.raise()
    }

    /// Tells the steer of completions, all good, in front of [`Self::completions`].
    fn land<S: Steer>(&mut self, steer: &mut S, count: usize) {
        self.posted.drain(..count.min(self.posted.len()));
        let mut batch = ArrayVec::<Done<'_>, MAX_BATCH>::new();
        for (wc, header) in self.completions[..count].iter().zip(self.told.iter_mut()) {
            let imm = (wc.wc_flags & IBV_WC_WITH_IMM != 0).then_some(u32::from_be(wc.imm_data));
            *header = Completed { dest_qp: wc.qp_num, src_qp: wc.src_qp, imm }.emit();
            let id = wc.wr_id as u32;
            let len = wc.byte_len.saturating_sub(GRH);
            let payload_crc =
                if self.remainders { remainder(&self.memory.regions, self.places[id as usize], len) } else { 0 };
            batch.push(Done {
                landed: Landed::Slot(id),
                header,
                len,
                source: SocketAddr::new(self.memory.headers.source(id), stand_in_port(wc.src_qp)),
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
    fn device(&self) -> DeviceCounts {
        self.counts
    }

    fn counters(&self) -> Vec<(String, u64)> {
        super::counters::since(&self.before, &self.context.sysfs(self.port))
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        // The number is the device's choice, the key the operating system's random source's.
        Some((self.pair.number(), self.q_key))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { steers: false, credits: false }
    }

    fn register(&mut self, regions: &Regions) {
        if let Err(error) = self.memory.register(regions) {
            self.broken.get_or_insert(error);
        }
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        let taken = receives.len().min(self.places.len() - self.posted.len());
        self.posted.extend(receives[..taken].iter().map(|receive| receive.id));
        for receive in &receives[..taken] {
            self.places[receive.id as usize] = receive.sge;
            self.memory.push(&mut self.list, receive.id, receive.sge);
            if self.list.is_full() {
                self.flush_or_break();
            }
        }
        self.flush_or_break();
        taken
    }

    fn withdraw(&mut self, _ids: &[u32]) {}

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let mut landed = 0;
        for _ in 0..max {
            let count = self.take()?;
            if count == 0 {
                break;
            }
            let good = self.completions[..count].iter().take_while(|wc| wc.status == IBV_WC_SUCCESS).count();
            if good > 0 {
                self.land(steer, good);
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
        // What came before the queue was armed has no event.
        self.taken = self.take()?;
        if self.taken > 0 {
            return Ok(());
        }
        self.look_around()?;
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

    fn send(&mut self, _to: SocketAddr, _packets: &[Send<'_>]) -> Result<usize, IoError> {
        Err(IoError::Config("this queue pair of an RDMA device only receives: send over UDP sockets".into()))
    }
}

impl Memory {
    /// Registers what is new in the table, and lets go of what has left it.
    fn register(&mut self, regions: &Regions) -> Result<(), IoError> {
        let mut keys: Vec<Option<(Arc<Region>, Mr)>> = Vec::new();
        for (id, region) in regions.iter().filter(|(_, region)| region.is_mapped() && region.is_writable()) {
            let at = usize::from(id.0);
            keys.resize_with(keys.len().max(at + 1), || None);
            let before = self.keys.get_mut(at).and_then(|key| key.take_if(|(same, _)| Arc::ptr_eq(same, region)));
            keys[at] = Some(match before {
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

    /// Appends the request of a place.
    ///
    /// # Panics
    /// For a place outside registered memory: it is the caller's own.
    #[inline]
    fn push(&self, list: &mut RecvList, id: u32, place: [Sge; 2]) {
        let (addr, lkey) = self.headers.place(id);
        list.push_with(id.into(), |room| {
            room[0] = ibv_sge { addr, length: GRH, lkey };
            let mut count = 1;
            for sge in place.into_iter().filter(|sge| sge.len > 0) {
                let key = self.keys[usize::from(sge.region.0)].as_ref();
                let (region, mr) = key.expect("the place's region is registered");
                let addr = region.address(sge.offset as usize, sge.len as usize) as u64;
                room[count] = ibv_sge { addr, length: sge.len, lkey: mr.lkey() };
                count += 1;
            }
            count
        });
    }
}

impl Headers {
    fn new(pd: &Arc<Pd>, config: &UdConfig) -> Result<Self, IoError> {
        if let Some(null) = Mr::null(pd).filter(|_| !config.keep_headers) {
            return Ok(Self::Null(null));
        }
        let region = Region::host((config.capacity * GRH_STRIDE).max(1))
            .map_err(|error| IoError::Config(format!("no memory for route headers: {error}")))?;
        let mr = Mr::new(pd, &region, 0, region.len() as u64, Access::LOCAL_WRITE)?;
        Ok(Self::Kept(region, mr))
    }

    #[inline]
    fn place(&self, id: u32) -> (u64, u32) {
        match self {
            Self::Null(mr) => (0, mr.lkey()),
            Self::Kept(_, mr) => (mr.address() + u64::from(id) * GRH_STRIDE as u64, mr.lkey()),
        }
    }

    /// Who sent the packet of this id; "any" where nobody knows.
    #[inline]
    fn source(&self, id: u32) -> IpAddr {
        match self {
            Self::Null(_) => Ipv6Addr::UNSPECIFIED.into(),
            Self::Kept(region, _) => {
                let mut header = [0; GRH as usize];
                region.read(id as usize * GRH_STRIDE, &mut header);
                sender(&header).unwrap_or(Ipv6Addr::UNSPECIFIED.into())
            }
        }
    }
}

/// Refuses a port that would not take the probe's packets.
fn check_mtu(opened: &Opened) -> Result<(), IoError> {
    let Opened { context, port, attributes, gid } = opened;
    if attributes.active_mtu >= IBV_MTU_4096 {
        return Ok(());
    }
    let interface = gid.netdev.clone().unwrap_or_else(|| format!("the interface of {}", gid.ip()));
    Err(IoError::Config(format!(
        "packets of 4096 bytes do not pass port {port} of {}, whose packets have {} at most: ip link set {interface} mtu 4200",
        context.name(),
        128_u32 << attributes.active_mtu.min(5)
    )))
}
