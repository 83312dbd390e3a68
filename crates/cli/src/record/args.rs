//! Arguments of `shotline record`.

use crate::log::LogFormat;
use crate::serve::ServeArgs;
use shotline_acquire::config::Settings;
use std::path::PathBuf;

/// Arguments of `shotline record`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline record --probe [::1]:47910 --out run.h5 --shots 1000
  shotline record --probe 192.168.1.20:47910 --out run.h5 --seconds 10 --rate-hz 5000
  shotline record --config probe.toml --discard --json      keys of the file are the flags' names
  shotline record --probe [::1]:47910 --out run.h5 --roll-size 4GiB --keep 400GiB          the last 400 GiB, endlessly
  shotline record --probe [::1]:47910 --out /mnt/a/run.h5 --out /mnt/b/run.h5 --seconds 60   two drives
  shotline record --probe [::1]:47910 --out run.h5 --pre-trigger 2 --pool 8GiB             2 s before each trigger
  shotline record --listen 10.0.0.2:7148 --framing spead --out run.h5       a sender without set-up, detected from its packets
  shotline record --probe 10.0.0.1:47910 --bind 10.0.0.2:4791 --transport xdp:eth1 --out run.h5   bypassing the kernel
  shotline record --probe 10.0.0.1:47910 --transport ibverbs:mlx5_0 --out run.h5           through an RDMA NIC
  shotline record --probe [::1]:47910 --out nvme:/dev/ng0n1 --shots 1000              a raw drive, by NVMe commands
  shotline record --listen [::1]:47920 --framing digitizer --out run.h5 --keep 64GiB   a digitizer, the last 64 GiB
  shotline record --probe [::1]:47910 --out run.h5 --serve 127.0.0.1:8080            a page to watch the run, metrics
  shotline record --probe [::1]:47910 --out run.h5 --serve 127.0.0.1:8080 --standby   runs that the page starts
  shotline record --probe [::1]:47910 --out run.h5 --log json 2>>run.log             losses and other events, for programs

Ctrl-C ends a run cleanly: everything received is in the file. With --pre-trigger, SIGUSR1 is a trigger.")]
pub struct Args {
    /// Settings from a TOML file; flags take precedence
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(super) json: bool,
    /// No live view
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print a line of JSON on standard error when counts have changed, at most every 100 ms, and at the end. `rows` is
    /// the number of rows visible to readers; with --durable they survive a power failure
    #[arg(long, conflicts_with = "quiet")]
    pub(super) progress: bool,
    /// Print what happens in the run on standard error, a line per event: start, first packet, losses by cause, silent
    /// links, clocks, triggers, the end. Losses of one cause are summed over a second. Replaces the live view. Together
    /// with --progress its lines of JSON are those with the key `event`
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(super) log: Option<LogFormat>,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
    /// Wait for Start on the page, which can change --samples, and again after each run. The first file has the name of
    /// --out, the next ones a number in addition; existing files are not replaced
    #[arg(long, requires = "serve", conflicts_with = "serve_linger_s", help_heading = "Page")]
    pub(super) standby: bool,
}
