//! The conformance suite on each carrier and wrapper, and tests of properties of single carriers.

use shotline_conformance::failed;
use shotline_transport::IoError;
use shotline_transport::carrier::conformance::{Fixture, run};
use shotline_transport::carrier::faulty::{Faults, Faulty};
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_transport::carrier::udp::{UdpCarrier, UdpPort};
use shotline_transport::carrier::{Carrier, inproc};
use std::net::SocketAddr;

fn conforms<C: Carrier + Send>(name: &str, lossless: bool, open: impl Fn() -> Result<(C, C), IoError>) {
    let open = || open().map_err(failed("open a path"));
    run(Fixture { name: name.into(), lossless, open }).expect_conformance();
}

pub fn udp_pair(ip: &str, max_datagram: Option<usize>) -> Result<(UdpCarrier, UdpCarrier), IoError> {
    let bind = || UdpCarrier::bind(SocketAddr::new(ip.parse().unwrap(), 0));
    let (near, far) = (bind()?, bind()?);
    let (to, from) = (far.local_addr(), near.local_addr());
    Ok((near.connect(to, max_datagram)?, far.connect(from, max_datagram)?))
}

#[test]
fn inproc_conforms() {
    conforms("inproc", true, || inproc::pair(64));
}

#[test]
fn shm_conforms() {
    conforms("shm", true, ShmCarrier::pair);
}

/// A path between two ports.
pub fn udp_port_pair(ip: &str) -> Result<(UdpCarrier, UdpCarrier), IoError> {
    let bind = || UdpPort::bind(SocketAddr::new(ip.parse().unwrap(), 0));
    let (mut near, mut far) = (bind()?, bind()?);
    let (to, from) = (far.local_addr(), near.local_addr());
    Ok((near.connect(to, None)?, far.connect(from, None)?))
}

#[test]
fn udp_conforms() {
    conforms("udp, 127.0.0.1", false, || udp_pair("127.0.0.1", None));
    conforms("udp, ::1", false, || udp_pair("::1", None));
    conforms("udp, a port's peer", false, || udp_port_pair("127.0.0.1"));
    conforms("udp, datagrams of a network", false, || udp_pair("127.0.0.1", Some(1472)));
}

#[test]
fn wrappers_without_faults_conform() {
    let faulty = |inner| Faulty::new(inner, Faults::default());
    conforms("faulty over inproc", true, || inproc::pair(64).map(|(near, far)| (faulty(near), faulty(far))));
    let boxed = |inner| Box::new(inner) as Box<dyn Carrier + Send>;
    conforms("boxed shm", true, || ShmCarrier::pair().map(|(near, far)| (boxed(near), boxed(far))));
}
