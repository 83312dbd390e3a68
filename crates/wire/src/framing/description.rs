//! Entries of the registry of framings ([`super::Kind`]).

use crate::shot::Trailer;

/// Properties that all streams of a framing share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name in configuration, messages and recordings.
    pub name: &'static str,
    /// How a receiver discovers a sender.
    pub set_up: SetUp,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Header length, in bytes, of a packet that is not the last of its shot.
    pub header_len: u32,
    /// Trailer of a shot.
    pub trailer: Trailer,
    /// Default UDP port of the receiver for link 0.
    pub port: u16,
    /// `true` if one address can receive several links, because packets identify their streams.
    pub shares_address: bool,
    /// Keys of the receiver that packets carry.
    pub keys: Keys,
    /// What the work completions of an RDMA device reveal about a packet.
    pub completions: Completions,
    /// How much of a recording can be replayed without set-up.
    pub replay: Replay,
    /// `true` if shots are blocks of tens of megabytes, so that only few fit in memory.
    pub large_shots: bool,
}

impl Description {
    /// Returns the default UDP port of a link's receiver. RoCE has one port; other framings whose links do not share an
    /// address use consecutive ports.
    pub const fn port_of(&self, link: u16) -> u16 {
        if self.sealed || self.shares_address { self.port } else { self.port.wrapping_add(link) }
    }
}

/// How a receiver discovers a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetUp {
    /// By set-up messages only.
    Required {
        /// Identifier in set-up messages, 0 to 7.
        id: u8,
    },
    /// By set-up messages or by the receiver's configuration.
    Optional {
        /// Identifier in set-up messages, 0 to 7.
        id: u8,
    },
    /// From its packets: the sender does not support set-up messages.
    Learned,
}

impl SetUp {
    /// Returns the identifier in set-up messages, or `None` if the sender does not support them.
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
    /// Packets carry no key.
    None,
    /// A queue pair number.
    QueuePair,
    /// A queue pair number and a queue key.
    QueuePairAndQKey,
}

/// What the work completions of an RDMA device's UD queue pair reveal about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completions {
    /// Its immediate data, which identifies shot and packet.
    Immediate,
    /// Nothing: the receiver counts packets.
    Count,
    /// The device cannot receive such packets.
    Unsupported,
}

/// How much of a recording can be replayed without set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replay {
    /// All of it, with several links to one address.
    Complete,
    /// All of it, with one address per link, since packets do not identify their link.
    AddressPerLink,
    /// The samples only. Context packets are not sent.
    WithoutContext,
    /// Nothing: the initial packet sequence number is known only from set-up.
    Refused,
}
