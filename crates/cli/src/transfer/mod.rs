//! `shotline get` and `shotline put`: a region of a target to and from a file or a pipe.

pub mod get;
mod list;
mod pipeline;
pub mod put;
mod report;

use crate::Result;
use crate::initiator::Access;
use crate::progress::Progress;
use crate::values::{Size, bind, control_address};
use shotline_verbs::api::Flag;
use shotline_verbs::cm::message::RegionInfo;
use shotline_verbs::connect::Target;
use shotline_verbs::provider::ProviderKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments that both commands have.
#[derive(clap::Args)]
pub struct Common {
    /// Address of the target's control connections, or the path of its socket
    #[arg(long, value_name = "HOST:PORT|PATH", help_heading = "Target")]
    to: String,
    #[command(flatten, next_help_heading = "Target")]
    access: Access,
    #[arg(long, value_name = "HOW", default_value = "soft", help_heading = "Target",
        help = format!("How to reach the target: {}", ProviderKind::choices()))]
    transport: ProviderKind,
    /// Local address for the traffic (soft, spacefibre) [default: the route's own, any port]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = bind, help_heading = "Target")]
    bind: Option<SocketAddr>,
}

impl Common {
    /// Returns the target, after a check that the transport uses all options.
    fn target(&self) -> Result<Target> {
        self.transport.check(self.bind.map(|_| Flag::Bind))?;
        Ok((control_address(&self.to)?, self.access.token()?))
    }
}

/// Returns the bytes of a region from an offset on.
fn room(region: &RegionInfo, offset: Size) -> Result<u64> {
    let RegionInfo { name, bytes, .. } = region;
    let outside =
        || format!("expected an --offset of at most {bytes}, the length of region {name}, found {}", offset.0);
    Ok(bytes.checked_sub(offset.0).ok_or_else(outside)?)
}

/// Returns the error for more bytes than the region has from an offset on.
fn too_long(region: &RegionInfo, offset: Size, found: &str) -> String {
    let RegionInfo { name, bytes, .. } = region;
    let room = bytes.saturating_sub(offset.0);
    format!(
        "expected at most {room} bytes, which region {name} of {bytes} bytes has from offset {} on, found {found}: use a \
         smaller --length, or a larger region",
        offset.0
    )
}

/// Returns `true` if a path stands for standard input or output.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Time after which a transfer has a progress bar.
const LONG: Duration = Duration::from_secs(1);

/// Progress of a transfer, which is shown if it takes long and standard error is a terminal.
struct Bar {
    begun: Instant,
    all: u64,
    shown: Option<Progress>,
}

impl Bar {
    fn new(all: u64) -> Self {
        Self { begun: Instant::now(), all, shown: None }
    }

    fn update(&mut self, done: u64) {
        if self.shown.is_none() && self.begun.elapsed() >= LONG {
            self.shown = Some(Progress::new("MiB"));
        }
        self.shown.iter().for_each(|bar| bar.update(done >> 20, self.all >> 20));
    }
}
