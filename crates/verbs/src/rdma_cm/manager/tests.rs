//! Tests of the [`Manager`] state machine in simulated time.

use super::super::message::{REP_PRIVATE_BYTES, REQ_PRIVATE_BYTES, RdAtomicLimits, service_id};
use super::*;
use crate::api::Mtu;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn request(port: u16) -> Request {
    Request {
        service: service_id(port),
        qp: 0x11,
        psn: 1,
        rd_atomic: RdAtomicLimits::default(),
        mtu: Mtu::B1024,
        retry_cnt: 7,
        rnr_retry: 7,
        path: [ip(1), ip(2)],
        private_data: [0; REQ_PRIVATE_BYTES],
    }
}

fn reply() -> Reply {
    Reply { qp: 0x22, psn: 2, rd_atomic: RdAtomicLimits::default(), rnr_retry: 7, private_data: [0; REP_PRIVATE_BYTES] }
}

/// An active and a passive side, and a network that loses the datagrams for whose number `lost` returns `true`.
struct Network {
    sides: [Manager; 2],
    now: Duration,
    datagrams: usize,
    lost: fn(usize) -> bool,
    events: Vec<Event>,
}

impl Network {
    fn new(lost: fn(usize) -> bool) -> Self {
        let mut sides = [Manager::new(), Manager::new()];
        sides[1].listen(service_id(7174));
        Self { sides, now: Duration::ZERO, datagrams: 0, lost, events: Vec::new() }
    }

    /// Runs for a time; each side accepts every request.
    fn run(&mut self, seconds: u64) {
        self.run_for(Duration::from_secs(seconds));
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for side in 0..2 {
                self.sides[side].expire(self.now);
                while let Some((_, mad)) = self.sides[side].next_out() {
                    self.datagrams += 1;
                    if !(self.lost)(self.datagrams) {
                        self.sides[1 - side].receive(self.now, ip(side as u8 + 1), &mad);
                    }
                }
                while let Some(event) = self.sides[side].next_event() {
                    match &event {
                        Event::Requested(connection, ..) => self.sides[side].accept(self.now, *connection, reply()),
                        Event::Accepted(connection, _) => self.sides[side].ready(self.now, *connection),
                        _ => {}
                    }
                    self.events.push(event);
                }
            }
            self.now += Duration::from_millis(100);
        }
    }
}

#[test]
fn connection_is_set_up_and_ended_despite_loss() {
    let cases: [fn(usize) -> bool; 7] = [
        |_| false,
        |datagrams| datagrams == 1,
        |datagrams| datagrams == 2,
        |datagrams| datagrams == 3,
        |datagrams| datagrams == 4,
        |datagrams| datagrams == 5,
        |datagrams| datagrams < 7,
    ];
    for (nth, lost) in cases.into_iter().enumerate() {
        let mut network = Network::new(lost);
        let active = network.sides[0].connect(network.now, ip(2), request(7174));
        network.run(5);
        let [Event::Requested(passive, from, _), Event::Accepted(accepted, answer), Event::Established(ready)] =
            &network.events[..]
        else {
            panic!("case {nth}: {:?}", network.events)
        };
        assert_eq!((*from, *accepted, answer.qp, ready), (ip(1), active, 0x22, passive));
        let passive = *passive;
        network.sides[0].disconnect(network.now, active);
        network.run(5);
        assert_eq!(network.events[3..], [Event::Disconnected(passive), Event::Disconnected(active)], "case {nth}");
    }
}

#[test]
fn request_for_an_unknown_service_is_rejected() {
    let mut network = Network::new(|_| false);
    let active = network.sides[0].connect(network.now, ip(2), request(1));
    network.run(1);
    assert_eq!(network.events, [Event::Rejected(active, reason::NO_SERVICE)]);
}

/// Returns a passive side with `count` requests from different peers.
fn passive_with(count: u32) -> Manager {
    let mut passive = Manager::new();
    passive.listen(service_id(7174));
    (0..count).for_each(|peer| send_request(&mut passive, Duration::ZERO, peer));
    passive
}

fn send_request(passive: &mut Manager, now: Duration, peer: u32) {
    let message = Message::Req(Box::new(request(7174)));
    let mad = Datagram { transaction: peer.into(), local: peer, remote: 0, message }.emit();
    passive.receive(now, ip(1), &mad);
}

/// Returns the messages sent by a side, with their remote communication IDs.
fn sent_messages(side: &mut Manager) -> Vec<(u32, Message)> {
    let out = std::iter::from_fn(|| side.next_out());
    out.map(|(_, mad)| Datagram::parse(&mad).unwrap()).map(|datagram| (datagram.remote, datagram.message)).collect()
}

#[test]
fn lost_rejection_is_repeated_with_the_same_reason() {
    let mut passive = passive_with(1);
    let Some(Event::Requested(connection, ..)) = passive.next_event() else { panic!("no request") };
    passive.reject(Duration::ZERO, connection, 28);
    for seconds in 0..5 {
        assert_eq!(sent_messages(&mut passive), [(0, Message::Rej(28))]);
        send_request(&mut passive, Duration::from_secs(seconds), 0);
        passive.expire(Duration::from_secs(seconds));
    }
    assert_eq!(passive.next_event(), None, "the request is reported once");
    passive.expire(ENDED_LIFETIME);
    assert_eq!(passive.deadline(), None, "the connection is removed");
}

#[test]
fn undecided_request_times_out() {
    let mut passive = passive_with(1);
    let Some(Event::Requested(connection, ..)) = passive.next_event() else { panic!("no request") };
    passive.expire(Manager::DECISION_TIMEOUT - Duration::from_millis(1));
    assert_eq!((passive.next_event(), sent_messages(&mut passive)), (None, vec![]));
    passive.expire(Manager::DECISION_TIMEOUT);
    assert_eq!(passive.next_event(), Some(Event::DecisionTimedOut(connection)));
    assert_eq!(sent_messages(&mut passive), [(0, Message::Rej(reason::TIMEOUT))]);
    passive.accept(Manager::DECISION_TIMEOUT, connection, reply());
    assert_eq!(sent_messages(&mut passive), [], "accepted after the timeout");
    passive.expire(Manager::DECISION_TIMEOUT + ENDED_LIFETIME);
    assert_eq!(passive.deadline(), None);
}

/// Sends a request from the `number`-th forged address, whose sender receives no answers.
fn forge(passive: &mut Manager, now: Duration, number: u32) {
    let message = Message::Req(Box::new(request(7174)));
    let mad = Datagram { transaction: 9, local: number, remote: 0, message }.emit();
    passive.receive(now, IpAddr::from((0x0A00_0000 + number).to_be_bytes()), &mad);
}

/// Accepts all requests. Returns the number of displaced connections.
fn accept_all(passive: &mut Manager, now: Duration) -> usize {
    let events: Vec<_> = std::iter::from_fn(|| passive.next_event()).collect();
    for event in &events {
        if let Event::Requested(connection, ..) = event {
            passive.accept(now, *connection, reply());
        }
    }
    events.iter().filter(|event| matches!(event, Event::Displaced(_))).count()
}

#[test]
fn genuine_request_among_forged_ones_is_served() {
    let mut network = Network::new(|_| false);
    let active = network.sides[0].connect(network.now, ip(2), request(7174));
    let mut displaced = 0;
    for round in 0..100 {
        for number in 0..100 {
            forge(&mut network.sides[1], network.now, 1000 + round * 100 + number);
        }
        displaced += accept_all(&mut network.sides[1], network.now);
        network.sides[1].out.clear(); // their destinations do not exist
        network.run_for(Duration::from_millis(100));
    }
    assert!(displaced > 0 && network.events.contains(&Event::Accepted(active, Box::new(reply()))), "{displaced}");
    let counters = network.sides[1].counters();
    assert!(counters.is_balanced() && counters.requests >= 10_000, "{counters:?}");
    assert_eq!((counters.established, counters.displaced), (1, displaced as u64), "{counters:?}");
    assert!(network.sides[1].connections.len() <= MAX_HALF_OPEN + 1);
}

#[test]
fn forged_request_is_answered_at_most_five_times() {
    let mut passive = passive_with(0);
    forge(&mut passive, Duration::ZERO, 1);
    accept_all(&mut passive, Duration::ZERO);
    let mut answers = 0;
    for tenths in 0..300 {
        passive.expire(Duration::from_millis(100 * tenths));
        answers += sent_messages(&mut passive).len();
    }
    assert_eq!(answers, 1 + MAX_REP_RETRIES as usize);
    assert!(passive.connections.is_empty() && passive.requests.is_empty());
    let counters = passive.counters();
    assert!(counters.is_balanced() && counters.unconfirmed == 1, "{counters:?}");
}

#[test]
fn one_address_displaces_its_own_connections_only() {
    let mut passive = passive_with(0);
    forge(&mut passive, Duration::ZERO, 77);
    for peer in 0..3 * MAX_HALF_OPEN_PER_SOURCE as u32 {
        let now = peer * GRACE;
        send_request(&mut passive, now, peer);
        accept_all(&mut passive, now);
    }
    let of = |from: IpAddr| passive.connections.values().filter(|entry| entry.peer == from).count();
    assert_eq!((of(ip(1)), of(ip(77))), (MAX_HALF_OPEN_PER_SOURCE, 1));
    assert_eq!(passive.counters().displaced, 2 * MAX_HALF_OPEN_PER_SOURCE as u64);
}

#[test]
fn half_open_connection_has_time_for_its_rtu() {
    let mut passive = passive_with(0);
    for number in 0..MAX_HALF_OPEN as u32 + 1 {
        forge(&mut passive, Duration::ZERO, number);
        accept_all(&mut passive, Duration::ZERO);
    }
    assert_eq!((passive.counters().displaced, passive.counters().unanswered), (0, 1));
    forge(&mut passive, GRACE, 1 << 20);
    assert_eq!((passive.counters().displaced, passive.counters().unanswered), (1, 1));
    assert!(passive.counters().is_balanced());
}

#[test]
fn rtu_of_a_displaced_connection_is_rejected() {
    let mut network = Network::new(|_| false);
    let active = network.sides[0].connect(network.now, ip(2), request(7174));
    network.run_for(Duration::from_millis(100)); // REQ and REP, and an RTU in flight
    let passive = &mut network.sides[1];
    passive.connections.clear();
    network.run(1);
    assert_eq!(network.events.last(), Some(&Event::Disconnected(active)), "{:?}", network.events);
    assert_eq!(network.sides[1].counters().stray, 1);
}

#[test]
fn communication_ids_are_unpredictable() {
    let ids = |count| {
        let mut side = Manager::new();
        (0..count).map(|_| side.connect(Duration::ZERO, ip(2), request(1)).0).collect::<Vec<_>>()
    };
    let (one, other) = (ids(64), ids(64));
    assert!(one.iter().all(|id| !other.contains(id)), "IDs differ from run to run");
    let near = one.windows(2).filter(|two| two[0].abs_diff(two[1]) < 1 << 16).count();
    assert!(near < 4, "{one:x?}");
}

#[test]
fn unsent_datagrams_are_limited() {
    let mut passive = passive_with(0);
    let unknown = Message::Dreq(1);
    for number in 0..3 * MAX_OUT as u32 {
        let mad = Datagram { transaction: 1, local: number, remote: 7, message: unknown.clone() }.emit();
        passive.receive(Duration::ZERO, ip(9), &mad);
    }
    assert_eq!((passive.out.len(), passive.counters().unsent), (MAX_OUT, 2 * MAX_OUT as u64));
}

#[test]
fn undecided_requests_are_limited() {
    let mut passive = passive_with(0);
    (0..10_000).for_each(|number| forge(&mut passive, Duration::ZERO, number));
    assert_eq!(passive.connections.len(), MAX_UNDECIDED);
    assert_eq!(passive.counters().unanswered, 10_000 - MAX_UNDECIDED as u64);
    passive.expire(Manager::DECISION_TIMEOUT);
    assert_eq!(passive.undecided, 0);
    assert!(passive.counters().is_balanced());
}

#[test]
fn unread_events_are_limited() {
    let mut passive = passive_with(0);
    for round in 0..10 {
        let now = round * Manager::DECISION_TIMEOUT;
        passive.expire(now);
        (0..passive.max_connections as u32).for_each(|peer| send_request(&mut passive, now, (round << 16) + peer));
    }
    assert!(passive.events.len() <= 2 * passive.max_connections);
    assert!(passive.connections.len() <= passive.max_connections && passive.requests.len() <= passive.max_connections);
    assert!(passive.counters().is_balanced());
}

#[test]
fn established_connections_reach_the_limit() {
    let mut passive = passive_with(0);
    passive.set_max_established(3000);
    for number in 0..3000 {
        forge(&mut passive, Duration::ZERO, number);
        accept_all(&mut passive, Duration::ZERO);
        let (to, rep) = passive.next_out().unwrap();
        let transaction = 9;
        let remote = Datagram::parse(&rep).unwrap().local;
        let rtu = Datagram { transaction, local: number, remote, message: Message::Rtu }.emit();
        passive.receive(Duration::ZERO, to, &rtu);
    }
    let counters = passive.counters();
    assert_eq!((counters.established, counters.no_resources), (3000, 0), "{counters:?}");
}

/// Establishes a connection, and disconnects it once its address is proven.
fn connect_and_disconnect(passive: &mut Manager, now: Duration, peer: u32) {
    send_request(passive, now, peer);
    accept_all(passive, now);
    let [(_, Message::Rep(_))] = &sent_messages(passive)[..] else { panic!("{peer} is not accepted") };
    let id = passive.requests[&(ip(1), peer, peer.into())];
    let rtu = Datagram { transaction: peer.into(), local: peer, remote: id, message: Message::Rtu };
    passive.receive(now, ip(1), &rtu.emit());
    passive.disconnect(now, Connection(id));
    assert_eq!(sent_messages(passive), [(peer, Message::Dreq(0x11))]);
}

#[test]
fn unanswered_dreq_does_not_block_new_connections() {
    let mut passive = passive_with(0);
    passive.set_max_established(4);
    let above_limit = passive.max_connections as u32 + 100;
    (0..above_limit).for_each(|peer| connect_and_disconnect(&mut passive, Duration::ZERO, peer));
    forge(&mut passive, Duration::ZERO, 77);
    accept_all(&mut passive, Duration::ZERO);
    let counters = passive.counters();
    assert_eq!((counters.no_resources, counters.half_open), (0, 1), "{counters:?}");
    assert!(passive.connections.len() <= passive.max_connections && passive.requests.len() <= passive.max_connections);
}

#[test]
fn repeated_request_extends_no_timeout() {
    let mut passive = passive_with(0);
    connect_and_disconnect(&mut passive, Duration::ZERO, 0);
    send_request(&mut passive, Duration::ZERO, 1);
    accept_all(&mut passive, Duration::ZERO);
    let (mut now, mut unreachable) = (Duration::ZERO, 0);
    while now < ENDED_LIFETIME + Duration::from_secs(3) {
        (0..2).for_each(|peer| send_request(&mut passive, now, peer));
        passive.expire(now);
        unreachable +=
            std::iter::from_fn(|| passive.next_event()).filter(|event| matches!(event, Event::Unreachable(_))).count();
        now += Duration::from_millis(100);
    }
    assert_eq!((unreachable, passive.counters().unconfirmed), (2, 1), "12.4 s after it was sent first");
}

#[test]
fn unreachable_peer_is_reported_and_removed() {
    let mut network = Network::new(|_| true);
    let active = network.sides[0].connect(network.now, ip(2), request(7174));
    network.run(20);
    assert_eq!(network.events, [Event::Unreachable(active)]);
    assert_eq!(network.sides[0].deadline(), None);
}

#[test]
fn forged_messages_do_not_affect_a_connection() {
    let mut network = Network::new(|_| false);
    let Connection(id) = network.sides[0].connect(network.now, ip(2), request(7174));
    network.run(1);
    let events = network.events.len();
    for message in [Message::Dreq(0x11), Message::Drep, Message::Rej(28), Message::Rtu] {
        let mad = Datagram { transaction: 8, local: 0, remote: id, message }.emit();
        network.sides[0].receive(network.now, ip(3), &mad);
        network.sides[0].receive(network.now, ip(2), &mad); // and the peer itself with a wrong ID
    }
    network.run(1);
    assert_eq!(network.events.len(), events);
}
