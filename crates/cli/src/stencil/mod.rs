//! `shotline stencil`: a stencil on a matrix that is larger than the memory of an accelerator node, over several nodes.

mod args;
mod map;
mod memory;
mod nodes;
mod page;
mod picture;
mod report;
mod source;

pub use args::Args;

use crate::out_file::OutFile;
use crate::output::{print_report, warn};
use crate::progress::Progress;
use crate::serve::BoardPage;
use crate::{Result, signals};
use args::{MatrixArgument, boundary_name};
use map::HeatMap;
use memory::{ResultMemory, map_file};
use nodes::{WithNodes, with_nodes};
use page::{Step, Watch};
use picture::{MatrixMemory, MatrixPainter};
use report::StencilReport;
use shotline_accelerate::Node;
use shotline_accelerate::command::Values;
use shotline_accelerate::stencil::resident::{self, NodeAddress, ResidentPlan};
use shotline_accelerate::stencil::{self, Matrix, Options, Plan, Remaining, Update, Verification};
use shotline_compute::stencil::{Real, Weights};
use shotline_dashboard::BoardInfo;
use shotline_verbs::cm::{ControlAddress, Endpoint};
use shotline_verbs::connect::Target;
use source::Source;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Runs the stencil.
pub fn run(args: &Args) -> Result {
    args.check()?;
    let stop = signals::stop_flag()?;
    let source = match args.matrix() {
        MatrixArgument::Generated(shape) => Source::generated(shape, args.values, args.seed),
        MatrixArgument::File(path) => Source::open(&path)?,
    };
    match source.values {
        Values::F32 => run_with::<f32>(args, &source, &stop),
        Values::F64 => run_with::<f64>(args, &source, &stop),
    }
}

/// Runs the stencil on values of type `F`.
fn run_with<F: Real>(args: &Args, source: &Source, stop: &Arc<AtomicBool>) -> Result {
    let (shape, values) = (source.shape, source.values);
    let weights = Weights::heat(args.alpha);
    let matrix = Matrix { rows: shape.rows, columns: shape.columns, values, boundary: args.boundary, weights };
    let map = map_file(args)?;
    let pictured = MatrixMemory::default();
    let page = args.board(source, &pictured, stop)?;
    let watch = Watch::new(page.board().cloned(), args.resident);
    watch.begin(Step::Prepare);
    let memory = ResultMemory::create::<F>(args, source, &matrix, stop)?;
    // Set once, here.
    let _ = pictured.set((Arc::clone(&memory.region), memory.offset));
    let _values = std::marker::PhantomData;
    with_nodes(args, Run::<F> { args, source, matrix, memory, map, watch: &watch, stop, _values })?;
    page.end(|| watch.status(), stop);
    Ok(())
}

impl Args {
    /// Serves the page, if it is requested.
    fn board(&self, source: &Source, memory: &MatrixMemory, stop: &Arc<AtomicBool>) -> Result<BoardPage> {
        let nodes = match self.to.as_slice() {
            [] => format!("{} in child processes", self.nodes()),
            to => to.join(", "),
        };
        let settings: [(&'static str, String); 6] = [
            ("nodes", nodes),
            ("steps", self.steps().to_string()),
            ("steps of a round", self.round_steps().to_string()),
            ("boundary", boundary_name(self.boundary).to_owned()),
            ("tiles", if self.resident { "stay in the nodes" } else { "come and go" }.to_owned()),
            ("transport", self.transport.to_string()),
        ];
        let values = if source.values == Values::F32 { "f32" } else { "f64" };
        let info = BoardInfo {
            command: "stencil".into(),
            title: format!("a matrix of {} x {} {values}", source.shape.rows, source.shape.columns),
            settings: settings.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            stopping: "Ends the run without a result.",
            ..BoardInfo::default()
        };
        let painter = MatrixPainter::new(source.shape, source.values, Arc::clone(memory));
        self.page.board(info, vec![Box::new(painter)], stop)
    }
}

/// A run whose matrix is in memory.
struct Run<'a, F> {
    args: &'a Args,
    source: &'a Source,
    matrix: Matrix,
    memory: ResultMemory,
    map: Option<OutFile>,
    watch: &'a Watch,
    stop: &'a AtomicBool,
    _values: std::marker::PhantomData<F>,
}

impl<F: Real> WithNodes for Run<'_, F> {
    fn with<P: Endpoint>(self, nodes: Vec<Node<P>>, targets: &[Target]) -> Result<Vec<usize>> {
        self.watch.begin(Step::Compute);
        let (division, mut report, remaining) = self.compute(nodes, targets)?;
        self.watch.computed(&report.nodes, report.elapsed);
        for (index, node) in remaining {
            // The result is complete.
            if let Err(error) = node.end() {
                warn(format!("node {index}, after its last tile: {error}"));
                report.nodes[index].lost = Some(error.to_string());
            }
        }
        let lost = (0..report.nodes.len()).filter(|index| report.nodes[*index].lost.is_some()).collect();
        self.finish(&division, report)?;
        Ok(lost)
    }
}

/// How the matrix was divided.
struct Division {
    round_steps: u64,
    tile_rows: u64,
    tiles: u64,
}

impl<F: Real> Run<'_, F> {
    /// Computes the steps, by tiles that stay or that come and go. Returns the nodes that remain, too.
    fn compute<P: Endpoint>(
        &self,
        nodes: Vec<Node<P>>,
        targets: &[Target],
    ) -> Result<(Division, stencil::Report, Remaining<P>)> {
        let Self { args, matrix, watch, .. } = *self;
        let smallest = nodes.iter().map(Node::memory_bytes).min().unwrap_or(0);
        let max_steps = nodes.iter().map(|node| node.header().max_steps.into()).min().unwrap_or(1);
        let (round_steps, count) = (args.round_steps().min(max_steps), nodes.len() as u64);
        let options =
            Options { steps: args.steps(), residual: !args.no_change, timeout: args.timeout, stop: self.stop };
        let memory = (&self.memory.region, self.memory.offset);
        let bar = Progress::new("tiles");
        let observe = |update| match update {
            Update::Progress(progress) => {
                bar.update(progress.tiles, progress.tiles_in_all);
                watch.progress(progress);
            }
            Update::Nodes(nodes) => watch.nodes(nodes),
            Update::Lost(lost) => {
                bar.hidden_while(|| warn(&lost));
                watch.lost(&lost);
            }
        };
        let (division, (report, remaining)) = if args.resident {
            let plan = ResidentPlan::new(matrix, round_steps, smallest, count, args.timeout)?;
            let division = Division { round_steps, tile_rows: plan.tile_rows(), tiles: plan.tiles };
            let addresses = targets.iter().map(node_address).collect::<Result<Vec<_>>>()?;
            (division, resident::run(&plan, (nodes, &addresses), memory, &options, observe)?)
        } else {
            let plan = Plan::new(matrix, round_steps, smallest, args.buffers, args.tile_rows, count)?;
            let division = Division { round_steps, tile_rows: plan.tile_rows, tiles: plan.tiles() };
            (division, stencil::run(&plan, nodes, memory, &options, observe)?)
        };
        Ok((division, report, remaining))
    }

    /// Verifies, saves and reports the result.
    fn finish(self, division: &Division, report: stencil::Report) -> Result {
        let Self { args, source, matrix, mut memory, map, watch, stop, .. } = self;
        let values_verified = match args.verify() {
            None => None,
            Some(extent) => {
                let (steps, result, offset) = (args.steps(), &*memory.region, memory.offset);
                let verification = Verification { before: source, matrix, steps, result, offset, stop };
                let bar = Mutex::new(Progress::new("values verified"));
                watch.begin(Step::Verify);
                let observe = |done, all| {
                    bar.lock().iter().for_each(|bar| bar.update(done, all));
                    watch.verified(done, all);
                };
                Some(verification.run(extent, &observe)?)
            }
        };
        watch.begin(Step::Save);
        let out = memory.publish()?;
        // An error of the maps is returned after the report, so that it does not drop a result.
        let drawn = self::draw::<F>(args, source, &memory, map);
        let (drawn, (map, letters)) = match drawn {
            Ok(maps) => (Ok(()), maps),
            Err(error) => (Err(error), (None, None)),
        };
        let seconds = report.elapsed.as_secs_f64();
        let moved: u64 = report.nodes.iter().map(|node| node.bytes_out + node.bytes_back + node.bytes_exchanged).sum();
        let report = StencilReport {
            rows: matrix.rows,
            columns: matrix.columns,
            bytes: matrix.rows * matrix.row_bytes(),
            values: if matrix.values == Values::F32 { "f32" } else { "f64" },
            boundary: boundary_name(matrix.boundary),
            steps: args.steps(),
            round_steps: division.round_steps,
            tile_rows: division.tile_rows,
            tiles: division.tiles,
            resident: args.resident,
            transport: args.transport.to_string(),
            seconds,
            updates_per_s: (matrix.rows * matrix.columns) as f64 * args.steps() as f64 / seconds.max(1e-9),
            bytes_per_s: moved as f64 / seconds.max(1e-9),
            nodes: report.nodes.into_iter().map(Into::into).collect(),
            max_change: (!args.no_change).then_some(report.max_change),
            l2_change: (!args.no_change).then_some(report.l2_change),
            values_verified,
            out,
            map,
            letters,
        };
        print_report(args.json, &report)?;
        watch.report(&report);
        drawn
    }
}

/// Returns where other nodes reach a node.
fn node_address((address, token): &Target) -> Result<NodeAddress> {
    let address = match address {
        ControlAddress::Tcp(address) => address.to_string(),
        // The nodes may have other working directories.
        ControlAddress::Unix(path) => std::path::absolute(path)?.to_str().ok_or("expected a path in UTF-8")?.to_owned(),
    };
    Ok(NodeAddress { address, token: *token })
}

/// Draws the maps. Returns the name of the saved one, and the one in letters.
fn draw<F: Real>(
    args: &Args,
    source: &Source,
    memory: &ResultMemory,
    file: Option<OutFile>,
) -> Result<(Option<PathBuf>, Option<String>)> {
    let in_letters = args.demo && !args.json;
    if file.is_none() && !in_letters {
        return Ok((None, None));
    }
    let mut row = vec![F::default(); source.shape.columns as usize];
    let widen = |row: &[F], to: &mut [f64]| to.iter_mut().zip(row).for_each(|(to, value)| *to = (*value).into());
    let after = HeatMap::new(source.shape, |number, to| {
        memory.read_row(number, &mut row);
        widen(&row, to);
        Ok(())
    })?;
    let mut saved = None;
    if let Some(file) = file {
        let before = HeatMap::new(source.shape, |number, to| {
            source.read(number, 0, &mut row)?;
            widen(&row, to);
            Ok(())
        })?;
        saved = Some(file.save(&map::draw([&before, &after], args.steps())?)?);
    }
    Ok((saved, in_letters.then(|| after.letters(after.range()))))
}
