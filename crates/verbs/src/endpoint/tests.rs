//! What an endpoint requires of its datapath, with one that has no link.

use super::*;
use crate::api::{
    Capabilities, ControlSocket, Data, Description, Modify, Mtu, Operation, Provider, QpConfig, QpState, QpType, Reach,
    ReadyToReceive, ReadyToSend, SendWr,
};
use crate::engine::Burst;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Pd, Region, Registrar};
use shotline_testing::WAIT_TIMEOUT;
use shotline_transport::IoError;
use shotline_wire::aeth::RnrTimer;
use std::net::SocketAddr;
use std::time::Duration;

static DESCRIPTION: Description = Description {
    capabilities: Capabilities { name: "none", ..CAPABILITIES },
    form: "none",
    summary: "no link",
    reach: Reach::Machine,
    needs_device: false,
    flags: &[],
    mtu: Some(Mtu::B4096),
    control: ControlSocket::Tcp,
};

/// Send queue of the connected queue pairs; those that are not connected would be in queue 0.
const QUEUE: u32 = 3;
const PEER: ([u8; 4], u16) = ([10, 0, 0, 2], 1);

/// Loses all packets, and records the calls.
#[derive(Default)]
struct NoLink {
    /// Number of regions in the table.
    regions: usize,
    connected: Vec<SocketAddr>,
    /// Connected queue pairs.
    users: usize,
    packets: usize,
    /// Retries after this time.
    retry: Option<Nanos>,
}

impl Datapath for NoLink {
    const DESCRIPTION: &'static Description = &DESCRIPTION;

    fn register(&mut self, regions: &Regions) {
        self.regions = regions.iter().count();
    }
    fn connect(&mut self, peer: SocketAddr, _service_level: u8) -> Result<u32, VerbsError> {
        self.connected.push(peer);
        if peer != PEER.into() {
            return Err(VerbsError::NoSuch("link"));
        }
        self.users += 1;
        Ok(QUEUE)
    }
    fn disconnect(&mut self, queue: u32) {
        assert_eq!(queue, QUEUE);
        self.users -= 1;
    }
    fn transmit(&mut self, core: &mut Core) -> bool {
        let mut burst = Burst::default();
        core.fill(QUEUE, &mut burst, 64);
        self.packets += burst.len();
        !burst.is_empty()
    }
    fn receive(&mut self, _core: &mut Core) -> Result<bool, IoError> {
        Ok(false)
    }
    fn deadline(&self, now: Nanos) -> Option<Nanos> {
        self.retry.map(|retry| now + retry)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        std::thread::sleep(timeout);
        Ok(())
    }
}

fn open() -> (Endpoint<NoLink>, Pd, QpConfig) {
    let mut endpoint = Endpoint::new(NoLink::default(), Registrar::new().finish()).unwrap();
    let (pd, cq) = (endpoint.alloc_pd().unwrap(), endpoint.create_cq(8).unwrap());
    (endpoint, pd, QpConfig::new(QpType::Rc, pd, cq, cq))
}

fn ready_to_receive(peer: SocketAddr) -> Modify {
    Modify::ReadyToReceive(ReadyToReceive {
        peer: Some((peer, 77)),
        mtu: Mtu::B4096,
        psn: 0,
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::from_code(1).unwrap(),
        ack_every: 0,
    })
}

#[test]
fn datapath_connects_before_a_queue_pair_receives() {
    let (mut endpoint, _, config) = open();
    let qp = endpoint.create_qp(&config).unwrap();
    endpoint.modify_qp(qp, Modify::Init { access: Access::ALL, q_key: 0 }).unwrap();
    let other = SocketAddr::from(([10, 0, 0, 3], 1));
    let refused = endpoint.modify_qp(qp, ready_to_receive(other));
    assert!(matches!(refused, Err(VerbsError::NoSuch("link"))), "{refused:?}");
    assert_eq!(endpoint.qp_state(qp).unwrap(), QpState::Init);
    endpoint.modify_qp(qp, ready_to_receive(PEER.into())).unwrap();
    assert_eq!(endpoint.datapath.connected, [other, PEER.into()]);
    assert_eq!(endpoint.qp_state(qp).unwrap(), QpState::ReadyToReceive);
}

#[test]
fn path_mtu_above_the_maximum_is_refused_before_connecting() {
    let (mut endpoint, _, config) = open();
    let qp = endpoint.create_qp(&config).unwrap();
    endpoint.modify_qp(qp, Modify::Init { access: Access::ALL, q_key: 0 }).unwrap();
    let Modify::ReadyToReceive(attributes) = ready_to_receive(PEER.into()) else { unreachable!() };
    let larger = Modify::ReadyToReceive(ReadyToReceive { mtu: Mtu::B8192, ..attributes });
    let error = endpoint.modify_qp(qp, larger).unwrap_err().to_string();
    assert!(error.contains("at most 4096 bytes, found 8192"), "{error}");
    assert!(endpoint.datapath.connected.is_empty());
    assert_eq!(endpoint.qp_state(qp).unwrap(), QpState::Init);
}

#[test]
fn each_connect_is_followed_by_one_disconnect() {
    let (mut endpoint, _, config) = open();
    let init = Modify::Init { access: Access::ALL, q_key: 0 };
    let qp = endpoint.create_qp(&config).unwrap();
    // Not allowed in this state: the path is given back.
    assert!(endpoint.modify_qp(qp, ready_to_receive(PEER.into())).is_err());
    assert_eq!(endpoint.datapath.users, 0);
    for _ in 0..2 {
        endpoint.modify_qp(qp, init).unwrap();
        endpoint.modify_qp(qp, ready_to_receive(PEER.into())).unwrap();
        assert_eq!(endpoint.datapath.users, 1);
        endpoint.modify_qp(qp, Modify::Reset).unwrap();
        assert_eq!(endpoint.datapath.users, 0);
    }
    endpoint.modify_qp(qp, init).unwrap();
    endpoint.modify_qp(qp, ready_to_receive(PEER.into())).unwrap();
    endpoint.destroy_qp(qp).unwrap();
    assert_eq!(endpoint.datapath.users, 0);
    let other = endpoint.create_qp(&config).unwrap();
    endpoint.destroy_qp(other).unwrap();
}

#[test]
fn unsupported_transport_services_are_refused() {
    let (mut endpoint, _, config) = open();
    for kind in [QpType::Uc, QpType::Ud] {
        let refused = endpoint.create_qp(&QpConfig { kind, ..config });
        assert!(matches!(refused, Err(VerbsError::Unsupported(_))), "{kind}: {refused:?}");
    }
    assert_eq!(endpoint.capabilities(), DESCRIPTION.capabilities);
}

#[test]
fn registered_regions_reach_the_datapath_before_packets() {
    let (mut endpoint, pd, config) = open();
    let qp = endpoint.create_qp(&config).unwrap();
    let send = ReadyToSend { psn: 0, timeout: WAIT_TIMEOUT, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
    let init = Modify::Init { access: Access::ALL, q_key: 0 };
    for change in [init, ready_to_receive(PEER.into()), Modify::ReadyToSend(send)] {
        endpoint.modify_qp(qp, change).unwrap();
    }
    let region = Region::heap(4096).unwrap();
    endpoint.reg_mr(pd, &region, 0, 4096, Access::NONE, Addressing::ZeroBased).unwrap();
    endpoint.post_send(qp, &[SendWr::new(1, Operation::Send, Data::Inline(b"lost"))]).unwrap();
    assert_eq!((endpoint.datapath.regions, endpoint.datapath.packets), (0, 0));
    endpoint.progress().unwrap();
    // The queue pair's own memory, and the registered region.
    assert_eq!((endpoint.datapath.regions, endpoint.datapath.packets), (2, 1));
}

#[test]
fn descriptor_becomes_readable_at_the_deadline_of_the_datapath() {
    let (mut endpoint, _, _) = open();
    endpoint.datapath.retry = Some(1_000_000);
    assert!(!endpoint.progress().unwrap());
    let timeout = Timespec { tv_sec: WAIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&endpoint.fd(), PollFlags::IN)], Some(&timeout)).unwrap(), 1);
}
