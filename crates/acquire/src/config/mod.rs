//! One configuration: every key of the TOML file is a flag of `shotline record`, by the same name.
//!
//! [`Settings`] are read from flags and, by [`File`], from a file; [`Settings::check`] is the one place that refuses
//! values and combinations that no run can have, wherever they were written.

mod check;
mod choices;
mod file;
mod invalid;
mod resolved;
mod settings;
mod units;
mod values;

pub use choices::{Begin, Sender, Sink};
pub use file::{ConfigError, File};
pub use invalid::Invalid;
pub use resolved::Resolved;
pub use settings::{Key, Settings};
pub use units::{Bytes, Nanoseconds};
pub use values::{Align, Compression, number, peer, queue_pair};
