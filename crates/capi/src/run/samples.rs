//! Samples of many shots at once.

use super::handle::{check_link, shotline_run, with};
use crate::arguments::{self, Out, OutArray, Plain};
use crate::status::{Failure, call, shotline_status};
use shotline_library::reading::{Axis, extents, select};
use shotline_library::samples::{Element, read};
use shotline_store::read::Recording;

/// As shotline_selection.link: the channels of all links side by side, in the order of the links.
pub const SHOTLINE_ALL_LINKS: u32 = u32::MAX;

/// Most threads of one call: more would only wait for each other.
const MAX_THREADS: u32 = 1024;

/// Indexes along one axis: `count` of them from `first` on, `step` apart. All zeros mean all of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_axis {
    /// First index.
    pub first: u64,
    /// Number of indexes; 0: as many as there are from `first` on in the direction of `step`.
    pub count: u64,
    /// Distance of successive indexes, negative for descending ones; 0: 1.
    pub step: i64,
}

/// Part of a run to read. Initialise it with SHOTLINE_ZERO, then set the fields that matter: zeros mean all samples of all
/// visible rows of the first link.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_selection {
    /// Rows. Without a count the rows that are visible: give a count while another thread may call shotline_run_refresh().
    pub rows: shotline_axis,
    /// Samples of each channel.
    pub samples: shotline_axis,
    /// Channels; with SHOTLINE_ALL_LINKS counted over the links side by side.
    pub channels: shotline_axis,
    /// Index of a link, or SHOTLINE_ALL_LINKS, if the shots of all links have the same shape.
    pub link: u32,
    /// Number of threads that read and unpack; 0: one for a small part, otherwise as many as help.
    pub threads: u32,
    /// Must be zero.
    pub reserved: [u64; 4],
}

/// Number of elements along each axis of an array of samples. Its last axis is contiguous: element (row, sample, channel)
/// is at index (row * samples + sample) * channels + channel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_shape {
    /// Number of rows.
    pub rows: u64,
    /// Number of samples per channel.
    pub samples: u64,
    /// Number of channels.
    pub channels: u64,
    /// Product of the three: the number of elements that shotline_run_read_int16() needs.
    pub elements: u64,
}

/// Stores the shape of the array that reading a selection fills.
///
/// selection: the part; NULL as for shotline_run_read_int16().
///
/// Threads: any. Errors: INVALID_ARGUMENT (beyond what the run has), CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_get_shape(
    run: shotline_run,
    selection: *const shotline_selection,
    shape: *mut shotline_shape,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (selection, shape) = unsafe { (arguments::read(selection, "selection")?, Out::new(shape, "shape")?) };
        shape.set(with(run, |recording| Ok(Resolved::new(recording, selection)?.shape))?);
        Ok(())
    })
}

/// Reads samples, unpacked to 16 bits, into memory of the caller: for links whose element_bytes is 2. Missing packets and
/// lost shots read as zeros; shotline_shot.state and the presence map distinguish them from samples.
///
/// selection: the part to read; NULL for all samples of the visible rows of the first link.
/// samples: receives shotline_shape.elements elements, ordered by row, then sample, then channel.
/// capacity: number of elements at `samples`.
///
/// Each slot is read once, by as many threads as the selection allows, which end before the function returns. If it fails,
/// the contents of `samples` are undefined.
///
/// Threads: any, several at once. Errors: INVALID_ARGUMENT (beyond what the run has, or a link of 8-bit samples),
/// BUFFER_TOO_SMALL, IO, FORMAT (damaged), CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_int16(
    run: shotline_run,
    selection: *const shotline_selection,
    samples: *mut i16,
    capacity: usize,
) -> shotline_status {
    // SAFETY: the contract of the header.
    call(|| unsafe { read_into(run, selection, samples, capacity) })
}

/// Reads unsigned bytes, for links whose element_bytes is 1; otherwise as shotline_run_read_int16().
///
/// Threads: any, several at once. Errors: as for shotline_run_read_int16().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_uint8(
    run: shotline_run,
    selection: *const shotline_selection,
    samples: *mut u8,
    capacity: usize,
) -> shotline_status {
    // SAFETY: the contract of the header.
    call(|| unsafe { read_into(run, selection, samples, capacity) })
}

/// Reads a selection.
///
/// # Safety
/// The contract of the header for both pointers.
unsafe fn read_into<T: Element + Plain>(
    run: shotline_run,
    selection: *const shotline_selection,
    samples: *mut T,
    capacity: usize,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (selection, mut out) =
        unsafe { (arguments::read(selection, "selection")?, OutArray::new(samples, capacity, "samples")?) };
    with(run, |recording| {
        let Resolved { shape, links, rows, samples, channels, threads } = Resolved::new(recording, selection)?;
        let elements = usize::try_from(shape.elements).unwrap_or(usize::MAX);
        let out = out.slice(elements, "elements")?;
        let rows: Vec<u64> =
            (0..rows.2).map(|index| rows.0.wrapping_add_signed(rows.1 * index as isize) as u64).collect();
        let selection = select::<T>(recording, links, (samples, channels), threads, (rows.len(), out.len()))?;
        Ok(read(recording, &rows, &selection, out)?)
    })
}

/// A selection with all defaults replaced, which lies within its recording.
struct Resolved {
    shape: shotline_shape,
    links: Vec<usize>,
    rows: Axis,
    samples: Axis,
    channels: Axis,
    threads: usize,
}

impl Resolved {
    fn new(recording: &Recording, selection: Option<shotline_selection>) -> Result<Self, Failure> {
        let all = shotline_axis { first: 0, count: 0, step: 0 };
        let everything =
            shotline_selection { rows: all, samples: all, channels: all, link: 0, threads: 0, reserved: [0; 4] };
        let selection = selection.unwrap_or(everything);
        if selection.reserved != [0; 4] {
            return Err(Failure::argument(
                "expected zeros in `reserved` of the selection, found others: initialise it with SHOTLINE_ZERO",
            ));
        }
        if selection.threads > MAX_THREADS {
            return Err(Failure::argument(format!(
                "expected at most {MAX_THREADS} threads, found {}",
                selection.threads
            )));
        }
        let links = match selection.link {
            SHOTLINE_ALL_LINKS if recording.run().joined() => (0..recording.run().links.len()).collect(),
            SHOTLINE_ALL_LINKS => {
                return Err(Failure::argument(
                    "expected links whose shots have the same shape, found others: read each link by its index",
                ));
            }
            link => vec![check_link(recording, link)?],
        };
        let (all_samples, all_channels) = extents(recording, &links);
        let rows = selection.rows.within(recording.rows(), "rows")?;
        let samples = selection.samples.within(all_samples as u64, "samples")?;
        let channels = selection.channels.within(all_channels as u64, "channels")?;
        let counts = [rows.2, samples.2, channels.2].map(|count| count as u64);
        // Three counts of existing things: their product fits, unless a file is damaged.
        let elements = counts.iter().try_fold(1u64, |product, count| product.checked_mul(*count)).unwrap_or(u64::MAX);
        let shape = shotline_shape { rows: counts[0], samples: counts[1], channels: counts[2], elements };
        Ok(Self { shape, links, rows, samples, channels, threads: selection.threads as usize })
    }
}

impl shotline_axis {
    /// Replaces defaults, and checks that all indexes are below `extent`.
    fn within(self, extent: u64, what: &str) -> Result<Axis, Failure> {
        let step = if self.step == 0 { 1 } else { self.step };
        let available = match step {
            _ if self.first >= extent => 0,
            ..0 => self.first / step.unsigned_abs() + 1,
            _ => (extent - self.first).div_ceil(step.unsigned_abs()),
        };
        // All of an axis without elements is nothing; anything else beyond the end is an error.
        let is_all_of_none = extent == 0 && self.first == 0 && self.count == 0;
        let count = if self.count == 0 { available } else { self.count };
        if count > available || (available == 0 && !is_all_of_none) {
            let Self { first, count, .. } = self;
            let words = format!("expected {what} below {extent}, found {count} from {first} on with step {step}");
            return Err(Failure::argument(words));
        }
        // No index exceeds the extent, whose values are in memory or in a file.
        let fits = (usize::try_from(self.first), isize::try_from(step), usize::try_from(count));
        let (Ok(first), Ok(step), Ok(count)) = fits else {
            return Err(Failure::argument(format!("expected {what} within the address space, found {count}")));
        };
        Ok((first, step, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(first: u64, count: u64, step: i64, extent: u64) -> Option<Axis> {
        shotline_axis { first, count, step }.within(extent, "rows").ok()
    }

    #[test]
    fn zeros_of_an_axis_mean_all_of_it() {
        assert_eq!(within(0, 0, 0, 7), Some((0, 1, 7)));
        assert_eq!(within(5, 0, 0, 7), Some((5, 1, 2)));
        assert_eq!(within(1, 0, 3, 7), Some((1, 3, 2)));
        assert_eq!(within(6, 0, -2, 7), Some((6, -2, 4)));
        assert_eq!(within(0, 0, 0, 0), Some((0, 1, 0)));
    }

    #[test]
    fn an_axis_beyond_its_end_is_refused() {
        for (first, count, step) in [(7, 0, 0), (7, 1, 0), (0, 8, 0), (1, 3, 3), (6, 5, -2), (u64::MAX, 1, 1)] {
            assert_eq!(within(first, count, step, 7), None, "{first} {count} {step}");
        }
        assert_eq!(within(0, 1, 0, 0), None);
        assert_eq!(within(0, 1, i64::MIN, 7), Some((0, isize::MIN, 1)));
        assert_eq!(within(0, u64::MAX, i64::MAX, 7), None);
    }
}
