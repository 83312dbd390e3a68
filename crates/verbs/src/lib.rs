//! Queue pairs over any [`PacketIo`](shotline_transport::PacketIo).
//!
//! [`ud`]: unreliable datagrams (IBTA 9.8.3), with the same calls as the `PacketIo` below.

pub mod ud;
