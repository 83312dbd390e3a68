//! Address handles: routes to peers, for datagrams.

use super::abi::*;
use super::check_pointer;
use super::device::gid_of;
use super::memory::Pd;
use shotline_transport::IoError;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

/// An address handle: the route to a peer, for datagrams.
pub struct Ah {
    pd: Arc<Pd>,
    pub(super) ah: NonNull<ibv_ah>,
}

// SAFETY: it is constant.
unsafe impl Send for Ah {}
// SAFETY: as above.
unsafe impl Sync for Ah {}

/// Returns the attributes of a route to a peer on Ethernet, from one of a port's GIDs.
/// Service levels have 4 bits.
pub fn ah_attr(ip: IpAddr, port: u8, gid_index: u8, service_level: u8) -> ibv_ah_attr {
    let grh =
        ibv_global_route { dgid: AlignedGid(gid_of(ip)), sgid_index: gid_index, hop_limit: 64, ..Default::default() };
    ibv_ah_attr { grh, sl: service_level & 0xF, is_global: 1, port_num: port, ..Default::default() }
}

impl Ah {
    /// Creates an address handle. The driver resolves the peer's Ethernet address, so the peer must answer ARP.
    ///
    /// # Errors
    /// If there is no such route.
    pub fn new(pd: &Arc<Pd>, attr: &ibv_ah_attr) -> Result<Arc<Self>, IoError> {
        let mut attr = *attr;
        // SAFETY: the domain lives; the attributes are read.
        let ah = unsafe { (pd.context.library.create_ah)(pd.pd.as_ptr(), &raw mut attr) };
        let what = || {
            format!("resolving the route from {} to {}", pd.context.name(), std::net::Ipv6Addr::from(attr.grh.dgid.0))
        };
        Ok(Arc::new(Self {
            pd: Arc::clone(pd),
            ah: check_pointer(ah, what, "; is the peer up, and does it answer ARP?")?,
        }))
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: posted requests hold what they need in the driver; lists hold the handle itself.
        unsafe { (self.pd.context.library.destroy_ah)(self.ah.as_ptr()) };
    }
}
