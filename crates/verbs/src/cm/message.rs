//! What is said on a control connection: JSON objects, each behind its length (32 bits, big-endian).
//!
//! The initiator asks ([`Request`]), the target answers each request once ([`Answer`]), in order. Every field is
//! checked when it is read: a value of these types is in range. Nothing allocates by a number in a message: a message
//! has at most [`LONGEST`] bytes, before the token [`LONGEST_HELLO`].

pub use super::fields::{Bits24, Kind, LONGEST_NAME, Name, PathMtu, Rights};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The version of this conversation.
pub const VERSION: u32 = 1;
/// Bytes of the longest message.
pub const LONGEST: usize = 64 << 10;
/// Bytes of the longest message of somebody who has not shown the token.
pub const LONGEST_HELLO: usize = 256;
/// Characters of a refusal's words: even if each is escaped, the message is not too long.
const MOST_WORDS: usize = 1000;
/// Most regions of a target.
pub const MOST_REGIONS: usize = 256;
/// Most receives that a queue pair of a target has posted.
pub const MOST_RECEIVES: u16 = 1024;
/// Most READs and atomic operations that a queue pair has unanswered at once.
pub const MOST_RD_ATOMIC: u8 = 16;

/// What an initiator says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// First.
    Hello(Hello),
    /// What memory is there?
    Regions,
    /// Link the two processes by shared memory: the message comes with a socket (`SCM_RIGHTS`), for
    /// [`crate::shm::ShmEndpoint::over_offered`]: the initiator has said hello over the other end. Before any `Connect`.
    Link,
    /// Connect a queue pair.
    Connect(Offer),
    /// Begin to play a part in a measurement.
    Play(Playing),
    /// Destroy the target's queue pair of this number.
    Disconnect(Disconnect),
    /// How is the target?
    Statistics,
    /// Last: the target destroys what belongs to this connection, and says so.
    Goodbye,
}

/// What a target says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// To `Hello`.
    Welcome(Welcome),
    /// To `Regions`.
    Regions(Regions),
    /// To `Link`.
    Linked,
    /// To `Connect`.
    Accept(Accept),
    /// To `Play`.
    Playing,
    /// To `Disconnect`.
    Disconnected,
    /// To `Statistics`.
    Statistics(Statistics),
    /// To `Goodbye`.
    Goodbye,
    /// To anything.
    Refused(Refusal),
}

/// Who asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The target's token, 32 hexadecimal digits.
    pub token: super::Token,
}

/// Who answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u32,
    /// The target's provider: `soft`, `shm` or `ibverbs`.
    pub provider: String,
    /// Most queue pairs of this connection.
    pub max_queue_pairs: u32,
    /// Longest operation in bytes.
    pub max_operation: u64,
    /// It takes messages, and plays a part in measurements.
    pub plays: bool,
}

/// A target's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Regions {
    /// Each region.
    #[serde(deserialize_with = "few")]
    pub regions: Vec<RegionInfo>,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// Its name.
    pub name: Name,
    /// Its bytes.
    pub bytes: u64,
    /// What an initiator may do with it.
    pub rights: Rights,
}

/// A queue pair that is to be connected.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Transport service.
    pub kind: Kind,
    /// Where its packets come from; none between processes of one machine. Its IP address must be that of the control
    /// connection, so that nobody can have packets sent to somebody else.
    #[serde(default, deserialize_with = "with_port")]
    pub address: Option<SocketAddr>,
    /// Its number.
    pub qp: Bits24,
    /// The first sequence number that it sends.
    pub psn: Bits24,
    /// The longest payload that its path carries.
    pub mtu: PathMtu,
    /// READs and atomic operations of the target that it takes at once, at most [`MOST_RD_ATOMIC`].
    #[serde(deserialize_with = "rd_atomic")]
    pub max_dest_rd_atomic: u8,
    /// READs and atomic operations that it would have unanswered at once, at most [`MOST_RD_ATOMIC`].
    #[serde(deserialize_with = "rd_atomic")]
    pub max_rd_atomic: u8,
    /// Receives that the target shall keep posted; whatever comes is thrown away, unless it plays [`Play::Echo`].
    #[serde(default)]
    pub receives: Receives,
    /// Work requests that it shall have room for to play its part, at most [`MOST_RECEIVES`].
    #[serde(default)]
    pub sends: u16,
}

/// Messages that a target takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawReceives")]
pub struct Receives {
    /// How many are posted at once, at most [`MOST_RECEIVES`].
    pub count: u16,
    /// Bytes of each.
    pub bytes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReceives {
    count: u16,
    bytes: u32,
}

impl TryFrom<RawReceives> for Receives {
    type Error = String;
    fn try_from(RawReceives { count, bytes }: RawReceives) -> Result<Self, String> {
        match count {
            0..=MOST_RECEIVES => Ok(Self { count, bytes }),
            _ => Err(format!("expected at most {MOST_RECEIVES} receives, found {count}")),
        }
    }
}

/// A queue pair's part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Playing {
    /// The target's queue pair.
    pub qp: Bits24,
    /// What it does.
    pub part: Play,
}

/// A target's part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Play {
    /// Sends each message back.
    Echo,
    /// Waits until the last 8 bytes of so many at the beginning of a region change, and writes these bytes to the
    /// initiator's memory.
    Ping {
        /// The region, counted from 0 in the order of [`Regions`].
        region: u16,
        /// Bytes of a message.
        bytes: u32,
        /// The initiator's memory.
        memory: Keyed,
    },
    /// Writes or reads the initiator's memory, in groups, as long as the queue pair lives.
    Stream {
        /// Out of the initiator's memory, instead of into it.
        read: bool,
        /// Bytes of an operation.
        bytes: u32,
        /// Operations of a group.
        group: u16,
        /// The initiator's memory.
        memory: Keyed,
    },
}

/// Memory with its key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keyed {
    /// The address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its remote key.
    pub rkey: u32,
}

/// A queue pair that was connected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// Where the target's packets come from, and the initiator's go to.
    #[serde(default, deserialize_with = "with_port")]
    pub address: Option<SocketAddr>,
    /// The number of the target's queue pair.
    pub qp: Bits24,
    /// The first sequence number that it sends.
    pub psn: Bits24,
    /// The path MTU of both.
    pub mtu: PathMtu,
    /// READs and atomic operations that the initiator may have unanswered at once.
    #[serde(deserialize_with = "rd_atomic")]
    pub max_rd_atomic: u8,
    /// The target's queue key (UD).
    pub q_key: u32,
    /// The keys of the regions, which are this initiator's alone, in the order of [`Regions`].
    #[serde(deserialize_with = "few")]
    pub keys: Vec<RegionKey>,
}

/// A region's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionKey {
    /// The region.
    #[serde(flatten)]
    pub region: RegionInfo,
    /// The address of its first byte: 0 unless the target says otherwise.
    pub address: u64,
    /// Its remote key.
    pub rkey: u32,
}

/// Names a queue pair of the target.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disconnect {
    /// Its number.
    pub qp: Bits24,
}

/// How a target is: its processor time, and what happened on this connection's queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Seconds of processor time that it has used, in its own code and in the kernel.
    pub cpu_s: f64,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that it sent.
    pub packets_out: u64,
    /// Packets that it sent again.
    pub retransmitted: u64,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// What it refused.
    pub refused: u64,
    /// Operations that it has played ([`Play`]).
    pub played: u64,
    /// Payload bytes of these.
    pub played_bytes: u64,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{words}")]
pub struct Refusal {
    /// For programs.
    pub cause: Cause,
    /// For people.
    pub words: String,
}

impl Refusal {
    /// Truncates `words`, which may quote a message of the peer, to the length that a refusal may have.
    pub fn new(cause: Cause, words: impl Into<String>) -> Self {
        let mut words: String = words.into();
        if let Some((end, _)) = words.char_indices().nth(MOST_WORDS) {
            words.truncate(end);
            words.push_str("...");
        }
        Self { cause, words }
    }
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Not the target's token.
    Token,
    /// Another version of this conversation.
    Version,
    /// Not a message, or not one that may come now.
    Message,
    /// Too much of something.
    Limit,
    /// What was asked for cannot be done.
    Unsupported,
    /// There is no such thing.
    Unknown,
    /// The target failed.
    Failed,
}

fn few<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::deserialize(input)?;
    if all.len() > MOST_REGIONS {
        return Err(serde::de::Error::custom(format!("expected at most {MOST_REGIONS} regions, found {}", all.len())));
    }
    Ok(all)
}

/// An address that packets can be sent to.
fn with_port<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    match Option::<SocketAddr>::deserialize(input)? {
        Some(address) if address.port() == 0 => {
            Err(serde::de::Error::custom(format!("expected an address with a port, found {address}")))
        }
        address => Ok(address),
    }
}

fn rd_atomic<'de, D: serde::Deserializer<'de>>(input: D) -> Result<u8, D::Error> {
    let found = u8::deserialize(input)?;
    if found > MOST_RD_ATOMIC {
        let words = format!("expected at most {MOST_RD_ATOMIC} READs and atomic operations at once, found {found}");
        return Err(serde::de::Error::custom(words));
    }
    Ok(found)
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Longer than may be.
    #[error("a message of {found} bytes, where {most} are allowed")]
    TooLong {
        /// What is allowed.
        most: usize,
        /// What its length says.
        found: usize,
    },
    /// Not what is said here.
    #[error("not a message of this conversation: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads one message, without its length.
pub fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    Ok(serde_json::from_slice(bytes)?)
}

/// A message with its length before it.
pub fn framed(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Only maps with keys that are no strings can fail, and our types have none.
    let written = serde_json::to_writer(&mut bytes, message);
    debug_assert!(written.is_ok() && bytes.len() <= 4 + LONGEST, "{written:?}");
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Takes the next whole message out of what has arrived; none if it is not all there.
pub fn unframed(input: &mut Vec<u8>, most: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(len) = input.first_chunk().map(|len| u32::from_be_bytes(*len) as usize) else { return Ok(None) };
    if len > most {
        return Err(Malformed::TooLong { most, found: len });
    }
    if input.len() < 4 + len {
        return Ok(None);
    }
    let rest = input.split_off(4 + len);
    let mut message = std::mem::replace(input, rest);
    message.drain(..4);
    Ok(Some(message))
}

/// Whether a whole message has arrived.
pub(super) fn is_whole(input: &[u8]) -> bool {
    input.first_chunk().is_some_and(|len| input.len() - 4 >= u32::from_be_bytes(*len) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Mtu;
    use shotline_memory::Access;

    fn refused<T: for<'a> Deserialize<'a> + std::fmt::Debug>(text: &str, word: &str) {
        let words = parse::<T>(text.as_bytes()).expect_err(text).to_string();
        assert!(words.contains(word), "{text}: {words}");
    }

    const OFFER: &str = r#"{"type":"connect","kind":"rc","address":"127.0.0.1:4791","qp":77,"psn":16777215,"mtu":4096,
        "max_dest_rd_atomic":1,"max_rd_atomic":16}"#;

    #[test]
    fn an_offer_is_read_field_by_field() {
        let Ok(Request::Connect(offer)) = parse(OFFER.as_bytes()) else { panic!("{OFFER}") };
        assert_eq!((offer.kind, offer.qp.get(), offer.psn.get(), offer.mtu.0), (Kind::Rc, 77, 0xFF_FFFF, Mtu::B4096));
        assert_eq!((offer.receives, offer.sends), (Receives::default(), 0));
    }

    #[test]
    fn fields_out_of_range_are_refused_in_words() {
        for (from, to, word) in [
            ("16777215", "16777216", "24 bits"),
            ("16777215", "-1", "-1"),
            ("4096", "4095", "MTU"),
            ("\"rc\"", "\"rd\"", "rd"),
            ("127.0.0.1:4791", "localhost", "invalid socket address"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":256", "256"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":17", "at most 16 READs"),
            ("\"max_dest_rd_atomic\":1", "\"max_dest_rd_atomic\":255", "at most 16 READs"),
            ("127.0.0.1:4791", "127.0.0.1:0", "an address with a port, found 127.0.0.1:0"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":16,\"receives\":{\"count\":1025,\"bytes\":1}", "1024 receives"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":16,\"rights\":\"all\"", "unknown field"),
            ("\"qp\":77,", "", "missing field `qp`"),
        ] {
            let text = OFFER.replace(from, to);
            assert_ne!(text, OFFER, "{from}");
            refused::<Request>(&text, word);
        }
        for name in ["", "a b", "\u{1b}[31m", &"n".repeat(65)] {
            refused::<Name>(&serde_json::to_string(name).unwrap(), "1 to 64 letters");
        }
        refused::<Rights>("\"rx\"", "r, w and a");
        refused::<Hello>(r#"{"version":1,"token":"secret"}"#, "32 hexadecimal digits");
    }

    #[test]
    fn rights_are_written_as_they_are_read() {
        for text in ["", "r", "w", "rw", "rwa"] {
            let rights = Rights::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(rights), text);
        }
    }

    #[test]
    fn messages_come_out_of_a_stream_however_it_is_cut() {
        let stream = [framed(&Request::Regions), framed(&Request::Goodbye)].concat();
        for step in 1..=stream.len() {
            let (mut input, mut found) = (Vec::new(), 0);
            for piece in stream.chunks(step) {
                input.extend_from_slice(piece);
                while let Some(message) = unframed(&mut input, LONGEST).unwrap() {
                    parse::<Request>(&message).unwrap();
                    found += 1;
                }
            }
            assert_eq!((found, input.len()), (2, 0), "in pieces of {step}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_the_bytes_come() {
        let mut input = (LONGEST as u32 + 1).to_be_bytes().to_vec();
        assert!(matches!(unframed(&mut input, LONGEST), Err(Malformed::TooLong { found: 65537, .. })));
    }

    #[test]
    fn any_list_of_regions_fits_a_message() {
        let region = RegionInfo {
            name: "n".repeat(LONGEST_NAME).try_into().unwrap(),
            bytes: u64::MAX,
            rights: Rights(Access::ALL),
        };
        let key = RegionKey { region, address: u64::MAX, rkey: u32::MAX };
        let accept = Accept {
            address: Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap()),
            qp: Bits24::new(0xFF_FFFF).unwrap(),
            psn: Bits24::new(0xFF_FFFF).unwrap(),
            mtu: PathMtu(Mtu::B4096),
            max_rd_atomic: MOST_RD_ATOMIC,
            q_key: u32::MAX,
            keys: vec![key; MOST_REGIONS],
        };
        let bytes = framed(&Answer::Accept(accept));
        assert!(bytes.len() <= LONGEST, "{}", bytes.len());
        let Ok(Answer::Accept(accept)) = parse(&bytes[4..]) else { panic!("it is read back") };
        assert_eq!(accept.keys.len(), MOST_REGIONS);
    }
}
