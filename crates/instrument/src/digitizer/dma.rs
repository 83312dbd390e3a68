//! The DMA engine: what a driver hands over, made into a list, and the list carried out.
//!
//! A driver knows on-board memory as pieces of any length at any place, in the order of the samples. The payload areas of
//! prebuilt frames are pieces, too. [`build_list`] cuts the two against each other; that is the processor's work, and
//! the paper measures it apart (25.5 Gbit/s without it, 20.7 with it). [`Engine::run`] is the hardware.

use super::sys;
use shotline_memory::Region;
use shotline_random::SplitMix64;
use std::sync::Arc;

/// Some bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u32,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the source.
    pub from: u64,
    /// Offset in the target.
    pub to: u64,
    /// Bytes.
    pub len: u32,
}

/// Cuts the pieces of a source against those of a target: as many bytes as both have, in order. The list is made anew in
/// `list`, whose room is used again.
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

/// The engine between two memories.
#[derive(Debug)]
pub struct Engine {
    from: Arc<Region>,
    to: Arc<Region>,
}

impl Engine {
    /// An engine that reads one memory and writes another.
    pub fn new(from: Arc<Region>, to: Arc<Region>) -> Self {
        Self { from, to }
    }

    /// Carries a list out. When this returns, the bytes are where they should be.
    ///
    /// # Panics
    /// For an entry outside its memory: lists are this program's own.
    pub fn run(&self, list: &[Entry]) {
        for entry in list {
            sys::copy(&self.to, entry.to as usize, &self.from, entry.from as usize, entry.len as usize);
        }
        sys::fence();
    }
}

/// Shortest and longest piece that [`scatter`] makes.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 1000..=32_768;

/// Cuts `bytes` from `base` on into pieces of odd lengths and shuffles them: what a driver hands over when on-board
/// memory has been in use for a while. The same seed cuts the same way.
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

    /// Pieces of such lengths with gaps between them, in an order of their own, and the bytes that they span.
    fn laid(lens: &[(u32, u32)], seed: u64) -> (Vec<Piece>, usize) {
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
        fn any_cut_of_source_and_target_moves_each_byte_once(
            from in prop::collection::vec((0_u32..50, 0_u32..3000), 1..20),
            to in prop::collection::vec((0_u32..50, 0_u32..3000), 1..20), seed: u64,
        ) {
            let ((from, from_bytes), (to, to_bytes)) = (laid(&from, seed), laid(&to, !seed));
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
            // No source byte is 0: what is not 0 in the target was written, and only places of the list were.
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
    fn scattered_pieces_are_odd_sized_and_out_of_order() {
        let pieces = scatter(0, 64 << 20, 7);
        assert!(pieces.iter().filter(|piece| piece.len % 64 != 0).count() > pieces.len() / 2);
        assert!(pieces.windows(2).filter(|pair| pair[1].offset < pair[0].offset).count() > pieces.len() / 4);
    }
}
