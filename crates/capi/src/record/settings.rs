//! Settings as text.

use crate::status::Failure;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use shotline_library::{Error, ErrorKind};

/// Parses settings: a JSON object, or the text of a settings file (TOML).
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    if text.trim_start().starts_with('{') {
        return parse_json(text);
    }
    toml::from_str(text).map_err(|error| invalid(error.to_string()))
}

/// Parses settings that are a JSON object.
pub(super) fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| invalid(wrong_setting::<T>(text).unwrap_or_else(|| error.to_string())))
}

/// Returns the error of the first setting that is wrong by itself, with its name, which the parser's message lacks.
fn wrong_setting<T: DeserializeOwned>(text: &str) -> Option<String> {
    let all: Map<String, Value> = serde_json::from_str(text).ok()?;
    all.into_iter().find_map(|(key, value)| {
        let alone = Value::from_iter([(key.clone(), value)]);
        serde_json::from_value::<T>(alone).err().map(|error| format!("setting `{key}`: {error}"))
    })
}

fn invalid(words: String) -> Failure {
    // Replaces flags of the program by names of settings.
    Error::new(ErrorKind::Invalid, words).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_acquire::config::Settings;

    #[test]
    fn json_and_toml_are_the_same_settings() {
        let json: Settings = parse(r#" {"probe": "[::1]:9", "samples": 3, "out": "a.h5", "pool": "8MiB"}"#).unwrap();
        let toml: Settings = parse("probe = '[::1]:9'\nsamples = 3\nout = 'a.h5'\npool = '8MiB'").unwrap();
        assert_eq!(json, toml);
        assert_eq!(json.samples, Some(3));
    }

    #[test]
    fn the_message_names_the_setting_that_is_wrong() {
        for (text, words) in [
            (r#"{"samples": "many"}"#, "setting `samples`: invalid type"),
            (r#"{"sampels": 3}"#, "setting `sampels`: unknown field"),
            (r#"{"samples": 3, "transport": "pigeon"}"#, "setting `transport`: "),
            (r#"{"samples": "#, "EOF while parsing"),
            ("samples = 'many'", "samples = 'many'"),
            ("sampels = 3", "unknown field `sampels`"),
            ("", ""),
        ] {
            let parsed = parse::<Settings>(text);
            if words.is_empty() {
                assert!(parsed.is_ok());
            } else {
                let error = format!("{:?}", parsed.unwrap_err());
                assert!(error.contains(words) && error.contains("INVALID_ARGUMENT"), "{error}");
            }
        }
    }
}
