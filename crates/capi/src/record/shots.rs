//! Shots of a run in progress: their buffers are the pool's until they are released.

use crate::arguments::{Out, OutArray, Plain};
use crate::causes::SHOTLINE_MAX_CAUSES;
use crate::handles::Handles;
use crate::run::shots::{SHOTLINE_NO_NUMBER, shotline_shot, shotline_state};
use crate::status::{Failure, call, shotline_status};
use shotline_acquire::sink::Lent;
use shotline_library::samples::{Element, unpack};
use shotline_store::shot::{Shot, ShotMeta};
use shotline_wire::shot::Geometry;
use std::ffi::c_void;
use std::sync::Arc;

/// Handle of the shots of all links that belong together. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_shots {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// What is known of the shots of all links together.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_shots_info {
    /// Shot number, extended to 64 bits; that of the first link that has a shot, if links are aligned by stamp.
    pub number: u64,
    /// Number of links, also of those without a shot.
    pub links: u32,
    /// State of all links: complete if all are, lost if all are, else partial (shotline_state).
    pub state: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u64; 2],
}

/// Shots that the program holds.
pub(super) struct Shots {
    lent: Box<Lent>,
    geometry: Geometry,
    by_stamp: bool,
}

pub(super) static SHOTS: Handles<Shots> = Handles::closed_as("taken event", released);

fn released(_: &str) -> Failure {
    let words = "these shots are released: release them after their last use, or share them (shotline_shots_share)";
    Failure::new(shotline_status::SHOTLINE_ERROR_CLOSED, words)
}

impl Shots {
    pub(super) fn new(lent: Box<Lent>, geometry: Geometry, by_stamp: bool) -> Self {
        Self { lent, geometry, by_stamp }
    }

    /// Returns the shot of a link; none if no packet of it has arrived.
    fn shot(&self, link: u32) -> Result<Option<&Shot>, Failure> {
        let shots = &self.lent.event().shots;
        let shot = shots.get(usize::try_from(link).unwrap_or(usize::MAX));
        let absent = || Failure::argument(format!("expected a link below {}, found {link}", shots.len()));
        Ok(shot.ok_or_else(absent)?.as_ref())
    }

    fn describe(&self, shot: Option<&Shot>) -> shotline_shot {
        match shot {
            Some(shot) => received(&shot.meta, &self.geometry),
            None => {
                let number = if self.by_stamp { SHOTLINE_NO_NUMBER } else { self.lent.event().number };
                lost(number, &self.geometry)
            }
        }
    }

    fn info(&self) -> shotline_shots_info {
        use shotline_state::{SHOTLINE_STATE_COMPLETE, SHOTLINE_STATE_LOST, SHOTLINE_STATE_PARTIAL};
        let shots = &self.lent.event().shots;
        let complete = shots.iter().flatten().filter(|shot| shot.meta.is_complete()).count();
        let state = match complete {
            _ if shots.iter().all(Option::is_none) => SHOTLINE_STATE_LOST,
            all if all == shots.len() => SHOTLINE_STATE_COMPLETE,
            _ => SHOTLINE_STATE_PARTIAL,
        };
        let number = self.lent.event().number;
        shotline_shots_info { number, links: shots.len() as u32, state: state as u32, reserved: [0; 2] }
    }
}

/// Stores the number and the state of shots.
///
/// Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_get_info(
    shots: shotline_shots,
    info: *mut shotline_shots_info,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let info = unsafe { Out::new(info, "info") }?;
        info.set(SHOTS.get(shots.id)?.info());
        Ok(())
    })
}

/// Stores what is known of the shot of a link, as shotline_run_read_shots() reads it from the file. The file alone has
/// `slot_crc32`, which is 0 here.
///
/// link: index of the link, from 0. A link of which no packet has arrived has the state SHOTLINE_STATE_LOST.
///
/// Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_get_shot(
    shots: shotline_shots,
    link: u32,
    shot: *mut shotline_shot,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(shot, "shot") }?;
        let shots = SHOTS.get(shots.id)?;
        out.set(shots.describe(shots.shot(link)?));
        Ok(())
    })
}

/// Copies the presence map of the shot of a link: bit i % 8 of byte i / 8 is set if packet i is present.
///
/// link: index of the link, from 0. The map of a link of which no packet has arrived is all zeros.
/// presence: receives shotline_link.presence_bytes bytes.
/// capacity: bytes at `presence`.
///
/// Threads: any. Errors: BUFFER_TOO_SMALL, CLOSED (released), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_get_presence(
    shots: shotline_shots,
    link: u32,
    presence: *mut u8,
    capacity: usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let mut presence = unsafe { OutArray::new(presence, capacity, "presence") }?;
        let shots = SHOTS.get(shots.id)?;
        let shot = shots.shot(link)?;
        let map = presence.slice(shots.geometry.packets().div_ceil(8) as usize, "presence bytes")?;
        map.fill(0);
        let words = shot.iter().flat_map(|shot| shot.meta.presence.words());
        for (to, word) in map.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        }
        Ok(())
    })
}

/// Stores the address of the bytes of a link's shot in the pool, without a copy: the slot as on the wire, with zeros for
/// packets that did not arrive, then the trailer and zeros (shotline_link has the offsets).
///
/// link: index of the link, from 0.
/// data: receives the address, a multiple of 4096.
/// length: receives shotline_link.slot_bytes; may be NULL.
///
/// Lifetime: the bytes are valid until the last handle of the shots is released, also after the recorder is closed. Then
/// their use is undefined behaviour: the pool uses the memory for other shots. They must not be changed.
/// Threads: any. Errors: NOT_FOUND (no packet of the link has arrived), UNSUPPORTED (the pool is in memory of a device: use
/// shotline_shots_read_int16()), CLOSED (released), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_data(
    shots: shotline_shots,
    link: u32,
    data: *mut *const c_void,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (data, length) = unsafe { (Out::new(data, "data")?, Out::optional(length, "length")?) };
        let shots = SHOTS.get(shots.id)?;
        let buffer = match shots.shot(link)? {
            Some(shot) => &shot.buffer,
            None => {
                let words = format!("no packet of link {link} has arrived for this shot: see shotline_shot.state");
                return Err(Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words));
            }
        };
        if !buffer.is_mapped() {
            let words = "the pool is in memory of a device, which has no address in this process: use shotline_shots_read_int16()";
            return Err(Failure::new(shotline_status::SHOTLINE_ERROR_UNSUPPORTED, words));
        }
        data.set(buffer.address(0, buffer.len()).cast_const().cast());
        length.inspect(|length| length.set(buffer.len() as usize));
        Ok(())
    })
}

/// Unpacks the samples of a link's shot to 16 bits into memory of the caller: for links whose element_bytes is 2. Missing
/// packets read as zeros, and so does a link of which no packet has arrived.
///
/// link: index of the link, from 0.
/// samples: receives shotline_link.samples * channels elements, ordered by sample, then channel.
/// capacity: number of elements at `samples`.
///
/// Threads: any. Errors: INVALID_ARGUMENT (no such link, or 8-bit samples), BUFFER_TOO_SMALL, CLOSED (released), FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_read_int16(
    shots: shotline_shots,
    link: u32,
    samples: *mut i16,
    capacity: usize,
) -> shotline_status {
    // SAFETY: the contract of the header.
    call(|| unsafe { read_into(shots, link, samples, capacity) })
}

/// Copies unsigned bytes, for links whose element_bytes is 1; otherwise as shotline_shots_read_int16().
///
/// Threads: any. Errors: as for shotline_shots_read_int16().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_read_uint8(
    shots: shotline_shots,
    link: u32,
    samples: *mut u8,
    capacity: usize,
) -> shotline_status {
    // SAFETY: the contract of the header.
    call(|| unsafe { read_into(shots, link, samples, capacity) })
}

/// Stores another handle of the same shots, for example for another thread. Their buffers return to the pool when all
/// handles are released.
///
/// other: receives the handle; on failure one with the id 0.
///
/// Lifetime: release it with shotline_shots_release(). Threads: any. Errors: CLOSED (released), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_share(shots: shotline_shots, other: *mut shotline_shots) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let other = unsafe { Out::new(other, "other") }?;
        other.set(shotline_shots { id: 0 });
        let shots = SHOTS.get(shots.id)?;
        other.set(shotline_shots { id: SHOTS.insert_shared(shots) });
        Ok(())
    })
}

/// Releases shots: their buffers return to the pool, unless there are other handles (shotline_shots_share()). Calls with this
/// handle then fail with CLOSED, and addresses from shotline_shots_data() must not be used.
///
/// Threads: any. Errors: CLOSED if they are released already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_shots_release(shots: shotline_shots) -> shotline_status {
    call(|| SHOTS.remove(shots.id).map(drop::<Arc<Shots>>))
}

/// Unpacks the samples of a link's shot.
///
/// # Safety
/// The contract of the header for the pointer.
unsafe fn read_into<T: Element + Plain>(
    shots: shotline_shots,
    link: u32,
    samples: *mut T,
    capacity: usize,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let mut out = unsafe { OutArray::new(samples, capacity, "samples") }?;
    let shots = SHOTS.get(shots.id)?;
    let (shot, geometry) = (shots.shot(link)?, &shots.geometry);
    if !T::supports(geometry.packing()) {
        let words = "expected int16 for 12- and 16-bit samples and uint8 for 8-bit samples, found the other type";
        return Err(Failure::argument(words));
    }
    let out = out.slice(geometry.samples() as usize * usize::from(geometry.channels()), "elements")?;
    match shot {
        Some(shot) => unpack(geometry.packing(), &shot.buffer, out),
        None => out.fill(T::default()),
    }
    Ok(())
}

/// Returns the description of a shot of which packets have arrived.
fn received(meta: &ShotMeta, geometry: &Geometry) -> shotline_shot {
    let state = if meta.is_complete() {
        shotline_state::SHOTLINE_STATE_COMPLETE
    } else {
        shotline_state::SHOTLINE_STATE_PARTIAL
    };
    let mut drops = [0; SHOTLINE_MAX_CAUSES];
    for (cause, count) in meta.drops.iter() {
        drops[cause as usize] = u32::try_from(count).unwrap_or(u32::MAX);
    }
    shotline_shot {
        stamp_tai_ns: meta.stamp_tai_ns,
        arrived_tai_ns: meta.arrived_tai_ns,
        completed_tai_ns: meta.completed_tai_ns,
        state: state as u32,
        valid_bytes: meta.valid_bytes,
        placed: meta.presence.received(),
        flags: meta.flags.into(),
        record_good: meta.record_good.into(),
        drops,
        ..lost(meta.number, geometry)
    }
}

/// Returns the description of a shot of which no packet has arrived.
fn lost(number: u64, geometry: &Geometry) -> shotline_shot {
    shotline_shot {
        number,
        stamp_tai_ns: 0,
        arrived_tai_ns: 0,
        completed_tai_ns: 0,
        state: shotline_state::SHOTLINE_STATE_LOST as u32,
        valid_bytes: 0,
        packets: geometry.packets(),
        placed: 0,
        flags: 0,
        record_good: 0,
        slot_crc32: 0,
        row_good: 1,
        drops: [0; SHOTLINE_MAX_CAUSES],
        reserved: [0; 4],
    }
}
