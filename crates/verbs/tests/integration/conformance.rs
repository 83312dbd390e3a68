//! Runs the conformance suite on every provider, and generates the table in the documentation from its results.
//!
//! `CHECK=... cargo test -p shotline-verbs conformance::` runs the checks whose names contain the given text. `UPDATE=1
//! cargo test -p shotline-verbs conformance::` rewrites the table.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use shotline_memory::{Access, PathModel, Region};
use shotline_testing::{assert_committed, or_skip};
use shotline_transport::carrier::faulty::Faults;
use shotline_verbs::api::Capabilities;
use shotline_verbs::conformance::{End, Findings, Fixture, all, page, run};
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_verbs::spacefibre::{LinkOptions, SpaceFibreEndpoint};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Software endpoints over UDP sockets of this machine, with ports chosen by the kernel, so that tests can run in
/// parallel.
struct Udp {
    name: &'static str,
    addresses: [&'static str; 3],
}

impl Fixture for Udp {
    fn name(&self) -> &'static str {
        self.name
    }
    fn open(&self) -> Result<Vec<End>, String> {
        let open = |address: &&str| {
            let address: SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
            let endpoint = SoftEndpoint::udp(address, UdpOptions::default()).map_err(|error| error.to_string())?;
            let address = endpoint.address();
            Ok(End { provider: Box::new(endpoint), address })
        };
        self.addresses.iter().map(open).collect()
    }
}

/// Software endpoints within one process.
struct Inproc;

impl Fixture for Inproc {
    fn name(&self) -> &'static str {
        "soft, in process"
    }
    fn open(&self) -> Result<Vec<End>, String> {
        let addresses = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|address| address.parse().unwrap());
        let pair = SoftEndpoint::pair(256, addresses).map_err(|error| error.to_string())?;
        let end = |endpoint: SoftEndpoint<_>| {
            let address = endpoint.address();
            End { provider: Box::new(endpoint), address }
        };
        Ok(pair.into_iter().map(end).collect())
    }
}

/// Shared memory, both endpoints in this process.
struct Shm;

impl Fixture for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }
    fn open(&self) -> Result<Vec<End>, String> {
        let (a, b) = ShmEndpoint::pair().map_err(|error| error.to_string())?;
        // The provider ignores addresses.
        let end = |endpoint| End { provider: Box::new(endpoint), address: ([127, 0, 0, 1], 4791).into() };
        Ok([a, b].map(end).into())
    }
    fn region(&self, bytes: usize) -> Result<Arc<Region>, String> {
        Region::memfd("conformance", bytes).map_err(|error| error.to_string())
    }
}

/// Shared memory whose regions are emulated memory of accelerators.
struct ShmEmulated;

impl Fixture for ShmEmulated {
    fn name(&self) -> &'static str {
        "shm, emulated memory"
    }
    fn open(&self) -> Result<Vec<End>, String> {
        Shm.open()
    }
    fn capabilities(&self, ends: &[End]) -> Capabilities {
        Capabilities { atomics: false, ..ends[0].provider.capabilities() }
    }
    fn region(&self, bytes: usize) -> Result<Arc<Region>, String> {
        let model = PathModel { latency_ns: 2_000, ..PathModel::PATH2 };
        Region::emulated("conformance", bytes, model).map_err(|error| error.to_string())
    }
    fn access(&self) -> Access {
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_INVALIDATE
    }
}

/// SpaceFibre endpoints within one process, whose link has faults.
struct SpaceFibre {
    name: &'static str,
    faults: Faults,
}

impl Fixture for SpaceFibre {
    fn name(&self) -> &'static str {
        self.name
    }
    fn open(&self) -> Result<Vec<End>, String> {
        let addresses = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|address| address.parse().unwrap());
        let options = LinkOptions::new(4, 2).map_err(|error| error.to_string())?;
        let pair = SpaceFibreEndpoint::pair(&options, addresses, self.faults).map_err(|error| error.to_string())?;
        let end = |endpoint: SpaceFibreEndpoint<_>| {
            let address = endpoint.address();
            End { provider: Box::new(endpoint), address }
        };
        Ok(pair.into_iter().map(end).collect())
    }
}

const NO_FAULTS: Faults = Faults { seed: 1, bit_error_rate: 0.0, drop: 0.0, repeat: 0.0, swap: 0.0 };
const SPACEFIBRE: SpaceFibre = SpaceFibre { name: "spacefibre", faults: NO_FAULTS };
const SPACEFIBRE_WITH_FAULTS: SpaceFibre = SpaceFibre {
    name: "spacefibre, with errors",
    faults: Faults { seed: 1, bit_error_rate: 1e-6, drop: 0.01, repeat: 0.01, swap: 0.01 },
};

/// Software endpoints over raw frames, on a veth pair between two network namespaces created for the test.
struct Frames {
    names: [String; 2],
    namespaces: [OwnedFd; 2],
}

impl Frames {
    /// Creates the namespaces and the veth pair. The error states the missing privilege or tool.
    fn new() -> Result<Self, String> {
        let names = [0, 1].map(|end| format!("shotline-{}-{end}", std::process::id()));
        for name in &names {
            ip(&format!("netns add {name}"))
                .map_err(|reason| format!("cannot make a network namespace ({}); run as root", reason.trim()))?;
        }
        let [first, second] = &names;
        let cable = [
            "link add cable mtu 9000 address 02:00:00:00:00:01 netns FIRST type veth peer name cable mtu 9000 address \
             02:00:00:00:00:02 netns SECOND",
            "-n FIRST address add 10.91.9.1/24 dev cable",
            "-n SECOND address add 10.91.9.2/24 dev cable",
            "-n FIRST link set cable up",
            "-n SECOND link set cable up",
        ];
        for words in cable {
            ip(&words.replace("FIRST", first).replace("SECOND", second)).unwrap();
        }
        let open = |name: &String| rustix::fs::open(format!("/run/netns/{name}"), OFlags::CLOEXEC, Mode::empty());
        let namespaces = [open(first).unwrap(), open(second).unwrap()];
        Ok(Self { names, namespaces })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
    }
}

impl Fixture for Frames {
    fn name(&self) -> &'static str {
        "soft, raw frames"
    }
    fn open(&self) -> Result<Vec<End>, String> {
        let enter =
            |space: &OwnedFd| move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let home = rustix::fs::open("/proc/thread-self/ns/net", OFlags::CLOEXEC, Mode::empty()).unwrap();
        let open = |end: usize| {
            enter(&self.namespaces[end]);
            let address = SocketAddr::from(([10, 91, 9, end as u8 + 1], 4791));
            let peer = Some([2, 0, 0, 0, 0, 2 - end as u8]);
            let endpoint = SoftEndpoint::frames("cable", address, peer, UdpOptions::default());
            endpoint.map(|endpoint| End { provider: Box::new(endpoint), address }).map_err(|error| error.to_string())
        };
        let ends = [0, 1].map(open).into_iter().collect();
        enter(&home);
        ends
    }
}

fn ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split_whitespace()).output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
}

const V4: Udp = Udp { name: "soft, UDP over IPv4", addresses: ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"] };
const V6: Udp = Udp { name: "soft, UDP over IPv6", addresses: ["[::1]:0", "[::1]:0", "[::1]:0"] };

/// Columns of the table: a provider's fixtures that can be opened on any machine. The match does not compile if a new
/// provider is missing.
fn fixtures(kind: &ProviderKind) -> &'static [&'static (dyn Fixture + Sync)] {
    match kind {
        ProviderKind::Soft => &[&V4, &V6, &Inproc],
        ProviderKind::Shm => &[&Shm],
        // Requires a device: [`RXE`].
        ProviderKind::Ibverbs(_) => &[],
        ProviderKind::SpaceFibre(_) => &[&SPACEFIBRE, &SPACEFIBRE_WITH_FAULTS],
    }
}

/// Findings of a device, produced in a guest by tests/test_guest_endpoints.py, which runs
/// `examples/ibverbs_conformance.rs` there.
const RXE: &str = include_str!("../conformance-rxe.txt");

/// Runs the suite on a fixture and returns its findings. Panics if a check fails.
fn conforms(fixture: &dyn Fixture) -> Findings {
    let findings = run(fixture, &std::env::var("CHECK").unwrap_or_default());
    findings.report.expect_conformance();
    findings
}

#[test]
fn providers_conform_and_the_documented_table_is_current() {
    let all: Vec<_> = ProviderKind::all().iter().flat_map(fixtures).collect();
    let findings: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|fixture| scope.spawn(move || conforms(**fixture))).collect();
        running.into_iter().map(|fixture| fixture.join()).collect::<Result<_, _>>().expect("every provider conforms")
    });
    if std::env::var_os("CHECK").is_none() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/capabilities.md");
        assert_committed(&path, page(&findings, &[RXE]).as_bytes());
    }
}

/// Not a column of the table: raw sockets require a privilege that the user who runs the tests may lack.
#[test]
fn software_endpoints_over_raw_frames_conform() {
    conforms(&or_skip!(Frames::new()));
}

/// Not a column of the table: it differs from shared memory only in that it has no atomic operations.
#[test]
fn shared_emulated_memory_conforms() {
    conforms(&ShmEmulated);
}

#[test]
fn check_names_are_unique() {
    let names: BTreeSet<_> = all().map(|check| check.name).collect();
    assert_eq!(names.len(), all().count());
}

/// Returns the types of all crates that implement a trait.
fn implementations(name: &str) -> Vec<String> {
    let separator = format!(" {name} for ");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    let mut open = vec![crates];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let lines = text.lines().filter(|line| line.starts_with("impl"));
                let types = lines.filter_map(|line| line.split_once(&separator).map(|(_, rest)| rest));
                found.extend(types.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()));
            }
        }
    }
    found.into_iter().collect()
}

/// A wrapper that is added later must be run by the suite, too, and listed here.
#[test]
fn every_provider_implementation_is_listed() {
    assert_eq!(implementations("Provider"), ["Endpoint", "IbverbsEndpoint", "ShmEndpoint"]);
    // `Endpoint` is run over each datapath, except over `NoLink` of its unit tests.
    assert_eq!(implementations("Datapath"), ["LinkDatapath", "NoLink", "RoceDatapath"]);
}

/// A default method could be missed by a wrapper, or by one of several providers.
#[test]
fn traits_of_endpoints_have_no_default_methods() {
    let traits = [
        ("pub trait Provider: Windows + Notices {", include_str!("../../src/api/provider.rs")),
        ("pub trait Windows {", include_str!("../../src/api/window.rs")),
        ("pub trait Notices {", include_str!("../../src/api/notice.rs")),
        ("pub trait Endpoint: Provider {", include_str!("../../src/cm/endpoint.rs")),
        ("pub trait Datapath {", include_str!("../../src/endpoint/datapath.rs")),
        ("pub trait Host {", include_str!("../../src/cm/conversation/mod.rs")),
    ];
    for (head, text) in traits {
        let (_, rest) = text.split_once(head).unwrap_or_else(|| panic!("no {head}"));
        let (body, _) = rest.split_once("\n}\n").unwrap();
        assert!(body.contains(';') && !body.contains('{'), "{head} has a method with a body");
    }
}
