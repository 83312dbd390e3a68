//! Requests to a probe.

use crate::arguments::{self, Out};
use crate::handles::Handles;
use crate::run::properties::shotline_packing;
use crate::status::{Failure, call, shotline_status};
use shotline_acquire::config::peer;
use shotline_library::Probe;
use shotline_wire::setup::{Describe, Report};
use std::ffi::c_char;

/// Length of shotline_probe_description.model in bytes, with at least one zero at its end.
pub const SHOTLINE_MODEL_BYTES: usize = 40;

/// Handle of a probe that takes set-up, real or emulated. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_probe {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Properties of a probe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_probe_description {
    /// Number of links.
    pub links: u32,
    /// Channels of each link.
    pub channels: u32,
    /// Resolution of a sample in bits.
    pub bits: u32,
    /// Format of samples on the wire: one of shotline_packing.
    pub packing: u32,
    /// Samples per second of each channel.
    pub sample_rate_hz: u32,
    /// Maximum number of samples per channel of a shot.
    pub max_samples: u32,
    /// Name of the model, padded with zeros.
    pub model: [c_char; SHOTLINE_MODEL_BYTES],
    /// Zero, for fields of later versions.
    pub reserved: [u32; 8],
}

/// State and counters of a link of a probe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_probe_status {
    /// Number of the next shot.
    pub next_shot: u64,
    /// Shots sent.
    pub shots_sent: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Triggers that arrived while the probe could not acquire a shot.
    pub triggers_missed: u64,
    /// Number of the link.
    pub link: u32,
    /// 1 while shots are being sent; else 0.
    pub running: u32,
    /// 1 if another receiver controls the probe; else 0.
    pub owned_by_other: u32,
    /// Packets that an emulated probe has deliberately dropped.
    pub lost: u32,
    /// Packets that it has deliberately sent twice.
    pub duplicated: u32,
    /// Packets that it has deliberately sent out of order.
    pub reordered: u32,
    /// Packets with a deliberately changed bit.
    pub corrupted: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u32; 9],
}

static PROBES: Handles<Probe> = Handles::new("probe");

/// Opens a socket for requests to a probe, which gets none yet. Each request is repeated until it is answered, for at most
/// 6.3 s.
///
/// address: address or name, and port of its set-up port, for example "[::1]:47910".
/// take_over: 0, or 1 to override another receiver that controls the probe.
/// probe: receives the handle; on failure one with the id 0.
///
/// Lifetime: close the handle with shotline_probe_close(). Threads: any. Errors: INVALID_ARGUMENT (no address), IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_open(
    address: *const c_char,
    take_over: i32,
    probe: *mut shotline_probe,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, address) = unsafe { (Out::new(probe, "probe")?, arguments::utf8(address, "address")) };
        out.set(shotline_probe { id: 0 });
        let probe = Probe::open(peer(address?)?, take_over != 0)?;
        out.set(shotline_probe { id: PROBES.insert(probe) });
        Ok(())
    })
}

/// Queries the properties of a probe.
///
/// Threads: any; requests of several threads follow one another. Errors: TIMEOUT (it does not answer), CLOSED, FORKED,
/// INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_describe(
    probe: shotline_probe,
    description: *mut shotline_probe_description,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(description, "description") }?;
        out.set((&PROBES.get(probe.id)?.describe()?).into());
        Ok(())
    })
}

/// Queries the state and the counters of a link of a probe.
///
/// link: number of the link, from 0.
///
/// Threads: any. Errors: TIMEOUT (the probe does not answer), REFUSED (it has no such link), CLOSED, FORKED,
/// INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_get_status(
    probe: shotline_probe,
    link: u32,
    status: *mut shotline_probe_status,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(status, "status") }?;
        let probe = PROBES.get(probe.id)?;
        let link = u8::try_from(link)
            .map_err(|_| Failure::argument(format!("expected a link below {}, found {link}", u8::MAX)))?;
        out.set((&probe.status(link)?).into());
        Ok(())
    })
}

/// Sends a trigger command to a probe.
///
/// command_only: 0, or 1 to check only that the command would be accepted.
/// shot: receives the number of the shot that it starts; may be NULL.
///
/// Threads: any. Errors: TIMEOUT (the probe does not answer), REFUSED (it does not accept the command, for example during a
/// shot), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_trigger(
    probe: shotline_probe,
    command_only: i32,
    shot: *mut u64,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::optional(shot, "shot") }?;
        let shot = PROBES.get(probe.id)?.trigger(command_only != 0)?;
        out.inspect(|out| out.set(shot));
        Ok(())
    })
}

/// Makes a probe stop sending after the shot in progress.
///
/// Threads: any. Errors: TIMEOUT (it does not answer), REFUSED (another receiver controls it), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_stop(probe: shotline_probe) -> shotline_status {
    call(|| Ok(PROBES.get(probe.id)?.stop().map(drop)?))
}

/// Closes the handle of a probe, which continues what it does. Requests in progress are completed.
///
/// Threads: any. Errors: CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_probe_close(probe: shotline_probe) -> shotline_status {
    call(|| PROBES.remove(probe.id).map(drop))
}

impl From<&Describe> for shotline_probe_description {
    fn from(found: &Describe) -> Self {
        let mut model = [0; SHOTLINE_MODEL_BYTES];
        // A model has at most 32 characters: the last byte stays zero.
        let bytes = found.model.bytes().take(SHOTLINE_MODEL_BYTES - 1);
        model.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte as c_char);
        Self {
            links: found.links.into(),
            channels: found.channels.into(),
            bits: found.bits.into(),
            packing: shotline_packing::from(found.packing) as u32,
            sample_rate_hz: found.sample_rate_hz,
            max_samples: found.max_samples,
            model,
            reserved: [0; 8],
        }
    }
}

impl From<&Report> for shotline_probe_status {
    fn from(found: &Report) -> Self {
        Self {
            next_shot: found.next_shot,
            shots_sent: found.shots_sent,
            packets_sent: found.packets_sent,
            triggers_missed: found.triggers_missed,
            link: found.link.into(),
            running: found.running.into(),
            owned_by_other: found.is_owned_by_other.into(),
            lost: found.lost,
            duplicated: found.duplicated,
            reordered: found.reordered,
            corrupted: found.corrupted,
            reserved: [0; 9],
        }
    }
}
