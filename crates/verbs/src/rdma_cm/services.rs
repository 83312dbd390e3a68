//! Queue pair 1 of a software endpoint, with a connection manager behind it.

use super::{Connection, Counts, Event, MAD_LEN, Manager, Q_KEY};
use crate::api::{
    Completed, Completion, Cq, Data, Destination, Element, Modify, Mtu, Operation, PostError, Provider as _, Qp,
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

/// Datagrams that may wait to be read.
const RECEIVES: u32 = 1024;
/// Datagrams that are read before anything is decided: whatever a burst has brought, but no more than have an end.
const MOST_READ: usize = 8192;
/// Datagrams that may wait to be sent; more wait with the manager. A send completes only if it fails, so that the
/// completion queue has room for all.
const SENDS: u32 = 64;

/// Queue pair 1, and the connections that begin there.
pub struct Services {
    manager: Manager,
    began: Instant,
    qp: Qp,
    cq: Cq,
    region: Arc<Region>,
    memory: Mr,
}

impl Services {
    /// Makes queue pair 1 of an endpoint, of which there can be one.
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
        let send = ReadyToSend { psn: 0, timeout, retries: 0, rnr_retries: 0, max_rd_atomic: 0 };
        endpoint.modify_qp(qp, Modify::ReadyToSend(send))?;
        let services = Self { manager: Manager::new(), began: Instant::now(), qp, cq, region, memory };
        (0..u64::from(RECEIVES)).try_for_each(|place| services.post(endpoint, place))?;
        Ok(services)
    }

    /// The connection manager, and the time to tell it.
    pub fn manager(&mut self) -> (&mut Manager, Duration) {
        (&mut self.manager, self.began.elapsed())
    }

    /// What became of requests for connections so far.
    pub fn counts(&self) -> Counts {
        self.manager.counts()
    }

    /// The queue pair.
    pub fn qp(&self) -> Qp {
        self.qp
    }

    /// Ends a connection in order, whoever began it.
    pub fn disconnect(&mut self, connection: Connection) {
        self.manager.disconnect(self.began.elapsed(), connection);
    }

    /// Reads what has come, says what is to be said. The endpoint itself is driven by its owner.
    pub fn progress<P: PacketIo>(&mut self, endpoint: &mut SoftEndpoint<P>) -> Result<Option<Event>, VerbsError> {
        // Before more comes: events that nobody reads would pile up.
        if let Some(event) = self.manager.next_event() {
            return Ok(Some(event));
        }
        let now = self.began.elapsed();
        let mut done = [Completion::default(); 64];
        for _ in 0..MOST_READ / done.len() {
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
        if completion.completed != Completed::Recv || completion.status != Status::Success {
            return Ok(());
        }
        if let (Some((from, _)), MAD_LEN) = (completion.source, completion.bytes as usize) {
            let mut mad = [0; MAD_LEN];
            self.region.read(completion.id as usize * MAD_LEN, &mut mad);
            self.manager.receive(now, from.ip().to_canonical(), &mad);
        }
        self.post(endpoint, completion.id)
    }

    /// When [`Self::progress`] has something to do even if nothing comes.
    pub fn due(&self) -> Option<Duration> {
        self.manager.deadline().map(|due| due.saturating_sub(self.began.elapsed()))
    }

    fn post<P: PacketIo>(&self, endpoint: &mut SoftEndpoint<P>, place: u64) -> Result<(), VerbsError> {
        let address = self.memory.address + place * MAD_LEN as u64;
        let element = [Element { address, len: MAD_LEN as u32, lkey: self.memory.lkey }];
        let posted = endpoint.post_recv(self.qp, &[RecvWr { id: place, elements: &element }]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// Whether there was room for a datagram. One that cannot be sent for another reason is as good as lost on the way.
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
