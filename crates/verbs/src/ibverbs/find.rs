//! Which device takes packets to an address.

use super::choice::{Choice, Opened};
use super::sys::devices;
use shotline_transport::IoError;
use std::net::IpAddr;
use std::path::Path;

/// A device that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// It, its port, and the address among the port's.
    pub choice: Choice,
    /// It is a card, and not the kernel's emulation of one over any interface (rxe).
    pub hardware: bool,
}

/// The RoCEv2 device that has this address, a card rather than an emulated one; none if no device has it.
///
/// # Errors
/// Without the library, or if the kernel has no RDMA.
pub fn at(local: IpAddr) -> Result<Option<Found>, IoError> {
    let names = devices()?.into_iter().map(|device| device.name());
    let mut found: Vec<Found> = names
        .filter_map(|name| {
            let hardware = Path::new("/sys/class/infiniband").join(&name).join("device").exists();
            let named = Choice { device: Some(name), ..Choice::default() };
            // One that cannot be opened is no help, and no reason not to look at the others.
            let Opened { port, gid, .. } = named.open_at(local).ok()?;
            Some(Found { choice: Choice { port: Some(port), gid: Some(gid.index), ..named }, hardware })
        })
        .collect();
    found.sort_by_key(|found| !found.hardware);
    Ok(found.into_iter().next())
}
