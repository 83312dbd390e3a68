//! The order of a part's rows: its files take turns.
//!
//! Row `i` of a part of `n` files goes to file `i mod n`. A file that fails has fewer rows than its turn asks for;
//! those behind it close up. So a part is one stretch of rows in which all its files take turns, then perhaps a
//! shorter one in which some do.

/// Rows of a part, in which some of its files take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first row, counted from the part's.
    pub first: u64,
    /// The first row of each file.
    pub from: u64,
    /// Rows of each file.
    pub each: u64,
    /// The files, in the order of their turns.
    pub files: Vec<usize>,
}

impl Stretch {
    /// Rows of it.
    pub fn rows(&self) -> u64 {
        self.each * self.files.len() as u64
    }
    /// The file and its row that hold a row of the part, which must be in this stretch.
    pub fn place(&self, row: u64) -> (usize, u64) {
        let (at, files) = (row - self.first, self.files.len() as u64);
        (self.files[(at % files) as usize], self.from + at / files)
    }
}

/// The stretches of a part whose files have so many rows.
pub fn stretches(rows: &[u64]) -> Vec<Stretch> {
    let mut ends = rows.to_vec();
    ends.sort_unstable();
    ends.dedup();
    let (mut out, mut from, mut first) = (Vec::new(), 0, 0);
    for end in ends.into_iter().filter(|end| *end > 0) {
        let files: Vec<usize> = (0..rows.len()).filter(|file| rows[*file] >= end).collect();
        let stretch = Stretch { first, from, each: end - from, files };
        (from, first) = (end, first + stretch.rows());
        out.push(stretch);
    }
    out
}

/// Rows of a part that broke off, up to the first one that is not there: `rows` are those of each file.
pub fn unbroken(rows: &[u64]) -> u64 {
    let files = rows.len() as u64;
    (0..).zip(rows).map(|(file, rows)| rows * files + file).min().unwrap_or(0)
}

/// Rows of each file of a part, up to the first one that is not there: `listed` are those that each should have, `seen`
/// those that it has.
pub fn there(listed: &[u64], seen: &[u64]) -> Vec<u64> {
    let part = stretches(listed);
    let missing = part.iter().flat_map(|stretch| {
        let files = stretch.files.len() as u64;
        let short = (0..).zip(&stretch.files).filter(|(_, file)| seen[**file] < stretch.from + stretch.each);
        short.map(move |(turn, file)| stretch.first + seen[*file].saturating_sub(stretch.from) * files + turn)
    });
    let end = missing.min().unwrap_or(u64::MAX);
    let mut rows = vec![0; listed.len()];
    for stretch in &part {
        let taken = end.saturating_sub(stretch.first).min(stretch.rows());
        for (turn, file) in (0..).zip(&stretch.files) {
            rows[*file] += share(taken, turn, stretch.files.len() as u64);
        }
    }
    rows
}

/// Of so many rows of a part, those that a file has.
pub fn share(rows: u64, file: u64, files: u64) -> u64 {
    (rows + files - 1 - file) / files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_that_failed_early_leaves_the_turns_to_the_others() {
        let part = stretches(&[5, 2, 5]);
        assert_eq!(part.iter().map(Stretch::rows).sum::<u64>(), 12);
        let places: Vec<_> =
            part.iter().flat_map(|s| (s.first..s.first + s.rows()).map(move |row| s.place(row))).collect();
        let (whole, rest) = places.split_at(6);
        assert_eq!(whole, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
        assert_eq!(rest, [(0, 2), (2, 2), (0, 3), (2, 3), (0, 4), (2, 4)]);
    }

    #[test]
    fn rows_behind_one_that_is_gone_do_not_count() {
        assert_eq!(there(&[5, 2, 5], &[5, 2, 5]), [5, 2, 5]);
        assert_eq!(there(&[5, 2, 5], &[5, 2, 9]), [5, 2, 5]);
        assert_eq!(there(&[5, 2, 5], &[5, 2, 3]), [4, 2, 3]);
        assert_eq!(there(&[5, 2, 5], &[5, 1, 5]), [2, 1, 1]);
        assert_eq!(there(&[5], &[3]), [3]);
    }

    proptest! {
        #[test]
        fn rows_that_took_turns_are_all_found_in_their_order(rows in 0_u64..60, files in 1_u64..6) {
            let shares: Vec<u64> = (0..files).map(|file| share(rows, file, files)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), rows);
            prop_assert_eq!(unbroken(&shares), rows);
            let part = stretches(&shares);
            let places: Vec<_> =
                part.iter().flat_map(|s| (s.first..s.first + s.rows()).map(move |row| s.place(row))).collect();
            let expected: Vec<_> = (0..rows).map(|row| ((row % files) as usize, row / files)).collect();
            prop_assert_eq!(places, expected);
        }

        #[test]
        fn a_part_that_broke_off_is_read_up_to_its_first_gap(seen in proptest::collection::vec(0_u64..9, 1..5)) {
            let files = seen.len() as u64;
            let there = |row: u64| row / files < seen[(row % files) as usize];
            let rows = unbroken(&seen);
            prop_assert!((0..rows).all(there) && !there(rows));
        }
    }
}
