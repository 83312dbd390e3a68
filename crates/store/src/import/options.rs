//! Options of an import.

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Samples per shot, for sources without shots [a length that divides all blocks, if possible].
    pub samples: Option<u32>,
    /// Sample rate in Hz, for sources that do not specify it.
    pub rate_hz: Option<u32>,
    /// Channel of a source with several channels [its only one].
    pub channel: Option<String>,
    /// Factor from the source's numbers to samples [1 for integers that fit, otherwise a factor that makes them fit].
    pub scale: Option<f64>,
    /// Gaps of a source without shots are pauses, not losses.
    pub pauses: bool,
    /// Replace an existing file.
    pub overwrite: bool,
}
