//! Set-up and control between a receiver and a probe, over UDP ([`PORT`]).
//!
//! The protocol is simple enough for an FPGA: every message is [`LEN`] bytes, the kind of a message fixes the offset
//! of every field, numbers are big-endian, and reserved bytes are zero. The receiver sends requests, and the probe
//! answers each with one reply; the probe never sends a message first. The receiver recovers from a lost datagram by
//! retransmitting the request, so a probe that receives the token and the sequence number of the last executed request
//! again only repeats its reply.
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `SHCM` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | kind; replies have bit 7 set | u8 |
//! | 6 | status: 0, or in a reply the reason of a refusal ([`Refusal`]) | u8 |
//! | 7 | flags: bit 0 take over (requests only) | u8 |
//! | 8 | sequence number, chosen by the receiver and echoed | u32 |
//! | 12 | token: a random number that identifies the controlling receiver, echoed | u32 |
//! | 16 | body by kind | 112 bytes |
//!
//! A Configure makes its token the probe's owner. While the probe runs, it refuses requests that change its state
//! (Configure, Start, Stop, Sequence) from other tokens with [`Refusal::Owned`] unless their take-over flag is set,
//! which a restarted receiver uses. While it is stopped, any receiver may configure it. Query and Status are always
//! allowed. A [`Trigger`] is another datagram to the same port.
//!
//! The bodies are described at [`Describe`], [`ArrayDescription`], [`Configure`], [`Source`], [`Start`], [`Report`] and [`Sequence`].

use crate::{ParseError, bytes};
use refusal::KIND;

mod array;
mod body;
mod refusal;
mod sequence;
mod trigger;

#[cfg(test)]
mod tests;

pub use array::ArrayDescription;
pub use body::{Configure, Describe, LEN, Mode, Model, Report, Source, Start};
pub use refusal::Refusal;
pub use sequence::Sequence;
pub use trigger::{Acknowledgement, Trigger, Verdict};

/// Default UDP port of a probe.
pub const PORT: u16 = 47910;
/// First four bytes of a message.
pub const MAGIC: [u8; 4] = *b"SHCM";
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;

const TAKE_OVER: u8 = 1 << 0;
const REPLY: u8 = 1 << 7;

/// Numbers of the request kinds; in a reply bit 7 is also set.
mod kind {
    pub const QUERY: u8 = 1;
    pub const CONFIGURE: u8 = 2;
    pub const START: u8 = 3;
    pub const STOP: u8 = 4;
    pub const STATUS: u8 = 5;
    pub const SEQUENCE: u8 = 6;
}

/// A set-up message: a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sequence number, incremented by the receiver with each new request and echoed by the reply.
    pub sequence: u32,
    /// Random number that identifies the receiver, echoed by the reply.
    pub token: u32,
    /// Request or reply.
    pub body: Body,
}

/// Body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message of the receiver.
    Request {
        /// `true` to become the owner even if another receiver is.
        take_over: bool,
        /// The request.
        request: Request,
    },
    /// A message of the probe.
    Reply(Reply),
}

/// A request of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Returns the probe's model and capabilities (kind 1).
    Query,
    /// Sets a link's geometry, framing and destination (kind 2).
    Configure(Configure),
    /// Starts sending on all configured links (kind 3).
    Start(Start),
    /// Stops after the current shot; answered like a Status (kind 4).
    Stop {
        /// Link that the reply reports on.
        link: u8,
    },
    /// Returns the state and counters of a link (kind 5).
    Status {
        /// Link that the reply reports on.
        link: u8,
    },
    /// Sets the transmit events to cycle through from the next Start on (kind 6).
    Sequence(Sequence),
}

/// A reply of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Reply to a Query.
    Describe(Describe),
    /// Reply to a Configure: the settings in effect, and the source of the packets.
    Configured(Configure, Source),
    /// Reply to a Start.
    Started {
        /// Number of the first shot that will be sent.
        first_shot: u64,
    },
    /// Reply to a Stop: the counters after the last packet.
    Stopped(Report),
    /// Reply to a Status.
    Status(Report),
    /// Reply to a Sequence: the sequence in effect.
    Sequenced(Sequence),
    /// Reply to any request that was not executed. The state of the probe has not changed.
    Refused {
        /// Kind of the request as it was sent.
        kind: u8,
        /// Reason of the refusal.
        refusal: Refusal,
    },
}

impl Message {
    /// Returns a request.
    pub fn request(sequence: u32, token: u32, take_over: bool, request: Request) -> Self {
        Self { sequence, token, body: Body::Request { take_over, request } }
    }

    /// Returns a reply to this message.
    pub fn reply(&self, reply: Reply) -> Self {
        Self { sequence: self.sequence, token: self.token, body: Body::Reply(reply) }
    }

    /// Returns a refusal of this message, or `None` if it is not a request.
    pub fn refuse(&self, refusal: Refusal) -> Option<Self> {
        match self.body {
            Body::Request { request, .. } => Some(self.reply(Reply::Refused { kind: request.kind(), refusal })),
            Body::Reply(_) => None,
        }
    }

    /// Parses a message. A probe answers a malformed one with [`refuse_malformed`].
    ///
    /// # Errors
    /// If the datagram is not [`LEN`] bytes, its version or kind is unknown, or a field of its body is not valid.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let (head, mut body) = Head::parse(datagram)?;
        if head.version != VERSION {
            let (expected, found) = (VERSION.into(), head.version.into());
            return Err(ParseError::Value { what: "set-up message's version", expected, found });
        }
        let body = if head.kind & REPLY == 0 {
            if head.status != 0 {
                let found = head.status.into();
                return Err(ParseError::Value { what: "a request's status", expected: 0, found });
            }
            Body::Request { take_over: head.flags & TAKE_OVER != 0, request: Request::parse(head.kind, &mut body)? }
        } else {
            Body::Reply(Reply::parse(head.kind & !REPLY, head.status, &mut body)?)
        };
        Ok(Self { sequence: head.sequence, token: head.token, body })
    }

    /// Encodes the message.
    pub fn emit(&self) -> [u8; LEN] {
        let (kind, status, flags) = match &self.body {
            Body::Request { take_over, request } => (request.kind(), 0, u8::from(*take_over) * TAKE_OVER),
            Body::Reply(Reply::Refused { kind, refusal }) => (kind | REPLY, refusal.code(), 0),
            Body::Reply(reply) => (reply.kind() | REPLY, 0, 0),
        };
        let head = Head { version: VERSION, kind, status, flags, sequence: self.sequence, token: self.token };
        let out = head.emit();
        match &self.body {
            Body::Request { request, .. } => request.emit(out),
            Body::Reply(reply) => reply.emit(out),
        }
        .padded()
    }
}

/// Returns the encoded refusal of a request that [`Message::parse`] rejects, or `None` if the datagram is valid or is
/// not a request. The refusal has the reason and this crate's protocol version.
pub fn refuse_malformed(datagram: &[u8]) -> Option<[u8; LEN]> {
    let refusal = Refusal::from_error(&Message::parse(datagram).err()?);
    let (head, _) = Head::parse(datagram).ok()?;
    if head.kind & REPLY != 0 {
        return None;
    }
    let refusal = if head.version == VERSION { refusal } else { Refusal::Version };
    let body = Body::Reply(Reply::Refused { kind: head.kind, refusal });
    Some(Message { sequence: head.sequence, token: head.token, body }.emit())
}

/// Header of a message: the first 16 bytes, common to all versions.
struct Head {
    version: u8,
    kind: u8,
    status: u8,
    flags: u8,
    sequence: u32,
    token: u32,
}

impl Head {
    fn parse(datagram: &[u8]) -> Result<(Self, bytes::Fields<'_>), ParseError> {
        if datagram.len() != LEN {
            let (expected, found) = (LEN as u64, datagram.len() as u64);
            return Err(ParseError::Length { what: "a set-up message", expected, found });
        }
        let mut fields = bytes::Fields::new("set-up message", datagram);
        let magic = fields.array()?;
        if magic != MAGIC {
            let (expected, found) = (u32::from_be_bytes(MAGIC).into(), u32::from_be_bytes(magic).into());
            return Err(ParseError::Value { what: "set-up message's magic", expected, found });
        }
        let head = Self {
            version: fields.u8()?,
            kind: fields.u8()?,
            status: fields.u8()?,
            flags: fields.u8()?,
            sequence: fields.u32()?,
            token: fields.u32()?,
        };
        Ok((head, fields))
    }

    fn emit(&self) -> bytes::Header<LEN> {
        bytes::Header::new()
            .put(&MAGIC)
            .u8(self.version)
            .u8(self.kind)
            .u8(self.status)
            .u8(self.flags)
            .u32(self.sequence)
            .u32(self.token)
    }
}

impl Request {
    /// Returns the number of the request's kind.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Query => kind::QUERY,
            Self::Configure(_) => kind::CONFIGURE,
            Self::Start(_) => kind::START,
            Self::Stop { .. } => kind::STOP,
            Self::Status { .. } => kind::STATUS,
            Self::Sequence(_) => kind::SEQUENCE,
        }
    }

    fn parse(kind: u8, body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        match kind {
            kind::QUERY => Ok(Self::Query),
            kind::CONFIGURE => Configure::parse(body).map(Self::Configure),
            kind::START => Start::parse(body).map(Self::Start),
            kind::STOP => Ok(Self::Stop { link: body.u8()? }),
            kind::STATUS => Ok(Self::Status { link: body.u8()? }),
            kind::SEQUENCE => Sequence::parse(body).map(Self::Sequence),
            _ => Err(ParseError::Unknown { what: KIND, found: kind.into() }),
        }
    }

    fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        match self {
            Self::Query => out,
            Self::Configure(configure) => configure.emit(out),
            Self::Start(start) => start.emit(out),
            Self::Stop { link } | Self::Status { link } => out.u8(*link),
            Self::Sequence(sequence) => sequence.emit(out),
        }
    }
}

impl Reply {
    /// Returns the number of the kind of request that this answers.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Describe(_) => kind::QUERY,
            Self::Configured(..) => kind::CONFIGURE,
            Self::Started { .. } => kind::START,
            Self::Stopped(_) => kind::STOP,
            Self::Status(_) => kind::STATUS,
            Self::Sequenced(_) => kind::SEQUENCE,
            Self::Refused { kind, .. } => *kind,
        }
    }

    fn parse(kind: u8, status: u8, body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        if let Some(refusal) = Refusal::from_code(status) {
            return Ok(Self::Refused { kind, refusal });
        }
        match kind {
            kind::QUERY => Describe::parse(body).map(Self::Describe),
            kind::CONFIGURE => Ok(Self::Configured(Configure::parse(body)?, Source::parse(body)?)),
            kind::START => Ok(Self::Started { first_shot: body.u64()? }),
            kind::STOP => Report::parse(body).map(Self::Stopped),
            kind::STATUS => Report::parse(body).map(Self::Status),
            kind::SEQUENCE => Sequence::parse(body).map(Self::Sequenced),
            _ => Err(ParseError::Unknown { what: KIND, found: kind.into() }),
        }
    }

    fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        match self {
            Self::Describe(describe) => describe.emit(out),
            Self::Configured(configure, source) => source.emit(configure.emit(out)),
            Self::Started { first_shot } => out.u64(*first_shot),
            Self::Stopped(report) | Self::Status(report) => report.emit(out),
            Self::Sequenced(sequence) => sequence.emit(out),
            Self::Refused { .. } => out,
        }
    }
}
