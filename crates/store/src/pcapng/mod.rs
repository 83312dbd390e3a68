//! Packet captures: read, and written so that Wireshark opens them.
//!
//! [`for_each_frame`] reads pcap and pcapng, [`network`] finds the packet in a frame, [`datagram`] the payload of a UDP
//! datagram. [`Writer`] writes pcapng (draft-ietf-opsawg-pcapng) in whole blocks, so that what stands in a file after
//! `kill -9` is a capture up to the last of them. [`export`] writes a recording as the packets that it came in, [`Live`] shots as
//! they come.

mod export;
mod frames;
mod link;
mod live;
mod packet;
mod packets;
mod write;

pub use export::{Exported, export};
pub use frames::{CaptureError, Frame, LinkType, for_each_frame, is_capture, read_frames};
pub use link::Ends;
pub use live::Live;
pub use packet::{Datagram, Skipped, datagram, network};
pub use packets::{Packets, Way, framing};
pub use write::{Interface, Statistics, Writer};
