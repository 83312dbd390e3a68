//! `shotline trigger`: measures the time from the trigger command to the complete shot.

mod page;
mod row;
pub mod stats;

use crate::child::Probe;
use crate::output::columns;
use crate::serve::PageArgs;
use crate::values::address;
use crate::{Result, framing, signals};
use row::{Column, Row, name, step_columns, time_columns};
use shotline_acquire::cpu::pin;
use shotline_acquire::trigger::{Settings, Wait, measure};
use shotline_dashboard::BoardInfo;
use shotline_wire::framing::Kind;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Arguments of `shotline trigger`.
#[derive(clap::Args)]
#[command(after_help = "\
Each trigger is sent once. A lost trigger, or one whose shot is lost, is counted and excluded from the times.

Examples:
  shotline trigger                                              an emulated probe, 125 to 4000 samples
  shotline trigger --samples 125 --wait poll --cpu 1 --probe-cpu 0
  shotline trigger --probe 192.168.1.20:47910 --framing ud --json | jq '{samples, complete_us}'
  shotline trigger --count 100000 --serve localhost:8080        a page to watch it")]
pub struct Args {
    /// Set-up address of a probe [default: an emulated one in a child process]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    probe: Option<SocketAddr>,
    /// Samples per channel and shot
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "125,250,500,1000,2000,4000")]
    samples: Vec<u32>,
    /// Framings: ud, counted, udp
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ud,udp", value_parser = framing::with_set_up)]
    framing: Vec<Kind>,
    /// Wait method of the receiver and an emulated probe: poll (uses one processor each) or sleep
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', default_value = "poll,sleep", value_parser = wait)]
    wait: Vec<Wait>,
    /// Number of measured triggers for each setting
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
    /// Number of links that must send a shot for each trigger
    #[arg(long, value_name = "N", default_value_t = 1)]
    links: u8,
    /// Local address for the shots [default: source address of the route to the probe, any port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,
    /// Override another receiver that controls the probe
    #[arg(long)]
    take_over: bool,
    /// Processor of the receiver; a dedicated one reduces the variation of the times
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Processor of the emulated probe
    #[arg(long, value_name = "N", conflicts_with = "probe")]
    probe_cpu: Option<u32>,
    /// Print one JSON object for each setting
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
}

fn wait(how: &str) -> std::result::Result<Wait, String> {
    match how {
        "poll" => Ok(Wait::Poll),
        "sleep" => Ok(Wait::Sleep),
        _ => Err(format!("expected poll or sleep, found {how}")),
    }
}

/// Measures every setting.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    let page = args.page.board(args.info(), Vec::new(), &stop)?;
    let all = args.wait.len() * args.framing.len() * args.samples.len();
    let mut rows = Vec::new();
    let probe = |wait: &Wait| match args.probe {
        Some(probe) => Ok((None, probe)),
        None => Probe::start(&child_arguments(args, *wait)).map(|(child, probe)| (Some(child), probe)),
    };
    let probes = args.wait.iter().map(probe).collect::<Result<Vec<_>>>()?;
    // Pinned only now, because the probes would inherit it.
    args.cpu.map_or(Ok(()), pin)?;
    for (wait, (_, probe)) in args.wait.iter().zip(&probes) {
        for framing in &args.framing {
            for samples in &args.samples {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let words = format!("{samples} samples, {framing}, {}: {} triggers", name(*wait), args.count);
                if !args.json && std::io::stderr().is_terminal() {
                    errln!("{words}");
                }
                if let Some(board) = page.board() {
                    board.publish(page::status(&rows, Some(words), all));
                }
                let settings = Settings {
                    probe: *probe,
                    take_over: args.take_over,
                    framing: *framing,
                    links: args.links,
                    samples: *samples,
                    wait: *wait,
                    count: args.count,
                    bind: args.bind,
                };
                let measured = measure(&settings, &stop, crate::record::open)?;
                let row = Row::of(&settings, &measured, page.board().is_some());
                if args.json {
                    outln!("{}", serde_json::to_string(&row)?);
                }
                row.warn_of_losses();
                rows.push(row);
            }
        }
    }
    if !args.json {
        print(&rows);
    }
    page.end(|| page::status(&rows, None, all), &stop);
    match rows.iter().find(|row| row.complete == 0 && !stop.load(Ordering::Relaxed)) {
        Some(row) => Err(format!("received no complete shot of {} samples", row.samples).into()),
        None => Ok(()),
    }
}

impl Args {
    /// Returns what the page says about the command.
    fn info(&self) -> BoardInfo {
        let probe = self.probe.map_or("an emulated probe".into(), |probe| format!("the probe at {probe}"));
        let settings = vec![("triggers".into(), self.count.to_string()), ("links".into(), self.links.to_string())];
        BoardInfo {
            command: "trigger".into(),
            title: format!("times from the trigger to the complete shot, of {probe}"),
            settings,
            stopping: "Ends the measurement: what was measured is reported.",
            ..BoardInfo::default()
        }
    }
}

fn child_arguments(args: &Args, wait: Wait) -> Vec<String> {
    let max_samples = args.samples.iter().max().copied().unwrap_or(1);
    let mut words = vec!["--samples".into(), max_samples.to_string(), "--links".into(), args.links.to_string()];
    if wait == Wait::Poll {
        words.push("--busy-poll".into());
    }
    if let Some(cpu) = args.probe_cpu {
        words.extend(["--cpu".into(), cpu.to_string()]);
    }
    words
}

/// Prints a table, its cells to the right.
fn print_table(names: &[Column], rows: &[Row]) {
    let head: Vec<_> = names.iter().map(|(name, _)| format!(">{name}")).collect();
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    let cells = |row| names.iter().map(|(_, cell)| cell(row)).collect();
    let table: Vec<Vec<_>> = rows.iter().map(cells).collect();
    columns(&head, &table);
}

fn print(rows: &[Row]) {
    outln!("From the command to the complete shot with its CRC verified, in us:");
    print_table(&time_columns(), rows);
    outln!("\nTimes of the steps, medians in us. The command's time is its round trip without a shot:");
    print_table(&step_columns(), rows);
    let histograms: Vec<_> = rows.iter().map(|row| (row.names().join(" "), row.histogram.as_slice())).collect();
    if let Some(lines) = stats::draw(&histograms) {
        outln!("\nHistogram of the times to the complete shot, ten bins per decade, heights logarithmic:");
        lines.iter().for_each(|line| outln!("  {line}"));
    }
}
