//! Memory of this process for endpoints, and its registrations.

use super::endpoint::{ENDPOINTS, shotline_endpoint};
use crate::arguments::{self, Out};
use crate::handles::Handles;
use crate::status::{Failure, call, shotline_status};
use shotline_library::endpoint::{LocalRegion, Memory, rights};
use std::ffi::{c_char, c_void};

/// Handle of memory for registrations and for targets. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_memory {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Handle of memory that is registered at an endpoint. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_region {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Keys of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_region_info {
    /// Address of the first byte for requests (shotline_sge), which is not an address of the process.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Local key.
    pub lkey: u32,
    /// Remote key, for the target.
    pub rkey: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u64; 4],
}

pub(super) static MEMORIES: Handles<Memory> = Handles::new("memory");
static REGIONS: Handles<LocalRegion> = Handles::new("region");

/// Allocates memory that endpoints can use, filled with zeros.
///
/// length: in bytes.
/// kind: "heap", "huge", "memfd" or "file=PATH"; NULL for "heap". `shotline list` explains them.
/// memory: receives the handle; on failure one with the id 0.
/// address: receives the address in this process.
///
/// Lifetime: until shotline_memory_free(), and as long as a registration, a target or a request uses it. Then the use of the
/// address is undefined behaviour. Threads: any. Errors: INVALID_ARGUMENT, IO (not enough memory).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_memory_allocate(
    length: usize,
    kind: *const c_char,
    memory: *mut shotline_memory,
    address: *mut *mut c_void,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, address) = unsafe { (Out::new(memory, "memory")?, Out::new(address, "address")?) };
        out.set(shotline_memory { id: 0 });
        // SAFETY: as above.
        let kind = unsafe { arguments::utf8_or(kind, "heap", "kind") }?;
        let memory = Memory::allocate(length, kind)?;
        address.set(memory.region().address(0, length).cast());
        out.set(shotline_memory { id: MEMORIES.insert(memory) });
        Ok(())
    })
}

/// Frees memory once no registration, target or request uses it any more.
///
/// Threads: any. Errors: CLOSED if it is freed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_memory_free(memory: shotline_memory) -> shotline_status {
    call(|| MEMORIES.remove(memory.id).map(drop))
}

/// Registers memory at an endpoint, for its requests.
///
/// access: rights of the target: "" (none; NULL means the same), "r", "w", "rw" or "atomic".
/// region: receives the handle; on failure one with the id 0.
/// info: receives the keys; may be NULL.
///
/// Lifetime: the keys are valid until shotline_region_close(), or until the endpoint is closed. Threads: any.
/// Errors: INVALID_ARGUMENT, UNSUPPORTED (the provider cannot), IO, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_register(
    endpoint: shotline_endpoint,
    memory: shotline_memory,
    access: *const c_char,
    region: *mut shotline_region,
    info: *mut shotline_region_info,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, info) = unsafe { (Out::new(region, "region")?, Out::optional(info, "info")?) };
        out.set(shotline_region { id: 0 });
        // SAFETY: as above.
        let access = rights(unsafe { arguments::utf8_or(access, "", "access") }?)?;
        let (endpoint, memory) = (ENDPOINTS.get(endpoint.id)?, MEMORIES.get(memory.id)?);
        let region = endpoint.register((*memory).clone(), access)?;
        info.inspect(|info| {
            info.set(shotline_region_info {
                address: region.address(),
                length: memory.len() as u64,
                lkey: region.lkey(),
                rkey: region.rkey(),
                reserved: [0; 4],
            });
        });
        out.set(shotline_region { id: REGIONS.insert(region) });
        Ok(())
    })
}

/// Ends a registration: its keys are invalid from now on. Requests that were posted before still complete.
///
/// Threads: any. Errors: CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_region_close(region: shotline_region) -> shotline_status {
    call(|| Ok::<_, Failure>(REGIONS.remove(region.id)?.close()?))
}
