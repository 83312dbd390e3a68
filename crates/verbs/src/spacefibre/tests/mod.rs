//! Packets in both directions, and whole endpoints over carriers with faults.

mod balance;
mod ends;
mod faults;
mod invalid;
mod links;
mod many_ends;
mod packets;
mod receive;
mod replies;
mod rules;
mod segments;
mod transmit;
mod unlinked;

use super::options::SEGMENT;
use super::{AnyCarrier, Connected, Connector, LinkOptions, SpaceFibreEndpoint};
use crate::api::{
    Completion, CompletionKind, Cq, Data, Element, Modify, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive,
    ReadyToSend, RecvWr, Remote, SendWr, VerbsError,
};
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_transport::carrier::faulty::Faults;
use shotline_wire::aeth::RnrTimer;
use shotline_wire::crc;
use shotline_wire::spacefibre::rdma::{Command, Header};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Length of each end's memory.
const MEMORY: u64 = 1 << 18;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 1))
}

/// Returns a whole packet without its end.
fn packet(header: &Header, data: &[u8]) -> Vec<u8> {
    let crc = crc::crc32(data).to_le_bytes();
    [header.emit().as_slice(), data, if data.is_empty() { &[] } else { &crc }].concat()
}

/// An endpoint with registered memory that begins at address 0.
struct Node<K: Connector = Connected<AnyCarrier>> {
    endpoint: SpaceFibreEndpoint<K>,
    pd: Pd,
    region: Arc<Region>,
    mr: Mr,
    cq: Cq,
}

impl Node {
    fn pair(options: &LinkOptions, faults: Faults) -> [Self; 2] {
        SpaceFibreEndpoint::pair(options, [address(1), address(2)], faults).unwrap().map(Self::new)
    }
}

impl<K: Connector> Node<K> {
    fn new(mut endpoint: SpaceFibreEndpoint<K>) -> Self {
        let (pd, region) = (endpoint.alloc_pd().unwrap(), Region::heap(MEMORY as usize).unwrap());
        let mr = endpoint.reg_mr(pd, &region, 0, MEMORY, Access::ALL, Addressing::ZeroBased).unwrap();
        let cq = endpoint.create_cq(1024).unwrap();
        // Passes the table of regions to the datapath.
        endpoint.progress().unwrap();
        Self { endpoint, pd, region, mr, cq }
    }

    fn create_qp(&mut self, service_level: u8) -> Qp {
        self.create_qp_with(&QpConfig { service_level, ..self.config() }, Access::ALL)
    }

    fn config(&self) -> QpConfig {
        QpConfig::new(QpType::Rc, self.pd, self.cq, self.cq)
    }

    fn create_qp_with(&mut self, config: &QpConfig, access: Access) -> Qp {
        let qp = self.endpoint.create_qp(config).unwrap();
        self.endpoint.modify_qp(qp, Modify::Init { access, q_key: 0 }).unwrap();
        qp
    }

    /// Connects a queue pair; both ends begin with PSN 0.
    fn connect(&mut self, qp: Qp, peer: (SocketAddr, u32), timeout: Duration) -> Result<(), VerbsError> {
        let rtr = ReadyToReceive {
            peer: Some(peer),
            mtu: SEGMENT,
            psn: 0,
            max_dest_rd_atomic: 16,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        self.endpoint.modify_qp(qp, Modify::ReadyToReceive(rtr))?;
        let rts = ReadyToSend { psn: 0, timeout, retry_cnt: 2, rnr_retry: 7, max_rd_atomic: 16 };
        self.endpoint.modify_qp(qp, Modify::ReadyToSend(rts))
    }

    fn element(&self, address: u64, len: u32) -> Element {
        Element { address, len, lkey: self.mr.lkey }
    }

    fn remote(&self, address: u64) -> Remote {
        Remote { address, rkey: self.mr.rkey }
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset as usize, &mut bytes);
        bytes
    }

    fn post(&mut self, qp: Qp, id: u64, operation: Operation, elements: &[Element]) {
        let fenced = SendWr { fence: true, ..SendWr::new(id, operation, Data::Elements(elements)) };
        self.endpoint.post_send(qp, &[fenced]).unwrap();
    }

    fn post_recv(&mut self, qp: Qp, id: u64, element: Element) {
        self.endpoint.post_recv(qp, &[RecvWr { id, elements: &[element] }]).unwrap();
    }

    /// Makes progress and returns what has completed.
    fn poll(&mut self) -> Vec<Completion> {
        let mut completions = [Completion::default(); 64];
        let count = self.endpoint.poll_cq(self.cq, &mut completions).unwrap();
        completions[..count].to_vec()
    }
}

/// Connects a queue pair of each end with the other one.
fn connect<K: Connector>(nodes: &mut [Node<K>; 2], service_level: u8, timeout: Duration) -> [Qp; 2] {
    let addresses = nodes.each_ref().map(|node| node.endpoint.address());
    let qps = nodes.each_mut().map(|node| node.create_qp(service_level));
    for this in 0..2 {
        let peer = (addresses[1 - this], qps[1 - this].0);
        nodes[this].connect(qps[this], peer, timeout).unwrap();
    }
    qps
}
