//! Conformance tests for framings: named checks that are generic over the implementation of [`Framing`].
//!
//! A [`Case`] selects the shot, its geometry and its keys; [`run`] runs every check of [`CHECKS`] with it. Cases are
//! cheap: try many geometries, shots and seeds. Panics are not caught: a framing that panics on untrusted bytes fails
//! by that panic.

use super::{Framing, Link, MAX_HEADER, Packet, Placement, Position};
use crate::ParseError;
use crate::shot::Geometry;
use arrayvec::ArrayVec;
use core::fmt::{self, Display};
use shotline_random::SplitMix64;

/// Input of the checks.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Geometry of the shots, which must be one that the framing supports.
    pub geometry: Geometry,
    /// Shot number, which must be one that the framing supports.
    pub shot: u64,
    /// Packet sequence number of the shot's first packet.
    pub first_psn: u32,
    /// Keys in the packets.
    pub link: Link,
    /// Seed of the random damage.
    pub seed: u64,
}

/// A requirement and the function that checks it.
#[derive(Clone, Copy)]
pub struct Check {
    /// The requirement, as a sentence.
    pub name: &'static str,
    /// Function that checks the requirement.
    pub run: fn(&dyn Framing, &Case) -> Result<(), Violation>,
}

/// All checks.
pub const CHECKS: [Check; 7] = [
    Check { name: "every packet of a shot is placed at the offset that it was sent from", run: places },
    Check { name: "a header has its predicted length", run: lengths },
    Check { name: "all packets of a link have the same key", run: keys },
    Check { name: "a truncated header is refused", run: truncation },
    Check { name: "a payload of a wrong length is refused", run: other_payload },
    Check { name: "a damaged header is never placed outside the shot", run: damage },
    Check { name: "random bytes are never placed outside the shot", run: noise },
];

/// Runs every check on a framing.
///
/// # Errors
/// The first violated requirement.
pub fn run(framing: &dyn Framing, case: &Case) -> Result<(), Failure> {
    CHECKS.into_iter().try_for_each(|Check { name, run }| {
        run(framing, case).map_err(|violation| Failure { check: name, framing: framing.name(), violation })
    })
}

/// A violated requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// [`Check::name`].
    pub check: &'static str,
    /// Name of the framing.
    pub framing: &'static str,
    /// How it was violated.
    pub violation: Violation,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.framing, self.check, self.violation)
    }
}

impl core::error::Error for Failure {}

/// How a framing violates a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A header that the framing has written is refused.
    #[error("packet {index} is refused: {error}")]
    Refused {
        /// Index of the packet in its shot.
        index: u32,
        /// Error of the framing.
        error: ParseError,
    },
    /// The placement is not that of the packet that was sent.
    #[error("packet {index} is placed at {found:?}")]
    Misplaced {
        /// Index of the packet in its shot.
        index: u32,
        /// The placement that the framing returned.
        found: Placement,
    },
    /// A packet that must be refused is accepted.
    #[error("packet {index} is accepted")]
    Accepted {
        /// Index of the packet in its shot.
        index: u32,
    },
    /// The length of a header differs from the predicted one, or exceeds [`MAX_HEADER`].
    #[error("the header of packet {index} has {expected} bytes, and {found} were predicted")]
    HeaderLength {
        /// Index of the packet in its shot.
        index: u32,
        /// Length of the header, or its maximum, in bytes.
        expected: usize,
        /// Length that the framing returned, in bytes.
        found: usize,
    },
    /// Two packets of a link have different keys.
    #[error("packet {index} has key {found:#x}, earlier ones have {expected:#x}")]
    Key {
        /// Index of the packet in its shot.
        index: u32,
        /// Key of the first packet of the link.
        expected: u32,
        /// Key of this packet.
        found: u32,
    },
    /// Damaged bytes have a placement outside the shot.
    #[error("a header of {header_len} bytes is placed at {found:?}, which is outside the shot")]
    Outside {
        /// Length of the header, in bytes.
        header_len: usize,
        /// The placement that the framing returned.
        found: Placement,
    },
}

type Header = ArrayVec<u8, MAX_HEADER>;

/// Returns packet `index` of the case's shot.
fn packet(case: &Case, index: u32) -> Packet {
    let g = &case.geometry;
    Packet {
        psn: case.first_psn.wrapping_add(index),
        shot: case.shot,
        index,
        offset: g.packet_offset(index),
        len: g.packet_bytes(index),
        shot_bytes: g.sent_bytes(),
        last: index + 1 == g.packets(),
    }
}

/// Returns every packet of the case's shot, with its header.
fn packets<'a>(framing: &'a dyn Framing, case: &'a Case) -> impl Iterator<Item = (Packet, Header)> + 'a {
    (0..case.geometry.packets()).map(|index| {
        let (packet, mut header) = (packet(case, index), Header::new());
        framing.emit(&case.link, &packet, &mut header);
        (packet, header)
    })
}

fn places(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    for (packet, header) in packets(framing, case) {
        let Packet { index, psn, .. } = packet;
        let place = framing.place(&header, packet.len, &case.geometry);
        let place = place.map_err(|error| Violation::Refused { index, error })?;
        let is_correct = match place.position {
            Position::Shot { number, bits, offset, last } => {
                (number, offset, last) == (low(packet.shot, bits), packet.offset, packet.last)
            }
            Position::Sequence { number, bits } => u64::from(number) == low(psn.into(), bits),
            Position::Paged { page, pages, first, bits, offset } => {
                let shot_page = packet.shot % u64::from(pages.max(1));
                (u64::from(page), offset) == (shot_page, packet.offset)
                    && u64::from(first) == low(case.first_psn.into(), bits)
            }
        };
        if !is_correct || place.len != packet.len {
            return Err(Violation::Misplaced { index, found: place });
        }
    }
    Ok(())
}

fn lengths(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    for (Packet { index, .. }, header) in packets(framing, case) {
        let predicted = framing.header_len_at(index, &case.geometry);
        for found in [Some(framing.header_len(&header)), predicted].into_iter().flatten() {
            if found != header.len() {
                return Err(Violation::HeaderLength { index, expected: header.len(), found });
            }
        }
    }
    Ok(())
}

fn keys(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    let mut first = None;
    for (Packet { index, .. }, header) in packets(framing, case) {
        let found = framing.key(&header).map_err(|error| Violation::Refused { index, error })?;
        let expected = *first.get_or_insert(found);
        if found != expected {
            return Err(Violation::Key { index, expected, found });
        }
    }
    Ok(())
}

fn truncation(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    for (Packet { index, len, .. }, header) in packets(framing, case) {
        for end in 0..header.len() {
            let _ = (framing.header_len(&header[..end]), framing.key(&header[..end]));
            if framing.place(&header[..end], len, &case.geometry).is_ok() {
                return Err(Violation::Accepted { index });
            }
        }
    }
    Ok(())
}

fn other_payload(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    let g = &case.geometry;
    for (Packet { index, len, .. }, header) in packets(framing, case) {
        // The first payload's length in the last packet, the last one's in others, and lengths that no packet has.
        let others = [g.packet_bytes(0), g.packet_bytes(g.packets() - 1), len.wrapping_add(64), 0, u32::MAX];
        for other in others.into_iter().filter(|other| *other != len) {
            if framing.place(&header, other, g).is_ok() {
                return Err(Violation::Accepted { index });
            }
        }
    }
    Ok(())
}

fn damage(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    let mut random = SplitMix64::new(case.seed);
    for (Packet { len, .. }, mut header) in packets(framing, case) {
        for _ in 0..8 {
            let bits = random.next_u64();
            let at = bits as usize % header.len().max(1);
            if let Some(byte) = header.get_mut(at) {
                *byte ^= 1 << (bits >> 32 & 7);
            }
            check_untrusted(framing, case, &header, len)?;
        }
    }
    Ok(())
}

fn noise(framing: &dyn Framing, case: &Case) -> Result<(), Violation> {
    let mut random = SplitMix64::new(case.seed);
    for len in 0..=MAX_HEADER {
        let header: Header = (0..len).map(|_| random.next_u64() as u8).collect();
        let index = random.next_u64() as u32 % case.geometry.packets();
        for payload_len in [case.geometry.packet_bytes(index), random.next_u64() as u32] {
            check_untrusted(framing, case, &header, payload_len)?;
        }
    }
    // All-random bytes seldom have a valid magic number or opcode, so also overwrite a part of a valid header.
    for (Packet { len, .. }, mut header) in packets(framing, case) {
        let bits = random.next_u64();
        let first = bits as usize % (header.len() + 1);
        let count = (bits >> 32) as usize % (header.len() - first + 1);
        header[first..first + count].iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        check_untrusted(framing, case, &header, len)?;
    }
    Ok(())
}

/// Passes untrusted bytes to a framing and checks what it returns.
fn check_untrusted(framing: &dyn Framing, case: &Case, header: &[u8], payload_len: u32) -> Result<(), Violation> {
    let (g, header_len) = (&case.geometry, header.len());
    let found = framing.header_len(header);
    if found > MAX_HEADER {
        return Err(Violation::HeaderLength { index: 0, expected: MAX_HEADER, found });
    }
    let _ = (framing.key(header), framing.signal(header, g), framing.count(header));
    let Ok(place) = framing.place(header, payload_len, g) else { return Ok(()) };
    let ends_inside = |offset: u32| {
        let is_packet = g.packet_at(offset).is_some_and(|index| g.packet_bytes(index) == place.len);
        is_packet && u64::from(offset) + u64::from(place.len) <= u64::from(g.sent_bytes())
    };
    let exists = match place.position {
        Position::Shot { number, bits, offset, .. } => {
            (1..=64).contains(&bits) && number == low(number, bits) && ends_inside(offset)
        }
        Position::Sequence { number, bits } => bits <= 32 && u64::from(number) == low(number.into(), bits),
        Position::Paged { page, pages, first, bits, offset } => {
            page < pages
                && (1..=32).contains(&bits)
                && u64::from(first) == low(first.into(), bits)
                && ends_inside(offset)
        }
    };
    if exists { Ok(()) } else { Err(Violation::Outside { header_len, found: place }) }
}

/// Returns the low `bits` bits of a number.
fn low(number: u64, bits: u32) -> u64 {
    if bits >= u64::BITS { number } else { number & ((1 << bits) - 1) }
}
