//! An endpoint over the transport of example 06, with memory and one queue pair.

use crate::unix_io::UnixIo;
use crate::{Failure, MESSAGE};
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::IoError;
use shotline_transport::copier::CopierConfig;
use shotline_verbs::api::{Completion, Cq, Data, Element, Modify, Operation, Provider as _, Qp, QpConfig, QpType};
use shotline_verbs::api::{RecvWr, SendWr, Status};
use shotline_verbs::soft::SoftEndpoint;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

/// An endpoint with memory and one queue pair.
pub struct Side {
    pub endpoint: SoftEndpoint<UnixIo>,
    pub memory: Arc<Region>,
    pub mr: Mr,
    cq: Cq,
    pub qp: Qp,
}

impl Side {
    /// Opens an endpoint over one of two connected sockets. The addresses are nominal: they name the ends in packets.
    pub fn open(socket: UnixDatagram, address: SocketAddr, peer: SocketAddr) -> Result<Self, Failure> {
        let mut endpoint = SoftEndpoint::with_transport(address, |regions, scratch| {
            // Endpoints choose the memory of each payload from its packet: no receives are posted to the transport.
            let config = CopierConfig { address, sealed: true, capacity: 0, scratch };
            UnixIo::open(socket, config, peer, regions).map_err(|error| IoError::Config(error.to_string()))
        })?;
        let (pd, cq) = (endpoint.alloc_pd()?, endpoint.create_cq(16)?);
        let memory = Region::host(MESSAGE + 1)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = endpoint.reg_mr(pd, &memory, 0, memory.len() as u64, access, Addressing::ZeroBased)?;
        let qp = endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
        Ok(Self { endpoint, memory, mr, cq, qp })
    }

    /// Connects the queue pair to that of the peer.
    pub fn connect(&mut self, peer: (SocketAddr, u32)) -> Result<(), Failure> {
        let changes = Modify::connection(Access::REMOTE_WRITE, peer, 0);
        Ok(changes.into_iter().try_for_each(|change| self.endpoint.modify_qp(self.qp, change))?)
    }

    fn element(&self, offset: usize, len: usize) -> [Element; 1] {
        [Element { address: self.mr.address + offset as u64, len: len as u32, lkey: self.mr.lkey }]
    }

    /// Posts a receive, for a request or for the immediate data of a WRITE.
    pub fn post_recv(&mut self) -> Result<(), Failure> {
        let request = RecvWr { id: 1, elements: &self.element(MESSAGE, 1) };
        Ok(self.endpoint.post_recv(self.qp, &[request]).map_err(|(_, error)| error)?)
    }

    /// Posts an operation on local memory.
    pub fn post_send(&mut self, operation: Operation, offset: usize, len: usize) -> Result<(), Failure> {
        let element = self.element(offset, len);
        let request = SendWr::new(2, operation, Data::Elements(&element));
        Ok(self.endpoint.post_send(self.qp, &[request]).map_err(|(_, error)| error)?)
    }

    /// Waits for the next completion. The endpoint sends and receives packets only within these calls.
    pub fn next(&mut self) -> Result<Completion, Failure> {
        let mut done = [Completion::default()];
        loop {
            self.endpoint.arm_cq(self.cq, false)?; // before the poll: what completes after it ends the wait
            if self.endpoint.poll_cq(self.cq, &mut done)? == 1 {
                break;
            }
            self.endpoint.wait(Duration::from_millis(100))?;
        }
        match done[0].status {
            Status::Success => Ok(done[0]),
            status => Err(format!("an operation ended with {status:?}").into()),
        }
    }
}
