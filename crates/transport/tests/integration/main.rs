//! What every backend of `PacketIo` promises, run against each of them, and what is particular to one.

mod af_packet;
#[cfg(feature = "dpdk")]
mod dpdk;
mod inproc;
mod seeds;
mod suite;
mod udp;
mod wrappers;
mod xdp;
