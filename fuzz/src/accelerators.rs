//! Invariants of the bytes that a peer writes into the command queue of an accelerator, or into an initiator's memory.

use shotline_accelerate::command::{COMMAND_BYTES, Command, Completion, Kernel, TileSteps, Values};
use shotline_accelerate::control::Header;
use shotline_compute::stencil::{Real, RegionCells};
use shotline_memory::Region;

/// Bytes of the accelerator's memory.
const MEMORY: usize = 64 << 10;

/// Commands of 128 bytes, executed in their order in one memory; the bytes also as control region and completion.
pub fn accelerator(data: &[u8]) {
    let memory = Region::heap(MEMORY).expect("there is memory");
    for bytes in data.as_chunks::<COMMAND_BYTES>().0 {
        let _ = Header::parse(bytes);
        if let Some(completion) = bytes.first_chunk().and_then(Completion::parse) {
            assert_eq!(Completion::parse(&completion.emit()).map(|again| again.emit()), Some(completion.emit()));
        }
        let Ok(command) = Command::parse(bytes) else { continue };
        // Values that a kernel does not use are not kept, and a NaN is not equal to itself.
        let again = Command::parse(&command.emit()).expect("an emitted command is one");
        assert_eq!(again.emit(), command.emit());
        if command.kernel.check(memory.len() as u64, 1).is_ok()
            && let Kernel::Stencil(work) = command.kernel
        {
            match work.values {
                Values::F32 => execute::<f32>(&memory, &work),
                Values::F64 => execute::<f64>(&memory, &work),
            }
        }
    }
}

/// Executes a command that was found valid: every access panics unless it is inside the memory.
fn execute<F: Real>(memory: &Region, work: &TileSteps) {
    let cells = |offset| RegionCells { region: memory, offset: offset as usize, stride: work.stride as usize };
    let residual = work.stencil(1).advance::<F>(work.tile, &cells(work.source), &cells(work.result));
    let residual = residual.expect("a checked command has a result");
    if let Some(at) = work.squares {
        let bytes: Vec<u8> = residual.squares.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        memory.write(at as usize, &bytes);
    }
}
