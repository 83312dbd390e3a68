//! `shotline emulate card`: the packet card of `hdl/`, simulated clock by clock, between frames and files or a driver.

mod args;
#[cfg(feature = "rtl")]
mod files;
#[cfg(feature = "rtl")]
mod frames;
#[cfg(feature = "rtl")]
mod listen;
#[cfg(feature = "rtl")]
mod modules;
#[cfg(feature = "rtl")]
mod report;
#[cfg(feature = "rtl")]
mod run;
mod values;

use crate::Result;
pub use args::{Card, EXAMPLES};

/// Simulates the card until all frames have been received or dropped.
pub fn run(args: &Card) -> Result {
    #[cfg(feature = "rtl")]
    return if args.listen.is_some() || args.window.is_some() { listen::run(args) } else { run::run(args) };
    #[cfg(not(feature = "rtl"))]
    {
        let _ = args;
        Err("this shotline was built without the RTL: run scripts/setup.sh rtl, then build with --features rtl".into())
    }
}
