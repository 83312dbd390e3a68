//! Parsing and encoding of the wire formats that Shotline uses.
//!
//! No sockets, no clocks, no threads, no allocation. `parse` validates its input and returns an error for a
//! malformed packet, so a struct that exists is well formed; no function here panics on untrusted bytes. The
//! formats are specified for other implementers in `docs/wire-formats.md`.
//!
//! | layer | modules |
//! |---|---|
//! | acquisition | [`shot`] (geometry and drop causes), [`record`], [`block`], [`framing`], [`setup`] |
//! | third-party formats | [`spead`] (heaps), [`hsb`] (sensor bridge frames), [`vita49`] (radio packets) |
//! | SpaceFibre | [`spacefibre`] (words, CRCs and the scrambler of a lane; RDMA packets) |
//! | RoCEv2 | [`roce`] (a whole packet), [`bth`], [`deth`], [`reth`], [`aeth`], [`atomic`], [`imm`], [`icrc`] |
//! | lower layers | [`ethernet`], [`ipv4`], [`ipv6`], [`udp`] |
//! | tools | [`crc`], [`ParseError`] |
//!
//! Every header is a plain struct. `parse` takes a slice that begins with the header and returns the struct and
//! the remaining bytes; `emit` returns the encoded header. Fields are big-endian on the wire unless documented
//! otherwise (the ICRC and the record's CRC are little-endian). `emit` truncates a value that has more bits than
//! its field.
//!
//! ```
//! use shotline_wire::bth::{Bth, Opcode};
//! use shotline_wire::{ipv4, roce, udp};
//! # use shotline_wire::ParseError;
//! # fn main() -> Result<(), ParseError> {
//! # let packet: [u8; 60] = [
//! #   0x45,0,0,0x3c,0,0,0x40,0,0x40,0x11,0xb9,0x5d,0xc0,0xa8,0,1,0xc0,0xa8,0,2,0xc1,0x23,0x12,0xb7,0,0x28,0,0,
//! #   0x64,0x70,0xff,0xff,0,0,0,0x12,0,0,0,1,0x11,0x11,0x11,0x11,0,0,0,0x11,0x68,0x65,0x6c,0x6c,0x6f,0,0,0,
//! #   0x04,0x28,0x63,0xe3];
//! // One header: emit and parse.
//! let bth = Bth { ack_request: true, ..Bth::new(Opcode::RcSendOnly, 0x12, 100) };
//! let bytes = bth.emit();
//! assert_eq!(bytes, [0x04, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0x80, 0, 0, 100]);
//! assert_eq!(Bth::parse(&bytes)?, (bth, [].as_slice()));
//!
//! // A packet of nested headers: each `parse` returns the bytes that the next one takes.
//! let (_ip, rest) = ipv4::Header::parse(&packet)?;
//! let (udp, rest) = udp::Header::parse(rest)?;
//! assert_eq!(udp.destination, udp::ROCE_PORT);
//! let packet = roce::Packet::parse(rest)?;
//! assert_eq!(packet.payload, b"hello");
//! # Ok(()) }
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod aeth;
pub mod atomic;
pub mod block;
pub mod bth;
pub mod crc;
pub mod deth;
pub mod ethernet;
pub mod framing;
pub mod hsb;
pub mod icrc;
pub mod imm;
pub mod ipv4;
pub mod ipv6;
pub mod record;
pub mod reth;
pub mod roce;
pub mod setup;
pub mod shot;
pub mod spacefibre;
pub mod spead;
pub mod udp;
pub mod vita49;

mod bytes;
mod error;

pub use error::ParseError;
