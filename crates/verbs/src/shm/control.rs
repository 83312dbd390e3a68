//! The control socket between two endpoints: it passes memory, announces keys, wakes a sleeping peer, and closes when
//! the peer exits. No operation uses it.
//!
//! Messages are packets of 128 bytes. Wake-ups are messages as well, and not a shared eventfd: a process that holds an
//! eventfd can make it block, and with it every writer.

use super::board::MAX_KEYS;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use shotline_memory::{Access, PathModel};
use shotline_transport::fd_passing;
use std::collections::VecDeque;

/// Length of a message in bytes.
const MESSAGE_BYTES: usize = 128;
/// Length of an encoded path in bytes.
const PATH_BYTES: usize = 32;
/// Maximum length of a name in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;
/// Maximum number of queued messages, which is more than all keys and names need.
const MAX_QUEUED: usize = 4 * MAX_KEYS;

/// A remote key with its memory range and access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyOffer {
    /// Its slot on the board, which is cleared when it ends.
    pub(super) slot: u32,
    pub(super) rkey: u32,
    /// Its protection domain: queue pairs of other domains are refused.
    pub(super) domain: u32,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) access: Access,
    /// The path in front of the memory, if it is emulated memory of an accelerator.
    pub(super) path: Option<PathOffer>,
}

/// An emulated path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathOffer {
    /// Its number: keys with the same number share one path.
    pub(super) number: u32,
    pub(super) model: PathModel,
}

impl PathOffer {
    /// Encodes the path, if there is one. A rate of 0 is one that is not limited.
    fn encode(path: Option<Self>) -> [u8; PATH_BYTES] {
        let mut bytes = [0; PATH_BYTES];
        if let Some(Self { number, model }) = path {
            bytes[..4].copy_from_slice(&1_u32.to_le_bytes());
            bytes[4..8].copy_from_slice(&number.to_le_bytes());
            let values = [model.write.unwrap_or(0), model.read.unwrap_or(0), model.latency_ns];
            bytes[8..].chunks_exact_mut(8).zip(values).for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes()));
        }
        bytes
    }
    /// Decodes it. Returns `None` if it is malformed. The model is not checked.
    fn decode(bytes: &[u8]) -> Option<Option<Self>> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let rate = |at: usize| Some(Some(long(at)?).filter(|rate| *rate > 0));
        match word(0)? {
            0 => Some(None),
            1 => {
                let model = PathModel { write: rate(8)?, read: rate(16)?, latency_ns: long(24)? };
                Some(Some(Self { number: word(4)?, model }))
            }
            _ => None,
        }
    }
}

/// A message between the endpoints.
#[derive(Debug)]
pub(super) enum Message {
    /// First message of each side, with its board.
    Hello(OwnedFd),
    /// Announces a key, with its memory.
    Key(KeyOffer, OwnedFd),
    /// Ends a key: the peer unmaps the memory.
    Ended { slot: u32, rkey: u32 },
    /// Publishes a name for a key.
    Named { rkey: u32, name: Vec<u8> },
    /// Reports an invalid operation on a strict queue pair.
    Fault { qp: u32, from: u32 },
    /// Wakes the peer, which then reads the board.
    Wake,
}

/// An encoded message, with the file descriptor that it passes.
#[derive(Debug)]
pub(super) struct ControlMessage {
    bytes: [u8; MESSAGE_BYTES],
    fd: Option<OwnedFd>,
}

impl ControlMessage {
    fn new(kind: u8, fd: Option<OwnedFd>) -> Self {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = kind;
        Self { bytes, fd }
    }
    fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }
}

impl From<Message> for ControlMessage {
    fn from(message: Message) -> Self {
        match message {
            Message::Hello(board) => Self::new(1, Some(board)),
            Message::Key(key, memory) => Self::new(2, Some(memory))
                .put(1, &[key.access.bits()])
                .put(4, &key.slot.to_le_bytes())
                .put(8, &key.rkey.to_le_bytes())
                .put(12, &key.domain.to_le_bytes())
                .put(16, &key.address.to_le_bytes())
                .put(24, &key.len.to_le_bytes())
                .put(32, &PathOffer::encode(key.path)),
            Message::Ended { slot, rkey } => Self::new(3, None).put(4, &slot.to_le_bytes()).put(8, &rkey.to_le_bytes()),
            Message::Named { rkey, name } => {
                let name = &name[..name.len().min(MAX_NAME_BYTES)];
                Self::new(4, None).put(1, &[name.len() as u8]).put(8, &rkey.to_le_bytes()).put(16, name)
            }
            Message::Fault { qp, from } => Self::new(5, None).put(4, &qp.to_le_bytes()).put(8, &from.to_le_bytes()),
            Message::Wake => Self::new(6, None),
        }
    }
}

impl ControlMessage {
    /// Decodes the message. Returns `None` if it is malformed.
    fn decode(self) -> Option<Message> {
        let word = |offset: usize| u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().unwrap_or_default());
        let long = |offset: usize| u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().unwrap_or_default());
        Some(match self.bytes[0] {
            1 => Message::Hello(self.fd?),
            2 => {
                let access = Access::from_bits(self.bytes[1]);
                let (slot, rkey, domain, address, len) = (word(4), word(8), word(12), long(16), long(24));
                let path = PathOffer::decode(&self.bytes[32..32 + PATH_BYTES])?;
                Message::Key(KeyOffer { slot, rkey, domain, address, len, access, path }, self.fd?)
            }
            3 => Message::Ended { slot: word(4), rkey: word(8) },
            4 => {
                let name = self.bytes[16..16 + MAX_NAME_BYTES].get(..usize::from(self.bytes[1]))?.to_vec();
                Message::Named { rkey: word(8), name }
            }
            5 => Message::Fault { qp: word(4), from: word(8) },
            6 => Message::Wake,
            _ => return None,
        })
    }
}

/// Result of a read from the socket.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    /// An invalid message.
    Malformed,
    /// No message at present.
    Nothing,
    /// The peer closed the socket.
    Disconnected,
}

/// One end of the control socket.
#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
    queued: VecDeque<ControlMessage>,
    is_disconnected: bool,
}

impl Control {
    /// Wraps a connected packet socket (`SOCK_SEQPACKET` preserves message boundaries).
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, queued: VecDeque::new(), is_disconnected: false }
    }
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message, or queues it until the peer has read earlier ones.
    pub(super) fn send(&mut self, message: Message) {
        self.queued.push_back(message.into());
        self.flush();
    }

    /// Wakes the peer. If the socket is full, unread messages wake it anyway.
    pub(super) fn wake(&mut self) {
        let _ = send_message(self.socket.as_fd(), &Message::Wake.into());
    }

    /// Sends queued messages.
    pub(super) fn flush(&mut self) {
        while let Some(message) = self.queued.front() {
            match send_message(self.socket.as_fd(), message) {
                Ok(()) => _ = self.queued.pop_front(),
                Err(Errno::INTR) => {}
                // File descriptors in flight are limited as well (ETOOMANYREFS).
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS) if self.queued.len() < MAX_QUEUED => return,
                Err(_) => {
                    self.is_disconnected = true;
                    return self.queued.clear();
                }
            }
        }
    }
    /// Returns `true` if messages are queued.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Reads the next message.
    pub(super) fn receive(&mut self) -> Received {
        if self.is_disconnected {
            return Received::Disconnected;
        }
        let mut bytes = [0; MESSAGE_BYTES];
        match fd_passing::receive(&self.socket, &mut bytes, fd_passing::is_memory) {
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            // A read of 0 bytes is the end of the connection: all messages have 128.
            Err(_) | Ok((0, _)) => Received::Disconnected,
            Ok((MESSAGE_BYTES, fd)) => {
                ControlMessage { bytes, fd }.decode().map_or(Received::Malformed, Received::Message)
            }
            Ok(_) => Received::Malformed,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        fd_passing::drain(&self.socket);
    }
}

fn send_message(socket: BorrowedFd<'_>, message: &ControlMessage) -> Result<(), Errno> {
    fd_passing::send(socket, &message.bytes, message.fd.as_ref().map(AsFd::as_fd))
}
