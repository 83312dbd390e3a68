//! Configuration of a stream.

use shotline_wire::shot::Geometry;
use std::net::SocketAddr;

/// Properties of a stream that are known before its first packet.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Stream number, as in the end-of-shot record.
    pub stream: u32,
    /// Key in its packets: the destination queue pair, or the stream field of plain UDP.
    pub key: u32,
    /// Shape of its shots.
    pub geometry: Geometry,
    /// The only sender whose packets are accepted; none: the sender of the first valid packet.
    pub source: Option<SocketAddr>,
    /// First shot to expect; none: join live traffic at the first whole shot.
    pub first_shot: Option<u64>,
    /// Sequence number of its first packet, for framings that carry nothing else.
    pub first_psn: Option<u32>,
    /// Number of shots after which an older one is closed.
    pub window: u64,
    /// Time without packets after which a shot is closed.
    pub timeout_ns: u64,
}

#[cfg(test)]
impl StreamConfig {
    /// Configuration of shots of three packets, with a window of four shots and a timeout of 100 ns, without
    /// announcements.
    pub(super) fn of_three_packets() -> Self {
        let geometry = Geometry::new(8, 1000, 12, shotline_wire::shot::Packing::Packed12, 0).unwrap();
        assert_eq!(geometry.packets(), 3);
        Self {
            stream: 0,
            key: 0,
            geometry,
            source: None,
            first_shot: None,
            first_psn: None,
            window: 4,
            timeout_ns: 100,
        }
    }
}
