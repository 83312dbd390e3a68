//! JSON Schema of plan files. A test compares its keys with those of the parser.

use crate::formula::bus::{PCIE_GENERATIONS, PCIE_LANES};
use crate::formula::link::Framing;
use crate::plan::{Kind, Per, Policy};
use crate::read::MAX_UNITS;
use crate::units::{Bytes, Hertz, Quantity, Rate, SampleRate, Seconds};
use serde_json::{Map, Value, json};

/// Keys of a table with their schemas.
type Keys = Vec<(&'static str, Value)>;

/// Returns the schema of a quantity: a number and a unit.
fn quantity<Q: Quantity>(description: &str) -> Value {
    let units: Vec<_> = Q::UNITS.iter().map(|(unit, _)| *unit).collect();
    let number = r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]-?[0-9]+)?";
    json!({
        "type": "string",
        "pattern": format!(r"^\s*{number}\s*({})\s*$", units.join("|")),
        "description": description,
        "examples": [Q::EXAMPLE],
    })
}

/// Returns the schema of one quantity or several.
fn quantities<Q: Quantity>(description: &str) -> Value {
    let one = quantity::<Q>(description);
    json!({ "anyOf": [one, { "type": "array", "items": one }], "description": description })
}

fn whole(range: std::ops::RangeInclusive<u32>, description: &str) -> Value {
    json!({ "type": "integer", "minimum": range.start(), "maximum": range.end(), "description": description })
}

fn number(min: f64, max: f64, description: &str) -> Value {
    json!({ "type": "number", "minimum": min, "maximum": max, "description": description })
}

fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn choice<T>(names: &[(&str, T)], description: &str) -> Value {
    json!({ "enum": names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "description": description })
}

fn named(names: &[&str], description: &str) -> Value {
    json!({ "enum": names, "description": description })
}

/// Returns the schema of a table.
fn table(keys: Keys, required: &[&str], description: &str) -> Value {
    let properties: Map<_, _> = keys.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Returns the keys that `[source]` and `[transfer]` share.
fn common_of_sources() -> Keys {
    vec![
        ("links", whole(1..=MAX_UNITS, "Links of each instrument [default: 1]")),
        (
            "phase",
            named(
                &["synchronised", "random"],
                "Instruments are triggered at the same times, or each with its own offset [default: synchronised; random if spacing is random]",
            ),
        ),
        ("spacing", named(&["even", "random"], "Intervals between triggers [default: even]")),
        ("buffer", quantity::<Bytes>("Capacity of each link before its first stage [default: two shots]")),
    ]
}

fn source() -> Value {
    let mut keys = vec![
        ("probes", whole(1..=MAX_UNITS, "Instruments [default: 1]")),
        ("channels", whole(1..=u16::MAX.into(), "Channels of each link")),
        ("bits", whole(1..=16, "Bits of a sample")),
        ("packing", named(&["packed12", "int16_le"], "Packing of samples [default: packed12 up to 12 bits]")),
        ("sample_rate", quantity::<SampleRate>("Sample rate of each channel")),
        ("samples", whole(1..=u32::MAX, "Samples per channel and shot")),
        (
            "dead_time",
            quantity::<Seconds>("Time from one shot's last sample to the next one's first [default: 1.85 us]"),
        ),
        ("trigger", quantity::<Hertz>("Trigger frequency [default: none, free running at the highest rate]")),
        ("sweep", quantities::<Hertz>("Trigger frequencies to evaluate [default: none]")),
    ];
    keys.extend(common_of_sources());
    table(keys, &["channels", "bits", "sample_rate", "samples"], "Instruments that take shots")
}

fn transfer() -> Value {
    let mut keys = vec![
        ("sources", whole(1..=MAX_UNITS, "Senders [default: 1]")),
        ("bytes", quantity::<Bytes>("Length of one transfer")),
        ("packet", quantity::<Bytes>("Length of all packets but the last [default: 4096 B]")),
        ("rate", quantity::<Rate>("Payload rate of each link; not together with every [default: as fast as possible]")),
        ("every", quantity::<Seconds>("Time from the start of a transfer to that of the next; not together with rate")),
        ("lengths", quantities::<Bytes>("Packet lengths to evaluate [default: none]")),
        ("sweep", quantities::<Hertz>("Trigger frequencies to evaluate [default: none]")),
    ];
    keys.extend(common_of_sources());
    table(keys, &["bytes"], "Plain transfers instead of shots")
}

fn receiver() -> Value {
    let keys = vec![
        ("count", whole(1..=MAX_UNITS, "Receivers; instrument i sends to receiver i modulo this [default: 1]")),
        (
            "pool",
            quantity::<Bytes>("Memory for shot buffers of each receiver [default: the size that the plan calculates]"),
        ),
        (
            "window",
            whole(
                0..=1 << 16,
                "Shots of a stream under assembly in addition to the newest [default: 4; 0 for transfers]",
            ),
        ),
        ("in_flight", whole(1..=1 << 16, "Writes in flight [default: 16; 1 for transfers]")),
        ("preempted", quantity::<Seconds>("Longest time for which the receive thread is preempted [default: 20 ms]")),
        (
            "consumer_stall",
            quantity::<Seconds>(
                "Longest stall of the stages after assembly, which consume the shots [default: 100 ms; 0 for transfers]",
            ),
        ),
    ];
    table(keys, &[], "Receivers")
}

/// Returns the keys of a kind of stage, and the required ones.
fn keys_of(kind: &str) -> (Keys, &'static [&'static str]) {
    let framings: Vec<_> = Framing::NAMES.iter().map(|(name, _)| *name).collect();
    let link = || {
        vec![
            ("rate", quantity::<Rate>("Line rate")),
            ("framing", named(&framings, "Framing of packets [default: ud]")),
            ("ip", named(&["v4", "v6"], "Version of IP [default: v4]")),
        ]
    };
    match kind {
        "link" => (link(), &["rate"]),
        "switch" => {
            let ports = whole(1..=MAX_UNITS, "Outputs that share one buffer [default: all]");
            ([link(), vec![("ports", ports)]].concat(), &["rate"])
        }
        "spacefibre" => (
            vec![
                ("lanes", whole(1..=16, "Number of lanes")),
                ("lane_rate", quantity::<Rate>("Signalling rate of one lane")),
                ("both_ways", boolean("Data flow in both directions at once [default: false]")),
            ],
            &["lanes", "lane_rate"],
        ),
        "dma" => {
            let mut width = whole(8..=8192, "Bits of a word");
            width["multipleOf"] = 8.into();
            (vec![("width", width), ("clock", quantity::<Hertz>("Words per second"))], &["width", "clock"])
        }
        "pcie" => {
            let generations = u32::from(*PCIE_GENERATIONS.start())..=u32::from(*PCIE_GENERATIONS.end());
            let keys = vec![
                ("generation", whole(generations, "Generation of PCI Express")),
                ("lanes", json!({ "enum": PCIE_LANES, "description": "Number of lanes" })),
                (
                    "max_payload",
                    quantity::<Bytes>(
                        "Longest payload of a write, a power of two from 64 B to 4096 B [default: 256 B]",
                    ),
                ),
            ];
            (keys, &["generation", "lanes"])
        }
        "receive" => {
            let packet_time = quantity::<Seconds>("Time per packet of a receive thread on sockets");
            (vec![("packet_time", packet_time)], &["packet_time"])
        }
        "memory" => {
            let keys = vec![
                ("rate", quantity::<Rate>("Rate of the memory; or clock, width and banks")),
                ("clock", quantity::<Hertz>("Words per second of each bank")),
                ("width", whole(1..=65536, "Bits of a word")),
                ("banks", whole(1..=1024, "Banks that work at the same time [default: 1]")),
                ("passes", number(1.0, 16.0, "Number of times that each byte crosses it [default: 2]")),
            ];
            (keys, &[])
        }
        "accelerator" => {
            (vec![("rate", quantity::<Rate>("Input rate of any processing of complete shots"))], &["rate"])
        }
        _ => (vec![("rate", quantity::<Rate>("Write rate of one drive"))], &["rate"]),
    }
}

/// Returns the schema of a kind of stage.
fn stage(kind: &str) -> Value {
    let (mut keys, required) = keys_of(kind);
    keys.extend([
        ("kind", json!({ "const": kind, "description": "Kind of the stage" })),
        ("name", json!({ "type": "string", "description": "Name in tables [default: its kind]" })),
        ("count", whole(1..=MAX_UNITS, "Units that share the work [default: 1]")),
        ("per", choice(Per::NAMES, "What each has count units [default: receiver; link for cables]")),
        ("measured", quantity::<Rate>("Measured rate; the lower of it and the formula applies [default: none]")),
        ("buffer", quantity::<Bytes>("Bytes that may wait before one unit")),
        ("policy", choice(Policy::NAMES, "Reaction to a full buffer [default: drop-newest]")),
        ("stall", quantity::<Seconds>("Duration of stalls, together with stall_every [default: no stalls]")),
        ("stall_every", quantity::<Seconds>("Period of stalls")),
        (
            "spread",
            number(
                0.0,
                3.0,
                "For stages of shots: standard deviation of the logarithm of the service time [default: 0]",
            ),
        ),
    ]);
    let required: Vec<_> = [&["kind"], required].concat();
    let mut schema = table(keys, &required, &format!("Stage of kind {kind}"));
    if kind == "memory" {
        schema["oneOf"] = json!([{ "required": ["rate"] }, { "required": ["clock", "width"] }]);
    }
    schema
}

/// Returns the schema of plan files.
pub fn schema() -> Value {
    let one = json!({ "$ref": "#/$defs/stage" });
    let keys = vec![
        ("title", json!({ "type": "string", "description": "Title of the plan" })),
        ("paper", whole(0..=4, "Show the published figures of this paper")),
        (
            "pipelined",
            boolean("A stage processes the next shot while the following one processes the previous [default: true]"),
        ),
        ("source", source()),
        ("transfer", transfer()),
        ("receiver", receiver()),
        (
            "stage",
            json!({
                "description": "Stages that all data pass, in order",
                "anyOf": [{ "type": "array", "items": one, "minItems": 1 }, one],
            }),
        ),
    ];
    let mut schema = table(keys, &["stage"], "The file of `shotline plan FILE`.");
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Plan of Shotline".into();
    schema["$defs"] = json!({ "stage": { "oneOf": Kind::NAMES.map(stage) } });
    schema["oneOf"] = json!([{ "required": ["source"] }, { "required": ["transfer"] }]);
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PlanError;
    use crate::plan::Plan;
    use std::collections::BTreeSet;

    const SOURCE: &str = "[source]\nchannels = 96\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n";
    const TRANSFER: &str = "[transfer]\nbytes = \"64 MB\"\n";
    const STAGE: &str = "[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\n";

    /// Returns the keys that the parser knows for a table of which `text` has an unknown key.
    fn known(text: &str) -> BTreeSet<String> {
        match Plan::parse(text, &[]) {
            Err(PlanError::Unknown { key, known, .. }) if key == "nope" => {
                known.split(", ").map(str::to_owned).collect()
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    fn keys(schema: &Value) -> BTreeSet<String> {
        schema["properties"].as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn schema_has_the_keys_of_the_parser() {
        let nope = "nope = 1\n";
        assert_eq!(keys(&schema()), known(&format!("{nope}{SOURCE}{STAGE}")));
        assert_eq!(keys(&source()), known(&format!("{SOURCE}{nope}{STAGE}")));
        assert_eq!(keys(&transfer()), known(&format!("{TRANSFER}{nope}{STAGE}")));
        assert_eq!(keys(&receiver()), known(&format!("{SOURCE}[receiver]\n{nope}{STAGE}")));
    }

    #[test]
    fn schema_has_the_keys_of_every_kind_of_stage() {
        for kind in Kind::NAMES {
            let stage_of = |required: &[&str]| {
                let value = |key: &&str| match *key {
                    "generation" | "lanes" => format!("{key} = 4\n"),
                    "width" => format!("{key} = 64\n"),
                    key => {
                        let (keys, _) = keys_of(kind);
                        let (_, schema) = keys.into_iter().find(|(found, _)| *found == key).unwrap();
                        format!("{key} = {}\n", schema["examples"][0])
                    }
                };
                let lines: String = required.iter().map(value).collect();
                known(&format!("{SOURCE}[[stage]]\nkind = \"{kind}\"\n{lines}nope = 1\n"))
            };
            let (_, required) = keys_of(kind);
            let known = match kind {
                "memory" => &stage_of(&["rate"]) | &stage_of(&["clock", "width"]),
                _ => stage_of(required),
            };
            assert_eq!(keys(&stage(kind)), known, "{kind}");
        }
    }
}
