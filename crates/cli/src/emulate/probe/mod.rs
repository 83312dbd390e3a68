//! `shotline emulate probe`: the ultrasound probe.

mod args;
pub mod page;
mod report;
#[cfg(feature = "rtl")]
mod rtl;
mod serve;

use crate::transport::sender_opener;
use crate::{Result, signals};
pub use args::Probe;
use serve::wait_for_receivers;
use shotline_backends::Role;
use shotline_instrument::probe::{LinkRequest, LinkTransport, Server};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs an emulated probe until a signal stops it.
pub fn run(args: &Probe) -> Result {
    let stop = signals::stop_flag()?;
    if args.until_stdin_ends {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || signals::stop_at_end_of_stdin(&stop));
    }
    if let Some(cpu) = args.cpu {
        shotline_acquire::cpu::pin(cpu)?;
    }
    if args.rtl {
        #[cfg(feature = "rtl")]
        return rtl::run(args, &stop);
        #[cfg(not(feature = "rtl"))]
        return Err(
            "this shotline was built without the RTL: run scripts/setup.sh rtl, then build with --features rtl".into(),
        );
    }
    let transport = &args.sender.transport;
    let options = args.sender.options(Role::Sender)?;
    if let Some(device) = transport.one_link(Role::Sender).filter(|_| args.links != 1) {
        return Err(format!("{device} is one link, and this probe has {}: use --links 1", args.links).into());
    }
    serve(args, &stop, sender_opener(transport, &options, args.source))
}

/// Serves receivers over the transports that `open` opens.
fn serve<P: PacketIo>(
    args: &Probe,
    stop: &Arc<AtomicBool>,
    open: impl Fn(&LinkRequest, &Regions) -> std::result::Result<LinkTransport<P>, IoError>,
) -> Result {
    wait_for_receivers(args, Server::bind(args.config(), args.listen, open)?, stop)
}
