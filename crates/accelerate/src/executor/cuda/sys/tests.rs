//! The kernels and their launches, compared with the stencil of the processor bit by bit.

use super::emulated::{Failing, Program};
use super::*;
use crate::command::{Outcome, Values};
use crate::executor::cuda::{Cuda, plan};
use crate::executor::processor::Processor;
use crate::executor::{Executor, Notice};
use shotline_compute::stencil::{Boundary, Edge, Tile, Weights};
use shotline_random::SplitMix64;
use shotline_testing::{or_skip, seeds};

/// Work in a memory of this length.
#[derive(Debug)]
struct Case {
    work: TileSteps,
    len: usize,
}

impl Case {
    /// Places a tile, its result and the sums in a memory. Padding is in bytes.
    fn new(work: TileSteps, is_in_place: bool, padding: u64) -> Self {
        let results = work.tile.result_rows(work.steps as usize).unwrap();
        let stride = work.values.bytes() * work.tile.columns as u64 + padding;
        let tile_end = padding + stride * work.tile.rows as u64;
        let in_place = padding + stride * results.start as u64;
        let result = if is_in_place { in_place } else { tile_end };
        let sums = (tile_end + if is_in_place { 0 } else { stride * results.len() as u64 }).next_multiple_of(8);
        let squares = work.squares.map(|_| sums);
        let len = sums as usize + if work.squares.is_some() { 8 * results.len() } else { 0 };
        Self { work: TileSteps { source: padding, result, stride, squares, ..work }, len }
    }

    fn random(random: &mut SplitMix64) -> Self {
        let mut below = |end: u64| random.next_u64() % end;
        let boundary = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated][below(3) as usize];
        let mut edges = [0, 1].map(|_| if below(2) == 0 { Edge::Border } else { Edge::Halo });
        if boundary == Boundary::Periodic {
            edges[1] = edges[0];
        }
        let steps = if below(10) == 0 { 64 } else { 1 + below(13) };
        let halos = edges.into_iter().filter(|edge| *edge == Edge::Halo).count() as u64;
        let mut count = |most: u64| 1 + if below(4) == 0 { below(5) } else { below(most) };
        let (rows, columns) = ((halos * steps + count(70)) as usize, count(150) as usize);
        let values = if below(2) == 0 { Values::F32 } else { Values::F64 };
        let tile = Tile { rows, columns, above: edges[0], below: edges[1] };
        let weights = Weights { center: 0.3, neighbour: 0.19 };
        let (steps, squares) = (steps as u32, (below(2) == 0).then_some(0));
        let work = TileSteps { values, tile, boundary, weights, steps, source: 0, result: 0, stride: 0, squares };
        Self::new(work, below(2) == 0, values.bytes() * below(4))
    }

    /// Returns random bytes, and in the tile random values between -1 and 1, some of `f32` subnormal.
    fn memory(&self, random: &mut SplitMix64) -> Vec<u8> {
        let work = &self.work;
        let mut memory = vec![0; self.len];
        random.fill_bytes(&mut memory);
        let row_bytes = work.values.bytes() as usize * work.tile.columns;
        for row in memory[work.source as usize..].chunks_mut(work.stride as usize).take(work.tile.rows) {
            for value in row[..row_bytes].chunks_exact_mut(work.values.bytes() as usize) {
                let number = random.next_u64() as i64 as f64 / (1_u64 << 63) as f64;
                let scale = if random.next_u64().is_multiple_of(50) { 1e-38 } else { 1.0 };
                match work.values {
                    Values::F32 => value.copy_from_slice(&((number * scale) as f32).to_ne_bytes()),
                    Values::F64 => value.copy_from_slice(&number.to_ne_bytes()),
                }
            }
        }
        memory
    }

    /// Returns the memory after the work of the processor, and the largest change.
    fn expected(&self, memory: &[u8]) -> (Vec<u8>, f64) {
        let mut processor = Processor { memory: region(memory), threads: 1 };
        let (outcome, max) = processor.execute(&self.work);
        assert_eq!(outcome, Outcome::Done);
        let mut after = vec![0; self.len];
        processor.memory.read(0, &mut after);
        (after, max)
    }

    /// Compares the whole memory, also what is outside of the result.
    fn check(&self, program: &Program, max_grid: u32, random: &mut SplitMix64) {
        let memory = self.memory(random);
        let (expected, expected_max) = self.expected(&memory);
        let device = program.start(&memory);
        let mut gpu = Gpu { kernels: Box::new(device.clone()), memory: region(&memory), max_grid };
        let max = gpu.run(&self.work).unwrap();
        assert!(device.contents(self.len) == expected, "{self:?}");
        assert_eq!(max.to_bits(), expected_max.to_bits(), "{self:?}");
    }
}

fn region(bytes: &[u8]) -> Arc<Region> {
    let region = Region::heap(bytes.len()).unwrap();
    region.write(0, bytes);
    region
}

/// A tile of this size, all of a matrix.
fn whole(values: Values, boundary: Boundary, [rows, columns]: [usize; 2], steps: u32) -> TileSteps {
    let tile = Tile { rows, columns, above: Edge::Border, below: Edge::Border };
    let weights = Weights::heat(0.2);
    TileSteps { values, tile, boundary, weights, steps, source: 0, result: 0, stride: 0, squares: Some(0) }
}

#[test]
fn kernels_and_processor_have_the_same_bits() {
    let program = or_skip!(Program::compile());
    for seed in seeds(0..40) {
        let mut random = SplitMix64::new(seed);
        let case = Case::random(&mut random);
        // Few blocks compute several parts of the tile each.
        let max_grid = if random.next_u64().is_multiple_of(2) { 3 } else { plan::MAX_GRID };
        case.check(&program, max_grid, &mut random);
    }
}

#[test]
fn squares_of_long_rows_are_added_in_order() {
    let program = or_skip!(Program::compile());
    for values in [Values::F32, Values::F64] {
        for columns in [255, 257, 8192, 8192 + 300] {
            let work = whole(values, Boundary::Periodic, [3, columns], 1);
            Case::new(work, true, 0).check(&program, plan::MAX_GRID, &mut SplitMix64::new(columns as u64));
        }
    }
}

#[test]
fn nan_and_infinity_spread_as_on_the_processor() {
    let program = or_skip!(Program::compile());
    let case = Case::new(whole(Values::F32, Boundary::Insulated, [40, 70], 6), true, 0);
    let mut memory = case.memory(&mut SplitMix64::new(1));
    for (column, value) in [(30, f32::INFINITY), (33, f32::NEG_INFINITY), (60, f32::NAN)] {
        memory[4 * (20 * 70 + column)..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    let (expected, expected_max) = case.expected(&memory);
    let device = program.start(&memory);
    let max = Gpu::new(Box::new(device.clone()), region(&memory)).run(&case.work).unwrap();
    let values = |bytes: &[u8]| -> Vec<_> {
        let value = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
        // The payload of a NaN is not defined.
        bytes[..4 * 40 * 70].as_chunks().0.iter().map(value).map(|value| (!value.is_nan()).then_some(value)).collect()
    };
    assert_eq!(values(&device.contents(case.len)), values(&expected));
    assert!(max.is_nan() && expected_max.is_nan() && values(&expected).contains(&None));
}

#[test]
fn lack_of_scratch_memory_leaves_the_work_to_the_processor() {
    let case = Case::new(whole(Values::F64, Boundary::Fixed, [9, 9], 3), true, 0);
    let memory = case.memory(&mut SplitMix64::new(2));
    let (expected, expected_max) = case.expected(&memory);
    let kernels = CudaError::NoCompiler;
    let scratch = Some(CudaError::OutOfMemory { index: 0, needed: 2 << 30, free: 1 << 30 });
    let (mut cuda, notice) = failing(Failing { scratch, kernels, memory: 0 }, &memory).unwrap();
    assert_eq!(cuda.execute(&case.work), (Outcome::Done, expected_max));
    let mut found = vec![0; case.len];
    cuda.processor.memory.read(0, &mut found);
    assert_eq!(found, expected);
    let text = notice.take().unwrap();
    assert!(text.contains("the processor computes, not the GPU") && text.contains("2.0 GiB"), "{text}");
    cuda.execute(&case.work);
    assert_eq!(notice.take(), None);
}

#[test]
fn failed_kernels_fail_the_command() {
    let case = Case::new(whole(Values::F64, Boundary::Fixed, [9, 9], 3), true, 0);
    let memory = case.memory(&mut SplitMix64::new(3));
    let error = CudaError::Call { index: 0, call: "cuEventSynchronize", error: "CUDA_ERROR_ILLEGAL_ADDRESS".into() };
    let (mut cuda, notice) = failing(Failing { scratch: None, kernels: error, memory: 0 }, &memory).unwrap();
    assert_eq!(cuda.execute(&case.work).0, Outcome::Failed);
    assert!(notice.take().unwrap().contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

#[test]
fn unaligned_memory_is_left_to_the_processor() {
    let device = Failing { scratch: None, kernels: CudaError::NoCompiler, memory: 0x1004 };
    let text = failing(device, &[0; 8]).err().unwrap().take().unwrap();
    assert!(text.contains("found 0x1004"), "{text}");
}

/// Returns an executor with a device that fails, and its notice. The error is the notice if there is no executor.
fn failing(device: Failing, memory: &[u8]) -> Result<(Cuda, Arc<Notice>), Arc<Notice>> {
    let notice = Arc::default();
    let processor = Processor { memory: region(memory), threads: 1 };
    match Cuda::with(Box::new(device), processor, &notice) {
        Ok(cuda) => Ok((cuda, notice)),
        Err(_) => Err(notice),
    }
}
