//! Settings files that contain every setting: those that are chosen, and all others as comments.

use super::settings::{Key, Settings};
use clap::Args as _;
use std::fmt::Write as _;

/// Maximum length of a line of a comment.
const LINE: usize = 110;

/// Help text of a setting, as of its flag.
#[derive(Clone, Debug)]
pub struct Help {
    /// The setting.
    pub key: Key,
    /// Heading of its group.
    pub heading: String,
    /// What it does, its range and its default.
    pub text: String,
}

impl Help {
    /// Returns the help of all settings, in the order of the list.
    pub fn all() -> Vec<Self> {
        let flags = Settings::augment_args(clap::Command::new("settings"));
        let help = |key: Key| {
            let flag = flags.get_arguments().find(|flag| flag.get_id() == key.name());
            Self {
                key,
                heading: flag.and_then(clap::Arg::get_help_heading).unwrap_or("Other").to_owned(),
                text: flag.and_then(clap::Arg::get_help).map(ToString::to_string).unwrap_or_default(),
            }
        };
        Key::ALL.map(help).into()
    }
}

/// Returns a settings file in which the `chosen` settings have values, written in TOML, and all others are comments with
/// an example. Lines of `#key = value` become settings without the `#`; lines of `# ` explain.
pub fn template(chosen: &[(Key, String)]) -> String {
    let help = Help::all();
    let value = |key: Key| chosen.iter().find(|(found, _)| *found == key).map(|(_, value)| value);
    let mut text = String::new();
    for help in help.iter().filter(|help| value(help.key).is_some()) {
        explain(&mut text, &help.text);
        let _ = writeln!(text, "{} = {}\n", help.key.name(), value(help.key).map_or("", |value| value));
    }
    let mut headings: Vec<&str> = Vec::new();
    for help in &help {
        if !headings.contains(&help.heading.as_str()) {
            headings.push(&help.heading);
        }
    }
    for heading in headings {
        let of_group = help.iter().filter(|help| help.heading == heading && value(help.key).is_none());
        let group: Vec<_> = of_group.collect();
        if !group.is_empty() {
            let _ = writeln!(text, "# ---- {heading} ----\n");
        }
        for help in group {
            explain(&mut text, &help.text);
            let _ = writeln!(text, "#{} = {}\n", help.key.name(), help.key.example());
        }
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Returns a value that a user typed for a setting as TOML.
///
/// # Errors
/// If the setting does not have such values.
pub fn toml_value(key: Key, text: &str) -> Result<String, String> {
    let quoted = toml::Value::String(text.to_owned()).to_string();
    let parse = |value: &str| toml::from_str::<Settings>(&format!("{} = {value}", key.name()));
    // As a number, if the setting is one: its example is.
    let value = if key.example().starts_with('"') { &quoted } else { text };
    let settings = parse(value).map_err(|error| error.message().trim_end().to_owned())?;
    settings.check_ranges().map_err(|invalid| invalid.to_string())?;
    Ok(value.to_owned())
}

/// Adds a text as lines of a comment.
fn explain(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > LINE {
            let _ = writeln!(text, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_backends::{Backend as _, Dpdk};

    /// Senders with their required settings. Each setting is valid with one of them.
    const SENDERS: [&str; 4] = [
        "probe = \"[::1]:47910\"",
        "listen = \"[::1]:7148\"\nframing = \"digitizer\"",
        "listen = \"[::1]:7148\"\nqueue_pair = 1\nq_key = 1",
        "probe = \"[::1]:47910\"\ntransport = \"dpdk:net_memif0\"",
    ];

    /// Returns what a setting needs in addition to a sender.
    fn companions(key: Key) -> &'static str {
        match key {
            Key::discard => "",
            Key::compress_level => "out = \"run.h5\"\ncompress = \"zstd\"",
            Key::post_trigger | Key::trigger => "out = \"run.h5\"\npre_trigger = 1.0",
            Key::align_window => "out = \"run.h5\"\nalign = \"stamp\"",
            Key::sequential => "out = \"run.h5\"\npolicy = \"block\"",
            _ => "out = \"run.h5\"",
        }
    }

    #[test]
    fn every_example_is_a_valid_setting() {
        for key in Key::ALL {
            let line = format!("{} = {}", key.name(), key.example());
            let alone: Settings = toml::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(alone.has(key), "{line}");
            let run = |sender: &str| {
                let needed: Settings = toml::from_str(&format!("{sender}\n{}", companions(key))).unwrap();
                alone.clone().over(needed).check().map(drop)
            };
            let needs_dpdk = [Key::mtu, Key::peer_mac, Key::eal].contains(&key);
            if !(needs_dpdk && Dpdk::ABOUT.missing.is_some()) {
                let checked = SENDERS.map(run);
                assert!(checked.iter().any(Result::is_ok), "{line}: {checked:?}");
            }
        }
    }

    #[test]
    fn template_has_every_setting_once() {
        let chosen = [(Key::probe, "\"[::1]:47910\"".to_owned()), (Key::out, "\"a.h5\"".to_owned())];
        let text = template(&chosen);
        for key in Key::ALL {
            let is_chosen = chosen.iter().any(|(chosen, _)| *chosen == key);
            let begin = format!("{}{} = ", if is_chosen { "" } else { "#" }, key.name());
            assert_eq!(text.lines().filter(|line| line.starts_with(&begin)).count(), 1, "{begin}\n{text}");
        }
        let settings: Settings = toml::from_str(&text).unwrap();
        assert_eq!(settings, toml::from_str("probe = \"[::1]:47910\"\nout = \"a.h5\"").unwrap());
    }

    #[test]
    fn comments_of_a_template_become_settings() {
        let text = template(&[]);
        let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
        let all: String = text.lines().filter(is_setting).map(|line| format!("{}\n", &line[1..])).collect();
        let settings: Settings = toml::from_str(&all).unwrap();
        assert!(Key::ALL.iter().all(|key| settings.has(*key)), "{all}");
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
        assert!(Help::all().iter().all(|help| !help.text.is_empty() && help.heading != "Other"));
    }
}
