//! Serialisation of an ultrasound array.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

#[derive(Serialize, Deserialize)]
struct Fields(#[serde(with = "ArrayFields")] Array);

/// Serialises an optional array.
pub(super) fn serialize<S: Serializer>(array: &Option<Array>, serializer: S) -> Result<S::Ok, S::Error> {
    array.clone().map(Fields).serialize(serializer)
}

/// Deserialises an optional array.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Array>, D::Error> {
    Ok(Option::<Fields>::deserialize(deserializer)?.map(|Fields(array)| array))
}
