//! HDF5 type of `/linkN/blocks`: the descriptions of a digitizer's blocks ([`shotline_wire::block`]).

use crate::rows::{F32, F64, I64, U8, U32, U64, compound, field};
use hdf5::types::TypeDescriptor;
use shotline_wire::block::{LEN, MAX_PEAKS, PEAK_BYTES, offset};

/// Units and meanings of the table's fields, written as HDF5 attributes.
pub(crate) const FIELDS: [(&str, &str); 9] = [
    ("peaks_found", "number of valid peaks"),
    ("centre_hz", "centre frequency in Hz, at 0 Hz of the samples"),
    ("volts_per_count", "volts at the input for one count of a sample; 0: unknown"),
    ("clock_offset_ns", "offset of the source's clock from its reference, as reported by the source, in nanoseconds"),
    ("clock_drift_ppb", "drift of that clock in parts per billion"),
    ("snr_db", "signal-to-noise ratio of the block in dB (IEEE 1241); NaN: unknown"),
    ("overrun", "blocks that the source has lost since its start, because they were not read in time"),
    ("fft_points", "points of the transform that peaks and SNR come from; 0: there was none"),
    ("peaks", "the strongest lines, strongest first: Hz from the centre, dB relative to a full-scale tone"),
];

/// Description of the table, written as an HDF5 attribute.
pub(crate) const DESCRIPTION: &str = "one row for each block, in the order of rf's first dimension, as its source described it; zeros where the description did not arrive. A row is valid if the block is: see state in shots";

/// Returns the HDF5 type of a row, which holds the bytes as received.
pub(crate) fn descriptor() -> TypeDescriptor {
    let peak = compound(vec![field("frequency_hz", F64, 0), field("power_dbfs", F32, 8)], PEAK_BYTES);
    let fields = vec![
        field("peaks_found", U8, offset::COUNT),
        field("centre_hz", F64, offset::CENTRE),
        field("volts_per_count", F64, offset::VOLTS_PER_COUNT),
        field("clock_offset_ns", I64, offset::CLOCK_OFFSET),
        field("clock_drift_ppb", F32, offset::CLOCK_DRIFT),
        field("snr_db", F32, offset::SNR),
        field("overrun", U64, offset::OVERRUN),
        field("fft_points", U32, offset::POINTS),
        field("peaks", TypeDescriptor::FixedArray(Box::new(peak), MAX_PEAKS), offset::PEAKS),
    ];
    compound(fields, LEN)
}
