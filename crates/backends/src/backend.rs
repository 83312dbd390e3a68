//! The trait that each transport of the registry implements.

use crate::opening::{OpenedReceiver, OpenedSender, Options, ReceiverParameters, Role, SenderParameters};
use shotline_memory::Regions;
use shotline_transport::prebuilt::PrebuiltIo;
use shotline_transport::{IoError, PacketIo, delegate_packet_io, delegate_prebuilt_io};
use std::net::IpAddr;

/// A flag that only some transports use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--mtu`.
    Mtu,
    /// `--peer-mac`.
    PeerMac,
    /// `--eal`.
    Eal,
    /// `--receive-buffer`.
    ReceiveBuffer,
}

impl Flag {
    /// All flags.
    pub const ALL: [Self; 4] = [Self::Mtu, Self::PeerMac, Self::Eal, Self::ReceiveBuffer];

    /// Returns the flag as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtu => "--mtu",
            Self::PeerMac => "--peer-mac",
            Self::Eal => "--eal",
            Self::ReceiveBuffer => "--receive-buffer",
        }
    }

    /// Returns `true` if the flag was given.
    pub fn is_in(self, options: &Options) -> bool {
        match self {
            Self::Mtu => options.mtu.is_some(),
            Self::PeerMac => options.peer_mac.is_some(),
            Self::Eal => options.eal.is_some(),
            Self::ReceiveBuffer => options.receive_buffer.is_some(),
        }
    }
}

/// Static properties of a transport.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name, before the colon.
    pub name: &'static str,
    /// The placeholder of the argument after the colon, in capitals; `None` if it has no arguments.
    pub argument: Option<&'static str>,
    /// Complete examples, for messages.
    pub examples: &'static [&'static str],
    /// Whether it calls the steer before the copy: `yes`, `no`, or when.
    pub steers: &'static str,
    /// Whether a full receiver stops the sender: `yes`, `no`, or when.
    pub credits: &'static str,
    /// Roles in which it carries only one link.
    pub one_link: &'static [Role],
    /// `true` if emulated devices can send packets through it.
    pub sends: bool,
    /// `true` if it sends complete frames.
    pub sends_complete_frames: bool,
    /// Copies of each payload byte on receive, and by which component.
    pub copies: &'static str,
    /// Packets per receive batch.
    pub batch: &'static str,
    /// Required privileges.
    pub privileges: &'static str,
    /// The Cargo feature that it requires, if any.
    pub feature: Option<&'static str>,
    /// If it is missing from this build, how to get it.
    pub missing: Option<&'static str>,
    /// Flags that a receiver uses.
    pub receiver_flags: &'static [Flag],
    /// Flags that a sender uses.
    pub sender_flags: &'static [Flag],
    /// Flags that a sender of complete frames uses.
    pub complete_frames_flags: &'static [Flag],
}

impl About {
    /// Returns the transport as it is typed, with the placeholder of its argument.
    pub(crate) fn form(&self) -> String {
        self.argument.map_or_else(|| self.name.into(), |argument| format!("{}:{argument}", self.name))
    }
}

/// Returns the error message for a transport that is missing from this build.
pub(crate) fn not_built(about: &About, arguments: &str) -> String {
    let (name, fix) = (about.name.to_uppercase(), about.missing.unwrap_or_default());
    format!("this shotline was built without {name}, so it cannot open {arguments}: {fix}")
}

/// The result of a transport's `doctor` check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub name: &'static str,
    /// `true` if nothing needs to be fixed; otherwise runs work, but not optimally.
    pub good: bool,
    /// The current state.
    pub found: String,
    /// The recommended state.
    pub expected: &'static str,
    /// Command or action that fixes it; empty if there is none.
    pub fix: String,
    /// Found names, with their kind.
    pub names: Option<(&'static str, Vec<String>)>,
}

/// One transport of the registry.
pub trait Backend: Sized {
    /// Static properties.
    const ABOUT: About;
    /// The receiver.
    type Io: PacketIo;
    /// The sender; [`Never`] if it only receives, according to [`About::sends`] and [`About::sends_complete_frames`].
    type Sender: PrebuiltIo;

    /// Parses the arguments after the colon, which may be empty. Returns `None` if they are required and missing.
    ///
    /// # Errors
    /// For unknown arguments; the error lists the known ones.
    fn parse(arguments: &str) -> Result<Option<Self>, String>;
    /// Returns the arguments in the form that [`Self::parse`] accepts.
    fn arguments(&self) -> String;
    /// Returns `true` if a device writes payloads to posted receives itself, for which their memory must be shared. The
    /// default is `false`.
    fn writes_shared_memory(&self) -> bool {
        false
    }
    /// Opens it as receiver.
    ///
    /// # Errors
    /// If it cannot be opened, with a remedy in the message.
    fn open(
        &self,
        parameters: &ReceiverParameters,
        options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<Self::Io>, IoError>;
    /// Opens it as sender. The default is for transports that only receive.
    ///
    /// # Errors
    /// If it cannot be opened, with a remedy in the message, or if it only receives.
    fn open_sender(
        &self,
        _parameters: &SenderParameters,
        _options: &Options,
        _regions: &Regions,
    ) -> Result<OpenedSender<Self::Sender>, IoError> {
        Err(IoError::Config(format!("{} only receives: send with udp", Self::ABOUT.name)))
    }
    /// Runs the `doctor` check, for packets to this address, if it is known. The default has no check.
    fn doctor(_local: Option<IpAddr>) -> Option<Finding> {
        None
    }
}

/// An uninhabited transport, for roles and builds in which nothing can be opened.
#[derive(Debug)]
pub enum Never {}

impl PacketIo for Never {
    delegate_packet_io!(match);
}

impl PrebuiltIo for Never {
    delegate_prebuilt_io!(match);
}
