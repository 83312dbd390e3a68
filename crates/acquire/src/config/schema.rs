//! JSON Schema of settings files, derived from the list of settings and the types of their values.

use super::settings::Settings;
use super::template::Help;
use serde_json::{Map, Value, json};

/// Returns the schema of settings files: the keys with their types, ranges and explanations. Combinations that no run
/// can have are not in it.
pub fn schema() -> Value {
    let ranges = Settings::default().whole_ranges();
    let property = |help: Help| {
        let mut schema = help.key.schema();
        schema["description"] = help.text.into();
        let example: Result<toml::Table, _> = toml::from_str(&format!("value = {}", help.key.example()));
        let example = example.ok().and_then(|table| serde_json::to_value(table).ok());
        schema["examples"] = json!([example.map_or(Value::Null, |mut table| table["value"].take())]);
        if let Some((_, _, max)) = ranges.iter().find(|(key, ..)| *key == help.key)
            && schema["type"] == "integer"
        {
            schema["minimum"] = 1.into();
            schema["maximum"] = (*max).into();
        }
        (help.key.name().to_owned(), schema)
    };
    let properties: Map<_, _> = Help::all().into_iter().map(property).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of a run of Shotline",
        "description": "The file of `shotline record --config FILE`. Each key is the name of a flag, with _ for -.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_the_schema_are_those_of_the_parser() {
        let mut seen = 0;
        for (key, property) in schema()["properties"].as_object().unwrap() {
            let Some(choices) = property["enum"].as_array() else { continue };
            let parse = |value: &str| toml::from_str::<Settings>(&format!("{key} = \"{value}\""));
            for choice in choices {
                assert!(parse(choice.as_str().unwrap()).is_ok(), "{key} = {choice}");
            }
            let error = parse("?").unwrap_err().message().to_owned();
            for choice in choices {
                assert!(error.contains(choice.as_str().unwrap()), "{choice}: {error}");
            }
            // Names of variants are in backticks, after the wrong one.
            let variants = error.matches('`').count() / 2;
            assert!(variants == 0 || variants == choices.len() + 1, "{key}: {error}");
            seen += 1;
        }
        assert_eq!(seen, 6);
    }

    #[test]
    fn ranges_of_the_schema_are_those_of_the_check() {
        let schema = schema();
        let shots = &schema["properties"]["shots"];
        assert_eq!((&shots["minimum"], &shots["maximum"]), (&1.into(), &shotline_wire::shot::MAX_SHOTS.into()));
        assert_eq!(schema["properties"]["links"]["maximum"], shotline_store::shot::MAX_LINKS);
    }
}
