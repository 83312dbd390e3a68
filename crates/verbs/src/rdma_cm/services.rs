//! Queue pair 1 of a software endpoint, with a connection manager behind it.

use super::{Connection, Event, MAD_LEN, Manager, Q_KEY};
use crate::api::{
    Completed, Completion, Cq, Data, Destination, Element, Modify, Mtu, Operation, Provider as _, Qp, QpConfig, QpType,
    ReadyToReceive, ReadyToSend, RecvWr, SendWr, Status, VerbsError,
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
const RECEIVES: u32 = 64;

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
        let cq = endpoint.create_cq(2 * RECEIVES)?;
        let config = QpConfig {
            max_send_wr: RECEIVES,
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
        let seed = crate::cm::message::Bits24::random().map_or(0, |bits| bits.get() << 8);
        let services = Self { manager: Manager::new(seed), began: Instant::now(), qp, cq, region, memory };
        (0..u64::from(RECEIVES)).try_for_each(|place| services.post(endpoint, place))?;
        Ok(services)
    }

    /// The connection manager, and the time to tell it.
    pub fn manager(&mut self) -> (&mut Manager, Duration) {
        (&mut self.manager, self.began.elapsed())
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
        let now = self.began.elapsed();
        let mut done = [Completion::default(); 16];
        let count = endpoint.poll_cq(self.cq, &mut done)?;
        for completion in &done[..count] {
            if completion.completed != Completed::Recv || completion.status != Status::Success {
                continue;
            }
            if let (Some((from, _)), MAD_LEN) = (completion.source, completion.bytes as usize) {
                let mut mad = [0; MAD_LEN];
                self.region.read(completion.id as usize * MAD_LEN, &mut mad);
                self.manager.receive(now, from.ip().to_canonical(), &mad);
            }
            self.post(endpoint, completion.id)?;
        }
        self.manager.expire(now);
        while let Some((to, mad)) = self.manager.next_out() {
            self.send(endpoint, to, &mad);
        }
        Ok(self.manager.next_event())
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

    /// Whatever cannot be sent now is as good as lost, and said again.
    fn send<P: PacketIo>(&self, endpoint: &mut SoftEndpoint<P>, to: IpAddr, mad: &[u8; MAD_LEN]) {
        let destination = Destination { address: SocketAddr::new(to, ROCE_PORT), qp: 1, q_key: Q_KEY };
        let request =
            SendWr { destination: Some(destination), ..SendWr::new(u64::MAX, Operation::Send, Data::Inline(mad)) };
        let _ = endpoint.post_send(self.qp, &[request]);
    }
}
