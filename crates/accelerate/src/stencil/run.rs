//! The rounds of a stencil over several nodes.

use super::error::{Lost, RunError};
use super::marks::{MARK_BYTES, Marks};
use super::memory::Memory;
use super::plan::{Plan, TileRows};
use super::report::{Busy, NodeReport, Pace, Progress, Report, Update, larger};
use super::wait::{NAP, sleep};
use crate::command::{Completion, Kernel, Outcome};
use crate::error::NodeError;
use crate::node::{Event, Node};
use shotline_memory::{Mr, Region};
use shotline_verbs::cm::Endpoint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A buffer in the memory of a node.
struct Buffer {
    offset: u64,
    work: Option<Work>,
}

/// A tile in a buffer.
struct Work {
    /// Number of the tile.
    number: u64,
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

struct Lane<P> {
    /// Number of the node.
    index: usize,
    node: Node<P>,
    matrix: Mr,
    halos: Mr,
    squares: Mr,
    marks: Marks,
    buffers: Vec<Buffer>,
    report: NodeReport,
    writing: Busy,
    reading: Busy,
    /// Time of the last progress.
    active_at: Instant,
    /// Time at which its connection was last checked.
    checked_at: Instant,
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

/// Nodes that remain, with their numbers.
pub type Remaining<P> = Vec<(usize, Node<P>)>;

/// Computes steps of a matrix that begins at `offset` of a region, in place. Nodes that are lost meanwhile are abandoned,
/// and their tiles go to the others. Returns the report and the nodes that remain, with their numbers.
///
/// # Errors
/// If a node is lost while it returns a tile, whose source is then gone, or no node remains, or a tile is refused. The
/// matrix then has tiles of different steps.
pub fn run<P: Endpoint>(
    plan: &Plan,
    nodes: Vec<Node<P>>,
    (matrix, offset): (&Arc<Region>, u64),
    options: &Options<'_>,
    observe: impl FnMut(Update),
) -> Result<(Report, Remaining<P>), RunError> {
    let memory = Memory::new(plan, matrix, offset)?;
    let mut team = Team { lanes: Vec::new(), reports: vec![NodeReport::default(); nodes.len()], observe };
    for (index, node) in nodes.into_iter().enumerate() {
        team.lanes.push(Lane::new(index, node, plan, &memory).map_err(|error| RunError::Node { index, error })?);
    }
    let begin = Instant::now();
    let rounds = options.steps.div_ceil(plan.round_steps);
    let mut progress = Progress { tiles_in_all: rounds.saturating_mul(plan.tiles()), ..Progress::default() };
    let (mut is_armed, mut pace) = (false, Pace::default());
    let mut round = Round::new(plan, offset);
    for number in 0..rounds {
        round.begin(plan.round_steps.min(options.steps - progress.steps), number + 1 == rounds, options);
        memory.save_halos(plan, round.steps);
        while round.done < plan.tiles() {
            if options.stop.load(Relaxed) {
                return Err(RunError::Interrupted(number));
            }
            let busy = team.each(&mut round, |lane, round| lane.advance(round, options))?;
            // Looks once more after the nodes are armed: what came before wakes no thread.
            match (busy, is_armed) {
                (true, _) => {}
                (false, false) => drop(team.each(&mut round, |lane, _| lane.arm())?),
                (false, true) => sleep(team.lanes.iter().map(|lane| &lane.node)),
            }
            is_armed = !busy && !is_armed;
            let tiles = number.saturating_mul(plan.tiles()).saturating_add(round.done);
            if tiles != progress.tiles {
                progress.tiles = tiles;
                if pace.is_due() {
                    let reports = team.reports();
                    (team.observe)(Update::Nodes(reports));
                }
                (team.observe)(Update::Progress(progress));
            }
        }
        progress.steps += round.steps;
        (team.observe)(Update::Progress(progress));
    }
    let elapsed = begin.elapsed();
    let l2_change = if options.residual { memory.sum_of_squares(plan.matrix.rows).sqrt() } else { 0.0 };
    let (nodes, remaining) = team.end();
    Ok((Report { nodes, elapsed, max_change: round.max_change, l2_change }, remaining))
}

/// The nodes that compute.
struct Team<P, F> {
    /// Those that remain.
    lanes: Vec<Lane<P>>,
    /// Reports of those that do not.
    reports: Vec<NodeReport>,
    observe: F,
}

impl<P: Endpoint, F: FnMut(Update)> Team<P, F> {
    /// Does something with each node. Those that fail are lost. Returns `true` if there was anything to do.
    fn each(
        &mut self,
        round: &mut Round<'_>,
        mut act: impl FnMut(&mut Lane<P>, &mut Round<'_>) -> Result<bool, RunError>,
    ) -> Result<bool, RunError> {
        let (mut busy, mut at) = (false, 0);
        while let Some(lane) = self.lanes.get_mut(at) {
            match act(lane, round) {
                Ok(any) => (busy, at) = (busy | any, at + 1),
                Err(error) => {
                    let lane = self.lanes.remove(at);
                    self.lose(lane, error, round)?;
                    busy = true;
                }
            }
        }
        Ok(busy)
    }

    /// Abandons a node. Its tiles go to the others.
    fn lose(&mut self, mut lane: Lane<P>, error: RunError, round: &mut Round<'_>) -> Result<(), RunError> {
        if !error.is_of_node() {
            return Err(error);
        }
        lane.take_results(round);
        // A tile that is being read back has replaced a part of its source.
        let Some(tiles) = lane.tiles() else { return Err(error) };
        let (index, remaining) = (lane.index, self.lanes.len());
        if remaining == 0 && !(round.is_last && round.done == round.plan.tiles()) {
            return Err(error);
        }
        let (node, report) = lane.end();
        // Before another node writes to the same rows.
        node.abandon().map_err(|error| RunError::Node { index, error })?;
        let lost = Lost { index, reason: error.reason(), tiles: tiles.len(), remaining };
        self.reports[index] = NodeReport { lost: Some(lost.reason.clone()), ..report };
        round.returned.extend(tiles);
        (self.observe)(Update::Lost(lost));
        Ok(())
    }

    /// Returns the reports of all nodes so far.
    fn reports(&self) -> Vec<NodeReport> {
        let mut reports = self.reports.clone();
        self.lanes.iter().for_each(|lane| reports[lane.index] = lane.report());
        reports
    }

    /// Returns the reports of all nodes, and the nodes that remain.
    fn end(self) -> (Vec<NodeReport>, Remaining<P>) {
        let Self { lanes, mut reports, .. } = self;
        let mut remaining = Vec::new();
        for lane in lanes {
            let index = lane.index;
            let (node, report) = lane.end();
            reports[index] = report;
            remaining.push((index, node));
        }
        (reports, remaining)
    }
}

/// Steps that all tiles of the matrix take before any tile takes more.
struct Round<'a> {
    plan: &'a Plan,
    /// Offset of the matrix in its region.
    offset: u64,
    steps: u64,
    is_last: bool,
    with_squares: bool,
    /// Next tile that no node has had.
    next: u64,
    /// Tiles that nodes had when they were lost.
    returned: Vec<u64>,
    /// Number of tiles that are back.
    done: u64,
    /// Largest change of the last step so far.
    max_change: f64,
}

impl<'a> Round<'a> {
    fn new(plan: &'a Plan, offset: u64) -> Self {
        let (is_last, with_squares, returned) = Default::default();
        Self { plan, offset, steps: 0, is_last, with_squares, next: 0, returned, done: 0, max_change: 0.0 }
    }

    fn begin(&mut self, steps: u64, is_last: bool, options: &Options<'_>) {
        (self.steps, self.is_last, self.with_squares) = (steps, is_last, is_last && options.residual);
        (self.next, self.done) = (0, 0);
    }

    /// Returns the next tile that no node has.
    fn take(&mut self) -> Option<u64> {
        let next = self.next;
        let is_there = next < self.plan.tiles();
        self.returned.pop().or_else(|| {
            self.next += u64::from(is_there);
            is_there.then_some(next)
        })
    }
}

impl<P: Endpoint> Lane<P> {
    /// Registers the memory with a node.
    fn new(index: usize, mut node: Node<P>, plan: &Plan, memory: &Memory) -> Result<Self, NodeError> {
        let (matrix, halos) = (node.register(&memory.matrix)?, node.register(&memory.halos)?);
        let squares = node.register(&memory.squares)?;
        let marks = Marks::new(&mut node, plan.buffers)?;
        node.divide(plan.buffer_bytes.saturating_mul(plan.buffers.into()));
        let buffer = |number: u32| Buffer { offset: u64::from(number) * plan.buffer_bytes, work: None };
        let buffers = (0..plan.buffers).map(buffer).collect();
        let (report, writing, reading) = Default::default();
        let [active_at, checked_at] = [Instant::now(); 2];
        Ok(Self {
            index,
            node,
            matrix,
            halos,
            squares,
            marks,
            buffers,
            report,
            writing,
            reading,
            active_at,
            checked_at,
        })
    }

    /// Returns the node and what it has done.
    fn end(self) -> (Node<P>, NodeReport) {
        let report = self.report();
        (self.node, report)
    }

    /// Returns what the node has done so far.
    fn report(&self) -> NodeReport {
        NodeReport { writing: self.writing.time(), reading: self.reading.time(), ..self.report.clone() }
    }

    /// Fills free buffers and handles what has happened. Returns `true` if there was anything to do.
    fn advance(&mut self, round: &mut Round<'_>, options: &Options<'_>) -> Result<bool, RunError> {
        let index = self.index;
        let failed = |error| RunError::Node { index, error };
        let mut busy = false;
        while let Some(free) = self.buffers.iter().position(|buffer| buffer.work.is_none())
            && let Some(number) = round.take()
        {
            self.begin(free, number, round).map_err(failed)?;
            busy = true;
        }
        let mut events = Vec::new();
        let polled = self.node.poll(&mut events);
        let (any, mut error) = match polled {
            Ok(any) => (any, None),
            Err(error) => (true, Some(failed(error))),
        };
        for event in &events {
            // After an error nothing begins, but what is back is complete.
            if error.is_none() || matches!(event, Event::Read(_)) {
                let handled = self.handle(*event, round);
                error = error.or(handled.err());
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
        let (any, now) = (any || busy, Instant::now());
        if any {
            self.active_at = now;
        }
        // Over shared memory, a node that has ended seems to take what is written, and gives back what it has computed.
        if !any || now - self.checked_at > NAP && self.tiles().is_some() {
            self.checked_at = now;
            if !self.node.is_connected() {
                return Err(failed(NodeError::Closed));
            }
        }
        if !any {
            self.check_time(options.timeout)?;
        }
        Ok(any)
    }

    /// Makes the descriptor of the node readable at its next completion.
    fn arm(&mut self) -> Result<bool, RunError> {
        let index = self.index;
        self.node.arm().map(|()| false).map_err(|error| RunError::Node { index, error })
    }

    /// Handles what has come back from a node that has failed.
    fn take_results(&mut self, round: &mut Round<'_>) {
        let mut events = Vec::new();
        // Its error is known already.
        let _ = self.node.drain(&mut events);
        for event in events.into_iter().filter(|event| matches!(event, Event::Read(_))) {
            // A tile with an error stays in its buffer.
            let _ = self.handle(event, round);
        }
    }

    /// Returns the tiles of the node, or `None` if one of them is being read back.
    fn tiles(&self) -> Option<Vec<u64>> {
        let works = self.buffers.iter().filter_map(|buffer| buffer.work.as_ref());
        works.map(|work| (work.stage != Stage::Reading).then_some(work.number)).collect()
    }

    /// Writes a tile and its command.
    fn begin(&mut self, buffer: usize, number: u64, round: &Round<'_>) -> Result<(), NodeError> {
        let (plan, row) = (round.plan, round.plan.matrix.row_bytes());
        let (offset, id) = (self.buffers[buffer].offset, buffer as u64);
        let tile = plan.tile(number, round.steps);
        let rows = tile.rows.end - tile.rows.start;
        // Halos are as they were before the round, because neighbours may be back already.
        let halo = |boundary: u64, from: u64| (boundary * 2 * plan.round_steps + from) * row;
        let (above, below) = (halo(number, round.steps - tile.above), halo(number + 1, round.steps));
        let parts = [
            (&self.halos, above, 0, tile.above),
            (&self.matrix, round.offset + tile.rows.start * row, tile.above, rows),
            (&self.halos, below, tile.above + rows, tile.below),
        ];
        let command = plan.command(&tile, round.steps, offset, round.with_squares);
        let transfers = 1 + parts.iter().filter(|part| part.3 > 0).count() as u32;
        // First, so that the tile is not forgotten if the node fails now.
        self.buffers[buffer].work = Some(Work { number, tile, stage: Stage::Writing, transfers, completion: None });
        self.writing.begin();
        for (local, from, to, rows) in parts.into_iter().filter(|part| part.3 > 0) {
            self.node.write(local, from, offset + to * row, rows * row, id)?;
            self.report.bytes_out += rows * row;
        }
        self.marks.write(&mut self.node, buffer, offset + plan.buffer_bytes - MARK_BYTES)?;
        self.node.command(buffer as u32, Kernel::Stencil(command), id)
    }

    fn handle(&mut self, event: Event, round: &mut Round<'_>) -> Result<(), RunError> {
        let index = self.index;
        let unexpected = || {
            let error = NodeError::Operation(format!("an event of no tile: {event:?}"));
            RunError::Node { index, error }
        };
        let (Event::Written(id) | Event::Read(id)) = event else {
            let Event::Completed(completion) = event else { return Err(unexpected()) };
            let buffer = self.buffers.get_mut(completion.id as usize).ok_or_else(unexpected)?;
            let work = buffer.work.as_mut().filter(|work| work.completion.is_none()).ok_or_else(unexpected)?;
            work.completion = Some(completion);
            return self.read_back(completion.id as usize, round);
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
                return self.read_back(id as usize, round);
            }
            Stage::Computing => return Err(unexpected()),
            Stage::Reading => {
                self.reading.end();
                self.marks.check(id as usize).map_err(|error| RunError::Node { index, error })?;
                self.report.tiles += 1;
                round.done += 1;
                buffer.work = None;
            }
        }
        Ok(())
    }

    /// Reads a tile back if its command is complete and its writes are acknowledged.
    fn read_back(&mut self, buffer: usize, round: &mut Round<'_>) -> Result<(), RunError> {
        let index = self.index;
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
        (work.stage, work.transfers) = (Stage::Reading, 2);
        self.reading.begin();
        let (row, count) = (round.plan.matrix.row_bytes(), rows.end - rows.start);
        let (id, from) = (buffer as u64, *offset + above * row);
        let command = round.plan.command(&work.tile, round.steps, *offset, round.with_squares);
        let squares = command.squares.map(|at| at + 8 * (from - command.result) / row);
        work.transfers += u32::from(squares.is_some());
        self.report.bytes_back += count * row;
        let mark = *offset + round.plan.buffer_bytes - MARK_BYTES;
        let failed = |error| RunError::Node { index, error };
        self.node.read(&self.matrix, round.offset + rows.start * row, from, count * row, id).map_err(failed)?;
        squares
            .map_or(Ok(()), |at| self.node.read(&self.squares, 8 * rows.start, at, 8 * count, id))
            .map_err(failed)?;
        // Last, because it shows that what was read before is right.
        self.marks.read(&mut self.node, buffer, mark).map_err(failed)
    }

    /// Returns an error if the node made no progress for too long.
    fn check_time(&self, timeout: Duration) -> Result<(), RunError> {
        let (index, seconds) = (self.index, self.active_at.elapsed().as_secs());
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
