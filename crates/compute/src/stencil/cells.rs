//! Memory of a matrix.

use super::real::Real;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use shotline_memory::Lines;
use shotline_memory::Region;

/// Rows of a matrix in memory, which are copied in parts. Row and column numbers are checked by the implementation.
pub trait Cells<F>: Sync {
    /// Copies a part of a row that begins at `column`.
    fn load(&self, row: usize, column: usize, to: &mut [F]);
    /// Overwrites a part of a row that begins at `column`. Other threads see it after [`Self::finish`] in this thread.
    fn store(&self, row: usize, column: usize, from: &[F]);
    /// Makes all stores of this thread visible.
    fn finish(&self);
    /// Hints that a part of a row will be loaded soon.
    fn prefetch(&self, row: usize, column: usize, len: usize);
    /// Returns the first columns of a row as whole cache lines, to load and to stream, if they can be.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn lines(&self, row: usize, columns: usize) -> Option<Lines<'_>>;
}

/// A matrix in a region, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct RegionCells<'a> {
    /// The region.
    pub region: &'a Region,
    /// Offset of the first row in bytes.
    pub offset: usize,
    /// Distance of two rows in bytes.
    pub stride: usize,
}

impl RegionCells<'_> {
    fn at<F>(&self, row: usize, column: usize) -> usize {
        self.offset + row * self.stride + column * size_of::<F>()
    }
}

impl<F: Real> Cells<F> for RegionCells<'_> {
    fn load(&self, row: usize, column: usize, to: &mut [F]) {
        self.region.read(self.at::<F>(row, column), F::bytes_mut(to));
    }

    fn store(&self, row: usize, column: usize, from: &[F]) {
        self.region.stream(self.at::<F>(row, column), F::bytes(from));
    }

    fn finish(&self) {
        Region::fence_streams();
    }

    fn prefetch(&self, row: usize, column: usize, len: usize) {
        self.region.prefetch(self.at::<F>(row, column), len * size_of::<F>());
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn lines(&self, row: usize, columns: usize) -> Option<Lines<'_>> {
        self.region.lines(self.at::<F>(row, 0), columns * size_of::<F>())
    }
}
