//! Endpoints with several links.

use super::*;
use crate::spacefibre::AnyCarrier;
use shotline_testing::{wait_until, wait_until_some};
use shotline_transport::IoError;
use shotline_transport::carrier::{Carrier, inproc};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// Calls of a carrier that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    Receive,
    Finish,
    Flush,
}

/// A carrier of which calls fail.
struct Breakable {
    carrier: inproc::InprocCarrier,
    name: &'static str,
    fault: Arc<Mutex<Fault>>,
}

impl Breakable {
    fn check(&self, fault: Fault) -> Result<(), IoError> {
        let failed = || IoError::Config(format!("{} failed", self.name));
        if *self.fault.lock().unwrap() == fault { Err(failed()) } else { Ok(()) }
    }
}

impl Carrier for Breakable {
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
        self.carrier.finish()?;
        self.check(Fault::Finish)
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.carrier.flush()?;
        self.check(Fault::Flush)
    }
    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        self.check(Fault::Receive)?;
        self.carrier.receive()
    }
    fn prepare_sleep(&mut self) -> bool {
        self.carrier.prepare_sleep()
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.carrier.fd()
    }
}

/// Has a carrier to each far end.
struct Several(Vec<(SocketAddr, AnyCarrier)>);

impl Connector for Several {
    type Carrier = AnyCarrier;
    fn connect(&mut self, peer: SocketAddr) -> Result<AnyCarrier, VerbsError> {
        let index = self.0.iter().position(|(address, _)| *address == peer).unwrap();
        Ok(self.0.remove(index).1)
    }
    fn disconnect(&mut self, _carrier: AnyCarrier) {}
    fn address(&self) -> SocketAddr {
        address(1)
    }
}

/// A node with links to several others, of which each has its queue pair.
struct Star {
    node: Node<Several>,
    qps: Vec<Qp>,
    others: Vec<Node>,
    faults: Vec<Arc<Mutex<Fault>>>,
}

impl Star {
    fn new() -> Self {
        let options = LinkOptions::new(4, 1).unwrap();
        let (mut carriers, mut others, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for (host, name) in (2..).zip(["first", "second", "third"]) {
            let (carrier, there) = inproc::pair(64).unwrap();
            let fault = Arc::new(Mutex::new(Fault::Nothing));
            let carrier = Breakable { carrier, name, fault: Arc::clone(&fault) };
            carriers.push((address(host), Box::new(carrier) as AnyCarrier));
            let connected = Connected::new(Box::new(there) as AnyCarrier, address(host));
            others.push(Node::new(SpaceFibreEndpoint::open(connected, options.clone()).unwrap()));
            faults.push(fault);
        }
        let mut node = Node::new(SpaceFibreEndpoint::open(Several(carriers), options).unwrap());
        let mut qps = Vec::new();
        for other in &mut others {
            let (here, there) = (node.create_qp(0), other.create_qp(0));
            let timeout = Duration::from_secs(100);
            node.connect(here, (other.endpoint.address(), there.0), timeout).unwrap();
            other.connect(there, (address(1), here.0), timeout).unwrap();
            qps.push(here);
        }
        Self { node, qps, others, faults }
    }

    /// Writes to a far end, and returns the errors until the WRITE has completed.
    fn write(&mut self, index: usize) -> Vec<String> {
        let (to, element) = (self.others[index].remote(0), self.node.element(0, 60_000));
        self.node.post(self.qps[index], index as u64, Operation::Write(to), &[element]);
        let mut errors = Vec::new();
        let completion = wait_until_some("the WRITE completes", || {
            self.others.iter_mut().for_each(|other| assert!(other.endpoint.progress().is_ok()));
            errors.extend(self.node.endpoint.progress().err().map(|error| error.to_string()));
            let mut completions = [Completion::default(); 2];
            match self.node.endpoint.poll_cq(self.node.cq, &mut completions) {
                Ok(count) => completions[..count].iter().find(|completion| completion.id == index as u64).copied(),
                Err(error) => {
                    errors.push(error.to_string());
                    None
                }
            }
        });
        assert_eq!(completion.status, crate::api::Status::Success);
        errors
    }
}

#[test]
fn links_are_served_while_another_one_fails() {
    for fault in [Fault::Receive, Fault::Finish, Fault::Flush] {
        for broken in 0..3 {
            let mut star = Star::new();
            (0..3).for_each(|index| assert!(star.write(index).is_empty(), "no link has failed yet"));
            *star.faults[broken].lock().unwrap() = fault;
            // Something to send, also on the one that fails.
            let (to, element) = (star.others[broken].remote(0), star.node.element(0, 100));
            star.node.post(star.qps[broken], 9, Operation::Write(to), &[element]);
            for index in (0..3).filter(|index| *index != broken) {
                let errors = star.write(index);
                assert!(errors.is_empty(), "{fault:?} of {broken}: {errors:?}");
            }
            *star.faults[broken].lock().unwrap() = Fault::Nothing;
            assert!(star.write(broken).is_empty(), "{fault:?} of {broken} is over");
        }
    }
}

#[test]
fn first_error_is_reported_if_all_links_fail() {
    for (faults, expected) in [
        ([Fault::Receive, Fault::Receive, Fault::Receive], Some("first failed")),
        ([Fault::Flush, Fault::Flush, Fault::Flush], Some("first failed")),
        ([Fault::Nothing, Fault::Receive, Fault::Receive], None),
        // Each link still sends or receives.
        ([Fault::Receive, Fault::Flush, Fault::Flush], None),
    ] {
        let mut star = Star::new();
        star.faults.iter().zip(faults).for_each(|(fault, value)| *fault.lock().unwrap() = value);
        for _ in 0..3 {
            match (star.node.endpoint.progress(), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{faults:?}: {error}"),
                (found, expected) => panic!("{faults:?}: expected {expected:?}, found {found:?}"),
            }
        }
        star.faults.iter().for_each(|fault| *fault.lock().unwrap() = Fault::Nothing);
        assert!(star.node.endpoint.progress().is_ok(), "an error is reported once");
    }
}

#[test]
fn packets_that_wait_for_a_link_that_ends_are_discarded() {
    let [mut node, _] = Node::pair(&LinkOptions::new(4, 1).unwrap(), Faults::default());
    let qp = node.create_qp(0);
    node.connect(qp, (address(2), 77), Duration::from_secs(100)).unwrap();
    // The link is never up. Packets are taken from the engine nevertheless, so that its timeouts begin.
    let element = node.element(0, 100);
    node.post(qp, 1, Operation::Write(Remote { address: 0, rkey: 1 }), &[element]);
    wait_until("the packet waits for the link", || {
        node.endpoint.progress().unwrap();
        node.endpoint.qp_counters(qp).unwrap().packets_out > 0
    });
    let taken = node.endpoint.qp_counters(qp).unwrap().packets_out;
    node.endpoint.modify_qp(qp, Modify::Reset).unwrap();
    let counters = node.endpoint.counters();
    assert_eq!((counters.packets_out, counters.packets_discarded), (0, taken));
}
