//! Regions of a target.

use super::error::EndpointError;
use shotline_memory::Access;
use shotline_verbs::api::Remote;
use shotline_verbs::cm::message::{Accept, RegionKey};

/// Memory of a target, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Name.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Access rights.
    pub rights: Access,
    /// Address of the first byte.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteRegion {
    pub(super) fn all(accept: &Accept) -> Vec<Self> {
        let region = |key: &RegionKey| Self {
            name: key.region.name.to_string(),
            bytes: key.region.bytes,
            rights: key.region.rights.0,
            address: key.address,
            rkey: key.rkey,
        };
        accept.keys.iter().map(region).collect()
    }

    /// Returns the address of the byte at an offset, for requests. An offset outside the region is the target's to refuse.
    pub fn at(&self, offset: u64) -> Remote {
        Remote { address: self.address.wrapping_add(offset), rkey: self.rkey }
    }

    pub(super) fn check(&self, offset: u64, len: usize) -> Result<(), EndpointError> {
        let Self { name, bytes, .. } = self;
        if offset <= *bytes && len as u64 <= bytes - offset {
            return Ok(());
        }
        let found = format!("expected bytes inside region {name} of {bytes}, found {len} from offset {offset}");
        Err(EndpointError::Invalid(found))
    }
}
