//! What is known of a stream before its first packet.

use shotline_wire::shot::Geometry;
use std::net::SocketAddr;

/// What the receiver knows of a stream before its first packet.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Its number, as in the end-of-shot record.
    pub stream: u32,
    /// What its packets carry to name it: the destination queue pair, or the stream field of plain UDP.
    pub key: u32,
    /// The shape of its shots.
    pub geometry: Geometry,
    /// The only sender whose packets are accepted; none: the sender of the first good packet.
    pub source: Option<SocketAddr>,
    /// The first shot to expect; none: join live traffic at the first whole shot.
    pub first_shot: Option<u64>,
    /// The sequence number of its first packet, for framings that carry nothing else.
    pub first_psn: Option<u32>,
    /// A shot is closed when one that is this much newer has begun.
    pub window: u64,
    /// A shot is closed when nothing of it has arrived for so long.
    pub timeout_ns: u64,
}

#[cfg(test)]
impl StreamConfig {
    /// Of shots of three packets, with a window of four shots and a time-out of 100 ns; nothing is announced.
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
