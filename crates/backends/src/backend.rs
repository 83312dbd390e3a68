//! What each transport of the registry implements.

use crate::opening::{Opened, Options, Outgoing, Role, Sending, Wanted};
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mtu, Self::PeerMac, Self::Eal, Self::ReceiveBuffer];

    /// The flag as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtu => "--mtu",
            Self::PeerMac => "--peer-mac",
            Self::Eal => "--eal",
            Self::ReceiveBuffer => "--receive-buffer",
        }
    }

    /// Whether it was given.
    pub fn is_in(self, options: &Options) -> bool {
        match self {
            Self::Mtu => options.mtu.is_some(),
            Self::PeerMac => options.peer_mac.is_some(),
            Self::Eal => options.eal.is_some(),
            Self::ReceiveBuffer => options.receive_buffer.is_some(),
        }
    }
}

/// What is known of a transport without opening it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name, in front of the colon.
    pub name: &'static str,
    /// What stands behind the colon, in capitals; none if it has no words.
    pub argument: Option<&'static str>,
    /// What to type, for messages.
    pub examples: &'static [&'static str],
    /// Whether it asks the steer before it copies: `yes`, `no`, or when.
    pub steers: &'static str,
    /// Whether a full receiver stops the sender: `yes`, `no`, or when.
    pub credits: &'static str,
    /// Roles in which it carries only one link.
    pub one_link: &'static [Role],
    /// Whether emulated devices send packets through it.
    pub sends: bool,
    /// Whether it sends frames that are whole.
    pub sends_whole_frames: bool,
    /// Copies of each payload byte when it receives, and who makes them.
    pub copies: &'static str,
    /// Packets that it receives at once.
    pub batch: &'static str,
    /// What a user must be allowed to do.
    pub privileges: &'static str,
    /// The feature that a build needs for it, if it needs one.
    pub feature: Option<&'static str>,
    /// Why this build does not have it, if it does not, and what to do.
    pub missing: Option<&'static str>,
    /// Flags that a receiver uses.
    pub receiver_flags: &'static [Flag],
    /// Flags that a sender uses.
    pub sender_flags: &'static [Flag],
    /// Flags that a sender of whole frames uses.
    pub whole_frames_flags: &'static [Flag],
}

impl About {
    /// The transport as it is typed, its words in capitals.
    pub(crate) fn form(&self) -> String {
        self.argument.map_or_else(|| self.name.into(), |argument| format!("{}:{argument}", self.name))
    }
}

/// Why a transport that this build does not have cannot be opened.
pub(crate) fn not_built(about: &About, words: &str) -> String {
    let (name, mend) = (about.name.to_uppercase(), about.missing.unwrap_or_default());
    format!("this shotline was built without {name}, so it cannot open {words}: {mend}")
}

/// What `doctor` says of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// Whether it is as it should be; otherwise runs work, but not at their best.
    pub good: bool,
    /// What was found.
    pub found: String,
    /// What is wanted.
    pub wanted: &'static str,
    /// What to type or to get; empty if nothing helps.
    pub fix: String,
    /// Names that were found, with what they are.
    pub names: Option<(&'static str, Vec<String>)>,
}

/// One transport of the registry.
pub trait Backend: Sized {
    /// What is known of it without opening it.
    const ABOUT: About;
    /// What receives.
    type Io: PacketIo;
    /// What sends; [`Never`] if it only receives, as [`About::sends`] and [`About::sends_whole_frames`] say.
    type Sender: PrebuiltIo;

    /// Reads the words behind the colon, empty if there are none. `None`: there should be some.
    ///
    /// # Errors
    /// For words that it does not know, with those that it does.
    fn parse(words: &str) -> Result<Option<Self>, String>;
    /// The words, so that [`Self::parse`] reads the same again.
    fn words(&self) -> String;
    /// Opens it as receiver.
    ///
    /// # Errors
    /// With what to do about it.
    fn open(&self, wanted: &Wanted, options: &Options, regions: &Regions) -> Result<Opened<Self::Io>, IoError>;
    /// Opens it as sender. The default is for transports that only receive.
    ///
    /// # Errors
    /// With what to do about it, or that it only receives.
    fn open_sender(
        &self,
        _sending: &Sending,
        _options: &Options,
        _regions: &Regions,
    ) -> Result<Outgoing<Self::Sender>, IoError> {
        Err(IoError::Config(format!("{} only receives: send by udp", Self::ABOUT.name)))
    }
    /// What `doctor` says of it, for packets to this address, if it is known. The default: nothing.
    fn doctor(_local: Option<IpAddr>) -> Option<Finding> {
        None
    }
}

/// What there is to send or receive with where nothing can be opened.
#[derive(Debug)]
pub enum Never {}

impl PacketIo for Never {
    delegate_packet_io!(match);
}

impl PrebuiltIo for Never {
    delegate_prebuilt_io!(match);
}
