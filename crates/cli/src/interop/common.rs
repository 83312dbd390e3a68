//! Arguments of all programs, and the parameters that both sides agree on.

use crate::Result;
use crate::values::{Size, bind, mtu, probability, seconds};
use serde::Serialize;
use shotline_verbs::api::{Mtu, QpType};
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments that all programs share.
#[derive(clap::Args)]
pub struct Common {
    /// Host on which the other program listens [default: listen on --bind]
    pub host: Option<String>,
    /// Local address of the traffic, which the ICRC covers
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind)]
    pub bind: SocketAddr,
    /// Port of the connection that exchanges parameters [default: 18515; rping 7174]
    #[arg(long)]
    pub port: Option<u16>,
    /// Transport service
    #[arg(long, value_name = "TYPE", default_value = "rc")]
    pub qp: Service,
    /// Bytes of an operation [default: pingpong 4096, perftest 65536, atomic 8; UD: at most the MTU]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Size>,
    /// Number of operations
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub count: u32,
    /// Path MTU [default: pingpong 1024, perftest 4096]
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub mtu: Option<Mtu>,
    /// Maximum number of operations in flight (perftest)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Minimum time between two operations in microseconds, for a peer that drops datagrams under load
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub pace: u64,
    /// Drop incoming packets with this probability, as a lossy network does
    #[arg(long, value_name = "P", default_value = "0", value_parser = probability)]
    pub loss: f64,
    /// Maximum time to wait for the other side, in seconds
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Returns the number of bytes of an operation.
    pub fn size(&self, default: u32, default_mtu: Mtu) -> Result<u32> {
        let mtu = self.mtu.unwrap_or(default_mtu).bytes();
        let max = if self.qp == Service::Ud { mtu } else { 64 << 20 };
        let size = self.size.map_or(u64::from(default.min(max)), |size| size.0);
        let size = u32::try_from(size).ok().filter(|size| (1..=max).contains(size));
        size.ok_or_else(|| format!("expected --size of 1 to {max} bytes").into())
    }
}

/// What perftest measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Messages
    Send,
    /// WRITEs into the server's memory
    Write,
    /// READs of the server's memory
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

/// Parameters that both sides agree on.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of an operation.
    pub size: u32,
    pub mtu: Mtu,
    pub count: u64,
}

/// Result of a run with the other side.
pub struct RunSummary {
    /// Number of operations that completed on this side.
    pub operations: u64,
    pub mtu: Mtu,
    /// Time from the first operation to the last.
    pub elapsed: Duration,
}
