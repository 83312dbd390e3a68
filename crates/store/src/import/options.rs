//! What an import needs to be told.

/// What an import needs to be told.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Samples of a shot, of sources that go on without shots [chosen so that they divide them, if they can].
    pub samples: Option<u32>,
    /// Sample rate in Hz, of sources that do not tell it.
    pub rate_hz: Option<u32>,
    /// Channels of a source that has several [its only one].
    pub channel: Option<String>,
    /// Factor from the source's numbers to samples [1 if they are integers that fit, else what makes them fit].
    pub scale: Option<f64>,
    /// Gaps of a source that goes on are pauses, not losses.
    pub pauses: bool,
    /// Replace a file that is there.
    pub overwrite: bool,
}
