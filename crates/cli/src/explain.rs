//! `shotline --explain CAUSE`: what a drop cause or the cause of a run's end means, and what to do about it.

use crate::Result;
use crate::output::print_report;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use shotline_acquire::run::Cause;
use shotline_wire::shot::{DropCause, Explanation};

/// A cause that can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// Why packets or shots are missing.
    Drop(DropCause),
    /// Why a run has ended.
    End(Cause),
}

impl Explained {
    /// Returns all causes.
    fn all() -> impl Iterator<Item = Self> {
        DropCause::ALL.into_iter().map(Self::Drop).chain(Cause::ALL.into_iter().map(Self::End))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Drop(cause) => cause.name(),
            Self::End(cause) => cause.name(),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Drop(cause) => cause.meaning(),
            Self::End(cause) => cause.meaning(),
        }
    }

    fn explanation(self) -> Explanation {
        match self {
            Self::Drop(cause) => cause.explanation(),
            Self::End(cause) => cause.explanation(),
        }
    }

    /// Returns the parser of the flag, which lists the names and suggests the nearest one.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        let names = Self::all().map(|cause| PossibleValue::new(cause.name()));
        PossibleValuesParser::new(names.collect::<Vec<_>>())
            .try_map(|name| Self::all().find(|cause| cause.name() == name).ok_or("an unknown cause"))
    }
}

/// The JSON object of a cause.
#[derive(Serialize)]
struct Report {
    cause: &'static str,
    /// What is explained: `drop` or `end`.
    kind: &'static str,
    meaning: &'static str,
    counted: &'static str,
    reason: &'static str,
    remedies: Vec<Remedy>,
}

#[derive(Serialize)]
struct Remedy {
    purpose: &'static str,
    command: &'static str,
}

impl crate::output::Report for Report {
    fn print(&self) -> Result {
        let kind = if self.kind == "drop" { "why packets or shots are missing" } else { "why a run has ended" };
        outln!("{} ({kind})\n", self.cause);
        for (title, text) in [("meaning", self.meaning), ("counted in", self.counted), ("reasons", self.reason)] {
            for (index, line) in wrapped(text).iter().enumerate() {
                outln!("  {:10}  {line}", if index == 0 { title } else { "" });
            }
        }
        if self.remedies.is_empty() {
            outln!("  {:10}  nothing", "what to do");
        } else {
            outln!("  {:10}  with the addresses and names of your set-up:", "what to do");
        }
        for Remedy { purpose, command } in &self.remedies {
            outln!("\n    # {purpose}\n    {command}");
        }
        Ok(())
    }
}

/// Divides a text into lines of at most 96 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 96 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Prints the explanation of a cause.
pub fn run(cause: Explained, json: bool) -> Result {
    let Explanation { counted, reason, remedies } = cause.explanation();
    let kind = match cause {
        Explained::Drop(_) => "drop",
        Explained::End(_) => "end",
    };
    let remedies = remedies.iter().map(|(purpose, command)| Remedy { purpose, command }).collect();
    let report = Report { cause: cause.name(), kind, meaning: cause.meaning(), counted, reason, remedies };
    print_report(json, &report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::Parser as _;

    /// Returns the words of a command line in which only single quotes occur.
    fn words(command: &str) -> Vec<String> {
        let parts = command.split('\'').enumerate();
        parts
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    #[test]
    fn every_remedy_is_a_command_that_parses() {
        let mut seen = 0;
        for cause in Explained::all() {
            for (purpose, command) in cause.explanation().remedies {
                assert!(!purpose.is_empty() && !command.is_empty(), "{}", cause.name());
                if command.starts_with("shotline ") {
                    let parsed = Cli::try_parse_from(words(command));
                    assert!(
                        parsed.is_ok(),
                        "{command}: {}",
                        parsed.err().map(|error| error.to_string()).unwrap_or_default()
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 20);
    }

    #[test]
    fn every_cause_has_one_name() {
        let mut names: Vec<_> = Explained::all().map(|cause| cause.name().replace('-', "_")).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (count, DropCause::ALL.len() + Cause::ALL.len()));
    }
}
