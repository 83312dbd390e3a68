//! The `shotline` program.

// These macros panic when standard output or error is closed; `outln!` and `errln!` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

// This module is first because its macros are used by all others.
#[macro_use]
mod output;

mod array;
mod capture;
mod child;
mod completions;
mod demo;
mod doctor;
mod emulate;
mod error;
mod explain;
mod export;
mod framing;
mod images;
mod import;
mod init;
mod initiator;
mod inspect;
mod interop;
mod link;
mod list;
mod log;
mod man;
mod out_file;
mod overview;
mod perf;
mod plan;
mod plot;
mod probe;
mod progress;
mod queued_writer;
mod record;
mod recover;
mod remote;
mod replay;
mod schema;
mod serve;
mod signals;
mod stencil;
mod sweep;
mod target;
mod transfer;
mod transport;
mod trigger;
mod values;
mod verify;
mod view;

use error::Result;
use explain::Explained;

/// Moves every shot of a fast instrument from the wire to memory or storage, and reports every loss
#[derive(Parser)]
#[command(version, propagate_version = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "Without a command, shotline shows what this machine has and what to run next.")]
struct Cli {
    /// Explain why packets or shots are missing, or why a run has ended, and what to do about it
    #[arg(long, value_name = "CAUSE", value_parser = Explained::parser(), hide_possible_values = true)]
    explain: Option<Explained>,
    /// Print the explanation as one JSON object
    #[arg(long, requires = "explain")]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Emulate a probe, record it, read the file back and verify every sample and every loss
    Demo(demo::Args),
    /// Record the shots of a probe
    Record(Box<record::Args>),
    /// Write a settings file for record, in which every setting is explained
    Init(init::Args),
    /// Send the packets of a recording or a packet capture again
    Replay(Box<replay::Args>),
    /// Show the contents of a recording or a packet capture
    Inspect(inspect::Args),
    /// Verify a recording: every sample, every loss, all counters
    Verify(verify::Args),
    /// Repair a recording that was interrupted, and report which shots are complete, which are not, and why
    Recover(recover::Args),
    /// Convert a recording to UFF, zea, Digital RF, SigMF, Zarr, pcapng or HDF5
    Export(Box<export::Args>),
    /// Convert SigMF, Digital RF, Zarr, UFF, zea or NumPy data to a recording, to replay or verify
    Import(import::Args),
    /// Check this machine for problems that would impair a run, and suggest fixes
    Doctor(doctor::Args),
    /// Find and control probes: discover, describe, configure, start, stop, status, trigger
    #[command(subcommand)]
    Probe(Box<probe::Command>),
    /// Measure the time from the trigger command to the complete shot
    Trigger(trigger::Args),
    /// Calculate the load and the limit of every stage before hardware is bought
    Plan(Box<plan::Args>),
    /// Measure frame rate, bandwidth and losses over the trigger frequency; find the highest loss-free rate
    #[command(subcommand)]
    Sweep(sweep::Sweep),
    /// Serve memory that remote hosts read and write by its keys, without an application
    Target(Box<target::Args>),
    /// Read a region of a target into a file or a pipe, or list the regions
    Get(Box<transfer::get::Args>),
    /// Write a file or a pipe into a region of a target
    Put(Box<transfer::put::Args>),
    /// Measure rates, latencies and processor time of reads, writes, messages and atomic operations
    Perf(Box<perf::Args>),
    /// Compute a stencil on a matrix that is larger than the memory of an accelerator node, over several nodes, by RDMA
    Stencil(Box<stencil::Args>),
    /// Write images into the memory of a target, and read them from there into the frame buffers of a display, by RDMA
    Images(Box<images::Args>),
    /// Show the SpaceFibre links of a running target, live: rates, repairs, credit, shares of virtual channels
    Link(link::Args),
    /// Act as the peer of rdma-core's and perftest's programs
    #[command(subcommand)]
    Interop(Box<interop::Command>),
    /// List what this build can do: framings, transports, providers, regions, displays, exports, imports, drop causes, checks
    List(list::Args),
    /// Print the JSON Schema of settings files or plans, with which editors complete and check them
    Schema(schema::Args),
    /// Write a manual page for each command
    Man(man::Args),
    /// Print a script with which bash, zsh or fish completes commands and flags
    Completions(completions::Args),
    /// Emulate an instrument
    #[command(subcommand)]
    Emulate(emulate::Device),
}

fn main() -> ExitCode {
    let Cli { explain, json, command } = Cli::parse();
    let done = match (explain, command) {
        (Some(cause), _) => explain::run(cause, json),
        (None, None) => overview::run(),
        (None, Some(command)) => run(command),
    };
    output::STDERR.flush();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let lines: Vec<_> =
                error.to_string().lines().map(|line| output::escape_controls(line).into_owned()).collect();
            errln!("shotline: {}", lines.join("\n"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Record(args) => record::run(*args),
        Command::Init(args) => init::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Probe(command) => probe::run(*command),
        Command::Trigger(args) => trigger::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Sweep(sweep) => sweep::run(sweep),
        Command::Target(args) => target::run(&args),
        Command::Get(args) => transfer::get::run(&args),
        Command::Put(args) => transfer::put::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Stencil(args) => stencil::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Interop(command) => interop::run(&command),
        Command::List(args) => list::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Emulate(device) => emulate::run(device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the commands without subcommands, each with its full name.
    fn leaves(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let below: Vec<_> = command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        if below.is_empty() {
            return vec![(words.to_owned(), command.clone())];
        }
        below.into_iter().flat_map(|below| leaves(below, &format!("{words} {}", below.get_name()))).collect()
    }

    #[test]
    fn every_command_has_help_with_an_example_and_json() {
        let mut cli = Cli::command();
        cli.build();
        for (words, mut command) in leaves(&cli, "shotline") {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example") && help.contains(&words), "{words}: {help}");
            assert!(help.contains("--json"), "{words}: {help}");
        }
    }

    /// The heading of flattened arguments remains for those that follow in the structure.
    #[test]
    fn json_has_no_heading_of_other_arguments() {
        let mut cli = Cli::command();
        cli.build();
        for (words, command) in leaves(&cli, "shotline") {
            let json = command.get_arguments().find(|argument| argument.get_id() == "json");
            let heading = json.and_then(clap::Arg::get_help_heading);
            assert!(matches!(heading, None | Some("Output")), "{words}: {heading:?}");
        }
    }

    /// Help that is written by hand can miss a new member of a registry.
    #[test]
    fn flag_help_names_every_registry_member() {
        use shotline_wire::framing::Kind;
        let transports = |sends: bool| {
            let rows = shotline_backends::rows().into_iter().filter(move |row| !sends || row[2] == "yes");
            rows.map(|[form, ..]| form.split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        let names = |kinds: &mut dyn Iterator<Item = Kind>| kinds.map(|kind| kind.name().to_owned()).collect();
        let set_up: Vec<String> = names(&mut Kind::with_set_up());
        let regions = shotline_memory::RegionKind::all().map(|kind| kind.name().to_owned());
        let flags = [
            ("shotline record", "framing", names(&mut Kind::ALL.into_iter())),
            ("shotline record", "transport", transports(false)),
            ("shotline emulate probe", "transport", transports(true)),
            ("shotline demo", "framing", set_up.clone()),
            ("shotline probe configure", "framing", set_up),
            ("shotline target", "region", regions.into()),
        ];
        let mut cli = Cli::command();
        cli.build();
        let commands = leaves(&cli, "shotline");
        for (words, flag, members) in flags {
            let (_, command) = commands.iter().find(|(found, _)| found == words).expect(words);
            let flag = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).expect(flag);
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let named: Vec<_> = help.split(|letter: char| !letter.is_alphanumeric()).collect();
            for member in members {
                assert!(named.contains(&member.as_str()), "{words} {flag}: no {member} in: {help}");
            }
        }
    }
}
