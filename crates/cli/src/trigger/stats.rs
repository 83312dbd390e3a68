//! Quantiles and histograms of times.

use serde::Serialize;

/// Number of bins per decade.
const STEPS: i32 = 10;
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Quantiles by the nearest rank, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub count: usize,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
    pub mean: f64,
}

impl Quantiles {
    /// Computes the quantiles of nanoseconds, or returns `None` without any.
    pub fn of(mut ns: Vec<u64>) -> Option<Self> {
        ns.sort_unstable();
        let (min, max) = (*ns.first()?, *ns.last()?);
        let us = |ns: u64| ns as f64 / 1e3;
        let nearest = |q: f64| {
            let rank = (q * ns.len() as f64).ceil() as usize;
            us(ns.get(rank.saturating_sub(1)).copied().unwrap_or(max))
        };
        Some(Self {
            count: ns.len(),
            min: us(min),
            p50: nearest(0.5),
            p90: nearest(0.9),
            p99: nearest(0.99),
            p999: nearest(0.999),
            max: us(max),
            mean: us(ns.iter().sum::<u64>() / ns.len() as u64),
        })
    }
}

/// Number of times within a tenth of a decade.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    #[serde(skip)]
    step: i32,
    pub from_us: f64,
    pub to_us: f64,
    pub count: u64,
}

/// Returns the non-empty bins, in ascending order.
pub fn histogram(ns: &[u64]) -> Vec<Bin> {
    let mut steps: Vec<_> = ns.iter().map(|ns| step(*ns)).collect();
    steps.sort_unstable();
    let bin = |steps: &[i32]| Bin {
        step: steps[0],
        from_us: start_us(steps[0]),
        to_us: start_us(steps[0] + 1),
        count: steps.len() as u64,
    };
    steps.chunk_by(|a, b| a == b).map(bin).collect()
}

fn step(ns: u64) -> i32 {
    // The offset keeps rounding from putting the start of a bin into the one before.
    ((ns.max(1) as f64 / 1e3).log10() * f64::from(STEPS) + 1e-9).floor() as i32
}

fn start_us(step: i32) -> f64 {
    let exact = 10_f64.powf(f64::from(step) / f64::from(STEPS));
    // Rounded as usual: 1, 1.26, 1.58, 2, ...
    let digits = 10_f64.powi(2 - step.div_euclid(STEPS));
    (exact * digits).round() / digits
}

/// Draws named histograms below each other on one axis of time, or returns `None` if all are empty.
pub fn draw(histograms: &[(String, &[Bin])]) -> Option<Vec<String>> {
    let steps = || histograms.iter().flat_map(|(_, bins)| bins.iter().map(|bin| bin.step));
    let (first, last) = (steps().min()?.div_euclid(STEPS) * STEPS, steps().max()?);
    let max_count = histograms.iter().flat_map(|(_, bins)| bins.iter().map(|bin| bin.count)).max()?;
    let width = histograms.iter().map(|(name, _)| name.len()).max()?;
    let mut axis = String::new();
    for decade in (first..=last).step_by(STEPS as usize) {
        axis.push_str(&format!("|{:<9}", label(start_us(decade))));
    }
    let mut lines = vec![format!("{:width$}  {}", "", axis.trim_end())];
    for (name, bins) in histograms {
        let height = |step: i32| match bins.iter().find(|bin| bin.step == step) {
            None => ' ',
            Some(bin) => {
                let share = (bin.count as f64).ln_1p() / (max_count as f64).ln_1p();
                HEIGHTS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
            }
        };
        let bars: String = (first..=last).map(height).collect();
        lines.push(format!("{name:>width$}  {}", bars.trim_end()));
    }
    Some(lines)
}

fn label(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let q = Quantiles::of((1..=1000).rev().map(|us| us * 1000).collect()).unwrap();
        assert_eq!(
            (q.count, q.min, q.p50, q.p90, q.p99, q.p999, q.max),
            (1000, 1.0, 500.0, 900.0, 990.0, 999.0, 1000.0)
        );
        assert_eq!(q.mean, 500.5);
        let one = Quantiles::of(vec![2500]).unwrap();
        assert_eq!((one.min, one.p50, one.p999, one.max), (2.5, 2.5, 2.5, 2.5));
        assert_eq!(Quantiles::of(Vec::new()), None);
    }

    #[test]
    fn every_time_is_within_its_bin() {
        let times: Vec<u64> = (0..4000).map(|i| 1000 + i * i).collect();
        let bins = histogram(&times);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 4000);
        for bin in &bins {
            let inside =
                times.iter().filter(|ns| (bin.from_us..bin.to_us).contains(&(**ns as f64 / 1e3))).count() as u64;
            assert!(inside.abs_diff(bin.count) <= 10, "{bin:?} holds {inside}"); // bounds are rounded
        }
        assert!(bins.windows(2).all(|pair| pair[0].to_us <= pair[1].from_us));
        assert_eq!(histogram(&[10_000])[0].from_us, 10.0);
        assert_eq!(histogram(&[0])[0].count, 1);
    }

    #[test]
    fn histograms_share_one_axis() {
        let (low, high) = (histogram(&[10_000; 100]), histogram(&[1_000_000, 1_300_000]));
        let lines = draw(&[("a".into(), &low), ("bb".into(), &high), ("c".into(), &[])]).unwrap();
        assert_eq!(lines[0], "    |10 us    |100 us   |1 ms");
        assert_eq!(lines[1], " a  █");
        assert_eq!(lines[2], format!("bb  {}▂▂", " ".repeat(20)));
        assert_eq!(lines[3], " c  ");
        assert_eq!(draw(&[("a".into(), &[])]), None);
    }
}
