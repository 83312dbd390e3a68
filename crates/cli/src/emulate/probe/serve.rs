//! Running of a probe, whatever its samples and transports are.

use super::args::Probe;
use super::page::ProbePage;
use super::report::report;
use crate::Result;
use shotline_instrument::probe::{LinkRequest, LinkTransport, Server, Shots};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs a probe until `stop` is set, and reports.
pub(super) fn wait_for_receivers<Io, Open, S>(
    args: &Probe,
    server: Server<Io, Open, S>,
    stop: &Arc<AtomicBool>,
) -> Result
where
    Io: PacketIo,
    Open: FnMut(&LinkRequest, &Regions) -> std::result::Result<LinkTransport<Io>, IoError>,
    S: Shots,
{
    let server = server.busy_poll(args.busy_poll).skew(args.skew());
    let listen = server.local_addr()?;
    errln!("probe waits for a receiver on {listen}");
    let state = server.state();
    let mut page = ProbePage::open(&args.page, args.info(listen, &state), state, None, stop)?;
    let counters = page.run(server, stop)?;
    report(&counters, args.json)?;
    page.end(&counters, stop);
    Ok(())
}
