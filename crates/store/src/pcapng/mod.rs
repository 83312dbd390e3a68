//! Packet captures: reading of pcap and pcapng, writing of pcapng.
//!
//! [`for_each_frame`] reads pcap and pcapng, [`network`] finds the network packet in a frame, [`datagram`] the payload
//! of a UDP datagram. [`Writer`] writes pcapng (draft-ietf-opsawg-pcapng) in whole blocks, so that a file is a valid
//! capture up to its last block even after `kill -9`. [`export`] writes a recording as the packets in which it arrived,
//! [`LiveCapture`] writes shots as they arrive.

mod export;
mod frames;
mod link;
mod live;
mod packet;
mod packets;
mod write;

pub use export::{ExportedCapture, export};
pub use frames::{CaptureError, Frame, LinkType, for_each_frame, is_capture, read_frames};
pub use link::Endpoints;
pub use live::LiveCapture;
pub use packet::{Datagram, SkipReason, datagram, network};
pub use packets::{AddressPair, Packets, framing};
pub use write::{Interface, Statistics, Writer};
