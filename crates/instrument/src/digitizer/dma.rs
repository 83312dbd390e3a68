//! The DMA engine and its scatter-gather lists.
//!
//! A driver describes on-board memory as pieces of any length and offset, in sample order; the payload areas of
//! prebuilt frames are pieces too. [`build_list`] splits both at each other's boundaries into copy entries. This is the
//! processor's work, and Ryoshi et al. measure it separately (25.5 Gbit/s without it, 20.7 Gbit/s with it).
//! [`Engine::run`] stands for the hardware.

use super::sys;
use shotline_memory::Region;
use shotline_random::SplitMix64;
use std::sync::Arc;

/// A contiguous range of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// One entry of a DMA list: a contiguous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the source.
    pub from: u64,
    /// Offset in the target.
    pub to: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Builds the list that copies the source pieces to the target pieces in order, up to the shorter total length.
/// Replaces the contents of `list` and reuses its capacity.
pub fn build_list(from: impl IntoIterator<Item = Piece>, to: impl IntoIterator<Item = Piece>, list: &mut Vec<Entry>) {
    const NONE: Piece = Piece { offset: 0, len: 0 };
    list.clear();
    let (mut sources, mut targets) = (from.into_iter(), to.into_iter());
    let (mut source, mut target) = (NONE, NONE);
    loop {
        while source.len == 0 {
            let Some(next) = sources.next() else { return };
            source = next;
        }
        while target.len == 0 {
            let Some(next) = targets.next() else { return };
            target = next;
        }
        let len = source.len.min(target.len);
        list.push(Entry { from: source.offset, to: target.offset, len });
        for piece in [&mut source, &mut target] {
            piece.offset += u64::from(len);
            piece.len -= len;
        }
    }
}

/// A DMA engine between two memories.
#[derive(Debug)]
pub struct Engine {
    from: Arc<Region>,
    to: Arc<Region>,
}

impl Engine {
    /// Creates an engine that reads one memory and writes another.
    pub fn new(from: Arc<Region>, to: Arc<Region>) -> Self {
        Self { from, to }
    }

    /// Executes a list. All copies are complete when this returns.
    ///
    /// # Panics
    /// If an entry is outside its memory; lists are built by this program and trusted.
    pub fn run(&self, list: &[Entry]) {
        for entry in list {
            sys::copy(&self.to, entry.to as usize, &self.from, entry.from as usize, entry.len as usize);
        }
        sys::fence();
    }
}

/// Length range of the pieces that [`scatter`] returns.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 1000..=32_768;

/// Splits `bytes` starting at `base` into pieces of irregular length and shuffles them, as fragmented on-board memory
/// would appear to a driver. The result is determined by the seed.
pub fn scatter(base: u64, bytes: u64, seed: u64) -> Vec<Piece> {
    let mut random = SplitMix64::new(seed);
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < bytes {
        let len = (PIECE_BYTES.start() + random.below(PIECE_BYTES.end() - PIECE_BYTES.start() + 1)).min(bytes - at);
        pieces.push(Piece { offset: base + at, len: len as u32 });
        at += len;
    }
    for index in (1..pieces.len()).rev() {
        pieces.swap(index, random.below(index as u64 + 1) as usize);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns shuffled pieces with these gaps and lengths, and the size of the memory that holds them.
    fn shuffled_pieces(lens: &[(u32, u32)], seed: u64) -> (Vec<Piece>, usize) {
        let mut at = 0;
        let mut pieces: Vec<Piece> = lens
            .iter()
            .map(|&(gap, len)| {
                let piece = Piece { offset: at + u64::from(gap), len };
                at = piece.offset + u64::from(len);
                piece
            })
            .collect();
        let mut random = SplitMix64::new(seed);
        for index in (1..pieces.len()).rev() {
            pieces.swap(index, random.below(index as u64 + 1) as usize);
        }
        (pieces, at as usize + 1)
    }

    fn gathered(memory: &[u8], pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| &memory[piece.offset as usize..][..piece.len as usize]).copied().collect()
    }

    proptest! {
        #[test]
        fn any_split_of_source_and_target_moves_each_byte_once(
            from in prop::collection::vec((0_u32..50, 0_u32..3000), 1..20),
            to in prop::collection::vec((0_u32..50, 0_u32..3000), 1..20), seed: u64,
        ) {
            let ((from, from_bytes), (to, to_bytes)) = (shuffled_pieces(&from, seed), shuffled_pieces(&to, !seed));
            let (source, target) = (Region::heap(from_bytes).unwrap(), Region::heap(to_bytes).unwrap());
            let mut random = SplitMix64::new(seed);
            let bytes: Vec<u8> = (0..from_bytes).map(|_| random.next_u64() as u8 | 1).collect();
            source.write(0, &bytes);
            let mut list = Vec::new();
            build_list(from.iter().copied(), to.iter().copied(), &mut list);
            Engine::new(source, Arc::clone(&target)).run(&list);
            let mut found = vec![0; to_bytes];
            target.read(0, &mut found);
            let (expected, mut landed) = (gathered(&bytes, &from), gathered(&found, &to));
            let moved = expected.len().min(landed.len());
            prop_assert_eq!(list.iter().map(|entry| entry.len as usize).sum::<usize>(), moved);
            prop_assert_eq!(&landed[..moved], &expected[..moved]);
            // No source byte is 0, so every non-zero target byte was written; none lies outside the list.
            landed.truncate(moved);
            prop_assert_eq!(found.iter().filter(|byte| **byte != 0).count(), moved);
        }

        #[test]
        fn scattered_pieces_tile_the_memory(bytes in 1_u64..2_000_000, base in 0_u64..1000, seed: u64) {
            let mut pieces = scatter(base, bytes, seed);
            prop_assert_eq!(&pieces, &scatter(base, bytes, seed));
            pieces.sort_by_key(|piece| piece.offset);
            let mut at = base;
            for piece in &pieces {
                prop_assert_eq!(piece.offset, at);
                at += u64::from(piece.len);
            }
            prop_assert_eq!(at, base + bytes);
        }
    }

    #[test]
    fn scattered_pieces_have_irregular_sizes_and_order() {
        let pieces = scatter(0, 64 << 20, 7);
        assert!(pieces.iter().filter(|piece| piece.len % 64 != 0).count() > pieces.len() / 2);
        assert!(pieces.windows(2).filter(|pair| pair[1].offset < pair[0].offset).count() > pieces.len() / 4);
    }
}
