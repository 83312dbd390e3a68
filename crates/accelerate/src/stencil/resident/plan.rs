//! Division of a matrix into one tile for each node, and what is where in a node's memory.
//!
//! | contents | bytes |
//! |---|---|
//! | halo above, tile, halo below | rows of the tile and twice the steps of a round |
//! | sums of the squares of the rows | 8 each |
//! | landing zones, two for each side | steps of a round in rows, each |
//! | signal of each side, identity of the node | 8 each |
//! | address of the neighbour on each side | [`MAX_ADDRESS_BYTES`] each |
//!
//! A neighbour writes its border rows into a landing zone, not into the halo, which may still be in use. It uses the two
//! zones of a side in turn. It can be one round ahead but not two, because it needs this node's rows of the round in
//! between: so a zone is free when it is written again.

use crate::command::{Connect, Exchange, Kernel, MAX_ADDRESS_BYTES};
use crate::stencil::plan::TileRows;
use crate::stencil::{Matrix, PlanError};
use shotline_compute::stencil::{Boundary, MAX_STEPS};
use shotline_verbs::cm::Token;
use std::ops::Range;
use std::time::Duration;

/// A border of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Above,
    Below,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Above, Self::Below];

    fn opposite(self) -> Self {
        match self {
            Self::Above => Self::Below,
            Self::Below => Self::Above,
        }
    }
}

/// The steps of a run, in rounds.
#[derive(Clone, Copy)]
pub(super) struct Rounds {
    pub(super) steps: u64,
    pub(super) round_steps: u64,
}

impl Rounds {
    pub(super) fn count(&self) -> u64 {
        self.steps.div_ceil(self.round_steps)
    }
    /// Returns the steps of a round.
    pub(super) fn steps(&self, round: u64) -> u64 {
        self.round_steps.min(self.steps - round * self.round_steps)
    }
}

/// What a command of a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Connect(Side),
    Wait(Side),
    Steps(u64),
    /// With the number of bytes.
    Put(Side, u64),
    Disconnect(Side),
}

/// Where other nodes reach a node.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// Address of its control connection: `ADDRESS:PORT`, or a path.
    pub address: String,
    /// Its token.
    pub token: Token,
}

/// Tiles of a matrix that stay in the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidentPlan {
    /// The matrix.
    pub matrix: Matrix,
    /// Steps of a round.
    pub round_steps: u64,
    /// Number of tiles, and of nodes that are used.
    pub tiles: u64,
    /// Time in milliseconds that a node waits for another one.
    pub timeout_ms: u64,
}

impl ResidentPlan {
    /// Divides a matrix for at most so many nodes. `memory` is the smallest of their memories. A node that would have fewer
    /// rows than a halo is not used. A node waits for another one for twice the timeout of the run, so that the initiator, which
    /// knows more, finds the culprit first.
    ///
    /// # Errors
    /// If a tile does not fit, or a number is out of its range.
    pub fn new(
        matrix: Matrix,
        round_steps: u64,
        memory: u64,
        nodes: u64,
        timeout: Duration,
    ) -> Result<Self, PlanError> {
        if matrix.rows == 0 || matrix.columns == 0 {
            return Err(PlanError::Empty { rows: matrix.rows, columns: matrix.columns });
        }
        if !(1..=MAX_STEPS as u64).contains(&round_steps) {
            return Err(PlanError::Steps(round_steps));
        }
        let tiles = nodes.min(matrix.rows / round_steps).max(1);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
        let plan = Self { matrix, round_steps, tiles, timeout_ms };
        let (rows, needed) = (plan.tile_rows(), plan.bytes().unwrap_or(u64::MAX));
        if needed > memory { Err(PlanError::DoesNotStay { rows, needed, memory }) } else { Ok(plan) }
    }

    /// Returns the most rows of a tile.
    pub fn tile_rows(&self) -> u64 {
        self.matrix.rows.div_ceil(self.tiles)
    }

    /// Returns the rows of a tile.
    pub(super) fn rows(&self, tile: u64) -> Range<u64> {
        let first = |tile: u64| (u128::from(tile) * u128::from(self.matrix.rows) / u128::from(self.tiles)) as u64;
        first(tile)..first(tile + 1)
    }

    /// Returns the tile on a side of another one.
    pub(super) fn neighbour(&self, tile: u64, side: Side) -> Option<u64> {
        let is_ring = self.matrix.boundary == Boundary::Periodic;
        let next = match side {
            Side::Above if tile == 0 => is_ring.then_some(self.tiles - 1),
            Side::Above => Some(tile - 1),
            Side::Below if tile + 1 == self.tiles => is_ring.then_some(0),
            Side::Below => Some(tile + 1),
        };
        next.filter(|_| self.tiles > 1)
    }

    /// Returns a tile with the halos for a round of this many steps.
    fn tile(&self, tile: u64, steps: u64) -> TileRows {
        if self.tiles == 1 {
            return TileRows::whole(&self.matrix);
        }
        TileRows::new(&self.matrix, self.rows(tile), steps)
    }

    /// Returns the rows of a matrix that are the halo on a side of a tile.
    pub(super) fn halo(&self, tile: u64, side: Side, steps: u64) -> Option<Range<u64>> {
        let from = self.rows(self.neighbour(tile, side)?);
        Some(border(&from, side.opposite(), steps))
    }

    /// Returns the commands of a round: wait for the halos, compute, and put the border rows, for the next round.
    pub(super) fn round(&self, tile: u64, rounds: Rounds, round: u64, residual: bool) -> Vec<(Task, Kernel)> {
        let (steps, is_last) = (rounds.steps(round), round + 1 == rounds.count());
        let sides = || Side::BOTH.into_iter().filter(|side| self.neighbour(tile, *side).is_some());
        let mut commands = Vec::new();
        if round > 0 {
            commands.extend(sides().map(|side| (Task::Wait(side), self.wait(tile, side, round - 1, steps))));
        }
        commands.push((Task::Steps(round), self.steps(tile, steps, residual && is_last)));
        if !is_last {
            let steps = rounds.steps(round + 1);
            let bytes = steps * self.matrix.row_bytes();
            commands.extend(sides().map(|side| (Task::Put(side, bytes), self.put(tile, side, round, steps))));
        } else {
            // Now, so that a node is free for the next run when its initiator has gone.
            commands.extend(sides().map(|side| (Task::Disconnect(side), disconnect(side))));
        }
        commands
    }

    /// Returns the command for the steps of a round.
    fn steps(&self, tile: u64, steps: u64, squares: bool) -> Kernel {
        let tile = self.tile(tile, steps);
        let source = self.rows_at() - tile.above * self.matrix.row_bytes();
        Kernel::Stencil(tile.command(&self.matrix, steps, source, squares.then(|| self.squares_at())))
    }

    /// Returns the command that writes the border rows on a side to the neighbour, after the round with this number, as its
    /// halo for so many steps.
    fn put(&self, tile: u64, side: Side, round: u64, steps: u64) -> Kernel {
        let rows = self.rows(tile);
        let from = border(&rows, side, steps).start - rows.start;
        let (there, row) = (side.opposite(), self.matrix.row_bytes());
        let exchange = Exchange {
            from: self.rows_at() + from * row,
            to: self.landing_at(there, round),
            bytes: steps * row,
            signal: self.signal_at(there),
            value: round + 1,
            timeout_ms: self.timeout_ms,
        };
        Kernel::Put { neighbour: side as u32, exchange }
    }

    /// Returns the command that waits for what the neighbour has put after the round with this number.
    fn wait(&self, tile: u64, side: Side, round: u64, steps: u64) -> Kernel {
        Kernel::Wait(Exchange {
            from: self.landing_at(side, round),
            to: self.halo_at(tile, side, steps),
            bytes: steps * self.matrix.row_bytes(),
            signal: self.signal_at(side),
            value: round + 1,
            timeout_ms: self.timeout_ms,
        })
    }

    /// Returns the offset of the halo on a side for so many steps.
    pub(super) fn halo_at(&self, tile: u64, side: Side, steps: u64) -> u64 {
        let (rows, row) = (self.rows(tile), self.matrix.row_bytes());
        match side {
            Side::Above => self.rows_at() - steps * row,
            Side::Below => self.rows_at() + (rows.end - rows.start) * row,
        }
    }

    /// Returns the rows of a halo in memory.
    fn halo_rows(&self) -> u64 {
        if self.tiles > 1 { self.round_steps } else { 0 }
    }
    /// Returns the offset of the tile.
    pub(super) fn rows_at(&self) -> u64 {
        self.halo_rows() * self.matrix.row_bytes()
    }
    /// Returns the offset of the sums of the squares.
    pub(super) fn squares_at(&self) -> u64 {
        ((self.tile_rows() + 2 * self.halo_rows()) * self.matrix.row_bytes()).next_multiple_of(8)
    }
    /// Returns the offset of the landing zone for the rows of this round.
    fn landing_at(&self, side: Side, round: u64) -> u64 {
        let zone = 2 * (side as u64) + round % 2;
        self.squares_at() + 8 * self.tile_rows() + zone * self.rows_at().next_multiple_of(8)
    }
    fn signal_at(&self, side: Side) -> u64 {
        self.setup_at() + 8 * side as u64
    }
    /// Returns the offset of what is written before anything else: the signals, the identity and the addresses.
    pub(super) fn setup_at(&self) -> u64 {
        self.landing_at(Side::Above, 0) + 4 * self.rows_at().next_multiple_of(8)
    }
    /// Returns the offset of the identity.
    pub(super) fn identity_at(&self) -> u64 {
        self.setup_at() + IDENTITY as u64
    }
    /// Returns the offset of the address of the neighbour on a side.
    pub(super) fn address_at(&self, side: Side) -> u64 {
        self.setup_at() + ADDRESSES as u64 + MAX_ADDRESS_BYTES * side as u64
    }

    /// Returns the bytes of a node's memory that are used, if they are less than 2^64.
    fn bytes(&self) -> Option<u64> {
        // Everything else follows from these numbers without an overflow.
        let rows = self.tile_rows().checked_add(self.halo_rows().checked_mul(6)?)?.checked_add(8)?;
        let row = self.matrix.columns.checked_mul(self.matrix.values.bytes())?.checked_add(8)?;
        rows.checked_mul(row)?.checked_add(SETUP_BYTES as u64)?;
        Some(self.setup_at() + SETUP_BYTES as u64)
    }
}

/// Offsets in what is written before anything else, after the signals, and its length.
pub(super) const IDENTITY: usize = 16;
pub(super) const ADDRESSES: usize = 24;
pub(super) const SETUP_BYTES: usize = ADDRESSES + 2 * MAX_ADDRESS_BYTES as usize;

/// Returns the command that disconnects the neighbour on a side.
fn disconnect(side: Side) -> Kernel {
    let (neighbour, token) = (side as u32, Token::from_bytes([0; 16]));
    Kernel::Connect(Connect { neighbour, token, address: 0, address_bytes: 0, identity_at: 0, identity: 0 })
}

/// Returns the rows of a tile at a side.
fn border(rows: &Range<u64>, side: Side, count: u64) -> Range<u64> {
    match side {
        Side::Above => rows.start..rows.start + count,
        Side::Below => rows.end - count..rows.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Values;
    use crate::stencil::plan::tests::{matrix, random, whole};
    use proptest::prelude::*;
    use shotline_compute::stencil::{Cells as _, RegionCells};
    use shotline_memory::Region;
    use shotline_random::SplitMix64;
    use std::collections::VecDeque;
    use std::sync::Arc;

    /// A node that executes its commands in their order.
    struct TestNode {
        memory: Arc<Region>,
        commands: VecDeque<(Task, Kernel)>,
    }

    impl TestNode {
        fn signal(&self, at: u64) -> u64 {
            let mut bytes = [0; 8];
            self.memory.read(at as usize, &mut bytes);
            u64::from_le_bytes(bytes)
        }
    }

    fn cells(memory: &Region, offset: u64, stride: usize) -> RegionCells<'_> {
        RegionCells { region: memory, offset: offset as usize, stride }
    }

    /// Computes a matrix by nodes that take turns by chance.
    fn by_nodes(plan: &ResidentPlan, rows: &[Vec<f32>], rounds: Rounds, random: &mut SplitMix64) -> Vec<Vec<f32>> {
        let bytes = plan.bytes().unwrap() as usize;
        let stride = plan.matrix.row_bytes() as usize;
        let mut nodes: Vec<_> = (0..plan.tiles)
            .map(|tile| {
                let memory = Region::heap(bytes).unwrap();
                let store = |from: Range<u64>, to: u64| {
                    for (number, row) in (0..).zip(&rows[from.start as usize..from.end as usize]) {
                        cells(&memory, to, stride).store(number, 0, row);
                    }
                };
                store(plan.rows(tile), plan.rows_at());
                for side in Side::BOTH {
                    let steps = rounds.steps(0);
                    plan.halo(tile, side, steps)
                        .into_iter()
                        .for_each(|rows| store(rows, plan.halo_at(tile, side, steps)));
                }
                let commands = (0..rounds.count()).flat_map(|round| plan.round(tile, rounds, round, true)).collect();
                TestNode { memory, commands }
            })
            .collect();
        while nodes.iter().any(|node| !node.commands.is_empty()) {
            let tile = (random.next_u64() % plan.tiles) as usize;
            let Some((task, kernel)) = nodes[tile].commands.front().copied() else { continue };
            assert_eq!(kernel.check(bytes as u64, 1), Ok(()), "{task:?}");
            let node = &nodes[tile];
            match (task, kernel) {
                (_, Kernel::Stencil(work)) => {
                    let (source, result) =
                        (cells(&node.memory, work.source, stride), cells(&node.memory, work.result, stride));
                    work.stencil(1).advance::<f32>(work.tile, &source, &result).unwrap();
                }
                (Task::Put(side, _), Kernel::Put { exchange, .. }) => {
                    let other = &nodes[plan.neighbour(tile as u64, side).unwrap() as usize];
                    let Exchange { from, to, bytes, signal, value, .. } = exchange;
                    other.memory.copy_from(to as usize, &node.memory, from as usize, bytes as usize);
                    assert_eq!(other.signal(signal) + 1, value);
                    other.memory.write(signal as usize, &value.to_le_bytes());
                }
                (_, Kernel::Wait(Exchange { from, to, bytes, signal, value, .. })) => {
                    if node.signal(signal) < value {
                        continue;
                    }
                    node.memory.copy_from(to as usize, &node.memory, from as usize, bytes as usize);
                }
                (Task::Disconnect(_), Kernel::Connect(_)) => {}
                other => panic!("{other:?}"),
            }
            nodes[tile].commands.pop_front();
        }
        let read = |tile: u64, row: u64| {
            let mut values = vec![0.0; plan.matrix.columns as usize];
            cells(&nodes[tile as usize].memory, plan.rows_at(), stride).load(row as usize, 0, &mut values);
            values
        };
        (0..plan.tiles)
            .flat_map(|tile| (0..plan.rows(tile).end - plan.rows(tile).start).map(move |row| (tile, row)))
            .map(|(tile, row)| read(tile, row))
            .collect()
    }

    proptest! {
        #[test]
        fn nodes_in_any_order_give_the_bits_of_the_whole_matrix(
            rows in 1_u64..40,
            columns in 1_u64..20,
            steps in 1_u64..60,
            round_steps in 1_u64..9,
            nodes in 1_u64..6,
            kind in 0_usize..3,
            seed: u64,
        ) {
            let boundary = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated][kind];
            let matrix = matrix(rows, columns, boundary);
            let plan = ResidentPlan::new(matrix, round_steps, 1 << 20, nodes, Duration::ZERO).unwrap();
            let values = random(&matrix, seed);
            let found = by_nodes(&plan, &values, Rounds { steps, round_steps }, &mut SplitMix64::new(seed));
            prop_assert_eq!(found, whole(&matrix, &values, steps));
        }
    }

    #[test]
    fn nodes_without_a_halo_of_rows_are_not_used() {
        let tiles = |rows, nodes| {
            ResidentPlan::new(matrix(rows, 10, Boundary::Fixed), 16, 1 << 20, nodes, Duration::ZERO).unwrap().tiles
        };
        assert_eq!((tiles(64, 4), tiles(63, 4), tiles(31, 4), tiles(1, 4)), (4, 3, 1, 1));
    }

    #[test]
    fn tiles_that_do_not_fit_are_refused_with_the_sizes() {
        let refused = |matrix, memory| ResidentPlan::new(matrix, 16, memory, 4, Duration::ZERO).unwrap_err();
        let fits = matrix(400, 100, Boundary::Fixed);
        let PlanError::DoesNotStay { rows: 100, needed, memory: 4096 } = refused(fits, 4096) else { panic!() };
        assert!(needed > (100 + 6 * 16) * 400 && needed < (100 + 6 * 16) * 400 + 2048, "{needed}");
        assert!(ResidentPlan::new(fits, 16, needed, 4, Duration::ZERO).is_ok());
        refused(fits, needed - 1);
        let huge = Matrix { rows: u64::MAX, columns: u64::MAX, values: Values::F64, ..fits };
        assert!(matches!(refused(huge, u64::MAX - 1), PlanError::DoesNotStay { needed: u64::MAX, .. }));
    }
}
