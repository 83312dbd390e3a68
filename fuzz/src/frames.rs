//! Invariants of arbitrary bytes of an Ethernet frame from a raw socket or a DPDK port.

#[allow(dead_code, missing_docs, reason = "the parser is private in its crate")]
#[path = "../../crates/transport/src/frame.rs"]
pub mod frame;

/// A frame is either refused, or its payload and its IP packet are slices of it.
pub fn frame(data: &[u8]) {
    let Ok(datagram) = frame::parse(data) else { return };
    let inside = |part: &[u8]| data.as_ptr_range().contains(&part.as_ptr()) || part.is_empty();
    assert!(inside(datagram.payload) && inside(datagram.packet));
    assert!(datagram.payload.len() < datagram.packet.len() && datagram.packet.len() < data.len());
    assert_eq!(datagram.source.is_ipv4(), datagram.destination.is_ipv4());
}
