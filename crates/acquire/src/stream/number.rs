//! Unwraps counters on the wire to 64 bits.

/// Returns the 64-bit number nearest to `reference` whose low `bits` bits are `wire`. Ties are resolved forward; the
/// result is never below zero.
pub fn unwrap(wire: u64, bits: u32, reference: u64) -> u64 {
    if bits >= 64 {
        return wire;
    }
    let modulus = 1_u64 << bits;
    let forward = wire.wrapping_sub(reference) & (modulus - 1);
    if forward <= modulus / 2 {
        reference.saturating_add(forward)
    } else {
        // Backwards; before the first wrap there are no lower numbers, so it can only be ahead.
        reference.checked_sub(modulus - forward).unwrap_or_else(|| reference.saturating_add(forward))
    }
}

/// A shot in a ring of pages whose number is known: the reference for those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingReference {
    /// Number of the shot.
    pub number: u64,
    /// Sequence number of its first packet.
    pub first: u32,
}

impl RingReference {
    /// Returns the number of the shot in `page` whose first packet has the sequence number `first`: sequence numbers
    /// give the distance in shots, and the page corrects it where a shot was cut short. None before number 0.
    pub fn number_of(&self, page: u32, pages: u32, first: u32, bits: u32, packets: u32) -> Option<u64> {
        let unused = 32 - bits.clamp(1, 32);
        let packets_between = i64::from((first.wrapping_sub(self.first) << unused) as i32 >> unused);
        let packets = i64::from(packets.max(1));
        let shots_between = (packets_between + packets_between.signum() * packets / 2) / packets;
        let number = i64::try_from(self.number).ok()?;
        let about = number.checked_add(shots_between)?;
        let pages = i64::from(pages.max(1));
        let ahead = (i64::from(page) - about).rem_euclid(pages);
        let nearest = about.checked_add(if ahead > pages / 2 { ahead - pages } else { ahead })?;
        // All packets of a shot have the same first sequence number: a different one means a different shot, however
        // short it was.
        let distance = nearest.checked_sub(number)?;
        let turns = match packets_between.signum() {
            1 if distance <= 0 => 1 - distance / pages,
            -1 if distance >= 0 => -1 - distance / pages,
            _ => 0,
        };
        u64::try_from(nearest.checked_add(turns * pages)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_unwraps_in_both_directions() {
        let m = 1_u64 << 20;
        assert_eq!(unwrap(0, 20, m - 1), m);
        assert_eq!(unwrap(m - 1, 20, m), m - 1);
        assert_eq!(unwrap(5, 20, 3 * m + 7), 3 * m + 5);
        assert_eq!(unwrap(7, 64, 1 << 40), 7);
        assert_eq!(unwrap(m - 1, 20, 0), m - 1);
    }

    #[test]
    fn a_page_and_a_sequence_number_identify_a_shot() {
        let packets = 47;
        let ring = RingReference { number: 1002, first: 0xF_FFF0 };
        let at = |shots: i64, slip: i64| {
            let number = (1002 + shots) as u64;
            let first = (0xF_FFF0 + shots * i64::from(packets) + slip) & 0xF_FFFF;
            (number, ring.number_of((number % 4) as u32, 4, first as u32, 20, packets))
        };
        for shots in [-900, -3, -1, 0, 1, 2, 5, 1000, 10_000] {
            // Shots cut short between the two shift the sequence numbers by up to a page and a half.
            for slip in [0, -20, 20, -46, 40] {
                if shots == 0 && slip != 0 {
                    continue; // the packets of one shot have one first sequence number
                }
                let (number, found) = at(shots, slip);
                assert_eq!(found, Some(number), "{shots} shots, {slip} packets");
            }
        }
        assert_eq!(
            RingReference { number: 1, first: 47 }.number_of(3, 4, 47 * 1000, 20, 47),
            Some(999 + 4 - 999 % 4 + 3 - 4)
        );
        assert_eq!(RingReference { number: 0, first: 47 }.number_of(3, 4, 0, 20, 47), None, "before the first");
    }

    #[test]
    fn a_shot_after_a_short_one_is_distinct_in_any_ring() {
        for pages in [1, 2, 4] {
            let ring = RingReference { number: 100, first: 1000 };
            assert_eq!(ring.number_of(100 % pages, pages, 1000, 20, 47), Some(100), "its own packets");
            assert_eq!(ring.number_of(101 % pages, pages, 1010, 20, 47), Some(101), "{pages} pages");
            assert_eq!(ring.number_of(99 % pages, pages, 990, 20, 47), Some(99), "{pages} pages");
            assert_eq!(ring.number_of(100 % pages, pages, 1010, 20, 47), Some(100 + u64::from(pages)), "a whole turn");
        }
    }
}
