//! Records of the ring: the header, and the bytes behind it.

/// Bytes of a record's header.
pub(super) const HEADER: u64 = 32;

/// What a record says of the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The line and the number of the queue pair that it is for, and the number of the one that sent it.
    pub(super) to_slot: u32,
    pub(super) to: u32,
    pub(super) from: u32,
    /// The message's number.
    pub(super) message: u32,
    pub(super) flags: u16,
    /// The receive queue of the receiver's that the sender counted it against.
    pub(super) queue: u16,
    /// Immediate data or the key to end.
    pub(super) word: u32,
    /// Bytes of the whole message, and of this part.
    pub(super) total: u32,
    pub(super) fragment: u32,
}

impl Header {
    pub(super) const FIRST: u16 = 1;
    pub(super) const LAST: u16 = 2;
    pub(super) const SOLICITED: u16 = 4;
    pub(super) const IMM: u16 = 8;
    pub(super) const INVALIDATE: u16 = 16;
    /// A WRITE with immediate data: the bytes are in place already.
    pub(super) const WRITE: u16 = 32;

    #[inline]
    pub(super) fn bytes(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        let flags = u32::from(self.flags) | u32::from(self.queue) << 16;
        let words = [self.to_slot, self.to, self.from, self.message, flags, self.word, self.total, self.fragment];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        bytes
    }
    #[inline]
    pub(super) fn parse(bytes: &[u8; HEADER as usize]) -> Self {
        let mut words = [0_u32; 8];
        words.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(word, at)| *word = u32::from_le_bytes(*at));
        let [to_slot, to, from, message, flags, word, total, fragment] = words;
        Self { to_slot, to, from, message, flags: flags as u16, queue: (flags >> 16) as u16, word, total, fragment }
    }
    #[inline]
    pub(super) const fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// Bytes of a record: records begin at multiples of a cache line.
#[inline]
pub(super) fn record_len(fragment: u64) -> u64 {
    (HEADER + fragment).next_multiple_of(64)
}
