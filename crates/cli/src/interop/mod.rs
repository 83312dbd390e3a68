//! `shotline interop`: the peer of the programs of rdma-core and perftest, to test this endpoint against their
//! drivers and adapters.

mod cm;
mod common;
pub mod local_endpoint;
pub mod oob;
pub mod perftest;
mod pingpong;
pub mod rping;

pub use cm::address;
pub use common::{Common, Service, Verb};

use crate::output::{Rows, print_report};
use crate::{Result, signals};
use common::{Plan, RunSummary};
use local_endpoint::LocalEndpoint;
use serde::Serialize;
use shotline_memory::RegistrationCounters;
use shotline_verbs::api::Mtu;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const EXAMPLES: &str = "\
Without a host, listens until the other program connects; with a host, connects to it, as those programs do. Use the
same sizes and counts on both sides.

Examples:
  shotline interop pingpong --bind 10.0.0.1 --qp rc        ibv_rc_pingpong -g 1 10.0.0.1
  shotline interop pingpong --bind 10.0.0.1 --qp ud --size 1024 10.0.0.2
  shotline interop rping --bind 10.0.0.1                   rping -c -a 10.0.0.1 -C 10 -V
  shotline interop perftest write --bind 10.0.0.1          ib_write_bw -x 1 -F 10.0.0.1
  shotline interop perftest read --bind 10.0.0.1 10.0.0.2  ib_read_bw -x 1 -F
  shotline interop perftest send --rdma-cm --bind 10.0.0.1 10.0.0.2   ib_send_bw -R -F";

/// Programs whose peer this is.
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong (rdma-core)
    #[command(after_help = EXAMPLES)]
    Pingpong(Common),
    /// ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw (perftest 5.70 or newer)
    #[command(after_help = EXAMPLES)]
    Perftest {
        /// Operation that the client requests of the server
        #[arg(value_enum)]
        verb: Verb,
        /// Connect by the RDMA connection manager, as `ib_write_bw -R` (perftest 4.5) does; to wait for a connection,
        /// use `shotline target --rdma-cm perftest`
        #[arg(long, requires = "host")]
        rdma_cm: bool,
        #[command(flatten)]
        common: Common,
    },
    /// rping (librdmacm): reads and writes over a connection of the RDMA connection manager
    #[command(after_help = EXAMPLES)]
    Rping(Common),
}

/// The JSON object of a run.
#[derive(Debug, Serialize)]
struct Report {
    program: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verb: Option<Verb>,
    role: &'static str,
    qp: Service,
    size: u32,
    mtu: u32,
    /// Number of operations that completed on this side.
    operations: u64,
    seconds: f64,
    /// Time from the first operation to the last, in seconds.
    transfer_s: f64,
    /// Number of packets that this side retransmitted.
    retransmitted: u64,
    /// What the other side did with this side's memory.
    usage: RemoteAccess,
    /// Sum that the other side's atomic operations added to this side's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_sum: Option<u64>,
    /// Number of dropped packets, by cause.
    drops: std::collections::BTreeMap<&'static str, u64>,
}

impl Rows for Report {
    fn rows(&self) -> Vec<(String, String)> {
        vec![
            ("operations".to_owned(), self.operations.to_string()),
            ("bytes each".into(), self.size.to_string()),
            ("path MTU".into(), self.mtu.to_string()),
            ("seconds, set-up included".into(), format!("{:.2}", self.seconds)),
            ("microseconds each".into(), format!("{:.1}", self.transfer_s * 1e6 / self.operations.max(1) as f64)),
            ("packets retransmitted".into(), self.retransmitted.to_string()),
            ("bytes written here".into(), self.usage.bytes_in.to_string()),
            ("bytes read here".into(), self.usage.bytes_out.to_string()),
        ]
    }
}

/// Counters of the other side's one-sided operations.
#[derive(Debug, Serialize)]
struct RemoteAccess {
    writes: u64,
    bytes_in: u64,
    reads: u64,
    bytes_out: u64,
    atomics: u64,
}

impl From<RegistrationCounters> for RemoteAccess {
    fn from(RegistrationCounters { writes, bytes_in, reads, bytes_out, atomics }: RegistrationCounters) -> Self {
        Self { writes, bytes_in, reads, bytes_out, atomics }
    }
}

/// Runs the other side of a program.
pub fn run(command: &Command) -> Result {
    let stop = signals::stop_flag()?;
    match command {
        Command::Pingpong(common) => {
            let size = common.size(4096, Mtu::B1024)?;
            run_one(common, "pingpong", None, size, &stop, |plan, local| pingpong::run(plan, local, common))
        }
        Command::Rping(common) => {
            if common.qp != Service::Rc {
                return Err("rping needs a reliable connection: use --qp rc".into());
            }
            let size = common.size.map_or(64, |size| size.0);
            let size = u32::try_from(size).ok().filter(|size| (16..=rping::MAX_TEXT_BYTES).contains(size));
            let size = size.ok_or_else(|| format!("expected --size of 16 to {} bytes", rping::MAX_TEXT_BYTES))?;
            run_one(common, "rping", None, size, &stop, |plan, local| rping::run(plan, local, common))
        }
        Command::Perftest { verb, rdma_cm, common } => {
            if *rdma_cm && common.qp != Service::Rc {
                return Err("--rdma-cm needs a reliable connection: use --qp rc, or omit --rdma-cm".into());
            }
            let size = if *verb == Verb::Atomic { 8 } else { common.size(65536, Mtu::B4096)? };
            if common.qp != Service::Rc && matches!(verb, Verb::Read | Verb::Atomic) {
                return Err("reads and atomic operations need a reliable connection: use --qp rc".into());
            }
            if common.qp == Service::Ud && *verb == Verb::Write {
                return Err("writes need a connection: use --qp rc or --qp uc".into());
            }
            run_one(common, "perftest", Some(*verb), size, &stop, |plan, local| {
                perftest::run(plan, local, common, *verb, *rdma_cm)
            })
        }
    }
}

fn run_one(
    common: &Common,
    program: &'static str,
    verb: Option<Verb>,
    size: u32,
    stop: &Arc<AtomicBool>,
    go: impl FnOnce(&Plan, &mut LocalEndpoint) -> Result<RunSummary>,
) -> Result {
    let default = if program == "pingpong" { Mtu::B1024 } else { Mtu::B4096 };
    let plan = Plan { size, mtu: common.mtu.unwrap_or(default), count: common.count.into() };
    let mut local = LocalEndpoint::open(common, size, Arc::clone(stop))?;
    let start = Instant::now();
    let RunSummary { operations, mtu, elapsed } = go(&plan, &mut local)?;
    let counters = local.counters();
    let report = Report {
        program,
        verb,
        role: if common.host.is_some() { "client" } else { "server" },
        qp: common.qp,
        size,
        mtu: mtu.bytes(),
        operations,
        seconds: start.elapsed().as_secs_f64(),
        transfer_s: elapsed.as_secs_f64(),
        retransmitted: counters.retransmitted,
        usage: local.usage()?.into(),
        atomic_sum: (verb == Some(Verb::Atomic)).then(|| local.sum()),
        drops: counters.drops,
    };
    print_report(common.json, &report)
}
