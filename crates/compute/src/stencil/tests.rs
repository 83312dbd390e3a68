use super::panels::PanelSize;
use super::row::portable_loops;
use super::{
    Boundary, Cells as _, Edge, Loops, Real, RegionCells, Residual, Stencil, StencilError, Tile, Weights, loops,
};
use proptest::prelude::*;
use shotline_memory::Region;
use shotline_random::SplitMix64;

/// A matrix of a test.
#[derive(Clone, Debug, PartialEq)]
struct Matrix<F> {
    columns: usize,
    values: Vec<F>,
}

impl<F: Real> Matrix<F> {
    fn random(rows: usize, columns: usize, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let value = |_| F::from_f64(random.next_u64() as i64 as f64 / (1_u64 << 58) as f64);
        Self { columns, values: (0..rows * columns).map(value).collect() }
    }

    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// The definition of a step, value by value.
    fn step(&self, weights: Weights, boundary: Boundary) -> Self {
        let (rows, columns) = (self.rows(), self.columns);
        let (center, neighbour) = (F::from_f64(weights.center), F::from_f64(weights.neighbour));
        let at = |row: usize, column: usize| self.values[row * columns + column];
        let beyond = |index: usize, by: isize, count: usize| match boundary {
            Boundary::Periodic => (index as isize + by).rem_euclid(count as isize) as usize,
            Boundary::Fixed | Boundary::Insulated => index.saturating_add_signed(by).min(count - 1),
        };
        let value = |row: usize, column: usize| {
            let is_border = row == 0 || column == 0 || row + 1 == rows || column + 1 == columns;
            if boundary == Boundary::Fixed && is_border {
                return at(row, column);
            }
            let vertical = at(beyond(row, -1, rows), column) + at(beyond(row, 1, rows), column);
            let horizontal = at(row, beyond(column, -1, columns)) + at(row, beyond(column, 1, columns));
            center * at(row, column) + neighbour * (vertical + horizontal)
        };
        let values = (0..rows * columns).map(|index| value(index / columns, index % columns)).collect();
        Self { columns, values }
    }

    fn after(&self, stencil: &Stencil) -> Self {
        (0..stencil.steps).fold(self.clone(), |matrix, _| matrix.step(stencil.weights, stencil.boundary))
    }

    /// Returns rows of the matrix, which continues periodically.
    fn part(&self, first: isize, rows: usize) -> Self {
        let row = |index: usize| (first + index as isize).rem_euclid(self.rows() as isize) as usize * self.columns;
        let values = (0..rows).flat_map(|index| self.values[row(index)..][..self.columns].to_vec()).collect();
        Self { columns: self.columns, values }
    }

    fn region(&self) -> std::sync::Arc<Region> {
        let region = Region::heap(size_of_val(self.values.as_slice())).unwrap();
        region.write(0, F::bytes(&self.values));
        region
    }

    fn of(region: &Region, offset: usize, rows: usize, columns: usize) -> Self {
        let mut values = vec![F::default(); rows * columns];
        region.read(offset, F::bytes_mut(&mut values));
        Self { columns, values }
    }
}

const BOUNDARIES: [Boundary; 3] = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated];

fn stencil(boundary: Boundary, steps: usize, threads: usize) -> Stencil {
    Stencil { weights: Weights { center: 0.3, neighbour: 0.19 }, boundary, steps, threads, residual: true }
}

fn whole<F>(matrix: &Matrix<F>) -> Tile {
    Tile {
        rows: matrix.values.len() / matrix.columns,
        columns: matrix.columns,
        above: Edge::Border,
        below: Edge::Border,
    }
}

/// Advances a whole matrix in place by loops and panels of a test.
fn in_place<F: Real>(
    matrix: &Matrix<F>,
    stencil: &Stencil,
    loops: &Loops<F>,
    panels: [usize; 2],
) -> (Matrix<F>, Residual) {
    let region = matrix.region();
    let cells = RegionCells { region: &region, offset: 0, stride: matrix.columns * size_of::<F>() };
    let [columns, chunk] = panels;
    let residual = stencil.advance_by(loops, PanelSize { columns, chunk }, whole(matrix), &cells, &cells).unwrap();
    (Matrix::of(&region, 0, matrix.rows(), matrix.columns), residual)
}

fn check_all_loops<F: Real>(rows: usize, columns: usize, seed: u64, stencil: &Stencil) {
    let matrix = Matrix::<F>::random(rows, columns, seed);
    let (expected, before) = (matrix.after(stencil), matrix.after(&Stencil { steps: stencil.steps - 1, ..*stencil }));
    for loops in loops() {
        let (found, residual) = in_place(&matrix, stencil, &loops, [256, 96]);
        assert!(found == expected, "{}: {rows}x{columns} {stencil:?}", loops.name);
        let changes = || expected.values.iter().zip(&before.values).map(|(a, b)| Into::<f64>::into(*a) - (*b).into());
        assert_eq!(residual.max, changes().fold(0.0, |max: f64, change| max.max(change.abs())));
        let l2 = changes().map(|change| change * change).sum::<f64>().sqrt();
        assert!((residual.l2() - l2).abs() <= 1e-12 * l2, "{} {l2}", residual.l2());
        assert_eq!(residual, in_place(&matrix, &Stencil { threads: 1, ..*stencil }, &portable_loops(), [512, 512]).1);
    }
}

fn boundaries() -> impl Strategy<Value = Boundary> {
    prop::sample::select(&BOUNDARIES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(shotline_testing::cases(60)))]

    #[test]
    fn every_loop_computes_the_definition_in_place(
        (rows, columns) in (1_usize..40, 1_usize..600), seed: u64, boundary in boundaries(), steps in 1_usize..20, threads in 1_usize..5,
    ) {
        check_all_loops::<f32>(rows, columns, seed, &stencil(boundary, steps, threads));
        check_all_loops::<f64>(rows, columns, seed, &stencil(boundary, steps, threads));
    }

    #[test]
    fn tiles_with_halos_give_the_rows_of_the_whole(
        (rows, columns) in (2_usize..60, 1_usize..300), seed: u64, boundary in boundaries(), steps in 1_usize..12, tiles in 2_usize..5,
    ) {
        let stencil = stencil(boundary, steps, 2);
        let matrix = Matrix::<f32>::random(rows, columns, seed);
        let (expected, residual) = in_place(&matrix, &stencil, &portable_loops(), [256, 256]);
        let (mut joined, mut squares) = (Vec::new(), Vec::new());
        for tile in 0..tiles.min(rows) {
            let own = rows * tile / tiles.min(rows)..rows * (tile + 1) / tiles.min(rows);
            let is_periodic = boundary == Boundary::Periodic;
            let above = if is_periodic || own.start >= steps { Edge::Halo } else { Edge::Border };
            let below = if is_periodic || own.end + steps <= rows { Edge::Halo } else { Edge::Border };
            let first = if above == Edge::Halo { own.start as isize - steps as isize } else { 0 };
            let end = if below == Edge::Halo { (own.end + steps) as isize } else { rows as isize };
            let part = matrix.part(first, (end - first) as usize);
            let source = part.region();
            let result = Region::heap(size_of_val(part.values.as_slice())).unwrap();
            let stride = columns * 4;
            let tile = Tile { above, below, ..whole(&part) };
            let own_part = stencil
                .advance::<f32>(tile, &RegionCells { region: &source, offset: 0, stride }, &RegionCells { region: &result, offset: 0, stride })
                .unwrap();
            // A border closer than the halo makes further rows results.
            let skipped = own.start - (first + tile.result_rows(steps).unwrap().start as isize) as usize;
            joined.extend(Matrix::<f32>::of(&result, skipped * stride, own.len(), columns).values);
            squares.extend_from_slice(&own_part.squares[skipped..][..own.len()]);
            prop_assert!(source_is_unchanged(&source, &part));
        }
        prop_assert!(joined == expected.values);
        prop_assert_eq!(squares, residual.squares);
    }
}

/// Checks a step whose rows are whole cache lines, as those from memory to memory are: in place, and of rows with halos.
fn check_one_step<F: Real>(rows: usize, lines: usize, seed: u64, stencil: &Stencil) {
    let columns = lines * 64 / size_of::<F>();
    let matrix = Matrix::<F>::random(rows, columns, seed);
    let expected = matrix.after(stencil);
    for loops in loops() {
        let (found, residual) = in_place(&matrix, stencil, &loops, [256, 96]);
        assert!(found == expected && residual == Residual::default(), "{}: {rows}x{columns} {stencil:?}", loops.name);
    }
    let part = matrix.part(-1, rows + 2);
    let all = part.after(stencil);
    // Rows at such distances are not all whole cache lines.
    for gap in [0, 8, 32, 64] {
        let stride = columns * size_of::<F>() + gap;
        let region = Region::heap((rows + 2) * stride).unwrap();
        let cells = |offset| RegionCells { region: &region, offset, stride };
        part.values.chunks(columns).enumerate().for_each(|(row, values)| cells(0).store(row, 0, values));
        let tile = Tile { above: Edge::Halo, below: Edge::Halo, ..whole(&part) };
        stencil.advance::<F>(tile, &cells(0), &cells(stride)).unwrap();
        for row in 0..rows + 2 {
            let mut found = vec![F::default(); columns];
            cells(0).load(row, 0, &mut found);
            let is_halo = row == 0 || row == rows + 1;
            let expected = &(if is_halo { &part } else { &all }).values[row * columns..][..columns];
            assert!(found == expected, "row {row} of {rows}x{columns}, gap {gap}: {stencil:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(shotline_testing::cases(100)))]

    #[test]
    fn one_step_of_whole_cache_lines_gives_the_definition(
        rows in 1_usize..20, lines in 1_usize..40, seed: u64, boundary in boundaries(), threads in 1_usize..5,
    ) {
        let stencil = Stencil { residual: false, ..stencil(boundary, 1, threads) };
        check_one_step::<f32>(rows, lines, seed, &stencil);
        check_one_step::<f64>(rows, lines, seed, &stencil);
    }
}

fn source_is_unchanged(region: &Region, matrix: &Matrix<f32>) -> bool {
    Matrix::of(region, 0, matrix.rows(), matrix.columns) == *matrix
}

#[test]
fn the_width_of_panels_does_not_change_the_result() {
    for boundary in BOUNDARIES {
        for steps in [1, 2, 3, 16] {
            let stencil = stencil(boundary, steps, 1);
            let matrix = Matrix::<f64>::random(50, 1030, 5);
            let expected = in_place(&matrix, &stencil, &portable_loops(), [2048, 4096]);
            for panels in [[256, 16], [512, 64], [1024, 304]] {
                assert!(
                    in_place(&matrix, &stencil, &portable_loops(), panels) == expected,
                    "{panels:?}, {boundary:?}, {steps}"
                );
            }
        }
    }
}

#[test]
fn a_nan_spreads_by_one_point_a_step_and_no_further() {
    let mut matrix = Matrix::<f32>::random(21, 300, 1);
    (matrix.values[10 * 300 + 150], matrix.values[10 * 300 + 20]) = (f32::NAN, f32::INFINITY);
    for loops in loops() {
        let (found, residual) = in_place(&matrix, &stencil(Boundary::Insulated, 3, 2), &loops, [256, 96]);
        for (index, value) in found.values.iter().enumerate() {
            let distance = |column: isize| (index as isize / 300 - 10).abs() + (index as isize % 300 - column).abs();
            assert_eq!(value.is_nan(), distance(150) <= 3 || (distance(20) < 3 && value.is_nan()), "{index}");
            assert!(value.is_finite() || distance(150) <= 3 || distance(20) <= 3, "{index}");
        }
        assert!(residual.max.is_nan());
    }
}

#[test]
fn tiles_and_numbers_without_a_result_are_refused() {
    let tile = Tile { rows: 16, columns: 8, above: Edge::Halo, below: Edge::Halo };
    let region = Region::heap(4096).unwrap();
    let cells = RegionCells { region: &region, offset: 0, stride: 32 };
    let advance = |tile, stencil: Stencil| stencil.advance::<f32>(tile, &cells, &cells).unwrap_err();
    let fixed = stencil(Boundary::Fixed, 8, 1);
    let refused = StencilError::NoResult { rows: 16, columns: 8, above: 8, below: 8 };
    assert_eq!(advance(tile, fixed), refused);
    assert!(matches!(advance(Tile { columns: 0, ..tile }, fixed), StencilError::NoResult { columns: 0, .. }));
    assert_eq!(advance(tile, Stencil { steps: 0, ..fixed }), StencilError::Steps { found: 0, max: 64 });
    assert_eq!(advance(tile, Stencil { steps: 65, ..fixed }), StencilError::Steps { found: 65, max: 64 });
    assert_eq!(advance(tile, Stencil { threads: 0, ..fixed }), StencilError::Threads);
    let half = Tile { below: Edge::Border, ..tile };
    assert_eq!(advance(half, stencil(Boundary::Periodic, 2, 1)), StencilError::HalfPeriodic);
}

#[test]
fn an_insulated_plate_keeps_its_heat() {
    let matrix = Matrix::<f64>::random(30, 40, 9);
    let heat = Stencil { weights: Weights::heat(0.25), ..stencil(Boundary::Insulated, 64, 1) };
    let (found, _) = in_place(&matrix, &heat, &portable_loops(), [256, 256]);
    let (before, after): (f64, f64) = (matrix.values.iter().sum(), found.values.iter().sum());
    assert!((before - after).abs() < 1e-9 * matrix.values.len() as f64, "{before} {after}");
}
