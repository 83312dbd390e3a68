//! One node of a run, with its tile.

use super::plan::{NodeAddress, ResidentPlan, Rounds, SETUP_BYTES, Side, Task};
use crate::command::{Completion, Connect, Kernel, MAX_ADDRESS_BYTES, Outcome};
use crate::control::SLOTS;
use crate::error::NodeError;
use crate::node::{Event, Node};
use crate::stencil::memory::Memory;
use crate::stencil::report::Busy;
use crate::stencil::{NodeReport, RunError};
use shotline_memory::{Mr, Region};
use shotline_verbs::cm::Endpoint;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// A neighbour cannot be reached: the reason is being read.
    Failing(Side),
    Writing,
    Written,
    Connecting,
    Connected,
    Computing,
    Reading,
    Finished,
}

/// What all nodes of a run have.
pub(super) struct Common<'a> {
    pub(super) plan: &'a ResidentPlan,
    pub(super) rounds: Rounds,
    pub(super) residual: bool,
    /// Offset of the matrix in its region.
    pub(super) offset: u64,
    /// What is written to the nodes first, [`SETUP_BYTES`] for each.
    pub(super) setup: Arc<Region>,
    pub(super) addresses: &'a [NodeAddress],
    pub(super) first_identity: u64,
}

/// A node and its tile.
pub(super) struct Lane<'a, P> {
    pub(super) node: &'a mut Node<P>,
    index: u64,
    common: &'a Common<'a>,
    matrix: Mr,
    squares: Mr,
    setup: Mr,
    pub(super) stage: Stage,
    /// Transfers that are not complete.
    transfers: u32,
    /// Commands that the node does not have yet.
    next: VecDeque<(Task, Kernel)>,
    /// Rounds whose commands have been made.
    rounds_made: u64,
    /// Commands that the node has, in their order.
    in_flight: VecDeque<Task>,
    /// Number of commands that are complete.
    completed: u64,
    pub(super) rounds_done: u64,
    pub(super) max_change: f64,
    pub(super) report: NodeReport,
    writing: Busy,
    reading: Busy,
    /// Time of the last progress.
    active_at: Instant,
}

impl<'a, P: Endpoint> Lane<'a, P> {
    /// Begins to write a tile to a node.
    pub(super) fn new(
        index: u64,
        node: &'a mut Node<P>,
        common: &'a Common<'a>,
        memory: &Memory,
    ) -> Result<Self, NodeError> {
        let (matrix, squares) = (node.register(&memory.matrix)?, node.register(&memory.squares)?);
        let setup = node.register(&common.setup)?;
        node.divide(common.plan.setup_at());
        let mut lane = Self {
            node,
            index,
            common,
            matrix,
            squares,
            setup,
            stage: Stage::Writing,
            transfers: 0,
            next: VecDeque::new(),
            rounds_made: 0,
            in_flight: VecDeque::new(),
            completed: 0,
            rounds_done: 0,
            max_change: 0.0,
            report: NodeReport::default(),
            writing: Busy::default(),
            reading: Busy::default(),
            active_at: Instant::now(),
        };
        lane.write()?;
        Ok(lane)
    }

    fn write(&mut self) -> Result<(), NodeError> {
        let Common { plan, rounds, offset, .. } = *self.common;
        let (row, steps) = (plan.matrix.row_bytes(), rounds.steps(0));
        let halo = |side| Some((plan.halo(self.index, side, steps)?, plan.halo_at(self.index, side, steps)));
        let parts = Side::BOTH.into_iter().filter_map(halo);
        let parts: Vec<_> = parts.chain([(plan.rows(self.index), plan.rows_at())]).collect();
        self.writing.begin();
        for (rows, to) in parts {
            let bytes = (rows.end - rows.start) * row;
            self.node.write(&self.matrix, offset + rows.start * row, to, bytes, 0)?;
            self.report.bytes_out += bytes;
            self.transfers += 1;
        }
        let from = self.index * SETUP_BYTES as u64;
        self.node.write(&self.setup, from, plan.setup_at(), SETUP_BYTES as u64, 0)?;
        self.transfers += 1;
        Ok(())
    }

    /// Connects the node to its neighbours.
    pub(super) fn connect(&mut self) -> Result<(), RunError> {
        let Common { plan, addresses, first_identity, .. } = *self.common;
        self.stage = Stage::Connecting;
        // It may have waited for others.
        self.active_at = Instant::now();
        for side in Side::BOTH {
            let Some(neighbour) = plan.neighbour(self.index, side) else { continue };
            let kernel = Kernel::Connect(Connect {
                neighbour: side as u32,
                token: addresses[neighbour as usize].token,
                address: plan.address_at(side),
                address_bytes: MAX_ADDRESS_BYTES,
                identity_at: plan.identity_at(),
                identity: first_identity.wrapping_add(neighbour),
            });
            self.next.push_back((Task::Connect(side), kernel));
        }
        self.go_on()
    }

    /// Gives the node its first commands.
    pub(super) fn compute(&mut self) -> Result<(), RunError> {
        self.stage = Stage::Computing;
        self.active_at = Instant::now();
        self.go_on()
    }

    /// Returns the number of steps that are done.
    pub(super) fn steps_done(&self) -> u64 {
        self.common.rounds.steps.min(self.rounds_done * self.common.rounds.round_steps)
    }

    /// Returns what the node has done.
    pub(super) fn report(&self) -> NodeReport {
        NodeReport { writing: self.writing.total, reading: self.reading.total, ..self.report.clone() }
    }

    /// Handles what has happened. Returns `true` if there was anything.
    pub(super) fn advance(&mut self) -> Result<bool, RunError> {
        let mut events = Vec::new();
        let busy = self.node.poll(&mut events).map_err(|error| self.failed(error))?;
        for event in events {
            match event {
                Event::Completed(completion) => self.complete(&completion)?,
                Event::Written(_) | Event::Read(_) => self.transfers = self.transfers.saturating_sub(1),
            }
        }
        if busy {
            self.active_at = Instant::now();
            self.go_on()?;
        } else if !self.node.is_connected() {
            return Err(self.failed(NodeError::Closed));
        }
        Ok(busy)
    }

    /// Makes the descriptor of the node readable at its next completion.
    pub(super) fn arm(&mut self) -> Result<(), RunError> {
        self.node.arm().map_err(|error| self.failed(error))
    }

    /// Enters the next stage if everything of this one is done, and keeps the command queue filled.
    fn go_on(&mut self) -> Result<(), RunError> {
        if self.stage == Stage::Computing {
            while self.next.len() < SLOTS && self.rounds_made < self.common.rounds.count() {
                let Common { plan, rounds, residual, .. } = *self.common;
                self.next.extend(plan.round(self.index, rounds, self.rounds_made, residual));
                self.rounds_made += 1;
            }
        }
        while self.in_flight.len() < SLOTS
            && let Some((task, kernel)) = self.next.pop_front()
        {
            let id = self.completed + self.in_flight.len() as u64;
            let slot = (id % SLOTS as u64) as u32;
            self.node.command(slot, kernel, id).map_err(|error| self.failed(error))?;
            self.in_flight.push_back(task);
        }
        if self.transfers > 0 || !self.in_flight.is_empty() {
            return Ok(());
        }
        match self.stage {
            Stage::Writing => {
                self.writing.end();
                self.stage = Stage::Written;
            }
            Stage::Connecting => self.stage = Stage::Connected,
            Stage::Computing => self.read()?,
            Stage::Reading => {
                self.check_identity()?;
                self.reading.end();
                self.stage = Stage::Finished;
            }
            Stage::Failing(side) => return Err(self.neighbour_failed(side, self.reason(side))),
            Stage::Written | Stage::Connected | Stage::Finished => {}
        }
        Ok(())
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), RunError> {
        let Some(task) = self.in_flight.pop_front().filter(|_| completion.id == self.completed) else {
            let words = format!("it completed command {}, expected {}", completion.id, self.completed);
            return Err(self.failed(NodeError::Operation(words)));
        };
        self.completed += 1;
        let worked = Duration::from_nanos(completion.worked_ns);
        match (task, completion.outcome) {
            (Task::Connect(_) | Task::Disconnect(_), Outcome::Done) => {}
            (Task::Wait(_), Outcome::Done) => self.report.waiting_for_halos += worked,
            (Task::Put(_, bytes), Outcome::Done) => {
                self.report.exchanging += worked;
                self.report.bytes_exchanged += bytes;
            }
            (Task::Steps(round), Outcome::Done) => {
                self.report.waiting += Duration::from_nanos(completion.waited_ns);
                self.report.computing += worked;
                self.report.tiles += 1;
                self.rounds_done = round + 1;
                if self.rounds_done == self.common.rounds.count() {
                    self.max_change = completion.max;
                }
            }
            (Task::Connect(side), Outcome::NeighbourLost) => {
                self.next.clear();
                self.explain(side)?;
            }
            (Task::Wait(side) | Task::Put(side, _), outcome @ (Outcome::NeighbourLost | Outcome::TimedOut)) => {
                return Err(self.neighbour_failed(side, outcome.to_string()));
            }
            (_, outcome) => {
                let rows = self.common.plan.rows(self.index);
                let (first, end) = (rows.start, rows.end);
                return Err(RunError::Refused { index: self.index as usize, first, end, outcome });
            }
        }
        Ok(())
    }

    /// Reads the tile back.
    fn read(&mut self) -> Result<(), RunError> {
        let Common { plan, residual, offset, .. } = *self.common;
        self.stage = Stage::Reading;
        self.reading.begin();
        let (rows, row) = (plan.rows(self.index), plan.matrix.row_bytes());
        let count = rows.end - rows.start;
        let to = offset + rows.start * row;
        self.node.read(&self.matrix, to, plan.rows_at(), count * row, 0).map_err(|error| self.failed(error))?;
        self.transfers += 1;
        self.report.bytes_back += count * row;
        if residual {
            let read = self.node.read(&self.squares, 8 * rows.start, plan.squares_at(), 8 * count, 0);
            read.map_err(|error| self.failed(error))?;
            self.transfers += 1;
        }
        // Memory of a device that fails returns undefined bytes. If the identity is still there, it had not failed before.
        let (to, from) = (self.reason_at(Side::Above), plan.identity_at());
        self.node.read(&self.setup, to, from, 8, 0).map_err(|error| self.failed(error))?;
        self.transfers += 1;
        Ok(())
    }

    /// Returns an error unless the memory still has the identity of the node.
    fn check_identity(&self) -> Result<(), RunError> {
        let mut bytes = [0; 8];
        self.common.setup.read(self.reason_at(Side::Above) as usize, &mut bytes);
        let (expected, found) = (self.common.first_identity.wrapping_add(self.index), u64::from_le_bytes(bytes));
        if found == expected {
            return Ok(());
        }
        let words = format!("its memory has failed: expected the identity {expected:#x}, found {found:#x}");
        Err(self.failed(NodeError::Operation(words)))
    }

    /// Reads why the neighbour on a side cannot be reached, which is where its address was.
    fn explain(&mut self, side: Side) -> Result<(), RunError> {
        if let Stage::Failing(_) = self.stage {
            return Ok(());
        }
        self.stage = Stage::Failing(side);
        let from = self.common.plan.address_at(side);
        let read = self.node.read(&self.setup, self.reason_at(side), from, MAX_ADDRESS_BYTES, 0);
        read.map_err(|error| self.failed(error))?;
        self.transfers += 1;
        Ok(())
    }

    fn reason_at(&self, side: Side) -> u64 {
        self.index * SETUP_BYTES as u64 + self.common.plan.address_at(side) - self.common.plan.setup_at()
    }

    fn reason(&self, side: Side) -> String {
        let mut text = [0; MAX_ADDRESS_BYTES as usize];
        self.common.setup.read(self.reason_at(side) as usize, &mut text);
        String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    }

    fn failed(&self, error: NodeError) -> RunError {
        RunError::Node { index: self.index as usize, error }
    }

    fn neighbour_failed(&self, side: Side, reason: String) -> RunError {
        let neighbour = self.neighbour(side).unwrap_or_default();
        RunError::Neighbour { index: self.index as usize, neighbour, reason }
    }

    /// Returns the time since the last progress, if there is anything to wait for.
    pub(super) fn idle(&self) -> Option<Duration> {
        (self.transfers > 0 || !self.in_flight.is_empty()).then(|| self.active_at.elapsed())
    }

    /// Returns `true` if the node executes a command that needs another node.
    pub(super) fn needs_another(&self) -> bool {
        matches!(self.in_flight.front(), Some(Task::Put(..) | Task::Wait(_)))
    }

    /// Returns the number of the node on a side.
    fn neighbour(&self, side: Side) -> Option<usize> {
        self.common.plan.neighbour(self.index, side).map(|neighbour| neighbour as usize)
    }

    /// Returns the error of a node that makes no progress, for this time at least.
    pub(super) fn timed_out(&self, timeout: Duration) -> RunError {
        let rows = self.common.plan.rows(self.index);
        let expected = match self.stage {
            Stage::Writing | Stage::Written => "written",
            Stage::Connecting | Stage::Connected | Stage::Failing(_) => "connected to their neighbours",
            Stage::Computing => "computed",
            Stage::Reading | Stage::Finished => "read back",
        };
        let (index, seconds) = (self.index as usize, self.idle().unwrap_or(timeout).as_secs());
        RunError::Timeout { index, first: rows.start, end: rows.end, expected, seconds }
    }
}
