//! What must hold for any bytes of an Ethernet frame that a raw socket or a port of DPDK's hands over.

#[allow(dead_code, missing_docs, reason = "the parser as it stands in its crate, which keeps it to itself")]
#[path = "../../crates/transport/src/frame.rs"]
pub mod frame;

/// A frame is refused, or its payload and its IP packet are parts of it.
pub fn frame(data: &[u8]) {
    let Ok(datagram) = frame::parse(data) else { return };
    let inside = |part: &[u8]| data.as_ptr_range().contains(&part.as_ptr()) || part.is_empty();
    assert!(inside(datagram.payload) && inside(datagram.packet));
    assert!(datagram.payload.len() < datagram.packet.len() && datagram.packet.len() < data.len());
    assert_eq!(datagram.source.is_ipv4(), datagram.destination.is_ipv4());
}
