//! Framings: packet headers that identify the shot and the offset of a payload.
//!
//! [`Kind`] is the registry of this crate's framings, one per module below. The [`Description`] of each says how a
//! receiver discovers its senders, what protects its packets, and which keys they carry.
//!
//! | id | name | header | shot on the wire | ICRC | for |
//! |---|---|---|---|---|---|
//! | 0 | [`ud`] | RoCEv2 UD, immediate, 24 bytes | 20 bits | yes | probes, NICs |
//! | 1 | [`counted`] | RoCEv2 UD, no immediate, 20 bytes | none: 24-bit PSN | yes | senders without an immediate |
//! | 2 | [`udp`] | own, 32 bytes | 64 bits | no | instruments without RoCE, tests |
//!
//! For senders that do not support set-up messages, the receiver learns the stream's parameters from their packets:
//! [`digitizer`], whose packets describe their samples completely, [`vita49`], [`spead`] and [`hsb`].
//!
//! # Implementing a framing
//!
//! An instrument whose packets cannot be changed needs one type that parses their header. For example, each
//! packet begins with a 32-bit frame number and a 32-bit byte offset, little-endian:
//!
//! ```
//! use arrayvec::ArrayVec;
//! use shotline_wire::ParseError;
//! use shotline_wire::framing::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position, conformance};
//! use shotline_wire::shot::Geometry;
//!
//! #[derive(Debug)]
//! struct Camera;
//!
//! impl NoExtras for Camera {} // its packets carry only their position
//!
//! impl Framing for Camera {
//!     fn name(&self) -> &'static str { "camera" }
//!     fn has_icrc(&self) -> bool { false }
//!     fn header_len(&self, _first: &[u8]) -> usize { 8 }
//!     fn key(&self, _header: &[u8]) -> Result<u32, ParseError> { Ok(0) } // one camera, one stream
//!
//!     fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
//!         let truncated = ParseError::Truncated { what: "camera header", needed: 8, found: header.len() };
//!         let Some(&[a, b, c, d, e, f, g_, h]) = header.first_chunk() else { return Err(truncated) };
//!         let frame = u32::from_le_bytes([a, b, c, d]);
//!         let offset = u32::from_le_bytes([e, f, g_, h]);
//!         let packet = Packet::at(g, 0, frame.into(), offset)?; // fails if no packet begins at this offset
//!         packet.expect_len(payload_len)?;
//!         let position = Position::Shot { number: frame.into(), bits: 32, offset, last: packet.last };
//!         Ok(Placement { position, len: payload_len })
//!     }
//!
//!     fn emit(&self, _link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
//!         out.extend((p.shot as u32).to_le_bytes());
//!         out.extend(p.offset.to_le_bytes());
//!     }
//! }
//! # use shotline_wire::shot::Packing;
//!
//! let geometry = Geometry::new(4, 4096, 16, Packing::Int16Le, 0).unwrap();
//! let case = conformance::Case { geometry, shot: 9, first_psn: 0, link: Link::default(), seed: 1 };
//! conformance::run(&Camera, &case).unwrap();
//! ```
//!
//! [`Framing::place`] gets untrusted bytes from the network, so it must not panic, and must refuse a packet that does
//! not fit the geometry: callers use the returned placement without further checks. [`conformance`] tests this.
//!
//! A framing whose packets carry more (descriptions of the samples, headers of several lengths) implements [`Extras`]
//! instead of [`NoExtras`]. So does a type that wraps another framing: neither trait has default methods, so a wrapper
//! that does not forward a method does not compile.

use crate::ParseError;
use crate::shot::Geometry;
use arrayvec::ArrayVec;
use core::fmt::Debug;

mod kind;

pub mod conformance;
pub mod counted;
pub mod description;
pub mod digitizer;
pub mod hsb;
pub mod spead;
pub mod ud;
pub mod udp;
pub mod vita49;

// `self`: not the crate of that name, which tests use.
pub use self::vita49::Vita49;
pub use counted::Counted;
pub use description::Description;
pub use digitizer::Digitizer;
pub use hsb::Hsb;
pub use kind::{Cell, Kind, NoSetUp, UnknownFraming};
pub use spead::Spead;
pub use ud::Ud;
pub use udp::Udp;

/// Maximum length of a framing's header, in bytes: that of SPEAD with 15 items.
pub const MAX_HEADER: usize = 128;

/// A packet header format that identifies the shot and the offset of each payload.
pub trait Framing: Extras + Send + Sync + Debug {
    /// Returns the name in configuration and messages.
    fn name(&self) -> &'static str;
    /// Returns `true` if packets end in an ICRC.
    fn has_icrc(&self) -> bool;
    /// Returns the length of the header in bytes, at most [`MAX_HEADER`]. `first` is the leading bytes of the packet,
    /// for headers of variable length; it may be short or of another format.
    fn header_len(&self, first: &[u8]) -> usize;
    /// Returns the key of the packet's stream at its receiver: the destination queue pair, or a stream field.
    fn key(&self, header: &[u8]) -> Result<u32, ParseError>;
    /// Returns the placement of a payload. `payload_len` counts the bytes between header and ICRC, padding to a
    /// multiple of 4 included.
    ///
    /// # Errors
    /// If the header is malformed or the packet does not fit `g`.
    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError>;
    /// Appends a packet's header to `out`, which must have capacity for it.
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>);
}

/// Information that a framing carries in addition to the placement of payloads. Framings without any are [`NoExtras`].
pub trait Extras {
    /// Returns the expected header length, in bytes, of packet `index` of a shot, if not all packets have the same.
    /// This is a prediction for packets that have not arrived yet.
    fn header_len_at(&self, index: u32, g: &Geometry) -> Option<usize>;
    /// Returns the signal in a packet that is not part of a shot, for framings that carry other packets too.
    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal>;
    /// Returns the low 4 bits of the sender's packet count, if positions alone do not reveal packets that it left out.
    fn count(&self, header: &[u8]) -> Option<u8>;
    /// Returns `true` if packets carry no position, so that the receiver counts them: every placement is a
    /// [`Position::Sequence`] of 0 bits.
    fn is_counted(&self) -> bool;
    /// Returns the description of the samples before the first context packet.
    fn sample_context(&self) -> SampleContext;
    /// Returns the time of a shot's first sample in TAI nanoseconds, if packets and not a trailer carry it; 0 if
    /// unknown.
    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64;
}

/// Marker of a framing whose packets carry only their position, in headers of one length. Not for wrappers of other
/// framings, which must forward all of [`Extras`].
pub trait NoExtras {}

impl<F: NoExtras> Extras for F {
    fn header_len_at(&self, _index: u32, _g: &Geometry) -> Option<usize> {
        None
    }
    fn signal(&self, _header: &[u8], _g: &Geometry) -> Option<Signal> {
        None
    }
    fn count(&self, _header: &[u8]) -> Option<u8> {
        None
    }
    fn is_counted(&self) -> bool {
        false
    }
    fn sample_context(&self) -> SampleContext {
        SampleContext::default()
    }
    fn stamp_tai_ns(&self, _shot: u64, _g: &Geometry) -> u64 {
        0
    }
}

/// Content of a packet that is not part of a shot of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// Stream control or a description of the data: not a shot, but it uses up a shot number.
    Control {
        /// The shot number.
        number: u64,
        /// `true` if the sender ends its stream with this packet.
        stop: bool,
    },
    /// A context packet: it describes the samples from a shot on.
    Context {
        /// First shot that it applies to.
        first_shot: u64,
        /// Description of the samples.
        context: SampleContext,
        /// `true` if the sender lost samples just before.
        lost: bool,
    },
    /// The samples that follow have another rate or format, so they are not part of this stream.
    FormatChange,
}

/// Description of a stream's samples, from context packets. A field is `None` if no packet has had it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleContext {
    /// Frequency, in Hz, that 0 Hz of the samples represents.
    pub centre_hz: Option<f64>,
    /// `true` if the sender's clock is locked.
    pub locked: Option<bool>,
}

impl SampleContext {
    /// Returns `self` with its `None` fields taken from `older`.
    #[must_use]
    pub fn or(self, older: Self) -> Self {
        Self { centre_hz: self.centre_hz.or(older.centre_hz), locked: self.locked.or(older.locked) }
    }
}

/// Keys that all packets of a stream over one link share. A framing uses those that its header has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// The receiver's queue pair, 24 bits.
    pub dest_qp: u32,
    /// The sender's queue pair, 24 bits.
    pub src_qp: u32,
    /// The receiver's queue key.
    pub q_key: u32,
    /// Stream number.
    pub stream: u32,
}

/// A packet of a shot, as its sender describes it. [`Packet::nth`] creates it from a geometry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Packet sequence number, incremented with each packet of the link; 24 bits are sent.
    pub psn: u32,
    /// Shot number.
    pub shot: u64,
    /// Index of the packet in its shot.
    pub index: u32,
    /// Byte offset of its payload in the shot.
    pub offset: u32,
    /// Length of its payload in bytes.
    pub len: u32,
    /// Length of the whole shot in bytes, without a trailer that is not sent.
    pub shot_bytes: u32,
    /// `true` for the last packet of the shot.
    pub last: bool,
}

impl Packet {
    /// Returns packet `index` of a shot.
    ///
    /// # Errors
    /// If the shot has no such packet.
    pub fn nth(g: &Geometry, psn: u32, shot: u64, index: u32) -> Result<Self, ParseError> {
        let last = g.packets() - 1; // every shot has at least one packet
        if index > last {
            let (max, found) = (last.into(), index.into());
            return Err(ParseError::Range { what: "packet index", min: 0, max, found });
        }
        Ok(Self {
            psn,
            shot,
            index,
            offset: g.packet_offset(index),
            len: g.packet_bytes(index),
            shot_bytes: g.sent_bytes(),
            last: index == last,
        })
    }

    /// Returns the packet that begins at byte `offset` of a shot.
    ///
    /// # Errors
    /// If no packet begins there.
    pub fn at(g: &Geometry, psn: u32, shot: u64, offset: u32) -> Result<Self, ParseError> {
        match g.packet_at(offset) {
            Some(index) => Self::nth(g, psn, shot, index),
            None => Err(ParseError::Offset { offset }),
        }
    }

    /// Checks the length of the payload.
    ///
    /// # Errors
    /// If the packet has a payload of another length.
    pub fn expect_len(&self, payload_len: u32) -> Result<(), ParseError> {
        if payload_len != self.len {
            let (expected, found) = (self.len.into(), payload_len.into());
            return Err(ParseError::Length { what: "the packet's payload", expected, found });
        }
        Ok(())
    }

    /// Checks the mark of the shot's last packet.
    ///
    /// # Errors
    /// If a packet is marked that is not the last, or the last one is not marked.
    pub fn expect_last(&self, marked: bool) -> Result<(), ParseError> {
        if marked != self.last {
            let (expected, found) = (self.last.into(), marked.into());
            return Err(ParseError::Value { what: "end-of-shot mark", expected, found });
        }
        Ok(())
    }
}

/// Placement of a payload in its shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Shot and offset, as far as the packet carries them.
    pub position: Position,
    /// Length of the payload in bytes, without padding.
    pub len: u32,
}

/// Position of a payload, as far as the packet carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Shot number and offset.
    Shot {
        /// Low `bits` bits of the shot number.
        number: u64,
        /// Number of bits of the shot number that the packet carries, 1 to 64.
        bits: u32,
        /// Byte offset in the shot, at which one of its packets begins.
        offset: u32,
        /// `true` for the last packet of the shot.
        last: bool,
    },
    /// Only a number that grows by one with each packet of the link. A receiver that has the initial number counts
    /// packets from there.
    Sequence {
        /// Low `bits` bits of the packet sequence number.
        number: u32,
        /// Number of bits that the packet carries, 0 to 32. With 0 the receiver counts packets instead
        /// ([`Extras::is_counted`]).
        bits: u32,
    },
    /// The page of a ring that the shot is written to, and the sequence number of its first packet. Pages are exact but
    /// wrap around soon; sequence numbers wrap around late but shift when a shot is cut short. Together they identify
    /// the shot.
    Paged {
        /// Index of the page.
        page: u32,
        /// Number of pages in the ring, at least 1.
        pages: u32,
        /// Low `bits` bits of the sequence number of the shot's first packet.
        first: u32,
        /// Number of bits of the sequence number that the packet carries, 1 to 32.
        bits: u32,
        /// Byte offset in the shot, at which one of its packets begins.
        offset: u32,
    },
}
