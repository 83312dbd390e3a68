//! Frames that software sends.

use super::dma::Maps;
use super::error::End;
use super::window::{Piece, SEND_END, SEND_ENTRIES, SEND_MAX, SEND_QUEUES, Window};
use super::wire::Sink;
use shotline_wire::crc::crc32;

/// Shortest frame without FCS; shorter ones are padded with zeros.
const SHORTEST: usize = 60;
/// Pieces of a queue that are read before another queue has its turn.
const TURN: u32 = 64;

/// Frames that software has sent through a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that went to the sink.
    pub frames: u64,
    /// Their bytes without FCS, as software gave them.
    pub bytes: u64,
    /// Frames that were dropped: a piece was outside of the memory that the card may access, or the frame was empty or
    /// longer than 16367 bytes.
    pub refused: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.refused += other.refused;
    }
}

/// A queue with a frame of which pieces have been read.
#[derive(Debug, Default)]
struct Queue {
    /// Pieces read.
    done: u32,
    frame: Vec<u8>,
    is_wrong: bool,
    sent: Sent,
}

impl Queue {
    fn take(&mut self, piece: &Piece, memory: &Maps) {
        let begin = self.frame.len();
        let end = begin.saturating_add(piece.length as usize);
        if end > SEND_MAX {
            self.is_wrong = true;
        } else {
            self.frame.resize(end, 0);
            self.is_wrong |= !memory.load(piece.address, &mut self.frame[begin..]);
        }
    }

    /// Sends the frame, whose last piece has been read.
    fn finish(&mut self, queue: usize, time_ns: u64, sink: &mut dyn Sink) -> Result<(), String> {
        let mut frame = std::mem::take(&mut self.frame);
        let is_wrong = std::mem::take(&mut self.is_wrong) || frame.is_empty();
        if is_wrong {
            self.sent.refused += 1;
        } else {
            self.sent.frames += 1;
            self.sent.bytes += frame.len() as u64;
            frame.resize(frame.len().max(SHORTEST), 0);
            frame.extend(crc32(&frame).to_le_bytes());
            sink.sent(queue, time_ns, &frame)?;
        }
        frame.clear();
        self.frame = frame;
        Ok(())
    }
}

/// The queues of a connection.
#[derive(Debug)]
pub(super) struct SendQueues(Vec<Queue>);

impl SendQueues {
    pub fn new() -> Self {
        Self((0..SEND_QUEUES).map(|_| Queue::default()).collect())
    }

    /// Returns what was sent, by queue.
    pub fn sent(&self) -> impl Iterator<Item = Sent> {
        self.0.iter().map(|queue| queue.sent)
    }

    /// Reads the pieces that software has given. Returns `true` if there were some.
    ///
    /// # Errors
    /// If a counter is impossible, or the sink fails.
    pub fn collect(&mut self, window: &Window, memory: &Maps, time_ns: u64, sink: &mut dyn Sink) -> Result<bool, End> {
        let mut any = false;
        for (number, queue) in self.0.iter_mut().enumerate() {
            let given = window.pieces_given(number).wrapping_sub(queue.done);
            if given > SEND_ENTRIES {
                return Err(End::broken(format!(
                    "expected at most {SEND_ENTRIES} pieces in the send ring of queue {number}, found {given}"
                )));
            }
            for _ in 0..given.min(TURN) {
                let piece = window.piece(number, queue.done);
                queue.take(&piece, memory);
                if piece.flags & SEND_END != 0 {
                    queue.finish(number, time_ns, sink).map_err(End::frames)?;
                }
                queue.done = queue.done.wrapping_add(1);
                window.set_pieces_done(number, queue.done);
                any = true;
            }
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::window::SEND_END;
    use rustix::fd::AsFd;

    const AT: u64 = 0x10_0000;

    /// Returns 16 KiB of memory at [`AT`].
    fn memory() -> Maps {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4 * 4096).unwrap();
        rustix::io::pwrite(&fd, &[7; 100], 0).unwrap();
        let mut maps = Maps::default();
        maps.map(AT, 4 * 4096, fd.as_fd(), 0).unwrap();
        maps
    }

    struct Frames(Vec<Vec<u8>>);

    impl Sink for Frames {
        fn sent(&mut self, _: usize, _: u64, frame: &[u8]) -> Result<(), String> {
            self.0.push(frame.to_vec());
            Ok(())
        }
    }

    #[test]
    fn pieces_become_a_frame_with_padding_and_fcs() {
        let (memory, mut queue, mut frames) = (memory(), Queue::default(), Frames(Vec::new()));
        queue.take(&Piece { address: AT, length: 14, flags: 0 }, &memory);
        queue.take(&Piece { address: AT + 90, length: 20, flags: SEND_END }, &memory);
        queue.finish(0, 0, &mut frames).unwrap();
        let frame = &frames.0[0];
        assert_eq!((frame.len(), &frame[..24], &frame[24..60]), (64, &[7; 24][..], &[0; 36][..]));
        assert_eq!(!crc32(frame), shotline_wire::crc::RESIDUE);
        assert_eq!(queue.sent, Sent { frames: 1, bytes: 34, refused: 0 });
    }

    #[test]
    fn wrong_frames_are_counted_and_the_next_is_whole() {
        let (memory, mut queue, mut frames) = (memory(), Queue::default(), Frames(Vec::new()));
        for (address, length) in [(AT, 0), (AT, 16_368), (AT - 1, 64), (AT + 4 * 4096 - 63, 64), (u64::MAX, u32::MAX)] {
            queue.take(&Piece { address, length, flags: SEND_END }, &memory);
            queue.finish(0, 0, &mut frames).unwrap();
        }
        assert_eq!((queue.sent.refused, frames.0.len()), (5, 0));
        queue.take(&Piece { address: AT, length: 16_367, flags: SEND_END }, &memory);
        queue.finish(0, 0, &mut frames).unwrap();
        assert_eq!((frames.0[0].len(), queue.sent.frames), (16_371, 1));
    }
}
