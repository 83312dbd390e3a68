//! Framings: how a packet's header says where in which shot its payload belongs.
//!
//! [`Kind`] is the registry of this crate's framings: one member for each module below, whose [`Description`] says how a
//! receiver comes to know its senders, what protects its packets, and which keys they carry.
//!
//! | id | name | header | shot on the wire | ICRC | for |
//! |---|---|---|---|---|---|
//! | 0 | [`ud`] | RoCEv2 UD, immediate, 24 bytes | 20 bits | yes | probes, NICs |
//! | 1 | [`counted`] | RoCEv2 UD, no immediate, 20 bytes | none: 24-bit PSN | yes | senders without an immediate |
//! | 2 | [`udp`] | own, 32 bytes | 64 bits | no | instruments without RoCE, tests |
//!
//! Senders that take no set-up from us have framings that are learned from their packets: [`digitizer`], whose packets
//! tell everything, [`vita49`], [`spead`] and [`hsb`].
//!
//! # A framing of your own
//!
//! An instrument whose packets cannot be changed needs one type that reads their header. Say that each
//! packet begins with a 32-bit frame number and a 32-bit byte offset, little-endian:
//!
//! ```
//! use arrayvec::ArrayVec;
//! use shotline_wire::ParseError;
//! use shotline_wire::framing::{Framing, Link, MAX_HEADER, NoExtras, Packet, Place, Position, conformance};
//! use shotline_wire::shot::Geometry;
//!
//! #[derive(Debug)]
//! struct Camera;
//!
//! impl NoExtras for Camera {} // its packets tell nothing but their places
//!
//! impl Framing for Camera {
//!     fn name(&self) -> &'static str { "camera" }
//!     fn sealed(&self) -> bool { false }
//!     fn header_len(&self, _first: &[u8]) -> usize { 8 }
//!     fn key(&self, _header: &[u8]) -> Result<u32, ParseError> { Ok(0) } // one camera, one stream
//!
//!     fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Place, ParseError> {
//!         let truncated = ParseError::Truncated { what: "camera header", needed: 8, found: header.len() };
//!         let Some(&[a, b, c, d, e, f, g_, h]) = header.first_chunk() else { return Err(truncated) };
//!         let frame = u32::from_le_bytes([a, b, c, d]);
//!         let offset = u32::from_le_bytes([e, f, g_, h]);
//!         let packet = Packet::at(g, 0, frame.into(), offset)?; // refuses what is no packet of such a shot
//!         packet.expect_len(payload_len)?;
//!         let position = Position::Shot { number: frame.into(), bits: 32, offset, last: packet.last };
//!         Ok(Place { position, len: payload_len })
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
//! What a framing must keep to: [`Framing::place`] gets bytes from the network, so it must not panic, and
//! must refuse whatever does not fit the geometry; the place that it returns is used as it is. [`conformance`] checks
//! that.
//!
//! A framing whose packets tell more (what samples mean, headers of several lengths) implements [`Extras`] in place of
//! [`NoExtras`]. So does a type that wraps another framing: neither trait has a default, so a method that a wrapper does
//! not forward does not compile.

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

pub use self::vita49::Vita49;
pub use counted::Counted;
pub use description::Description;
pub use digitizer::Digitizer;
pub use hsb::Hsb;
pub use kind::{Cell, Kind, NoSetUp, UnknownFraming};
pub use spead::Spead;
pub use ud::Ud;
pub use udp::Udp; // not the crate of that name, which tests use

/// Room for any framing's header: SPEAD's with 15 items.
pub const MAX_HEADER: usize = 128;

/// One way of saying, in front of each payload, where it belongs.
pub trait Framing: Extras + Send + Sync + Debug {
    /// Its name in configuration and messages.
    fn name(&self) -> &'static str;
    /// Whether its packets end in an ICRC.
    fn sealed(&self) -> bool;
    /// Bytes before the payload, at most [`MAX_HEADER`]. `first` is the packet's leading bytes, for
    /// framings whose header's length varies; it may be short or foreign.
    fn header_len(&self, first: &[u8]) -> usize;
    /// What names the packet's stream at its receiver: the destination queue pair, or a stream field.
    fn key(&self, header: &[u8]) -> Result<u32, ParseError>;
    /// Where a payload belongs. `payload_len` counts what stands between header and ICRC, padding to a
    /// multiple of 4 included. Whatever does not fit `g` is refused.
    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Place, ParseError>;
    /// Writes a packet's header to the end of `out`, which must have room for it.
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>);
}

/// What a framing tells beyond the places of payloads. Framings that tell nothing more are [`NoExtras`].
pub trait Extras {
    /// Bytes of header that packet `index` of a shot will have, where they are not the same for all packets.
    /// Only a forecast, for packets that cannot be seen yet.
    fn header_len_at(&self, index: u32, g: &Geometry) -> Option<usize>;
    /// What a packet that has no place says instead, for framings that carry more than shots.
    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal>;
    /// The sender's count of its packets, its low 4 bits, where positions say nothing of what it left out itself.
    fn count(&self, header: &[u8]) -> Option<u8>;
    /// Whether packets say nothing of their place, so that the receiver counts them: every place is a
    /// [`Position::Sequence`] of 0 bits.
    fn is_counted(&self) -> bool;
    /// What samples mean before any packet says so.
    fn meaning(&self) -> Meaning;
    /// When a shot's first sample was taken, in nanoseconds of TAI, where packets tell it and no trailer does; 0
    /// unknown.
    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64;
}

/// Marks a framing that reads its packets itself, and whose packets tell nothing but their places, with headers of one
/// length. Not for wrappers of other framings, which forward all of [`Extras`].
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
    fn meaning(&self) -> Meaning {
        Meaning::default()
    }
    fn stamp_tai_ns(&self, _shot: u64, _g: &Geometry) -> u64 {
        0
    }
}

/// What a packet says that is no part of a shot of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// It takes a number from the shots.
    Number {
        /// The number.
        number: u64,
        /// The sender ends its stream with it.
        stop: bool,
    },
    /// It says what samples mean from a shot on.
    Meaning {
        /// The first shot that it is true of.
        from: u64,
        /// What they mean.
        meaning: Meaning,
        /// The sender lost samples just before.
        lost: bool,
    },
    /// From here on come samples that are not this stream's: another rate, or another format.
    Other,
}

/// What packets of context say of the samples of a stream. What is not there was not said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meaning {
    /// What 0 Hz of the samples is, in Hz.
    pub centre_hz: Option<f64>,
    /// The sender's clock is locked.
    pub locked: Option<bool>,
}

impl Meaning {
    /// The same where nothing newer was said.
    #[must_use]
    pub fn or(self, older: Self) -> Self {
        Self { centre_hz: self.centre_hz.or(older.centre_hz), locked: self.locked.or(older.locked) }
    }
}

/// What all packets of a stream over one link have in common. A framing uses what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// The receiver's queue pair, 24 bits.
    pub dest_qp: u32,
    /// The sender's queue pair, 24 bits.
    pub src_qp: u32,
    /// The receiver's queue key.
    pub q_key: u32,
    /// Stream.
    pub stream: u32,
}

/// A packet of a shot, as its sender knows it. [`Packet::nth`] fills it from a geometry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Packet sequence number, one more for every packet of the link; 24 bits go on the wire.
    pub psn: u32,
    /// Shot number.
    pub shot: u64,
    /// Index of the packet in its shot.
    pub index: u32,
    /// Byte offset of its payload in the shot.
    pub offset: u32,
    /// Bytes of its payload.
    pub len: u32,
    /// Bytes of the whole shot, as far as they travel.
    pub shot_bytes: u32,
    /// It is the shot's last.
    pub last: bool,
}

impl Packet {
    /// Packet `index` of a shot; an error if such shots have no such packet.
    pub fn nth(g: &Geometry, psn: u32, shot: u64, index: u32) -> Result<Self, ParseError> {
        let most = g.packets() - 1; // every shot has a record, so at least one packet
        if index > most {
            let (most, found) = (most.into(), index.into());
            return Err(ParseError::Range { what: "packet index", least: 0, most, found });
        }
        Ok(Self {
            psn,
            shot,
            index,
            offset: g.packet_offset(index),
            len: g.packet_bytes(index),
            shot_bytes: g.sent_bytes(),
            last: index == most,
        })
    }

    /// The packet at byte `offset` of a shot; an error if none begins there.
    pub fn at(g: &Geometry, psn: u32, shot: u64, offset: u32) -> Result<Self, ParseError> {
        match g.packet_at(offset) {
            Some(index) => Self::nth(g, psn, shot, index),
            None => Err(ParseError::Unknown { what: "packet at offset", found: offset.into() }),
        }
    }

    /// Refuses a payload of another length.
    pub fn expect_len(&self, payload_len: u32) -> Result<(), ParseError> {
        if payload_len != self.len {
            let (expected, found) = (self.len.into(), payload_len.into());
            return Err(ParseError::Length { what: "the packet's payload", expected, found });
        }
        Ok(())
    }

    /// Refuses a packet that is marked as its shot's last and is not, or the other way round.
    pub fn expect_last(&self, marked: bool) -> Result<(), ParseError> {
        if marked != self.last {
            let (expected, found) = (self.last.into(), marked.into());
            return Err(ParseError::Value { what: "mark of the shot's last packet", expected, found });
        }
        Ok(())
    }
}

/// Where a payload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// In which shot and where, as far as the packet tells.
    pub position: Position,
    /// Bytes of payload without padding.
    pub len: u32,
}

/// What a packet tells of its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Shot and offset.
    Shot {
        /// The shot number's low `bits` bits.
        number: u64,
        /// Bits of the shot number that the wire carries, 1 to 64.
        bits: u32,
        /// Byte offset in the shot, where a packet of it begins.
        offset: u32,
        /// It is the shot's last packet.
        last: bool,
    },
    /// No shot: only a number that grows by one with each packet of the link. Whoever knows the first one
    /// counts packets from there.
    Sequence {
        /// The packet sequence number's low `bits` bits.
        number: u32,
        /// Bits of the number that the wire carries, 0 to 32. With 0 the receiver counts packets instead
        /// ([`Extras::is_counted`]).
        bits: u32,
    },
    /// The page of a ring that the shot is written to, and the sequence number of its first packet: pages are
    /// exact but few, sequence numbers go far but slip when a shot is cut short. Together they name the shot.
    Paged {
        /// The page.
        page: u32,
        /// Pages in the ring, at least 1.
        pages: u32,
        /// Sequence number of the shot's first packet, its low `bits` bits.
        first: u32,
        /// Bits of the sequence number that the wire carries, 1 to 32.
        bits: u32,
        /// Byte offset in the shot, where a packet of it begins.
        offset: u32,
    },
}
