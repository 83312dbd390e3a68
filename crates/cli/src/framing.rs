//! Framings as values of options.

use serde::Serializer;
use shotline_wire::framing::{Kind, UnknownFraming};

/// Parses the name of a framing that set-up supports.
pub fn with_set_up(name: &str) -> Result<Kind, String> {
    let kind: Kind = name.parse().map_err(|error: UnknownFraming| error.to_string())?;
    kind.for_set_up().map(|_| kind).map_err(|error| error.to_string())
}

/// Parses several names as [`with_set_up`] does.
pub fn all_with_set_up(names: &[String]) -> Result<Vec<Kind>, String> {
    names.iter().map(|name| with_set_up(name)).collect()
}

/// Serializes a framing as its name.
pub fn name<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}
