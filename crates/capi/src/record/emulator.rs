//! Emulated probes in this process.

use super::settings::parse_json;
use crate::arguments::{self, Out, OutText};
use crate::handles::Handles;
use crate::status::{Failure, call, shotline_status};
use serde_json::{Map, Value};
use shotline_instrument::probe::{Config, GivenShots};
use shotline_library::Emulator as Handle;
use std::ffi::c_char;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Handle of an emulated probe in this process. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_emulator {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// Samples for an emulated probe to send, the shots in turn.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_given_shots {
    /// Samples in the order shot, sample, channel, with the channels of all links side by side. They are copied.
    pub samples: *const i16,
    /// Number of shots.
    pub shots: u32,
    /// Samples per channel of one shot.
    pub samples_per_channel: u32,
    /// Channels of all links together.
    pub channels: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// An emulated probe.
pub(super) struct Emulator {
    handle: Handle,
    /// Set once the counters are final.
    stopped: AtomicBool,
}

pub(super) static EMULATORS: Handles<Emulator> = Handles::new("emulator");

impl Emulator {
    /// Ends the probe, and returns its final counters.
    pub(super) fn close(&self) -> Result<String, Failure> {
        let counters = self.handle.close()?;
        self.stopped.store(true, Ordering::Release);
        json(&counters)
    }

    /// Returns the counters so far.
    fn counters(&self) -> Result<String, Failure> {
        if self.stopped.load(Ordering::Acquire) { self.close() } else { json(&self.handle.state()?.counters) }
    }
}

/// Starts an emulated ultrasound probe, which receivers set up as a real one.
///
/// config: a JSON object; what is absent has its default. NULL: all defaults. "links": 2, "channels": 96 of each link (or those
/// of `given`), "samples": 2000 per channel (or those of `given`), "packing": "packed12_msb_first", "int16_le", "int16_be" or
/// "uint8", "bits": all bits of the packing, "sample_rate_hz": 40000000, "input": an HDF5 file with radio-frequency data,
/// "phantom": {} for the echoes of a phantom, "free_running": pace of a free-running receiver: "device", "max" or
/// {"rate": shots per second}, "trigger_hz": frequency of the trigger input, "faults": {"loss": 0.0, "duplicate": 0.0, "reorder":
/// 0.0, "corrupt": 0.0} as probabilities, "first_shot": 0, "seed": of faults and random numbers.
/// listen: address and port for set-up messages, where port 0 selects a free one; NULL for "[::1]:0".
/// given: samples to send; NULL: those of "input" or "phantom", else test patterns, which `shotline verify` checks.
/// emulator: receives the handle; on failure one with the id 0.
///
/// Lifetime: close the handle with shotline_emulator_close(). Threads: any.
/// Errors: INVALID_ARGUMENT (the message names what is wrong), IO (the port is not available, the input not readable).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_emulator_start(
    config: *const c_char,
    listen: *const c_char,
    given: *const shotline_given_shots,
    emulator: *mut shotline_emulator,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(emulator, "emulator") }?;
        out.set(shotline_emulator { id: 0 });
        // SAFETY: as above.
        let (text, listen, given) = unsafe {
            let config = if config.is_null() { "{}" } else { arguments::utf8(config, "config")? };
            let listen = if listen.is_null() { "[::1]:0" } else { arguments::utf8(listen, "listen")? };
            (config, listen, arguments::read(given, "given")?)
        };
        let listen: SocketAddr = listen.parse().map_err(|_| {
            Failure::argument(format!("expected an address and a port such as [::1]:0 as `listen`, found {listen}"))
        })?;
        let mut config = configuration(text, given.as_ref())?;
        if let Some(given) = given {
            // SAFETY: as above.
            config.given = Some(Arc::new(unsafe { given_shots(&given, &config) }?));
        }
        let handle = Handle::start(config, listen)?;
        out.set(shotline_emulator { id: EMULATORS.insert(Emulator { handle, stopped: AtomicBool::new(false) }) });
        Ok(())
    })
}

/// Copies a text about an emulated probe.
///
/// name: "address": address of the set-up port, for the setting `probe`. Or "counters": as a JSON object those of the report of
/// `shotline emulate probe --json`, at most 100 ms old; final after shotline_emulator_stop().
/// text, capacity, length: as for shotline_run_get_text().
///
/// Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT; IO if the
/// probe has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_emulator_get_text(
    emulator: shotline_emulator,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (mut out, name) = unsafe { (OutText::new(text, capacity, length)?, arguments::text(name, "name")?) };
        let emulator = EMULATORS.get(emulator.id)?;
        let text = match name.to_string_lossy().as_ref() {
            "address" => emulator.handle.address().to_string(),
            "counters" => emulator.counters()?,
            other => {
                let words = format!("expected a text of an emulator (address or counters), found {other:?}");
                return Err(Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words));
            }
        };
        out.set(&text)
    })
}

/// Ends an emulated probe, and waits for its end. Its texts stay until it is closed. A second call does nothing.
///
/// Threads: any. Errors: IO (it has failed before), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_emulator_stop(emulator: shotline_emulator) -> shotline_status {
    call(|| EMULATORS.get(emulator.id)?.close().map(drop))
}

/// Ends an emulated probe, and closes its handle.
///
/// Threads: any. Errors: IO (the probe has failed before; the handle is closed), CLOSED if it is closed already, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_emulator_close(emulator: shotline_emulator) -> shotline_status {
    call(|| EMULATORS.remove(emulator.id)?.close().map(drop))
}

/// Parses the settings of a probe, with the defaults that follow from others.
fn configuration(text: &str, given: Option<&shotline_given_shots>) -> Result<Config, Failure> {
    let mut config: Config = parse_json(text)?;
    let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    if !keys.contains_key("bits") {
        config.bits = config.packing.bits_per_sample() as u8;
    }
    if let (Some(given), false) = (given, keys.contains_key("channels")) {
        let channels = given.channels.checked_div(config.links.into()).and_then(|each| u16::try_from(each).ok());
        config.channels = channels.ok_or_else(|| {
            let Config { links, .. } = config;
            Failure::argument(format!("expected channels of {links} links in `given`, found {}", given.channels))
        })?;
    }
    Ok(config)
}

/// Copies the samples that a program passes.
///
/// # Safety
/// The contract of the header for the address in the structure.
unsafe fn given_shots(given: &shotline_given_shots, config: &Config) -> Result<GivenShots, Failure> {
    let shotline_given_shots { samples, shots, samples_per_channel, channels, reserved } = *given;
    if reserved != 0 {
        return Err(Failure::argument(
            "expected zero in `reserved` of the given shots, found another value: initialise them with SHOTLINE_ZERO",
        ));
    }
    let count =
        [samples_per_channel, channels].iter().try_fold(u64::from(shots), |all, axis| all.checked_mul((*axis).into()));
    // SAFETY: the caller guarantees it.
    let samples = unsafe { arguments::slice(samples, count.unwrap_or(u64::MAX), "given.samples") }?.to_vec();
    let shape = (shots, samples_per_channel, channels as usize);
    GivenShots::new(samples, shape, config.bits, config.packing).map_err(|error| Failure::argument(error.to_string()))
}

fn json(counters: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(counters).map_err(|error| Failure::argument(error.to_string()))
}
