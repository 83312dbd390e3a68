//! Cosine-sum windows, their frequency response, and the interpolation of tones between bins.

use std::f64::consts::{PI, TAU};

/// Window function, in its periodic form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Window {
    /// Raised cosine: narrow main lobe; side lobes of -31 dB that fall off fast.
    Hann,
    /// Four terms (Harris 1978): side lobes below -92 dB, which is below the noise of a 16-bit converter.
    #[default]
    BlackmanHarris,
    /// Five terms: powers accurate to 0.01 dB for any tone position; widest main lobe.
    FlatTop,
}

/// Steps per half bin of the interpolation table.
const TABLE_STEPS: usize = 128;

impl Window {
    /// All windows.
    pub const ALL: [Self; 3] = [Self::Hann, Self::BlackmanHarris, Self::FlatTop];

    /// Returns the name used in configurations, which is also that of scipy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hann => "hann",
            Self::BlackmanHarris => "blackmanharris",
            Self::FlatTop => "flattop",
        }
    }

    /// Returns the window with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|window| window.name() == name)
    }

    /// Returns the coefficients of 1, -cos x, cos 2x, -cos 3x and so on.
    fn terms(self) -> &'static [f64] {
        match self {
            Self::Hann => &[0.5, 0.5],
            Self::BlackmanHarris => &[0.35875, 0.48829, 0.14128, 0.01168],
            Self::FlatTop => &[0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368],
        }
    }

    /// Returns the half width of the main lobe, in bins.
    pub fn lobe(self) -> usize {
        self.terms().len()
    }

    /// Returns the number of bins on either side of a tone over which its power is summed. The power beyond
    /// them is below -75 dB (Hann) or -90 dB of the tone.
    pub fn skirt(self) -> usize {
        match self {
            Self::Hann => 16,
            _ => self.lobe() + 1,
        }
    }

    /// Returns `len` weights. Their mean is the first of the terms.
    pub fn weights(self, len: usize) -> impl Iterator<Item = f64> {
        (0..len).map(move |n| {
            let phase = TAU * n as f64 / len as f64;
            let mut sign = -1.0;
            self.terms().iter().enumerate().fold(0.0, |sum, (term, size)| {
                sign = -sign;
                sum + sign * size * (phase * term as f64).cos()
            })
        })
    }

    /// Returns the equivalent noise bandwidth in bins: the mean of the squares over the square of the mean.
    pub fn noise_bins(self) -> f64 {
        let [first, rest @ ..] = self.terms() else { return 1.0 };
        1.0 + rest.iter().map(|term| term * term).sum::<f64>() / (2.0 * first * first)
    }

    /// Returns the magnitude at a distance of `bins` from a tone, relative to that at the tone.
    ///
    /// Valid for long transforms, where Dirichlet's kernel is a sinc; the error at 64 points is one part in a thousand.
    pub fn response(self, bins: f64) -> f64 {
        let [first, rest @ ..] = self.terms() else { return sinc(bins) };
        let sides = rest.iter().zip(1..).map(|(size, term)| {
            let term = f64::from(term);
            size / 2.0 * (sinc(bins - term) + sinc(bins + term))
        });
        sinc(bins) + sides.sum::<f64>() / first
    }

    /// Returns an upper bound of the leakage at a distance of `bins`, more than [`Window::lobe`], relative to the power
    /// of the tone.
    pub fn leakage(self, bins: f64) -> f64 {
        // The sum of the response without the sine factor common to all terms: the envelope of the side lobes.
        let [first, rest @ ..] = self.terms() else { return 1.0 };
        let mut sign = 1.0;
        let sides = rest.iter().zip(1..).map(|(size, term)| {
            sign = -sign;
            sign * size / 2.0 * (1.0 / (bins - f64::from(term)) + 1.0 / (bins + f64::from(term)))
        });
        ((1.0 / bins + sides.sum::<f64>() / first) / PI).powi(2)
    }
}

fn sinc(x: f64) -> f64 {
    if x.abs() < 1e-9 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Interpolates the position of a tone between bins from the powers of the bins next to the peak.
#[derive(Clone, Debug)]
pub(super) struct Interpolator {
    /// Logarithm of the neighbours' ratio for a tone 0, 1, 2 ... steps above the bin's centre, ascending.
    ratios: Vec<f64>,
}

impl Interpolator {
    pub fn new(window: Window) -> Self {
        let ratio = |step: usize| {
            let offset = step as f64 / (2 * TABLE_STEPS) as f64;
            2.0 * (window.response(1.0 - offset) / window.response(1.0 + offset)).abs().ln()
        };
        Self { ratios: (0..=TABLE_STEPS).map(ratio).collect() }
    }

    /// Returns the offset of the tone from the peak's bin, -0.5 to 0.5 bins.
    pub fn offset(&self, below: f64, above: f64) -> f64 {
        let ratio = (above / below).ln();
        if ratio.is_nan() {
            return 0.0; // both are zero
        }
        let size = ratio.abs();
        let above = self.ratios.partition_point(|entry| *entry <= size);
        let steps = match (self.ratios.get(above.wrapping_sub(1)), self.ratios.get(above)) {
            (Some(low), Some(high)) => (above - 1) as f64 + (size - low) / (high - low),
            _ => TABLE_STEPS as f64,
        };
        (steps / (2 * TABLE_STEPS) as f64).copysign(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_the_transform_of_the_weights() {
        let len = 8192;
        for window in Window::ALL {
            let weights: Vec<f64> = window.weights(len).collect();
            let sum: f64 = weights.iter().sum();
            let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
            assert!((window.noise_bins() - squares * len as f64 / sum.powi(2)).abs() < 1e-9, "{window:?}");
            for step in 0..80 {
                let bins = f64::from(step) / 8.0;
                let [re, im] = weights.iter().enumerate().fold([0.0; 2], |[re, im], (n, weight)| {
                    let (sin, cos) = (TAU * bins * n as f64 / len as f64).sin_cos();
                    [re + weight * cos, im + weight * sin]
                });
                let transform = re.hypot(im) / sum;
                assert!((window.response(bins).abs() - transform).abs() < 1e-3, "{window:?} at {bins}");
                if bins > window.lobe() as f64 {
                    assert!(transform.powi(2) < window.leakage(bins) * 1.02 + 1e-12, "{window:?} at {bins}");
                }
            }
        }
    }

    #[test]
    fn neighbours_give_the_position_between_bins() {
        for window in Window::ALL {
            let interpolator = Interpolator::new(window);
            for step in -50..=50 {
                let offset = f64::from(step) / 100.0;
                let [below, above] = [-1.0 - offset, 1.0 - offset].map(|bins| window.response(bins).powi(2));
                assert!((interpolator.offset(below, above) - offset).abs() < 1e-4, "{window:?} at {offset}");
            }
            assert_eq!(interpolator.offset(0.0, 0.0), 0.0);
            assert_eq!((interpolator.offset(0.0, 1.0), interpolator.offset(1.0, 0.0)), (0.5, -0.5));
        }
    }
}
