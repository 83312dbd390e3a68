// Set-up of the examples on the verbs pages: two connected endpoints in one process.

use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_transport::inproc::InprocIo;
use shotline_verbs::api::*;
use shotline_verbs::soft::SoftEndpoint;
use shotline_wire::aeth::RnrTimer;
use std::sync::Arc;
use std::time::Duration;

#[allow(dead_code)]
struct End {
    endpoint: SoftEndpoint<InprocIo>,
    pd: Pd,
    region: Arc<Region>,
    mr: Mr,
    cq: Cq,
    qp: Qp,
}

fn end(mut endpoint: SoftEndpoint<InprocIo>) -> Result<End, VerbsError> {
    let pd = endpoint.alloc_pd()?;
    let region = Region::heap(1 << 20)?;
    let mr = endpoint.reg_mr(pd, &region, 0, 1 << 20, Access::ALL, Addressing::ZeroBased)?;
    let cq = endpoint.create_cq(64)?;
    let qp = endpoint.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq))?;
    Ok(End { endpoint, pd, region, mr, cq, qp })
}

impl End {
    fn connect(&mut self, peer: (std::net::SocketAddr, u32)) -> Result<(), VerbsError> {
        let receive = ReadyToReceive {
            peer: Some(peer),
            mtu: Mtu::B4096,
            psn: 0,
            max_dest_rd_atomic: 4,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let timeout = Duration::from_millis(50);
        let send = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 4 };
        self.endpoint.modify_qp(self.qp, Modify::Init { access: Access::ALL, q_key: 0 })?;
        self.endpoint.modify_qp(self.qp, Modify::ReadyToReceive(receive))?;
        self.endpoint.modify_qp(self.qp, Modify::ReadyToSend(send))
    }

    /// Waits for the next completion and lets the other endpoint make progress meanwhile.
    #[allow(dead_code)]
    fn next(&mut self, other: &mut End) -> Result<Completion, VerbsError> {
        let mut out = [Completion::default()];
        while self.endpoint.poll_cq(self.cq, &mut out)? == 0 {
            other.endpoint.progress()?;
        }
        Ok(out[0])
    }
}

fn two_ends() -> Result<(End, End), VerbsError> {
    let addresses = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|address| address.parse().unwrap());
    let [a, b] = SoftEndpoint::pair(256, addresses)?;
    let (mut a, mut b) = (end(a)?, end(b)?);
    a.connect((addresses[1], b.qp.0))?;
    b.connect((addresses[0], a.qp.0))?;
    Ok((a, b))
}
