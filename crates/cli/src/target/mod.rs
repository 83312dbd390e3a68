//! `shotline target`: serves memory that others read and write, without an application.

mod cm_initiator;
mod cm_listener;
mod host;
mod link_host;
mod neighbours;
mod page;
mod region;
mod report;
mod traffic;

pub use cm_listener::Program;

use crate::serve::{BoardPage, PageArgs};
use crate::values::{Size, bind, mtu, seconds, udp_options};
use crate::{Result, output, signals};
use cm_listener::CmListener;
use host::{EndpointHost, Listener, TargetHost};
use link_host::{LinkHost, LinkedEndpoint};
use neighbours::Neighbours;
use region::RegionSpec;
use report::{Report, Reporter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use shotline_accelerate::Accelerator;
use shotline_accelerate::control::{CONTROL_BYTES, CONTROL_REGION};
use shotline_dashboard::BoardInfo;
use shotline_memory::{Access, Addressing, RegionKind, check_capacity};
use shotline_verbs::api::{ControlSocket, Flag, Mtu, Provider, Reach};
use shotline_verbs::cm::message::Name;
use shotline_verbs::cm::{
    Control, ControlAddress, ControlLimits, Endpoint, Export, Exports, MemoryBudget, MemoryLimit, Token,
};
use shotline_verbs::ibverbs::IbverbsEndpoint;
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::soft::SoftEndpoint;
use shotline_verbs::spacefibre::{AnyCarrier, CarrierKind, Connected, SpaceFibreEndpoint};
use shotline_wire::udp::ROCE_PORT;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Default address of control connections.
pub const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 47920);

/// Default local address of the memory's traffic.
const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ROCE_PORT);

/// Default limit of the memory of one initiator, in bytes.
const INITIATOR_MEMORY: u64 = 512 << 20;

/// Arguments of `shotline target`.
#[derive(clap::Args)]
#[command(after_help = "\
Initiators send the token, get their own queue pairs and keys, and read and write the regions. No application runs here,
only the endpoint. Ctrl-C ends it cleanly and prints a report.

Examples:
  shotline target --region images=1G                                    1 GiB that can be read, on loopback
  shotline target --region log=8G,file=/data/log,rights=rw --region counters=4K,rights=atomic
  shotline target --region a=64M,rights=rw --bind 192.168.1.5 --listen 192.168.1.5:47920 --token-file t
  shotline target --region hbm=64M,memory=emulated:path2,rights=rw      an accelerator's memory, emulated
  shotline target --region a=64M,rights=rw --transport shm --listen ./a.sock
  shotline target --region a=64M,rights=rw --transport spacefibre:lanes=4
  shotline target --region hbm=1G,rights=rw --accelerate hbm            a node for shotline stencil
  shotline target --region a=64M,rights=rw --bind 192.168.1.5 --rdma-cm rping,perftest
  shotline perf write --to 127.0.0.1:47920 --token TOKEN                the other side")]
pub struct Args {
    #[arg(long = "region", value_name = "NAME=SIZE,...", required = true,
        help = format!("Region: NAME=SIZE, then optionally ,rights=r|w|rw|atomic [default: r] and ,memory=KIND \
            [default: heap]: {}", RegionKind::forms()))]
    regions: Vec<RegionSpec>,
    #[arg(long, value_name = "HOW", default_value = "soft",
        help = format!("How initiators reach the memory: {}", ProviderKind::choices()))]
    transport: ProviderKind,
    /// Local address of the memory's traffic (soft, spacefibre) [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind)]
    bind: Option<SocketAddr>,
    /// Address for control connections of initiators [default: 127.0.0.1:47920]; shm: the path of a socket
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Token that initiators must send: 32 hexadecimal digits. Other users of this machine can see it in the list of
    /// processes [default: a random one, which is printed]
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<Token>,
    /// File with the token, readable only by its owner; created with a random token if it does not exist
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; spacefibre also 8192 and 16384 [default: the largest]
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    mtu: Option<Mtu>,
    /// Answer invalid requests with a NAK and the error state, as InfiniBand specifies, instead of dropping them
    #[arg(long, conflicts_with = "accept_any_source_port")]
    strict_ib: bool,
    /// Accept an initiator's packets from any UDP source port, and one-sided operations over IPv4 with any
    /// identification: for devices that change the port or do not increment the identification (soft)
    #[arg(long)]
    accept_any_source_port: bool,
    /// Make this target an accelerator node: execute commands on the memory of this region, which initiators write into the
    /// queues of another region, named accelerator
    #[arg(long, value_name = "REGION")]
    accelerate: Option<String>,
    /// Threads of a command (--accelerate) [default: all processors but one]
    #[arg(long, value_name = "N", requires = "accelerate")]
    threads: Option<NonZeroUsize>,
    /// Accept messages (SEND), and take part in measurements
    #[arg(long)]
    messages: bool,
    /// Accept other programs by the RDMA connection manager, which has NO token: any host that reaches --bind has all
    /// rights of the regions. rping (rping -c), perftest (ib_write_bw -R and similar, in the first writable region);
    /// each with :PORT if not its default port
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    rdma_cm: Vec<cm_listener::ProgramPort>,
    /// Maximum number of initiators at once
    #[arg(long, value_name = "N", default_value_t = ControlLimits::default().sessions)]
    initiators: usize,
    /// Maximum number of queue pairs of one initiator
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue_pairs: u32,
    /// Maximum memory of one initiator for queue pairs, messages and streams, not counting the regions
    /// [default: 512M, or --memory if that is less]
    #[arg(long, value_name = "BYTES")]
    initiator_memory: Option<Size>,
    /// Maximum memory of all initiators together
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    memory: Size,
    /// Socket receive buffer to request from the kernel (soft) [default: 64M]
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<Size>,
    /// Never sleep: lowest latency, but occupies a processor
    #[arg(long)]
    poll: bool,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// End after this number of seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Interval of status reports in seconds [default on a terminal: 1]
    #[arg(long, value_name = "S", value_parser = seconds)]
    every: Option<Duration>,
    /// Print JSON objects: one at the end, and with --every one per interval
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
    /// End when standard input ends: for programs that start a target of their own
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Serves until a signal stops it.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    if args.until_stdin_ends {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || signals::stop_at_end_of_stdin(&stop));
    }
    args.cpu.map_or(Ok(()), shotline_acquire::cpu::pin)?;
    args.check()?;
    let shared = args.transport.description().reach == Reach::Machine;
    check_capacity(args.regions.iter().map(|spec| spec.memory(shared))).map_err(|error| {
        format!("the regions: {error}, or keep them in files (file=PATH) or in reserved huge pages (huge)")
    })?;
    let mut regions = args.regions.iter().map(|spec| spec.make(shared)).collect::<Result<Vec<_>>>()?;
    let accelerator = args.accelerator(&mut regions)?;
    let served = Served { regions, accelerator };
    // The endpoint, its ports and the memory are freed at this point, so printing the report may block.
    let (report, page) = match &args.transport {
        ProviderKind::Soft => {
            let bind = args.bind.unwrap_or(BIND);
            if !args.rdma_cm.is_empty() && bind.port() != ROCE_PORT {
                return Err(format!("--rdma-cm needs port {ROCE_PORT}, the only one that other programs use").into());
            }
            let mut endpoint = SoftEndpoint::udp(bind, udp_options(args.receive_buffer))?;
            let listener = match args.rdma_cm.as_slice() {
                [] => None,
                programs => Some(Box::new(CmListener::open(&mut endpoint, programs, args.initiators)?) as Box<_>),
            };
            export(args, endpoint, listener, &served, &stop)
        }
        ProviderKind::Ibverbs(choice) => export(args, IbverbsEndpoint::open(choice)?, None, &served, &stop),
        ProviderKind::Shm => serve_links::<ShmEndpoint>(args, (), &served, &stop),
        ProviderKind::SpaceFibre(selector) => match selector.carrier {
            CarrierKind::Udp => {
                let bind = args.bind.unwrap_or(BIND);
                export(args, SpaceFibreEndpoint::udp(bind, selector)?, None, &served, &stop)
            }
            CarrierKind::Shm => {
                serve_links::<SpaceFibreEndpoint<Connected<AnyCarrier>>>(args, selector.clone(), &served, &stop)
            }
        },
    }?;
    if args.json {
        output::STDOUT.drain();
    } else {
        output::STDERR.flush();
    }
    output::print_report(args.json, &report)?;
    page.end(|| page::status(&report), &stop);
    check_devices(&served.regions)?;
    if report.is_balanced() { Ok(()) } else { Err("the counters do not balance: this is a defect of shotline".into()) }
}

/// What a target serves.
struct Served {
    regions: Vec<Export>,
    accelerator: Option<Arc<Accelerator>>,
}

/// Serves regions over one endpoint for all initiators, including those of another listener.
fn export<P: Endpoint>(
    args: &Args,
    mut provider: P,
    listener: Option<Box<dyn Listener<P>>>,
    served: &Served,
    stop: &Arc<AtomicBool>,
) -> Result<(Report, BoardPage)> {
    let memory = provider.address();
    check_device_memory(&mut provider, &served.regions)?;
    let mut exports = Exports::new(provider);
    (exports.max_queue_pairs, exports.mtu) = (args.queue_pairs, args.mtu.unwrap_or(Mtu::MAX));
    (exports.strict, exports.accept_any_source_port) = (args.strict_ib, args.accept_any_source_port);
    exports.budget = args.memory_budget();
    served.regions.iter().try_for_each(|export| exports.export(export.clone()))?;
    let host = EndpointHost::new(exports, args.messages).with_listener(listener);
    serve(args, &mut host.with_accelerator(served.accelerator.clone()), served, memory, stop)
}

/// Registers each region of device memory once. What provider and device cannot register is reported at the start, not to
/// each initiator.
fn check_device_memory<P: Provider>(provider: &mut P, regions: &[Export]) -> Result {
    let is_unmapped = |export: &&Export| !export.region.is_mapped();
    for Export { name, region, bytes, rights } in regions.iter().filter(is_unmapped) {
        let pd = provider.alloc_pd()?;
        let registered = provider.reg_mr(pd, region, 0, *bytes, *rights, Addressing::ZeroBased);
        let mr = registered.map_err(|error| format!("region {name}: {error}"))?;
        provider.dereg_mr(&mr)?;
        provider.dealloc_pd(pd)?;
    }
    Ok(())
}

/// Serves regions over one endpoint for each initiator, linked by shared memory.
fn serve_links<E: LinkedEndpoint>(
    args: &Args,
    options: E::Options,
    served: &Served,
    stop: &Arc<AtomicBool>,
) -> Result<(Report, BoardPage)> {
    let kind = (options, args.transport.description());
    let (messages, strict) = (args.messages, args.strict_ib);
    let budget = args.memory_budget();
    let host = LinkHost::<E>::new(kind, served.regions.clone(), messages, args.queue_pairs, strict, budget);
    serve(args, &mut host.with_accelerator(served.accelerator.clone()), served, None, stop)
}

impl Args {
    /// Refuses limits under which no initiator can connect, and options that the provider does not have.
    fn check(&self) -> Result {
        let limits = [
            ("--initiators", self.initiators as u64),
            ("--queue-pairs", self.queue_pairs.into()),
            ("--initiator-memory", self.initiator_memory().0),
            ("--memory", self.memory.0),
        ];
        if let Some((name, _)) = limits.into_iter().rfind(|(_, limit)| *limit == 0) {
            return Err(format!("expected {name} above 0, found 0: no initiator could connect").into());
        }
        let (each, all) = (self.initiator_memory(), self.memory);
        if each.0 > all.0 {
            return Err(format!("expected --initiator-memory of at most --memory, found {each} of {all}").into());
        }
        let given = [
            (Flag::Bind, self.bind.is_some()),
            (Flag::Mtu, self.mtu.is_some()),
            (Flag::AcceptAnySourcePort, self.accept_any_source_port),
            (Flag::ReceiveBuffer, self.receive_buffer.is_some()),
            (Flag::RdmaCm, !self.rdma_cm.is_empty()),
        ];
        self.transport.check(given.into_iter().filter_map(|(flag, given)| given.then_some(flag)))?;
        Ok(self.transport.check_mtu(self.mtu)?)
    }

    /// Creates the accelerator, and adds its control region to the others.
    fn accelerator(&self, regions: &mut Vec<Export>) -> Result<Option<Arc<Accelerator>>> {
        let Some(name) = &self.accelerate else { return Ok(None) };
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        let Some(memory) = regions.iter().find(|export| export.name.as_str() == name) else {
            return Err(format!("expected --accelerate with the name of a --region, found {name}").into());
        };
        if !memory.rights.allows(rights) {
            return Err(
                format!("region {name}: commands read and write it, and so must initiators: use rights=rw").into()
            );
        }
        let threads = self
            .threads
            .map_or_else(|| available_parallelism().map_or(1, |all| all.get().max(2) - 1), NonZeroUsize::get);
        let neighbours = Box::new(Neighbours::new(&self.transport, self.bind));
        let accelerator = Accelerator::new(name.as_str(), Arc::clone(&memory.region), threads, Some(neighbours))?;
        accelerator.take_notice().into_iter().for_each(|notice| output::warn(format!("region {name}: {notice}")));
        let (region, bytes) = (Arc::clone(accelerator.control()), CONTROL_BYTES as u64);
        regions.push(Export { name: Name::try_from(CONTROL_REGION.to_owned())?, region, bytes, rights });
        Ok(Some(accelerator))
    }

    /// Serves the page, if it is requested.
    fn page(&self, listens: &str, stop: &Arc<AtomicBool>) -> Result<BoardPage> {
        let transport = ("transport".into(), self.transport.to_string());
        let info = BoardInfo {
            command: "target".into(),
            title: format!("memory that initiators reach at {listens}"),
            settings: vec![transport],
            stopping: "Ends the target: its initiators are disconnected.",
            ..BoardInfo::default()
        };
        self.page.board(info, Vec::new(), stop)
    }

    fn initiator_memory(&self) -> Size {
        self.initiator_memory.unwrap_or(Size(INITIATOR_MEMORY.min(self.memory.0)))
    }

    fn memory_budget(&self) -> MemoryBudget {
        let each = MemoryLimit { bytes: self.initiator_memory().0, option: "--initiator-memory" };
        MemoryBudget::new(each, MemoryLimit { bytes: self.memory.0, option: "--memory" })
    }

    /// Returns the token, and `true` if it was generated and must be printed.
    fn token(&self) -> Result<(Token, bool)> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok((*token, false)),
            (None, Some(path)) if path.exists() => Ok((Token::read(path)?, false)),
            (None, Some(path)) => {
                let token = Token::random()?;
                token.write(path)?;
                Ok((token, false))
            }
            (None, None) => Ok((Token::random()?, true)),
        }
    }

    fn listen(&self) -> Result<ControlAddress> {
        match (self.transport.description().control, &self.listen) {
            (ControlSocket::Tcp, None) => Ok(ControlAddress::Tcp(CONTROL)),
            (ControlSocket::Tcp, Some(listen)) => match listen.parse() {
                Ok(address) => Ok(ControlAddress::Tcp(address)),
                Err(_) => Err(format!("expected --listen ADDRESS:PORT, found {listen}").into()),
            },
            (ControlSocket::Unix, None) => Err("shared memory needs a --listen PATH".into()),
            (ControlSocket::Unix, Some(listen)) => match listen.parse::<SocketAddr>() {
                Err(_) if listen.contains('/') => Ok(ControlAddress::Unix(listen.into())),
                _ => Err(format!("expected --listen PATH with a '/' in it, found {listen}").into()),
            },
        }
    }
}

/// Serves until a signal stops it. Returns the final report, and the page, which does not show it yet.
fn serve(
    args: &Args,
    host: &mut impl TargetHost,
    served: &Served,
    memory: Option<SocketAddr>,
    stop: &Arc<AtomicBool>,
) -> Result<(Report, BoardPage)> {
    let (token, is_new) = args.token()?;
    let listen = args.listen()?;
    let limits = ControlLimits { sessions: args.initiators, ..ControlLimits::default() };
    let mut control = Control::listen(&listen, token, limits)
        .map_err(|error| format!("cannot listen on {listen}: {error}; choose another with --listen"))?;
    if let Some(address) = memory {
        errln!("memory at {address}");
    }
    if is_new {
        errln!("token {token}");
    }
    let where_to = control.local_addr().map_or_else(|| listen.to_string(), |address| address.to_string());
    errln!("target waits for initiators on {where_to}");
    let page = args.page(&where_to, stop)?;
    let mut reporter = Reporter::new();
    run_loop(args, host, served, &mut control, (&mut reporter, &page), stop)?;

    host.close()?;
    control.close(host);
    let report = reporter.report("end", host.state(false), control.counters(), 0);
    Ok((report, page))
}

/// Number of rounds between two checks of the control connections, and the maximum time between them.
const MAX_ROUNDS: u32 = 256;
const CONTROL_INTERVAL: Duration = Duration::from_millis(5);
/// Time for which an idle target keeps polling before it sleeps, because waking takes longer than polling.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Maximum time to sleep. It bounds the delay of a signal that arrives just before the sleep.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Serves until a signal stops it, or the device of a region is lost.
fn run_loop(
    args: &Args,
    host: &mut impl TargetHost,
    served: &Served,
    control: &mut Control,
    (reporter, page): (&mut Reporter, &BoardPage),
    stop: &Arc<AtomicBool>,
) -> Result {
    let prints = args.every.is_some() || (!args.json && std::io::stderr().is_terminal());
    let every = args.every.unwrap_or(Duration::from_secs(1));
    let (mut rounds, mut idle_since) = (0_u32, None);
    let mut last_check = Instant::now();
    let mut next = last_check + every;
    while !stop.load(Ordering::Relaxed) {
        let busy = host.progress()?;
        rounds += 1;
        if busy {
            idle_since = None;
        }
        // Control connections cost system calls.
        let polls = busy || idle_since.get_or_insert_with(Instant::now).elapsed() < POLL_BEFORE_SLEEP;
        if polls && rounds < MAX_ROUNDS && last_check.elapsed() < CONTROL_INTERVAL {
            if !busy {
                std::hint::spin_loop();
            }
            continue;
        }
        control.progress(host)?;
        if check_devices(&served.regions).is_err() {
            break;
        }
        let now = Instant::now();
        (rounds, last_check) = (0, now);
        if args.seconds.is_some_and(|seconds| reporter.elapsed() >= seconds) {
            break;
        }
        page.publish(now, || {
            let unauthenticated = control.unauthenticated() as u64;
            page::status(&reporter.report("live", host.state(true), control.counters(), unauthenticated))
        });
        if now >= next {
            next = now + every;
            if prints {
                let unauthenticated = control.unauthenticated() as u64;
                let report = reporter.report("live", host.state(false), control.counters(), unauthenticated);
                if args.json {
                    output::STDOUT.try_queue(serde_json::to_string(&report)? + "\n");
                } else {
                    output::STDERR.try_queue(report.line() + "\n");
                }
            } else {
                reporter.observe(&host.state(false));
            }
        }
        if !busy && !args.poll && !host.must_poll() {
            let since = *idle_since.get_or_insert(now);
            if now - since >= POLL_BEFORE_SLEEP {
                sleep(host, served, control, next.saturating_duration_since(now).min(MAX_SLEEP))?;
            }
        }
    }
    Ok(())
}

/// Returns an error if a copy of a region's memory has failed.
fn check_devices(regions: &[Export]) -> Result {
    let failed = regions.iter().find_map(|export| Some((&export.name, export.region.failure()?)));
    failed.map_or(Ok(()), |(name, failure)| Err(format!("region {name}: {failure}").into()))
}

/// Sleeps until the memory's traffic or a control connection needs attention.
fn sleep(host: &mut impl TargetHost, served: &Served, control: &Control, max_sleep: Duration) -> Result {
    // Cleared before the queues are polled, so that no completion is missed.
    if let Some(accelerator) = &served.accelerator {
        accelerator.clear_event();
        accelerator.take_notice().into_iter().for_each(output::warn);
    }
    if host.prepare_sleep()? {
        return Ok(());
    }
    let max_sleep = control.next_timeout().map_or(max_sleep, |timeout| timeout.min(max_sleep));
    let time = Timespec { tv_sec: max_sleep.as_secs() as i64, tv_nsec: max_sleep.subsec_nanos().into() };
    let descriptors = host.descriptors();
    let accelerator = served.accelerator.iter().map(|accelerator| accelerator.fd());
    let all = descriptors.iter().copied().chain([control.fd()]).chain(accelerator);
    let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(format!("cannot wait for initiators: {error}").into()),
    }
}
