//! Whole endpoints with several far ends.

use super::*;
use crate::api::Status;
use crate::spacefibre::LinkSelector;
use rustix::fd::BorrowedFd;
use shotline_testing::wait_until;
use shotline_transport::IoError;
use shotline_transport::carrier::{Carrier, inproc};
use std::cell::Cell;
use std::rc::Rc;

/// Requests must not be sent again because a machine is slow.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A carrier whose system calls fail for a while.
struct Failing {
    carrier: inproc::InprocCarrier,
    fails: Rc<Cell<bool>>,
}

impl Failing {
    fn check(&self) -> Result<(), IoError> {
        let source = || std::io::Error::from(std::io::ErrorKind::NetworkUnreachable);
        let error = || IoError::System { what: "sending".into(), source: source(), hint: "" };
        if self.fails.get() { Err(error()) } else { Ok(()) }
    }
}

impl Carrier for Failing {
    fn max_datagram(&self) -> usize {
        self.carrier.max_datagram()
    }
    fn remaining(&mut self) -> usize {
        self.carrier.remaining()
    }
    fn append(&mut self, bytes: &[u8]) {
        self.carrier.append(bytes);
    }
    fn finish(&mut self) -> Result<(), IoError> {
        self.check()?;
        self.carrier.finish()
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.check()?;
        self.carrier.flush()
    }
    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        self.check()?;
        self.carrier.receive()
    }
    fn prepare_sleep(&mut self) -> bool {
        self.carrier.prepare_sleep()
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.carrier.fd()
    }
}

/// Connects carriers in turn.
struct InTurn(Vec<Failing>);

impl Connector for InTurn {
    type Carrier = Failing;
    fn connect(&mut self, _: SocketAddr) -> Result<Failing, VerbsError> {
        Ok(self.0.remove(0))
    }
    fn disconnect(&mut self, carrier: Failing) {
        self.0.push(carrier);
    }
    fn address(&self) -> SocketAddr {
        address(1)
    }
}

#[test]
fn link_that_fails_does_not_disturb_another() {
    let fails = [false; 2].map(|fails| Rc::new(Cell::new(fails)));
    let (carriers, far_carriers): (Vec<_>, Vec<_>) = (0..2).map(|_| inproc::pair(64).unwrap()).unzip();
    let carriers = carriers.into_iter().zip(&fails);
    let carriers = carriers.map(|(carrier, fails)| Failing { carrier, fails: fails.clone() }).collect();
    let options = LinkSelector::default().options();
    let mut node = Node::new(SpaceFibreEndpoint::open(InTurn(carriers), options.clone()).unwrap());
    let mut far_ends: Vec<_> = far_carriers
        .into_iter()
        .zip(2..)
        .map(|(carrier, host)| {
            let connector = Connected::new(carrier, address(host));
            let mut far_end = Node::new(SpaceFibreEndpoint::open(connector, options.clone()).unwrap());
            let (qp, peer) = (node.create_qp(0), far_end.create_qp(0));
            node.connect(qp, (address(host), peer.0), TIMEOUT).unwrap();
            far_end.connect(peer, (address(1), qp.0), TIMEOUT).unwrap();
            (far_end, qp)
        })
        .collect();
    let mut written = |node: &mut Node<InTurn>, index: usize| {
        let (to, element, qp) = (far_ends[index].0.remote(0), node.element(0, 1 << 16), far_ends[index].1);
        node.post(qp, 0, Operation::Write(to), &[element]);
        wait_until("the WRITE completes", || {
            far_ends.iter_mut().for_each(|(far_end, _)| _ = far_end.endpoint.progress().unwrap());
            node.poll().iter().any(|completion| completion.qp == qp.0 && completion.status == Status::Success)
        });
    };
    (0..2).for_each(|index| written(&mut node, index));
    for failing in 0..2 {
        fails[failing].set(true);
        written(&mut node, 1 - failing);
        fails[failing].set(false);
        written(&mut node, failing);
    }
    fails.iter().for_each(|fails| fails.set(true));
    let error = node.endpoint.progress().unwrap_err().to_string();
    assert!(error.contains("sending"), "{error}");
}
