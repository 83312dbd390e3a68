//! The state machine of [`Manager`] in simulated time.

use super::super::message::{REPLY_PRIVATE, REQUEST_PRIVATE, Reads, service_id};
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
        reads: Reads::default(),
        mtu: Mtu::B1024,
        retries: 7,
        rnr_retries: 7,
        path: [ip(1), ip(2)],
        private: [0; REQUEST_PRIVATE],
    }
}

fn reply() -> Reply {
    Reply { qp: 0x22, psn: 2, reads: Reads::default(), rnr_retries: 7, private: [0; REPLY_PRIVATE] }
}

/// An active and a passive side, and a network that loses every datagram whose turn `lost` names.
struct Both {
    sides: [Manager; 2],
    now: Duration,
    turn: usize,
    lost: fn(usize) -> bool,
    said: Vec<Event>,
}

impl Both {
    fn new(lost: fn(usize) -> bool) -> Self {
        let mut sides = [Manager::new(), Manager::new()];
        sides[1].listen(service_id(7174));
        Self { sides, now: Duration::ZERO, turn: 0, lost, said: Vec::new() }
    }

    /// Runs until the sides have nothing more to say; each agrees to everything.
    fn run(&mut self, seconds: u64) {
        self.run_for(Duration::from_secs(seconds));
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for side in 0..2 {
                self.sides[side].expire(self.now);
                while let Some((_, mad)) = self.sides[side].next_out() {
                    self.turn += 1;
                    if !(self.lost)(self.turn) {
                        self.sides[1 - side].receive(self.now, ip(side as u8 + 1), &mad);
                    }
                }
                while let Some(event) = self.sides[side].next_event() {
                    match &event {
                        Event::Asked(connection, ..) => self.sides[side].accept(self.now, *connection, reply()),
                        Event::Agreed(connection, _) => self.sides[side].ready(self.now, *connection),
                        _ => {}
                    }
                    self.said.push(event);
                }
            }
            self.now += Duration::from_millis(100);
        }
    }
}

#[test]
fn a_connection_begins_and_ends_whatever_is_lost() {
    let cases: [fn(usize) -> bool; 7] = [
        |_| false,
        |turn| turn == 1,
        |turn| turn == 2,
        |turn| turn == 3,
        |turn| turn == 4,
        |turn| turn == 5,
        |turn| turn < 7,
    ];
    for (nth, lost) in cases.into_iter().enumerate() {
        let mut both = Both::new(lost);
        let active = both.sides[0].connect(both.now, ip(2), request(7174));
        both.run(5);
        let [Event::Asked(passive, from, _), Event::Agreed(agreed, answer), Event::Established(ready)] = &both.said[..]
        else {
            panic!("case {nth}: {:?}", both.said)
        };
        assert_eq!((*from, *agreed, answer.qp, ready), (ip(1), active, 0x22, passive));
        let passive = *passive;
        both.sides[0].disconnect(both.now, active);
        both.run(5);
        assert_eq!(both.said[3..], [Event::Ended(passive), Event::Ended(active)], "case {nth}");
    }
}

#[test]
fn who_asks_for_a_service_that_is_not_there_is_refused() {
    let mut both = Both::new(|_| false);
    let active = both.sides[0].connect(both.now, ip(2), request(1));
    both.run(1);
    assert_eq!(both.said, [Event::Refused(active, reason::NO_SERVICE)]);
}

/// A passive side that is asked `count` times, by as many strangers.
fn asked(count: u32) -> Manager {
    let mut passive = Manager::new();
    passive.listen(service_id(7174));
    (0..count).for_each(|stranger| ask(&mut passive, Duration::ZERO, stranger));
    passive
}

fn ask(passive: &mut Manager, now: Duration, stranger: u32) {
    let message = Message::Req(Box::new(request(7174)));
    let mad = Datagram { transaction: stranger.into(), local: stranger, remote: 0, message }.emit();
    passive.receive(now, ip(1), &mad);
}

/// What a side says, to whom.
fn said(side: &mut Manager) -> Vec<(u32, Message)> {
    let out = std::iter::from_fn(|| side.next_out());
    out.map(|(_, mad)| Datagram::parse(&mad).unwrap()).map(|said| (said.remote, said.message)).collect()
}

#[test]
fn a_refusal_that_was_lost_is_said_again_for_the_same_reason() {
    let mut passive = asked(1);
    let Some(Event::Asked(connection, ..)) = passive.next_event() else { panic!("nobody has asked") };
    passive.reject(Duration::ZERO, connection, 28);
    for seconds in 0..5 {
        assert_eq!(said(&mut passive), [(0, Message::Rej(28))]);
        ask(&mut passive, Duration::from_secs(seconds), 0);
        passive.expire(Duration::from_secs(seconds));
    }
    assert_eq!(passive.next_event(), None, "it is asked for once");
    passive.expire(MEMORY);
    assert_eq!(passive.deadline(), None, "and forgotten");
}

#[test]
fn what_is_not_decided_in_time_is_refused_and_forgotten() {
    let mut passive = asked(1);
    let Some(Event::Asked(connection, ..)) = passive.next_event() else { panic!("nobody has asked") };
    passive.expire(Manager::DECISION - Duration::from_millis(1));
    assert_eq!((passive.next_event(), said(&mut passive)), (None, vec![]));
    passive.expire(Manager::DECISION);
    assert_eq!(passive.next_event(), Some(Event::Lapsed(connection)));
    assert_eq!(said(&mut passive), [(0, Message::Rej(reason::TIMEOUT))]);
    passive.accept(Manager::DECISION, connection, reply());
    assert_eq!(said(&mut passive), [], "it is too late to agree");
    passive.expire(Manager::DECISION + MEMORY);
    assert_eq!(passive.deadline(), None);
}

/// Asks from the `number`-th forged address, as somebody who never hears an answer.
fn forge(passive: &mut Manager, now: Duration, number: u32) {
    let message = Message::Req(Box::new(request(7174)));
    let mad = Datagram { transaction: 9, local: number, remote: 0, message }.emit();
    passive.receive(now, IpAddr::from((0x0A00_0000 + number).to_be_bytes()), &mad);
}

/// Accepts whatever was asked for; how many connections gave way.
fn accept_all(passive: &mut Manager, now: Duration) -> usize {
    let events: Vec<_> = std::iter::from_fn(|| passive.next_event()).collect();
    for event in &events {
        if let Event::Asked(connection, ..) = event {
            passive.accept(now, *connection, reply());
        }
    }
    events.iter().filter(|event| matches!(event, Event::Displaced(_))).count()
}

#[test]
fn an_honest_request_among_forged_ones_is_served() {
    let mut both = Both::new(|_| false);
    let active = both.sides[0].connect(both.now, ip(2), request(7174));
    let mut displaced = 0;
    for round in 0..100 {
        for number in 0..100 {
            forge(&mut both.sides[1], both.now, 1000 + round * 100 + number);
        }
        displaced += accept_all(&mut both.sides[1], both.now);
        both.sides[1].out.clear(); // they go nowhere
        both.run_for(Duration::from_millis(100));
    }
    assert!(displaced > 0 && both.said.contains(&Event::Agreed(active, Box::new(reply()))), "{displaced}");
    let counts = both.sides[1].counts();
    assert!(counts.is_balanced() && counts.asked >= 10_000, "{counts:?}");
    assert_eq!((counts.established, counts.displaced), (1, displaced as u64), "{counts:?}");
    assert!(both.sides[1].connections.len() <= MOST_HALF_OPEN + 1);
}

#[test]
fn a_forged_request_is_answered_five_times_at_most() {
    let mut passive = asked(0);
    forge(&mut passive, Duration::ZERO, 1);
    accept_all(&mut passive, Duration::ZERO);
    let mut answers = 0;
    for tenths in 0..300 {
        passive.expire(Duration::from_millis(100 * tenths));
        answers += said(&mut passive).len();
    }
    assert_eq!(answers, 1 + FEW_TRIES as usize);
    assert!(passive.connections.is_empty() && passive.requests.is_empty());
    let counts = passive.counts();
    assert!(counts.is_balanced() && counts.unconfirmed == 1, "{counts:?}");
}

#[test]
fn one_address_displaces_its_own_connections_only() {
    let mut passive = asked(0);
    forge(&mut passive, Duration::ZERO, 77);
    for stranger in 0..3 * MOST_HALF_OPEN_OF_ONE as u32 {
        let now = stranger * GRACE;
        ask(&mut passive, now, stranger);
        accept_all(&mut passive, now);
    }
    let of = |from: IpAddr| passive.connections.values().filter(|entry| entry.peer == from).count();
    assert_eq!((of(ip(1)), of(ip(77))), (MOST_HALF_OPEN_OF_ONE, 1));
    assert_eq!(passive.counts().displaced, 2 * MOST_HALF_OPEN_OF_ONE as u64);
}

#[test]
fn a_half_open_connection_has_some_time_for_its_rtu() {
    let mut passive = asked(0);
    for number in 0..MOST_HALF_OPEN as u32 + 1 {
        forge(&mut passive, Duration::ZERO, number);
        accept_all(&mut passive, Duration::ZERO);
    }
    assert_eq!((passive.counts().displaced, passive.counts().unanswered), (0, 1));
    forge(&mut passive, GRACE, 1 << 20);
    assert_eq!((passive.counts().displaced, passive.counts().unanswered), (1, 1));
    assert!(passive.counts().is_balanced());
}

#[test]
fn an_rtu_of_a_connection_that_gave_way_is_refused() {
    let mut both = Both::new(|_| false);
    let active = both.sides[0].connect(both.now, ip(2), request(7174));
    both.run_for(Duration::from_millis(100)); // REQ and REP, and an RTU on its way
    let passive = &mut both.sides[1];
    passive.connections.clear();
    both.run(1);
    assert_eq!(both.said.last(), Some(&Event::Ended(active)), "{:?}", both.said);
    assert_eq!(both.sides[1].counts().stray, 1);
}

#[test]
fn names_of_connections_are_not_guessed_from_each_other() {
    let names = |count| {
        let mut side = Manager::new();
        (0..count).map(|_| side.connect(Duration::ZERO, ip(2), request(1)).0).collect::<Vec<_>>()
    };
    let (one, other) = (names(64), names(64));
    assert!(one.iter().all(|name| !other.contains(name)), "they differ from run to run");
    let near = one.windows(2).filter(|two| two[0].abs_diff(two[1]) < 1 << 16).count();
    assert!(near < 4, "{one:x?}");
}

#[test]
fn datagrams_that_nobody_sends_do_not_pile_up() {
    let mut passive = asked(0);
    let unknown = Message::Dreq(1);
    for number in 0..3 * MOST_OUT as u32 {
        let mad = Datagram { transaction: 1, local: number, remote: 7, message: unknown.clone() }.emit();
        passive.receive(Duration::ZERO, ip(9), &mad);
    }
    assert_eq!((passive.out.len(), passive.counts().unsent), (MOST_OUT, 2 * MOST_OUT as u64));
}

#[test]
fn requests_that_nobody_decides_do_not_pile_up() {
    let mut passive = asked(0);
    (0..10_000).for_each(|number| forge(&mut passive, Duration::ZERO, number));
    assert_eq!(passive.connections.len(), MOST_UNDECIDED);
    assert_eq!(passive.counts().unanswered, 10_000 - MOST_UNDECIDED as u64);
    passive.expire(Manager::DECISION);
    assert_eq!(passive.undecided, 0);
    assert!(passive.counts().is_balanced());
}

#[test]
fn events_that_nobody_reads_do_not_pile_up() {
    let mut passive = asked(0);
    for round in 0..10 {
        let now = round * Manager::DECISION;
        passive.expire(now);
        (0..passive.most as u32).for_each(|stranger| ask(&mut passive, now, (round << 16) + stranger));
    }
    assert!(passive.events.len() <= 2 * passive.most);
    assert!(passive.connections.len() <= passive.most && passive.requests.len() <= passive.most);
    assert!(passive.counts().is_balanced());
}

#[test]
fn as_many_connections_are_kept_as_are_served() {
    let mut passive = asked(0);
    passive.serve(3000);
    for number in 0..3000 {
        forge(&mut passive, Duration::ZERO, number);
        accept_all(&mut passive, Duration::ZERO);
        let (to, rep) = passive.next_out().unwrap();
        let transaction = 9;
        let remote = Datagram::parse(&rep).unwrap().local;
        let rtu = Datagram { transaction, local: number, remote, message: Message::Rtu }.emit();
        passive.receive(Duration::ZERO, to, &rtu);
    }
    let counts = passive.counts();
    assert_eq!((counts.established, counts.no_resources), (3000, 0), "{counts:?}");
}

/// Lets a stranger in, and ends the connection once its address is proven.
fn dismiss(passive: &mut Manager, now: Duration, stranger: u32) {
    ask(passive, now, stranger);
    accept_all(passive, now);
    let [(_, Message::Rep(_))] = &said(passive)[..] else { panic!("{stranger} is not let in") };
    let name = passive.requests[&(ip(1), stranger, stranger.into())];
    let rtu = Datagram { transaction: stranger.into(), local: stranger, remote: name, message: Message::Rtu };
    passive.receive(now, ip(1), &rtu.emit());
    passive.disconnect(now, Connection(name));
    assert_eq!(said(passive), [(stranger, Message::Dreq(0x11))]);
}

#[test]
fn who_never_answers_a_dreq_gives_way_to_who_asks() {
    let mut passive = asked(0);
    passive.serve(4);
    let more_than_all = passive.most as u32 + 100;
    (0..more_than_all).for_each(|stranger| dismiss(&mut passive, Duration::ZERO, stranger));
    forge(&mut passive, Duration::ZERO, 77);
    accept_all(&mut passive, Duration::ZERO);
    let counts = passive.counts();
    assert_eq!((counts.no_resources, counts.half_open), (0, 1), "{counts:?}");
    assert!(passive.connections.len() <= passive.most && passive.requests.len() <= passive.most);
}

#[test]
fn a_request_that_is_repeated_puts_nothing_off() {
    let mut passive = asked(0);
    dismiss(&mut passive, Duration::ZERO, 0);
    ask(&mut passive, Duration::ZERO, 1);
    accept_all(&mut passive, Duration::ZERO);
    let (mut now, mut silent) = (Duration::ZERO, 0);
    while now < MEMORY + Duration::from_secs(3) {
        (0..2).for_each(|stranger| ask(&mut passive, now, stranger));
        passive.expire(now);
        silent += std::iter::from_fn(|| passive.next_event()).filter(|event| matches!(event, Event::Silent(_))).count();
        now += Duration::from_millis(100);
    }
    assert_eq!((silent, passive.counts().unconfirmed), (2, 1), "12.4 s after it was said first");
}

#[test]
fn a_side_that_hears_nothing_gives_up_and_forgets() {
    let mut both = Both::new(|_| true);
    let active = both.sides[0].connect(both.now, ip(2), request(7174));
    both.run(20);
    assert_eq!(both.said, [Event::Silent(active)]);
    assert_eq!(both.sides[0].deadline(), None);
}

#[test]
fn a_stranger_can_neither_end_nor_answer_for_a_connection() {
    let mut both = Both::new(|_| false);
    let Connection(name) = both.sides[0].connect(both.now, ip(2), request(7174));
    both.run(1);
    let said = both.said.len();
    for message in [Message::Dreq(0x11), Message::Drep, Message::Rej(28), Message::Rtu] {
        let mad = Datagram { transaction: 8, local: 0, remote: name, message }.emit();
        both.sides[0].receive(both.now, ip(3), &mad);
        both.sides[0].receive(both.now, ip(2), &mad); // and the peer itself with a wrong name
    }
    both.run(1);
    assert_eq!(both.said.len(), said);
}
