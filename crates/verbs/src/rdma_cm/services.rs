//! Queue pair 1 of a software endpoint with its connection manager.

use super::{CmCounters, Connection, Event, MAD_LEN, Manager, Q_KEY};
use crate::api::{
    Completion, CompletionKind, Cq, Data, Destination, Element, Modify, Mtu, Operation, PostError, Provider as _, Qp,
    QpConfig, QpType, ReadyToReceive, ReadyToSend, RecvWr, SendWr, Status, VerbsError,
};
use crate::soft::SoftEndpoint;
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::PacketIo;
use shotline_wire::aeth::RnrTimer;
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receive queue depth, in datagrams.
const RECEIVES: u32 = 1024;
/// Maximum datagrams read before the next event is returned: a whole burst, but bounded.
const MAX_READ: usize = 8192;
/// Send queue depth, in datagrams; the manager queues more. A send posts a completion only if it fails, so the
/// completion queue cannot overflow.
const SENDS: u32 = 64;

/// Queue pair 1 (general services) and the connections established through it.
pub struct Services {
    manager: Manager,
    began: Instant,
    qp: Qp,
    cq: Cq,
    region: Arc<Region>,
    memory: Mr,
}

impl Services {
    /// Creates queue pair 1 of an endpoint; there can be only one.
    ///
    /// # Errors
    /// If the endpoint has a queue pair 1, or its queues or memory cannot be created.
    pub fn open<P: PacketIo>(endpoint: &mut SoftEndpoint<P>) -> Result<Self, VerbsError> {
        let pd = endpoint.alloc_pd()?;
        let cq = endpoint.create_cq(SENDS + RECEIVES)?;
        let config = QpConfig {
            max_send_wr: SENDS,
            max_recv_wr: RECEIVES,
            max_inline: MAD_LEN as u32,
            ..QpConfig::new(QpType::Ud, pd, cq, cq)
        };
        let qp = endpoint.create_general_services_qp(&config)?;
        let len = RECEIVES as usize * MAD_LEN;
        let region = Region::heap(len)?;
        let memory = endpoint.reg_mr(pd, &region, 0, len as u64, Access::LOCAL_WRITE, Addressing::ZeroBased)?;
        endpoint.modify_qp(qp, Modify::Init { access: Access::NONE, q_key: Q_KEY })?;
        let min_rnr_timer = RnrTimer::from_code(1).ok_or(VerbsError::NoSuch("RNR timer"))?;
        endpoint.modify_qp(
            qp,
            Modify::ReadyToReceive(ReadyToReceive {
                peer: None,
                mtu: Mtu::B256,
                psn: 0,
                max_dest_rd_atomic: 0,
                min_rnr_timer,
                ack_every: 0,
            }),
        )?;
        let timeout = Duration::from_secs(1);
        let send = ReadyToSend { psn: 0, timeout, retry_cnt: 0, rnr_retry: 0, max_rd_atomic: 0 };
        endpoint.modify_qp(qp, Modify::ReadyToSend(send))?;
        let services = Self { manager: Manager::new(), began: Instant::now(), qp, cq, region, memory };
        (0..u64::from(RECEIVES)).try_for_each(|index| services.post(endpoint, index))?;
        Ok(services)
    }

    /// Returns the connection manager, and the current time to pass to it.
    pub fn manager(&mut self) -> (&mut Manager, Duration) {
        (&mut self.manager, self.began.elapsed())
    }

    /// Returns the counters of connection requests.
    pub fn counters(&self) -> CmCounters {
        self.manager.counters()
    }

    /// Returns the queue pair.
    pub fn qp(&self) -> Qp {
        self.qp
    }

    /// Disconnects a connection by a DREQ ([`Manager::disconnect`]).
    pub fn disconnect(&mut self, connection: Connection) {
        self.manager.disconnect(self.began.elapsed(), connection);
    }

    /// Processes received datagrams, sends pending ones, and returns the next event: call it until it returns `None`.
    /// The caller drives the endpoint itself ([`Provider::progress`](crate::api::Provider::progress)).
    ///
    /// # Errors
    /// If the endpoint's transport fails.
    pub fn progress<P: PacketIo>(&mut self, endpoint: &mut SoftEndpoint<P>) -> Result<Option<Event>, VerbsError> {
        // Pending events first: unread events would accumulate otherwise.
        if let Some(event) = self.manager.next_event() {
            return Ok(Some(event));
        }
        let now = self.began.elapsed();
        let mut done = [Completion::default(); 64];
        for _ in 0..MAX_READ / done.len() {
            let count = endpoint.poll_cq(self.cq, &mut done)?;
            for completion in &done[..count] {
                self.receive(endpoint, now, completion)?;
            }
            if count == 0 {
                break;
            }
        }
        self.manager.expire(now);
        while let Some((to, mad)) = self.manager.peek_out()
            && self.send(endpoint, *to, mad)
        {
            self.manager.next_out();
        }
        Ok(self.manager.next_event())
    }

    fn receive<P: PacketIo>(
        &mut self,
        endpoint: &mut SoftEndpoint<P>,
        now: Duration,
        completion: &Completion,
    ) -> Result<(), VerbsError> {
        if completion.kind != CompletionKind::Recv || completion.status != Status::Success {
            return Ok(());
        }
        if let (Some((from, _)), MAD_LEN) = (completion.source, completion.bytes as usize) {
            let mut mad = [0; MAD_LEN];
            self.region.read(completion.id as usize * MAD_LEN, &mut mad);
            self.manager.receive(now, from.ip().to_canonical(), &mad);
        }
        self.post(endpoint, completion.id)
    }

    /// Returns the time until [`Self::progress`] must be called even if nothing is received.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.manager.deadline().map(|deadline| deadline.saturating_sub(self.began.elapsed()))
    }

    fn post<P: PacketIo>(&self, endpoint: &mut SoftEndpoint<P>, index: u64) -> Result<(), VerbsError> {
        let address = self.memory.address + index * MAD_LEN as u64;
        let element = [Element { address, len: MAD_LEN as u32, lkey: self.memory.lkey }];
        let posted = endpoint.post_recv(self.qp, &[RecvWr { id: index, elements: &element }]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// Returns `false` if the send queue is full. A datagram that cannot be sent for another reason counts as lost in
    /// the network.
    fn send<P: PacketIo>(&self, endpoint: &mut SoftEndpoint<P>, to: IpAddr, mad: &[u8; MAD_LEN]) -> bool {
        let destination = Destination { address: SocketAddr::new(to, ROCE_PORT), qp: 1, q_key: Q_KEY };
        let request = SendWr {
            destination: Some(destination),
            signalled: false,
            ..SendWr::new(u64::MAX, Operation::Send, Data::Inline(mad))
        };
        !matches!(endpoint.post_send(self.qp, &[request]), Err((_, PostError::Full)))
    }
}
