//! Statistics of several runs of one point.

use serde::Serialize;

/// Mean, standard deviation and extremes, as in the paper's figures 5 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for a single value.
    pub std: f64,
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
}

impl Spread {
    /// Computes the statistics of these values, or returns `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        // Welford's recurrence, which avoids the difference of two large sums.
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            count += 1.0;
            let off = value - mean;
            mean += off / count;
            squares += off * (value - mean);
            min = min.min(value);
            max = max.max(value);
        }
        let std = if count > 1.0 { f64::sqrt(squares / (count - 1.0)) } else { 0.0 };
        (count > 0.0).then_some(Self { mean, std, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_matches_the_textbook() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((spread.mean, spread.min, spread.max), (5.0, 2.0, 9.0));
        assert!((spread.std - f64::sqrt(32.0 / 7.0)).abs() < 1e-12, "{spread:?}");
    }

    #[test]
    fn spread_of_one_value_is_zero_and_of_none_is_none() {
        assert_eq!(Spread::of([3.0]), Some(Spread { mean: 3.0, std: 0.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn small_deviation_of_a_large_mean_is_kept() {
        let spread = Spread::of([1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]).unwrap();
        assert_eq!((spread.mean, spread.std), (1e9 + 2.0, 1.0));
    }
}
