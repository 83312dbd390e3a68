//! Set-up and control between a receiver and a probe, over UDP ([`PORT`]).
//!
//! Simple enough for an FPGA: every message is [`LEN`] bytes, every field has its place by the message's
//! kind, numbers are big-endian, and what is not named is zero. The receiver asks, the probe answers each
//! request with one reply; the probe never speaks first. A lost datagram is met by sending the same request
//! again, so a probe that sees the token and the sequence number of the last request that it carried out again
//! repeats its reply and does nothing else.
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `SHCM` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | kind; replies have bit 7 set | u8 |
//! | 6 | status: 0, or in a reply why the request was refused ([`Refusal`]) | u8 |
//! | 7 | flags: bit 0 take over (requests only) | u8 |
//! | 8 | sequence number, chosen by the receiver and echoed | u32 |
//! | 12 | token: a random number that is the controlling receiver's name, echoed | u32 |
//! | 16 | body by kind | 112 bytes |
//!
//! A Configure makes its token the probe's owner. While the probe runs, requests that change something
//! (Configure, Start, Stop, Sequence) are refused from any other with [`Refusal::Owned`] unless they take over,
//! which a restarted receiver does; at rest anyone may configure it. Query and Status are for everyone. A
//! [`Trigger`] is another datagram to the same port.
//!
//! The bodies are described at [`Describe`], [`Configure`], [`Source`], [`Start`], [`Report`] and [`Sequence`].

use crate::{ParseError, bytes};
use refusal::KIND;

mod body;
mod refusal;
mod sequence;
mod trigger;

#[cfg(test)]
mod tests;

pub use body::{Configure, Describe, LEN, Mode, Model, Report, Source, Start};
pub use refusal::Refusal;
pub use sequence::Sequence;
pub use trigger::{Acknowledgement, Trigger, Verdict};

/// The probe's UDP port, unless it is configured otherwise.
pub const PORT: u16 = 47910;
/// A message's first four bytes.
pub const MAGIC: [u8; 4] = *b"SHCM";
/// The version that this crate writes and reads.
pub const VERSION: u8 = 1;

const TAKE_OVER: u8 = 1 << 0;
const REPLY: u8 = 1 << 7;

/// Numbers of the kinds of request; a reply to one has bit 7 set.
mod kind {
    pub const QUERY: u8 = 1;
    pub const CONFIGURE: u8 = 2;
    pub const START: u8 = 3;
    pub const STOP: u8 = 4;
    pub const STATUS: u8 = 5;
    pub const SEQUENCE: u8 = 6;
}

/// A set-up message, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Chosen by the receiver, one more for each new request; echoed by the reply.
    pub sequence: u32,
    /// The receiver's random name; echoed by the reply.
    pub token: u32,
    /// What is asked or answered.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// From the receiver.
    Request {
        /// Become the owner even if another receiver is.
        take_over: bool,
        /// What is asked.
        request: Request,
    },
    /// From the probe.
    Reply(Reply),
}

/// What a receiver asks of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// What are you? (kind 1)
    Query,
    /// Send this link's shots so and there. (kind 2)
    Configure(Configure),
    /// Begin to send on all configured links. (kind 3)
    Start(Start),
    /// Finish the shot under way and send no more; answered as Status is. (kind 4)
    Stop {
        /// The link that the reply tells about.
        link: u8,
    },
    /// How are things? (kind 5)
    Status {
        /// The link that the reply tells about.
        link: u8,
    },
    /// Play these transmit events in turn from the next Start on. (kind 6)
    Sequence(Sequence),
}

/// What a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a Query.
    Describe(Describe),
    /// To a Configure: the settings as they are now, and where the packets will come from.
    Configured(Configure, Source),
    /// To a Start.
    Started {
        /// Number of the first shot that will be sent.
        first_shot: u64,
    },
    /// To a Stop: the numbers after the last packet.
    Stopped(Report),
    /// To a Status.
    Status(Report),
    /// To a Sequence: the one that holds now.
    Sequenced(Sequence),
    /// To any request that was not carried out. Nothing has changed.
    Refused {
        /// The request's kind as it was sent.
        kind: u8,
        /// Why.
        refusal: Refusal,
    },
}

impl Message {
    /// A request.
    pub fn request(sequence: u32, token: u32, take_over: bool, request: Request) -> Self {
        Self { sequence, token, body: Body::Request { take_over, request } }
    }

    /// A reply to this message.
    pub fn reply(&self, reply: Reply) -> Self {
        Self { sequence: self.sequence, token: self.token, body: Body::Reply(reply) }
    }

    /// A reply to this message, if it is a request, that says why it was not carried out.
    pub fn refuse(&self, refusal: Refusal) -> Option<Self> {
        match self.body {
            Body::Request { request, .. } => Some(self.reply(Reply::Refused { kind: request.kind(), refusal })),
            Body::Reply(_) => None,
        }
    }

    /// Reads a message. A probe answers one that it cannot read with [`refuse_unread`].
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

    /// The message's bytes.
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

/// The refusal of a datagram that [`Message::parse`] could not read, if it is a request at all: its sender
/// then learns why, and in the version that is spoken here.
pub fn refuse_unread(datagram: &[u8]) -> Option<[u8; LEN]> {
    let refusal = Refusal::of(&Message::parse(datagram).err()?);
    let (head, _) = Head::parse(datagram).ok()?;
    if head.kind & REPLY != 0 {
        return None;
    }
    let refusal = if head.version == VERSION { refusal } else { Refusal::Version };
    let body = Body::Reply(Reply::Refused { kind: head.kind, refusal });
    Some(Message { sequence: head.sequence, token: head.token, body }.emit())
}

/// The first 16 bytes of a message, of any version.
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
        let mut fields = bytes::Fields::of("set-up message", datagram);
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
    /// The kind's number.
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
    /// The number of the kind of request that this answers.
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
