//! The conformance suite on each backend of `PacketIo`, and tests of properties of single backends.

mod af_packet;
mod carrier_faults;
mod carrier_processes;
mod carrier_udp;
mod carrier_udp_port;
mod carriers;
#[cfg(feature = "dpdk")]
mod dpdk;
mod inproc;
mod seeds;
mod suite;
mod udp;
mod wrappers;
mod xdp;
