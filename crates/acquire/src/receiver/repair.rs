//! Moves payloads that did not land in their destination.
//!
//! After a loss the packets of a batch are shifted: each landed in the destination of its predecessor. Moving them in
//! order would overwrite the next payload before it is moved. A payload therefore moves only when its destination holds
//! none that is still pending, which resolves a shift from its end, and a cycle of payloads is broken through the spare
//! memory.

use shotline_memory::{Regions, Sge};

/// A payload to move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// Where it landed.
    pub(crate) from: Sge,
    /// Its destination; at least as long.
    pub(crate) to: Sge,
}

/// Carries out all moves and empties `moves`. Destinations must be distinct, and so must be sources; `spare` holds one
/// payload. Returns the number of bytes copied.
pub(crate) fn carry_out(regions: &Regions, moves: &mut Vec<Move>, spare: Sge) -> u64 {
    let mut copied = 0;
    while !moves.is_empty() {
        let before = moves.len();
        let mut index = moves.len();
        while index > 0 {
            index -= 1;
            let candidate = moves[index];
            let blocked = moves.iter().enumerate().any(|(other, m)| other != index && overlap(m.from, candidate.to));
            if !blocked {
                regions.copy(candidate.from, candidate.to);
                copied += u64::from(candidate.from.len);
                moves.swap_remove(index);
                index = index.min(moves.len());
            }
        }
        if moves.len() == before {
            // Every destination is blocked by another payload: copying one to the spare memory unblocks its landing
            // place.
            let from = moves[0].from;
            let aside = Sge { len: from.len, ..spare };
            regions.copy(from, aside);
            copied += u64::from(from.len);
            moves[0].from = aside;
        }
    }
    copied
}

fn overlap(a: Sge, b: Sge) -> bool {
    a.region == b.region && a.offset < b.offset + u64::from(b.len) && b.offset < a.offset + u64::from(a.len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_memory::{Region, Registrar};

    const SLOT: u64 = 64;

    proptest! {
        #[test]
        fn any_permutation_or_shift_ends_with_payloads_in_place(
            (targets, keep) in Just((0_u64..12).collect::<Vec<_>>())
                .prop_shuffle()
                .prop_flat_map(|all| (Just(all), proptest::collection::vec(any::<bool>(), 12)))
        ) {
            let mut registrar = Registrar::new();
            let region = Region::host(4096).unwrap();
            let id = registrar.add(region.clone());
            let regions = registrar.finish();
            let slot = |index: u64| Sge { region: id, offset: index * SLOT, len: SLOT as u32 };
            for index in 0..12 {
                region.write((index * SLOT) as usize, &[index as u8; SLOT as usize]);
            }
            let wanted: Vec<(u64, u64)> =
                (0..12).zip(targets).filter(|(from, to)| keep[*from as usize] && from != to).collect();
            let mut moves = wanted.iter().map(|(from, to)| Move { from: slot(*from), to: slot(*to) }).collect();
            carry_out(&regions, &mut moves, slot(20));
            for (from, to) in wanted {
                let mut bytes = [0; SLOT as usize];
                region.read((to * SLOT) as usize, &mut bytes);
                prop_assert_eq!(bytes, [from as u8; SLOT as usize]);
            }
        }
    }
}
