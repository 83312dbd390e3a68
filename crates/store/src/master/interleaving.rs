//! Order of the rows of a part, which are interleaved over its files.
//!
//! Row `i` of a part of `n` files goes to file `i mod n`. A file whose drive failed has fewer rows, and the remaining
//! rows are interleaved over the other files. So a part is a stretch of rows over all files, possibly followed by
//! stretches over fewer files.

/// Consecutive rows of a part that are interleaved over the same files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First row, relative to the part.
    pub first: u64,
    /// First row in each file.
    pub first_in_file: u64,
    /// Number of rows in each file.
    pub rows_per_file: u64,
    /// Files in interleaving order.
    pub files: Vec<usize>,
}

impl Stretch {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows_per_file * self.files.len() as u64
    }
    /// Returns the file, and the row in it, of a row of the part, which must be in this stretch.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        let (at, files) = (row - self.first, self.files.len() as u64);
        (self.files[(at % files) as usize], self.first_in_file + at / files)
    }
}

/// Returns the stretches of a part, given the number of rows of each file.
pub fn stretches(rows: &[u64]) -> Vec<Stretch> {
    let mut ends = rows.to_vec();
    ends.sort_unstable();
    ends.dedup();
    let (mut out, mut first_in_file, mut first) = (Vec::new(), 0, 0);
    for end in ends.into_iter().filter(|end| *end > 0) {
        let files: Vec<usize> = (0..rows.len()).filter(|file| rows[*file] >= end).collect();
        let stretch = Stretch { first, first_in_file, rows_per_file: end - first_in_file, files };
        (first_in_file, first) = (end, first + stretch.rows());
        out.push(stretch);
    }
    out
}

/// Returns the number of rows before the first gap in an interrupted part, given the number of rows of each file.
pub fn rows_before_gap(rows: &[u64]) -> u64 {
    let files = rows.len() as u64;
    (0..).zip(rows).map(|(file, rows)| rows * files + file).min().unwrap_or(0)
}

/// Returns the number of rows of each file before the first gap of a part: `listed` is the expected number of each
/// file, `seen` the number found.
pub fn file_rows_before_gap(listed: &[u64], seen: &[u64]) -> Vec<u64> {
    let part = stretches(listed);
    let missing = part.iter().flat_map(|stretch| {
        let files = stretch.files.len() as u64;
        let short =
            (0..).zip(&stretch.files).filter(|(_, file)| seen[**file] < stretch.first_in_file + stretch.rows_per_file);
        short.map(move |(turn, file)| stretch.first + seen[*file].saturating_sub(stretch.first_in_file) * files + turn)
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

/// Returns the number of rows that file number `file` of `files` holds of `rows` interleaved rows.
pub fn share(rows: u64, file: u64, files: u64) -> u64 {
    (rows + files - 1 - file) / files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_after_a_failed_file_use_the_other_files() {
        let part = stretches(&[5, 2, 5]);
        assert_eq!(part.iter().map(Stretch::rows).sum::<u64>(), 12);
        let places: Vec<_> =
            part.iter().flat_map(|s| (s.first..s.first + s.rows()).map(move |row| s.locate(row))).collect();
        let (whole, rest) = places.split_at(6);
        assert_eq!(whole, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
        assert_eq!(rest, [(0, 2), (2, 2), (0, 3), (2, 3), (0, 4), (2, 4)]);
    }

    #[test]
    fn rows_after_a_gap_do_not_count() {
        assert_eq!(file_rows_before_gap(&[5, 2, 5], &[5, 2, 5]), [5, 2, 5]);
        assert_eq!(file_rows_before_gap(&[5, 2, 5], &[5, 2, 9]), [5, 2, 5]);
        assert_eq!(file_rows_before_gap(&[5, 2, 5], &[5, 2, 3]), [4, 2, 3]);
        assert_eq!(file_rows_before_gap(&[5, 2, 5], &[5, 1, 5]), [2, 1, 1]);
        assert_eq!(file_rows_before_gap(&[5], &[3]), [3]);
    }

    proptest! {
        #[test]
        fn interleaved_rows_are_found_in_order(rows in 0_u64..60, files in 1_u64..6) {
            let shares: Vec<u64> = (0..files).map(|file| share(rows, file, files)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), rows);
            prop_assert_eq!(rows_before_gap(&shares), rows);
            let part = stretches(&shares);
            let places: Vec<_> =
                part.iter().flat_map(|s| (s.first..s.first + s.rows()).map(move |row| s.locate(row))).collect();
            let expected: Vec<_> = (0..rows).map(|row| ((row % files) as usize, row / files)).collect();
            prop_assert_eq!(places, expected);
        }

        #[test]
        fn interrupted_part_is_read_up_to_the_first_gap(seen in proptest::collection::vec(0_u64..9, 1..5)) {
            let files = seen.len() as u64;
            let exists = |row: u64| row / files < seen[(row % files) as usize];
            let rows = rows_before_gap(&seen);
            prop_assert!((0..rows).all(exists) && !exists(rows));
        }
    }
}
