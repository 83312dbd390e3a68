//! What every backend of `PacketIo` promises, run against each of them, and what is particular to one.

mod af_packet;
mod inproc;
mod suite;
mod udp;
