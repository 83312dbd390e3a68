//! The committed seeds of the fuzz target `accelerator`, run through its own function.

#[path = "../../../../fuzz/src/accelerators.rs"]
mod targets;

use shotline_accelerate::command::{Command, Kernel, ReplyTo, TileSteps, Values};
use shotline_compute::stencil::{Boundary, Edge, Tile, Weights};
use shotline_testing::{assert_committed, check_mutations};
use std::path::PathBuf;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds/accelerator"].iter().collect()
}

#[test]
fn committed_seeds_and_their_mutations_hold() {
    for (name, bytes) in seeds() {
        assert_committed(&folder().join(name), &bytes);
    }
    check_mutations(&folder(), targets::accelerator);
}

fn seeds() -> [(&'static str, Vec<u8>); 4] {
    let to = ReplyTo { id: 1, address: 4096, rkey: 2, notify: true };
    let work = TileSteps {
        values: Values::F32,
        tile: Tile { rows: 20, columns: 30, above: Edge::Border, below: Edge::Halo },
        boundary: Boundary::Fixed,
        weights: Weights::heat(0.2),
        steps: 3,
        source: 0,
        result: 0,
        stride: 128,
        squares: Some(32 << 10),
    };
    let tile = Tile { above: Edge::Halo, ..work.tile };
    let periodic = TileSteps { values: Values::F64, tile, boundary: Boundary::Periodic, stride: 240, ..work };
    let apart = TileSteps { boundary: Boundary::Insulated, result: 8192, squares: None, ..work };
    let bytes = |work| Command { to, kernel: Kernel::Stencil(work) }.emit().to_vec();
    [
        ("nop", Command { to, kernel: Kernel::Nop }.emit().to_vec()),
        ("in_place", bytes(work)),
        ("periodic", bytes(TileSteps { result: 3 * 240, ..periodic })),
        ("result_apart", bytes(apart)),
    ]
}
