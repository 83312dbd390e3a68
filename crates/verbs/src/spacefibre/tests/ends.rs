//! Whole endpoints whose far end goes, is silent, or does not fit.

use super::*;
use crate::api::{QpState, Status};
use crate::endpoint::Datapath;
use crate::spacefibre::LinkSelector;
use crate::spacefibre::time_slots::TIME_SLOT;
use shotline_spacefibre::frames::{FrameConfig, FrameLink, Output, Sink, Source};
use shotline_spacefibre::link::BroadcastMessage;
use shotline_spacefibre::qos::{Share, VcQos};
use shotline_testing::{wait_until, wait_until_some};
use shotline_transport::carrier::{Carrier, inproc};
use shotline_wire::spacefibre::datagram::PacketEnd;
use std::time::Instant;

const TIMEOUT: Duration = Duration::from_millis(10);
/// Requests of [`post_all_kinds`] and receives.
const REQUESTS: u64 = 35;
const RECEIVES: u64 = 5;

/// Posts requests of each kind with the ids from 0, and receives with those after them.
fn post_all_kinds<K: Connector>(nodes: &mut [Node<K>; 2], qp: Qp) {
    let to = nodes[1].remote(0);
    let kinds = [
        Operation::Write(to),
        Operation::Read(to),
        Operation::Send,
        Operation::SendImm(1),
        Operation::WriteImm(to, 2),
        Operation::CompareSwap { remote: to, compare: 0, swap: 1 },
        Operation::FetchAdd { remote: to, add: 1 },
    ];
    for (id, kind) in (0..REQUESTS).zip(kinds.into_iter().cycle()) {
        let is_atomic = matches!(kind, Operation::CompareSwap { .. } | Operation::FetchAdd { .. });
        let element = nodes[0].element(1024, if is_atomic { 8 } else { 60_000 });
        nodes[0].post(qp, id, kind, &[element]);
    }
    for id in REQUESTS..REQUESTS + RECEIVES {
        let element = nodes[0].element(0, 1024);
        nodes[0].post_recv(qp, id, element);
    }
}

/// Polls until all requests and receives of `node` have completed, and checks that each completes once, in order, the
/// last ones with errors. Returns the number of requests that succeeded.
fn assert_all_complete<K: Connector>(node: &mut Node<K>, qp: Qp, mut completions: Vec<Completion>) -> usize {
    wait_until("all requests complete", || {
        completions.extend(node.poll());
        completions.len() as u64 >= REQUESTS + RECEIVES
    });
    let end = Instant::now() + 4 * TIMEOUT;
    while Instant::now() < end {
        assert_eq!(node.poll(), [], "nothing completes twice");
    }
    let (receives, requests): (Vec<Completion>, Vec<Completion>) =
        completions.into_iter().partition(|completion| completion.id >= REQUESTS);
    assert_eq!(requests.iter().map(|request| request.id).collect::<Vec<_>>(), (0..REQUESTS).collect::<Vec<_>>());
    let ids: Vec<_> = receives.iter().map(|receive| receive.id).collect();
    assert_eq!(ids, (REQUESTS..REQUESTS + RECEIVES).collect::<Vec<_>>());
    assert!(receives.iter().all(|receive| receive.status == Status::Flushed), "{receives:?}");
    let succeeded = requests.iter().take_while(|request| request.status == Status::Success).count();
    assert_eq!(requests[succeeded].status, Status::RetryExceeded);
    assert!(requests[succeeded + 1..].iter().all(|request| request.status == Status::Flushed), "{requests:?}");
    assert_eq!(node.endpoint.qp_state(qp).unwrap(), QpState::Error);
    succeeded
}

fn options(channels: u8) -> LinkOptions {
    LinkOptions::new(4, channels).unwrap()
}

/// Drops the far end after `wanted` requests have completed.
fn assert_requests_fail_without_far_end<K: Connector>(mut nodes: [Node<K>; 2], wanted: usize) {
    let [qp, peer] = connect(&mut nodes, 0, TIMEOUT);
    for id in 0..3 {
        let element = nodes[1].element(1 << 17, 60_000);
        nodes[1].post_recv(peer, id, element);
    }
    post_all_kinds(&mut nodes, qp);
    let mut completions = Vec::new();
    wait_until("some requests complete", || {
        nodes[1].endpoint.progress().unwrap();
        completions.extend(nodes[0].poll());
        completions.len() >= wanted && nodes[1].endpoint.counters().packets_in > 0
    });
    let [mut node, far_end] = nodes;
    drop(far_end);
    let succeeded = assert_all_complete(&mut node, qp, completions);
    assert!(succeeded >= wanted && (succeeded as u64) < REQUESTS, "{succeeded}");
}

#[test]
fn requests_fail_when_the_far_end_goes_in_an_operation() {
    for wanted in [0, 1, 3] {
        assert_requests_fail_without_far_end(Node::pair(&options(1), Faults::default()), wanted);
    }
}

#[test]
fn requests_over_udp_fail_when_the_far_end_goes() {
    for wanted in [0, 3] {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let nodes = [(); 2].map(|()| Node::new(SpaceFibreEndpoint::udp(local, &LinkSelector::default()).unwrap()));
        assert_requests_fail_without_far_end(nodes, wanted);
    }
}

#[test]
fn carrier_is_given_back_when_its_link_cannot_be_opened() {
    let mut options = options(2);
    let whole = VcQos::new(0, Share::WHOLE);
    options.channels.iter_mut().for_each(|channel| channel.qos = whole);
    let [mut node, _] = Node::pair(&options, Faults::default());
    let qp = node.create_qp(0);
    let errors = [(); 2].map(|()| node.connect(qp, (address(2), 77), TIMEOUT).unwrap_err().to_string());
    assert_eq!(errors[0], errors[1]);
    assert!(!errors[0].contains("far end"), "{errors:?}");
}

#[test]
fn requests_fail_if_the_far_end_makes_no_progress() {
    let mut nodes = Node::pair(&options(1), Faults::default());
    let [qp, _] = connect(&mut nodes, 0, TIMEOUT);
    post_all_kinds(&mut nodes, qp);
    assert_eq!(assert_all_complete(&mut nodes[0], qp, Vec::new()), 0);
    assert_eq!(nodes[0].endpoint.counters().packets_out, 0, "the link was never up");
}

#[test]
fn requests_fail_if_the_far_end_stops_making_progress() {
    let mut nodes = Node::pair(&options(1), Faults::default());
    let [qp, _] = connect(&mut nodes, 0, TIMEOUT);
    wait_until("the link is up and has credit", || {
        nodes.iter_mut().for_each(|node| assert!(node.endpoint.progress().is_ok()));
        nodes[0].endpoint.links().all(|(_, link)| link.link_counters().fcts_in > 0)
    });
    post_all_kinds(&mut nodes, qp);
    assert_eq!(assert_all_complete(&mut nodes[0], qp, Vec::new()), 0);
    assert!(nodes[0].endpoint.counters().packets_out > 0, "the carrier has space for some");
}

#[test]
fn requests_fail_if_all_datagrams_are_lost() {
    let mut nodes = Node::pair(&options(1), Faults { drop: 1.0, ..Faults::default() });
    let [qp, _] = connect(&mut nodes, 0, TIMEOUT);
    post_all_kinds(&mut nodes, qp);
    assert_eq!(assert_all_complete(&mut nodes[0], qp, Vec::new()), 0);
    assert!(nodes[0].endpoint.counters().packets_discarded > 0 || nodes[0].endpoint.links().count() == 1);
}

#[test]
fn requests_to_a_far_end_with_other_lanes_fail() {
    let carriers: [AnyCarrier; 2] = <[_; 2]>::from(inproc::pair(64).unwrap()).map(|carrier| Box::new(carrier) as _);
    let mut host = 0;
    let mut nodes = carriers.map(|carrier| {
        host += 1;
        let options = LinkOptions::new(2 * host, 1).unwrap();
        Node::new(SpaceFibreEndpoint::open(Connected::new(carrier, address(host)), options).unwrap())
    });
    let [qp, _] = connect(&mut nodes, 0, TIMEOUT);
    post_all_kinds(&mut nodes, qp);
    let mut completions = Vec::new();
    wait_until("all requests complete", || {
        nodes[1].endpoint.progress().unwrap();
        completions.extend(nodes[0].poll());
        completions.len() as u64 == REQUESTS + RECEIVES
    });
    assert_eq!(assert_all_complete(&mut nodes[0], qp, completions), 0);
    let others = nodes.each_ref().map(|node| node.endpoint.links().next().unwrap().1.other_lanes());
    assert_eq!(others, [Some(4), Some(2)]);
}

#[test]
fn service_level_without_a_channel_is_refused() {
    let [mut node, _] = Node::pair(&options(2), Faults::default());
    for level in [2, 3, 255] {
        let qp = node.create_qp(level);
        let error = node.connect(qp, (address(2), 77), TIMEOUT).unwrap_err().to_string();
        let expected = format!("expected a service level below 2, the number of virtual channels, found {level}");
        assert!(error.contains(&expected), "{error}");
        assert_eq!((node.endpoint.qp_state(qp).unwrap(), node.endpoint.links().count()), (QpState::Init, 0));
    }
    let qp = node.create_qp(1);
    node.connect(qp, (address(2), 77), TIMEOUT).unwrap();
}

#[test]
fn second_far_end_is_refused_until_the_first_is_left() {
    let [mut node, _] = Node::pair(&options(1), Faults::default());
    let qps = [(); 3].map(|()| node.create_qp(0));
    node.connect(qps[0], (address(2), 77), TIMEOUT).unwrap();
    let error = node.connect(qps[1], (address(3), 77), TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("another far end than 10.0.0.3:1"), "{error}");
    node.connect(qps[2], (address(2), 78), TIMEOUT).unwrap();
    assert_eq!(node.endpoint.links().map(|(peer, _)| peer).collect::<Vec<_>>(), [address(2)]);
    node.endpoint.modify_qp(qps[0], Modify::Reset).unwrap();
    assert!(node.connect(qps[1], (address(3), 77), TIMEOUT).is_err(), "one queue pair is left");
    node.endpoint.destroy_qp(qps[2]).unwrap();
    node.connect(qps[1], (address(3), 77), TIMEOUT).unwrap();
    assert_eq!(node.endpoint.links().map(|(peer, _)| peer).collect::<Vec<_>>(), [address(3)]);
}

#[test]
fn link_is_set_up_again_after_its_last_queue_pair() {
    let mut nodes = Node::pair(&options(1), Faults::default());
    for round in 1..4_u8 {
        let qps = connect(&mut nodes, 0, Duration::from_secs(10));
        nodes[0].region.write(0, &[round; 5000]);
        let (element, to) = (nodes[0].element(0, 5000), nodes[1].remote(0));
        nodes[0].post(qps[0], round.into(), Operation::Write(to), &[element]);
        let completion = wait_until_some("the WRITE completes", || {
            nodes[1].endpoint.progress().unwrap();
            nodes[0].poll().pop()
        });
        assert_eq!((completion.id, completion.status), (round.into(), Status::Success));
        assert_eq!(nodes[1].bytes(0, 5001), [vec![round; 5000], vec![0]].concat());
        nodes[0].endpoint.destroy_qp(qps[0]).unwrap();
        nodes[1].endpoint.modify_qp(qps[1], Modify::Reset).unwrap();
        assert!(nodes.iter().all(|node| node.endpoint.links().count() == 0));
    }
}

/// A far end that consumes nothing on channel 0.
#[derive(Default)]
struct Miser {
    /// Bytes and whole packets received on each channel.
    received: [Vec<u8>; 2],
    packets: [usize; 2],
    /// Words that were not consumed.
    held: u32,
}

impl Sink for Miser {
    fn write(&mut self, vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool {
        self.received[usize::from(vc)].extend(data);
        self.packets[usize::from(vc)] += usize::from(end.is_some());
        if vc == 0 {
            self.held += (data.len() + usize::from(end.is_some())).div_ceil(4) as u32;
        }
        vc != 0
    }
    fn broadcast(&mut self, _message: &BroadcastMessage) {}
    fn on_reset(&mut self) {}
}

struct Nothing;
impl Source for Nothing {
    fn ready(&self) -> u32 {
        0
    }
    fn read(&mut self, _vc: u8, _max: usize) -> (&[u8], Option<PacketEnd>) {
        (&[], Some(PacketEnd::Eep))
    }
    fn on_reset(&mut self) {}
}

struct Append<'a>(&'a mut dyn Carrier);
impl Output for Append<'_> {
    fn remaining(&mut self) -> usize {
        self.0.remaining()
    }
    fn append(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }
}

#[test]
fn channel_without_credit_does_not_stop_another_one() {
    const COUNT: usize = 100;
    let mut options = options(2);
    options.channels.iter_mut().for_each(|channel| channel.input_words = 4 * 64 * 4);
    let (here, mut there) = inproc::pair(64).unwrap();
    let connector = Connected::new(Box::new(here) as AnyCarrier, address(1));
    let mut node = Node::new(SpaceFibreEndpoint::open(connector, options.clone()).unwrap());
    let config = FrameConfig { lanes: 4, scrambled: true, seed: 5 };
    let (mut link, mut miser) = (FrameLink::new(config, &options.channels).unwrap(), Miser::default());
    for level in 0..2 {
        let qp = node.create_qp(level);
        node.connect(qp, (address(2), 77), Duration::from_secs(100)).unwrap();
        for id in 0..COUNT as u64 {
            let element = node.element(0, 4096);
            node.post(qp, id, Operation::Write(Remote { address: 0, rkey: 1 }), &[element]);
        }
    }
    let start = Instant::now();
    let mut exchange = |miser: &mut Miser, words| {
        link.release(0, words);
        node.endpoint.progress().unwrap();
        while let Some(datagram) = there.receive().unwrap() {
            link.receive(datagram, &mut Nothing, miser);
        }
        let now = start.elapsed().as_nanos() as u64;
        while there.remaining() > 0 && link.transmit(now, &mut Nothing, &mut Append(&mut there)) {
            there.finish().unwrap();
        }
        there.flush().unwrap();
    };
    wait_until("channel 1 is done", || {
        exchange(&mut miser, 0);
        miser.packets[1] == COUNT
    });
    assert!(miser.packets[0] <= 1 && miser.held <= 4 * 64 * 4, "{:?} {}", miser.packets, miser.held);
    // The packet that was begun goes on as soon as it has credit.
    wait_until("channel 0 goes on", || {
        let held = std::mem::take(&mut miser.held);
        exchange(&mut miser, held);
        miser.packets[0] >= 2
    });
    let (header, rest) = Header::parse(&miser.received[0]).unwrap();
    assert_eq!(header.data(&rest[..4100]).unwrap().verify().unwrap(), node.bytes(0, 4096));
}

#[test]
fn endpoint_wakes_only_for_time_slots_in_which_a_packet_waits() {
    let options = "lanes=4,vc=50%/0/10-20,vc=50%/0/15".parse::<LinkSelector>().unwrap().options();
    let [mut node, far] = Node::pair(&options, Faults::default());
    let qps = [0, 1].map(|level| {
        let qp = node.create_qp(level);
        node.connect(qp, (far.endpoint.address(), 77), Duration::from_secs(100)).unwrap();
        qp
    });
    let deadline = |node: &Node, slot: u64| node.endpoint.datapath.deadline(slot * TIME_SLOT);
    let idle = deadline(&node, 0);
    assert!((0..64).all(|slot| deadline(&node, slot) == idle), "no packet waits");
    // The far end does not answer, so packets wait whatever time it is.
    let mut post = |qp| {
        let element = node.element(0, 100);
        node.post(qp, 0, Operation::Write(Remote { address: 0, rkey: 1 }), &[element]);
        node.endpoint.progress().unwrap();
        [0, 9, 10, 14, 15, 20, 21].map(|slot| deadline(&node, slot).unwrap().min(99 * TIME_SLOT) / TIME_SLOT)
    };
    assert_eq!(post(qps[1]), [15, 15, 15, 15, 99, 79, 79]);
    assert_eq!(post(qps[0]), [10, 10, 15, 15, 99, 79, 74]);
}

/// Keeps a queue pair of each virtual channel busy with long WRITEs. Returns the words that each channel has sent.
fn words_of_busy_channels(channels: &str, rounds: u32) -> Vec<u64> {
    let options = channels.parse::<LinkSelector>().unwrap().options();
    let mut nodes = Node::pair(&options, Faults::default());
    let qps: Vec<_> =
        (0..options.channels.len()).map(|vc| connect(&mut nodes, vc as u8, Duration::from_secs(60))[0]).collect();
    let post = |nodes: &mut [Node; 2], qp, id| {
        let (to, from) = (nodes[1].remote(0), nodes[0].element(0, 1 << 17));
        nodes[0].post(qp, id, Operation::Write(to), &[from]);
    };
    qps.iter().for_each(|qp| (0..8).for_each(|id| post(&mut nodes, *qp, id)));
    for _ in 0..rounds {
        for completion in nodes[0].poll() {
            post(&mut nodes, Qp(completion.qp), completion.id);
        }
        nodes[1].poll();
    }
    let (_, link) = nodes[0].endpoint.links().next().unwrap();
    (0..qps.len()).map(|vc| link.channel(vc as u8).unwrap().counters.words_out).collect()
}

#[test]
fn busy_queue_pairs_have_the_shares_of_their_channels() {
    for lanes in [1, 4, 8, 9, 12, 16] {
        let words = words_of_busy_channels(&format!("lanes={lanes},vc=75%,vc=25%"), 1000);
        let part = words[0] as f64 / (words[0] + words[1]) as f64;
        assert!((0.73..0.77).contains(&part), "{lanes} lanes: {words:?}");
    }
}
