//! `shotline emulate`: devices that use the real wire formats.

mod card;
mod digitizer;
mod probe;

use crate::Result;
pub use probe::page as probe_page;

/// Instruments that can be emulated.
#[derive(clap::Subcommand)]
pub enum Device {
    /// The 192-channel ultrasound probe: two links of 96 channels, 12 bit, 40 MS/s
    #[command(after_help = "\
Examples:
  shotline emulate probe                                 wait on [::1]:47910 for a receiver
  shotline emulate probe --input rf.hdf5                 real RF data instead of test patterns
  shotline emulate probe --phantom --angles=-5,0,5       echoes of known objects, for beamformers
  shotline emulate probe --loss 1e-4 --corrupt 1e-4      a bad link
  shotline emulate probe --serve 127.0.0.1:8081          with a page in the browser: what it sends, and its faults
  shotline emulate probe --listen 0.0.0.0:47910          found by `shotline probe discover` on the network
  shotline record --probe [::1]:47910 --out run.h5       the other side")]
    Probe(Box<probe::Probe>),
    /// A digitizer: 500 MS/s of IQ in 64 MiB blocks with their spectra, by DMA into prebuilt frames
    #[command(after_help = digitizer::EXAMPLES)]
    Digitizer(Box<digitizer::Digitizer>),
    /// The packet card's RTL: frames at the rate of a wire into the buffers of up to 256 channels, in simulation
    #[command(after_help = card::EXAMPLES)]
    Card(Box<card::Card>),
}

/// Runs an emulated device until a signal stops it.
pub fn run(device: Device) -> Result {
    match device {
        Device::Probe(args) => probe::run(&args),
        Device::Digitizer(args) => digitizer::run(&args),
        Device::Card(args) => card::run(&args),
    }
}
