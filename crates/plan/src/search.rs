//! Search for the highest loss-free rate on a noisy machine.
//!
//! The threshold `t` is the rate up to which a trial passes (loses nothing) with probability `passing` or more, and
//! above which it passes with at most this probability, given any history. Nothing else is assumed: the transition may
//! be a step or a slope, and other load on the machine may spoil trials at any rate. The search is deterministic and
//! uses no sockets or clocks: the caller runs the trials at the rates from [`Search::next`] and passes their results to
//! [`Search::record`].
//!
//! The choice of rates does not affect the validity of the confidence interval.
//!
//! *A posterior* selects the rates: it covers `t` and several shapes of the transition (logistic in the logarithm of
//! the rate, several widths, several shares of spoilt trials). First it is bisected at its median, as in probabilistic
//! bisection (Burnashev and Zigangirov 1974; Waeber, Frazier and Henderson 2013). Then trials are run at the rates
//! nearest to the median on both sides that the remaining trials can rule out.
//!
//! *The confidence interval* uses testing by betting (Shafer 2021; Waudby-Smith and Ramdas 2024). Before a trial at a
//! rate `x`, the posterior predicts the probability `q` that it passes. If `q < passing`, this is a bet against every
//! `t >= x`, which implies `passing` or more at `x`: the wealth of the bets against them is multiplied by `q / passing`
//! if the trial passes, and by `(1 - q) / (1 - passing)` otherwise. If `q > passing`, it is the same bet against every
//! `t < x`. If such a `t` is the true threshold, the wealth is a supermartingale for any choice of rates and any
//! stopping rule, so it ever reaches `1 / (1 - confidence)` with probability at most `1 - confidence` (Ville 1939).
//! Each `t` for which it does is ruled out; the remaining interval contains the threshold with the stated confidence. A
//! wrong posterior makes the interval wide but not invalid.

/// Grid cells per requested precision.
const CELLS: usize = 5;
/// Transition widths in the posterior, in units of the precision.
const WIDTHS: [f64; 4] = [0.1, 0.6, 3.0, 12.0];
/// Shares of trials spoilt at any rate in the posterior, in units of twice `1 - passing`.
const SPOILT_SHARES: [f64; 3] = [0.01, 0.12, 0.35];
/// Probability in the posterior that a trial far above the threshold passes. Positive, so that no single trial is
/// conclusive.
const MIN_PASS_PROBABILITY: f64 = 0.01;
/// Share of the wealth that a bet never risks.
const RESERVE: f64 = 0.1;
/// Maximum share of the trials used for bisection.
const BISECTION_SHARE: f64 = 0.2;
/// Maximum cost of a pair of rates relative to the cheapest pair, to be nearer to the median.
const MAX_COST_RATIO: f64 = 1.5;
/// Minimum share of the trials for each side of the interval that is not yet ruled out.
const MIN_SIDE_SHARE: f64 = 0.25;
/// Relative posterior weight below which a cell is ignored in predictions.
const MIN_CELL_WEIGHT: f64 = 1e-12;

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchConfig {
    /// Lowest rate to try, in any unit.
    pub min_rate: f64,
    /// Highest rate to try, in the same unit.
    pub max_rate: f64,
    /// Target width of the interval relative to the rate.
    pub precision: f64,
    /// Probability that the interval contains the threshold.
    pub confidence: f64,
    /// Pass probability of a trial at the threshold.
    pub passing: f64,
    /// Maximum number of trials.
    pub trials: u32,
}

/// Estimate of the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Posterior median of the threshold, limited to the interval.
    pub rate: f64,
    /// Lower bound of the interval; `None` if the threshold may be below the lowest rate.
    pub low: Option<f64>,
    /// Upper bound of the interval; `None` if the threshold may be above the highest rate.
    pub high: Option<f64>,
    /// The interval has the requested precision.
    pub is_precise: bool,
}

/// A search. Cell `c` of the grid holds the rates from `x[c - 1]` up to `x[c]`; the first and the last cell are
/// unbounded. All thresholds in a cell predict the same for every trial, so the grid adds no error.
#[derive(Debug)]
pub struct Search {
    config: SearchConfig,
    /// Logarithms of the rates to try.
    x: Vec<f64>,
    /// Pass probability for each shape, by the number of cells from the tried rate up to the threshold.
    shapes: Vec<Vec<f64>>,
    /// Log likelihood for each shape and cell.
    likelihood: Vec<Vec<f64>>,
    /// Posterior probability for each shape and cell; cells outside `first..=last` are negligible.
    posterior: Vec<Vec<f64>>,
    first: usize,
    last: usize,
    median: usize,
    /// The central 80 % of the posterior is within twice the precision.
    is_localized: bool,
    /// Logarithm of the wealth of the bets against each cell, and its maximum so far.
    log_wealth: Vec<f64>,
    max_log_wealth: Vec<f64>,
    trials_made: u32,
}

impl Search {
    /// Starts a search.
    ///
    /// # Errors
    /// Describes the first invalid parameter.
    pub fn new(config: SearchConfig) -> Result<Self, String> {
        let SearchConfig { min_rate, max_rate, precision, confidence, passing, trials } = config;
        let within = |what, value: f64, low: f64, high: f64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(format!("expected {what} of {low} to {high}, found {value}")),
        };
        within("a precision", precision, 0.001, 0.5)?;
        within("a confidence", confidence, 0.5, 0.9999)?;
        within("a pass probability", passing, 0.1, 0.95)?;
        let is_wide = max_rate >= min_rate * (1.0 + 2.0 * precision) && max_rate / min_rate <= 1e6;
        if !(min_rate > 0.0 && max_rate.is_finite() && is_wide) {
            return Err(format!(
                "expected rates above 0 that span at least twice the precision and at most a factor of 1e6, found {min_rate} to {max_rate}"
            ));
        }
        if trials == 0 {
            return Err("expected at least 1 trial, found 0".into());
        }
        let step = (1.0 + precision).ln() / CELLS as f64;
        let rates = ((max_rate / min_rate).ln() / step).ceil() as usize + 1;
        let x = (0..rates).map(|index| min_rate.ln() + index as f64 * step).collect();
        let shapes: Vec<_> = WIDTHS
            .iter()
            .flat_map(|width| SPOILT_SHARES.map(|spoilt| (width * precision, spoilt * 2.0 * (1.0 - passing))))
            .map(|(width, spoilt)| shape(rates, step, width, spoilt, passing))
            .collect();
        let mut search = Self {
            config,
            x,
            likelihood: vec![vec![0.0; rates + 1]; shapes.len()],
            posterior: vec![vec![0.0; rates + 1]; shapes.len()],
            shapes,
            first: 0,
            last: rates,
            median: 0,
            is_localized: false,
            log_wealth: vec![0.0; rates + 1],
            max_log_wealth: vec![0.0; rates + 1],
            trials_made: 0,
        };
        search.update_posterior();
        Ok(search)
    }

    /// Returns the number of trials made.
    pub fn trials_made(&self) -> u32 {
        self.trials_made
    }

    /// Returns the rate to try next, or `None` once the precision is reached or all trials have been made.
    pub fn next(&self) -> Option<f64> {
        if self.trials_made >= self.config.trials || self.is_narrow() {
            return None;
        }
        let bisect =
            !self.is_localized && f64::from(self.trials_made) < BISECTION_SHARE * f64::from(self.config.trials);
        let index = if bisect { None } else { self.rate_to_rule_out() };
        Some(self.x[index.unwrap_or_else(|| self.median_neighbour())].exp())
    }

    /// Records the result of a trial at a rate from [`Self::next`].
    pub fn record(&mut self, rate: f64, passed: bool) {
        let step = self.x[1] - self.x[0];
        let index = (((rate.ln() - self.x[0]) / step).round().max(0.0) as usize).min(self.x.len() - 1);
        self.trials_made += 1;
        let (q, p) = (self.forecast(index), self.config.passing);
        let bet = q.clamp(RESERVE * p, 1.0 - RESERVE * (1.0 - p));
        let gain = if passed { bet / p } else { (1.0 - bet) / (1.0 - p) }.ln();
        let against = if q < p { index + 1..self.x.len() + 1 } else { 0..index + 1 };
        for cell in against {
            self.log_wealth[cell] += gain;
            self.max_log_wealth[cell] = self.max_log_wealth[cell].max(self.log_wealth[cell]);
        }
        for (likelihood, shape) in self.likelihood.iter_mut().zip(&self.shapes) {
            let shifted = &shape[self.x.len() - 1 - index..];
            for (value, pass) in likelihood.iter_mut().zip(shifted) {
                *value += if passed { pass.ln() } else { (1.0 - pass).ln() };
            }
        }
        self.update_posterior();
    }

    /// Returns the current estimate.
    pub fn estimate(&self) -> Estimate {
        let (low, high) = self.interval();
        let (low_rate, high_rate) = (low.checked_sub(1).map(|index| self.x[index]), self.x.get(high).copied());
        // The middle of the median cell, or of the nearest cell of the interval.
        let cell = self.median.clamp(low, high);
        let middle = (self.x[cell.saturating_sub(1)] + self.x[cell.min(self.x.len() - 1)]) / 2.0;
        Estimate {
            rate: middle.exp(),
            low: low_rate.map(f64::exp),
            high: high_rate.map(f64::exp),
            is_precise: self.is_narrow(),
        }
    }

    /// Returns the first and the last cell that are not ruled out.
    fn interval(&self) -> (usize, usize) {
        let limit = -(1.0 - self.config.confidence).ln();
        let open = |wealth: &f64| *wealth < limit;
        match (self.max_log_wealth.iter().position(open), self.max_log_wealth.iter().rposition(open)) {
            (Some(first), Some(last)) => (first, last),
            // Every rate is ruled out, which happens with at most the allowed error probability.
            _ => (self.median, self.median),
        }
    }

    fn is_narrow(&self) -> bool {
        let (low, high) = self.interval();
        let is_unbounded = low == 0 || high == self.x.len();
        // An unbounded cell cannot be narrowed further once all other cells are ruled out.
        if is_unbounded { low == high } else { high - low < CELLS }
    }

    /// Normalises the likelihoods to a posterior and updates its quantiles.
    fn update_posterior(&mut self) {
        let best = self.likelihood.iter().flatten().fold(f64::NEG_INFINITY, |best, value| best.max(*value));
        let mut cells = vec![0.0; self.x.len() + 1];
        for (posterior, likelihood) in self.posterior.iter_mut().zip(&self.likelihood) {
            for ((weight, likelihood), cell) in posterior.iter_mut().zip(likelihood).zip(&mut cells) {
                *weight = (likelihood - best).exp();
                *cell += *weight;
            }
        }
        let total: f64 = cells.iter().sum();
        self.posterior.iter_mut().flatten().for_each(|weight| *weight /= total);
        let quantile = |part: f64| {
            let mut left = part * total;
            let found = cells.iter().position(|cell| {
                left -= cell;
                left <= 0.0
            });
            found.unwrap_or(cells.len() - 1)
        };
        self.median = quantile(0.5);
        self.is_localized = quantile(0.9) - quantile(0.1) <= 2 * CELLS;
        let matters = |cell: &f64| *cell > MIN_CELL_WEIGHT * total;
        self.first = cells.iter().position(matters).unwrap_or(0);
        self.last = cells.iter().rposition(matters).unwrap_or(cells.len() - 1);
    }

    /// Returns the predicted probability that a trial at this rate passes.
    fn forecast(&self, index: usize) -> f64 {
        let shift = self.x.len() - 1 - index;
        let product = |(posterior, shape): (&Vec<f64>, &Vec<f64>)| -> f64 {
            let shifted = &shape[shift + self.first..];
            posterior[self.first..=self.last].iter().zip(shifted).map(|(weight, pass)| weight * pass).sum()
        };
        self.posterior.iter().zip(&self.shapes).map(product).sum::<f64>().clamp(1e-9, 1.0 - 1e-9)
    }

    /// Returns the rate below the median cell and the one above it alternately.
    fn median_neighbour(&self) -> usize {
        let (low, high) = self.interval();
        let index = self.median.clamp(low, high).saturating_sub((self.trials_made % 2) as usize);
        index.min(self.x.len() - 1)
    }

    /// Returns a rate on one side of the median. The candidates are the nearest pair that the remaining trials can rule
    /// out or, if there is none, the nearest pair that costs little more than the cheapest.
    fn rate_to_rule_out(&self) -> Option<usize> {
        let left = f64::from(self.config.trials - self.trials_made);
        let offsets = std::iter::successors(Some(CELLS / 2), |offset| Some(offset + 1 + offset / 4));
        let pairs: Vec<[Side; 2]> = offsets
            .take_while(|offset| *offset <= self.x.len())
            .map(|offset| [self.above(offset), self.below(offset)])
            .take_while(|sides| sides.iter().any(|side| side.index.is_some()))
            .collect();
        let cost = |sides: &[Side; 2]| sides[0].trials + sides[1].trials;
        let cheapest = pairs.iter().map(cost).fold(f64::INFINITY, f64::min);
        let affordable = |sides: &&[Side; 2]| cost(sides) <= left.max(MAX_COST_RATIO * cheapest);
        let [above, below] = pairs.iter().find(affordable)?;
        // Sides alternate in proportion to their cost, spread by the golden ratio; each gets a minimum share.
        let turn = (f64::from(self.trials_made) * 0.618_033_988_75).fract();
        let share = (above.trials / (above.trials + below.trials)).clamp(MIN_SIDE_SHARE, 1.0 - MIN_SIDE_SHARE);
        let [first, second] = if turn < share { [above, below] } else { [below, above] };
        first.index.or(second.index)
    }

    /// Returns the cost of ruling out all thresholds above the rate `offset` cells above the median.
    fn above(&self, offset: usize) -> Side {
        let (low, high) = self.interval();
        let index = self.median.clamp(low, high) + offset;
        if index >= high {
            return Side::DONE;
        }
        let (q, p) = (self.forecast(index), self.config.passing);
        if q < p { self.side(index, q, index + 1..=high) } else { Side::unprovable(index) }
    }

    /// Returns the cost of ruling out all thresholds up to the rate `offset` cells below the median.
    fn below(&self, offset: usize) -> Side {
        let (low, high) = self.interval();
        let index = match self.median.clamp(low, high).checked_sub(1 + offset) {
            Some(index) if index >= low => index,
            _ => return Side::DONE,
        };
        let (q, p) = (self.forecast(index), self.config.passing);
        if q > p { self.side(index, q, low..=index) } else { Side::unprovable(index) }
    }

    fn side(&self, index: usize, q: f64, cells: std::ops::RangeInclusive<usize>) -> Side {
        let p = self.config.passing;
        let limit = -(1.0 - self.config.confidence).ln();
        let wealth = self.log_wealth[cells].iter().fold(f64::INFINITY, |min, value| min.min(*value));
        // Expected gain per trial: the Kullback-Leibler divergence of the prediction from the bound.
        let gain = q * (q / p).ln() + (1.0 - q) * ((1.0 - q) / (1.0 - p)).ln();
        Side { index: Some(index), trials: (limit - wealth).max(0.05) / gain.max(1e-12) }
    }
}

/// Cost of ruling out one side of the interval.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// Index of the rate to try; `None` if the side has been ruled out.
    index: Option<usize>,
    /// Expected number of trials.
    trials: f64,
}

impl Side {
    const DONE: Self = Self { index: None, trials: 0.0 };
    fn unprovable(index: usize) -> Self {
        Self { index: Some(index), trials: 1e9 }
    }
}

/// Returns the pass probability by the distance in cells from the tried rate up to the threshold, from minus to plus
/// the length of the grid. It equals `passing` at the threshold.
fn shape(rates: usize, step: f64, width: f64, spoilt: f64, passing: f64) -> Vec<f64> {
    let span = 1.0 - spoilt - MIN_PASS_PROBABILITY;
    let at_threshold = ((passing - MIN_PASS_PROBABILITY) / span).clamp(1e-3, 1.0 - 1e-3);
    let offset = (at_threshold / (1.0 - at_threshold)).ln();
    (0..=2 * rates)
        .map(|index| {
            let above = (index as f64 - rates as f64 + 0.5) * step;
            MIN_PASS_PROBABILITY + span / (1.0 + (-above / width - offset).exp())
        })
        .collect()
}

#[cfg(test)]
mod tests;
