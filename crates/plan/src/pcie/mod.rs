//! PCIe bus of a packet card: a card that writes every packet of an Ethernet line to host memory by posted writes.
//!
//! A packet of length L, with FCS, takes L + 20 bytes on the line and L + 12 on the card, which removes the FCS of 4
//! bytes and adds a header of 16 ([`CARD_EXTRA_BYTES`]). Four stages limit the rate of packets: the line, the words of
//! the card ([`Card`]), the stream into the PCIe block ([`Requester`]), and the link ([`Link`]). [`System::limits`]
//! computes them for one length; [`simulate`] sends the same packets TLP by TLP, with credits.
//!
//! Splits of writes at 4 KiB boundaries are not counted, nor are credits in the formulas.
//!
//! ```
//! use shotline_plan::pcie::{Link, Stage, System};
//! let system = System { load: None, ..System::new(Link::default()) };
//! assert_eq!(system.limits(69).limited_by, Stage::Requester);
//! assert_eq!(system.limits(80).limited_by, Stage::Line);
//! ```

mod card;
mod limits;
mod link;
mod simulate;

pub use card::{Card, Load, Requester, Writes};
pub use limits::{LINE_BITS_PER_S, Limits, Range, Stage, System};
pub use link::{Generation, Link, Tlp};
pub use simulate::{Credits, HELD_TLPS, Sent, TICKS_PER_NS, Transmitter, simulate};

/// Shortest and longest packet in bytes with FCS: the shortest Ethernet frame, and the longest with two VLAN tags
/// (1500 bytes of data, header 14, tags 8, FCS 4).
pub const LENGTHS: std::ops::RangeInclusive<u32> = 64..=1526;
/// Preamble, start delimiter and gap in bytes (IEEE 802.3, 3.1.1 and 4A.4.2).
pub const LINE_EXTRA_BYTES: u32 = 20;
/// Header of 16 bytes less the FCS of 4 (Kubálek, section 7).
pub const CARD_EXTRA_BYTES: u32 = 12;
