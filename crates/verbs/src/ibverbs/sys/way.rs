//! Address handles: the way of datagrams to a peer.

use super::abi::*;
use super::device::gid_of;
use super::made;
use super::memory::Pd;
use shotline_transport::IoError;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

/// The way to a peer, for datagrams.
pub struct Ah {
    pd: Arc<Pd>,
    pub(super) ah: NonNull<ibv_ah>,
}

// SAFETY: it is constant.
unsafe impl Send for Ah {}
// SAFETY: as above.
unsafe impl Sync for Ah {}

/// The way to a peer on an Ethernet, from one of a port's GIDs.
pub fn way_to(ip: IpAddr, port: u8, gid_index: u8) -> ibv_ah_attr {
    let grh =
        ibv_global_route { dgid: Aligned(gid_of(ip)), sgid_index: gid_index, hop_limit: 64, ..Default::default() };
    ibv_ah_attr { grh, is_global: 1, port_num: port, ..Default::default() }
}

impl Ah {
    /// A handle for this way. The driver looks the peer's Ethernet address up, so the peer has to answer ARP.
    ///
    /// # Errors
    /// If there is no such way.
    pub fn new(pd: &Arc<Pd>, way: &ibv_ah_attr) -> Result<Arc<Self>, IoError> {
        let mut way = *way;
        // SAFETY: the domain lives; the attributes are read.
        let ah = unsafe { (pd.context.library.create_ah)(pd.pd.as_ptr(), &raw mut way) };
        let what =
            || format!("finding the way from {} to {}", pd.context.name(), std::net::Ipv6Addr::from(way.grh.dgid.0));
        Ok(Arc::new(Self { pd: Arc::clone(pd), ah: made(ah, what, "; is the peer up, and does it answer ARP?")? }))
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: requests that are posted hold what they need in the driver; lists hold the handle itself.
        unsafe { (self.pd.context.library.destroy_ah)(self.ah.as_ptr()) };
    }
}
