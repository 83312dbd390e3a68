//! Alignment FIFO of one lane (5.6.6.4a).

use shotline_wire::spacefibre::Word;

/// Words of an alignment FIFO.
pub(super) const DEPTH: usize = 4;

/// Classes of words in a row, as bits: a row's are those of its words together.
pub(super) mod class {
    /// Data word.
    pub(crate) const DATA: u8 = 1 << 0;
    /// PAD.
    pub(crate) const PAD: u8 = 1 << 1;
    /// Control word of the data link layer, or an unknown one.
    pub(crate) const CONTROL: u8 = 1 << 2;
    /// ACTIVE.
    pub(crate) const ACTIVE: u8 = 1 << 3;
    /// ALIGN that is not valid.
    pub(crate) const ALIGN: u8 = 1 << 4;
    /// Valid ALIGN: it waits at the output for those of the other lanes.
    pub(crate) const MARK: u8 = 1 << 5;
    /// RXERR.
    pub(crate) const RXERR: u8 = 1 << 6;
}

/// Word of an alignment FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The word, unscrambled.
    pub(super) word: Word,
    /// One of [`class`].
    pub(super) class: u8,
    /// An EDF whose CRC-16 failed.
    pub(super) crc_error: bool,
}

impl Entry {
    /// Returns the entry as one number, which is copied at once: characters, K flags, class, CRC error.
    #[inline]
    const fn pack(self) -> u64 {
        let Self { word: Word { characters, control }, class, crc_error } = self;
        u32::from_le_bytes(characters) as u64 | (control as u64) << 32 | (class as u64) << 40 | (crc_error as u64) << 48
    }

    #[inline]
    const fn unpack(packed: u64) -> Self {
        let word = Word { characters: (packed as u32).to_le_bytes(), control: (packed >> 32) as u8 };
        Self { word, class: (packed >> 40) as u8, crc_error: packed >> 48 != 0 }
    }
}

/// Alignment FIFO.
#[derive(Clone, Debug)]
pub(super) struct Fifo {
    /// Packed entries.
    entries: [u64; DEPTH],
    /// Words written and read, modulo 256.
    written: u8,
    read: u8,
}

impl Fifo {
    pub(super) const fn new() -> Self {
        Self { entries: [0; DEPTH], written: 0, read: 0 }
    }

    /// Appends a word, and returns `true`; returns `false` if the FIFO is full.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        let has_space = usize::from(self.written.wrapping_sub(self.read)) < DEPTH;
        if has_space {
            self.entries[usize::from(self.written) % DEPTH] = entry.pack();
            self.written = self.written.wrapping_add(1);
        }
        has_space
    }

    /// Returns the oldest word, or `None` if there is none.
    #[inline]
    pub(super) fn head(&self) -> Option<Entry> {
        (self.written != self.read).then(|| Entry::unpack(self.entries[usize::from(self.read) % DEPTH]))
    }

    /// Removes the oldest word. There must be one.
    #[inline]
    pub(super) fn pop(&mut self) {
        debug_assert!(self.written != self.read);
        self.read = self.read.wrapping_add(1);
    }

    /// Removes and returns the oldest word.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Entry> {
        let head = self.head()?;
        self.pop();
        Some(head)
    }

    /// Takes back the last [`Self::take`] that returned a word, if nothing was appended since.
    pub(super) fn untake(&mut self) {
        self.read = self.read.wrapping_sub(1);
    }

    /// Removes all words.
    pub(super) fn clear(&mut self) {
        self.read = self.written;
    }
}
