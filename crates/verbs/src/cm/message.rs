//! Messages of a control connection: JSON objects, each preceded by its length. `docs/wire-formats.md` specifies them.
//!
//! The initiator sends requests ([`Request`]), and the target answers each one once ([`Answer`]), in order. Every field
//! is checked when it is parsed: values of these types are in range. No allocation depends on a number in a message: a
//! message has at most [`MAX_MESSAGE_BYTES`] bytes, or [`MAX_HELLO_BYTES`] before the token.

pub use super::fields::{Bits24, Kind, MAX_NAME_BYTES, Name, PathMtu, Rights};

use crate::spacefibre::{LinkParameters, LinksStatus};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Protocol version.
pub const VERSION: u32 = 2;
/// Maximum bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum bytes of a message before the token has been presented.
pub const MAX_HELLO_BYTES: usize = 256;
/// Maximum characters of a refusal's text, chosen so that the message fits even if each one is escaped.
const MAX_REFUSAL_CHARS: usize = 1000;
/// Maximum regions of a target.
pub const MAX_REGIONS: usize = 256;
/// Maximum posted receives of a target's queue pair.
pub const MAX_RECEIVES: u16 = 1024;
/// Maximum SpaceFibre links in an answer; a link with 32 virtual channels has up to 20 KiB.
pub const MAX_LINKS: usize = 3;
/// Maximum service level of a queue pair.
pub const MAX_SERVICE_LEVEL: u8 = 31;
/// Maximum outstanding READs and atomic operations of a queue pair.
pub const MAX_RD_ATOMIC: u8 = 16;

/// Message of an initiator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// First message: version and token.
    Hello(Hello),
    /// Requests the list of regions.
    Regions,
    /// Links the two processes by shared memory: the message carries a socket (`SCM_RIGHTS`) for
    /// [`crate::shm::ShmEndpoint::from_offered_socket`], and the initiator has sent its hello over the other end. Must
    /// precede any `Connect`.
    Link,
    /// Connects a queue pair.
    Connect(Offer),
    /// Starts a role in a measurement.
    StartRole(RoleAssignment),
    /// Destroys the target's queue pair with this number.
    Disconnect(Disconnect),
    /// Requests the counters of the target.
    Statistics,
    /// Requests the status of the target's SpaceFibre links.
    Links(LinksFrom),
    /// Last message: the target destroys the resources of this connection and confirms.
    Goodbye,
}

/// Message of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// Answer to `Hello`.
    Welcome(Welcome),
    /// Answer to `Regions`.
    Regions(Regions),
    /// Answer to `Link`.
    Linked,
    /// Answer to `Connect`.
    Accept(Accept),
    /// Answer to `StartRole`.
    RoleStarted,
    /// Answer to `Disconnect`.
    Disconnected,
    /// Answer to `Statistics`.
    Statistics(Statistics),
    /// Answer to `Links`: at most [`MAX_LINKS`] links.
    Links(Box<LinksStatus>),
    /// Answer to `Goodbye`.
    Goodbye,
    /// Answer to any request that is refused.
    Refused(Refusal),
}

/// First message of an initiator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The target's token, 32 hexadecimal digits.
    pub token: super::Token,
}

/// Description of a target. Fields that are unknown are ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u32,
    /// The target's provider: `soft`, `shm`, `ibverbs` or `spacefibre`.
    pub provider: String,
    /// Maximum queue pairs of this connection.
    pub max_queue_pairs: u32,
    /// Maximum length of an operation, in bytes.
    pub max_operation: u64,
    /// The target receives messages and supports roles in measurements ([`TargetRole`]).
    pub supports_roles: bool,
    /// Options of its SpaceFibre links, if it has links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkParameters>,
}

/// Memory of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Regions {
    /// Its regions.
    #[serde(deserialize_with = "limited_list")]
    pub regions: Vec<RegionInfo>,
}

/// Description of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// Name.
    pub name: Name,
    /// Length in bytes.
    pub bytes: u64,
    /// Access rights of initiators.
    pub rights: Rights,
}

/// Initiator's queue pair that requests a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Transport service.
    pub kind: Kind,
    /// Source address of its packets; `None` between processes of one machine. The IP address must be that of the
    /// control connection, so that packets cannot be directed at a third party.
    #[serde(default, deserialize_with = "with_port")]
    pub address: Option<SocketAddr>,
    /// Queue pair number.
    pub qp: Bits24,
    /// First PSN that it sends.
    pub psn: Bits24,
    /// Maximum path MTU.
    pub mtu: PathMtu,
    /// READs and atomic operations of the target that it accepts concurrently, at most [`MAX_RD_ATOMIC`].
    #[serde(deserialize_with = "rd_atomic")]
    pub max_dest_rd_atomic: u8,
    /// Outstanding READs and atomic operations that it requests, at most [`MAX_RD_ATOMIC`].
    #[serde(deserialize_with = "rd_atomic")]
    pub max_rd_atomic: u8,
    /// Service level of the two queue pairs, at most [`MAX_SERVICE_LEVEL`]; over SpaceFibre, their virtual channel.
    #[serde(default, deserialize_with = "service_level", skip_serializing_if = "is_zero")]
    pub service_level: u8,
    /// Receives that the target keeps posted; received messages are discarded, unless its role is
    /// [`TargetRole::Echo`].
    #[serde(default)]
    pub receives: Receives,
    /// Send queue depth that the target needs for its role, at most [`MAX_RECEIVES`].
    #[serde(default)]
    pub sends: u16,
}

/// Posted receives of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawReceives")]
pub struct Receives {
    /// Number of posted receives, at most [`MAX_RECEIVES`].
    pub count: u16,
    /// Bytes of each receive.
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
            0..=MAX_RECEIVES => Ok(Self { count, bytes }),
            _ => Err(format!("expected at most {MAX_RECEIVES} receives, found {count}")),
        }
    }
}

/// Assignment of a role to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleAssignment {
    /// The target's queue pair.
    pub qp: Bits24,
    /// Role.
    pub role: TargetRole,
}

/// Role of a target's queue pair: in a measurement, or as the command queue of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetRole {
    /// Returns each message to its sender.
    Echo,
    /// Takes commands of its accelerator: WRITEs with immediate data, for which it has receives without bytes.
    Commands,
    /// Waits until the last 8 of the first `bytes` bytes of a region change, and writes these to the initiator's memory.
    Ping {
        /// Index of the region in [`Regions`].
        region: u16,
        /// Message length in bytes.
        bytes: u32,
        /// The initiator's memory.
        memory: RegisteredMemory,
    },
    /// Writes or reads the initiator's memory, in groups, for the lifetime of the queue pair.
    Stream {
        /// Read from the initiator's memory instead of writing to it.
        read: bool,
        /// Bytes of an operation.
        bytes: u32,
        /// Operations of a group.
        group: u16,
        /// The initiator's memory.
        memory: RegisteredMemory,
    },
}

/// Registered memory with its key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisteredMemory {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// rkey.
    pub rkey: u32,
}

/// Target's queue pair of a new connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// Address that the target's packets come from and the initiator's go to.
    #[serde(default, deserialize_with = "with_port")]
    pub address: Option<SocketAddr>,
    /// Number of the target's queue pair.
    pub qp: Bits24,
    /// First PSN that it sends.
    pub psn: Bits24,
    /// Path MTU of both directions.
    pub mtu: PathMtu,
    /// Maximum outstanding READs and atomic operations of the initiator.
    #[serde(deserialize_with = "rd_atomic")]
    pub max_rd_atomic: u8,
    /// The target's queue key (UD).
    pub q_key: u32,
    /// Keys of the regions, valid for this initiator only, in the order of [`Regions`].
    #[serde(deserialize_with = "limited_list")]
    pub keys: Vec<RegionKey>,
}

/// Key of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionKey {
    /// The region.
    #[serde(flatten)]
    pub region: RegionInfo,
    /// Address of the first byte: usually 0.
    pub address: u64,
    /// rkey.
    pub rkey: u32,
}

/// Queue pair of the target to destroy.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disconnect {
    /// Queue pair number.
    pub qp: Bits24,
}

/// Processor time of a target, and counters of this connection's queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Processor time in seconds, in user mode and in the kernel.
    pub cpu_s: f64,
    /// Packets received.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Expirations of the acknowledgement timeout.
    pub timeouts: u64,
    /// Packets rejected.
    pub refused: u64,
    /// Operations executed in its role ([`TargetRole`]).
    pub role_operations: u64,
    /// Payload bytes of these operations.
    pub role_bytes: u64,
}

/// The part of a target's links that is requested.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinksFrom {
    /// Index of the first link, from 0.
    pub first: u32,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Machine-readable cause.
    pub cause: Cause,
    /// Human-readable text.
    pub message: String,
}

impl Refusal {
    /// Creates a refusal. `message`, which may quote a message of the peer, is truncated to the maximum length.
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_REFUSAL_CHARS) {
            message.truncate(end);
            message.push_str("...");
        }
        Self { cause, message }
    }
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Wrong token.
    Token,
    /// Different protocol version.
    Version,
    /// Invalid message, or a message that is not allowed now.
    Message,
    /// A limit was exceeded.
    Limit,
    /// The request is not supported.
    Unsupported,
    /// The object does not exist.
    Unknown,
    /// The target failed.
    Failed,
}

fn limited_list<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::deserialize(input)?;
    if all.len() > MAX_REGIONS {
        return Err(serde::de::Error::custom(format!("expected at most {MAX_REGIONS} regions, found {}", all.len())));
    }
    Ok(all)
}

/// Deserializes an address that packets can be sent to.
fn with_port<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    match Option::<SocketAddr>::deserialize(input)? {
        Some(address) if address.port() == 0 => {
            Err(serde::de::Error::custom(format!("expected an address with a port, found {address}")))
        }
        address => Ok(address),
    }
}

fn is_zero(level: &u8) -> bool {
    *level == 0
}

fn service_level<'de, D: serde::Deserializer<'de>>(input: D) -> Result<u8, D::Error> {
    match u8::deserialize(input)? {
        level @ 0..=MAX_SERVICE_LEVEL => Ok(level),
        level => {
            let words = format!("expected a service level of at most {MAX_SERVICE_LEVEL}, found {level}");
            Err(serde::de::Error::custom(words))
        }
    }
}

fn rd_atomic<'de, D: serde::Deserializer<'de>>(input: D) -> Result<u8, D::Error> {
    let found = u8::deserialize(input)?;
    if found > MAX_RD_ATOMIC {
        let words = format!("expected at most {MAX_RD_ATOMIC} outstanding READs and atomic operations, found {found}");
        return Err(serde::de::Error::custom(words));
    }
    Ok(found)
}

/// Error of parsing a message.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Longer than allowed.
    #[error("expected a message of at most {max} bytes, found {found}")]
    TooLong {
        /// Maximum length in bytes.
        max: usize,
        /// Length field of the message.
        found: usize,
    },
    /// Not a valid message.
    #[error("invalid message: {0}")]
    Json(#[from] serde_json::Error),
}

/// Parses one message, without its length.
///
/// # Errors
/// [`Malformed::Json`] if it is not valid JSON or a field is missing, unknown or out of range.
pub fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    Ok(serde_json::from_slice(bytes)?)
}

/// Encodes a message with its length.
pub fn framed(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Serialization only fails for maps whose keys are not strings, which these types do not contain.
    let written = serde_json::to_writer(&mut bytes, message);
    debug_assert!(written.is_ok() && bytes.len() <= 4 + MAX_MESSAGE_BYTES, "{written:?}");
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Removes the next whole message from the input and returns it without its length; `None` if it is incomplete.
///
/// # Errors
/// [`Malformed::TooLong`] if its length field is above `max`.
pub fn unframed(input: &mut Vec<u8>, max: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(len) = input.first_chunk().map(|len| u32::from_be_bytes(*len) as usize) else { return Ok(None) };
    if len > max {
        return Err(Malformed::TooLong { max, found: len });
    }
    if input.len() < 4 + len {
        return Ok(None);
    }
    let rest = input.split_off(4 + len);
    let mut message = std::mem::replace(input, rest);
    message.drain(..4);
    Ok(Some(message))
}

/// Returns `true` if the input contains a whole message.
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
    fn offer_is_parsed_field_by_field() {
        let Ok(Request::Connect(offer)) = parse(OFFER.as_bytes()) else { panic!("{OFFER}") };
        assert_eq!((offer.kind, offer.qp.get(), offer.psn.get(), offer.mtu.0), (Kind::Rc, 77, 0xFF_FFFF, Mtu::B4096));
        assert_eq!((offer.receives, offer.sends, offer.service_level), (Receives::default(), 0, 0));
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
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":17", "at most 16 outstanding READs"),
            ("\"max_dest_rd_atomic\":1", "\"max_dest_rd_atomic\":255", "at most 16 outstanding READs"),
            ("127.0.0.1:4791", "127.0.0.1:0", "an address with a port, found 127.0.0.1:0"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":16,\"receives\":{\"count\":1025,\"bytes\":1}", "1024 receives"),
            ("\"max_rd_atomic\":16", "\"max_rd_atomic\":16,\"rights\":\"all\"", "unknown field"),
            ("\"qp\":77,", "", "missing field `qp`"),
            ("\"qp\":77", "\"qp\":77,\"service_level\":32", "a service level of at most 31, found 32"),
        ] {
            let text = OFFER.replace(from, to);
            assert_ne!(text, OFFER, "{from}");
            refused::<Request>(&text, word);
        }
        for name in ["", "a b", "\u{1b}[31m", &"n".repeat(65)] {
            refused::<Name>(&serde_json::to_string(name).unwrap(), "1 to 64 letters");
        }
        refused::<Rights>("\"rx\"", "r, w and a");
        refused::<Hello>(r#"{"version":2,"token":"secret"}"#, "32 hexadecimal digits");
    }

    #[test]
    fn rights_round_trip() {
        for text in ["", "r", "w", "rw", "rwa"] {
            let rights = Rights::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(rights), text);
        }
    }

    #[test]
    fn messages_are_extracted_from_any_segmentation() {
        let stream = [framed(&Request::Regions), framed(&Request::Goodbye)].concat();
        for step in 1..=stream.len() {
            let (mut input, mut found) = (Vec::new(), 0);
            for piece in stream.chunks(step) {
                input.extend_from_slice(piece);
                while let Some(message) = unframed(&mut input, MAX_MESSAGE_BYTES).unwrap() {
                    parse::<Request>(&message).unwrap();
                    found += 1;
                }
            }
            assert_eq!((found, input.len()), (2, 0), "in pieces of {step}");
        }
    }

    #[test]
    fn excessive_length_is_refused_before_the_payload() {
        let mut input = (MAX_MESSAGE_BYTES as u32 + 1).to_be_bytes().to_vec();
        assert!(matches!(unframed(&mut input, MAX_MESSAGE_BYTES), Err(Malformed::TooLong { found: 65537, .. })));
    }

    #[test]
    fn links_with_the_largest_numbers_fit_a_message() {
        let status = LinksStatus { links: vec![link_of_32_channels()], ..LinksStatus::default() };
        let value = largest("", serde_json::to_value(&status).unwrap());
        let mut status: LinksStatus = serde_json::from_value(value).unwrap();
        status.links = vec![status.links[0].clone(); MAX_LINKS];
        let bytes = framed(&Answer::Links(Box::new(status.clone())));
        assert!(bytes.len() <= MAX_MESSAGE_BYTES, "{}", bytes.len());
        let Ok(Answer::Links(found)) = parse(&bytes[4..]) else { panic!("it is read back") };
        let counters = |status: &LinksStatus| status.links.iter().map(|link| link.counters).collect::<Vec<_>>();
        assert_eq!((counters(&found), found.packets), (counters(&status), status.packets));
    }

    /// A link as a target has it at first, with the longest list of time-slots.
    fn link_of_32_channels() -> crate::spacefibre::LinkStatus {
        use shotline_spacefibre::frames::{FrameConfig, FrameLink};
        let mut channels = crate::spacefibre::LinkOptions::new(16, 32).unwrap().channels;
        channels.iter_mut().for_each(|channel| channel.qos.slots = 0x5555_5555_5555_5555);
        let config = FrameConfig { lanes: 16, scrambled: true, seed: 1 };
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        crate::spacefibre::LinkStatus::of(0, address, &FrameLink::new(config, &channels).unwrap())
    }

    /// Replaces each number by the longest of the type of this field.
    fn largest(key: &str, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Array(all) => all.into_iter().map(|item| largest("", item)).collect(),
            Value::Object(all) => all
                .into_iter()
                .map(|(key, value)| (key.clone(), largest(&key, value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Value::Null | Value::Number(_) => match key {
                "share" => 0.999_984_741_210_937_5.into(),
                "bandwidth_credit" => i32::MIN.into(),
                "lanes" | "far_end_lanes" | "priority" => u8::MAX.into(),
                "open" | "unacknowledged" | "credit" | "granted" | "input_words" => u32::MAX.into(),
                _ => u64::MAX.into(),
            },
            Value::Bool(_) | Value::String(_) => value,
        }
    }

    #[test]
    fn largest_region_list_fits_a_message() {
        let region = RegionInfo {
            name: "n".repeat(MAX_NAME_BYTES).try_into().unwrap(),
            bytes: u64::MAX,
            rights: Rights(Access::ALL),
        };
        let key = RegionKey { region, address: u64::MAX, rkey: u32::MAX };
        let accept = Accept {
            address: Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap()),
            qp: Bits24::new(0xFF_FFFF).unwrap(),
            psn: Bits24::new(0xFF_FFFF).unwrap(),
            mtu: PathMtu(Mtu::B4096),
            max_rd_atomic: MAX_RD_ATOMIC,
            q_key: u32::MAX,
            keys: vec![key; MAX_REGIONS],
        };
        let bytes = framed(&Answer::Accept(accept));
        assert!(bytes.len() <= MAX_MESSAGE_BYTES, "{}", bytes.len());
        let Ok(Answer::Accept(accept)) = parse(&bytes[4..]) else { panic!("it is read back") };
        assert_eq!(accept.keys.len(), MAX_REGIONS);
    }
}
