//! Small datagrams, several by one system call, whole.
//!
//! To look at a small packet before it is copied costs as much again as to receive it. Where small ones are what
//! comes (acknowledgements, requests, short messages) they are read whole, and the steer chooses from what was read:
//! their payloads are copied once more, which costs less than the second call. A large datagram that comes between
//! them is copied once more as well; so it takes several small ones in a row to begin, and one large one to end.

use super::sys::{self, Many, Piece};
use rustix::fd::OwnedFd;
use std::io;

/// Bytes of a datagram or batch up to which a second copy is cheaper than a second call.
const SMALL: usize = 2048;
/// Small datagrams in a row after which the next are expected to be small.
const SETTLED: u32 = 8;
/// Most datagrams taken at once.
const DEPTH: usize = 16;
/// Any datagram or batch.
const MOST_BYTES: usize = 1 << 16;

/// What reading small datagrams whole needs.
#[derive(Default)]
pub(super) struct Small {
    /// Small datagrams in a row.
    in_a_row: u32,
    /// Datagrams that came at once the last time.
    came: usize,
    /// None until it is used for the first time.
    room: Option<Box<Room>>,
}

/// Memory for so many datagrams, of which small ones touch little.
pub(super) struct Room {
    many: Many<DEPTH>,
    bytes: Vec<u8>,
}

impl Small {
    /// A datagram or batch of so many bytes came.
    pub(super) fn note(&mut self, bytes: usize) {
        self.in_a_row = if bytes <= SMALL { (self.in_a_row + 1).min(SETTLED) } else { 0 };
    }

    /// Whether small datagrams are what comes.
    pub(super) fn is_worth_it(&self) -> bool {
        self.in_a_row == SETTLED
    }

    /// Takes up to `most` datagrams without waiting. Returns them with their number and the number asked for: fewer
    /// came only if no more were there. [`Self::put_back`] takes the memory back.
    pub(super) fn take(&mut self, fd: &OwnedFd, most: usize) -> io::Result<(Box<Room>, usize, usize)> {
        // Twice as many as came before: a lone one costs little, and a stream is soon taken by the dozen.
        let asked = (2 * self.came).clamp(2, DEPTH).min(most);
        let mut room = self.room.take().unwrap_or_default();
        let mut pieces = [[Piece { iov_base: std::ptr::null_mut(), iov_len: MOST_BYTES }]; DEPTH];
        for ([piece], slot) in pieces.iter_mut().zip(room.bytes.chunks_exact_mut(MOST_BYTES)) {
            piece.iov_base = slot.as_mut_ptr().cast();
        }
        // SAFETY: every piece lies in `room`, which is exclusively ours.
        let received = unsafe { room.many.receive(fd, &mut pieces[..asked]) };
        match received {
            Ok(came) => {
                self.came = came;
                Ok((room, came, asked))
            }
            Err(error) => {
                self.room = Some(room);
                Err(error)
            }
        }
    }

    pub(super) fn put_back(&mut self, room: Box<Room>) {
        self.room = Some(room);
    }
}

impl Room {
    /// One of the datagrams that came, and what the kernel said of it.
    pub(super) fn datagram(&self, index: usize) -> io::Result<(sys::Received, &[u8])> {
        let seen = self.many.received(index)?;
        let slot = &self.bytes[index * MOST_BYTES..][..MOST_BYTES];
        Ok((seen, &slot[..seen.total.min(MOST_BYTES)]))
    }
}

impl Default for Room {
    fn default() -> Self {
        Self { many: Many::new(), bytes: vec![0; DEPTH * MOST_BYTES] }
    }
}
