//! Target side of a control connection, one message at a time.

use super::*;
use crate::api::Mtu;
use crate::cm::message::{Bits24, Hello, Kind, PathMtu, Receives};
use proptest::prelude::*;

const TIMEOUTS: Timeouts = Timeouts { message: 5_000, wrong_token: 500 };

#[derive(Default)]
pub(in crate::cm) struct TestHost {
    connected: Vec<SessionId>,
    ended: Vec<SessionId>,
}

impl Host for TestHost {
    fn welcome(&mut self) -> Welcome {
        let provider = "host".into();
        Welcome { version: VERSION, provider, max_queue_pairs: 1, max_operation: 1, supports_roles: false, link: None }
    }
    fn regions(&mut self) -> Regions {
        Regions { regions: Vec::new() }
    }
    fn connect(&mut self, session: SessionId, _: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        self.connected.push(session);
        let (mtu, max_rd_atomic) = (offer.mtu, offer.max_rd_atomic);
        Ok(Accept { address: None, qp: offer.qp, psn: offer.psn, mtu, max_rd_atomic, q_key: 0, keys: Vec::new() })
    }
    fn link(&mut self, _: SessionId, _: OwnedFd) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unsupported, "no links"))
    }
    fn start_role(&mut self, _: SessionId, _: &RoleAssignment) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unsupported, "no roles"))
    }
    fn disconnect(&mut self, _: SessionId, qp: u32) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unknown, format!("no queue pair {qp}")))
    }
    fn statistics(&mut self, _: SessionId) -> Statistics {
        Statistics::default()
    }
    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        Ok(LinksStatus { open: first, ..LinksStatus::default() })
    }
    fn session_ended(&mut self, session: SessionId) {
        self.ended.push(session);
    }
}

struct Harness {
    token: Token,
    counters: ControlCounters,
    host: TestHost,
    conversation: Conversation,
}

impl Harness {
    fn new() -> Self {
        let conversation = Conversation::new(7, Some([127, 0, 0, 1].into()), 0);
        let token = "00112233445566778899aabbccddeeff".parse().unwrap();
        Self { token, counters: ControlCounters::default(), host: TestHost::default(), conversation }
    }
    fn send(&mut self, bytes: &[u8], now: Nanos) -> Progress {
        self.conversation.receive(bytes, now, &self.token, &TIMEOUTS, &mut self.counters, &mut self.host)
    }
    fn ask(&mut self, request: &Request, now: Nanos) -> Option<Answer> {
        self.send(&framed(request), now);
        self.take_answer(now)
    }
    fn take_answer(&mut self, now: Nanos) -> Option<Answer> {
        let output = self.conversation.output(now).to_vec();
        let answer = (!output.is_empty()).then(|| parse(&output[4..]).unwrap());
        self.conversation.sent(output.len(), now);
        answer
    }
    fn expire(&mut self, now: Nanos) -> Progress {
        self.conversation.expire(now, &TIMEOUTS, &mut self.counters)
    }
}

fn hello(token: &str) -> Request {
    Request::Hello(Hello { version: VERSION, token: token.parse().unwrap() })
}
fn welcomed() -> Harness {
    let mut harness = Harness::new();
    let answer = harness.ask(&hello("00112233445566778899aabbccddeeff"), 0);
    assert!(matches!(answer, Some(Answer::Welcome(_))), "{answer:?}");
    harness
}
fn offer(address: &str) -> Request {
    let number = Bits24::new(5).unwrap();
    Request::Connect(Offer {
        kind: Kind::Rc,
        address: Some(address.parse().unwrap()),
        qp: number,
        psn: number,
        mtu: PathMtu(Mtu::B1024),
        max_dest_rd_atomic: 1,
        max_rd_atomic: 1,
        service_level: 0,
        receives: Receives::default(),
        sends: 0,
    })
}

#[test]
fn initiator_with_the_token_is_served_until_goodbye() {
    let mut harness = welcomed();
    assert!(matches!(harness.ask(&offer("127.0.0.1:9"), 1), Some(Answer::Accept(_))));
    assert!(matches!(harness.ask(&Request::Goodbye, 2), Some(Answer::Goodbye)));
    assert_eq!(harness.conversation.progress(), Progress::Over);
    harness.conversation.close(&mut harness.counters, &mut harness.host);
    assert_eq!((harness.host.connected, harness.host.ended), (vec![7], vec![7]), "reported once");
    assert_eq!(harness.counters, ControlCounters { welcomed: 1, ..ControlCounters::default() });
}

#[test]
fn wrong_token_is_refused_once_after_a_delay() {
    let mut harness = Harness::new();
    let mut bytes = framed(&hello("ff112233445566778899aabbccddeeff"));
    bytes.extend(framed(&hello("00112233445566778899aabbccddeeff"))); // a second guess is not processed
    assert_eq!(harness.send(&bytes, 10), Progress::Open);
    assert!(harness.take_answer(509).is_none(), "not before its delay");
    assert_eq!(harness.conversation.deadline(&TIMEOUTS), Some(510));
    assert_eq!(harness.expire(510), Progress::Open);
    let Some(Answer::Refused(refusal)) = harness.take_answer(510) else { panic!("a refusal") };
    assert_eq!(refusal.cause, Cause::Token);
    assert_eq!(harness.conversation.progress(), Progress::Over);
    harness.conversation.close(&mut harness.counters, &mut harness.host);
    assert_eq!(harness.counters, ControlCounters { wrong_token: 1, ..ControlCounters::default() });
    assert!(harness.host.ended.is_empty());
}

#[test]
fn peer_that_does_not_read_a_refusal_is_dropped() {
    let mut harness = Harness::new();
    harness.send(&framed(&hello("ff112233445566778899aabbccddeeff")), 0);
    assert_eq!(harness.expire(500), Progress::Open);
    assert_eq!(harness.expire(5_499), Progress::Open);
    assert_eq!(harness.expire(5_501), Progress::Over);
}

#[test]
fn unauthenticated_peer_may_only_say_hello() {
    let links = Request::Links(LinksFrom { first: 0 });
    for request in [Request::Regions, offer("127.0.0.1:9"), Request::Statistics, links, Request::Goodbye] {
        let mut harness = Harness::new();
        assert!(harness.ask(&request, 0).is_none());
        assert_eq!((harness.counters.malformed, harness.host.connected.len()), (1, 0));
    }
    let mut harness = Harness::new();
    harness.send(&300_u32.to_be_bytes(), 0);
    assert_eq!(harness.counters.malformed, 1, "the message of an unauthenticated peer is short");
}

#[test]
fn slow_message_times_out() {
    let mut harness = Harness::new();
    let bytes = framed(&hello("00112233445566778899aabbccddeeff"));
    for (step, byte) in bytes[..50].iter().enumerate() {
        harness.send(&[*byte], step as u64 * 100);
    }
    assert_eq!(harness.expire(4_999), Progress::Open);
    assert_eq!(harness.expire(5_000), Progress::Over);
    assert_eq!(harness.counters, ControlCounters { slow: 1, ..ControlCounters::default() });

    let mut harness = welcomed();
    assert_eq!(harness.conversation.deadline(&TIMEOUTS), None, "an initiator may be silent");
    harness.send(&[0, 0], 10_000);
    assert_eq!((harness.expire(14_999), harness.expire(15_000)), (Progress::Open, Progress::Over));
    harness.conversation.close(&mut harness.counters, &mut harness.host);
    assert_eq!(harness.host.ended, [7]);
}

#[test]
fn unread_answer_stops_the_session() {
    let mut harness = welcomed();
    harness.send(&framed(&Request::Regions), 0);
    assert!(!harness.conversation.accepts_input());
    harness.send(&framed(&offer("127.0.0.1:9")), 1);
    assert!(harness.host.connected.is_empty(), "one answer at a time");
    assert_eq!((harness.expire(4_999), harness.expire(5_000)), (Progress::Open, Progress::Over));
}

#[test]
fn queue_pair_address_must_be_that_of_the_control_connection() {
    let mut harness = welcomed();
    for address in ["127.0.0.2:9", "[::1]:9", "10.0.0.1:4791"] {
        let Some(Answer::Refused(refusal)) = harness.ask(&offer(address), 0) else { panic!("{address}") };
        assert!(refusal.message.contains("127.0.0.1"), "{refusal}");
    }
    assert!(harness.host.connected.is_empty());
    assert!(matches!(harness.ask(&offer("[::ffff:127.0.0.1]:9"), 1), Some(Answer::Accept(_))));
}

#[test]
fn unreadable_request_is_refused_and_the_session_continues() {
    let mut harness = welcomed();
    let mut wrong = 2_u32.to_be_bytes().to_vec();
    wrong.extend(b"{]");
    harness.send(&wrong, 0);
    assert!(matches!(harness.take_answer(0), Some(Answer::Refused(Refusal { cause: Cause::Message, .. }))));
    assert!(matches!(harness.ask(&Request::Statistics, 0), Some(Answer::Statistics(_))));
}

#[test]
fn rate_of_answers_about_links_is_limited() {
    let mut harness = welcomed();
    let request = Request::Links(LinksFrom { first: 3 });
    for _ in 0..=LINKS_BURST {
        let Some(Answer::Links(links)) = harness.ask(&request, 7) else { panic!("an answer") };
        assert_eq!(links.open, 3);
    }
    let Some(Answer::Refused(refusal)) = harness.ask(&request, 7) else { panic!("a refusal") };
    assert!(refusal.cause == Cause::Limit && refusal.message.contains("at most 100 requests"), "{refusal}");
    assert!(matches!(harness.ask(&request, 7 + LINKS_INTERVAL), Some(Answer::Links(_))), "one per interval");
    assert!(matches!(harness.ask(&request, 8 + LINKS_INTERVAL), Some(Answer::Refused(_))));
}

#[test]
fn refusal_length_is_limited() {
    for text in ["\u{80}", "\u{1}", "\\", "n"] {
        let mut harness = welcomed();
        let text = serde_json::to_string(&text.repeat(10_000)).unwrap();
        let message = format!(r#"{{"type":"disconnect","qp":{text}}}"#);
        let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
        bytes.extend(message.as_bytes());
        harness.send(&bytes, 0);
        assert!(harness.conversation.output(0).len() < 10_000, "{}", harness.conversation.output(0).len());
        let Some(Answer::Refused(refusal)) = harness.take_answer(0) else { panic!("a refusal") };
        assert!(refusal.cause == Cause::Message && refusal.message.ends_with("..."), "{refusal}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_handled_and_counted_once(
        bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 1_usize..200, begin in any::<bool>(),
    ) {
        let mut harness = Harness::new();
        let mut all = if begin { framed(&hello("ff112233445566778899aabbccddeeff")) } else { Vec::new() };
        all.extend(&bytes);
        for (step, piece) in all.chunks(cut).enumerate() {
            harness.send(piece, step as u64);
        }
        harness.conversation.close(&mut harness.counters, &mut harness.host);
        let ControlCounters { wrong_token, malformed, closed_by_peer, .. } = harness.counters;
        prop_assert_eq!(wrong_token + malformed + closed_by_peer, 1);
        prop_assert!(harness.host.ended.is_empty());
    }
}
