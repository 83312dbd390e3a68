//! Endpoints that are connected to a target.

use crate::arguments::{self, Out, OutArray};
use crate::handles::Handles;
use crate::status::{Failure, call, shotline_status};
use shotline_library::endpoint::{Initiator, RemoteRegion, rights, rights_name};
use std::ffi::{CStr, c_char, c_void};

/// Length of shotline_remote_region.name in bytes, with at least one zero at its end.
pub const SHOTLINE_REGION_NAME_BYTES: usize = 72;
/// Length of shotline_remote_region.rights in bytes, with at least one zero at its end.
pub const SHOTLINE_RIGHTS_BYTES: usize = 8;

/// Handle of an endpoint that is connected to a target: an initiator. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_endpoint {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Memory of a target, with its key for this connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_remote_region {
    /// Length in bytes.
    pub length: u64,
    /// Address of the first byte for requests, usually 0. It is not an address of the target's process.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Zero, for a field of later versions.
    pub reserved: u32,
    /// "r", "w", "rw" or "atomic", padded with zeros.
    pub rights: [c_char; SHOTLINE_RIGHTS_BYTES],
    /// Name, padded with zeros.
    pub name: [c_char; SHOTLINE_REGION_NAME_BYTES],
}

pub(super) static ENDPOINTS: Handles<Initiator> = Handles::new("endpoint");

/// Opens an endpoint and connects it to a target.
///
/// to: "HOST:PORT" of the target's control connection, or the path of its socket.
/// token: the token that the target printed: 32 hexadecimal digits.
/// transport: "soft", "shm", "ibverbs:DEVICE" or "spacefibre:lanes=4", as for `shotline perf`; NULL for "soft".
/// bind: local address, with or without a port; NULL for that of the route.
/// endpoint: receives the handle; on failure one with the id 0.
///
/// Lifetime: close the handle with shotline_endpoint_close(). Threads: any.
/// Errors: INVALID_ARGUMENT, REFUSED (wrong token), IO (the target cannot be reached), UNSUPPORTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_connect(
    to: *const c_char,
    token: *const c_char,
    transport: *const c_char,
    bind: *const c_char,
    endpoint: *mut shotline_endpoint,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(endpoint, "endpoint") }?;
        out.set(shotline_endpoint { id: 0 });
        // SAFETY: as above.
        let (to, token, transport, bind) = unsafe {
            (
                arguments::utf8(to, "to")?,
                arguments::utf8(token, "token")?,
                arguments::utf8_or(transport, "soft", "transport")?,
                if bind.is_null() { None } else { Some(arguments::utf8(bind, "bind")?) },
            )
        };
        let endpoint = Initiator::connect(to, token, transport, bind)?;
        out.set(shotline_endpoint { id: ENDPOINTS.insert(endpoint) });
        Ok(())
    })
}

/// Ends the connection and closes the endpoint: its keys and queue pairs end at both ends. Threads that wait for completions
/// fail with CLOSED, and so do all later calls with what belongs to the endpoint.
///
/// Threads: any. Errors: CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_close(endpoint: shotline_endpoint) -> shotline_status {
    call(|| {
        ENDPOINTS.remove(endpoint.id)?.close();
        Ok(())
    })
}

/// Reads the regions of the target.
///
/// regions: receives the regions; NULL to store only their number.
/// capacity: structures at `regions`; 0 if it is NULL.
/// count: receives the number of regions, also if the buffer is too small.
///
/// Threads: any. Errors: BUFFER_TOO_SMALL, REFUSED, IO, ENDED (the target has ended), CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_read_regions(
    endpoint: shotline_endpoint,
    regions: *mut shotline_remote_region,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(regions, capacity, "regions")?, Out::new(count, "count")?) };
        let endpoint = ENDPOINTS.get(endpoint.id)?;
        let all = endpoint.regions()?;
        count.set(all.len());
        if regions.is_null() { Ok(()) } else { out.fill(all.iter().map(shotline_remote_region::from), "regions") }
    })
}

/// Finds a region of the target by its name.
///
/// Threads: any. Errors: NOT_FOUND (no region of this name), REFUSED, IO, ENDED, CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_find_region(
    endpoint: shotline_endpoint,
    name: *const c_char,
    region: *mut shotline_remote_region,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (name, out) = unsafe { (arguments::utf8(name, "name")?, Out::new(region, "region")?) };
        let endpoint = ENDPOINTS.get(endpoint.id)?;
        let all = endpoint.regions()?;
        let found = all.iter().find(|region| region.name == name).ok_or_else(|| {
            let names = all.iter().map(|region| region.name.as_str()).collect::<Vec<_>>().join(", ");
            let words = format!("expected the name of a region of the target ({names}), found {name}");
            Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words)
        })?;
        out.set(found.into());
        Ok(())
    })
}

/// Reads bytes of a region of the target, of any length, into memory of the caller, and waits until they have arrived.
///
/// region: as shotline_endpoint_find_region() stores it.
/// offset: of the first byte in the region.
/// to: receives `length` bytes.
///
/// Threads: any; calls follow one another. Errors: INVALID_ARGUMENT (beyond the region), REFUSED (by the target), TIMEOUT (the
/// target does not answer: it dropped the request, or has stopped), ENDED (the target has ended), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_read(
    endpoint: shotline_endpoint,
    region: *const shotline_remote_region,
    offset: u64,
    to: *mut c_void,
    length: usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (region, mut to) = unsafe { (read_region(region)?, OutArray::<u8>::new(to.cast(), length, "to")?) };
        let to = to.slice(length, "bytes")?;
        Ok(ENDPOINTS.get(endpoint.id)?.read(&region, offset, to, &mut || false)?)
    })
}

/// Writes bytes of the caller, of any length, to a region of the target, and waits until they have arrived.
///
/// from: `length` bytes, which do not change during the call. Otherwise as shotline_endpoint_read().
///
/// Threads: any; calls follow one another. Errors: as for shotline_endpoint_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_endpoint_write(
    endpoint: shotline_endpoint,
    region: *const shotline_remote_region,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (region, from) =
            unsafe { (read_region(region)?, arguments::slice::<u8>(from.cast(), length as u64, "from")?) };
        Ok(ENDPOINTS.get(endpoint.id)?.write(&region, offset, from, &mut || false)?)
    })
}

/// Returns the region of the target that the caller passes.
///
/// # Safety
/// The contract of the header for the pointer.
unsafe fn read_region(region: *const shotline_remote_region) -> Result<RemoteRegion, Failure> {
    // SAFETY: as the caller guarantees.
    let region = unsafe { arguments::read(region, "region") }?
        .ok_or_else(|| Failure::argument("expected a pointer as argument `region`, found NULL"))?;
    let text = |bytes: &[c_char], what: &str| {
        let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
        let text = CStr::from_bytes_until_nul(&bytes).ok().and_then(|text| text.to_str().ok().map(str::to_owned));
        text.ok_or_else(|| Failure::argument(format!("expected UTF-8 with a zero at its end as {what} of a region")))
    };
    let rights = rights(&text(&region.rights, "rights")?)?;
    let shotline_remote_region { length, address, rkey, .. } = region;
    Ok(RemoteRegion { name: text(&region.name, "name")?, bytes: length, rights, address, rkey })
}

impl From<&RemoteRegion> for shotline_remote_region {
    fn from(region: &RemoteRegion) -> Self {
        let mut found = Self {
            length: region.bytes,
            address: region.address,
            rkey: region.rkey,
            reserved: 0,
            rights: [0; SHOTLINE_RIGHTS_BYTES],
            name: [0; SHOTLINE_REGION_NAME_BYTES],
        };
        // A name has at most 64 bytes and rights have 6: the last bytes stay zero.
        let copy = |to: &mut [c_char], text: &str| {
            let space = to.len() - 1;
            to.iter_mut().zip(text.bytes().take(space)).for_each(|(to, byte)| *to = byte as c_char);
        };
        copy(&mut found.rights, rights_name(region.rights));
        copy(&mut found.name, &region.name);
        found
    }
}
