//! Measures the stencil for `bench/stencil.py`: `stencil_rate ROWS COLUMNS STEPS THREADS f32|f64 REPEATS`.
//!
//! Prints the sum of some values after one pass, then the seconds of each pass over memory that has been touched.

use shotline_compute::stencil::{Boundary, Edge, Real, RegionCells, Stencil, Tile, Weights};
use shotline_memory::Region;
use std::time::Instant;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rows, columns, steps, threads, values, repeats] = arguments.as_slice() else {
        return Err("usage: stencil_rate ROWS COLUMNS STEPS THREADS f32|f64 REPEATS".into());
    };
    let tile = Tile { rows: rows.parse()?, columns: columns.parse()?, above: Edge::Border, below: Edge::Border };
    let (steps, threads) = (steps.parse()?, threads.parse()?);
    let weights = Weights { center: 0.2, neighbour: 0.2 };
    let stencil = Stencil { weights, boundary: Boundary::Fixed, steps, threads, residual: false };
    let measure = if values == "f64" { measure::<f64> } else { measure::<f32> };
    measure(tile, stencil, repeats.parse()?)
}

fn measure<F: Real>(tile: Tile, stencil: Stencil, repeats: usize) -> Outcome {
    let Tile { rows, columns, .. } = tile;
    let stride = columns * size_of::<F>();
    let (source, result) = (Region::host(rows * stride)?, Region::host(rows * stride)?);
    for row in 0..rows {
        // As `initial` of bench/stencil/peers.c.
        let values: Vec<F> =
            (0..columns).map(|column| F::from_f64(((7 * row + 13 * column) % 64) as f64 / 64.0)).collect();
        source.write(row * stride, F::bytes(&values));
    }
    let cells = |region| RegionCells { region, offset: 0, stride };
    for repeat in 0..repeats {
        let start = Instant::now();
        stencil.advance::<F>(tile, &cells(&source), &cells(&result))?;
        let seconds = start.elapsed().as_secs_f64();
        if repeat == 0 {
            let at = |row: usize, column: usize| -> f64 {
                let mut value = [F::default()];
                result.read((row * columns + column) * size_of::<F>(), F::bytes_mut(&mut value));
                value[0].into()
            };
            println!("sum {}", at(1, 1) + at(rows / 3, columns / 5) + at(rows - 2, columns - 2));
        }
        println!("{seconds}");
    }
    Ok(())
}
