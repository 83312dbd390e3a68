//! What a measurement needs before anything is bought: the load and the limit of every stage.
//!
//! A [`Plan`] says what is measured and which stages its bytes pass. [`Plan::report`] puts the [`formula`]s to it;
//! [`sim`] runs the same stages packet by packet, for what no formula says: bursts that meet, drives that stop.
//! [`papers`] holds plans of five published systems with their figures beside ours. [`search`] finds the highest rate
//! that a system holds, from trials that somebody makes.
//!
//! No sockets, files or threads: a text comes in, numbers go out.
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
pub mod plan;
pub mod report;
pub mod search;
pub mod sim;
pub mod units;

mod error;
mod read;
mod sheet;
mod stage;

pub use error::{Place, PlanError};
pub use plan::Plan;
pub use read::Flag;
pub use report::Report;
