//! A frame as the kernel hands it over.

use std::mem::size_of;
use std::num::NonZeroU16;

/// What an offload has left to be done with a frame (`struct virtio_net_hdr` of `linux/virtio_net.h`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Offload {
    _flags: u8,
    kind: u8,
    _header_len: u16,
    segment: u16,
    _checksum: [u16; 2],
}

/// Bytes of an [`Offload`].
pub const VNET_HEADER: usize = size_of::<Offload>();
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: many datagrams with one header.
const UDP_SEGMENTS: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, beside the kind.
const MARKED: u8 = 0x80;

impl Offload {
    /// Of this kind, with segments of this length.
    pub fn new(kind: u8, segment: u16) -> Self {
        Self { kind, segment, ..Self::default() }
    }

    /// Bytes after UDP of each packet but the last, if the frame stands for several.
    pub fn segment(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(self.segment).filter(|_| self.kind & !MARKED == UDP_SEGMENTS)
    }
}

/// A frame as the kernel has it.
pub struct Came<'a> {
    /// All of it; none if it was longer than there was room for.
    pub bytes: &'a [u8],
    /// As [`Offload::segment`] has it.
    pub segment: Option<NonZeroU16>,
    /// It was sent to this interface's own address.
    pub ours: bool,
}
