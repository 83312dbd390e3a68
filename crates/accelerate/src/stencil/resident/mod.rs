//! A stencil whose tiles stay in the nodes, which exchange their halos without this process.

mod lane;
mod plan;

pub use plan::{NodeAddress, ResidentPlan};

use crate::command::MAX_ADDRESS_BYTES;
use crate::error::NodeError;
use crate::node::Node;
use crate::stencil::memory::Memory;
use crate::stencil::report::{Pace, larger};
use crate::stencil::wait::sleep;
use crate::stencil::{NodeReport, Options, Progress, Remaining, Report, RunError, Update};
use lane::{Common, Lane, Stage};
use plan::{IDENTITY, Rounds, SETUP_BYTES, Side};
use shotline_memory::Region;
use shotline_verbs::cm::{Endpoint, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Computes steps of a matrix that begins at `offset` of a region, in place. `addresses` are those of the nodes, for the
/// others. Returns the report and the nodes.
///
/// # Errors
/// If a node fails, hangs, refuses a command, or cannot reach another one. The matrix may then have tiles of different
/// steps.
pub fn run<P: Endpoint>(
    plan: &ResidentPlan,
    (mut nodes, addresses): (Vec<Node<P>>, &[NodeAddress]),
    (matrix, offset): (&Arc<Region>, u64),
    options: &Options<'_>,
    mut observe: impl FnMut(Update),
) -> Result<(Report, Remaining<P>), RunError> {
    let memory = Memory::without_halos(&plan.matrix, matrix, offset)?;
    let rounds = Rounds { steps: options.steps, round_steps: plan.round_steps };
    let first_identity = identity()?;
    let setup = setup(plan, addresses, first_identity)?;
    let common = Common { plan, rounds, residual: options.residual, offset, setup, addresses, first_identity };
    let mut lanes = Vec::new();
    let (begin, count, mut pace) = (Instant::now(), nodes.len(), Pace::default());
    for (index, node) in (0..plan.tiles).zip(&mut nodes) {
        let lane = Lane::new(index, node, &common, &memory);
        lanes.push(lane.map_err(|error| RunError::Node { index: index as usize, error })?);
    }
    let mut progress = Progress { tiles_in_all: rounds.count().saturating_mul(plan.tiles), ..Progress::default() };
    let mut observe = |lanes: &[Lane<'_, P>]| {
        let tiles = lanes.iter().map(|lane| lane.report.tiles).sum();
        if tiles != progress.tiles {
            progress.tiles = tiles;
            progress.steps = lanes.iter().map(Lane::steps_done).min().unwrap_or(0);
            if pace.is_due() {
                let mut reports: Vec<_> = lanes.iter().map(Lane::report).collect();
                reports.resize_with(count, NodeReport::default);
                observe(Update::Nodes(reports));
            }
            observe(Update::Progress(progress));
        }
    };
    // A neighbour's first WRITE must come after the zeros of the signals, and after the identity.
    drive(&mut lanes, Stage::Written, options, &mut observe)?;
    lanes.iter_mut().try_for_each(Lane::connect)?;
    drive(&mut lanes, Stage::Connected, options, &mut observe)?;
    lanes.iter_mut().try_for_each(Lane::compute)?;
    drive(&mut lanes, Stage::Finished, options, &mut observe)?;
    let mut report = Report {
        elapsed: begin.elapsed(),
        max_change: lanes.iter().fold(0.0, |max, lane| larger(max, lane.max_change)),
        l2_change: if options.residual { memory.sum_of_squares(plan.matrix.rows).sqrt() } else { 0.0 },
        nodes: lanes.iter().map(Lane::report).collect(),
    };
    // Nodes without a tile have done nothing.
    report.nodes.resize_with(nodes.len(), NodeReport::default);
    Ok((report, nodes.into_iter().enumerate().collect()))
}

/// Drives all nodes to a stage.
fn drive<P: Endpoint>(
    lanes: &mut [Lane<'_, P>],
    stage: Stage,
    options: &Options<'_>,
    observe: &mut impl FnMut(&[Lane<'_, P>]),
) -> Result<(), RunError> {
    let mut is_armed = false;
    while lanes.iter().any(|lane| lane.stage < stage) {
        if options.stop.load(Relaxed) {
            return Err(RunError::Interrupted(lanes.iter().map(|lane| lane.rounds_done).min().unwrap_or(0)));
        }
        let mut busy = false;
        for index in 0..lanes.len() {
            match lanes[index].advance() {
                Ok(any) => busy |= any,
                Err(error @ RunError::Neighbour { .. }) => return Err(lost(lanes).unwrap_or(error)),
                Err(error) => return Err(error),
            }
        }
        observe(lanes);
        // Looks once more after the nodes are armed: what came before wakes no thread.
        match (busy, is_armed) {
            (true, _) => {}
            (false, false) => lanes.iter_mut().try_for_each(Lane::arm)?,
            (false, true) => sleep(lanes.iter().map(|lane| &*lane.node)),
        }
        is_armed = !busy && !is_armed;
        if !busy {
            check_time(lanes, options.timeout)?;
        }
    }
    Ok(())
}

/// Returns the error of a node that has gone, if one has: it is the reason why another one cannot reach it.
fn lost<P: Endpoint>(lanes: &[Lane<'_, P>]) -> Option<RunError> {
    let index = lanes.iter().position(|lane| !lane.node.is_connected())?;
    Some(RunError::Node { index, error: NodeError::Closed })
}

/// Returns an error if nodes make no progress for too long, with the number of the one that the others wait for.
fn check_time<P: Endpoint>(lanes: &mut [Lane<'_, P>], timeout: Duration) -> Result<(), RunError> {
    let is_late = |lane: &Lane<'_, P>| lane.idle().is_some_and(|idle| idle > timeout);
    let waiting: Vec<_> = (0..lanes.len()).filter(|index| lanes[*index].idle().is_some()).collect();
    let all_are_late = !waiting.is_empty() && waiting.iter().all(|index| is_late(&lanes[*index]));
    let on_its_own = waiting.iter().copied().find(|index| is_late(&lanes[*index]) && !lanes[*index].needs_another());
    if on_its_own.is_none() && !all_are_late {
        return Ok(());
    }
    // One that hangs as a whole. Else one that has not finished its own work, or is behind: the others have its rows of all
    // rounds before.
    let silent = waiting.iter().copied().find(|index| !lanes[*index].node.answers());
    let behind = || waiting.iter().copied().min_by_key(|index| lanes[*index].rounds_done);
    let culprit = silent.or(on_its_own).or_else(behind).unwrap_or_default();
    Err(lanes[culprit].timed_out(timeout))
}

/// Returns what is written to the nodes first: zeros for the signals, then the identity and the addresses.
fn setup(plan: &ResidentPlan, addresses: &[NodeAddress], first_identity: u64) -> Result<Arc<Region>, RunError> {
    let setup = Region::heap(plan.tiles as usize * SETUP_BYTES)?;
    for tile in 0..plan.tiles {
        let at = tile as usize * SETUP_BYTES;
        setup.write(at + IDENTITY, &first_identity.wrapping_add(tile).to_le_bytes());
        for side in Side::BOTH {
            let Some(neighbour) = plan.neighbour(tile, side) else { continue };
            let address = addresses[neighbour as usize].address.as_bytes();
            if address.len() as u64 > MAX_ADDRESS_BYTES {
                let (index, neighbour) = (tile as usize, neighbour as usize);
                let reason =
                    format!("expected an address of at most {MAX_ADDRESS_BYTES} bytes, found {}", address.len());
                return Err(RunError::Neighbour { index, neighbour, reason });
            }
            setup.write((at as u64 + plan.address_at(side) - plan.setup_at()) as usize, address);
        }
    }
    Ok(setup)
}

/// Returns the identity of the first node, which no node has from an earlier run.
fn identity() -> Result<u64, RunError> {
    let bits = Token::random().map_err(RunError::Random)?.to_bytes();
    let (first, _) = bits.as_chunks().0.split_first().expect("there are 16 bytes");
    Ok(u64::from_le_bytes(*first))
}
