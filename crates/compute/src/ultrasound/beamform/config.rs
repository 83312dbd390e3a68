//! Configuration of a beamformer, and its errors.

use crate::ultrasound::{Array, Wave};

/// Maximum numbers of pixels, elements, waves and samples. The product is limited by [`BeamformError::TooLarge`].
const MAX_PIXELS: usize = 1 << 26;
const MAX_ELEMENTS: usize = 1 << 14;
const MAX_WAVES: usize = 1 << 12;
const MAX_SAMPLES: usize = 1 << 22;
/// Maximum number of 32-bit values in a table: 8 GiB.
const MAX_VALUES: usize = 1 << 31;
/// Maximum delay in samples. Beyond it, a delay in single precision is not exact to a fraction of a sample.
const MAX_DELAY: f64 = (1 << 22) as f64;

/// An invalid configuration of a beamformer, or data that do not match it.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BeamformError {
    /// A count is out of range.
    #[error("expected 1 to {max} {what}, found {found}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The count.
        found: usize,
        /// Its maximum.
        max: usize,
    },
    /// A quantity is out of range.
    #[error("{what} must be {expected}, found {found}")]
    Quantity {
        /// Name of the quantity.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// The value.
        found: f64,
    },
    /// The tables or the samples of a frame exceed 8 GiB.
    #[error("the samples of a frame or the delays would take more than 8 GiB")]
    TooLarge,
    /// A pixel is so far away that its delay is not exact.
    #[error("the delay of a pixel is up to {0:.0} samples, more than 2^22: check the grid and the sample rate")]
    Delay(f64),
    /// There is no such transmission.
    #[error("wave {wave} of {waves}: numbers start at 0")]
    Wave {
        /// Number of the transmission.
        wave: usize,
        /// Transmissions of a frame.
        waves: usize,
    },
    /// There are no such elements.
    #[error("{channels} channels from element {element} on, of an array of {elements} elements")]
    Elements {
        /// First element.
        element: usize,
        /// Number of channels.
        channels: usize,
        /// Elements of the array.
        elements: usize,
    },
    /// The samples have another length.
    #[error("expected {expected} {unit}, found {found}")]
    Length {
        /// Unit of the lengths.
        unit: &'static str,
        /// Expected length.
        expected: usize,
        /// Length that was passed.
        found: usize,
    },
}

/// Weights of the elements on reception.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Apodisation {
    /// All elements have the weight 1.
    None,
    /// Elements within an aperture of the depth divided by the f-number have the weight 1, others 0.
    Boxcar {
        /// Depth over aperture.
        f_number: f64,
    },
    /// A Hann window over the same aperture.
    Hann {
        /// Depth over aperture.
        f_number: f64,
    },
}

/// How the imaginary part of the image, which the envelope needs, is obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quadrature {
    /// Hilbert transform of every channel before the sum: correct on every grid.
    #[default]
    Channels,
    /// Hilbert transform of every column of the image: faster, but rows must be closer than a quarter of the shortest
    /// wavelength in the pulse. For 5 MHz with 60 % bandwidth that is about 60 um.
    Columns,
}

/// Rectangular grid of pixels, whose columns run along z.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Number of columns; 1 is the line of an M-mode image.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
    /// x coordinate of the first column in metres.
    pub x_m: f64,
    /// z coordinate of the first row in metres, not negative.
    pub z_m: f64,
    /// Distance of the columns in metres.
    pub column_pitch_m: f64,
    /// Distance of the rows in metres.
    pub row_pitch_m: f64,
}

impl Grid {
    /// Returns a grid in front of the array down to `depth_m`, centred on it.
    pub fn in_front(array: &Array, elements: usize, columns: usize, rows: usize, depth_m: f64) -> Self {
        let column_pitch_m = elements as f64 * array.pitch_m / columns.max(1) as f64;
        let x_m = -(columns as f64 - 1.0) / 2.0 * column_pitch_m;
        let row_pitch_m = depth_m / rows.max(1) as f64;
        Self { columns, rows, x_m, z_m: row_pitch_m, column_pitch_m, row_pitch_m }
    }

    /// Returns the number of pixels.
    pub fn pixels(&self) -> usize {
        self.columns.saturating_mul(self.rows)
    }

    /// Returns the x coordinates of the columns in metres.
    pub fn x(&self) -> impl Iterator<Item = f64> {
        let Self { columns, x_m, column_pitch_m, .. } = *self;
        (0..columns).map(move |column| x_m + column as f64 * column_pitch_m)
    }

    /// Returns the z coordinates of the rows in metres.
    pub fn z(&self) -> impl Iterator<Item = f64> {
        let Self { rows, z_m, row_pitch_m, .. } = *self;
        (0..rows).map(move |row| z_m + row as f64 * row_pitch_m)
    }
}

/// Configuration of a beamformer.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamformerConfig {
    /// The array. Of its transmissions only their time zero counts; `waves` are those of a frame.
    pub array: Array,
    /// Transmissions of a frame.
    pub waves: Vec<Wave>,
    /// Number of elements of the array: the channels of all links.
    pub elements: usize,
    /// Samples per channel of a transmission.
    pub samples: usize,
    /// Sample rate in Hz.
    pub sample_rate_hz: f64,
    /// The pixels.
    pub grid: Grid,
    /// Weights of the elements.
    pub apodisation: Apodisation,
    /// How the imaginary part is obtained.
    pub quadrature: Quadrature,
}

impl BeamformerConfig {
    /// Returns a configuration for the array's plane waves: an image of twice as many columns as elements and 512 rows,
    /// as deep as the samples reach, through a Hann window at f-number 1.5.
    pub fn new(array: &Array, elements: usize, samples: usize, sample_rate_hz: f64) -> Self {
        let seconds = array.initial_time_s + samples as f64 / sample_rate_hz;
        let depth_m = seconds * array.sound_speed_m_s / 2.0;
        Self {
            array: array.clone(),
            waves: array.plane_waves(),
            elements,
            samples,
            sample_rate_hz,
            grid: Grid::in_front(array, elements, elements.saturating_mul(2), 512, depth_m),
            apodisation: Apodisation::Hann { f_number: 1.5 },
            quadrature: Quadrature::default(),
        }
    }

    /// Returns samples per metre of path.
    pub(super) fn samples_per_m(&self) -> f64 {
        self.sample_rate_hz / self.array.sound_speed_m_s
    }

    /// Checks the configuration; `stride` is the number of values of a trace, `padded` that of a column.
    pub(super) fn check(&self, stride: usize, padded: usize) -> Result<(), BeamformError> {
        let count = |what, found: usize, max: usize| {
            if (1..=max).contains(&found) { Ok(()) } else { Err(BeamformError::Count { what, found, max }) }
        };
        count("elements", self.elements, MAX_ELEMENTS)?;
        count("waves", self.waves.len(), MAX_WAVES)?;
        count("samples", self.samples, MAX_SAMPLES)?;
        count("columns", self.grid.columns, MAX_PIXELS)?;
        count("rows", self.grid.rows, MAX_PIXELS)?;
        count("pixels", self.grid.pixels(), MAX_PIXELS)?;
        self.check_quantities()?;
        let product = |factors: [usize; 4]| factors.into_iter().try_fold(1_usize, usize::checked_mul);
        let traces = product([2, self.waves.len(), self.elements, stride]);
        let tables = product([1, self.waves.len().max(2), self.grid.columns, padded]);
        if [traces, tables].into_iter().any(|values| values.is_none_or(|values| values > MAX_VALUES)) {
            return Err(BeamformError::TooLarge);
        }
        let delay = self.longest_delay();
        if delay.is_nan() || delay > MAX_DELAY { Err(BeamformError::Delay(delay)) } else { Ok(()) }
    }

    fn check_quantities(&self) -> Result<(), BeamformError> {
        let check = |what, expected, found: f64, holds: bool| {
            if found.is_finite() && holds { Ok(()) } else { Err(BeamformError::Quantity { what, expected, found }) }
        };
        let positive = |what, found: f64| check(what, "positive", found, found > 0.0);
        let (array, grid) = (&self.array, &self.grid);
        positive("the sample rate", self.sample_rate_hz)?;
        positive("the speed of sound", array.sound_speed_m_s)?;
        check("the pitch", "finite", array.pitch_m, true)?;
        check("the time of the first sample", "finite", array.initial_time_s, true)?;
        check("the first column's x", "finite", grid.x_m, true)?;
        check("the pitch of the columns", "finite", grid.column_pitch_m, true)?;
        check("the first row's z", "0 or positive", grid.z_m, grid.z_m >= 0.0)?;
        positive("the pitch of the rows", grid.row_pitch_m)?;
        for wave in &self.waves {
            match *wave {
                Wave::Plane { angle_rad } => {
                    check("the angle of a plane wave", "less than 90 degrees", angle_rad, angle_rad.abs() < 1.57)?;
                }
                Wave::Diverging { x_m, z_m } => {
                    check("a source's x", "finite", x_m, true)?;
                    check("a source's z", "negative", z_m, z_m < 0.0)?;
                }
            }
        }
        match self.apodisation {
            Apodisation::None => Ok(()),
            Apodisation::Boxcar { f_number } | Apodisation::Hann { f_number } => {
                check("the f-number", "0.01 to 1000", f_number, (0.01..=1000.0).contains(&f_number))
            }
        }
    }

    /// Returns an upper bound of the delays' magnitudes in samples.
    fn longest_delay(&self) -> f64 {
        let grid = &self.grid;
        let width = grid.x_m.abs() + grid.columns as f64 * grid.column_pitch_m.abs();
        // Columns are padded by less than 64 rows.
        let depth = grid.z_m + (grid.rows + 64) as f64 * grid.row_pitch_m;
        let aperture = self.elements as f64 * self.array.pitch_m.abs();
        let source = |wave: &Wave| match *wave {
            Wave::Plane { .. } => 0.0,
            Wave::Diverging { x_m, z_m } => x_m.abs() + z_m.abs(),
        };
        let source = self.waves.iter().map(source).fold(0.0, f64::max);
        let path = 2.0 * (width + depth + aperture + source);
        path * self.samples_per_m() + self.array.initial_time_s.abs() * self.sample_rate_hz
    }
}
