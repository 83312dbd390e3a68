//! Memory of a target.

use pyo3::prelude::*;
use shotline_library::endpoint::{RemoteRegion as Remote, rights, rights_name};
use shotline_verbs::api;

use super::error::Failed;

/// Returns a key in hexadecimal.
pub fn hex(key: u32) -> String {
    format!("0x{key:08x}")
}

/// Memory of a target that this initiator may access: `target.regions["images"]`.
///
/// The key belongs to this connection and ends with it. `RemoteRegion(name, length, rights, address, rkey)` describes
/// memory whose key came in another way.
#[pyclass(frozen, module = "shotline", eq)]
#[derive(PartialEq)]
pub struct RemoteRegion(Remote);

impl RemoteRegion {
    pub fn new(region: &Remote) -> Self {
        Self(region.clone())
    }
    pub fn region(&self) -> &Remote {
        &self.0
    }
}

#[pymethods]
impl RemoteRegion {
    #[new]
    fn make(name: String, length: u64, rights: &str, address: u64, rkey: u32) -> Result<Self, Failed> {
        Ok(Self(Remote { name, bytes: length, rights: self::rights(rights)?, address, rkey }))
    }

    /// Name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Length in bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.0.bytes
    }

    /// Rights: "r", "w", "rw", or "atomic" (read, write and atomic operations).
    #[getter]
    fn rights(&self) -> &'static str {
        rights_name(self.0.rights)
    }

    /// Address of the first byte, usually 0. It is not an address of the target's process.
    #[getter]
    fn address(&self) -> u64 {
        self.0.address
    }

    /// Remote key.
    #[getter]
    fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// Returns the address of the byte at an offset, for requests.
    ///
    /// The target checks whether the bytes of a request are inside the region.
    fn at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress(self.0.at(offset))
    }

    fn __len__(&self) -> usize {
        self.0.bytes as usize
    }

    fn __repr__(&self) -> String {
        let Remote { name, bytes, rights, rkey, .. } = &self.0;
        format!("<remote region {name}: {bytes} bytes, rights {}, rkey {}>", rights_name(*rights), hex(*rkey))
    }
}

/// Address of memory of a target, with its key: `image.at(8192)`, or `RemoteAddress(address, rkey)`.
#[pyclass(frozen, module = "shotline", eq)]
#[derive(PartialEq)]
pub struct RemoteAddress(pub api::Remote);

#[pymethods]
impl RemoteAddress {
    #[new]
    fn make(address: u64, rkey: u32) -> Self {
        Self(api::Remote { address, rkey })
    }

    /// Address of the first byte, in the addressing of the key.
    #[getter]
    fn address(&self) -> u64 {
        self.0.address
    }

    /// Remote key.
    #[getter]
    fn rkey(&self) -> u32 {
        self.0.rkey
    }

    fn __repr__(&self) -> String {
        format!("<remote address {} with rkey {}>", self.0.address, hex(self.0.rkey))
    }
}
