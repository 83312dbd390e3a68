//! Counters that wrap on the wire, continued to 64 bits.

/// The 64-bit number nearest to `reference` whose low `bits` bits are `wire`. Ties go forward; the result
/// is never below zero.
pub fn unwrap(wire: u64, bits: u32, reference: u64) -> u64 {
    if bits >= 64 {
        return wire;
    }
    let modulus = 1_u64 << bits;
    let forward = wire.wrapping_sub(reference) & (modulus - 1);
    if forward <= modulus / 2 {
        reference.saturating_add(forward)
    } else {
        // Backwards; before the very first wrap there is nothing behind, so it can only be ahead.
        reference.checked_sub(modulus - forward).unwrap_or_else(|| reference.saturating_add(forward))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_continues_over_its_wrap_in_both_directions() {
        let m = 1_u64 << 20;
        assert_eq!(unwrap(0, 20, m - 1), m);
        assert_eq!(unwrap(m - 1, 20, m), m - 1);
        assert_eq!(unwrap(5, 20, 3 * m + 7), 3 * m + 5);
        assert_eq!(unwrap(7, 64, 1 << 40), 7);
        assert_eq!(unwrap(m - 1, 20, 0), m - 1);
    }
}
