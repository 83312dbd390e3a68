//! Ranges of shot numbers. Accounting stores ranges rather than numbers, so its memory does not grow with the length of
//! the recording.

/// Half-open range of shot numbers: first, end.
pub(crate) type ShotRange = (u64, u64);

/// Appends a number, extending the last range if it is adjacent.
pub(crate) fn push(ranges: &mut Vec<ShotRange>, number: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == number => last.1 = number.saturating_add(1),
        _ => ranges.push((number, number.saturating_add(1))),
    }
}

/// Returns the sorted union of ranges; adjacent ones are merged.
pub(crate) fn union(ranges: &[ShotRange]) -> Vec<ShotRange> {
    union_with_overlaps(ranges, |_| ())
}

/// Like [`union`]; calls `overlap` with the first number of each overlap.
pub(crate) fn union_with_overlaps(ranges: &[ShotRange], mut overlap: impl FnMut(u64)) -> Vec<ShotRange> {
    let mut sorted: Vec<ShotRange> = ranges.iter().copied().filter(|range| range.0 < range.1).collect();
    sorted.sort_unstable();
    let mut out: Vec<ShotRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match out.last_mut() {
            Some(last) if range.0 <= last.1 => {
                if range.0 < last.1 {
                    overlap(range.0);
                }
                last.1 = last.1.max(range.1);
            }
            _ => out.push(range),
        }
    }
    out
}

/// Returns the parts of a range that are in none of the others, which must be a [`union`].
pub(crate) fn minus(range: ShotRange, others: &[ShotRange]) -> Vec<ShotRange> {
    let (mut at, mut out) = (range.0, Vec::new());
    let begin = others.partition_point(|other| other.1 <= range.0);
    for other in others[begin..].iter().take_while(|other| other.0 < range.1) {
        if at < other.0 {
            out.push((at, other.0));
        }
        at = at.max(other.1);
    }
    if at < range.1 {
        out.push((at, range.1));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_removes_the_other_ranges() {
        let others = union(&[(5, 7), (20, 30), (7, 9), (40, 41), (3, 3)]);
        assert_eq!(others, [(5, 9), (20, 30), (40, 41)]);
        assert_eq!(minus((0, 50), &others), [(0, 5), (9, 20), (30, 40), (41, 50)]);
        assert_eq!(minus((6, 25), &others), [(9, 20)]);
        assert_eq!(minus((21, 29), &others), []);
        assert_eq!(minus((10, 12), &others), [(10, 12)]);
    }

    #[test]
    fn union_reports_overlaps_and_not_adjacent_ranges() {
        let mut overlaps = Vec::new();
        assert_eq!(union_with_overlaps(&[(0, 5), (5, 9), (8, 12)], |at| overlaps.push(at)), [(0, 12)]);
        assert_eq!(overlaps, [8]);
    }
}
