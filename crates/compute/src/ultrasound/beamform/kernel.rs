//! Sum of an element's samples over a column of pixels: its tables, and the portable kernel.

/// Zeros before and after the samples of a trace. A kernel reads windows of up to this length, and one of which a part
/// lies outside of the samples ends in the zeros.
pub(super) const MARGIN: usize = 160;
/// Rows that a kernel computes at a time; columns are padded to a multiple.
pub(super) const GROUP: usize = 16;

/// Returns the number of values of a trace of this many samples.
pub(super) fn stride(samples: usize) -> usize {
    (samples + 2 * MARGIN).next_multiple_of(GROUP)
}

/// A received transmission of one element.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trace {
    /// Index of its first value in the real and imaginary parts.
    pub start: usize,
    /// Delay of the transmission in samples, at depth 0 and its increase with the depth in samples, for a plane wave.
    pub offset: f32,
    pub slope: f32,
    /// Index of the transmission's delays for the column, for other waves.
    pub table: usize,
}

/// Weight of an element over a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Weight {
    One,
    /// cos^2 of half of pi times the root of this over the squared depth.
    Hann(f32),
}

/// The work of a kernel: one element and one column.
pub(super) struct Task<'a> {
    /// Real and imaginary parts of all traces; only the first counts if there is no imaginary part.
    pub parts: [&'a [f32]; 2],
    /// Values of a trace.
    pub stride: usize,
    /// The element's traces.
    pub traces: &'a [Trace],
    /// Transmit delays in samples, for waves that are not plane.
    pub delays: &'a [f32],
    /// Squared distance between element and column, in samples.
    pub offset2: f32,
    /// Depths of the rows in samples, padded to whole groups.
    pub z: &'a [f32],
    /// First row in which the element counts.
    pub first: usize,
    pub weight: Weight,
}

/// Adds an element to the sums of a column. The sums are as long as `z`.
pub(super) type Kernel = fn(task: &Task<'_>, sums: [&mut [f32]; 2]);

/// Kernels of one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Name of the instruction set.
    #[cfg_attr(not(test), allow(dead_code))]
    pub name: &'static str,
    /// Kernel of real traces, and of complex ones.
    pub real: Kernel,
    pub complex: Kernel,
}

/// Returns the cos^2 window at this squared position, 1 at the edge.
#[inline(always)]
pub(super) fn hann(v: f32) -> f32 {
    let [a, b, c, d, e] = COSINE;
    let cosine = a + v * (b + v * (c + v * (d + v * e)));
    cosine * cosine
}

/// Polynomial of cos(pi / 2 * sqrt(v)), for v of 0 to 1.
pub(super) const COSINE: [f32; 5] = [1.0, -1.233_698_2, 0.253_650_7, -0.020_810_57, 0.000_858_162_6];

pub(super) mod portable {
    use super::{GROUP, MARGIN, Task, Weight, hann};

    /// Adds an element to the sums; inlined into functions compiled for other instruction sets.
    #[inline(always)]
    pub fn add<const PARTS: usize>(task: &Task<'_>, [real, imaginary]: [&mut [f32]; 2]) {
        let first = task.first / GROUP;
        let groups = task.z.as_chunks::<GROUP>().0.iter().zip(real.as_chunks_mut::<GROUP>().0);
        let mut imaginary = imaginary.as_chunks_mut::<GROUP>().0.iter_mut().skip(first);
        for (group, (z, real)) in groups.enumerate().skip(first) {
            let mut receive = [0.0; GROUP];
            let mut weight = [1.0; GROUP];
            for lane in 0..GROUP {
                receive[lane] = (task.offset2 + z[lane] * z[lane]).sqrt();
                if let Weight::Hann(edge2) = task.weight {
                    weight[lane] = hann((edge2 / (z[lane] * z[lane])).min(1.0));
                }
                weight[lane] = if group * GROUP + lane < task.first { 0.0 } else { weight[lane] };
            }
            let mut totals = [[0.0; GROUP]; PARTS];
            for trace in task.traces {
                let mut transmit = [0.0; GROUP];
                for lane in 0..GROUP {
                    transmit[lane] = trace.offset + trace.slope * z[lane];
                }
                if let Some(delays) = task.delays.get(trace.table + group * GROUP..).and_then(|d| d.first_chunk()) {
                    transmit = *delays;
                }
                let parts = [0, PARTS - 1].map(|part| &task.parts[part][trace.start..trace.start + task.stride]);
                for lane in 0..GROUP {
                    let time = receive[lane] + transmit[lane];
                    let whole = time.floor();
                    let fraction = time - whole;
                    // The cast saturates, so the sum cannot overflow beyond 64 bits.
                    let at = (whole as i64 + MARGIN as i64).clamp(0, task.stride as i64 - 2) as usize;
                    for part in 0..PARTS {
                        let (here, next) = (parts[part][at], parts[part][at + 1]);
                        totals[part][lane] += here + fraction * (next - here);
                    }
                }
            }
            for lane in 0..GROUP {
                real[lane] += weight[lane] * totals[0][lane];
            }
            if PARTS == 2
                && let Some(imaginary) = imaginary.next()
            {
                for lane in 0..GROUP {
                    imaginary[lane] += weight[lane] * totals[PARTS - 1][lane];
                }
            }
        }
    }
}

/// Returns the portable kernels.
pub(super) fn portable_kernels() -> Kernels {
    Kernels {
        name: "portable",
        real: |task, sums| portable::add::<1>(task, sums),
        complex: |task, sums| portable::add::<2>(task, sums),
    }
}
