//! `shotline completions`: prints a script with which a shell completes commands and flags.

use crate::{Result, output};
use serde_json::json;

/// Arguments of `shotline completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(shotline completions bash)                                                       for this shell
  shotline completions bash > ~/.local/share/bash-completion/completions/shotline
  shotline completions zsh > ~/.zfunc/_shotline                 with fpath=(~/.zfunc $fpath) before compinit in ~/.zshrc
  shotline completions fish > ~/.config/fish/completions/shotline.fish
  shotline completions bash --json | jq -r .script")]
pub struct Args {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
    /// Print one JSON object: the shell and the script
    #[arg(long)]
    json: bool,
}

/// A shell.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }

    fn generator(self) -> clap_complete::Shell {
        match self {
            Self::Bash => clap_complete::Shell::Bash,
            Self::Zsh => clap_complete::Shell::Zsh,
            Self::Fish => clap_complete::Shell::Fish,
        }
    }
}

/// Prints the script for a program.
pub fn run(args: &Args, mut command: clap::Command) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell.generator(), &mut command, "shotline", &mut script);
    let script = String::from_utf8(script)?;
    match args.json {
        true => outln!("{}", json!({ "shell": args.shell.name(), "script": script })),
        false => output::to_stdout(format_args!("{script}")),
    }
    Ok(())
}
