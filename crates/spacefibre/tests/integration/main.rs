//! Integration tests of the public API: quality of service, and two ends of a link over lines with seeded faults.

mod datagram_seeds;
#[path = "../../../../fuzz/src/ends.rs"]
mod ends;
mod frames;
mod qos;
mod seeds;
mod traffic;
mod words;
