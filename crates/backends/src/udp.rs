//! `udp`: UDP sockets.

use crate::backend::{About, Backend, Flag};
use crate::opening::{OpenedReceiver, OpenedSender, Options, ReceiverParameters, SenderParameters};
use crate::route;
use shotline_memory::{Regions, Sge};
use shotline_transport::IoError;
use shotline_transport::udp::{UdpConfig, UdpIo};
use std::net::SocketAddr;

/// UDP sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp;

impl Backend for Udp {
    const ABOUT: About = About {
        name: "udp",
        argument: None,
        examples: &[],
        steers: "yes",
        credits: "no",
        one_link: &[],
        sends: true,
        sends_complete_frames: true,
        copies: "1, by the kernel; 2 for runs of small packets",
        batch: "64 (GRO)",
        privileges: "none",
        feature: None,
        missing: None,
        receiver_flags: &[Flag::ReceiveBuffer],
        sender_flags: &[],
        complete_frames_flags: &[],
    };
    type Io = UdpIo;
    type Sender = UdpIo;

    fn parse(_arguments: &str) -> Result<Option<Self>, String> {
        Ok(Some(Self))
    }

    fn arguments(&self) -> String {
        String::new()
    }

    fn open(
        &self,
        parameters: &ReceiverParameters,
        _options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<UdpIo>, IoError> {
        let ReceiverParameters { bind, sealed, remainders, capacity, scratch, receive_buffer, .. } = *parameters;
        let config =
            UdpConfig { bind, sealed, remainders, capacity, scratch, receive_buffer, stamps: true, ecn: false };
        let io = UdpIo::open(&config, regions)?;
        Ok(OpenedReceiver { local: io.local_addr(), receive_buffer: io.receive_buffer(), io })
    }

    fn open_sender(
        &self,
        parameters: &SenderParameters,
        _options: &Options,
        regions: &Regions,
    ) -> Result<OpenedSender<UdpIo>, IoError> {
        let config = UdpConfig {
            bind: SocketAddr::new(route::source(parameters.source, parameters.to)?, 0),
            sealed: parameters.sealed,
            capacity: 0,
            scratch: Sge::EMPTY,
            receive_buffer: 1 << 16,
            remainders: false,
            stamps: false,
            ecn: false,
        };
        let io = UdpIo::open(&config, regions)?;
        Ok(OpenedSender { source: io.local_addr(), io })
    }
}
