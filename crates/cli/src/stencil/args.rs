//! Arguments of `shotline stencil`.

use super::source::Shape;
use crate::Result;
use crate::initiator::Access;
use crate::serve::PageArgs;
use crate::values::{Size, bind, seconds};
use shotline_accelerate::command::Values;
use shotline_accelerate::stencil::Extent;
use shotline_compute::stencil::{Boundary, MAX_STEPS};
use shotline_memory::RegionKind;
use shotline_verbs::provider::ProviderKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `shotline stencil`.
#[derive(clap::Args)]
#[command(after_help = "\
Each step replaces every value by (1 - 4 A) times itself plus A times each of its four neighbours: the heat equation. The
matrix is divided into tiles of whole rows. A round writes each tile with its halos to a node, which computes some steps and
has the result read back to its place. All results have the same bits, whatever the number of nodes and the tiles.

Examples:
  shotline stencil --demo                                  four nodes, verified, with the map of the result
  shotline stencil 32768x32768 --steps 8 --verify          4 GiB on two nodes of 256 MiB
  shotline stencil in.npy --out out.npy --boundary periodic
  shotline stencil 8192x8192 --resident --steps 1000       tiles stay in the nodes, which exchange their halos
  shotline stencil 8192x8192 --memory emulated:path2       nodes behind the paper's path 2
  shotline stencil 32768x32768 --steps 1000 --serve localhost:8080     a page with the nodes and the matrix
  shotline target --region hbm=8G,rights=rw --accelerate hbm --bind 192.168.1.5 --listen 192.168.1.5:47920 --token-file t
  shotline stencil in.npy --to 192.168.1.5:47920 --to 192.168.1.6:47920 --token-file t --out out.npy")]
pub struct Args {
    /// Matrix: ROWSxCOLUMNS of generated values, or a NumPy file of float32 or float64 [default: 4096x4096]
    #[arg(value_name = "MATRIX")]
    pub matrix: Option<MatrixArgument>,
    /// Run four nodes with less memory than the matrix, verify all values and print the map
    #[arg(long)]
    pub demo: bool,
    /// Type of generated values: f32 or f64
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = values)]
    pub values: Values,
    /// Seed of generated values
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of steps [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Steps of a round, which are also the rows of a halo: more steps take fewer transfers and more memory [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_STEPS as u64))]
    pub round_steps: Option<u64>,
    /// Beyond the borders: fixed (border values do not change), periodic (the opposite border follows), insulated (nothing
    /// flows)
    #[arg(long, value_name = "KIND", default_value = "fixed", value_parser = boundary)]
    pub boundary: Boundary,
    /// A: part of each neighbour that flows in per step; stable up to 0.25
    #[arg(long, value_name = "A", default_value_t = 0.2)]
    pub alpha: f64,
    /// Let each tile stay in its node: nodes write their border rows to each other. The matrix must fit into the memory of all
    /// nodes together
    #[arg(long, conflicts_with_all = ["tile_rows", "buffers"])]
    pub resident: bool,
    /// Rows of a tile without its halos [default: as many as fit, fewer if nodes would have nothing to do]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tile_rows: Option<u64>,
    /// Tiles that a node holds: while one is computed, another is written or read
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub buffers: u32,
    /// Do not compute the change of the last step
    #[arg(long)]
    pub no_change: bool,
    /// NumPy file of the result. The file is the memory of the run: the matrix can be larger than this machine's memory
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the result
    #[arg(long, requires = "out")]
    pub force: bool,
    /// PNG file with the maps of the matrix before and after
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Compute all values again in this process by plain loops, or those of N places, and compare every bit
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "all")]
    pub verify: Option<Extent>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// How to reach the nodes
    #[arg(long, value_name = "HOW", default_value = "soft", help_heading = "Nodes",
        help = format!("How to reach the nodes: {}", ProviderKind::choices()))]
    pub transport: ProviderKind,
    /// Address of a running node (shotline target --accelerate); repeat it for each node
    #[arg(long, value_name = "HOST:PORT", help_heading = "Nodes")]
    pub to: Vec<String>,
    #[command(flatten, next_help_heading = "Nodes")]
    pub access: Access,
    /// Local address for the traffic (soft) [default: the route's own, any port]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind, help_heading = "Nodes")]
    pub bind: Option<SocketAddr>,
    /// Number of nodes to start on this machine, without --to [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "to", help_heading = "Nodes", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: Option<u16>,
    /// Memory of each of them [default: 256M]
    #[arg(long, value_name = "BYTES", conflicts_with = "to", help_heading = "Nodes")]
    pub node_memory: Option<Size>,
    #[arg(long, value_name = "KIND", conflicts_with = "to", default_value = "heap", help_heading = "Nodes",
        help = format!("Kind of their memory: {}", RegionKind::forms()))]
    pub memory: RegionKind,
    /// Threads of each of them [default: all processors but one]
    #[arg(long, value_name = "N", conflicts_with = "to", help_heading = "Nodes")]
    pub threads: Option<u16>,
    /// Time after which a node that does nothing is considered hung, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds, help_heading = "Nodes")]
    pub timeout: Duration,
    #[command(flatten)]
    pub page: PageArgs,
}

/// A matrix as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatrixArgument {
    /// Generated values.
    Generated(Shape),
    /// A NumPy file.
    File(PathBuf),
}

impl std::str::FromStr for MatrixArgument {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let shape = text.split_once('x').and_then(|(rows, columns)| Some((rows.parse().ok()?, columns.parse().ok()?)));
        match shape {
            Some((0, _) | (_, 0)) => Err(format!("expected at least one row and one column, found {text}")),
            Some((rows, columns)) => Ok(Self::Generated(Shape { rows, columns })),
            None if text.ends_with(".npy") => Ok(Self::File(text.into())),
            None => Err(format!("expected ROWSxCOLUMNS, such as 4096x4096, or a NumPy file (.npy), found {text}")),
        }
    }
}

fn values(text: &str) -> std::result::Result<Values, String> {
    match text {
        "f32" => Ok(Values::F32),
        "f64" => Ok(Values::F64),
        _ => Err(format!("expected f32 or f64, found {text}")),
    }
}

/// The names of the boundaries.
const BOUNDARIES: [(&str, Boundary); 3] =
    [("fixed", Boundary::Fixed), ("periodic", Boundary::Periodic), ("insulated", Boundary::Insulated)];

fn boundary(text: &str) -> std::result::Result<Boundary, String> {
    let found = BOUNDARIES.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, boundary)| boundary).ok_or_else(|| format!("expected fixed, periodic or insulated, found {text}"))
}

/// Returns the name of a boundary.
pub fn boundary_name(boundary: Boundary) -> &'static str {
    BOUNDARIES.into_iter().find(|(_, found)| *found == boundary).map_or("", |(name, _)| name)
}

impl Args {
    /// Refuses numbers without a meaning.
    pub fn check(&self) -> Result {
        if !self.alpha.is_finite() {
            return Err(format!("expected a finite --alpha, found {}", self.alpha).into());
        }
        if self.node_memory == Some(Size(0)) {
            return Err("expected --node-memory above 0, found 0".into());
        }
        Ok(())
    }

    /// Returns the matrix. That of the demo is small enough to change visibly in a few seconds.
    pub fn matrix(&self) -> MatrixArgument {
        let side = if self.demo { 1024 } else { 4096 };
        self.matrix.clone().unwrap_or(MatrixArgument::Generated(Shape { rows: side, columns: side }))
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.steps.unwrap_or(if self.demo { 2048 } else { 64 })
    }

    /// Returns the number of steps of a round.
    pub fn round_steps(&self) -> u64 {
        self.round_steps.unwrap_or(if self.demo { 32 } else { 16 }).min(self.steps())
    }

    /// Returns the number of nodes to start.
    pub fn nodes(&self) -> u16 {
        self.nodes.unwrap_or(if self.demo { 4 } else { 2 })
    }

    /// Returns the memory of each of them.
    pub fn node_memory(&self) -> Size {
        // The nodes of the demo have less memory than the matrix together, unless the tiles stay.
        let demo = if self.resident { 4 << 20 } else { 1 << 20 };
        self.node_memory.unwrap_or(Size(if self.demo { demo } else { 256 << 20 }))
    }

    /// Returns the extent of the verification.
    pub fn verify(&self) -> Option<Extent> {
        self.verify.or(self.demo.then_some(Extent::All))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_is_a_shape_or_a_numpy_file() {
        let shape = Shape { rows: 3, columns: 70_000 };
        assert_eq!("3x70000".parse(), Ok(MatrixArgument::Generated(shape)));
        assert_eq!("a/3x4.npy".parse(), Ok(MatrixArgument::File("a/3x4.npy".into())));
        for (text, words) in
            [("0x5", "at least one row"), ("3x", "ROWSxCOLUMNS"), ("-3x4", "ROWSxCOLUMNS"), ("in.csv", ".npy")]
        {
            let error = text.parse::<MatrixArgument>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn every_boundary_has_a_name() {
        for (name, expected) in BOUNDARIES {
            assert_eq!((boundary(name), boundary_name(expected)), (Ok(expected), name));
        }
        assert!(boundary("open").unwrap_err().contains("found open"));
    }
}
