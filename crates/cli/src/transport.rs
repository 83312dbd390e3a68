//! Flags of what carries packets.

use shotline_acquire::config::Settings;
use shotline_backends::{Options, Role, Transport};

/// Flags of programs that send.
#[derive(clap::Args, Clone, Debug)]
pub struct Flags {
    /// What carries packets: udp, or dpdk:DEVICE
    #[arg(long, default_value = "udp", value_name = "TRANSPORT", help_heading = "Transport")]
    pub transport: Transport,
    /// Longest IP packet in bytes, where no kernel knows it [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    mtu: Option<u16>,
    /// Ethernet address of the other side or the router, where no kernel knows it [default: learned, else all hosts]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    peer_mac: Option<String>,
    /// More words for DPDK's command line (EAL), such as --eal=--log-level=8
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = "Transport")]
    eal: Option<String>,
}

impl Flags {
    /// What opens the transport in this role.
    ///
    /// # Errors
    /// If it does not have this role, is not in this build, or a flag is given that it does not use.
    pub fn options(&self, role: Role) -> Result<Options, String> {
        let options = Options { mtu: self.mtu, peer_mac: self.peer_mac.clone(), eal: self.eal.clone() };
        self.transport.check(role, &options).map(|()| options)
    }
}

/// What a receiver's settings name, and what opens it.
///
/// # Errors
/// As [`Flags::options`].
pub fn of(settings: &Settings) -> Result<(Transport, Options), String> {
    let transport = settings.transport.clone().unwrap_or_default();
    let Settings { mtu, peer_mac, eal, .. } = settings.clone();
    let options = Options { mtu, peer_mac, eal };
    transport.check(Role::Receiver, &options)?;
    Ok((transport, options))
}
