//! Records in the ring: a header followed by payload bytes.

/// Length of a record's header in bytes.
pub(super) const HEADER: u64 = 32;

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Slot and number of the destination queue pair, and number of the source queue pair.
    pub(super) to_slot: u32,
    pub(super) to: u32,
    pub(super) from: u32,
    /// Sequence number of the message.
    pub(super) message: u32,
    pub(super) flags: u16,
    /// The receiver's receive queue that the sender counted the message against.
    pub(super) queue: u16,
    /// Immediate data, or the key to invalidate.
    pub(super) word: u32,
    /// Length of the whole message and of this fragment, in bytes.
    pub(super) total: u32,
    pub(super) fragment: u32,
}

impl Header {
    pub(super) const FIRST: u16 = 1;
    pub(super) const LAST: u16 = 2;
    pub(super) const SOLICITED: u16 = 4;
    pub(super) const IMM: u16 = 8;
    pub(super) const INVALIDATE: u16 = 16;
    /// A WRITE with immediate data: the payload is in place already.
    pub(super) const WRITE: u16 = 32;

    #[inline]
    pub(super) fn bytes(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        let flags = u32::from(self.flags) | u32::from(self.queue) << 16;
        let words = [self.to_slot, self.to, self.from, self.message, flags, self.word, self.total, self.fragment];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_le_bytes()));
        bytes
    }
    #[inline]
    pub(super) fn parse(bytes: &[u8; HEADER as usize]) -> Self {
        let mut words = [0_u32; 8];
        words.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(word, chunk)| *word = u32::from_le_bytes(*chunk));
        let [to_slot, to, from, message, flags, word, total, fragment] = words;
        Self { to_slot, to, from, message, flags: flags as u16, queue: (flags >> 16) as u16, word, total, fragment }
    }
    #[inline]
    pub(super) const fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// Returns the length of a record in bytes: records are aligned to cache lines.
#[inline]
pub(super) fn record_len(fragment: u64) -> u64 {
    (HEADER + fragment).next_multiple_of(64)
}
