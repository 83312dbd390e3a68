//! Targets in this process: memory that other programs read and write.

use super::memory::{MEMORIES, shotline_memory};
use crate::arguments::{self, Out, OutText};
use crate::handles::Handles;
use crate::status::{Failure, call, shotline_status};
use shotline_library::endpoint::{ServedRegion, ServedTarget, TargetOptions, rights};
use std::ffi::c_char;

/// Handle of a target in this process. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_target {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// A region of a target.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_served_region {
    /// Name: 1 to 64 letters, digits, '.', '_' and '-'.
    pub name: *const c_char,
    /// Rights of initiators: "r", "w", "rw" or "atomic".
    pub rights: *const c_char,
    /// Memory (shotline_memory_allocate).
    pub memory: shotline_memory,
}

/// Options of a target. Initialise it with SHOTLINE_ZERO: NULL and zeros mean the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_target_options {
    /// "soft", "ibverbs:DEVICE" or "spacefibre", as for `shotline target`; NULL: "soft".
    pub transport: *const c_char,
    /// Local address of the memory's traffic, with or without a port; NULL: loopback, any port.
    pub bind: *const c_char,
    /// Address of control connections; NULL: loopback, any port.
    pub listen: *const c_char,
    /// Token, 32 hexadecimal digits; NULL: a random one.
    pub token: *const c_char,
    /// 1: answer invalid requests with a NAK and the error state; 0: drop them.
    pub strict_ib: u32,
    /// Maximum number of initiators at once; 0: the default.
    pub initiators: u32,
    /// Must be zero.
    pub reserved: [u64; 4],
}

/// State of a target.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_target_state {
    /// Initiators that are connected.
    pub initiators: u64,
    /// Initiators since the start.
    pub welcomed: u64,
    /// Connections that were refused for a wrong token.
    pub wrong_token: u64,
    /// WRITEs of initiators to all regions. This and the following are 0 if the provider does not count them.
    pub writes: u64,
    /// Bytes of these.
    pub bytes_in: u64,
    /// READs of initiators from all regions.
    pub reads: u64,
    /// Bytes of these.
    pub bytes_out: u64,
    /// Atomic operations of initiators.
    pub atomics: u64,
    /// Zero, for fields of later versions.
    pub reserved: [u64; 4],
}

static TARGETS: Handles<ServedTarget> = Handles::new("target");

/// Serves memory to initiators, on a thread of the library, until the target is closed.
///
/// regions: `count` regions; their memory stays as long as the target.
/// options: NULL for the defaults.
/// target: receives the handle; on failure one with the id 0.
///
/// Lifetime: close it with shotline_target_close(). Threads: any. Initiators change the memory at any time: the program
/// reads it as memory that another thread writes. Errors: INVALID_ARGUMENT, IO (an address is in use), UNSUPPORTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_target_serve(
    regions: *const shotline_served_region,
    count: usize,
    options: *const shotline_target_options,
    target: *mut shotline_target,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(target, "target")? };
        out.set(shotline_target { id: 0 });
        // SAFETY: as above.
        let (regions, options) = unsafe {
            let options = arguments::read(options, "options")?;
            let regions = arguments::array(regions, count as u64, "regions")?;
            let regions: Result<Vec<_>, _> = regions.iter().map(|region| served(region)).collect();
            (regions?, options.map_or(Ok(TargetOptions::default()), |options| resolved(&options))?)
        };
        let target = ServedTarget::serve(regions, &options)?;
        out.set(shotline_target { id: TARGETS.insert(target) });
        Ok(())
    })
}

/// Copies a text about a target.
///
/// name: "address": HOST:PORT for initiators; or "token".
/// text, capacity, length: as for shotline_run_get_text().
///
/// Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_target_get_text(
    target: shotline_target,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (mut out, name) = unsafe { (OutText::new(text, capacity, length)?, arguments::text(name, "name")?) };
        let target = TARGETS.get(target.id)?;
        match name.to_string_lossy().as_ref() {
            "address" => out.set(&target.address().to_string()),
            "token" => out.set(&target.token().to_string()),
            other => {
                let words = format!("expected a text of a target (address or token), found {other:?}");
                Err(Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words))
            }
        }
    })
}

/// Stores the state of a target.
///
/// Threads: any. Errors: IO (its endpoint has failed), CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_target_get_state(
    target: shotline_target,
    state: *mut shotline_target_state,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(state, "state") }?;
        let state = TARGETS.get(target.id)?.state()?;
        let mut found = shotline_target_state {
            initiators: state.initiators as u64,
            welcomed: state.welcomed,
            wrong_token: state.wrong_token,
            writes: 0,
            bytes_in: 0,
            reads: 0,
            bytes_out: 0,
            atomics: 0,
            reserved: [0; 4],
        };
        for usage in state.usage.iter().flatten() {
            found.writes += usage.writes;
            found.bytes_in += usage.bytes_in;
            found.reads += usage.reads;
            found.bytes_out += usage.bytes_out;
            found.atomics += usage.atomics;
        }
        out.set(found);
        Ok(())
    })
}

/// Disconnects all initiators, and closes the target.
///
/// Threads: any. Errors: IO (its endpoint has failed before; the handle is closed), CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_target_close(target: shotline_target) -> shotline_status {
    call(|| Ok::<_, Failure>(TARGETS.remove(target.id)?.close()?))
}

/// Returns a region that the caller passes.
///
/// # Safety
/// The contract of the header for its pointers.
unsafe fn served(region: &shotline_served_region) -> Result<ServedRegion, Failure> {
    // SAFETY: the caller guarantees it.
    let (name, letters) = unsafe {
        (arguments::utf8(region.name, "regions.name")?.to_owned(), arguments::utf8(region.rights, "regions.rights")?)
    };
    let memory = (*MEMORIES.get(region.memory.id)?).clone();
    Ok(ServedRegion { name, memory, rights: rights(letters)? })
}

/// Replaces NULL and zeros by the defaults.
///
/// # Safety
/// The contract of the header for the pointers.
unsafe fn resolved(options: &shotline_target_options) -> Result<TargetOptions, Failure> {
    if options.reserved != [0; 4] {
        let words = "expected zeros in `reserved` of the options, found others: initialise them with SHOTLINE_ZERO";
        return Err(Failure::argument(words));
    }
    let text = |from: *const c_char, name| {
        // SAFETY: the caller guarantees it.
        let given = if from.is_null() { None } else { Some(unsafe { arguments::utf8(from, name) }?.to_owned()) };
        Ok::<_, Failure>(given)
    };
    let default = TargetOptions::default();
    Ok(TargetOptions {
        transport: text(options.transport, "options.transport")?.unwrap_or(default.transport),
        bind: text(options.bind, "options.bind")?,
        listen: text(options.listen, "options.listen")?,
        token: text(options.token, "options.token")?,
        strict_ib: options.strict_ib != 0,
        initiators: match options.initiators {
            0 => default.initiators,
            initiators => initiators as usize,
        },
    })
}
