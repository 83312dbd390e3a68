//! The rounds of a stencil over several nodes.

use super::plan::{Matrix, Plan, TileRows};
use crate::command::{Completion, Kernel, Outcome};
use crate::error::NodeError;
use crate::node::{Event, Node};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use shotline_compute::stencil::Boundary;
use shotline_memory::{MemoryError, Mr, Pages, Region, check_capacity};
use shotline_verbs::cm::{Endpoint, TokenError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest sleep between two looks at the clock.
const NAP: Duration = Duration::from_millis(50);

/// The stencil was not computed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is not enough memory for the halos.
    #[error(
        "the halos of the tiles: {0}, or use tiles of more rows (--tile-rows, --node-memory) or rounds of fewer steps"
    )]
    Halos(MemoryError),
    /// A node failed.
    #[error("node {index}: {error}")]
    Node {
        /// Number of the node, from 0.
        index: usize,
        /// What failed.
        error: NodeError,
    },
    /// A node refused a command.
    #[error("node {index}, rows {first} to {end}: {outcome}")]
    Refused {
        /// Number of the node, from 0.
        index: usize,
        /// First row of the tile.
        first: u64,
        /// Row after the last one.
        end: u64,
        /// Reason of the node.
        outcome: Outcome,
    },
    /// A node did nothing for too long.
    #[error(
        "node {index}: rows {first} to {end} are not {expected}, and nothing has happened for {seconds} s: the node hangs, or is too slow"
    )]
    Timeout {
        /// Number of the node, from 0.
        index: usize,
        /// First row of the tile.
        first: u64,
        /// Row after the last one.
        end: u64,
        /// What was expected.
        expected: &'static str,
        /// Time since the last progress.
        seconds: u64,
    },
    /// A node cannot exchange halos with another one.
    #[error("node {index} cannot exchange halos with node {neighbour}: {reason}")]
    Neighbour {
        /// Number of the node, from 0.
        index: usize,
        /// Number of the other node.
        neighbour: usize,
        /// What failed.
        reason: String,
    },
    /// There are no random numbers.
    #[error(transparent)]
    Random(TokenError),
    /// The run was interrupted. Some tiles of the matrix have more steps than others.
    #[error("interrupted after {0} complete rounds")]
    Interrupted(u64),
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Steps of complete rounds.
    pub steps: u64,
    /// Complete tiles of all rounds.
    pub tiles: u64,
    /// Tiles of all rounds.
    pub tiles_in_all: u64,
}

/// Times and bytes of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReport {
    /// Tiles computed.
    pub tiles: u64,
    /// Bytes written to the node, with halos.
    pub bytes_out: u64,
    /// Bytes read back.
    pub bytes_back: u64,
    /// Time in which at least one tile was being written.
    pub writing: Duration,
    /// Sum of the times that commands waited for the one before.
    pub waiting: Duration,
    /// Time that the node computed.
    pub computing: Duration,
    /// Bytes written to other nodes.
    pub bytes_exchanged: u64,
    /// Time that the node wrote to others.
    pub exchanging: Duration,
    /// Time that the node waited for halos.
    pub waiting_for_halos: Duration,
    /// Time in which at least one tile was being read back.
    pub reading: Duration,
}

/// What a run took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Each node.
    pub nodes: Vec<NodeReport>,
    /// Time of the run.
    pub elapsed: Duration,
    /// Largest change of the last step, if it was requested.
    pub max_change: f64,
    /// Root of the sum of the squares of the changes of the last step, if it was requested.
    pub l2_change: f64,
}

/// Time in which at least one of several transfers was in progress.
#[derive(Default)]
pub(super) struct Busy {
    active: u32,
    since: Option<Instant>,
    pub(super) total: Duration,
}

impl Busy {
    pub(super) fn begin(&mut self) {
        self.active += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn end(&mut self) {
        self.active = self.active.saturating_sub(1);
        if self.active == 0 {
            self.total += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

/// A buffer in the memory of a node.
struct Buffer {
    offset: u64,
    work: Option<Work>,
}

/// A tile in a buffer.
struct Work {
    tile: TileRows,
    stage: Stage,
    /// Transfers of the stage that are not complete.
    transfers: u32,
    /// Completion that has arrived before the acknowledgements of the writes.
    completion: Option<Completion>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Writing,
    Computing,
    Reading,
}

struct Lane<'a, P> {
    node: &'a mut Node<P>,
    matrix: Mr,
    halos: Mr,
    squares: Mr,
    buffers: Vec<Buffer>,
    report: NodeReport,
    writing: Busy,
    reading: Busy,
    /// Time of the last progress.
    active_at: Instant,
}

/// Parameters of a run.
pub struct Options<'a> {
    /// Number of steps.
    pub steps: u64,
    /// Compute the change of the last step.
    pub residual: bool,
    /// Time after which a node whose operations and commands make no progress is considered hung.
    pub timeout: Duration,
    /// Ends the run.
    pub stop: &'a AtomicBool,
}

/// Computes steps of a matrix that begins at `offset` of a region, in place.
///
/// # Errors
/// If a node fails, hangs or refuses a tile. The matrix then has tiles of different steps.
pub fn run<P: Endpoint>(
    plan: &Plan,
    nodes: &mut [Node<P>],
    (matrix, offset): (&Arc<Region>, u64),
    options: &Options<'_>,
    mut observe: impl FnMut(Progress),
) -> Result<Report, RunError> {
    let memory = Memory::new(plan, matrix, offset)?;
    let mut lanes = Vec::new();
    for (index, node) in nodes.iter_mut().enumerate() {
        lanes.push(Lane::new(node, plan, &memory).map_err(|error| RunError::Node { index, error })?);
    }
    let begin = Instant::now();
    let rounds = options.steps.div_ceil(plan.round_steps);
    let mut progress = Progress { tiles_in_all: rounds.saturating_mul(plan.tiles()), ..Progress::default() };
    let mut is_armed = false;
    let mut round = Round { plan, offset, steps: 0, with_squares: false, next: 0, done: 0, max_change: 0.0 };
    for number in 0..rounds {
        round.steps = plan.round_steps.min(options.steps - progress.steps);
        round.with_squares = options.residual && number + 1 == rounds;
        (round.next, round.done) = (0, 0);
        memory.save_halos(plan, round.steps);
        while round.done < plan.tiles() {
            if options.stop.load(Relaxed) {
                return Err(RunError::Interrupted(number));
            }
            let mut busy = false;
            for (index, lane) in lanes.iter_mut().enumerate() {
                busy |= lane.advance(index, &mut round, options)?;
            }
            // Looks once more after the nodes are armed: what came before wakes no thread.
            match (busy, is_armed) {
                (true, _) => {}
                (false, false) => arm(lanes.iter_mut().map(|lane| &mut *lane.node))?,
                (false, true) => sleep(lanes.iter().map(|lane| &*lane.node)),
            }
            is_armed = !busy && !is_armed;
            let tiles = number.saturating_mul(plan.tiles()).saturating_add(round.done);
            if tiles != progress.tiles {
                progress.tiles = tiles;
                observe(progress);
            }
        }
        progress.steps += round.steps;
        observe(progress);
    }
    Ok(Report {
        elapsed: begin.elapsed(),
        max_change: round.max_change,
        l2_change: if options.residual { memory.sum_of_squares(plan.matrix.rows).sqrt() } else { 0.0 },
        nodes: lanes.into_iter().map(Lane::report).collect(),
    })
}

/// Local memory of a run.
pub(super) struct Memory {
    pub(super) matrix: Arc<Region>,
    /// Offset of the matrix in its region.
    offset: u64,
    /// Rows on both sides of each boundary of tiles, as they were before a round.
    halos: Arc<Region>,
    /// Sums of the squares of the changes of each row.
    pub(super) squares: Arc<Region>,
}

impl Memory {
    fn new(plan: &Plan, matrix: &Arc<Region>, offset: u64) -> Result<Self, RunError> {
        Self::with_halos(&plan.matrix, matrix, offset, plan.halo_bytes())
    }

    /// Returns memory without halos.
    pub(super) fn without_halos(plan: &Matrix, matrix: &Arc<Region>, offset: u64) -> Result<Self, RunError> {
        Self::with_halos(plan, matrix, offset, 0)
    }

    fn with_halos(plan: &Matrix, matrix: &Arc<Region>, offset: u64, halo_bytes: u64) -> Result<Self, RunError> {
        let squares_bytes = plan.rows.saturating_mul(8);
        check_capacity([(Pages::Small, halo_bytes), (Pages::Small, squares_bytes)]).map_err(RunError::Halos)?;
        // There is no region of 0 bytes.
        let (halos, squares) = (Region::heap(halo_bytes.max(8) as usize)?, Region::heap(squares_bytes as usize)?);
        Ok(Self { matrix: Arc::clone(matrix), offset, halos, squares })
    }

    /// Copies the rows above and below each boundary of tiles, as many as steps.
    fn save_halos(&self, plan: &Plan, steps: u64) {
        let (row, rows) = (plan.matrix.row_bytes(), i128::from(plan.matrix.rows));
        let is_periodic = plan.matrix.boundary == Boundary::Periodic;
        for boundary in 0..=plan.tiles() {
            let at = i128::from((boundary * plan.tile_rows).min(plan.matrix.rows));
            for index in 0..2 * steps {
                let from = at + i128::from(index) - i128::from(steps);
                if !is_periodic && !(0..rows).contains(&from) {
                    continue;
                }
                let to = (boundary * 2 * plan.round_steps + index) * row;
                let from = self.offset + from.rem_euclid(rows) as u64 * row;
                self.halos.copy_from(to as usize, &self.matrix, from as usize, row as usize);
            }
        }
    }

    /// Sums the squares of the rows in their order.
    pub(super) fn sum_of_squares(&self, rows: u64) -> f64 {
        let mut sum = 0.0;
        for row in 0..rows as usize {
            let mut bytes = [0; 8];
            self.squares.read(8 * row, &mut bytes);
            sum += f64::from_le_bytes(bytes);
        }
        sum
    }
}

/// Steps that all tiles of the matrix take before any tile takes more.
struct Round<'a> {
    plan: &'a Plan,
    /// Offset of the matrix in its region.
    offset: u64,
    steps: u64,
    with_squares: bool,
    /// Next tile that no node has.
    next: u64,
    /// Number of tiles that are back.
    done: u64,
    /// Largest change of the last step so far.
    max_change: f64,
}

impl<'a, P: Endpoint> Lane<'a, P> {
    /// Registers the memory with a node.
    fn new(node: &'a mut Node<P>, plan: &Plan, memory: &Memory) -> Result<Self, NodeError> {
        let (matrix, halos) = (node.register(&memory.matrix)?, node.register(&memory.halos)?);
        let squares = node.register(&memory.squares)?;
        node.divide(plan.buffer_bytes.saturating_mul(plan.buffers.into()));
        let buffer = |number: u32| Buffer { offset: u64::from(number) * plan.buffer_bytes, work: None };
        let buffers = (0..plan.buffers).map(buffer).collect();
        let (report, writing, reading) = Default::default();
        Ok(Self { node, matrix, halos, squares, buffers, report, writing, reading, active_at: Instant::now() })
    }

    /// Returns what the node has done.
    fn report(self) -> NodeReport {
        NodeReport { writing: self.writing.total, reading: self.reading.total, ..self.report }
    }

    /// Fills free buffers and handles what has happened. Returns `true` if there was anything to do.
    fn advance(&mut self, index: usize, round: &mut Round<'_>, options: &Options<'_>) -> Result<bool, RunError> {
        let failed = |error| RunError::Node { index, error };
        let mut busy = false;
        while round.next < round.plan.tiles()
            && let Some(free) = self.buffers.iter().position(|buffer| buffer.work.is_none())
        {
            let tile = round.plan.tile(round.next, round.steps);
            self.begin(free, round.next, tile, round).map_err(failed)?;
            round.next += 1;
            busy = true;
        }
        let mut events = Vec::new();
        let any = self.node.poll(&mut events).map_err(failed)?;
        for event in &events {
            self.handle(index, *event, round)?;
        }
        if busy || any {
            self.active_at = Instant::now();
            return Ok(true);
        }
        self.check_time(index, options.timeout)?;
        if self.node.is_connected() { Ok(false) } else { Err(failed(NodeError::Closed)) }
    }

    /// Writes a tile and its command.
    fn begin(&mut self, buffer: usize, number: u64, tile: TileRows, round: &Round<'_>) -> Result<(), NodeError> {
        let (plan, row) = (round.plan, round.plan.matrix.row_bytes());
        let (offset, id) = (self.buffers[buffer].offset, buffer as u64);
        let rows = tile.rows.end - tile.rows.start;
        // Halos are as they were before the round, because neighbours may be back already.
        let halo = |boundary: u64, from: u64| (boundary * 2 * plan.round_steps + from) * row;
        let (above, below) = (halo(number, round.steps - tile.above), halo(number + 1, round.steps));
        let parts = [
            (&self.halos, above, 0, tile.above),
            (&self.matrix, round.offset + tile.rows.start * row, tile.above, rows),
            (&self.halos, below, tile.above + rows, tile.below),
        ];
        let mut transfers = 0;
        for (local, from, to, rows) in parts.into_iter().filter(|part| part.3 > 0) {
            self.node.write(local, from, offset + to * row, rows * row, id)?;
            self.report.bytes_out += rows * row;
            transfers += 1;
        }
        let command = plan.command(&tile, round.steps, offset, round.with_squares);
        self.node.command(buffer as u32, Kernel::Stencil(command), id)?;
        self.writing.begin();
        self.buffers[buffer].work = Some(Work { tile, stage: Stage::Writing, transfers, completion: None });
        Ok(())
    }

    fn handle(&mut self, index: usize, event: Event, round: &mut Round<'_>) -> Result<(), RunError> {
        let unexpected = || {
            let error = NodeError::Operation(format!("an event of no tile: {event:?}"));
            RunError::Node { index, error }
        };
        let (Event::Written(id) | Event::Read(id)) = event else {
            let Event::Completed(completion) = event else { return Err(unexpected()) };
            let buffer = self.buffers.get_mut(completion.id as usize).ok_or_else(unexpected)?;
            let work = buffer.work.as_mut().filter(|work| work.completion.is_none()).ok_or_else(unexpected)?;
            work.completion = Some(completion);
            return self.read_back(index, completion.id as usize, round);
        };
        let buffer = self.buffers.get_mut(id as usize).ok_or_else(unexpected)?;
        let work = buffer.work.as_mut().ok_or_else(unexpected)?;
        work.transfers = work.transfers.checked_sub(1).ok_or_else(unexpected)?;
        if work.transfers > 0 {
            return Ok(());
        }
        match work.stage {
            Stage::Writing => {
                self.writing.end();
                work.stage = Stage::Computing;
                return self.read_back(index, id as usize, round);
            }
            Stage::Computing => return Err(unexpected()),
            Stage::Reading => {
                self.reading.end();
                self.report.tiles += 1;
                round.done += 1;
                buffer.work = None;
            }
        }
        Ok(())
    }

    /// Reads a tile back if its command is complete and its writes are acknowledged.
    fn read_back(&mut self, index: usize, buffer: usize, round: &mut Round<'_>) -> Result<(), RunError> {
        let Buffer { offset, work: Some(work) } = &mut self.buffers[buffer] else { return Ok(()) };
        let (Stage::Computing, Some(completion)) = (work.stage, work.completion) else { return Ok(()) };
        let TileRows { rows, above, .. } = work.tile.clone();
        if completion.outcome != Outcome::Done {
            let outcome = completion.outcome;
            return Err(RunError::Refused { index, first: rows.start, end: rows.end, outcome });
        }
        self.report.waiting += Duration::from_nanos(completion.waited_ns);
        self.report.computing += Duration::from_nanos(completion.worked_ns);
        if round.with_squares {
            round.max_change = larger(round.max_change, completion.max);
        }
        (work.stage, work.transfers) = (Stage::Reading, 1);
        self.reading.begin();
        let (row, count) = (round.plan.matrix.row_bytes(), rows.end - rows.start);
        let (id, from) = (buffer as u64, *offset + above * row);
        let command = round.plan.command(&work.tile, round.steps, *offset, round.with_squares);
        let squares = command.squares.map(|at| at + 8 * (from - command.result) / row);
        work.transfers += u32::from(squares.is_some());
        self.report.bytes_back += count * row;
        let failed = |error| RunError::Node { index, error };
        self.node.read(&self.matrix, round.offset + rows.start * row, from, count * row, id).map_err(failed)?;
        squares.map_or(Ok(()), |at| self.node.read(&self.squares, 8 * rows.start, at, 8 * count, id)).map_err(failed)
    }

    /// Returns an error if the node made no progress for too long.
    fn check_time(&self, index: usize, timeout: Duration) -> Result<(), RunError> {
        let seconds = self.active_at.elapsed().as_secs();
        let Some(work) = self.buffers.iter().find_map(|buffer| buffer.work.as_ref()) else { return Ok(()) };
        if self.active_at.elapsed() <= timeout {
            return Ok(());
        }
        let expected = match work.stage {
            Stage::Writing => "written",
            Stage::Computing => "computed",
            Stage::Reading => "read back",
        };
        let (first, end) = (work.tile.rows.start, work.tile.rows.end);
        Err(RunError::Timeout { index, first, end, expected, seconds })
    }
}

/// Returns the larger value, or NaN if one is.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}

/// Makes the descriptors of the nodes readable at their next completions.
pub(super) fn arm<'a, P: Endpoint + 'a>(nodes: impl Iterator<Item = &'a mut Node<P>>) -> Result<(), RunError> {
    for (index, node) in nodes.enumerate() {
        node.arm().map_err(|error| RunError::Node { index, error })?;
    }
    Ok(())
}

/// Sleeps until a node has something to do.
pub(super) fn sleep<'a, P: Endpoint + 'a>(nodes: impl Iterator<Item = &'a Node<P>>) {
    let mut fds: Vec<_> = nodes.map(|node| PollFd::from_borrowed_fd(node.fd(), PollFlags::IN)).collect();
    let time = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as _ };
    // A signal ends the sleep early.
    let _ = rustix::event::poll(&mut fds, Some(&time));
}
