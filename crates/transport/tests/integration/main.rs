//! The conformance suite on each backend of `PacketIo`, and tests of properties of single backends.

mod af_packet;
#[cfg(feature = "dpdk")]
mod dpdk;
mod inproc;
mod seeds;
mod suite;
mod udp;
mod wrappers;
mod xdp;
