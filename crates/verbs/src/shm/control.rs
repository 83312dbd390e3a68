//! The socket between two endpoints: it hands over memory, tells of keys, wakes the sleeping, and shows by its end that
//! the peer is gone. No operation passes through it.
//!
//! Messages are packets of 128 bytes. Wake-ups are such packets, too, and not an eventfd that both share: who has an
//! eventfd can make it block, and with it every writer.

use super::board::KEYS;
use crate::handed;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use shotline_memory::Access;
use std::collections::VecDeque;
use std::mem::MaybeUninit;

/// Bytes of a message.
const BYTES: usize = 128;
/// Bytes of a name.
pub(super) const NAME: usize = 64;
/// Messages that wait for the peer to read: more than all its keys and names make.
const MOST_WAITING: usize = 4 * KEYS;

/// A remote key and what it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyOffer {
    /// Its place on the board, where its end is shown.
    pub(super) slot: u32,
    pub(super) rkey: u32,
    /// Its protection domain: queue pairs of others are refused.
    pub(super) domain: u32,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

/// What the endpoints tell each other.
#[derive(Debug)]
pub(super) enum Message {
    /// The first of each side, with its board.
    Hello(OwnedFd),
    /// A key, with its memory.
    Key(KeyOffer, OwnedFd),
    /// A key has ended: the memory may be let go.
    Ended { slot: u32, rkey: u32 },
    /// A key has a name.
    Named { rkey: u32, name: Vec<u8> },
    /// An operation on this queue pair was wrong, and it wants to know (strict rules).
    Fault { qp: u32, from: u32 },
    /// Look at the board.
    Wake,
}

/// A message as it goes out, with the memory that it hands over.
#[derive(Debug)]
pub(super) struct Letter {
    bytes: [u8; BYTES],
    fd: Option<OwnedFd>,
}

impl Letter {
    fn new(kind: u8, fd: Option<OwnedFd>) -> Self {
        let mut bytes = [0; BYTES];
        bytes[0] = kind;
        Self { bytes, fd }
    }
    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

impl From<Message> for Letter {
    fn from(message: Message) -> Self {
        match message {
            Message::Hello(board) => Self::new(1, Some(board)),
            Message::Key(key, memory) => Self::new(2, Some(memory))
                .put(1, &[key.access.bits()])
                .put(4, &key.slot.to_le_bytes())
                .put(8, &key.rkey.to_le_bytes())
                .put(12, &key.domain.to_le_bytes())
                .put(16, &key.address.to_le_bytes())
                .put(24, &key.len.to_le_bytes()),
            Message::Ended { slot, rkey } => Self::new(3, None).put(4, &slot.to_le_bytes()).put(8, &rkey.to_le_bytes()),
            Message::Named { rkey, name } => {
                let name = &name[..name.len().min(NAME)];
                Self::new(4, None).put(1, &[name.len() as u8]).put(8, &rkey.to_le_bytes()).put(16, name)
            }
            Message::Fault { qp, from } => Self::new(5, None).put(4, &qp.to_le_bytes()).put(8, &from.to_le_bytes()),
            Message::Wake => Self::new(6, None),
        }
    }
}

impl Letter {
    /// What it says. None for what no honest peer sends.
    fn open(self) -> Option<Message> {
        let word = |at: usize| u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default());
        Some(match self.bytes[0] {
            1 => Message::Hello(self.fd?),
            2 => {
                let access = Access::from_bits(self.bytes[1]);
                let (slot, rkey, domain, address, len) = (word(4), word(8), word(12), long(16), long(24));
                Message::Key(KeyOffer { slot, rkey, domain, address, len, access }, self.fd?)
            }
            3 => Message::Ended { slot: word(4), rkey: word(8) },
            4 => {
                let name = self.bytes[16..16 + NAME].get(..usize::from(self.bytes[1]))?.to_vec();
                Message::Named { rkey: word(8), name }
            }
            5 => Message::Fault { qp: word(4), from: word(8) },
            6 => Message::Wake,
            _ => return None,
        })
    }
}

/// What the socket had for us.
#[derive(Debug)]
pub(super) enum Heard {
    Message(Message),
    /// Nothing that an honest peer sends.
    Nonsense,
    /// Nothing now.
    Nothing,
    /// The peer is gone.
    Gone,
}

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
    waiting: VecDeque<Letter>,
    gone: bool,
}

impl Control {
    /// Over a connected packet socket (`SOCK_SEQPACKET` keeps the borders of messages).
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new(), gone: false }
    }
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message, now or when the peer has read enough of those before it.
    pub(super) fn tell(&mut self, message: Message) {
        self.waiting.push_back(message.into());
        self.flush();
    }

    /// Has the peer look, if the socket takes it: if it does not, the peer has much to wake up for.
    pub(super) fn wake(&mut self) {
        let _ = send(self.socket.as_fd(), &Message::Wake.into());
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        while let Some(letter) = self.waiting.front() {
            match send(self.socket.as_fd(), letter) {
                Ok(()) => _ = self.waiting.pop_front(),
                Err(Errno::INTR) => {}
                // File descriptors on their way are limited (ETOOMANYREFS), too.
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS) if self.waiting.len() < MOST_WAITING => return,
                Err(_) => {
                    self.gone = true;
                    return self.waiting.clear();
                }
            }
        }
    }
    /// Whether messages wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next message, if there is one.
    pub(super) fn hear(&mut self) -> Heard {
        if self.gone {
            return Heard::Gone;
        }
        let mut bytes = [0; BYTES];
        match handed::receive(&self.socket, &mut bytes, handed::is_memory) {
            Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
            // Only the end of the connection has no bytes: our messages all have 128.
            Err(_) | Ok((0, _)) => Heard::Gone,
            Ok((BYTES, fd)) => Letter { bytes, fd }.open().map_or(Heard::Nonsense, Heard::Message),
            Ok(_) => Heard::Nonsense,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        handed::drain(&self.socket);
    }
}

fn send(socket: BorrowedFd<'_>, letter: &Letter) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = letter.fd.as_ref().map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&letter.bytes)], &mut ancillary, flags).map(drop)
}
