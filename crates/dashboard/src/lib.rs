//! A page to watch a long-running command, with pictures of its data, and metrics for Prometheus.
//!
//! [`Subject`] is what is shown: it returns its state some times a second, does what the page's controls request, and
//! names its pictures. [`server`] serves it over HTTP: the page (`web/`, built into the program), a WebSocket with the
//! state as text and pictures as binary messages, the metrics, and the controls. [`run`] is the subject of a run of
//! `acquire`; other commands publish their state on a [`Board`]. [`pictures`] computes pictures in a thread of idle priority.
//!
//! Nothing waits for a browser: a client gets the newest state and the newest pictures when it is ready for them, and
//! loses those between.

mod assets;
mod board;
pub mod guard;
mod log;
pub mod metrics;
pub mod pictures;
mod process;
mod progress;
pub mod run;
pub mod server;
mod socket;
pub mod status;
mod subject;

pub use board::{Board, BoardInfo};
pub use server::{Options, Server};
pub use subject::{Action, Subject};
