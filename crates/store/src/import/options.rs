//! Options of an import.

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Samples per shot, for sources without shots; `None` for a length that divides all blocks, if
    /// possible.
    pub samples: Option<u32>,
    /// Sample rate in Hz, for sources that do not specify it.
    pub sample_rate_hz: Option<u32>,
    /// Name of the channel of a Digital RF source; needed only if it has several.
    pub channel: Option<String>,
    /// Factor from the source's numbers to samples; `None` for 1 if they are integers that fit 16 bits, otherwise for a
    /// factor that makes them fit.
    pub scale: Option<f64>,
    /// Gaps of a source without shots are pauses, not losses.
    pub pauses: bool,
    /// Replace an existing file.
    pub overwrite: bool,
}
