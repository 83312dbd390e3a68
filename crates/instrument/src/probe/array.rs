//! Serialisation of an ultrasound array.

use serde::{Deserialize, Serialize};
use shotline_compute::ultrasound::Array;

/// Fields of an [`Array`] in settings and reports.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Array", default = "Array::default", deny_unknown_fields)]
pub(super) struct ArrayFields {
    pitch_m: f64,
    width_m: f64,
    height_m: f64,
    centre_hz: f64,
    sound_speed_m_s: f64,
    angles_rad: Vec<f64>,
    initial_time_s: f64,
}
