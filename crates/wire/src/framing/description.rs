//! What the registry of framings ([`super::Kind`]) says of each member.

use crate::shot::Trailer;

/// Properties of a framing that are the same for all of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name in configuration, messages and recordings.
    pub name: &'static str,
    /// How a receiver comes to know a sender.
    pub set_up: SetUp,
    /// Packets end in an ICRC.
    pub sealed: bool,
    /// Header bytes of a packet that is not the last of its shot.
    pub header_len: u32,
    /// What closes a shot.
    pub trailer: Trailer,
    /// Default UDP port of the receiver, of link 0.
    pub port: u16,
    /// One receiver takes several links at one address, because its packets name their streams.
    pub shares_address: bool,
    /// Keys of the receiver that packets carry.
    pub keys: Keys,
    /// What an RDMA device's work completions show of a packet.
    pub completions: Completions,
    /// What of a recording can be sent without set-up.
    pub replay: Replay,
    /// Shots are blocks of tens of megabytes, of which few are held at a time.
    pub large_shots: bool,
}

impl Description {
    /// Default UDP port of a link's receiver. RoCE has one port; other framings whose links do not share an address have
    /// consecutive ones.
    pub const fn port_of(&self, link: u16) -> u16 {
        if self.sealed || self.shares_address { self.port } else { self.port.wrapping_add(link) }
    }
}

/// How a receiver comes to know a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetUp {
    /// By set-up messages only.
    Required {
        /// Identifier in set-up messages, 0 to 7.
        id: u8,
    },
    /// By set-up messages, or by the receiver's settings.
    Optional {
        /// Identifier in set-up messages, 0 to 7.
        id: u8,
    },
    /// From its packets: it takes no set-up.
    Learned,
}

impl SetUp {
    /// Identifier in set-up messages; none if the sender takes no set-up.
    pub const fn id(self) -> Option<u8> {
        match self {
            Self::Required { id } | Self::Optional { id } => Some(id),
            Self::Learned => None,
        }
    }
}

/// Keys of the receiver that packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// None.
    None,
    /// A queue pair number.
    QueuePair,
    /// A queue pair number and a queue key.
    QueuePairAndQKey,
}

/// What the work completions of an RDMA device's UD queue pair show of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completions {
    /// Its immediate data, which names shot and packet.
    Immediate,
    /// Nothing: packets are counted.
    Count,
    /// The device does not receive such packets.
    Unsupported,
}

/// What of a recording can be sent without set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replay {
    /// All of it, several links to one address.
    Complete,
    /// All of it, each link to an address of its own: packets do not name their link.
    AddressPerLink,
    /// The samples. Packets of context are not sent.
    WithoutContext,
    /// Nothing: only set-up tells where the count of packets begins.
    Refused,
}
