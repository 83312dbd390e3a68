//! The target's side of one control connection: bytes in, bytes out, no I/O, no clock.

use super::Token;
use super::message::{
    self, Accept, Answer, Cause, LONGEST, LONGEST_HELLO, Malformed, Offer, Playing, Refusal, Regions, Request,
    Statistics, VERSION, Welcome, framed, parse, unframed,
};
use crate::engine::Nanos;
use crate::handed;
use rustix::fd::OwnedFd;
use std::net::IpAddr;

/// Names a conversation, never twice.
pub type SessionId = u64;

/// Who owns what conversations are about. No method has a default: a host around another one passes each on.
pub trait Host {
    /// Who it is.
    fn welcome(&mut self) -> Welcome;
    /// Its memory.
    fn regions(&mut self) -> Regions;
    /// Connects a queue pair for an initiator at `peer` (none: on this machine, not by IP).
    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal>;
    /// Links with an initiator's process by a socket that it has handed over.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] where targets are not reached by shared memory.
    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal>;
    /// Begins to play a part in a measurement.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] where the target serves memory only.
    fn play(&mut self, session: SessionId, playing: &Playing) -> Result<(), Refusal>;
    /// Destroys the queue pair of this number, if it is the session's.
    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal>;
    /// How it is, and how the session's queue pairs are.
    fn statistics(&mut self, session: SessionId) -> Statistics;
    /// The initiator is gone: what it had is to be destroyed. Told once of every session that was welcomed.
    fn left(&mut self, session: SessionId);
}

/// What happened at the door, counted. Every conversation that began is welcomed, refused or lost, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Connections that were taken.
    pub begun: u64,
    /// Initiators that showed the token.
    pub welcomed: u64,
    /// Strangers that showed another one.
    pub wrong_token: u64,
    /// Strangers of another version.
    pub wrong_version: u64,
    /// Strangers that said something else.
    pub malformed: u64,
    /// Strangers that said nothing, or too slowly.
    pub slow: u64,
    /// Strangers that had to make room for newer ones.
    pub displaced: u64,
    /// Strangers that hung up before they had said who they are.
    pub hung_up: u64,
    /// Connections that were closed at once, because there were as many as there may be.
    pub full: u64,
}

/// How a stranger's conversation may go wrong, and what is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// For a whole message, once it has begun; for the first one; for an answer to be taken.
    pub message: Nanos,
    /// Before a wrong token is answered.
    pub wrong: Nanos,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    Open,
    /// It is to be closed.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Has not shown the token.
    Stranger,
    /// Has.
    Known,
    /// Will hear why it is refused at this time, and nothing after that.
    Refused { at: Nanos },
    /// Hears what is still to be sent.
    Ending,
    /// Is to be closed.
    Over,
}

/// A control connection as the target sees it.
#[derive(Debug)]
pub struct Conversation {
    id: SessionId,
    peer: Option<IpAddr>,
    state: State,
    welcomed: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    /// What an initiator has handed over last.
    socket: Option<OwnedFd>,
    /// Since when the one awaited (a message, an answer's taking) has been awaited.
    since: Nanos,
}

impl Conversation {
    /// With somebody at `peer`, who has to say hello.
    pub fn new(id: SessionId, peer: Option<IpAddr>, now: Nanos) -> Self {
        let state = State::Stranger;
        Self { id, peer, state, welcomed: false, input: Vec::new(), output: Vec::new(), socket: None, since: now }
    }

    /// Its name.
    pub fn id(&self) -> SessionId {
        self.id
    }
    /// Whether the token was shown.
    pub fn is_welcome(&self) -> bool {
        self.welcomed
    }
    /// Whether nothing is known of it yet.
    pub fn is_stranger(&self) -> bool {
        self.state == State::Stranger
    }
    /// Whether more bytes are wanted: not before the last answer is taken.
    pub fn wants_input(&self) -> bool {
        self.output.is_empty() && matches!(self.state, State::Stranger | State::Known)
    }
    /// Whether bytes have come that were not looked at yet.
    pub(super) fn has_request(&self) -> bool {
        self.wants_input() && message::is_whole(&self.input)
    }
    /// What is to be sent now.
    pub fn output(&self, now: Nanos) -> &[u8] {
        match self.state {
            State::Refused { at } if now < at => &[],
            _ => &self.output,
        }
    }
    /// So much of it was sent.
    pub fn sent(&mut self, bytes: usize, now: Nanos) -> Progress {
        self.output.drain(..bytes.min(self.output.len()));
        self.since = now;
        if self.output.is_empty() && matches!(self.state, State::Ending | State::Refused { .. }) {
            self.state = State::Over;
        }
        self.progress()
    }

    /// When [`Self::expire`] is due. None: an initiator may be silent for as long as it likes.
    pub(super) fn deadline(&self, times: &Times) -> Option<Nanos> {
        match self.state {
            State::Refused { at } if self.since <= at => Some(at),
            State::Known if self.input.is_empty() && self.output.is_empty() => None,
            _ => Some(self.since.saturating_add(times.message)),
        }
    }

    /// Ends what has taken too long.
    pub(super) fn expire(&mut self, now: Nanos, times: &Times, counts: &mut Counts) -> Progress {
        match self.state {
            // The refusal's time has come: now it has to be taken.
            State::Refused { at } if self.since <= at && now >= at => self.since = now.max(at + 1),
            _ if self.deadline(times).is_some_and(|deadline| now >= deadline) => {
                if self.state == State::Stranger {
                    counts.slow += 1;
                }
                self.state = State::Over;
            }
            _ => {}
        }
        self.progress()
    }

    /// A socket has come with bytes.
    pub(super) fn hand(&mut self, socket: OwnedFd) {
        handed::discard(self.socket.replace(socket).into_iter().collect());
    }

    /// Bytes have come.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        now: Nanos,
        token: &Token,
        times: &Times,
        counts: &mut Counts,
        host: &mut impl Host,
    ) -> Progress {
        if self.input.is_empty() && self.output.is_empty() && self.state == State::Known {
            self.since = now;
        }
        self.input.extend_from_slice(bytes);
        while self.wants_input() {
            let most = if self.welcomed { LONGEST } else { LONGEST_HELLO };
            match unframed(&mut self.input, most) {
                Ok(None) => break,
                Ok(Some(message)) if self.welcomed => {
                    let answer = self.answer(&message, host);
                    self.output = framed(&answer);
                    self.since = now;
                }
                Ok(Some(message)) => self.introduce(&message, now, token, times, counts, host),
                Err(error) if self.welcomed => self.end(Refusal::new(Cause::Message, error.to_string()), now),
                Err(_) => self.turn_away(now, times, counts, |counts| &mut counts.malformed),
            }
        }
        self.progress()
    }

    /// The first message. Who is turned away learns nothing but that, and not soon: whoever guesses shall wait.
    fn introduce(
        &mut self,
        message: &[u8],
        now: Nanos,
        token: &Token,
        times: &Times,
        counts: &mut Counts,
        host: &mut impl Host,
    ) {
        match parse::<Request>(message) {
            Ok(Request::Hello(hello)) if !token.matches(&hello.token) => {
                self.turn_away(now, times, counts, |counts| &mut counts.wrong_token);
            }
            Ok(Request::Hello(hello)) if hello.version != VERSION => {
                counts.wrong_version += 1;
                let words = format!("this target speaks version {VERSION}, not {}", hello.version);
                self.end(Refusal::new(Cause::Version, words), now);
            }
            Ok(Request::Hello(_)) => {
                counts.welcomed += 1;
                (self.welcomed, self.state, self.since) = (true, State::Known, now);
                self.output = framed(&Answer::Welcome(host.welcome()));
            }
            _ => self.turn_away(now, times, counts, |counts| &mut counts.malformed),
        }
    }

    fn answer(&mut self, message: &[u8], host: &mut impl Host) -> Answer {
        let request = match parse(message) {
            Ok(request) => request,
            Err(error) => return Answer::Refused(Refusal::new(Cause::Message, error.to_string())),
        };
        let id = self.id;
        let done = match request {
            Request::Hello(_) => Err(Refusal::new(Cause::Message, "hello was said before")),
            Request::Regions => Ok(Answer::Regions(host.regions())),
            Request::Connect(offer) => {
                same_address(self.peer, &offer).and_then(|()| host.connect(id, self.peer, &offer)).map(Answer::Accept)
            }
            Request::Link => {
                let socket = self.socket.take();
                let socket = socket.ok_or_else(|| Refusal::new(Cause::Message, "no socket came with it"));
                socket.and_then(|socket| host.link(id, socket)).map(|()| Answer::Linked)
            }
            Request::Play(playing) => host.play(id, &playing).map(|()| Answer::Playing),
            Request::Disconnect(what) => host.disconnect(id, what.qp.get()).map(|()| Answer::Disconnected),
            Request::Statistics => Ok(Answer::Statistics(host.statistics(id))),
            Request::Goodbye => {
                self.state = State::Ending;
                self.leave(host);
                Ok(Answer::Goodbye)
            }
        };
        done.unwrap_or_else(Answer::Refused)
    }

    /// The connection is gone, or to be closed. To be called once in the end.
    pub fn close(&mut self, counts: &mut Counts, host: &mut impl Host) {
        if self.state == State::Stranger {
            counts.hung_up += 1;
        }
        self.state = State::Over;
        self.leave(host);
    }

    /// A stranger makes room.
    pub(super) fn displace(&mut self, counts: &mut Counts) {
        if self.state == State::Stranger {
            counts.displaced += 1;
        }
        self.state = State::Over;
    }

    fn leave(&mut self, host: &mut impl Host) {
        if std::mem::take(&mut self.welcomed) {
            host.left(self.id);
        }
    }

    fn turn_away(&mut self, now: Nanos, times: &Times, counts: &mut Counts, count: fn(&mut Counts) -> &mut u64) {
        *count(counts) += 1;
        self.end(Refusal::new(Cause::Token, "this is not its token"), now);
        self.state = State::Refused { at: now.saturating_add(times.wrong) };
    }

    fn end(&mut self, refusal: Refusal, now: Nanos) {
        self.output = framed(&Answer::Refused(refusal));
        (self.state, self.since) = (State::Ending, now);
    }

    fn progress(&self) -> Progress {
        if self.state == State::Over { Progress::Over } else { Progress::Open }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        handed::discard(self.socket.take().into_iter().collect());
    }
}

/// Packets go to whoever asks for them, and to nobody else.
fn same_address(peer: Option<IpAddr>, offer: &Offer) -> Result<(), Refusal> {
    match (peer, offer.address) {
        (Some(peer), Some(address)) if peer.to_canonical() != address.ip().to_canonical() => {
            let words = format!("the queue pair's address {} is not the control connection's, {peer}", address.ip());
            Err(Refusal::new(Cause::Unsupported, words))
        }
        _ => Ok(()),
    }
}

impl From<Malformed> for Refusal {
    fn from(error: Malformed) -> Self {
        Self::new(Cause::Message, error.to_string())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::message::{Bits24, Hello, Kind, PathMtu, Receives};
    use super::*;
    use crate::api::Mtu;
    use proptest::prelude::*;

    const TIMES: Times = Times { message: 5_000, wrong: 500 };

    #[derive(Default)]
    pub(in crate::cm) struct Desk {
        connected: Vec<SessionId>,
        left: Vec<SessionId>,
    }

    impl Host for Desk {
        fn welcome(&mut self) -> Welcome {
            let provider = "desk".into();
            Welcome { version: VERSION, provider, max_queue_pairs: 1, max_operation: 1, plays: false }
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
        fn play(&mut self, _: SessionId, _: &Playing) -> Result<(), Refusal> {
            Err(Refusal::new(Cause::Unsupported, "no parts"))
        }
        fn disconnect(&mut self, _: SessionId, qp: u32) -> Result<(), Refusal> {
            Err(Refusal::new(Cause::Unknown, format!("no queue pair {qp}")))
        }
        fn statistics(&mut self, _: SessionId) -> Statistics {
            Statistics::default()
        }
        fn left(&mut self, session: SessionId) {
            self.left.push(session);
        }
    }

    struct Door {
        token: Token,
        counts: Counts,
        desk: Desk,
        with: Conversation,
    }

    impl Door {
        fn new() -> Self {
            let with = Conversation::new(7, Some([127, 0, 0, 1].into()), 0);
            let token = "00112233445566778899aabbccddeeff".parse().unwrap();
            Self { token, counts: Counts::default(), desk: Desk::default(), with }
        }
        fn say(&mut self, bytes: &[u8], now: Nanos) -> Progress {
            self.with.receive(bytes, now, &self.token, &TIMES, &mut self.counts, &mut self.desk)
        }
        fn ask(&mut self, request: &Request, now: Nanos) -> Option<Answer> {
            self.say(&framed(request), now);
            self.hear(now)
        }
        fn hear(&mut self, now: Nanos) -> Option<Answer> {
            let output = self.with.output(now).to_vec();
            let answer = (!output.is_empty()).then(|| parse(&output[4..]).unwrap());
            self.with.sent(output.len(), now);
            answer
        }
        fn expire(&mut self, now: Nanos) -> Progress {
            self.with.expire(now, &TIMES, &mut self.counts)
        }
    }

    fn hello(token: &str) -> Request {
        Request::Hello(Hello { version: VERSION, token: token.parse().unwrap() })
    }
    fn known() -> Door {
        let mut door = Door::new();
        let answer = door.ask(&hello("00112233445566778899aabbccddeeff"), 0);
        assert!(matches!(answer, Some(Answer::Welcome(_))), "{answer:?}");
        door
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
            receives: Receives::default(),
            sends: 0,
        })
    }

    #[test]
    fn who_shows_the_token_is_served_until_goodbye() {
        let mut door = known();
        assert!(matches!(door.ask(&offer("127.0.0.1:9"), 1), Some(Answer::Accept(_))));
        assert!(matches!(door.ask(&Request::Goodbye, 2), Some(Answer::Goodbye)));
        assert_eq!(door.with.progress(), Progress::Over);
        door.with.close(&mut door.counts, &mut door.desk);
        assert_eq!((door.desk.connected, door.desk.left), (vec![7], vec![7]), "told once");
        assert_eq!(door.counts, Counts { welcomed: 1, ..Counts::default() });
    }

    #[test]
    fn a_wrong_token_is_answered_late_once_and_reaches_nobody() {
        let mut door = Door::new();
        let mut bytes = framed(&hello("ff112233445566778899aabbccddeeff"));
        bytes.extend(framed(&hello("00112233445566778899aabbccddeeff"))); // a second guess is not looked at
        assert_eq!(door.say(&bytes, 10), Progress::Open);
        assert!(door.hear(509).is_none(), "not before its time");
        assert_eq!(door.with.deadline(&TIMES), Some(510));
        assert_eq!(door.expire(510), Progress::Open);
        let Some(Answer::Refused(refusal)) = door.hear(510) else { panic!("a refusal") };
        assert_eq!(refusal.cause, Cause::Token);
        assert_eq!(door.with.progress(), Progress::Over);
        door.with.close(&mut door.counts, &mut door.desk);
        assert_eq!(door.counts, Counts { wrong_token: 1, ..Counts::default() });
        assert!(door.desk.left.is_empty());
    }

    #[test]
    fn whoever_does_not_take_a_refusal_is_dropped() {
        let mut door = Door::new();
        door.say(&framed(&hello("ff112233445566778899aabbccddeeff")), 0);
        assert_eq!(door.expire(500), Progress::Open);
        assert_eq!(door.expire(5_499), Progress::Open);
        assert_eq!(door.expire(5_501), Progress::Over);
    }

    #[test]
    fn nothing_but_hello_is_heard_of_strangers() {
        for request in [Request::Regions, offer("127.0.0.1:9"), Request::Statistics, Request::Goodbye] {
            let mut door = Door::new();
            assert!(door.ask(&request, 0).is_none());
            assert_eq!((door.counts.malformed, door.desk.connected.len()), (1, 0));
        }
        let mut door = Door::new();
        door.say(&300_u32.to_be_bytes(), 0);
        assert_eq!(door.counts.malformed, 1, "a stranger's message is short");
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_without_end_is_cut_off() {
        let mut door = Door::new();
        let bytes = framed(&hello("00112233445566778899aabbccddeeff"));
        for (step, byte) in bytes[..50].iter().enumerate() {
            door.say(&[*byte], step as u64 * 100);
        }
        assert_eq!(door.expire(4_999), Progress::Open);
        assert_eq!(door.expire(5_000), Progress::Over);
        assert_eq!(door.counts, Counts { slow: 1, ..Counts::default() });

        let mut door = known();
        assert_eq!(door.with.deadline(&TIMES), None, "an initiator may be silent");
        door.say(&[0, 0], 10_000);
        assert_eq!((door.expire(14_999), door.expire(15_000)), (Progress::Open, Progress::Over));
        door.with.close(&mut door.counts, &mut door.desk);
        assert_eq!(door.desk.left, [7]);
    }

    #[test]
    fn an_answer_that_nobody_takes_stops_the_conversation() {
        let mut door = known();
        door.say(&framed(&Request::Regions), 0);
        assert!(!door.with.wants_input());
        door.say(&framed(&offer("127.0.0.1:9")), 1);
        assert!(door.desk.connected.is_empty(), "one answer at a time");
        assert_eq!((door.expire(4_999), door.expire(5_000)), (Progress::Open, Progress::Over));
    }

    #[test]
    fn packets_can_be_asked_for_to_ones_own_address_only() {
        let mut door = known();
        for address in ["127.0.0.2:9", "[::1]:9", "10.0.0.1:4791"] {
            let Some(Answer::Refused(refusal)) = door.ask(&offer(address), 0) else { panic!("{address}") };
            assert!(refusal.words.contains("127.0.0.1"), "{refusal}");
        }
        assert!(door.desk.connected.is_empty());
        assert!(matches!(door.ask(&offer("[::ffff:127.0.0.1]:9"), 1), Some(Answer::Accept(_))));
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_the_conversation_goes_on() {
        let mut door = known();
        let mut wrong = 2_u32.to_be_bytes().to_vec();
        wrong.extend(b"{]");
        door.say(&wrong, 0);
        assert!(matches!(door.hear(0), Some(Answer::Refused(Refusal { cause: Cause::Message, .. }))));
        assert!(matches!(door.ask(&Request::Statistics, 0), Some(Answer::Statistics(_))));
    }

    #[test]
    fn a_refusal_is_short_however_long_what_it_repeats() {
        for text in ["\u{80}", "\u{1}", "\\", "n"] {
            let mut door = known();
            let text = serde_json::to_string(&text.repeat(10_000)).unwrap();
            let message = format!(r#"{{"type":"disconnect","qp":{text}}}"#);
            let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
            bytes.extend(message.as_bytes());
            door.say(&bytes, 0);
            assert!(door.with.output(0).len() < 10_000, "{}", door.with.output(0).len());
            let Some(Answer::Refused(refusal)) = door.hear(0) else { panic!("a refusal") };
            assert!(refusal.cause == Cause::Message && refusal.words.ends_with("..."), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it_and_every_stranger_is_counted_once(
            bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 1_usize..200, begin in any::<bool>(),
        ) {
            let mut door = Door::new();
            let mut all = if begin { framed(&hello("ff112233445566778899aabbccddeeff")) } else { Vec::new() };
            all.extend(&bytes);
            for (step, piece) in all.chunks(cut).enumerate() {
                door.say(piece, step as u64);
            }
            door.with.close(&mut door.counts, &mut door.desk);
            let Counts { wrong_token, malformed, hung_up, .. } = door.counts;
            prop_assert_eq!(wrong_token + malformed + hung_up, 1);
            prop_assert!(door.desk.left.is_empty());
        }
    }
}
