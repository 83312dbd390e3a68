//! `shotline man`: writes a manual page for each command.

use crate::Result;
use crate::output::{self, print_report};
use clap_mangen::Man;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `shotline man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline man --dir man/man1 && man -M man shotline-record
  shotline man --dir ~/.local/share/man/man1                 where man finds them
  shotline man --dir man/man1 --json | jq -r '.pages[]'")]
pub struct Args {
    /// Folder for the pages, which is created; pages of the same names are replaced
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object: the names of the pages
    #[arg(long)]
    json: bool,
}

/// The pages that were written.
#[derive(Serialize)]
struct Pages {
    dir: PathBuf,
    pages: Vec<String>,
}

impl output::Report for Pages {
    fn print(&self) -> Result {
        outln!(
            "Wrote {} pages to {1}. The first is shown by: man -l {1}/shotline.1",
            self.pages.len(),
            self.dir.display()
        );
        Ok(())
    }
}

/// Writes the pages of a command and of those below it.
pub fn run(args: &Args, command: clap::Command) -> Result {
    let cannot = |path: &Path, error| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all(&args.dir).map_err(|error| cannot(&args.dir, error))?;
    let mut names = Vec::new();
    for (name, text) in pages(command)? {
        let path = args.dir.join(&name);
        fs::write(&path, text).map_err(|error| cannot(&path, error))?;
        names.push(name);
    }
    print_report(args.json, &Pages { dir: args.dir.clone(), pages: names })
}

/// Returns the pages with their file names.
fn pages(command: clap::Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(command, &mut pages)?;
    Ok(pages)
}

fn add_pages(mut command: clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result {
    let below: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned().collect();
    // The options have their own section.
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let examples = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    // An empty date would be omitted, and the fields after it would move.
    let man = Man::new(command.override_usage(usage))
        .date(" ")
        .source(concat!("Shotline ", env!("CARGO_PKG_VERSION")))
        .manual("Shotline");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if !below.is_empty() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(examples) = examples {
        text.extend(verbatim(&examples).bytes());
    }
    pages.push((man.get_filename(), text));
    below.into_iter().try_for_each(|below| add_pages(below, pages))
}

/// Returns the text that follows the help of a command as sections in roff, with its lines as they are.
fn verbatim(text: &str) -> String {
    let mut roff = String::new();
    let mut is_open = false;
    for line in text.lines() {
        let title = match line {
            "Example:" | "Examples:" => Some("EXAMPLES"),
            _ if !is_open => Some("NOTES"),
            _ => None,
        };
        if let Some(title) = title {
            roff.push_str(if is_open { ".fi\n" } else { "" });
            let _ = writeln!(roff, ".SH {title}\n.nf");
            is_open = true;
        }
        if !line.ends_with("xample:") && !line.ends_with("xamples:") {
            // A period or an apostrophe at the beginning of a line would be a request.
            let escaped = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
            let _ = writeln!(roff, "\\&{escaped}");
        }
    }
    roff + if is_open { ".fi\n" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = pages(crate::Cli::command()).unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(found, _)| found == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("no {name}")).1.clone()).unwrap()
        };
        let mut command = crate::Cli::command();
        command.build();
        let mut all = vec![command];
        let mut count = 0;
        while let Some(command) = all.pop() {
            let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
            let text = page(&format!("{name}.1"));
            assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH OPTIONS"), "{name}: {text}");
            let below = command.get_subcommands().filter(|below| below.get_name() != "help").cloned();
            let below: Vec<_> = below.collect();
            let examples = text.split_once(".SH EXAMPLES\n.nf\n").map_or("", |(_, examples)| examples);
            assert!(!below.is_empty() || examples.contains(&name.replace('-', " ")), "{name}: {text}");
            all.extend(below);
            count += 1;
        }
        assert_eq!(count, pages.len());
    }

    #[test]
    fn lines_of_examples_stay_as_they_are() {
        let roff = verbatim("Words.\n\nExample:\n  a \\'b' -- c\n.dot");
        let expected =
            ".SH NOTES\n.nf\n\\&Words.\n\\&\n.fi\n.SH EXAMPLES\n.nf\n\\&  a \\e\\(aqb\\(aq \\-\\- c\n\\&.dot\n.fi\n";
        assert_eq!(roff, expected);
    }
}
