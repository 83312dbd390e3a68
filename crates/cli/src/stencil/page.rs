//! What the page shows of a stencil.

use super::report::StencilReport;
use crate::serve::metrics::{Metrics, counter, gauge, table, with_unit};
use shotline_accelerate::stencil::{Lost, NodeReport, Progress};
use shotline_dashboard::Board;
use shotline_dashboard::status::{Family, LogLevel, Phase, Rate, StageReading, Status, Table};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a run does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The values are generated or read.
    Prepare,
    /// Nodes compute.
    Compute,
    /// The result is verified.
    Verify,
    /// Files are saved.
    Save,
}

impl Step {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Prepare, "prepare"), (Self::Compute, "compute"), (Self::Verify, "verify"), (Self::Save, "save")];
}

/// What is known of a run, for its page. Without a page nothing is collected.
pub struct Watch {
    board: Option<Arc<Board>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Steps that have begun, with their begin.
    begun: Vec<(Step, Instant)>,
    ended: Option<Instant>,
    is_resident: bool,
    progress: Progress,
    nodes: Vec<NodeReport>,
    /// Values that are verified, and all.
    verified: [u64; 2],
    /// Time of the computation, once it is over.
    computed: Option<Duration>,
    /// Metrics and rows of the report.
    metrics: Metrics,
    report: Vec<Vec<String>>,
}

impl Watch {
    /// Begins with nothing. `is_resident`: tiles stay in the nodes.
    pub fn new(board: Option<Arc<Board>>, is_resident: bool) -> Self {
        Self { board, state: Mutex::new(State { is_resident, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and publishes it if the last one is old enough.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let Some(board) = &self.board else { return };
        let mut state = self.state();
        change(&mut state);
        if board.is_due(Instant::now()) {
            board.publish(state.status());
        }
    }

    /// Notes that a step begins.
    pub fn begin(&self, step: Step) {
        if let Some(board) = &self.board {
            let mut state = self.state();
            state.begun.push((step, Instant::now()));
            board.publish(state.status());
        }
    }

    /// Notes the progress of the computation.
    pub fn progress(&self, progress: Progress) {
        self.change(|state| state.progress = progress);
    }

    /// Notes what the nodes have done.
    pub fn nodes(&self, nodes: Vec<NodeReport>) {
        self.change(|state| state.nodes = nodes);
    }

    /// Notes that a node is lost.
    pub fn lost(&self, lost: &Lost) {
        self.board.iter().for_each(|board| board.log(LogLevel::Warning, lost.to_string()));
    }

    /// Notes the progress of the verification.
    pub fn verified(&self, done: u64, all: u64) {
        // Threads report in any order.
        self.change(|state| state.verified = [state.verified[0].max(done), all]);
    }

    /// Notes the end of the computation.
    pub fn computed(&self, nodes: &[NodeReport], elapsed: Duration) {
        self.change(|state| (state.nodes, state.computed) = (nodes.to_vec(), Some(elapsed)));
    }

    /// Notes the report.
    pub fn report(&self, report: &StencilReport) {
        self.change(|state| {
            state.ended = Some(Instant::now());
            state.report = report.rows().into_iter().map(|(name, value)| vec![name, value]).collect();
            add_report(&mut state.metrics, report);
        });
    }

    /// Returns the state.
    pub fn status(&self) -> Status {
        self.state().status()
    }
}

impl State {
    /// Returns the time of the computation so far.
    fn computing(&self) -> Duration {
        let begun = self.begun.iter().find(|(step, _)| *step == Step::Compute);
        self.computed.unwrap_or_else(|| begun.map_or(Duration::ZERO, |(_, begin)| begin.elapsed()))
    }

    fn status(&self) -> Status {
        let [verified, _] = self.verified;
        let mut metrics = self.metrics.clone();
        metrics.add(counter("stencil_steps", "Steps of complete rounds"), Vec::new(), self.progress.steps);
        metrics.add(counter("stencil_tiles", "Complete tiles of all rounds"), Vec::new(), self.progress.tiles);
        let planned = gauge("stencil_tiles_planned", "Tiles of all rounds");
        metrics.set(planned, Vec::new(), self.progress.tiles_in_all as f64);
        metrics.add(counter("values_verified", VERIFIED), Vec::new(), verified);
        self.nodes.iter().enumerate().for_each(|(index, node)| add_node(&mut metrics, index, node));
        let step = self.begun.last().map(|(step, _)| *step);
        let part = |done: u64, all: u64| done as f64 / all.max(1) as f64;
        // Of the computation, which takes the longest.
        let progress = match step {
            Some(Step::Prepare) | None => 0.0,
            Some(Step::Compute) => part(self.progress.tiles, self.progress.tiles_in_all),
            Some(Step::Verify | Step::Save) => 1.0,
        };
        let tables = [self.steps(), self.table_of_nodes(), table("Result", &["", ""], &self.report)];
        Status {
            phase: if matches!(step, Some(Step::Prepare) | None) { Phase::Starting } else { Phase::Running },
            progress: Some(progress),
            families: metrics.families(),
            stages: self.stages(),
            tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
            ..Status::default()
        }
    }

    fn steps(&self) -> Table {
        let ends = self.begun.iter().skip(1).map(|(_, begin)| Some(*begin)).chain([self.ended]);
        let row = |((step, begin), end): (&(Step, Instant), Option<Instant>)| {
            let name = Step::ALL.iter().find(|(each, _)| each == step).map_or("", |(_, name)| name);
            let seconds = end.map_or_else(|| begin.elapsed(), |end| end - *begin).as_secs_f64();
            let state = if end.is_some() { "over" } else { "now" };
            vec![name.to_owned(), state.to_owned(), format!("{seconds:.1}")]
        };
        table("Phases", &["phase", "state", "seconds"], &self.begun.iter().zip(ends).map(row).collect::<Vec<_>>())
    }

    fn table_of_nodes(&self) -> Table {
        let seconds = self.computing().as_secs_f64().max(1e-9);
        let row = |(index, node): (usize, &NodeReport)| {
            let NodeReport { bytes_out, bytes_back, bytes_exchanged, .. } = *node;
            let gb = |bytes: u64| format!("{:.3}", bytes as f64 / 1e9);
            let moved = (bytes_out + bytes_back + bytes_exchanged) as f64;
            let percent = |time: Duration| format!("{:.0} %", 100.0 * time.as_secs_f64() / seconds);
            let mut row = vec![index.to_string(), node.tiles.to_string()];
            row.extend([bytes_out, bytes_exchanged, bytes_back].map(gb));
            row.push(format!("{:.2}", moved * 8e-9 / seconds));
            let times = [node.writing, node.computing, node.exchanging, node.waiting_for_halos, node.reading];
            row.extend(times.map(percent));
            row.push(node.lost.clone().unwrap_or_else(|| "-".into()));
            row
        };
        let columns = [
            "node",
            "tiles",
            "written GB",
            "exchanged GB",
            "read back GB",
            "Gbit/s",
            "writing",
            "computing",
            "exchanging",
            "waiting for halos",
            "reading",
            "lost",
        ];
        table("Nodes", &columns, &self.nodes.iter().enumerate().map(row).collect::<Vec<_>>())
    }

    /// Returns the load of the stages, over all nodes.
    fn stages(&self) -> Vec<StageReading> {
        let seconds = self.computing().as_secs_f64().max(1e-9);
        let stage = |name: &'static str, time: fn(&NodeReport) -> Duration, bytes: fn(&NodeReport) -> u64| {
            let busy: f64 = self.nodes.iter().map(|node| time(node).as_secs_f64()).sum();
            let busy = (busy / seconds / self.nodes.len().max(1) as f64).min(1.0);
            let bytes: u64 = self.nodes.iter().map(bytes).sum();
            let gbps = bytes as f64 * 8e-9 / seconds;
            // Why a stage waits is not known.
            StageReading { name: name.into(), busy, starved: 0.0, stalled: 0.0, gbps }
        };
        let mut stages = Vec::new();
        if !self.nodes.is_empty() {
            stages.push(stage("write", |node| node.writing, |node| node.bytes_out));
            let computed = if self.is_resident {
                |node: &NodeReport| node.computed_bytes(true)
            } else {
                |node: &NodeReport| node.computed_bytes(false)
            };
            stages.push(stage("compute", |node| node.computing, computed));
            stages.push(stage("read back", |node| node.reading, |node| node.bytes_back));
        }
        stages
    }
}

const VERIFIED: &str = "Values that were computed again and had the same bits";

fn add_node(metrics: &mut Metrics, index: usize, node: &NodeReport) {
    let of_node = || vec![("node", index.to_string())];
    let bytes = |name, help, label, count: u64| {
        // Nodes whose tiles come and go exchange nothing.
        let rate = (count > 0).then_some(Rate { label, unit: "Gbit/s", factor: 8e-9 });
        (Family { rate, ..with_unit("bytes", counter(name, help)) }, count)
    };
    let exchanged = "Bytes that the node has written to others";
    let counts = [
        (counter("node_tiles", "Tiles that the node has computed"), node.tiles),
        bytes("node_written", "Bytes written to the node, with halos", "Written", node.bytes_out),
        bytes("node_read", "Bytes read back from the node", "Read back", node.bytes_back),
        bytes("node_exchanged", exchanged, "Exchanged", node.bytes_exchanged),
        (gauge("node_lost", "1 if the node is lost"), node.lost.is_some().into()),
    ];
    for (family, count) in counts {
        metrics.add(family, of_node(), count);
    }
    let times = [
        ("writing", node.writing),
        ("waiting", node.waiting),
        ("computing", node.computing),
        ("exchanging", node.exchanging),
        ("waiting_for_halos", node.waiting_for_halos),
        ("reading", node.reading),
    ];
    let family = with_unit("seconds", counter("node_stage", "Time of each stage of the node"));
    for (stage, time) in times {
        let labels = of_node().into_iter().chain([("stage", stage.to_owned())]).collect();
        metrics.set(family.clone(), labels, time.as_secs_f64());
    }
}

fn add_report(metrics: &mut Metrics, report: &StencilReport) {
    let [rows, columns] = [report.rows, report.columns].map(|count| count as f64);
    let values = [
        (gauge("stencil_rows", "Rows of the matrix"), Some(rows)),
        (gauge("stencil_columns", "Columns of the matrix"), Some(columns)),
        (with_unit("bytes", gauge("stencil_matrix", "Size of the matrix")), Some(report.bytes as f64)),
        (gauge("stencil_round_steps", "Steps of a round"), Some(report.round_steps as f64)),
        (gauge("stencil_tile_rows", "Rows of a tile, without its halos"), Some(report.tile_rows as f64)),
        (gauge("stencil_round_tiles", "Tiles of a round"), Some(report.tiles as f64)),
        (
            with_unit("seconds", gauge("stencil_time", "Time from the first write to the last read")),
            Some(report.seconds),
        ),
        (with_unit("hertz", gauge("stencil_update_rate", "Updated values in a second")), Some(report.updates_per_s)),
        (
            with_unit(
                "bytes_per_second",
                gauge("stencil_transfer_rate", "Bytes in a second to, between and from the nodes"),
            ),
            Some(report.bytes_per_s),
        ),
        (gauge("stencil_change_max", "Largest change of the last step"), report.max_change),
        (
            gauge("stencil_change_l2", "Root of the sum of the squares of the changes of the last step"),
            report.l2_change,
        ),
    ];
    // JSON has no other numbers.
    for (family, value) in
        values.into_iter().filter_map(|(family, value)| Some((family, value.filter(|v| v.is_finite())?)))
    {
        metrics.set(family, Vec::new(), value);
    }
}
