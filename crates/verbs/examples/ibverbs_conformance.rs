//! The conformance suite on RDMA devices, or on a device and a software endpoint.
//!
//! `ibverbs_conformance [--check WORDS] END END [END]`, where an end is `DEVICE[,port=N][,gid=N]` or
//! `soft:NAMESPACE:ADDRESS` (RoCEv2 over UDP, in a network namespace of `ip netns`). The ends must reach each other;
//! they may be addresses of one device. Prints the column for the table of the documentation, and each failed check on
//! standard error; exits with 1 if any check failed.

use rustix::fd::AsFd as _;
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use shotline_memory::Region;
use shotline_verbs::api::Capabilities;
use shotline_verbs::conformance::{End, Fixture, column_text, run};
use shotline_verbs::ibverbs::{DeviceSelector, IbverbsEndpoint};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

enum EndSpec {
    /// An RDMA device.
    Device(DeviceSelector),
    /// A software endpoint in a network namespace.
    Soft { namespace: String, address: SocketAddr },
}

impl FromStr for EndSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("soft:") else { return text.parse().map(Self::Device) };
        let (namespace, ip) = rest.split_once(':').ok_or("expected soft:NAMESPACE:ADDRESS")?;
        let ip: IpAddr = ip.parse().map_err(|error| format!("{ip}: {error}"))?;
        Ok(Self::Soft { namespace: namespace.into(), address: SocketAddr::new(ip, ROCE_PORT) })
    }
}

impl EndSpec {
    fn open(&self) -> Result<End, String> {
        match self {
            Self::Device(selector) => {
                let endpoint = IbverbsEndpoint::open(selector).map_err(|error| error.to_string())?;
                let address = endpoint.address();
                Ok(End { provider: Box::new(endpoint), address })
            }
            Self::Soft { namespace, address } => {
                let enter = |path: &str| {
                    let fd = open(path, OFlags::CLOEXEC, Mode::empty());
                    let fd = fd.map_err(|error| format!("{path}: {error}"))?;
                    let entered = move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network));
                    entered.map_err(|error| format!("entering {path}: {error}"))
                };
                enter(&format!("/run/netns/{namespace}"))?;
                let endpoint = SoftEndpoint::udp(*address, UdpOptions::default());
                enter("/proc/1/ns/net")?;
                let endpoint = endpoint.map_err(|error| error.to_string())?;
                Ok(End { provider: Box::new(endpoint), address: *address })
            }
        }
    }
}

struct EndList(Vec<EndSpec>);

impl Fixture for EndList {
    fn name(&self) -> &'static str {
        "ibverbs, rxe"
    }
    fn open(&self) -> Result<Vec<End>, String> {
        self.0.iter().map(EndSpec::open).collect()
    }
    fn capabilities(&self, ends: &[End]) -> Capabilities {
        let all = ends.iter().map(|end| end.provider.capabilities());
        all.reduce(|a, b| Capabilities {
            name: a.name,
            ud: a.ud && b.ud,
            uc: a.uc && b.uc,
            rc: a.rc && b.rc,
            atomics: a.atomics && b.atomics,
            target_cpu_is_idle: a.target_cpu_is_idle || b.target_cpu_is_idle,
            partial_registration: a.partial_registration && b.partial_registration,
            separate_rights: a.separate_rights && b.separate_rights,
            revokes: a.revokes && b.revokes,
            windows: a.windows && b.windows,
            invalidates: a.invalidates && b.invalidates,
            lenient: a.lenient && b.lenient,
            random_numbers: a.random_numbers && b.random_numbers,
            reports_solicited: a.reports_solicited && b.reports_solicited,
            max_operation: a.max_operation.min(b.max_operation),
        })
        .unwrap_or_else(|| ends[0].provider.capabilities())
    }
    fn region(&self, bytes: usize) -> Result<Arc<Region>, String> {
        // Most checks need little memory, and a device pins all of it.
        Region::heap(bytes).map_err(|error| error.to_string())
    }
    fn idle_time(&self) -> Duration {
        Duration::from_millis(20)
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let filter = args.next_if_eq("--check").and_then(|_| args.next()).unwrap_or_default();
    let ends = match args.map(|arg| arg.parse()).collect::<Result<Vec<EndSpec>, String>>() {
        Ok(ends) if ends.len() >= 2 => EndList(ends),
        Ok(_) => {
            eprintln!("expected two or three ends such as rxe0,gid=1");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let findings = run(&ends, &filter);
    print!("{}", column_text(&findings));
    let failures = findings.report.failures();
    eprint!("{failures}");
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
