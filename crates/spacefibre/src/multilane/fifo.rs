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
    first: u8,
    len: u8,
}

impl Fifo {
    pub(super) const fn new() -> Self {
        let entry = Entry { word: Word::RXERR, class: class::RXERR, crc_error: false };
        Self { entries: [entry.pack(); DEPTH], first: 0, len: 0 }
    }

    /// Appends a word, and returns `true`; returns `false` if the FIFO is full.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if usize::from(self.len) == DEPTH {
            return false;
        }
        self.entries[usize::from(self.first + self.len) % DEPTH] = entry.pack();
        self.len += 1;
        true
    }

    /// Returns the oldest word. If the FIFO is empty, it is an old one.
    #[inline]
    pub(super) fn head(&self) -> Entry {
        Entry::unpack(self.entries[usize::from(self.first) % DEPTH])
    }

    /// Removes the oldest word, if there is one, and returns `true` if none is left.
    #[inline]
    pub(super) fn pop(&mut self) -> bool {
        self.first = (self.first + 1) % DEPTH as u8;
        self.len = self.len.saturating_sub(1);
        self.len == 0
    }

    /// Removes all words.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}
