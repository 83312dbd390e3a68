//! `shotline emulate`: devices that speak the real wire formats.

mod digitizer;
mod probe;

use crate::Result;
use shotline_backends::{Options, Outgoing, Sender, Sending, Transport};
use shotline_instrument::probe::{Outlet, Wanted};
use shotline_memory::{Regions, Sge};
use shotline_transport::IoError;
use std::io::Read;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Instruments that can be emulated.
#[derive(clap::Subcommand)]
pub enum Device {
    /// The 192-channel ultrasound probe: two links of 96 channels, 12 bit, 40 MS/s
    #[command(after_help = "\
Examples:
  shotline emulate probe                                 wait on [::1]:47910 for a receiver
  shotline emulate probe --input rf.hdf5                 real RF data instead of test patterns
  shotline emulate probe --loss 1e-4 --corrupt 1e-4      a bad link
  shotline emulate probe --listen 0.0.0.0:47910          found by `shotline probe discover` on the network
  shotline record --probe [::1]:47910 --out run.h5       the other side")]
    Probe(Box<probe::Probe>),
    /// A digitizer: 500 MS/s of IQ in 64 MiB blocks with their spectra, by DMA into prebuilt frames
    #[command(after_help = digitizer::EXAMPLES)]
    Digitizer(Box<digitizer::Digitizer>),
}

/// Runs an emulated device until it is asked to stop.
pub fn run(device: Device) -> Result {
    match device {
        Device::Probe(args) => probe::run(&args),
        Device::Digitizer(args) => digitizer::run(&args),
    }
}

/// Sets the flag when standard input ends.
pub fn stop_at_end_of_stdin(stop: &AtomicBool) {
    let mut sink = [0; 64];
    while !matches!(std::io::stdin().read(&mut sink), Ok(0) | Err(_)) {}
    stop.store(true, Ordering::Relaxed);
}

/// What opens a transport for each link of an emulated device.
pub fn opens<'a>(
    transport: &'a Transport,
    options: &'a Options,
    source: Option<IpAddr>,
) -> impl Fn(&Wanted, &Regions) -> std::result::Result<Outlet<Sender>, IoError> + use<'a> {
    move |wanted, regions| {
        let Wanted { destination: to, sealed, .. } = *wanted;
        let sending = Sending { source, to, sealed, frames: 0, scratch: Sge::EMPTY };
        let Outgoing { io, source } = transport.open_sender(&sending, options, regions)?;
        Ok(Outlet::new(io, source))
    }
}

/// A socket of its own for each link, on the address that the route to the receiver has.
pub fn open(
    source: Option<IpAddr>,
    wanted: &Wanted,
    regions: &Regions,
) -> std::result::Result<Outlet<Sender>, IoError> {
    opens(&Transport::default(), &Options::default(), source)(wanted, regions)
}
