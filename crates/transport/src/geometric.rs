//! Distances between random events.

use shotline_random::SplitMix64;

/// Draws how many trials pass before the next event, which each trial is with probability `rate` (geometric
/// distribution): one random number per event instead of one per trial.
pub(crate) fn draw(random: &mut SplitMix64, rate: f64) -> u64 {
    let uniform = random.next_f64();
    if rate <= 0.0 {
        return u64::MAX;
    }
    ((-uniform).ln_1p() / (-rate.min(1.0)).ln_1p()) as u64 // a float cast saturates
}
