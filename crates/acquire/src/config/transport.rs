//! Transport that settings select.

use super::settings::Settings;
use shotline_backends::{Advice, Options, Role, Transport, advise, route};
use shotline_wire::framing::description::Completions;
use std::net::Ipv4Addr;

/// Transport of a run, with `auto` resolved.
#[derive(Clone, Debug)]
pub struct ChosenTransport {
    /// The transport.
    pub transport: Transport,
    /// Options to open it.
    pub options: Options,
    /// Why `auto` has chosen it.
    pub reason: Option<String>,
}

impl Settings {
    /// Returns the transport that the settings select, and the options to open it.
    ///
    /// # Errors
    /// If it cannot receive, is not in this build, or a setting is given that it does not use; and if `auto` finds no
    /// route to the probe.
    pub fn choose_transport(&self) -> Result<ChosenTransport, String> {
        let (mut transport, mut reason) = (self.transport.clone().unwrap_or_default(), None);
        if transport == Transport::Auto {
            let advice = self.advise()?;
            (transport, reason) = (advice.transport, Some(advice.why));
        }
        let Self { mtu, peer_mac, eal, receive_buffer, .. } = self.clone();
        let options = Options { mtu, peer_mac, eal, receive_buffer: receive_buffer.map(|bytes| bytes.0) };
        transport.check(Role::Receiver, &options)?;
        Ok(ChosenTransport { transport, options, reason })
    }

    /// Resolves `auto`.
    fn advise(&self) -> Result<Advice, String> {
        let local = self.bind.or(self.listen).map(|address| address.ip());
        let local = local
            .filter(|ip| !ip.is_unspecified())
            .map_or_else(|| self.probe.map_or(Ok(Ipv4Addr::LOCALHOST.into()), route::local_ip), Ok)
            .map_err(|error| {
                format!("--transport auto finds no route to the probe: {error}; name the local address with --bind")
            })?;
        let datagrams = self.probe.is_some() && self.framing().description().completions != Completions::Unsupported;
        Ok(advise(local, self.links.filter(|_| datagrams)))
    }
}
