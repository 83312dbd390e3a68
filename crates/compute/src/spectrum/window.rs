//! Windows that are sums of cosines, and what they make of a tone between two bins.

use std::f64::consts::{PI, TAU};

/// A window. Its periodic form is used, as is right for spectra.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Window {
    /// Raised cosine: narrow main lobe; side lobes of -31 dB that fall fast.
    Hann,
    /// Four terms (Harris 1978): side lobes below -92 dB, which a 16-bit converter does not see.
    #[default]
    BlackmanHarris,
    /// Five terms: powers right to 0.01 dB wherever a tone lies; widest main lobe.
    FlatTop,
}

/// Steps of half a bin in the table that inverts the interpolation.
const STEPS: usize = 128;

impl Window {
    /// Every window.
    pub const ALL: [Self; 3] = [Self::Hann, Self::BlackmanHarris, Self::FlatTop];

    /// Its name in configuration, which is scipy's as well.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hann => "hann",
            Self::BlackmanHarris => "blackmanharris",
            Self::FlatTop => "flattop",
        }
    }

    /// The window with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|window| window.name() == name)
    }

    /// Coefficients of 1, -cos x, cos 2x, -cos 3x and so on.
    fn terms(self) -> &'static [f64] {
        match self {
            Self::Hann => &[0.5, 0.5],
            Self::BlackmanHarris => &[0.35875, 0.48829, 0.14128, 0.01168],
            Self::FlatTop => &[0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368],
        }
    }

    /// Bins from a main lobe's centre to its edge.
    pub fn lobe(self) -> usize {
        self.terms().len()
    }

    /// Bins around a tone that its power is summed over, to either side: what lies beyond is less than -75 dB of it
    /// (Hann), or less than -90 dB.
    pub fn skirt(self) -> usize {
        match self {
            Self::Hann => 16,
            _ => self.lobe() + 1,
        }
    }

    /// Its `len` weights; their mean is the first of the terms.
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

    /// Noise bandwidth in bins: the mean of the squares over the square of the mean.
    pub fn noise_bins(self) -> f64 {
        let [first, rest @ ..] = self.terms() else { return 1.0 };
        1.0 + rest.iter().map(|term| term * term).sum::<f64>() / (2.0 * first * first)
    }

    /// The magnitude at a distance of so many bins from a tone, of its magnitude at none. For long transforms, where
    /// Dirichlet's kernel is a sinc; 64 points are long enough for a part in a thousand.
    pub fn response(self, bins: f64) -> f64 {
        let [first, rest @ ..] = self.terms() else { return sinc(bins) };
        let sides = rest.iter().zip(1..).map(|(size, term)| {
            let term = f64::from(term);
            size / 2.0 * (sinc(bins - term) + sinc(bins + term))
        });
        sinc(bins) + sides.sum::<f64>() / first
    }

    /// An upper bound of the power that a tone leaks to a distance of more than [`Window::lobe`] bins, of its own.
    pub fn leakage(self, bins: f64) -> f64 {
        // The response's sum without the sine that all its terms share: the curve that touches the side lobes.
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

/// From the powers of a peak's neighbours to the place of the tone between the bins.
#[derive(Clone, Debug)]
pub(super) struct Between {
    /// The logarithm of the neighbours' ratio for a tone 0, 1, 2 ... steps above the bin's centre; it grows.
    ratios: Vec<f64>,
}

impl Between {
    pub fn new(window: Window) -> Self {
        let ratio = |step: usize| {
            let offset = step as f64 / (2 * STEPS) as f64;
            2.0 * (window.response(1.0 - offset) / window.response(1.0 + offset)).abs().ln()
        };
        Self { ratios: (0..=STEPS).map(ratio).collect() }
    }

    /// Bins from the peak's to the tone, -0.5 to 0.5.
    pub fn offset(&self, below: f64, above: f64) -> f64 {
        let ratio = (above / below).ln();
        if ratio.is_nan() {
            return 0.0; // both are zero
        }
        let size = ratio.abs();
        let above = self.ratios.partition_point(|entry| *entry <= size);
        let steps = match (self.ratios.get(above.wrapping_sub(1)), self.ratios.get(above)) {
            (Some(low), Some(high)) => (above - 1) as f64 + (size - low) / (high - low),
            _ => STEPS as f64,
        };
        (steps / (2 * STEPS) as f64).copysign(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_is_the_transform_of_the_weights() {
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
    fn the_neighbours_say_where_between_the_bins_a_tone_is() {
        for window in Window::ALL {
            let between = Between::new(window);
            for step in -50..=50 {
                let offset = f64::from(step) / 100.0;
                let [below, above] = [-1.0 - offset, 1.0 - offset].map(|bins| window.response(bins).powi(2));
                assert!((between.offset(below, above) - offset).abs() < 1e-4, "{window:?} at {offset}");
            }
            assert_eq!(between.offset(0.0, 0.0), 0.0);
            assert_eq!((between.offset(0.0, 1.0), between.offset(1.0, 0.0)), (0.5, -0.5));
        }
    }
}
