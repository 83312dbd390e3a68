//! Properties of runs and of their links.

use super::handle::{check_link, shotline_run, with};
use crate::arguments::{self, Out, OutText};
use crate::status::{Failure, call, shotline_status};
use shotline_library::reading::about;
use shotline_wire::shot::{Geometry, Packing};
use std::ffi::c_char;

/// Format of the samples in a slot.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum shotline_packing {
    /// 16-bit little-endian integers.
    SHOTLINE_PACKING_INT16_LE = 0,
    /// 12-bit two's complement, most significant bit first: two samples in three bytes.
    SHOTLINE_PACKING_PACKED12_MSB_FIRST = 1,
    /// Unsigned bytes.
    SHOTLINE_PACKING_UINT8 = 2,
    /// 16-bit big-endian integers.
    SHOTLINE_PACKING_INT16_BE = 3,
}

/// Properties of a run.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_run_info {
    /// Visible rows, as shotline_run_rows() stores them.
    pub rows: u64,
    /// Rows for which space is allocated.
    pub allocated_rows: u64,
    /// Start of the run in TAI nanoseconds since 1970, by the recorder's clock.
    pub start_tai_ns: u64,
    /// The same in UTC nanoseconds. Equal to start_tai_ns if the machine's TAI offset was not set.
    pub start_utc_ns: u64,
    /// Number of links.
    pub links: u32,
    /// 1 if the shots of all links have the same shape, so that SHOTLINE_ALL_LINKS reads them side by side; else 0.
    pub joined: u32,
    /// 1 if the run was closed in order and has final counters; 0 if it is in progress or was interrupted.
    pub finished: u32,
    /// 1 if a row joins shots of one time, whose numbers differ between links; 0 if all shots of a row have one number.
    pub aligned_by_stamp: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u64; 8],
}

/// Properties of a link: the shape of its shots and the layout of a slot. shotline_run_get_link_text() has its name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_link {
    /// Stream number, which shotline_loss and shotline_counter refer to.
    pub stream: u32,
    /// Channels.
    pub channels: u32,
    /// Samples per channel of one shot.
    pub samples: u32,
    /// Resolution of a sample in bits.
    pub bits: u32,
    /// Format of the samples in a slot: one of shotline_packing.
    pub packing: u32,
    /// Bytes of an unpacked sample: 2 (shotline_run_read_int16) or 1 (shotline_run_read_uint8).
    pub element_bytes: u32,
    /// Samples per second of each channel; 0 if unknown.
    pub sample_rate_hz: u32,
    /// Packets of a complete shot.
    pub packets: u32,
    /// Bytes of a presence map: one bit for each packet.
    pub presence_bytes: u32,
    /// Length of the packed samples in bytes, without padding.
    pub sample_bytes: u32,
    /// Offset of the trailer in bytes: the length of samples and padding.
    pub trailer_offset: u32,
    /// Length of a shot in bytes: samples, padding and trailer.
    pub shot_bytes: u32,
    /// Length of a slot in bytes, a multiple of 4096; zeros follow the shot.
    pub slot_bytes: u32,
    /// Zero, for fields of later versions.
    pub reserved: [u32; 11],
}

/// Stores the properties of a run.
///
/// Threads: any. Errors: CLOSED, INVALID_ARGUMENT, IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_get_info(run: shotline_run, info: *mut shotline_run_info) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let info = unsafe { Out::new(info, "info") }?;
        info.set(with(run, |recording| {
            let about = recording.run();
            Ok(shotline_run_info {
                rows: recording.rows(),
                allocated_rows: recording.allocated_rows(),
                start_tai_ns: about.start_tai_ns,
                start_utc_ns: about.start_utc_ns,
                links: about.links.len() as u32,
                joined: about.joined().into(),
                finished: recording.final_counters()?.is_some().into(),
                aligned_by_stamp: about.by_stamp.into(),
                reserved: [0; 8],
            })
        })?);
        Ok(())
    })
}

/// Copies a text about the run.
///
/// name: "run_id", "software", "instrument", "notes", "operator", "host", "framing" or "config", as the attributes of the
/// file; or "json": all properties of the run and its links as one JSON object.
/// text: receives the text with a zero byte at its end; NULL to store only the length.
/// capacity: bytes at `text`; 0 if it is NULL.
/// length: receives the length of the text without the zero byte, also if the buffer is too small; may be NULL.
///
/// Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_get_text(
    run: shotline_run,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (mut out, name) = unsafe { (OutText::new(text, capacity, length)?, arguments::text(name, "name")?) };
        let name = name.to_string_lossy();
        let text = with(run, |recording| {
            let run = recording.run();
            Ok(match name.as_ref() {
                "run_id" => run.run_id.clone(),
                "software" => run.software.clone(),
                "instrument" => run.instrument.clone(),
                "notes" => run.notes.clone(),
                "operator" => run.operator.clone(),
                "host" => run.host.clone(),
                "framing" => run.framing.clone(),
                "config" => run.config.clone(),
                "json" => about(recording).to_string(),
                other => {
                    return Err(not_found(format!(
                        "expected a text of a run (run_id, software, instrument, notes, operator, host, framing, config or json), found {other:?}"
                    )));
                }
            })
        })?;
        out.set(&text)
    })
}

/// Stores the properties of a link.
///
/// link: index of the link, from 0.
///
/// Threads: any. Errors: CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_get_link(
    run: shotline_run,
    link: u32,
    properties: *mut shotline_link,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let properties = unsafe { Out::new(properties, "properties") }?;
        properties.set(with(run, |recording| {
            let link = &recording.run().links[check_link(recording, link)?];
            Ok(shotline_link::new(link.stream, &link.geometry))
        })?);
        Ok(())
    })
}

/// Copies a text about a link.
///
/// link: index of the link, from 0.
/// name: "name"; "packing" (int16_le, int16_be, packed12_msb_first, uint8); or "trailer", the data after the samples
/// (record, hsb_metadata, block, context, none).
/// text, capacity, length: as for shotline_run_get_text().
///
/// Threads: any. Errors: NOT_FOUND (no text of this name), BUFFER_TOO_SMALL, CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_get_link_text(
    run: shotline_run,
    link: u32,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (mut out, name) = unsafe { (OutText::new(text, capacity, length)?, arguments::text(name, "name")?) };
        let name = name.to_string_lossy();
        let text = with(run, |recording| {
            let link = &recording.run().links[check_link(recording, link)?];
            match name.as_ref() {
                "name" => Ok(link.name.clone()),
                "packing" => Ok(link.geometry.packing().name().to_owned()),
                "trailer" => Ok(link.geometry.trailer().name().to_owned()),
                other => {
                    Err(not_found(format!("expected a text of a link (name, packing or trailer), found {other:?}")))
                }
            }
        })?;
        out.set(&text)
    })
}

fn not_found(words: String) -> Failure {
    Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words)
}

impl shotline_link {
    pub(crate) fn new(stream: u32, g: &Geometry) -> Self {
        Self {
            stream,
            channels: g.channels().into(),
            samples: g.samples(),
            bits: g.bits().into(),
            packing: shotline_packing::from(g.packing()) as u32,
            element_bytes: if g.packing() == Packing::Uint8 { 1 } else { 2 },
            sample_rate_hz: g.sample_rate_hz(),
            packets: g.packets(),
            presence_bytes: g.packets().div_ceil(8),
            sample_bytes: g.sample_bytes(),
            trailer_offset: g.trailer_offset(),
            shot_bytes: g.shot_bytes(),
            slot_bytes: g.slot_bytes(),
            reserved: [0; 11],
        }
    }
}

impl From<Packing> for shotline_packing {
    fn from(packing: Packing) -> Self {
        match packing {
            Packing::Int16Le => Self::SHOTLINE_PACKING_INT16_LE,
            Packing::Packed12 => Self::SHOTLINE_PACKING_PACKED12_MSB_FIRST,
            Packing::Uint8 => Self::SHOTLINE_PACKING_UINT8,
            Packing::Int16Be => Self::SHOTLINE_PACKING_INT16_BE,
        }
    }
}
