//! Capacity planning of a measurement system: the load and the limit of every stage.
//!
//! A [`Plan`] describes the instruments and the stages that their data pass. [`Plan::report`] evaluates the
//! [`formula`]s; [`sim`] simulates the same stages packet by packet, for effects that the formulas do not cover, such
//! as coinciding bursts and stalling drives. [`papers`] holds plans of five published systems and compares their
//! figures with the formulas. [`pcie`] models the bus of a packet card, length by length. [`search`] finds the highest
//! loss-free rate of a system from trials that the caller runs.
//!
//! The crate uses no sockets, files or threads: its input is text, its output numbers.
//!
//! ```
//! use shotline_plan::Plan;
//! let plan = Plan::parse(
//!     "[source]\nchannels = 96\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n\n\
//!      [[stage]]\nkind = \"drive\"\nrate = \"12 Gbit/s\"\n",
//!     &[],
//! )?;
//! let report = plan.report();
//! assert_eq!(report.bottleneck, "drive");
//! assert!((report.source.burst_hz / 19_286.0 - 1.0).abs() < 1e-4);
//! # Ok::<(), shotline_plan::PlanError>(())
//! ```
#![forbid(unsafe_code)]

pub mod formula;
pub mod papers;
pub mod pcie;
pub mod plan;
pub mod report;
pub mod search;
pub mod sim;
pub mod units;

mod error;
mod read;
mod schema;
mod stage;
mod table;

pub use error::{Location, PlanError};
pub use plan::Plan;
pub use read::Flag;
pub use report::Report;
pub use schema::schema;
