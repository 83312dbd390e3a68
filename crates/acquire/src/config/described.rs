//! JSON Schemas of the types of values that settings have.

use super::units::{Bytes, Nanoseconds};
use super::values::{Align, Compression};
use crate::clock::Source;
use crate::pretrigger::TriggerBy;
use crate::sink::Policy;
use serde_json::{Value, json};
use shotline_backends::Transport;
use shotline_memory::RegionKind;
use shotline_wire::framing::Kind;
use shotline_wire::shot::Packing;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A type of values, as a JSON Schema.
pub trait Described {
    /// Returns the schema of a value.
    fn schema() -> Value;
}

macro_rules! whole_numbers {
    ($($type:ty)+) => { $(
        impl Described for $type {
            fn schema() -> Value {
                json!({ "type": "integer", "minimum": <$type>::MIN, "maximum": <$type>::MAX })
            }
        }
    )+ };
}

whole_numbers!(u8 u16 u32 u64 usize i32);

impl Described for bool {
    fn schema() -> Value {
        json!({ "type": "boolean" })
    }
}

impl Described for f64 {
    fn schema() -> Value {
        json!({ "type": "number" })
    }
}

impl Described for String {
    fn schema() -> Value {
        json!({ "type": "string" })
    }
}

impl Described for PathBuf {
    fn schema() -> Value {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Described for SocketAddr {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^.+:[0-9]{1,5}$" })
    }
}

impl Described for Vec<u16> {
    fn schema() -> Value {
        json!({ "type": "array", "items": u16::schema() })
    }
}

/// One file or several.
impl Described for Vec<PathBuf> {
    fn schema() -> Value {
        json!({ "anyOf": [PathBuf::schema(), { "type": "array", "items": PathBuf::schema() }] })
    }
}

impl Described for Bytes {
    fn schema() -> Value {
        let text = json!({ "type": "string", "pattern": "^[0-9]+\\s*(B|KiB|MiB|GiB|TiB)?$" });
        json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, text] })
    }
}

impl Described for Nanoseconds {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+\\s*(ns|us|ms|s)$" })
    }
}

impl Described for Transport {
    fn schema() -> Value {
        let forms = shotline_backends::rows().into_iter().map(|[form, ..]| match form.split_once(':') {
            Some((name, _)) => format!("{name}:.+"),
            None => form,
        });
        json!({ "type": "string", "pattern": format!("^({})$", forms.collect::<Vec<_>>().join("|")) })
    }
}

impl Described for RegionKind {
    fn schema() -> Value {
        let names = Self::all().map(|kind| kind.name().to_owned()).join("|");
        json!({ "type": "string", "pattern": format!("^({names})([:=].*)?$") })
    }
}

impl Described for Source {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^(system|ptp:.+)$" })
    }
}

impl Described for Kind {
    fn schema() -> Value {
        json!({ "enum": Self::ALL.map(Self::name) })
    }
}

impl Described for Packing {
    fn schema() -> Value {
        json!({ "enum": Self::ALL.map(Self::name) })
    }
}

impl Described for Compression {
    fn schema() -> Value {
        json!({ "enum": Self::ALL.map(Self::name) })
    }
}

impl Described for Policy {
    fn schema() -> Value {
        json!({ "enum": ["drop-newest", "drop-oldest", "block"] })
    }
}

impl Described for TriggerBy {
    fn schema() -> Value {
        json!({ "enum": ["flag", "signal", "both"] })
    }
}

impl Described for Align {
    fn schema() -> Value {
        json!({ "enum": ["number", "stamp"] })
    }
}
