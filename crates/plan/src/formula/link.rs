//! Payload rates of network links.

use shotline_wire::framing::{Description, Kind};

/// Preamble and start delimiter (8) and the gap between frames (12), IEEE 802.3 clauses 3.1.1 and 4A.4.2.
const ETHERNET_GAP_BYTES: u32 = 20;
const ETHERNET_HEADER_BYTES: u32 = 14;
const UDP_HEADER_BYTES: u32 = 8;
const ICRC_BYTES: u32 = 4;
const FCS_BYTES: u32 = 4;
/// Minimum length of an Ethernet frame without FCS.
const MIN_FRAME_BYTES: u32 = 60;

/// Headers and trailers of a packet on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// UDP over Ethernet, with the header of a framing and its ICRC if it has one (`docs/wire-formats.md`, 3).
    Shots(Kind),
    /// Plain UDP over Ethernet.
    Ethernet,
    /// InfiniBand: LRH 8, BTH 12, ICRC 4, VCRC 2 bytes (InfiniBand specification, volume 1, 5.2).
    Infiniband,
    /// No overhead: the rate is that of the payload.
    Bare,
}

impl Framing {
    /// Names in plans, with their framings.
    pub const NAMES: &[(&str, Self)] = &{
        let mut names = [("", Self::Bare); Kind::ALL.len() + 3];
        let mut at = 0;
        while at < Kind::ALL.len() {
            names[at] = (Kind::ALL[at].name(), Self::Shots(Kind::ALL[at]));
            at += 1;
        }
        names[at] = ("ethernet", Self::Ethernet);
        names[at + 1] = ("infiniband", Self::Infiniband);
        names[at + 2] = ("none", Self::Bare);
        names
    };

    /// Returns the length on the line of a packet with `payload` bytes, in bytes: with headers, FCS, preamble and gap.
    pub fn line_bytes(self, payload: u32, ipv6: bool) -> u32 {
        let ip = if ipv6 { 40 } else { 20 };
        let above_ip = match self {
            Self::Shots(kind) => {
                let Description { header_len, sealed, .. } = kind.description();
                UDP_HEADER_BYTES + header_len + if *sealed { ICRC_BYTES } else { 0 }
            }
            Self::Ethernet => UDP_HEADER_BYTES,
            Self::Infiniband => return payload + 26,
            Self::Bare => return payload,
        };
        let frame = (ETHERNET_HEADER_BYTES + ip + above_ip + payload).max(MIN_FRAME_BYTES);
        frame + FCS_BYTES + ETHERNET_GAP_BYTES
    }
}

/// Data words per lane of the largest SpaceFibre data frame (ECSS-E-ST-50-11C, data link layer).
pub const SPACEFIBRE_FRAME_WORDS: f64 = 64.0;
/// Words per lane between SKIP words (ECSS-E-ST-50-11C, lane layer).
const SPACEFIBRE_SKIP_WORDS: f64 = 5000.0;

/// Returns the payload rate of SpaceFibre lanes in one direction, in bits per second, without packet headers.
///
/// Of 10 line bits 8 are data (8b/10b). Of the 66 words of a full data frame 64 are data; the others mark its start and
/// end. There is a SKIP every 5000 words. If data flow in both directions, each frame also costs about one ACK and one
/// FCT for the other direction, two more words.
///
/// Gibson et al. publish 23.8 Gbit/s in one direction and 23.1 in both for four lanes of 7.8125 Gbit/s, without a
/// derivation; this formula gives 24.24 and 23.52. Both are 1.8 % higher, so the formula explains the ratio of the two,
/// 64/66 to 64/68, but not the common difference. Nothing here is fitted to these figures.
pub fn spacefibre_bits_per_s(lanes: u32, lane_bits_per_s: f64, both_ways: bool) -> f64 {
    let control_words = if both_ways { 4.0 } else { 2.0 };
    let frames = SPACEFIBRE_FRAME_WORDS / (SPACEFIBRE_FRAME_WORDS + control_words);
    let skips = SPACEFIBRE_SKIP_WORDS / (SPACEFIBRE_SKIP_WORDS + 1.0);
    f64::from(lanes) * lane_bits_per_s * 0.8 * frames * skips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_100g_link_has_the_payload_rate_after_headers() {
        let gbits = |ipv6| 100.0 * 4096.0 / f64::from(Framing::Shots(Kind::Ud).line_bytes(4096, ipv6));
        assert!((gbits(false) - 97.757).abs() < 1e-3 && (gbits(true) - 97.292).abs() < 1e-3);
    }

    #[test]
    fn the_shortest_frame_is_padded() {
        assert_eq!(Framing::Ethernet.line_bytes(1, false), 84);
    }

    #[test]
    fn header_lengths_match_the_emitted_framings() {
        for (kind, above_udp) in [(Kind::Ud, 24 + 4), (Kind::Counted, 20 + 4), (Kind::Udp, 32)] {
            let (_, framing) = Framing::NAMES.iter().find(|(name, _)| *name == kind.name()).unwrap();
            assert_eq!(framing.line_bytes(4096, true), 14 + 40 + 8 + above_udp + 4096 + 24, "{kind}");
        }
    }
}
