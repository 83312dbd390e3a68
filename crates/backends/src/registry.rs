//! The enum of all transports, with dispatch to the selected one.

use crate::backend::{About, Backend, Finding, Flag, not_built};
use crate::dpdk::Dpdk;
use crate::ibverbs::Ibverbs;
use crate::opening::{OpenedReceiver, OpenedSender, Options, ReceiverParameters, Role, SenderParameters};
use crate::packet::Packet;
use crate::udp::Udp;
use crate::xdp::Xdp;
use serde::{Deserialize, Serialize};
use shotline_memory::Regions;
use shotline_transport::prebuilt::PrebuiltIo;
use shotline_transport::{IoError, PacketIo, delegate_packet_io, delegate_prebuilt_io};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

macro_rules! registry {
    ($( $(#[doc = $doc:literal])+ $backend:ident, )+) => {
        /// A transport for packets, as selected by `--transport`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Transport {
            /// The transport with the fewest copies per byte, which [`advise`](crate::advise) selects. It cannot be
            /// opened itself.
            Auto,
            $( $(#[doc = $doc])+ $backend($backend), )+
        }

        /// A transport opened as receiver.
        #[allow(clippy::large_enum_variant, reason = "there is one per run, and a box would cost each call a load")]
        pub enum Io {
            $( $(#[doc = $doc])+ $backend(<$backend as Backend>::Io), )+
        }

        impl PacketIo for Io {
            delegate_packet_io!(match $($backend),+);
        }

        /// A transport opened as sender.
        #[allow(clippy::large_enum_variant, reason = "there is one per run, and a box would cost each call a load")]
        pub enum Sender {
            $( $(#[doc = $doc])+ $backend(<$backend as Backend>::Sender), )+
        }

        impl PacketIo for Sender {
            delegate_packet_io!(match $($backend),+);
        }

        impl PrebuiltIo for Sender {
            delegate_prebuilt_io!(match $($backend),+);
        }

        /// Static properties of each transport, in the order of the registry.
        pub(crate) const ALL: &[About] = &[AUTO, $( $backend::ABOUT, )+];

        // Checks that the declared sending roles are true: only the sender type `Never` has size 0. A transport that is
        // missing from this build has no sender.
        const _: () = { $(
            let About { sends, sends_complete_frames, missing, .. } = $backend::ABOUT;
            let has_sender = size_of::<<$backend as Backend>::Sender>() > 0;
            assert!(missing.is_some() || has_sender == (sends || sends_complete_frames));
        )+ };

        /// Runs the `doctor` checks of all transports, for packets to this address, if it is known, in the order of the
        /// registry.
        pub fn findings(local: Option<IpAddr>) -> Vec<Finding> {
            [$( $backend::doctor(local), )+].into_iter().flatten().collect()
        }

        impl Transport {
            /// Parses the arguments of the transport with this name; `None` if there is no such transport, or if it
            /// requires arguments.
            fn from_name(name: &str, arguments: &str) -> Result<Option<Self>, String> {
                if name == AUTO.name {
                    return Ok(Some(Self::Auto));
                }
                $(
                    if name == $backend::ABOUT.name {
                        return Ok($backend::parse(arguments)?.map(Self::$backend));
                    }
                )+
                Ok(None)
            }

            fn arguments(&self) -> String {
                match self {
                    Self::Auto => String::new(),
                    $( Self::$backend(backend) => backend.arguments(), )+
                }
            }

            /// Returns its static properties.
            pub fn about(&self) -> About {
                match self {
                    Self::Auto => AUTO,
                    $( Self::$backend(_) => $backend::ABOUT, )+
                }
            }

            /// Returns `true` if a device writes payloads to posted receives itself, for which their memory must be
            /// shared ([`Region::memfd`](shotline_memory::Region::memfd)).
            pub fn writes_shared_memory(&self) -> bool {
                match self {
                    Self::Auto => false,
                    $( Self::$backend(backend) => backend.writes_shared_memory(), )+
                }
            }

            /// Opens it as receiver.
            ///
            /// # Errors
            /// If it cannot be opened, with a remedy in the message.
            pub fn open(&self, parameters: &ReceiverParameters, options: &Options, regions: &Regions) -> Result<OpenedReceiver<Io>, IoError> {
                match self {
                    Self::Auto => Err(auto_error()),
                    $( Self::$backend(backend) => Ok(backend.open(parameters, options, regions)?.map(Io::$backend)), )+
                }
            }

            /// Opens it as sender.
            ///
            /// # Errors
            /// If it cannot be opened, with a remedy in the message, or if it only receives.
            pub fn open_sender(
                &self,
                parameters: &SenderParameters,
                options: &Options,
                regions: &Regions,
            ) -> Result<OpenedSender<Sender>, IoError> {
                match self {
                    Self::Auto => Err(auto_error()),
                    $(
                        Self::$backend(backend) => {
                            Ok(backend.open_sender(parameters, options, regions)?.map(Sender::$backend))
                        }
                    )+
                }
            }
        }
    };
}

registry! {
    /// UDP sockets.
    Udp,
    /// Frames received from an interface's driver (AF_XDP).
    Xdp,
    /// Raw frames of an interface, through the kernel (AF_PACKET).
    Packet,
    /// A queue pair of an RDMA device.
    Ibverbs,
    /// A DPDK port.
    Dpdk,
}

/// Static properties of [`Transport::Auto`].
const AUTO: About = About {
    name: "auto",
    argument: None,
    examples: &[],
    steers: "as the selected one",
    credits: "no",
    one_link: &[],
    sends: false,
    sends_complete_frames: false,
    copies: "as ibverbs, xdp or udp, whichever has the fewest copies",
    batch: "as the selected one",
    privileges: "none; root for xdp",
    feature: None,
    missing: None,
    // Used if it selects sockets.
    receiver_flags: &[Flag::ReceiveBuffer],
    sender_flags: &[],
    complete_frames_flags: &[],
};

/// Returns the error of opening [`Transport::Auto`].
fn auto_error() -> IoError {
    IoError::Config("auto is not a transport of its own: open the one that `advise` returns".into())
}

impl Default for Transport {
    fn default() -> Self {
        Self::Udp(Udp)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, argument, .. } = self.about();
        f.write_str(name)?;
        argument.map_or(Ok(()), |_| write!(f, ":{}", self.arguments()))
    }
}

impl FromStr for Transport {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, arguments) = text.split_once(':').map_or((text, None), |(name, arguments)| (name, Some(arguments)));
        let has_arguments =
            ALL.iter().any(|about| about.name == name && about.argument.is_some() == arguments.is_some());
        let read = if has_arguments { Self::from_name(name, arguments.unwrap_or_default())? } else { None };
        read.ok_or_else(|| {
            let examples: Vec<_> = ALL.iter().flat_map(|about| about.examples).map(|text| (*text).to_owned()).collect();
            let forms: Vec<_> = ALL.iter().map(About::form).collect();
            format!("expected {}, such as {}, found {text}", join_words(&forms, " or "), join_words(&examples, " or "))
        })
    }
}

impl TryFrom<String> for Transport {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Transport> for String {
    fn from(transport: Transport) -> Self {
        transport.to_string()
    }
}

impl Transport {
    /// Returns the device if it carries only one link in this role.
    pub fn one_link(&self, role: Role) -> Option<String> {
        self.about().one_link.contains(&role).then(|| self.arguments())
    }

    /// Checks that it can be opened in this role with these flags, as far as that is known beforehand.
    ///
    /// # Errors
    /// If it does not have the role, is missing from this build, or a flag is given that it does not use.
    pub fn check(&self, role: Role, options: &Options) -> Result<(), String> {
        let about = self.about();
        if !serves(&about, role) {
            return Err(refusal(role));
        }
        if about.missing.is_some() {
            return Err(not_built(&about, &self.arguments()));
        }
        let unused = Flag::ALL.into_iter().find(|flag| flag.is_in(options) && !flags(&about, role).contains(flag));
        if let Some(flag) = unused {
            let users: Vec<_> =
                ALL.iter().filter(|about| flags(about, role).contains(&flag)).map(About::form).collect();
            let flag = flag.name();
            return Err(match users.as_slice() {
                [] => format!("no transport uses {flag}: omit it"),
                users => {
                    format!("{self} does not use {flag}: omit it, or give --transport {}", join_words(users, " or "))
                }
            });
        }
        options.peer().map(drop)
    }
}

/// Returns `true` if a transport has this role.
fn serves(about: &About, role: Role) -> bool {
    match role {
        Role::Receiver => true,
        Role::Sender => about.sends,
        Role::CompleteFrames => about.sends_complete_frames,
    }
}

/// Returns the flags that a transport uses in this role.
fn flags(about: &About, role: Role) -> &'static [Flag] {
    match role {
        Role::Receiver => about.receiver_flags,
        Role::Sender => about.sender_flags,
        Role::CompleteFrames => about.complete_frames_flags,
    }
}

/// Returns the error message for a transport without this role, which lists those that have it.
fn refusal(role: Role) -> String {
    let forms = |have: bool| -> Vec<String> {
        ALL.iter().filter(|about| serves(about, role) == have).map(About::form).collect()
    };
    let what = if role == Role::CompleteFrames { "do not send complete frames" } else { "only receive" };
    format!("{} {what}: send with {}", join_words(&forms(false), " and "), join_words(&forms(true), " or "))
}

/// Joins words with commas, and with `last` before the last one.
fn join_words(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [words @ .., word] => format!("{}{last}{word}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests;
