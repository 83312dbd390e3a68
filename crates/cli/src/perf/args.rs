//! Arguments of `shotline perf`, and what is derived from them: measurements, the target and its address.

use super::paper;
use super::point::{DEFAULT_LATENCIES, LatencyKind, Metric, Point, Verb};
use crate::child::address_arguments;
use crate::initiator::Access;
use crate::interop::Service;
use crate::serve::PageArgs;
use crate::target::Program;
use crate::values::{Size, bind, control_address, mtu, probability, seconds, udp_options};
use crate::{Result, interop};
use shotline_memory::RegionKind;
use shotline_transport::lossy::Lossy;
use shotline_transport::udp::UdpIo;
use shotline_verbs::api::{Flag, Mtu};
use shotline_verbs::cm::ControlAddress;
use shotline_verbs::cm::message::MAX_SERVICE_LEVEL;
use shotline_verbs::connect;
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::soft::SoftEndpoint;
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Arguments of `shotline perf`.
#[derive(clap::Args)]
#[command(after_help = "\
Without --to, starts a target in a child process, on loopback, and ends it. Rates count acknowledged payload bytes.
Times are those of groups, from the post of the first operation to the completion of the last. Latencies are those of
single operations; for messages and pings, half of the round trip, as in perftest and UCX.

Examples:
  shotline perf write --size 64K,1M --group 1,32           rate of single operations and of groups
  shotline perf read --bidirectional --seconds 10 --iterations 10
  shotline perf latency --operation write,ping --size 8
  shotline perf read --transport shm --memory emulated:path2   over the path of an emulated accelerator
  shotline perf write --transport spacefibre:vc=70%,vc=30% --queue-pairs 2 --service-level 0,1
  shotline perf --matrix                                   tables I to IV of Gibson et al., next to its figures
  shotline perf write --to 192.168.1.5:47920 --token-file t --region images --json | jq .gbps
  shotline perf write --iterations 600 --serve localhost:8080    a page to watch it
  shotline perf --rdma-cm rping --to 192.168.1.5           rping -s -a 192.168.1.5
  shotline perf send --size 64K --rdma-cm perftest --to 192.168.1.5    ib_send_bw -R -s 65536")]
pub struct Args {
    /// What to measure
    #[arg(required_unless_present_any = ["matrix", "rdma_cm"])]
    pub verb: Option<Verb>,
    /// Bytes of an operation [default: 4K,64K,1M; latency: 8]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    pub size: Vec<Size>,
    /// Operations per group: posted with one doorbell, only the last is signalled
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub group: Vec<u16>,
    /// Groups in flight on each queue pair
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Number of queue pairs to the target
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub queue_pairs: u16,
    /// Service levels of the queue pairs, in turn: over SpaceFibre, their virtual channels; with RDMA devices, the SL of
    /// their packets
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0",
        value_parser = clap::value_parser!(u8).range(..=i64::from(MAX_SERVICE_LEVEL)))]
    pub service_level: Vec<u8>,
    /// Transport service of the queue pairs. Unreliable operations are counted when sent; the JSON object also has the
    /// bytes that arrived
    #[arg(long, value_name = "KIND", default_value = "rc")]
    pub qp: Service,
    /// Length of an iteration in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// Iterations of each measurement: average and worst are reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub iterations: u16,
    /// Have the target do the same at the same time (write, read)
    #[arg(long)]
    pub bidirectional: bool,
    /// Length of the memory that the operations cycle through on both sides [default: of all operations in flight]
    #[arg(long, value_name = "BYTES")]
    pub span: Option<Size>,
    /// Sleep on a file descriptor until a completion arrives, instead of polling
    #[arg(long)]
    pub event: bool,
    /// Measure only the processor time of posting and completing
    #[arg(long, conflicts_with_all = ["bidirectional", "event"])]
    pub post_only: bool,
    /// Operations of `latency`: write, read, atomic (until the completion), send, ping (half the round trip) [default:
    /// write, read, send and ping, as far as the target supports them]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub operation: Vec<LatencyKind>,
    /// Measure the cases of tables I to IV of Gibson et al. (`plan --paper 2`): 4 KiB to 256 KiB, single and in groups,
    /// write and read
    #[arg(long, conflicts_with_all = ["verb", "size", "group", "bidirectional", "post_only"])]
    pub matrix: bool,
    /// Measure as long as the paper: ten iterations of ten seconds each
    #[arg(long, requires = "matrix", conflicts_with_all = ["seconds", "iterations"])]
    pub paper: bool,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; spacefibre also 8192 and 16384 [default: the largest]
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    mtu: Option<Mtu>,
    /// Socket receive buffer to request from the kernel, on both sides (soft) [default: 64M]
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<Size>,
    /// Drop incoming packets with this probability, as a lossy network does (soft) [default: 0]
    #[arg(long, value_name = "P", value_parser = probability)]
    loss: Option<f64>,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Processor of the target in the child process
    #[arg(long, value_name = "N", conflicts_with = "to")]
    pub target_cpu: Option<u32>,
    /// Print one JSON object for each measurement
    #[arg(long)]
    pub json: bool,
    #[arg(long, value_name = "HOW", default_value = "soft", help_heading = "Target",
        help = format!("How to reach the target: {}", ProviderKind::choices()))]
    pub transport: ProviderKind,
    /// Address of a running target
    #[arg(long, value_name = "HOST:PORT", help_heading = "Target")]
    pub to: Option<String>,
    /// Another program that waits at --to by the RDMA connection manager, not a shotline target: rping (rping -s),
    /// perftest (ib_write_bw -R and similar; write, read, send or atomic, with the same --size and --count)
    #[arg(long, value_name = "PROGRAM", requires = "to", help_heading = "Target",
        conflicts_with_all = ["matrix", "bidirectional", "event", "post_only", "token", "token_file", "region", "receive_buffer", "serve"])]
    pub rdma_cm: Option<Program>,
    /// Operations to measure [default: 1000]
    #[arg(long, value_name = "N", requires = "rdma_cm", help_heading = "Target", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    #[command(flatten, next_help_heading = "Target")]
    pub access: Access,
    /// Region of the target [default: the first with the required rights]
    #[arg(long, value_name = "NAME", requires = "to", help_heading = "Target")]
    pub region: Option<String>,
    /// Local address for the traffic (soft) [default: the route's own, any port]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind, help_heading = "Target")]
    pub bind: Option<SocketAddr>,
    #[arg(long, value_name = "KIND", conflicts_with = "to", help_heading = "Target",
        help = format!("Memory of the target in the child process: {} [default: heap]", RegionKind::forms()))]
    pub memory: Option<RegionKind>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Maximum length of an operation, in bytes.
const MAX_OPERATION_BYTES: u64 = 1 << 30;

impl Args {
    /// Refuses flags that the provider does not use.
    pub fn check(&self) -> Result {
        self.check_service_level()?;
        self.check_memory()?;
        let given = [
            (Flag::Bind, self.bind.is_some()),
            (Flag::Mtu, self.mtu.is_some()),
            (Flag::ReceiveBuffer, self.receive_buffer.is_some()),
            (Flag::Loss, self.loss.is_some()),
            (Flag::RdmaCm, self.rdma_cm.is_some()),
        ];
        self.transport.check(given.into_iter().filter_map(|(flag, given)| given.then_some(flag)))?;
        Ok(self.transport.check_mtu(self.mtu)?)
    }

    /// Checks that the provider has the service levels.
    fn check_service_level(&self) -> Result {
        let (count, what) = match &self.transport {
            ProviderKind::Soft | ProviderKind::Shm => (1, "service levels of this transport"),
            ProviderKind::Ibverbs(_) => (16, "service levels of an RDMA device"),
            ProviderKind::SpaceFibre(selector) => (selector.parameters().channels, "virtual channels of --transport"),
        };
        match self.service_level.iter().find(|level| **level >= count) {
            Some(level) => {
                Err(format!("expected --service-level below {count}, the number of {what}, found {level}").into())
            }
            None => Ok(()),
        }
    }

    /// Checks that the memory of the child target has the operations.
    fn check_memory(&self) -> Result {
        let needs_atomics = self.verb == Some(Verb::Atomic) || self.operation.contains(&LatencyKind::Atomic);
        match self.memory.as_ref().filter(|kind| needs_atomics && !kind.has_atomics()) {
            Some(kind) => Err(format!("--memory {kind} has no atomic operations: use write or read").into()),
            None => Ok(()),
        }
    }

    /// Returns the path MTU to request.
    pub fn mtu(&self) -> Mtu {
        self.mtu.or(self.transport.description().mtu).unwrap_or(Mtu::B4096)
    }

    /// Returns all measurements, in order.
    pub fn plan(&self) -> Result<Vec<Point>> {
        let Self { seconds, iterations, .. } = *self;
        if self.matrix {
            if self.qp != Service::Rc {
                return Err("--matrix measures reliable connections: use --qp rc".into());
            }
            let (seconds, iterations) = if self.paper { (Duration::from_secs(10), 10) } else { (seconds, iterations) };
            return Ok(paper::points(seconds, iterations));
        }
        let verb = self.verb.ok_or("expected write, read, send, atomic or latency, or --matrix")?;
        let has_small_default = matches!(verb, Verb::Latency | Verb::Atomic) || self.post_only;
        let sizes = match (self.size.as_slice(), has_small_default) {
            ([], true) => vec![Size(8)],
            ([], false) => vec![Size(4 << 10), Size(64 << 10), Size(1 << 20)],
            (sizes, _) => sizes.to_vec(),
        };
        if self.bidirectional && !matches!(verb, Verb::Write | Verb::Read) {
            return Err("--bidirectional is for write and read: omit it for other operations".into());
        }
        self.check_service(verb)?;
        if self.span == Some(Size(0)) {
            return Err("expected --span above 0, found 0".into());
        }
        let mut points = Vec::new();
        for size in sizes {
            if self.qp == Service::Ud && size.0 > self.mtu().bytes().into() {
                return Err(format!("a datagram has at most {} bytes (--mtu), not {size}", self.mtu().bytes()).into());
            }
            let bytes = u32::try_from(size.0).ok().filter(|size| u64::from(*size) <= MAX_OPERATION_BYTES);
            let size = bytes.ok_or_else(|| format!("expected sizes of up to 1 GiB, found {size}"))?;
            if verb == Verb::Atomic && size != 8 {
                return Err("atomic operations have 8 bytes: use --size 8".into());
            }
            if verb == Verb::Latency {
                let kinds = if self.operation.is_empty() { &DEFAULT_LATENCIES[..] } else { &self.operation };
                let kinds = kinds.iter().filter(|kind| size == 8 || **kind != LatencyKind::Atomic);
                let point =
                    |kind: &LatencyKind| Point { metric: Metric::Latency(*kind), size, group: 1, seconds, iterations };
                points.extend(kinds.map(point));
                continue;
            }
            let metric = if self.post_only { Metric::Overhead(verb) } else { Metric::Rate(verb) };
            points.extend(self.group.iter().map(|group| Point { metric, size, group: *group, seconds, iterations }));
        }
        Ok(points)
    }

    /// Checks that the kind of queue pairs supports the verb.
    fn check_service(&self, verb: Verb) -> Result {
        match self.qp {
            Service::Rc => Ok(()),
            _ if self.bidirectional => {
                Err("--bidirectional is for reliable connections: use --qp rc, or omit it".into())
            }
            Service::Uc if matches!(verb, Verb::Write | Verb::Send) => Ok(()),
            Service::Ud if verb == Verb::Send && self.queue_pairs == 1 => Ok(()),
            Service::Uc => {
                Err("unreliable connections support only write and send: use --qp rc for other operations".into())
            }
            Service::Ud => {
                Err("unreliable datagrams support only send, from one queue pair: use --qp rc for the rest".into())
            }
        }
    }

    /// Converts the arguments to a command of `interop`.
    pub fn interop_command(&self, program: Program) -> Result<interop::Command> {
        let to = self.to.as_deref().unwrap_or_default();
        let (host, port) = match to.rsplit_once(':').filter(|_| to.parse::<IpAddr>().is_err()) {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| format!("expected a port, found {port}"))?)),
            None => (to, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let size = match self.size.as_slice() {
            [] => None,
            [size] => Some(*size),
            _ => return Err("expected one --size: the same as on the other side".into()),
        };
        let bind = match self.bind {
            Some(bind) => bind,
            None => SocketAddr::new(connect::route(SocketAddr::new(interop::address(host)?, ROCE_PORT))?, ROCE_PORT),
        };
        let common = interop::Common {
            host: Some(host.to_owned()),
            bind,
            port,
            qp: Service::Rc,
            size,
            count: self.count.unwrap_or(1000),
            mtu: Some(self.mtu()),
            depth: self.depth.max(1),
            pace: 0,
            loss: self.loss.unwrap_or(0.0),
            timeout: Duration::from_secs(20),
            json: self.json,
        };
        let verb = match (program, self.verb) {
            (Program::Rping, None) => return Ok(interop::Command::Rping(common)),
            (Program::Rping, Some(_)) => return Err("--rdma-cm rping takes no measurement: omit it".into()),
            (Program::Perftest, Some(Verb::Write)) => interop::Verb::Write,
            (Program::Perftest, Some(Verb::Read)) => interop::Verb::Read,
            (Program::Perftest, Some(Verb::Send)) => interop::Verb::Send,
            (Program::Perftest, Some(Verb::Atomic)) => interop::Verb::Atomic,
            (Program::Perftest, _) => return Err("expected write, read, send or atomic".into()),
        };
        Ok(interop::Command::Perftest { verb, rdma_cm: true, common })
    }

    /// Returns the length in bytes of the memory of a measurement on either side, in whole groups.
    pub fn span(&self, point: &Point) -> u64 {
        if let Metric::Latency(_) = point.metric {
            return 2 * u64::from(point.size.max(8)); // there and back
        }
        let group = u64::from(point.size.max(8)) * u64::from(point.group);
        let in_flight = group * u64::from(self.depth);
        let groups = self.span.map_or(0, |span| span.0 / group) * group;
        groups.max(in_flight)
    }

    /// Returns the arguments of the target in the child process.
    pub fn target_arguments(&self, plan: &[Point]) -> Result<Vec<String>> {
        let span = plan.iter().map(|point| self.span(point)).max().unwrap_or(4096).max(4096);
        let kind = self.memory.as_ref().unwrap_or(&RegionKind::Heap);
        let rights = if kind.has_atomics() { "atomic" } else { "rw" };
        let region = format!("perf={span},memory={kind},rights={rights}");
        let mut words = vec!["--region".into(), region, "--messages".into()];
        words.extend(["--queue-pairs".into(), self.queue_pairs.to_string()]);
        words.extend(["--transport".into(), self.transport.to_string()]);
        if let Some(mtu) = self.mtu {
            words.extend(["--mtu".into(), mtu.bytes().to_string()]);
        }
        if let Some(bytes) = self.receive_buffer {
            words.extend(["--receive-buffer".into(), bytes.0.to_string()]);
        }
        words.extend(address_arguments(&self.transport, self.bind.is_some_and(|bind| bind.is_ipv6()))?);
        if let Some(cpu) = self.target_cpu {
            words.extend(["--cpu".into(), cpu.to_string()]);
        }
        Ok(words)
    }

    /// Returns the control address of a running target.
    pub fn target(&self) -> Result<ControlAddress> {
        Ok(control_address(self.to.as_deref().unwrap_or_default())?)
    }

    /// Returns the local address from which the target is reached.
    pub fn local_address(&self, to: &ControlAddress) -> Result<SocketAddr> {
        Ok(connect::local_address(self.bind, to)?)
    }

    /// Opens an endpoint on the address from which the target is reached.
    pub fn soft(&self, to: &ControlAddress) -> Result<SoftEndpoint<Lossy<UdpIo>>> {
        let bind = self.local_address(to)?;
        Ok(SoftEndpoint::lossy_udp(bind, udp_options(self.receive_buffer), self.loss.unwrap_or(0.0), 1)?)
    }
}
