//! Samples of many shots at once: slots are read and unpacked by several threads, straight into their place.

use shotline_compute::pack12;
use shotline_store::StoreError;
use shotline_store::read::Recording;
use shotline_wire::shot::{Geometry, Packing};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Slot bytes of a read that is not worth a second thread.
const ALONE_BYTES: u64 = 1 << 20;
/// Threads for each processor: some wait for the disk while others unpack.
const THREADS_PER_CPU: usize = 2;

/// Elements along one axis: `count` of them from `start`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    pub start: usize,
    pub step: isize,
    pub count: usize,
}

impl Stride {
    /// The elements, none of which may lie outside of `0..extent`.
    pub fn within((start, step, count): (usize, isize, usize), extent: usize) -> Option<Self> {
        let last = (count.max(1) - 1).checked_mul(step.unsigned_abs())?;
        let last = if step < 0 { start.checked_sub(last)? } else { start.checked_add(last)? };
        (count == 0 || start.max(last) < extent).then_some(Self { start, step, count })
    }
    fn at(self, index: usize) -> usize {
        self.start.wrapping_add_signed(self.step * index as isize)
    }
    /// Whether these are the elements from `start` on, each once.
    fn is_dense(self) -> bool {
        self.step == 1 || self.count <= 1
    }
    /// The smallest range that holds them all.
    fn span(self) -> Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        let (first, last) = (self.at(0), self.at(self.count - 1));
        first.min(last)..first.max(last) + 1
    }
}

/// What is wanted of each row: `links` side by side, and of their channels and samples some.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Links, in the order of their columns.
    pub links: Vec<usize>,
    /// Sample instants.
    pub samples: Stride,
    /// Channels, counted over the links side by side.
    pub channels: Stride,
    /// Threads; 0: as many as pay.
    pub threads: usize,
}

/// The columns of the output that come from one link.
struct Part {
    link: usize,
    geometry: Geometry,
    column: usize,
    channels: Stride,
}

/// An element of the output.
pub trait Element: Copy + Default + Send {
    /// Whether samples of a packing become this.
    fn suits(packing: Packing) -> bool;
    /// Makes samples of their bytes, which are as many as they take. Packed ones come in pairs.
    fn unpack(packing: Packing, bytes: &[u8], out: &mut [Self]);
}

impl Element for i16 {
    fn suits(packing: Packing) -> bool {
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
    fn suits(packing: Packing) -> bool {
        packing == Packing::Uint8
    }
    fn unpack(_: Packing, bytes: &[u8], out: &mut [Self]) {
        out.copy_from_slice(bytes);
    }
}

/// Reads `rows` into `out`, which has a place of samples x channels for each; both were checked against each other.
pub fn read<T: Element>(
    recording: &Recording,
    rows: &[u64],
    wanted: &Selection,
    out: &mut [T],
) -> Result<(), StoreError> {
    let place = wanted.samples.count * wanted.channels.count;
    if place == 0 || rows.is_empty() {
        return Ok(());
    }
    let parts = parts(recording, wanted);
    let slot_bytes: u64 = parts.iter().map(|part| u64::from(part.geometry.slot_bytes())).sum();
    let most = match wanted.threads {
        0 if slot_bytes * rows.len() as u64 <= ALONE_BYTES => 1,
        0 => THREADS_PER_CPU * std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let places = Mutex::new(rows.iter().zip(out.chunks_mut(place)));
    let work = || {
        let mut slots = recording.slots();
        let mut scratch = Vec::new();
        loop {
            // The lock is held for as long as it takes to step an iterator, which does not panic.
            let Some((row, place)) = places.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return Ok(());
            };
            for part in &parts {
                take(part, wanted, slots.read(*row, part.link)?, place, &mut scratch);
            }
        }
    };
    let threads = most.min(rows.len());
    if threads == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.fold(Ok(()), Result::and)
    })
}

/// Which of the wanted channels each link has.
fn parts(recording: &Recording, wanted: &Selection) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut first = 0;
    for &link in &wanted.links {
        let geometry = recording.run().links[link].geometry;
        let end = first + usize::from(geometry.channels());
        let here = |column: &usize| (first..end).contains(&wanted.channels.at(*column));
        // They stand one behind the other, because their channels go up or down.
        let mut columns = (0..wanted.channels.count).filter(here);
        if let Some(column) = columns.next() {
            let (start, count) = (wanted.channels.at(column) - first, 1 + columns.count());
            parts.push(Part { link, geometry, column, channels: Stride { start, count, ..wanted.channels } });
        }
        first = end;
    }
    parts
}

/// Puts what is wanted of one slot into its row's place.
fn take<T: Element>(part: &Part, wanted: &Selection, slot: &[u8], place: &mut [T], scratch: &mut Vec<T>) {
    let (packing, channels) = (part.geometry.packing(), usize::from(part.geometry.channels()));
    let bytes_of = |samples: usize| samples * packing.bits_per_sample() as usize / 8;
    let span = wanted.samples.span();
    let bytes = |elements: Range<usize>| &slot[bytes_of(elements.start)..bytes_of(elements.end)];
    let stride = wanted.channels.count;
    // Pieces of packed samples begin and end between bytes if their elements are even in number.
    let whole = |elements: usize| packing != Packing::Packed12 || elements.is_multiple_of(2);
    if wanted.samples.is_dense() && part.channels.is_dense() && part.channels.count == channels {
        if stride == channels && whole(span.start * channels) && whole(span.end * channels) {
            return T::unpack(packing, bytes(span.start * channels..span.end * channels), place);
        }
        if whole(channels) {
            for (sample, row) in span.zip(place.chunks_exact_mut(stride)) {
                let to = &mut row[part.column..part.column + channels];
                T::unpack(packing, bytes(sample * channels..(sample + 1) * channels), to);
            }
            return;
        }
    }
    // Everything from the first wanted sample to the last, widened to whole bytes; then what is wanted of that.
    let start = (span.start * channels) & !1;
    let end = (span.end * channels).next_multiple_of(2).min(part.geometry.samples() as usize * channels);
    scratch.resize(end - start, T::default());
    T::unpack(packing, bytes(start..end), scratch);
    for (index, row) in place.chunks_exact_mut(stride).enumerate() {
        let first = wanted.samples.at(index) * channels - start;
        let from = &scratch[first..first + channels];
        for (column, to) in row[part.column..part.column + part.channels.count].iter_mut().enumerate() {
            *to = from[part.channels.at(column)];
        }
    }
}
