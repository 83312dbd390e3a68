//! Configuration files, overridden by flags.

use super::invalid::InvalidSetting;
use super::settings::{Key, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong type; the message has line and column.
    #[error("{}: {message}", path.display())]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Message of the parser.
        message: String,
    },
    /// The file has a value that no run can have, alone or together with another.
    #[error("{}:{line}: {invalid}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
        /// Reason.
        invalid: InvalidSetting,
    },
    /// A flag has such a value.
    #[error(transparent)]
    Flag(#[from] InvalidSetting),
}

/// Settings that were read from a TOML file.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    settings: Settings,
    /// Line of each key, from 1.
    lines: BTreeMap<String, usize>,
}

impl File {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If it is not TOML, or has an unknown key or a value of the wrong type.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let parse_error =
            |error: toml::de::Error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() };
        let settings = toml::from_str(text).map_err(parse_error)?;
        let table = DeTable::parse(text).map_err(parse_error)?;
        let line = |offset: usize| text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let lines = table.get_ref().keys().map(|key| (key.get_ref().to_string(), line(key.span().start))).collect();
        Ok(Self { path: path.to_owned(), settings, lines })
    }

    /// Returns these flags over the settings of the file, checked.
    ///
    /// # Errors
    /// If the settings together are invalid: with the line of the file, unless a flag is the cause.
    pub fn with_flags(&self, flags: Settings) -> Result<Settings, ConfigError> {
        let settings = flags.clone().over_file(self.settings.clone());
        settings.check().map_err(|invalid| match self.line(invalid.key).filter(|_| !flags.has(invalid.key)) {
            Some(line) => ConfigError::Line { path: self.path.clone(), line, invalid },
            None => invalid.into(),
        })?;
        Ok(settings)
    }

    fn line(&self, key: Key) -> Option<usize> {
        self.lines.get(key.name()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<File, ConfigError> {
        File::parse(Path::new("run.toml"), text)
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_line() {
        let error = file("samples = 1\nsampels = 2").unwrap_err().to_string();
        assert!(error.starts_with("run.toml") && error.contains("line 2") && error.contains("sampels"), "{error}");
        let error = file("samples = 1\ncompress = \"gzip\"").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("none, lz4 or zstd, found gzip"), "{error}");
        let error = file("samples = 1\ntransport = \"tcp\"").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("xdp:INTERFACE"), "{error}");
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_line() {
        let read = file("# a run\ndiscard = true\nprobe = \"[::1]:9\"\n\nshots = 0\n").unwrap();
        let error = read.with_flags(Settings::default()).unwrap_err().to_string();
        assert_eq!(error, "run.toml:5: expected --shots from 1 to 281474976710656, found 0");
        let fixed = Settings { shots: Some(5), ..Settings::default() };
        assert_eq!(read.with_flags(fixed).unwrap().shots, Some(5));
    }

    #[test]
    fn an_invalid_combination_is_reported_with_its_line() {
        let error = |text: &str, flags| file(text).unwrap().with_flags(flags).unwrap_err().to_string();
        let q_key = error("discard = true\nprobe = \"[::1]:9\"\nq_key = 17", Settings::default());
        assert!(q_key.starts_with("run.toml:3: --q-key is for a sender"), "{q_key}");
        let of_both = "probe = \"[::1]:9\"\ndurable = true";
        let durable = error(of_both, Settings { out: Some(vec!["run.pcapng".into()]), ..Settings::default() });
        assert!(
            durable.starts_with("run.toml:2: a packet capture"),
            "the error names the key of the file, not the flag: {durable}"
        );
    }

    #[test]
    fn an_invalid_flag_is_reported_without_a_line() {
        let error = |text: &str, flags| file(text).unwrap().with_flags(flags).unwrap_err().to_string();
        let probe = "discard = true\nprobe = \"[::1]:9\"\nshots = 5";
        let shots = error(probe, Settings { shots: Some(0), ..Settings::default() });
        assert!(shots.starts_with("expected --shots from 1"), "the key is in the file, too: {shots}");
        let window = error(probe, Settings { align_window: Some(super::super::Nanoseconds(1)), ..Settings::default() });
        assert!(window.starts_with("--align-window is for stamps"), "{window}");
        let lz4 = "out = \"run.h5\"\nprobe = \"[::1]:9\"\ncompress = \"lz4\"";
        let level = error(lz4, Settings { compress_level: Some(5), ..Settings::default() });
        assert!(level.starts_with("--compress-level is for zstd"), "the file has another codec: {level}");
    }

    #[test]
    fn a_missing_setting_is_reported_without_a_line() {
        let error = file("discard = true").unwrap().with_flags(Settings::default()).unwrap_err().to_string();
        assert!(error.starts_with("specify the probe's set-up address with --probe"), "{error}");
    }
}
