//! Report of `shotline stencil`.

use crate::Result;
use crate::output::{Report, columns, print_table};
use serde::Serialize;
use shotline_accelerate::stencil::NodeReport;
use std::path::PathBuf;

/// Width of the bar of a stage in characters, if it took the whole run.
const BAR: f64 = 20.0;

/// The JSON object of a run.
#[derive(Serialize)]
pub struct StencilReport {
    pub rows: u64,
    pub columns: u64,
    /// Bytes of the matrix.
    pub bytes: u64,
    /// `f32` or `f64`.
    pub values: &'static str,
    pub boundary: &'static str,
    pub steps: u64,
    /// Steps of a round, and rows of a halo.
    pub round_steps: u64,
    /// Rows of a tile, without its halos.
    pub tile_rows: u64,
    /// Tiles of a round.
    pub tiles: u64,
    /// The tiles stayed in the nodes.
    pub resident: bool,
    pub transport: String,
    /// Time from the first write to the last read.
    pub seconds: f64,
    /// Updated values per second.
    pub updates_per_s: f64,
    /// Bytes written to the nodes, between them, and read back, per second.
    pub bytes_per_s: f64,
    pub nodes: Vec<NodeSummary>,
    /// Largest change of the last step. `null` in JSON if it is not finite, or not known.
    pub max_change: Option<f64>,
    /// Root of the sum of the squares of the changes of the last step.
    pub l2_change: Option<f64>,
    /// Number of values that were computed again and had the same bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_verified: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<PathBuf>,
    /// Map in letters.
    #[serde(skip)]
    pub letters: Option<String>,
}

/// What one node has done.
#[derive(Serialize)]
pub struct NodeSummary {
    pub tiles: u64,
    pub bytes_out: u64,
    pub bytes_back: u64,
    /// Time in which tiles were written.
    pub writing_s: f64,
    /// Time that commands waited in the queue.
    pub waiting_s: f64,
    pub computing_s: f64,
    pub reading_s: f64,
    /// Bytes of border rows that the node wrote to others.
    pub bytes_exchanged: u64,
    /// Time in which it wrote them.
    pub exchanging_s: f64,
    /// Time that it waited for those of others.
    pub waiting_for_halos_s: f64,
    /// Why the node was lost; its tiles went to the others. `null` in JSON if it was not.
    pub lost: Option<String>,
}

impl From<NodeReport> for NodeSummary {
    fn from(report: NodeReport) -> Self {
        let NodeReport {
            tiles,
            bytes_out,
            bytes_back,
            writing,
            waiting,
            computing,
            reading,
            bytes_exchanged,
            exchanging,
            waiting_for_halos,
            lost,
        } = report;
        Self {
            tiles,
            bytes_out,
            bytes_back,
            writing_s: writing.as_secs_f64(),
            waiting_s: waiting.as_secs_f64(),
            computing_s: computing.as_secs_f64(),
            reading_s: reading.as_secs_f64(),
            bytes_exchanged,
            exchanging_s: exchanging.as_secs_f64(),
            waiting_for_halos_s: waiting_for_halos.as_secs_f64(),
            lost,
        }
    }
}

impl StencilReport {
    /// Returns the columns of a stage of a node: its rate, its time, and a bar.
    fn stage(&self, bytes: u64, seconds: f64) -> [String; 3] {
        let rate = if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 };
        let bar = "#".repeat((BAR * seconds / self.seconds.max(1e-9)).round().min(BAR) as usize);
        [format!("{rate:.2}"), format!("{seconds:.3}"), bar]
    }

    /// Returns the rows of the second table.
    pub fn rows(&self) -> Vec<(String, String)> {
        let verified = match self.values_verified {
            Some(count) if count == self.rows * self.columns => "all values, bit by bit".to_owned(),
            Some(count) => format!("{count} values, bit by bit"),
            None => "no (--verify)".into(),
        };
        let (rows, columns, values) = (self.rows, self.columns, self.values);
        let mut table = vec![
            ("matrix".into(), format!("{rows} x {columns} {values}, {:.3} GB", self.bytes as f64 / 1e9)),
            (
                "tiles of a round".into(),
                format!("{} of {} rows, with halos of {} rows", self.tiles, self.tile_rows, self.round_steps),
            ),
            ("steps".into(), format!("{}, {} a round", self.steps, self.round_steps)),
            ("time".into(), format!("{:.3} s", self.seconds)),
            ("updates".into(), format!("{:.3} x 10^9 values/s", self.updates_per_s / 1e9)),
            ("written and read".into(), format!("{:.2} GB/s", self.bytes_per_s / 1e9)),
        ];
        table.extend(self.max_change.map(|max| ("largest change of the last step".into(), format!("{max:.3e}"))));
        table.push(("verified".into(), verified));
        let files = [("result", &self.out), ("map", &self.map)];
        table.extend(
            files.into_iter().filter_map(|(name, path)| Some((name.into(), path.as_ref()?.display().to_string()))),
        );
        table
    }
}

impl Report for StencilReport {
    fn print(&self) -> Result {
        let mut rows = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            // A tile that stays is computed once for each of its results.
            let computed = if self.resident { node.tiles * node.bytes_back } else { node.bytes_out };
            let stages = [
                ("written", node.bytes_out, node.writing_s),
                ("computed", computed, node.computing_s),
                ("exchanged", node.bytes_exchanged, node.exchanging_s),
                ("waited", 0, node.waiting_for_halos_s),
                ("read back", node.bytes_back, node.reading_s),
            ];
            let stages =
                stages.into_iter().filter(|(stage, ..)| self.resident || !["exchanged", "waited"].contains(stage));
            for (stage, bytes, seconds) in stages {
                let is_first = stage == "written";
                let name = match stage {
                    "written" => index.to_string(),
                    "computed" if node.lost.is_some() => "lost".into(),
                    _ => String::new(),
                };
                let tiles = if is_first { node.tiles.to_string() } else { String::new() };
                let [rate, time, bar] = self.stage(bytes, seconds);
                rows.push([name, tiles, stage.into(), format!("{:.3}", bytes as f64 / 1e9), rate, time, bar]);
            }
        }
        columns(&[">node", ">tiles", "stage", ">GB", ">GB/s", ">s", "part of the run"], &rows);
        outln!();
        print_table(&self.rows());
        if let Some(letters) = &self.letters {
            outln!("\n{letters}");
        }
        Ok(())
    }
}
