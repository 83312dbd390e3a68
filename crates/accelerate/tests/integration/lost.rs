//! Nodes that fail at exact moments of a run.

use crate::fake::{Fake, Fault};
use shotline_accelerate::command::{Outcome, Values};
use shotline_accelerate::stencil::{Lost, Matrix, Options, Plan, Report, RunError, Update, run};
use shotline_compute::stencil::{Boundary, Weights};
use shotline_memory::Region;
use shotline_random::SplitMix64;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Two rounds of four tiles. A tile has so many bytes that a node does not send all of them in one call.
const ROWS: u64 = 64;
const COLUMNS: u64 = 1 << 16;
const TILE_ROWS: u64 = 16;
const STEPS: u64 = 4;
const ROUND_STEPS: u64 = 2;
const NODE_MEMORY: usize = 16 << 20;
/// Bytes before the matrix, as in a file.
const OFFSET: u64 = 128;

/// What is left of a run.
struct Ended {
    outcome: Result<Report, RunError>,
    lost: Vec<Lost>,
    /// Numbers of the nodes that remain.
    remaining: Vec<usize>,
    matrix: Vec<u8>,
}

impl Ended {
    /// Checks that all values are right, and counted once, although these nodes were lost with so many tiles.
    fn expect_complete(self, reference: &Ended, lost: &[(usize, usize)]) -> Vec<Lost> {
        let (report, expected) = (self.outcome.unwrap(), reference.outcome.as_ref().unwrap());
        assert!(self.matrix == reference.matrix, "the results differ");
        let changes = |report: &Report| (report.max_change.to_bits(), report.l2_change.to_bits());
        assert_eq!(changes(&report), changes(expected));
        assert_eq!(self.lost.iter().map(|lost| (lost.index, lost.tiles)).collect::<Vec<_>>(), lost);
        let reasons: Vec<_> = report.nodes.iter().map(|node| node.lost.clone()).collect();
        for (index, reason) in reasons.iter().enumerate() {
            let found = self.lost.iter().find(|lost| lost.index == index);
            assert_eq!(*reason, found.map(|lost| lost.reason.clone()));
            assert_eq!(self.remaining.contains(&index), reason.is_none());
        }
        // Bytes are read back once, and tiles counted once.
        let tiles: u64 = report.nodes.iter().map(|node| node.tiles).sum();
        let back: u64 = report.nodes.iter().map(|node| node.bytes_back).sum();
        assert_eq!((tiles, back), (8, 2 * 4 * ROWS * COLUMNS));
        self.lost
    }

    fn error(self) -> String {
        self.outcome.unwrap_err().to_string()
    }
}

fn run_with(faults: &[Option<(u64, Fault)>]) -> Ended {
    let (boundary, weights) = (Boundary::Periodic, Weights::heat(0.2));
    let matrix = Matrix { rows: ROWS, columns: COLUMNS, values: Values::F32, boundary, weights };
    let region = Region::heap((OFFSET + 4 * ROWS * COLUMNS) as usize).unwrap();
    let mut random = SplitMix64::new(7);
    let values = (0..ROWS * COLUMNS).flat_map(|_| (random.next_u64() as f32 / 1e19).to_le_bytes());
    region.write(OFFSET as usize, &values.collect::<Vec<_>>());
    let fakes: Vec<_> = faults.iter().map(|fault| Fake::start(NODE_MEMORY, *fault)).collect();
    let nodes: Vec<_> = fakes.iter().map(Fake::connect).collect();
    let plan = Plan::new(matrix, ROUND_STEPS, NODE_MEMORY as u64, 2, Some(TILE_ROWS), nodes.len() as u64).unwrap();
    let stop = AtomicBool::new(false);
    let options = Options { steps: STEPS, residual: true, timeout: Duration::from_secs(20), stop: &stop };
    let (mut lost, mut of_nodes) = (Vec::new(), None);
    let observe = |update| match update {
        Update::Progress(progress) => assert!(of_nodes.take().is_none_or(|tiles| tiles == progress.tiles)),
        Update::Nodes(reports) => {
            of_nodes = Some(reports.iter().map(|report| report.tiles).sum::<u64>());
            assert_eq!(reports.len(), faults.len());
        }
        Update::Lost(node) => lost.push(node),
    };
    let (outcome, remaining) = match run(&plan, nodes, (&region, OFFSET), &options, observe) {
        Ok((report, nodes)) => (Ok(report), nodes.into_iter().map(|(index, _)| index).collect()),
        Err(error) => (Err(error), Vec::new()),
    };
    let mut matrix = vec![0; (4 * ROWS * COLUMNS) as usize];
    region.read(OFFSET as usize, &mut matrix);
    Ended { outcome, lost, remaining, matrix }
}

#[test]
fn tiles_of_lost_nodes_are_computed_by_others() {
    let reference = run_with(&[None]);
    assert_eq!((reference.remaining.as_slice(), reference.lost.len()), (&[0][..], 0));
    for fault in [Fault::Ends, Fault::Hangs, Fault::Reports(Outcome::Failed)] {
        let lost = run_with(&[Some((0, fault)), None]).expect_complete(&reference, &[(0, 2)]);
        let expected: &[&str] = match fault {
            Fault::Ends => &["the node has closed the connection"],
            Fault::Reports(_) => &["the accelerator or its memory failed"],
            // Its second tile may be written already.
            _ => &[
                "does not respond",
                "rows 0 to 16 are not computed, and nothing has happened for 20 s: the node hangs",
            ],
        };
        assert!(expected.iter().any(|words| lost[0].reason.contains(words)), "{}", lost[0]);
        let text = format!("node 0: {}: its 2 tiles go to the other node", lost[0].reason);
        assert_eq!(lost[0].to_string(), text);
    }
}

#[test]
fn tiles_of_a_node_that_were_back_are_counted_once() {
    let reference = run_with(&[None]);
    for before in 1..8 {
        let ended = run_with(&[None, None, Some((before, Fault::Ends))]);
        // How many commands it gets depends on the others.
        let lost: Vec<_> = ended.lost.iter().map(|lost| (lost.index, lost.tiles)).collect();
        assert!(lost.is_empty() || lost[0].0 == 2, "{lost:?}");
        ended.expect_complete(&reference, &lost);
    }
}

#[test]
fn nodes_are_lost_one_after_another() {
    let reference = run_with(&[None]);
    let faults = [Some((0, Fault::Ends)), Some((0, Fault::Reports(Outcome::Failed))), None];
    let ended = run_with(&faults);
    let mut lost: Vec<_> = ended.lost.iter().map(|lost| (lost.index, lost.tiles)).collect();
    ended.expect_complete(&reference, &lost);
    lost.sort_unstable();
    assert_eq!(lost.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn tile_that_was_being_read_back_ends_the_run() {
    for fault in [Fault::EndsInRead, Fault::HangsInRead] {
        let ended = run_with(&[Some((0, fault)), None]);
        assert!(ended.lost.is_empty());
        let error = ended.error();
        let expected = ["node 0: the node has closed", "node 0: the node does not respond", "are not read back"];
        assert!(expected.iter().any(|words| error.contains(words)), "{error}");
    }
}

#[test]
fn memory_that_forgets_a_result_ends_the_run() {
    let error = run_with(&[Some((0, Fault::Forgets)), None]).error();
    assert!(error.starts_with("node 0: its memory has failed: expected the mark 0x4c"), "{error}");
    assert!(error.ends_with("found 0x0"), "{error}");
}

#[test]
fn refused_tiles_and_the_loss_of_all_nodes_end_the_run() {
    let refused = Fault::Reports(Outcome::TooLarge);
    let error = run_with(&[Some((0, refused)), None]).error();
    assert!(error.starts_with("node 0, rows 0 to 16: the steps need too much working memory"), "{error}");
    assert_eq!(run_with(&[Some((0, Fault::Ends))]).error(), "node 0: the node has closed the connection");
    let both = run_with(&[Some((0, Fault::Ends)), Some((1, Fault::Ends))]);
    let last = 1 - both.lost[0].index;
    assert_eq!((both.lost.len(), both.lost[0].remaining), (1, 1));
    assert_eq!(both.error(), format!("node {last}: the node has closed the connection"));
}
