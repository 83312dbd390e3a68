//! Measures the stencil: `stencil_rate ROWS COLUMNS STEPS THREADS f32|f64 [REPEATS]`. Prints the seconds of each pass.

use shotline_compute::stencil::{Boundary, Edge, Real, RegionCells, Stencil, Tile, Weights};
use shotline_memory::Region;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse::<usize>();
    let repeats = if arguments.len() > 5 { number(5)? } else { 5 };
    let run = if arguments[4] == "f64" { measure::<f64> } else { measure::<f32> };
    run([number(0)?, number(1)?, number(2)?, number(3)?], repeats)
}

fn measure<F: Real>(
    [rows, columns, steps, threads]: [usize; 4],
    repeats: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let stride = columns * size_of::<F>();
    let (source, result) = (Region::host(rows * stride)?, Region::host(rows * stride)?);
    let ones = vec![F::from_f64(1.0); columns];
    (0..rows).for_each(|row| source.write(row * stride, F::bytes(&ones)));
    let tile = Tile { rows, columns, above: Edge::Border, below: Edge::Border };
    let stencil = Stencil { weights: Weights::heat(0.2), boundary: Boundary::Fixed, steps, threads, residual: false };
    let cells = |region| RegionCells { region, offset: 0, stride };
    for _ in 0..repeats {
        let start = Instant::now();
        stencil.advance::<F>(tile, &cells(&source), &cells(&result))?;
        println!("{}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
