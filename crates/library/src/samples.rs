//! Samples of many shots at once: several threads read and unpack slots directly into the output.

use shotline_compute::pack12;
use shotline_memory::Buffer;
use shotline_store::StoreError;
use shotline_store::read::Recording;
use shotline_wire::shot::{Geometry, Packing};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Maximum size of a read, in slot bytes, for which the automatic choice is one thread.
const SINGLE_THREAD_BYTES: u64 = 1 << 20;
/// Threads per processor: some wait for the disk while others unpack.
const THREADS_PER_CPU: usize = 2;

/// Elements along one axis: `count` of them from `start`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Index of the first element.
    pub start: usize,
    /// Distance of successive elements, negative for descending ones.
    pub step: isize,
    /// Number of elements.
    pub count: usize,
}

impl Stride {
    /// Returns the elements, or `None` if one of them is outside of `0..extent`.
    pub fn within((start, step, count): (usize, isize, usize), extent: usize) -> Option<Self> {
        let last = (count.max(1) - 1).checked_mul(step.unsigned_abs())?;
        let last = if step < 0 { start.checked_sub(last)? } else { start.checked_add(last)? };
        (count == 0 || start.max(last) < extent).then_some(Self { start, step, count })
    }
    fn at(self, index: usize) -> usize {
        self.start.wrapping_add_signed(self.step * index as isize)
    }
    /// Returns `true` if these are consecutive elements from `start` on.
    fn is_dense(self) -> bool {
        self.step == 1 || self.count <= 1
    }
    /// Returns the smallest range that contains all elements.
    fn span(self) -> Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        let (first, last) = (self.at(0), self.at(self.count - 1));
        first.min(last)..first.max(last) + 1
    }
}

/// Part of each row to read: links side by side, and some of their channels and samples.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Links, in the order of their columns.
    pub links: Vec<usize>,
    /// Indexes of the samples.
    pub samples: Stride,
    /// Indexes of the channels, counted over the links side by side.
    pub channels: Stride,
    /// Number of threads; 0 for an automatic choice.
    pub threads: usize,
}

/// The columns of the output that come from one link.
struct LinkColumns {
    link: usize,
    geometry: Geometry,
    /// First column of the output.
    column: usize,
    /// Selected channels of the link.
    channels: Stride,
}

/// Element type of the output.
pub trait Element: Copy + Default + Send {
    /// Returns `true` if samples of a packing can be converted to this type.
    fn supports(packing: Packing) -> bool;
    /// Unpacks the bytes of exactly `out.len()` samples. Packed samples come in pairs.
    fn unpack(packing: Packing, bytes: &[u8], out: &mut [Self]);
}

impl Element for i16 {
    fn supports(packing: Packing) -> bool {
        packing != Packing::Uint8
    }
    fn unpack(packing: Packing, bytes: &[u8], out: &mut [Self]) {
        let pairs = bytes.as_chunks().0;
        match packing {
            Packing::Packed12 => pack12::unpack(bytes, out),
            Packing::Int16Be => {
                out.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = Self::from_be_bytes(*pair));
            }
            _ => out.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = Self::from_le_bytes(*pair)),
        }
    }
}

impl Element for u8 {
    fn supports(packing: Packing) -> bool {
        packing == Packing::Uint8
    }
    fn unpack(_: Packing, bytes: &[u8], out: &mut [Self]) {
        out.copy_from_slice(bytes);
    }
}

/// Samples that are unpacked at a time: packed and unpacked, they stay in the first-level cache. It is even.
const BLOCK_SAMPLES: usize = 4096;

/// Unpacks the samples of a shot in a buffer into `out`, which has samples x channels elements.
pub fn unpack<T: Element>(packing: Packing, buffer: &Buffer, out: &mut [T]) {
    // The memory of the pool is never a slice: blocks of it are copied.
    let mut block = [0; 2 * BLOCK_SAMPLES];
    let mut offset = 0;
    for part in out.chunks_mut(BLOCK_SAMPLES) {
        let bytes = (part.len() * packing.bits_per_sample() as usize).div_ceil(8);
        buffer.read(offset, &mut block[..bytes]);
        T::unpack(packing, &block[..bytes], part);
        offset += bytes as u32;
    }
}

/// Reads `rows` into `out`, which has samples x channels elements for each row. The caller has checked the selection
/// ([`crate::reading::select`]).
///
/// # Errors
/// Fails if a row is not visible or cannot be read.
pub fn read<T: Element>(
    recording: &Recording,
    rows: &[u64],
    selection: &Selection,
    out: &mut [T],
) -> Result<(), StoreError> {
    let row_len = selection.samples.count * selection.channels.count;
    if row_len == 0 || rows.is_empty() {
        return Ok(());
    }
    let links = columns_by_link(recording, selection);
    let slot_bytes: u64 = links.iter().map(|columns| u64::from(columns.geometry.slot_bytes())).sum();
    let max_threads = match selection.threads {
        0 if slot_bytes * rows.len() as u64 <= SINGLE_THREAD_BYTES => 1,
        0 => THREADS_PER_CPU * std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let outputs = Mutex::new(rows.iter().zip(out.chunks_mut(row_len)));
    let work = || {
        let mut slots = recording.slot_reader();
        let mut scratch = Vec::new();
        loop {
            // The lock is held only to advance an iterator, which does not panic.
            let Some((row, output)) = outputs.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return Ok(());
            };
            for columns in &links {
                copy_slot(columns, selection, slots.read(*row, columns.link)?, output, &mut scratch);
            }
        }
    };
    let threads = max_threads.min(rows.len());
    if threads == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.fold(Ok(()), Result::and)
    })
}

/// Returns the selected channels of each link.
fn columns_by_link(recording: &Recording, selection: &Selection) -> Vec<LinkColumns> {
    let mut links = Vec::new();
    let mut first = 0;
    for &link in &selection.links {
        let geometry = recording.run().links[link].geometry;
        let end = first + usize::from(geometry.channels());
        let in_link = |column: &usize| (first..end).contains(&selection.channels.at(*column));
        // The columns of a link are consecutive, because the channels ascend or descend.
        let mut columns = (0..selection.channels.count).filter(in_link);
        if let Some(column) = columns.next() {
            let (start, count) = (selection.channels.at(column) - first, 1 + columns.count());
            links.push(LinkColumns { link, geometry, column, channels: Stride { start, count, ..selection.channels } });
        }
        first = end;
    }
    links
}

/// Copies the selection of one slot to its row of the output.
fn copy_slot<T: Element>(
    columns: &LinkColumns,
    selection: &Selection,
    slot: &[u8],
    output: &mut [T],
    scratch: &mut Vec<T>,
) {
    let (packing, channels) = (columns.geometry.packing(), usize::from(columns.geometry.channels()));
    let bytes_of = |samples: usize| samples * packing.bits_per_sample() as usize / 8;
    let span = selection.samples.span();
    let bytes = |elements: Range<usize>| &slot[bytes_of(elements.start)..bytes_of(elements.end)];
    let stride = selection.channels.count;
    // Packed samples begin and end on byte boundaries if their number is even.
    let is_byte_aligned = |elements: usize| packing != Packing::Packed12 || elements.is_multiple_of(2);
    if selection.samples.is_dense() && columns.channels.is_dense() && columns.channels.count == channels {
        if stride == channels && is_byte_aligned(span.start * channels) && is_byte_aligned(span.end * channels) {
            return T::unpack(packing, bytes(span.start * channels..span.end * channels), output);
        }
        if is_byte_aligned(channels) {
            for (sample, row) in span.zip(output.chunks_exact_mut(stride)) {
                let to = &mut row[columns.column..columns.column + channels];
                T::unpack(packing, bytes(sample * channels..(sample + 1) * channels), to);
            }
            return;
        }
    }
    // Unpacks everything from the first selected sample to the last, widened to whole bytes, and then selects from
    // that.
    let start = (span.start * channels) & !1;
    let end = (span.end * channels).next_multiple_of(2).min(columns.geometry.samples() as usize * channels);
    scratch.resize(end - start, T::default());
    T::unpack(packing, bytes(start..end), scratch);
    for (index, row) in output.chunks_exact_mut(stride).enumerate() {
        let first = selection.samples.at(index) * channels - start;
        let from = &scratch[first..first + channels];
        for (column, to) in row[columns.column..columns.column + columns.channels.count].iter_mut().enumerate() {
            *to = from[columns.channels.at(column)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};

    #[test]
    fn a_buffer_is_unpacked_as_its_bytes_are() {
        let pool = Pool::new(&mut Registrar::new(), 1, 64 << 10).unwrap();
        let buffer = pool.take().unwrap();
        let bytes: Vec<u8> = (0..64 << 10_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        buffer.write(0, &bytes);
        for samples in [0, 2, BLOCK_SAMPLES - 2, BLOCK_SAMPLES, BLOCK_SAMPLES + 2, 3 * BLOCK_SAMPLES + 10] {
            for packing in [Packing::Packed12, Packing::Int16Le, Packing::Int16Be] {
                let (mut expected, mut found) = (vec![0_i16; samples], vec![-1_i16; samples]);
                i16::unpack(packing, &bytes[..samples * packing.bits_per_sample() as usize / 8], &mut expected);
                unpack(packing, &buffer, &mut found);
                assert_eq!(found, expected, "{packing:?}");
            }
            let mut found = vec![1_u8; samples];
            unpack(Packing::Uint8, &buffer, &mut found);
            assert_eq!(found, bytes[..samples]);
        }
    }
}
