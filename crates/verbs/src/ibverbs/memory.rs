//! Memory registrations: the keys and access rights of this process, and the device's.

use super::sys;
use crate::api::{Element, VerbsError};
use rustix::fd::AsFd as _;
use shotline_memory::{Access, AccessError, Addressing, Mr, Pd, Protection, Region, Registrar};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// A registration with the device.
struct Registration {
    mr: sys::Mr,
    lkey: u32,
    /// Number of elements of outstanding requests that use it.
    users: u32,
}

/// A protection domain.
pub(super) struct Domain {
    pub(super) pd: Arc<sys::Pd>,
    /// Address handles of peers that datagrams were sent to.
    pub(super) ahs: HashMap<IpAddr, Arc<sys::Ah>>,
}

/// Registers memory of another device, which the RDMA device accesses directly.
fn register_exported(
    device: &Arc<sys::Pd>,
    region: &Arc<Region>,
    range: Range<u64>,
    access: Access,
    first: u64,
) -> Result<sys::Mr, VerbsError> {
    let exported = region.export().ok_or(VerbsError::Unsupported(
        "an RDMA device cannot register this kind of memory: expected memory that is mapped into this process (heap, huge, \
         memfd, file) or that its driver exports (dmabuf, cuda); use one of these, or --transport soft",
    ))?;
    Ok(sys::Mr::with_dmabuf(device, region, exported?.as_fd(), range, access, first)?)
}

/// Memory registrations and protection domains of an endpoint.
///
/// Local keys are our own, and requests are validated before they reach the device, so that a local error does not fail
/// the queue pair. Remote keys are the device's, which enforces the access rights of peers.
pub(super) struct Memory {
    pub(super) protection: Protection,
    domains: HashMap<Pd, Domain>,
    /// By index in the local key, so that posting needs no hash look-up.
    registrations: Vec<Option<Registration>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let protection = Protection::new(Registrar::new().finish());
        Self { protection, domains: HashMap::new(), registrations: Vec::new() }
    }

    pub(super) fn allocate(&mut self, context: &Arc<sys::Context>) -> Result<Pd, VerbsError> {
        let domain = Domain { pd: sys::Pd::new(context)?, ahs: HashMap::new() };
        let pd = self.protection.allocate();
        self.domains.insert(pd, domain);
        Ok(pd)
    }
    pub(super) fn deallocate(&mut self, pd: Pd) -> Result<(), VerbsError> {
        self.protection.deallocate(pd)?;
        self.domains.remove(&pd);
        Ok(())
    }
    pub(super) fn domain(&mut self, pd: Pd) -> Result<&mut Domain, VerbsError> {
        self.domains.get_mut(&pd).ok_or(VerbsError::NoSuch("protection domain"))
    }

    pub(super) fn register(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError> {
        let page = rustix::param::page_size() as u64;
        // An exported region is at the begin of its dma-buf, which has whole pages.
        let start = if region.is_mapped() { region.address(0, 0) as u64 } else { 0 };
        let page_offset = start.wrapping_add(offset) % page;
        let first = match addressing {
            Addressing::ZeroBased => page_offset,
            Addressing::Virtual(address) if address % page == page_offset => address,
            Addressing::Virtual(_) => {
                return Err(VerbsError::Unsupported(
                    "with a device, the address must have the memory's offset in its page",
                ));
            }
        };
        // An invalid range is detected here, before the device sees it.
        let mr = self.protection.register(pd, region, offset, len, access, Addressing::Virtual(first))?;
        let device = &self.domain(pd)?.pd;
        let registered = if region.is_mapped() {
            sys::Mr::with_iova(device, region, offset, len, access, first).map_err(VerbsError::from)
        } else {
            register_exported(device, region, offset..offset + len, access, first)
        };
        let device_mr = registered.inspect_err(|_| {
            self.protection.deregister(mr.lkey);
        })?;
        let index = mr.index();
        if self.registrations.len() <= index {
            self.registrations.resize_with(index + 1, || None);
        }
        let (lkey, rkey) = (device_mr.lkey(), device_mr.rkey());
        self.registrations[index] = Some(Registration { mr: device_mr, lkey, users: 0 });
        Ok(Mr { rkey, ..mr })
    }

    /// Deregisters memory. Fails if outstanding requests use it, because the device would fail those.
    pub(super) fn deregister(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        let matches =
            |found: &&mut Option<Registration>| found.as_ref().is_some_and(|found| found.mr.rkey() == mr.rkey);
        let found =
            self.registrations.get_mut(mr.index()).filter(matches).ok_or(VerbsError::NoSuch("memory registration"))?;
        if found.as_ref().is_some_and(|found| found.users > 0) {
            return Err(VerbsError::InUse { what: "memory registration", by: "an outstanding request" });
        }
        if !self.protection.deregister(mr.lkey) {
            return Err(VerbsError::NoSuch("memory registration"));
        }
        *found = None;
        Ok(())
    }

    /// Validates an element and converts it for the device. Returns the index of its registration, which counts as in
    /// use until [`Self::release`].
    #[inline]
    pub(super) fn acquire(
        &mut self,
        pd: Pd,
        element: &Element,
        needed: Access,
    ) -> Result<(u32, sys::abi::ibv_sge), AccessError> {
        let Element { address, len, lkey } = *element;
        self.protection.local(pd, lkey, address, len, needed)?;
        let index = Mr::index_of(lkey);
        let found = self.registrations.get_mut(index).and_then(Option::as_mut).ok_or(AccessError::UnknownKey)?;
        found.users += 1;
        Ok((index as u32, sys::abi::ibv_sge { addr: address, length: len, lkey: found.lkey }))
    }

    /// Releases the registrations of a completed request.
    #[inline]
    pub(super) fn release(&mut self, indices: &[u32]) {
        for index in indices {
            if let Some(found) = self.registrations.get_mut(*index as usize).and_then(Option::as_mut) {
                found.users -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sys::fake::{self, Registered};
    use super::*;

    const RIGHTS: Access = Access::from_bits(Access::LOCAL_WRITE.bits() | Access::REMOTE_WRITE.bits());

    /// Registers 5000 bytes from 4100 of a region of 16 KiB.
    fn register(has_dmabuf: bool, region: &Arc<Region>, addressing: Addressing) -> Result<Mr, VerbsError> {
        let mut memory = Memory::new();
        let pd = memory.allocate(&fake::context(has_dmabuf)).unwrap();
        let mr = memory.register(pd, region, 4100, 5000, RIGHTS, addressing);
        assert_eq!(fake::existing(), usize::from(mr.is_ok()));
        match &mr {
            Ok(mr) => memory.deregister(mr).unwrap(),
            Err(_) => memory.deallocate(pd).expect("the failed registration left nothing"),
        }
        assert_eq!(fake::existing(), 0);
        mr
    }

    #[test]
    fn device_memory_is_registered_by_its_dmabuf() {
        let (region, inode) = fake::exported_region(16 << 10);
        let access = sys::flags(RIGHTS);
        let call = |iova| Registered { is_dmabuf: true, start: 4100, len: 5000, iova, inode, access };
        let mr = register(true, &region, Addressing::ZeroBased).unwrap();
        assert_eq!((mr.address, mr.len, mr.rkey), (4, 5000, 0x2200), "the offset in the page, the device's key");
        register(true, &region, Addressing::Virtual(0x7000_0004)).unwrap();
        assert_eq!(fake::registered(), [call(4), call(0x7000_0004)]);
        let misplaced = register(true, &region, Addressing::Virtual(0x7000_0000)).unwrap_err();
        assert!(misplaced.to_string().contains("offset in its page"), "{misplaced}");
    }

    #[test]
    fn mapped_memory_is_registered_by_its_address() {
        let region = Region::heap(16 << 10).unwrap();
        register(false, &region, Addressing::ZeroBased).unwrap();
        let start = region.address(4100, 5000) as u64;
        let access = sys::flags(RIGHTS);
        let call = Registered { is_dmabuf: false, start, len: 5000, iova: 4, inode: 0, access };
        assert_eq!(fake::registered(), [call]);
    }

    #[test]
    fn refused_dmabufs_are_reported_with_the_remedy() {
        let (region, _) = fake::exported_region(16 << 10);
        for (number, remedy) in [
            (libc::EOPNOTSUPP, "expected Linux 5.12 or later and a device that supports it"),
            (libc::EPROTONOSUPPORT, "expected Linux 5.12 or later and a device that supports it"),
            (libc::ENOSYS, "expected Linux 5.12 or later and a device that supports it"),
            (libc::EINVAL, "both drivers must support peer to peer"),
            (libc::EREMOTEIO, "both drivers must support peer to peer"),
            (libc::ENOMEM, "dmesg"),
        ] {
            fake::fail(number);
            let error = register(true, &region, Addressing::ZeroBased).unwrap_err().to_string();
            let cause = std::io::Error::from_raw_os_error(number).to_string();
            assert!(error.starts_with("registering 5000 bytes of a dma-buf with fake0: "), "{error}");
            assert!(error.contains(&cause) && error.contains(remedy) && error.contains("memory=heap"), "{error}");
        }
    }

    #[test]
    fn library_without_dmabufs_is_reported_with_the_version() {
        let (region, _) = fake::exported_region(16 << 10);
        let error = register(false, &region, Addressing::ZeroBased).unwrap_err().to_string();
        assert!(error.contains("fake0") && error.contains("version 34 or later"), "{error}");
    }

    #[test]
    fn memory_without_address_or_dmabuf_is_refused() {
        let region = fake::unexported_region(16 << 10);
        let error = register(true, &region, Addressing::ZeroBased).unwrap_err().to_string();
        assert!(error.contains("heap, huge, memfd, file") && error.contains("dmabuf, cuda"), "{error}");
        assert!(fake::registered().is_empty());
    }

    #[test]
    fn range_outside_device_memory_never_reaches_the_device() {
        let (region, _) = fake::exported_region(8 << 10);
        let error = register(true, &region, Addressing::ZeroBased).unwrap_err();
        assert!(matches!(error, VerbsError::Register(_)), "{error}");
        assert!(fake::registered().is_empty());
    }
}
