//! The highest loss-free rate, found on a machine that is not always the same.
//!
//! Sought is the rate `t` up to which a trial passes (loses nothing) with probability `passing` or more, and above
//! which it passes with this probability or less, whatever happened before. Nothing else is assumed: the fall may
//! be a step or a slope, and trials may be spoilt at any rate by what else the machine does. There is no socket, no
//! clock and no chance in here: the caller makes the trials, [`Search::next`] says at which rate, [`Search::tell`]
//! takes the result.
//!
//! Two things are kept apart.
//!
//! *A belief* says where to look: a posterior over `t` and over a few shapes of the fall (logistic in the logarithm
//! of the rate, several widths, several shares of spoilt trials). First it is bisected at its median, as in
//! probabilistic bisection (Burnashev and Zigangirov 1974; Waeber, Frazier and Henderson 2013); then trials go to
//! the nearest rates on both sides that the trials still allowed can prove.
//!
//! *Proof* is by betting (Shafer 2021; Waudby-Smith and Ramdas 2024). Before a trial at a rate `x` the belief says
//! with which probability `q` it passes. If `q < passing`, this is a bet against every `t >= x`, which promise
//! `passing` or more at `x`: what was won against them so far is multiplied by `q / passing` if the trial passes,
//! and by `(1 - q) / (1 - passing)` if not. If `q > passing`, it is the same bet against every `t < x`. Were such a
//! `t` the truth, the bet could not gain on average, however the rates were chosen and whenever one stops; so the
//! winnings against it would ever reach `1 / (1 - confidence)` with probability `1 - confidence` at most (Ville
//! 1939). Each `t` against which they do is ruled out, and what is left holds the truth with the stated
//! confidence. A wrong belief makes the interval wide, not wrong.

/// Cells of the grid in the precision asked for.
const CELLS: usize = 5;
/// Widths of the fall that the belief considers, in units of the precision.
const WIDTHS: [f64; 4] = [0.1, 0.6, 3.0, 12.0];
/// Shares of trials spoilt at any rate that the belief considers, in units of twice `1 - passing`.
const SPOILT: [f64; 3] = [0.01, 0.12, 0.35];
/// Chance that a trial passes far too fast, as the belief has it: small, but no single trial is certain.
const LUCK: f64 = 0.01;
/// A bet keeps so much back, as part of all it could lose.
const KEPT: f64 = 0.1;
/// Part of the trials that may be spent on bisecting while nothing is proven.
const BISECTING: f64 = 0.2;
/// A proof may cost so many times what the cheapest costs, to be nearer.
const DEARER: f64 = 1.5;
/// Part of the trials that a side of the interval gets at least, while it is not proven.
const LEAST_SHARE: f64 = 0.25;
/// Cells with less of the belief than this say nothing about a trial.
const NEGLIGIBLE: f64 = 1e-12;

/// What is sought.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Lowest rate that is tried, in any unit.
    pub from: f64,
    /// Highest rate that is tried.
    pub to: f64,
    /// Width of the interval to reach, as part of the rate.
    pub precision: f64,
    /// Probability with which the interval is to hold the truth.
    pub confidence: f64,
    /// Probability of a trial to pass, at the rate that is sought.
    pub passing: f64,
    /// Trials that may be made.
    pub trials: u32,
}

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The most believed rate, within the interval.
    pub rate: f64,
    /// Below this it is not; none: it may be below the lowest rate that was tried.
    pub low: Option<f64>,
    /// Above this it is not; none: it may be above the highest rate that was tried.
    pub high: Option<f64>,
    /// The interval is as narrow as was asked.
    pub reached: bool,
}

/// A search. Cell `c` of the grid holds the rates from `x[c - 1]` up to `x[c]`; the first and the last cell are
/// open. All rates of a cell mean the same for every trial, so the grid adds no error.
#[derive(Debug)]
pub struct Search {
    question: Question,
    /// Logarithms of the rates that may be tried.
    x: Vec<f64>,
    /// For each shape, the probability to pass where the threshold is so many cells above the rate tried.
    shapes: Vec<Vec<f64>>,
    /// For each shape and cell, the logarithm of the likelihood.
    likelihood: Vec<Vec<f64>>,
    /// The same as probabilities, and their sum over shapes, from `first` to `last`.
    belief: Vec<Vec<f64>>,
    first: usize,
    last: usize,
    median: usize,
    /// Half of the belief and more is within the precision.
    settled: bool,
    /// For each cell, the logarithm of the winnings against it, and the highest that they ever were.
    winnings: Vec<f64>,
    peak: Vec<f64>,
    made: u32,
}

impl Search {
    /// Begins a search; the error says what makes no sense.
    pub fn new(question: Question) -> Result<Self, String> {
        let Question { from, to, precision, confidence, passing, trials } = question;
        let within = |what, value: f64, low: f64, high: f64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(format!("expected {what} of {low} to {high}, found {value}")),
        };
        within("a precision", precision, 0.001, 0.5)?;
        within("a confidence", confidence, 0.5, 0.9999)?;
        within("a probability to pass", passing, 0.1, 0.95)?;
        if !(from > 0.0 && to.is_finite() && to >= from * (1.0 + 2.0 * precision) && to / from <= 1e6) {
            return Err(format!("expected a range of rates to search, found {from} to {to}"));
        }
        if trials == 0 {
            return Err("expected at least 1 trial, found 0".into());
        }
        let step = (1.0 + precision).ln() / CELLS as f64;
        let rates = ((to / from).ln() / step).ceil() as usize + 1;
        let x = (0..rates).map(|index| from.ln() + index as f64 * step).collect();
        let shapes: Vec<_> = WIDTHS
            .iter()
            .flat_map(|width| SPOILT.map(|spoilt| (width * precision, spoilt * 2.0 * (1.0 - passing))))
            .map(|(width, spoilt)| shape(rates, step, width, spoilt, passing))
            .collect();
        let mut search = Self {
            question,
            x,
            likelihood: vec![vec![0.0; rates + 1]; shapes.len()],
            belief: vec![vec![0.0; rates + 1]; shapes.len()],
            shapes,
            first: 0,
            last: rates,
            median: 0,
            settled: false,
            winnings: vec![0.0; rates + 1],
            peak: vec![0.0; rates + 1],
            made: 0,
        };
        search.believe();
        Ok(search)
    }

    /// Trials made.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// The rate to try next; none when the interval is as narrow as asked, or all trials have been made.
    pub fn next(&self) -> Option<f64> {
        if self.made >= self.question.trials || self.narrow() {
            return None;
        }
        let bisect = !self.settled && f64::from(self.made) < BISECTING * f64::from(self.question.trials);
        let index = if bisect { None } else { self.prove() };
        Some(self.x[index.unwrap_or_else(|| self.beside_median())].exp())
    }

    /// The result of a trial at a rate that [`Self::next`] gave.
    pub fn tell(&mut self, rate: f64, passed: bool) {
        let step = self.x[1] - self.x[0];
        let index = (((rate.ln() - self.x[0]) / step).round().max(0.0) as usize).min(self.x.len() - 1);
        self.made += 1;
        let (q, p) = (self.forecast(index), self.question.passing);
        let bet = q.clamp(KEPT * p, 1.0 - KEPT * (1.0 - p));
        let gain = if passed { bet / p } else { (1.0 - bet) / (1.0 - p) }.ln();
        let against = if q < p { index + 1..self.x.len() + 1 } else { 0..index + 1 };
        for cell in against {
            self.winnings[cell] += gain;
            self.peak[cell] = self.peak[cell].max(self.winnings[cell]);
        }
        for (likelihood, shape) in self.likelihood.iter_mut().zip(&self.shapes) {
            let shifted = &shape[self.x.len() - 1 - index..];
            for (value, pass) in likelihood.iter_mut().zip(shifted) {
                *value += if passed { pass.ln() } else { (1.0 - pass).ln() };
            }
        }
        self.believe();
    }

    /// What is known so far.
    pub fn answer(&self) -> Answer {
        let (low, high) = self.interval();
        let (low_rate, high_rate) = (low.checked_sub(1).map(|index| self.x[index]), self.x.get(high).copied());
        // The middle of the median cell, or what of the interval is nearest.
        let cell = self.median.clamp(low, high);
        let middle = (self.x[cell.saturating_sub(1)] + self.x[cell.min(self.x.len() - 1)]) / 2.0;
        Answer {
            rate: middle.exp(),
            low: low_rate.map(f64::exp),
            high: high_rate.map(f64::exp),
            reached: self.narrow(),
        }
    }

    /// First and last cell that are not ruled out.
    fn interval(&self) -> (usize, usize) {
        let enough = -(1.0 - self.question.confidence).ln();
        let open = |peak: &f64| *peak < enough;
        match (self.peak.iter().position(open), self.peak.iter().rposition(open)) {
            (Some(first), Some(last)) => (first, last),
            // Every rate is ruled out, which has the probability that was allowed for error.
            _ => (self.median, self.median),
        }
    }

    fn narrow(&self) -> bool {
        let (low, high) = self.interval();
        let ends = low == 0 || high == self.x.len();
        // An open cell is as wide as the world: there is nothing more to find once all but it is ruled out.
        if ends { low == high } else { high - low < CELLS }
    }

    /// Makes probabilities of the likelihoods, and finds their median.
    fn believe(&mut self) {
        let best = self.likelihood.iter().flatten().fold(f64::NEG_INFINITY, |best, value| best.max(*value));
        let mut cells = vec![0.0; self.x.len() + 1];
        for (belief, likelihood) in self.belief.iter_mut().zip(&self.likelihood) {
            for ((belief, likelihood), cell) in belief.iter_mut().zip(likelihood).zip(&mut cells) {
                *belief = (likelihood - best).exp();
                *cell += *belief;
            }
        }
        let total: f64 = cells.iter().sum();
        self.belief.iter_mut().flatten().for_each(|belief| *belief /= total);
        let quantile = |part: f64| {
            let mut left = part * total;
            let found = cells.iter().position(|cell| {
                left -= cell;
                left <= 0.0
            });
            found.unwrap_or(cells.len() - 1)
        };
        self.median = quantile(0.5);
        self.settled = quantile(0.9) - quantile(0.1) <= 2 * CELLS;
        let matters = |cell: &f64| *cell > NEGLIGIBLE * total;
        self.first = cells.iter().position(matters).unwrap_or(0);
        self.last = cells.iter().rposition(matters).unwrap_or(cells.len() - 1);
    }

    /// Probability that a trial at this rate passes, as the belief has it.
    fn forecast(&self, index: usize) -> f64 {
        let shift = self.x.len() - 1 - index;
        let product = |(belief, shape): (&Vec<f64>, &Vec<f64>)| -> f64 {
            let shifted = &shape[shift + self.first..];
            belief[self.first..=self.last].iter().zip(shifted).map(|(belief, pass)| belief * pass).sum()
        };
        self.belief.iter().zip(&self.shapes).map(product).sum::<f64>().clamp(1e-9, 1.0 - 1e-9)
    }

    /// The rate below the median cell, or the one above it, in turn.
    fn beside_median(&self) -> usize {
        let (low, high) = self.interval();
        let index = self.median.clamp(low, high).saturating_sub((self.made % 2) as usize);
        index.min(self.x.len() - 1)
    }

    /// A rate on one side of the median: the nearest two that the trials left can prove, or, if they are not enough
    /// for any, the nearest two that cost little more than the cheapest.
    fn prove(&self) -> Option<usize> {
        let left = f64::from(self.question.trials - self.made);
        let offsets = std::iter::successors(Some(CELLS / 2), |offset| Some(offset + 1 + offset / 4));
        let pairs: Vec<[Side; 2]> = offsets
            .take_while(|offset| *offset <= self.x.len())
            .map(|offset| [self.above(offset), self.below(offset)])
            .take_while(|sides| sides.iter().any(|side| side.index.is_some()))
            .collect();
        let cost = |sides: &[Side; 2]| sides[0].trials + sides[1].trials;
        let cheapest = pairs.iter().map(cost).fold(f64::INFINITY, f64::min);
        let affordable = |sides: &&[Side; 2]| cost(sides) <= left.max(DEARER * cheapest);
        let [above, below] = pairs.iter().find(affordable)?;
        // Both sides as often as they need it, spread by the golden ratio; but none waits for ever for the other.
        let turn = (f64::from(self.made) * 0.618_033_988_75).fract();
        let share = (above.trials / (above.trials + below.trials)).clamp(LEAST_SHARE, 1.0 - LEAST_SHARE);
        let [first, second] = if turn < share { [above, below] } else { [below, above] };
        first.index.or(second.index)
    }

    /// What it takes to rule out everything from the rate `offset` cells above the median on.
    fn above(&self, offset: usize) -> Side {
        let (low, high) = self.interval();
        let index = self.median.clamp(low, high) + offset;
        if index >= high {
            return Side::DONE;
        }
        let (q, p) = (self.forecast(index), self.question.passing);
        if q < p { self.side(index, q, index + 1..=high) } else { Side::hopeless(index) }
    }

    /// What it takes to rule out everything up to the rate `offset` cells below the median.
    fn below(&self, offset: usize) -> Side {
        let (low, high) = self.interval();
        let index = match self.median.clamp(low, high).checked_sub(1 + offset) {
            Some(index) if index >= low => index,
            _ => return Side::DONE,
        };
        let (q, p) = (self.forecast(index), self.question.passing);
        if q > p { self.side(index, q, low..=index) } else { Side::hopeless(index) }
    }

    fn side(&self, index: usize, q: f64, cells: std::ops::RangeInclusive<usize>) -> Side {
        let p = self.question.passing;
        let enough = -(1.0 - self.question.confidence).ln();
        let least = self.winnings[cells].iter().fold(f64::INFINITY, |least, value| least.min(*value));
        // Winnings to expect of one trial: the divergence of what is promised from what is believed.
        let gain = q * (q / p).ln() + (1.0 - q) * ((1.0 - q) / (1.0 - p)).ln();
        Side { index: Some(index), trials: (enough - least).max(0.05) / gain.max(1e-12) }
    }
}

/// One side of the interval.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The rate to try; none if everything there has been ruled out.
    index: Option<usize>,
    /// Trials that it will take.
    trials: f64,
}

impl Side {
    const DONE: Self = Self { index: None, trials: 0.0 };
    fn hopeless(index: usize) -> Self {
        Self { index: Some(index), trials: 1e9 }
    }
}

/// Probability to pass, by how many cells the threshold is above the rate tried, from as far below as the grid is
/// long to as far above. It is `passing` at the threshold itself.
fn shape(rates: usize, step: f64, width: f64, spoilt: f64, passing: f64) -> Vec<f64> {
    let span = 1.0 - spoilt - LUCK;
    let at_threshold = ((passing - LUCK) / span).clamp(1e-3, 1.0 - 1e-3);
    let offset = (at_threshold / (1.0 - at_threshold)).ln();
    (0..=2 * rates)
        .map(|index| {
            let above = (index as f64 - rates as f64 + 0.5) * step;
            LUCK + span / (1.0 + (-above / width - offset).exp())
        })
        .collect()
}

#[cfg(test)]
mod tests;
