//! A received frame with its offload header.

use std::mem::size_of;
use std::num::NonZeroU16;

/// Offload metadata of a frame (`struct virtio_net_hdr` of `linux/virtio_net.h`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Offload {
    _flags: u8,
    kind: u8,
    _header_len: u16,
    segment: u16,
    _checksum: [u16; 2],
}

/// Size of an [`Offload`] in bytes.
pub const VNET_HEADER: usize = size_of::<Offload>();
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: several datagrams under one header.
const GSO_UDP_L4: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag in the kind.
const GSO_ECN: u8 = 0x80;

impl Offload {
    /// Creates a header of this kind, with segments of this length.
    pub fn new(kind: u8, segment: u16) -> Self {
        Self { kind, segment, ..Self::default() }
    }

    /// Returns the UDP payload bytes of each packet except the last, if the frame contains several.
    pub fn segment(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(self.segment).filter(|_| self.kind & !GSO_ECN == GSO_UDP_L4)
    }
}

/// A received frame.
pub struct RxFrame<'a> {
    /// The whole frame; empty if it was longer than the buffer.
    pub bytes: &'a [u8],
    /// As [`Offload::segment`].
    pub segment: Option<NonZeroU16>,
    /// Sent to this interface's own address.
    pub is_ours: bool,
}
