//! A queue pair of the shared-memory provider, used by tests and by the process that they start
//! (`crates/verbs/examples/shm_target.rs`).

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_testing::{WAIT_TIMEOUT, wait_until, wait_until_some};
use shotline_verbs::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    SendWr,
};
use shotline_verbs::shm::ShmEndpoint;
use shotline_wire::aeth::RnrTimer;
use std::sync::Arc;
use std::time::Duration;

/// Endpoint with a queue pair and memory published to its peer.
pub struct Side {
    pub shm: ShmEndpoint,
    pub cq: Cq,
    pub qp: Qp,
    pub region: Arc<Region>,
    pub mr: Mr,
}

impl Side {
    pub fn new(mut shm: ShmEndpoint) -> Self {
        let pd = shm.alloc_pd().unwrap();
        let cq = shm.create_cq(64).unwrap();
        let qp = shm.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
        let region = Region::memfd("test", 1 << 20).unwrap();
        let mr = shm.reg_mr(pd, &region, 0, 1 << 20, Access::ALL, Addressing::ZeroBased).unwrap();
        shm.publish("memory", &mr).unwrap();
        Self { shm, cq, qp, region, mr }
    }

    /// Connects to the peer's queue pair. Returns the key of its memory.
    pub fn connect(&mut self, peer: u32) -> u32 {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse().unwrap(), peer)),
            mtu: Mtu::B4096,
            psn: 3,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let send = ReadyToSend { psn: 3, timeout: WAIT_TIMEOUT, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        for change in [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
            self.shm.modify_qp(self.qp, change).unwrap();
        }
        wait_until_some("the peer's memory", || self.shm.peer_region("memory")).rkey
    }

    /// Executes one request. Returns its completion.
    pub fn operate(&mut self, operation: Operation, address: u64, len: u32) -> Completion {
        let element = [Element { address, len, lkey: self.mr.lkey }];
        self.shm.post_send(self.qp, &[SendWr::new(1, operation, Data::Elements(&element))]).unwrap();
        self.completion()
    }

    /// Waits for the next completion.
    pub fn completion(&mut self) -> Completion {
        let mut out = [Completion::default()];
        self.shm.arm_cq(self.cq, false).unwrap();
        wait_until("a completion", || {
            let found = self.shm.poll_cq(self.cq, &mut out).unwrap() > 0;
            if !found {
                self.shm.wait(Duration::from_millis(10)).unwrap();
            }
            found
        });
        out[0]
    }
}
