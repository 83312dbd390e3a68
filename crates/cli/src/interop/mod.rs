//! `shotline interop`: the other side of programs of rdma-core and perftest, to try this endpoint against their drivers
//! and adapters.

mod managed;
pub mod perftest;
mod pingpong;
pub mod rping;
pub mod side;
pub mod talk;

pub use managed::address;

use crate::target::{Size, bind, mtu, seconds};
use crate::{Result, output, signals};
use serde::Serialize;
use shotline_memory::Usage;
use shotline_verbs::api::{Mtu, QpType};
use side::Side;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Programs whose other side this is.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Without a host it waits for the other program, with one it goes there: as those programs have it. Both sides must be
told the same sizes and counts.

Examples:
  shotline interop pingpong --bind 10.0.0.1 --qp rc        ibv_rc_pingpong -g 1 10.0.0.1
  shotline interop pingpong --bind 10.0.0.1 --qp ud --size 1024 10.0.0.2
  shotline interop rping --bind 10.0.0.1                   rping -c -a 10.0.0.1 -C 10 -V
  shotline interop perftest write --bind 10.0.0.1          ib_write_bw -x 1 -F 10.0.0.1
  shotline interop perftest read --bind 10.0.0.1 10.0.0.2  ib_read_bw -x 1 -F
  shotline interop perftest send --rdma-cm --bind 10.0.0.1 10.0.0.2   ib_send_bw -R -F")]
pub enum Command {
    /// ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong (rdma-core)
    Pingpong(Common),
    /// ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw (perftest 5.70 or newer)
    Perftest {
        /// What goes from the client to the server
        #[arg(value_enum)]
        verb: Verb,
        /// Go there by the connection manager, as `ib_write_bw -R` (perftest 4.5) has it; `shotline target --rdma-cm
        /// perftest` is who waits
        #[arg(long, requires = "host")]
        rdma_cm: bool,
        #[command(flatten)]
        common: Common,
    },
    /// rping (librdmacm): reads and writes over a connection that connection managers make
    Rping(Common),
}

/// Arguments of all of them.
#[derive(clap::Args)]
pub struct Common {
    /// Where the other program waits; none: this one waits
    pub host: Option<String>,
    /// Local address of the traffic: the ICRC covers it
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind)]
    pub bind: SocketAddr,
    /// Port at which the two sides find each other [default: 18515; rping 7174]
    #[arg(long)]
    pub port: Option<u16>,
    /// Transport service
    #[arg(long, value_name = "TYPE", default_value = "rc")]
    pub qp: Service,
    /// Bytes of an operation [default: pingpong 4096, perftest 65536, atomic 8; UD: the MTU at most]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Size>,
    /// Operations
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub count: u32,
    /// Path MTU [default: pingpong 1024, perftest 4096]
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub mtu: Option<Mtu>,
    /// Operations under way at once (perftest)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// The least time between two operations in microseconds, for a peer that drops datagrams under load
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub pace: u64,
    /// Lose packets that are sent here with this probability, as a bad network would
    #[arg(long, value_name = "P", default_value = "0", value_parser = crate::perf::probability)]
    pub loss: f64,
    /// How long to wait for the other side
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    pub patience: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What perftest measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Messages
    Send,
    /// Bytes into the server's memory
    Write,
    /// Bytes out of the server's memory
    Read,
    /// Fetch and add on the server's memory
    Atomic,
}

/// A transport service, as peers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl From<Service> for QpType {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::Rc,
            Service::Uc => Self::Uc,
            Service::Ud => Self::Ud,
        }
    }
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    program: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verb: Option<Verb>,
    role: &'static str,
    qp: Service,
    size: u32,
    mtu: u32,
    /// Operations that completed here.
    operations: u64,
    seconds: f64,
    /// Of these, from the first operation to the last.
    busy_s: f64,
    /// Packets that this side sent again.
    retransmitted: u64,
    /// What the other side did with this side's memory.
    usage: Remote,
    /// What the other side's atomic operations have added to this side's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<u64>,
    /// What was refused, by cause.
    refused: std::collections::BTreeMap<&'static str, u64>,
}

/// One-sided operations of the other side.
#[derive(Debug, Serialize)]
struct Remote {
    writes: u64,
    bytes_in: u64,
    reads: u64,
    bytes_out: u64,
    atomics: u64,
}

impl From<Usage> for Remote {
    fn from(Usage { writes, bytes_in, reads, bytes_out, atomics }: Usage) -> Self {
        Self { writes, bytes_in, reads, bytes_out, atomics }
    }
}

/// Plays the other side.
pub fn run(command: &Command) -> Result {
    let stop = signals::stop_flag()?;
    match command {
        Command::Pingpong(common) => {
            let size = common.size(4096, Mtu::B1024)?;
            run_one(common, "pingpong", None, size, &stop, |plan, side| pingpong::run(plan, side, common))
        }
        Command::Rping(common) => {
            if common.qp != Service::Rc {
                return Err("rping needs --qp rc".into());
            }
            let size = common.size.map_or(64, |size| size.0);
            let size = u32::try_from(size).ok().filter(|size| (16..=rping::LONGEST).contains(size));
            let size = size.ok_or_else(|| format!("expected 16 to {} bytes", rping::LONGEST))?;
            run_one(common, "rping", None, size, &stop, |plan, side| rping::run(plan, side, common))
        }
        Command::Perftest { verb, rdma_cm, common } => {
            if *rdma_cm && common.qp != Service::Rc {
                return Err("--rdma-cm needs --qp rc".into());
            }
            let size = if *verb == Verb::Atomic { 8 } else { common.size(65536, Mtu::B4096)? };
            if common.qp != Service::Rc && matches!(verb, Verb::Read | Verb::Atomic) {
                return Err("reads and atomic operations need --qp rc".into());
            }
            if common.qp == Service::Ud && *verb == Verb::Write {
                return Err("writes need --qp rc or uc".into());
            }
            run_one(common, "perftest", Some(*verb), size, &stop, |plan, side| {
                perftest::run(plan, side, common, *verb, *rdma_cm)
            })
        }
    }
}

/// What was done with the other side.
struct Played {
    /// Operations that completed here.
    operations: u64,
    mtu: Mtu,
    /// From the first of them to the last.
    took: Duration,
}

/// What both sides agree on.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes of an operation.
    size: u32,
    mtu: Mtu,
    count: u64,
}

impl Common {
    /// Bytes of an operation.
    fn size(&self, default: u32, default_mtu: Mtu) -> Result<u32> {
        let mtu = self.mtu.unwrap_or(default_mtu).bytes();
        let most = if self.qp == Service::Ud { mtu } else { 64 << 20 };
        let size = self.size.map_or(u64::from(default.min(most)), |size| size.0);
        let size = u32::try_from(size).ok().filter(|size| (1..=most).contains(size));
        size.ok_or_else(|| format!("expected 1 to {most} bytes").into())
    }
}

fn run_one(
    common: &Common,
    program: &'static str,
    verb: Option<Verb>,
    size: u32,
    stop: &Arc<AtomicBool>,
    go: impl FnOnce(&Plan, &mut Side) -> Result<Played>,
) -> Result {
    let default = if program == "pingpong" { Mtu::B1024 } else { Mtu::B4096 };
    let plan = Plan { size, mtu: common.mtu.unwrap_or(default), count: common.count.into() };
    let mut side = Side::open(common, size, Arc::clone(stop))?;
    let began = Instant::now();
    let Played { operations, mtu, took } = go(&plan, &mut side)?;
    let tally = side.tally();
    let report = Report {
        program,
        verb,
        role: if common.host.is_some() { "client" } else { "server" },
        qp: common.qp,
        size,
        mtu: mtu.bytes(),
        operations,
        seconds: began.elapsed().as_secs_f64(),
        busy_s: took.as_secs_f64(),
        retransmitted: tally.retransmitted,
        usage: side.usage()?.into(),
        added: (verb == Some(Verb::Atomic)).then(|| side.sum()),
        refused: tally.refused,
    };
    if common.json {
        outln!("{}", serde_json::to_string(&report)?);
    } else {
        let rows = vec![
            ("operations".to_owned(), report.operations.to_string()),
            ("bytes each".into(), report.size.to_string()),
            ("path MTU".into(), report.mtu.to_string()),
            ("seconds, set-up included".into(), format!("{:.2}", report.seconds)),
            ("microseconds each".into(), format!("{:.1}", took.as_secs_f64() * 1e6 / operations.max(1) as f64)),
            ("packets sent again".into(), report.retransmitted.to_string()),
            ("bytes written here".into(), report.usage.bytes_in.to_string()),
            ("bytes read here".into(), report.usage.bytes_out.to_string()),
        ];
        output::print_table(&rows);
    }
    Ok(())
}
