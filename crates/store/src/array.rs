//! Ultrasound array in the attributes of a run.

use hdf5::{File, H5Type, Location};
use serde::{Serialize, Serializer};
use shotline_wire::setup::ArrayDescription;

/// Writes the attributes of an array.
pub(crate) fn write(file: &File, array: &ArrayDescription) -> hdf5::Result<()> {
    number(file, "array_pitch_nm", array.pitch_nm)?;
    number(file, "array_element_width_nm", array.width_nm)?;
    number(file, "array_element_height_nm", array.height_nm)?;
    number(file, "array_centre_hz", array.centre_hz)?;
    number(file, "array_sound_speed_mm_s", array.sound_speed_mm_s)?;
    number(file, "array_first_angle_urad", array.first_angle_urad)?;
    number(file, "array_last_angle_urad", array.last_angle_urad)?;
    number(file, "array_waves", array.waves)?;
    number(file, "array_initial_time_ns", array.initial_time_ns)
}

/// Reads the attributes of an array. Returns `None` if there are none, or if they describe no array.
pub(crate) fn read(file: &File) -> Option<ArrayDescription> {
    let positive = |name| value::<u32>(file, name).filter(|value| *value > 0);
    Some(ArrayDescription {
        pitch_nm: positive("array_pitch_nm")?,
        width_nm: positive("array_element_width_nm")?,
        height_nm: positive("array_element_height_nm")?,
        centre_hz: positive("array_centre_hz")?,
        sound_speed_mm_s: positive("array_sound_speed_mm_s")?,
        first_angle_urad: value(file, "array_first_angle_urad")?,
        last_angle_urad: value(file, "array_last_angle_urad")?,
        waves: value(file, "array_waves").filter(|waves| *waves > 0)?,
        initial_time_ns: value(file, "array_initial_time_ns")?,
    })
}

fn number<T: H5Type>(at: &Location, name: &str, value: T) -> hdf5::Result<()> {
    at.new_attr::<T>().create(name)?.write_scalar(&value)
}

fn value<T: H5Type>(at: &Location, name: &str) -> Option<T> {
    at.attr(name).ok()?.read_scalar().ok()
}

/// Serialises an array with the names of its fields.
pub(crate) fn serialize<S: Serializer>(array: &Option<ArrayDescription>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields {
        pitch_nm: u32,
        element_width_nm: u32,
        element_height_nm: u32,
        centre_hz: u32,
        sound_speed_mm_s: u32,
        first_angle_urad: i32,
        last_angle_urad: i32,
        waves: u16,
        initial_time_ns: i32,
    }
    let fields = array.as_ref().map(|array| Fields {
        pitch_nm: array.pitch_nm,
        element_width_nm: array.width_nm,
        element_height_nm: array.height_nm,
        centre_hz: array.centre_hz,
        sound_speed_mm_s: array.sound_speed_mm_s,
        first_angle_urad: array.first_angle_urad,
        last_angle_urad: array.last_angle_urad,
        waves: array.waves,
        initial_time_ns: array.initial_time_ns,
    });
    fields.serialize(serializer)
}
