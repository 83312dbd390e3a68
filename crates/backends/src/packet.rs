//! `packet:INTERFACE`: raw frames through the kernel (AF_PACKET).

use crate::backend::{About, Backend, Flag};
use crate::opening::{OpenedReceiver, OpenedSender, Options, ReceiverParameters, SenderParameters};
use crate::route;
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use std::net::SocketAddr;

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet(pub String);

impl Backend for Packet {
    const ABOUT: About = About {
        name: "packet",
        argument: Some("INTERFACE"),
        examples: &[],
        steers: "yes",
        credits: "no",
        one_link: &[],
        sends: false,
        sends_complete_frames: true,
        copies: "2, one by the kernel",
        batch: "1; up to 64 in an unsegmented frame (GRO, GSO)",
        privileges: "CAP_NET_RAW",
        feature: None,
        missing: None,
        receiver_flags: &[Flag::ReceiveBuffer],
        sender_flags: &[],
        complete_frames_flags: &[Flag::PeerMac],
    };
    type Io = FrameIo;
    type Sender = FrameIo;

    fn parse(arguments: &str) -> Result<Option<Self>, String> {
        Ok((!arguments.is_empty()).then(|| Self(arguments.into())))
    }

    fn arguments(&self) -> String {
        self.0.clone()
    }

    fn open(
        &self,
        parameters: &ReceiverParameters,
        _options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<FrameIo>, IoError> {
        let ReceiverParameters { bind, sealed, remainders, capacity, scratch, receive_buffer, .. } = *parameters;
        let interface = self.0.clone();
        let config = FrameConfig {
            interface,
            bind,
            peer: None,
            sealed,
            remainders,
            capacity,
            scratch,
            receive_buffer,
            ring: true,
            ecn: false,
        };
        let io = FrameIo::open(config, regions)?;
        Ok(OpenedReceiver { local: io.local_addr(), receive_buffer, io })
    }

    fn open_sender(
        &self,
        parameters: &SenderParameters,
        options: &Options,
        regions: &Regions,
    ) -> Result<OpenedSender<FrameIo>, IoError> {
        let peer = options.peer().map_err(IoError::Config)?;
        let config = FrameConfig {
            interface: self.0.clone(),
            bind: SocketAddr::new(route::source(parameters.source, parameters.to)?, 0),
            // Loopback has one host and no Ethernet addresses.
            peer: peer.or((self.0 == "lo").then_some([0; 6])),
            sealed: parameters.sealed,
            remainders: false,
            capacity: 0,
            scratch: parameters.scratch,
            receive_buffer: 1 << 16,
            ring: false,
            ecn: false,
        };
        let io = FrameIo::open(config, regions)?;
        Ok(OpenedSender { source: io.local_addr(), io })
    }
}
