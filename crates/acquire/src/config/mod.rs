//! Configuration: every key of the TOML file is a flag of `shotline record` with the same name.
//!
//! [`Settings`] are read from flags and, by [`File`], from a file; [`Settings::check`] is the one place that refuses
//! values and combinations that no run can have, from either source.

mod check;
mod choices;
mod described;
mod file;
mod invalid;
mod resolved;
mod schema;
mod settings;
mod template;
mod transport;
mod units;
mod values;

pub use choices::{Sender, ShotStart, Sink};
pub use file::{ConfigError, File};
pub use invalid::InvalidSetting;
pub use resolved::ResolvedSettings;
pub use schema::schema;
pub use settings::{Key, Settings};
pub use template::{Help, template, toml_value};
pub use transport::ChosenTransport;
pub use units::{Bytes, Nanoseconds};
pub use values::{Align, Compression, number, peer, queue_pair};
