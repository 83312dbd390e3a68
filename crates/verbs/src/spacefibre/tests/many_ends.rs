//! Whole endpoints with several far ends.

use super::*;
use crate::api::Status;
use crate::spacefibre::datapath::MAX_LINKS;
use crate::spacefibre::{LinkSelector, UdpConnector};
use shotline_testing::wait_until;
use std::net::{IpAddr, Ipv4Addr};

/// An endpoint on UDP that serves several far ends, each with a part of its memory.
struct Star {
    target: Node<UdpConnector>,
    far_ends: Vec<FarEnd>,
}

struct FarEnd {
    node: Node<UdpConnector>,
    qp: Qp,
    /// The target's queue pair.
    peer: Qp,
    /// Its part of the target's memory.
    part: Remote,
    completed: u64,
}

/// Requests must not be sent again because a machine is slow.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Length of a far end's part.
const PART: u64 = MEMORY / MAX_LINKS as u64;

fn parsed(selector: &str) -> LinkSelector {
    selector.parse().unwrap()
}

impl Star {
    fn new(local: &str, selector: &str, count: u64) -> Self {
        let local: IpAddr = local.parse().unwrap();
        let bind = SocketAddr::new(local, 0);
        let target = Node::new(SpaceFibreEndpoint::udp(bind, &parsed(selector)).unwrap());
        let mut star = Self { target, far_ends: Vec::new() };
        (0..count).for_each(|index| star.add(selector, PART * index));
        star
    }

    /// Adds a far end on the address by which it reaches the target.
    fn add(&mut self, selector: &str, part: u64) {
        let mut at = self.target.endpoint.address();
        if at.ip().is_unspecified() {
            at.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let bind = SocketAddr::new(at.ip(), 0);
        let mut node = Node::new(SpaceFibreEndpoint::udp(bind, &parsed(selector)).unwrap());
        let (qp, peer) = (node.create_qp(0), self.target.create_qp(0));
        self.target.connect(peer, (node.endpoint.address(), qp.0), TIMEOUT).unwrap();
        node.connect(qp, (at, peer.0), TIMEOUT).unwrap();
        self.far_ends.push(FarEnd { node, qp, peer, part: self.target.remote(part), completed: 0 });
    }

    /// Makes progress at all ends, and checks that what completes has succeeded.
    fn progress(&mut self) {
        self.target.endpoint.progress().unwrap();
        for far_end in &mut self.far_ends {
            for completion in far_end.node.poll() {
                assert_eq!((completion.id, completion.status), (far_end.completed, Status::Success));
                far_end.completed += 1;
            }
        }
    }
}

impl FarEnd {
    /// WRITEs of a pattern in pieces, many times, and a READ of all of it to the end of the memory.
    const REQUESTS: u64 = 4 * 16 + 1;

    fn pattern(&self) -> Vec<u8> {
        (0..PART).map(|index| ((index + self.part.address / PART) * 7 % 251) as u8).collect()
    }

    fn post_all(&mut self) {
        self.node.region.write(0, &self.pattern());
        for id in 0..Self::REQUESTS - 1 {
            let (offset, len) = (id % 4 * (PART / 4), PART as u32 / 4);
            let element = self.node.element(offset, len);
            let to = Remote { address: self.part.address + offset, ..self.part };
            self.node.post(self.qp, id, Operation::Write(to), &[element]);
        }
        let element = self.node.element(MEMORY - PART, PART as u32);
        self.node.post(self.qp, Self::REQUESTS - 1, Operation::Read(self.part), &[element]);
    }

    /// Checks what has arrived at both ends.
    fn assert_data(&self, target: &Node<UdpConnector>) {
        assert_eq!(target.bytes(self.part.address, PART as usize), self.pattern());
        assert_eq!(self.node.bytes(MEMORY - PART, PART as usize), self.pattern());
    }
}

/// Moves data between a target and its far ends, with bit errors in both directions.
fn assert_far_ends_are_served(local: &str, count: u64) {
    let mut star = Star::new(local, "ber=1e-5", count);
    star.far_ends.iter_mut().for_each(FarEnd::post_all);
    wait_until("all requests complete", || {
        (0..100).for_each(|_| star.progress());
        star.far_ends.iter().all(|far_end| far_end.completed == FarEnd::REQUESTS)
    });
    let links: Vec<_> = star.target.endpoint.links().collect();
    assert_eq!(links.len() as u64, count);
    for (far_end, (peer, link)) in star.far_ends.iter().zip(&links) {
        far_end.assert_data(&star.target);
        assert_eq!(*peer, far_end.node.endpoint.address());
        let counters = link.channel(0).unwrap().counters;
        assert!(counters.words_in >= 16 * PART / 4 && counters.words_out >= PART / 4, "{counters:?}");
    }
    let retries: u64 = links.iter().map(|(_, link)| link.link_counters().retries_in).sum();
    assert!(retries > 0, "some of {} bits are inverted", count * 16 * PART * 8);
    assert_eq!(star.target.endpoint.counters().drops, Default::default());
}

#[test]
fn several_far_ends_are_served_at_once() {
    for (local, count) in [("127.0.0.1", 2), ("127.0.0.1", 16), ("::1", 2), ("0.0.0.0", 3)] {
        assert_far_ends_are_served(local, count);
    }
}

#[test]
fn far_end_that_vanishes_does_not_disturb_others() {
    let mut star = Star::new("127.0.0.1", "ber=1e-5", 4);
    star.far_ends.iter_mut().for_each(FarEnd::post_all);
    wait_until("it has a part of its requests done", || {
        star.progress();
        star.far_ends[1].completed > 2
    });
    assert!(star.far_ends[1].completed < FarEnd::REQUESTS);
    let gone = star.far_ends.remove(1);
    let (peer, part) = (gone.peer, gone.part.address);
    drop(gone);
    let finish = |star: &mut Star| {
        wait_until("the others complete", || {
            (0..100).for_each(|_| star.progress());
            star.far_ends.iter().all(|far_end| far_end.completed == FarEnd::REQUESTS)
        });
        star.far_ends.iter().for_each(|far_end| far_end.assert_data(&star.target));
    };
    finish(&mut star);
    assert_eq!(star.target.endpoint.links().count(), 4, "its queue pair at the target exists");
    star.target.endpoint.destroy_qp(peer).unwrap();
    assert_eq!(star.target.endpoint.links().count(), 3);
    star.add("ber=1e-5", part);
    star.far_ends[3].post_all();
    finish(&mut star);
}

#[test]
fn far_end_beyond_the_maximum_is_refused() {
    let mut star = Star::new("127.0.0.1", "lanes=4", MAX_LINKS as u64);
    let qp = star.target.create_qp(0);
    let far_end = SocketAddr::from(([127, 0, 0, 1], 9));
    let error = star.target.connect(qp, (far_end, 77), TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("at most 16 far ends, each with a SpaceFibre link, found 127.0.0.1:9"), "{error}");
    assert!(error.contains("disconnect one of them first, or use another endpoint"), "{error}");
    assert_eq!(star.target.endpoint.links().count(), MAX_LINKS);
    star.target.endpoint.destroy_qp(star.far_ends[7].peer).unwrap();
    star.target.connect(qp, (far_end, 77), TIMEOUT).unwrap();
    assert_eq!(star.target.endpoint.links().filter(|(peer, _)| *peer == far_end).count(), 1);
}

#[test]
fn busy_far_end_does_not_starve_another() {
    const LEN: u32 = 1 << 16;
    let mut star = Star::new("127.0.0.1", "lanes=4", 3);
    // The first one has many queue pairs with deep queues, the others have one request each.
    let mut qps = vec![star.far_ends[0].qp];
    let busy = &mut star.far_ends[0].node;
    let from = busy.endpoint.address();
    for _ in 0..8 {
        let (qp, peer) = (busy.create_qp(0), star.target.create_qp(0));
        star.target.connect(peer, (from, qp.0), TIMEOUT).unwrap();
        busy.connect(qp, (star.target.endpoint.address(), peer.0), TIMEOUT).unwrap();
        qps.push(qp);
    }
    let to = star.target.remote(0);
    let post = |node: &mut Node<UdpConnector>, qp, id| {
        let element = node.element(0, LEN);
        node.post(qp, id, Operation::Write(to), &[element]);
    };
    qps.iter().for_each(|qp| (0..8).for_each(|id| post(busy, *qp, id)));
    star.far_ends[1..].iter_mut().for_each(|far_end| post(&mut far_end.node, far_end.qp, 0));
    wait_until("the others complete many requests", || {
        star.target.endpoint.progress().unwrap();
        for far_end in &mut star.far_ends {
            for completion in far_end.node.poll() {
                assert_eq!(completion.status, Status::Success);
                post(&mut far_end.node, Qp(completion.qp), completion.id);
                far_end.completed += 1;
            }
        }
        star.far_ends[1..].iter().all(|far_end| far_end.completed > 100)
    });
    let completed: Vec<_> = star.far_ends.iter().map(|far_end| far_end.completed).collect();
    // The busy one has always data on its link. The others wait for a reply before the next request, for a few rounds.
    assert!(completed[0] > 100 && completed[0] < 10 * completed[1].min(completed[2]), "{completed:?}");
}
