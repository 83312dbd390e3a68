//! Bindings of `shim.h`, and safe owners of its objects.

use shotline_memory::DeviceMemory;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;

/// Maximum frames of one burst.
pub const BURST: usize = 32;
/// Fault flag: longer than the maximum packet. The other flag is a checksum that the device found wrong.
pub const TOO_LONG: u32 = 2;
/// Bytes of a counter's name.
const NAME: usize = 64;

/// Properties of a device, as reported by its driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    driver: [c_char; 64],
    pub mac: [u8; 6],
    pub max_queues: u16,
    pub max_mtu: u16,
    pub checksums: bool,
    pub rss: bool,
    pub split: bool,
}

impl Info {
    /// Returns the driver's name.
    pub fn driver(&self) -> String {
        let bytes = self.driver.map(|byte| byte as u8);
        CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Configuration of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    pub port: u16,
    pub queues: u16,
    pub mtu: u16,
    pub rx_buffer_bytes: u16,
    pub tx_buffer_bytes: u16,
    pub descriptors: u16,
    pub buffers: u32,
    pub split_buffers: u32,
    pub split_header: u16,
    pub split_payload: u16,
    pub is_pci: bool,
    pub checksums: bool,
    pub rss: bool,
    pub gated: bool,
    pub reconnects: bool,
    pub gathers: bool,
    pub direct: bool,
    pub zero_copy: bool,
}

/// A frame of the last burst.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    data: *const u8,
    len: u32,
    faults: u32,
}

/// Maximum buffers of a frame behind its header.
pub const PARTS: usize = 16;

/// Bytes of a frame in a buffer for payloads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    data: *const u8,
    pub len: u32,
    pub buffer: u32,
}

impl Part {
    /// Returns the address of the bytes.
    pub fn address(&self) -> usize {
        self.data as usize
    }
}

/// A frame with header split.
#[repr(C)]
#[derive(Clone, Copy)]
struct SplitFrame {
    head: *const u8,
    head_len: u32,
    parts: u32,
    is_plain: bool,
    part: [Part; PARTS],
}

/// Result of receiving a frame into a predicted destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "C returns them")]
pub enum ReceiveStatus {
    /// No frame was available, and nothing was written.
    NoFrame,
    /// The whole frame is at its destination.
    InPlace,
    /// The frame is elsewhere; the destination may have been written.
    Elsewhere,
    /// No frame is available yet, and the destination was written.
    Overwritten,
}

/// A piece of a frame to send.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    data: *const u8,
    len: u32,
    stable: bool,
}

impl Piece {
    /// Returns a piece that is copied before `send` returns.
    pub fn copied(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() as u32, stable: false }
    }
    /// Returns a piece that a driver may read in place, for as long as the frame is in use ([`Port::in_flight`]).
    pub fn in_place(data: *const u8, len: u32) -> Self {
        Self { data, len, stable: true }
    }
}

/// Memory of DPDK that the peer of a memif can read.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// Allocates `len` zeroed bytes; `None` if there is not enough.
    pub fn allocate(len: usize) -> Option<Self> {
        // SAFETY: it may be called once a port is open, which `DpdkIo` ensures.
        NonNull::new(unsafe { shot_memory_alloc(len) }).map(|base| Self { base, len })
    }
}

// SAFETY: a range of memory that this value owns until it is dropped; it is accessed only through raw copies.
unsafe impl Send for Memory {}
// SAFETY: as above; racing copies may tear, which regions allow.
unsafe impl Sync for Memory {}

// SAFETY: the copies access ranges that their callers guarantee; the address is page-aligned and valid for `len` bytes.
unsafe impl DeviceMemory for Memory {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees both ranges.
        unsafe { self.base.as_ptr().add(offset).copy_to_nonoverlapping(to, len) }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: the caller guarantees both ranges.
        unsafe { self.base.as_ptr().add(offset).copy_from_nonoverlapping(from, len) }
    }
    fn host_address(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `allocate`, and no address of it is left: its region was dropped.
        unsafe { shot_memory_free(self.base.as_ptr()) }
    }
}

/// A port's counters.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub missed: u64,
    pub receive_errors: u64,
    pub no_buffers: u64,
    pub send_errors: u64,
    pub link_ups: u64,
    pub link_downs: u64,
}

#[repr(C)]
struct ShotPort {
    _opaque: [u8; 0],
}

// SAFETY: these are the declarations of shim.h.
unsafe extern "C" {
    fn shot_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn shot_log_take(to: *mut u8, size: usize) -> usize;
    fn shot_attach(arguments: *const c_char, name: *const c_char, port: *mut u16) -> c_int;
    fn shot_detach(port: u16);
    fn shot_info(port: u16, info: *mut Info) -> c_int;
    fn shot_open(config: *const Config, step: *mut *const c_char, error: *mut c_int) -> *mut ShotPort;
    fn shot_close(port: *mut ShotPort);
    fn shot_receive(port: *mut ShotPort, queue: u16, frames: *mut Frame, max: u16) -> u16;
    fn shot_receive_at(port: *mut ShotPort, at: *mut u8, capacity: u32, frame: *mut Frame) -> ReceiveStatus;
    fn shot_copy_out(port: *mut ShotPort, frame: *mut Frame);
    fn shot_start(port: *mut ShotPort) -> c_int;
    fn shot_map(port: *mut ShotPort, address: *mut u8, bytes: usize) -> c_int;
    fn shot_plan(port: *mut ShotPort, buffer: u32, address: *mut u8);
    fn shot_returned(port: *mut ShotPort, buffers: *mut u32, max: u32) -> u32;
    fn shot_receive_split(port: *mut ShotPort, frames: *mut SplitFrame, max: u16) -> u16;
    fn shot_join(port: *mut ShotPort, index: u16, frame: *mut Frame);
    fn shot_send(port: *mut ShotPort, pieces: *const Piece, ends: *const u32, frames: u16) -> u16;
    fn shot_in_flight(port: *mut ShotPort) -> u32;
    fn shot_memory_alloc(bytes: usize) -> *mut u8;
    fn shot_memory_free(memory: *mut u8);
    fn shot_link_is_up(port: *mut ShotPort) -> bool;
    fn shot_stats(port: *mut ShotPort, stats: *mut Counters) -> c_int;
    fn shot_xstats(port: *mut ShotPort, names: *mut [c_char; NAME], values: *mut u64, max: c_int) -> c_int;
}

/// Takes DPDK's log since the last call.
pub fn take_log() -> String {
    let mut text = vec![0; 8192];
    // SAFETY: the pointer and the length describe live memory.
    let len = unsafe { shot_log_take(text.as_mut_ptr(), text.len()) };
    text.truncate(len);
    String::from_utf8_lossy(&text).into_owned()
}

/// Initialises EAL with these arguments on a temporary thread, because EAL pins its caller to a processor.
pub fn start_eal(words: Vec<CString>) -> Result<(), i32> {
    let run = move || {
        // EAL keeps pointers to its arguments and may reorder them, so they are leaked.
        let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        let argc = pointers.len() as c_int;
        pointers.push(std::ptr::null_mut());
        let argv = Box::leak(pointers.into_boxed_slice());
        // SAFETY: `argc` leaked strings followed by a null pointer, as for main().
        unsafe { shot_eal_init(argc, argv.as_mut_ptr()) }
    };
    let code = std::thread::Builder::new().name("dpdk-eal".into()).spawn(run).map(std::thread::JoinHandle::join);
    match code {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(code)) => Err(-code),
        _ => Err(libc::EAGAIN),
    }
}

/// An attached device whose port is not started.
pub struct Attached(u16);

impl Attached {
    /// Attaches the device with these arguments, whose port has this name.
    pub fn new(arguments: &CStr, name: &CStr) -> Result<Self, i32> {
        let mut port = 0;
        // SAFETY: both are C strings, and `port` is live.
        match unsafe { shot_attach(arguments.as_ptr(), name.as_ptr(), &raw mut port) } {
            0 => Ok(Self(port)),
            code => Err(-code),
        }
    }

    /// Returns the port's number.
    pub fn id(&self) -> u16 {
        self.0
    }

    /// Returns the device's properties.
    pub fn info(&self) -> Result<Info, i32> {
        // SAFETY: all-zero is a valid value of this C struct, which the call fills.
        let mut info: Info = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to live memory of that type.
        match unsafe { shot_info(self.0, &raw mut info) } {
            0 => Ok(info),
            code => Err(-code),
        }
    }

    /// Configures and starts the port. On failure returns the failed step and its errno.
    pub fn open(self, config: &Config) -> Result<Port, (String, i32)> {
        let (mut step, mut error) = (c"".as_ptr(), 0);
        // SAFETY: the pointers are to live values; the step is a string constant.
        let (raw, step) = unsafe {
            let raw = shot_open(config, &raw mut step, &raw mut error);
            (raw, CStr::from_ptr(step))
        };
        std::mem::forget(self); // the port now owns the device; if it could not be opened, it has detached the device
        let raw = NonNull::new(raw).ok_or_else(|| (step.to_string_lossy().into_owned(), -error))?;
        let none = Frame { data: std::ptr::null(), len: 0, faults: 0 };
        let part = Part { data: std::ptr::null(), len: 0, buffer: 0 };
        let split = SplitFrame { head: none.data, head_len: 0, parts: 0, is_plain: false, part: [part; PARTS] };
        let split = if config.split_header > 0 { vec![split; BURST] } else { Vec::new() };
        Ok(Port { raw, frames: [none; BURST], split, count: 0 })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the port is attached and owned by nothing else.
        unsafe { shot_detach(self.0) }
    }
}

/// A started port.
pub struct Port {
    raw: NonNull<ShotPort>,
    frames: [Frame; BURST],
    /// Frames of a port with header split.
    split: Vec<SplitFrame>,
    /// Frames of the last burst, which `frames` or `split` points at.
    count: usize,
}

// SAFETY: a port may be used from any thread, but by one at a time, which `&mut` ensures where required.
unsafe impl Send for Port {}

impl Port {
    /// Receives up to `max` frames from a queue and frees the frames of the previous burst. Returns how many were
    /// received.
    pub fn receive(&mut self, queue: u16, max: u16) -> usize {
        // SAFETY: the port is exclusively borrowed, and the frames have space for a burst.
        self.count = usize::from(unsafe { shot_receive(self.raw.as_ptr(), queue, self.frames.as_mut_ptr(), max) });
        self.count
    }

    /// Receives the next frame so that it starts at `at`, if it is no longer than `capacity` bytes. Frees the frames of
    /// the previous burst; if a frame is received, it is [`Self::frame`] 0. Only for ports that support it
    /// ([`Config::direct`]).
    ///
    /// # Safety
    /// `capacity` bytes from `at` on must be writable and not accessed otherwise until the next burst.
    pub unsafe fn receive_at(&mut self, at: *mut u8, capacity: u32) -> ReceiveStatus {
        // SAFETY: the port is exclusively borrowed, and the caller guarantees the memory.
        let status = unsafe { shot_receive_at(self.raw.as_ptr(), at, capacity, self.frames.as_mut_ptr()) };
        self.count = usize::from(!matches!(status, ReceiveStatus::NoFrame | ReceiveStatus::Overwritten));
        status
    }

    /// Copies the only frame of the last burst out of the memory that it was received into.
    ///
    /// # Panics
    /// If the burst had no frame.
    pub fn copy_out(&mut self) {
        let frame = &mut self.frames[..self.count][0];
        // SAFETY: the port is exclusively borrowed, and so is the frame, whose length is valid.
        unsafe { shot_copy_out(self.raw.as_ptr(), frame) }
    }

    /// Returns a frame of the last burst and its fault flags.
    ///
    /// # Panics
    /// If the burst had no such frame.
    pub fn frame(&self, index: usize) -> (&[u8], u32) {
        let frame = self.frames[..self.count][index];
        // SAFETY: a burst's frames stay valid until the next burst, which needs `&mut self`.
        (unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) }, frame.faults)
    }

    /// Starts a port with header split ([`Config::split_header`]), which [`Attached::open`] does not.
    pub fn start(&mut self) -> Result<(), i32> {
        // SAFETY: the port is exclusively borrowed.
        match unsafe { shot_start(self.raw.as_ptr()) } {
            0 => Ok(()),
            code => Err(-code),
        }
    }

    /// Lets the device of a port with header split access whole pages of memory. Returns `true` if it can.
    ///
    /// # Safety
    /// The memory must be valid until the port is dropped.
    pub unsafe fn map(&mut self, address: *mut u8, bytes: usize) -> bool {
        // SAFETY: the port is exclusively borrowed; the caller guarantees the memory.
        unsafe { shot_map(self.raw.as_ptr(), address, bytes) == 0 }
    }

    /// Plans to give a free buffer to the device, with this memory or, if it is null, with its own.
    ///
    /// # Safety
    /// The buffer must be free, and its number valid. The memory must be mapped, as long as a buffer, and not accessed
    /// otherwise until the buffer has been received or returned.
    pub unsafe fn plan(&mut self, buffer: u32, address: *mut u8) {
        // SAFETY: the port is exclusively borrowed; the caller guarantees the rest.
        unsafe { shot_plan(self.raw.as_ptr(), buffer, address) }
    }

    /// Takes numbers of buffers that have become free. Returns how many.
    pub fn returned(&mut self, buffers: &mut [u32]) -> usize {
        // SAFETY: the port is exclusively borrowed, and the numbers have space.
        unsafe { shot_returned(self.raw.as_ptr(), buffers.as_mut_ptr(), buffers.len() as u32) as usize }
    }

    /// As [`Self::receive`], from the only queue of a port with header split.
    pub fn receive_split(&mut self, max: u16) -> usize {
        let max = max.min(self.split.len() as u16);
        // SAFETY: the port is exclusively borrowed, and the frames have space for a burst.
        self.count = usize::from(unsafe { shot_receive_split(self.raw.as_ptr(), self.split.as_mut_ptr(), max) });
        self.count
    }

    /// Returns the header and the parts of a frame of the last burst, and `true` if these are all of it.
    ///
    /// # Panics
    /// If the burst had no such frame.
    pub fn split_frame(&self, index: usize) -> (&[u8], &[Part], bool) {
        let frame = &self.split[..self.count][index];
        // SAFETY: a burst's frames stay valid until the next burst, which needs `&mut self`.
        let head = unsafe { std::slice::from_raw_parts(frame.head, frame.head_len as usize) };
        (head, &frame.part[..frame.parts as usize], frame.is_plain)
    }

    /// Reads bytes of a frame with header split, from this offset behind its header.
    ///
    /// # Panics
    /// If the burst had no such frame, or the frame has no such bytes.
    pub fn read_behind_header(&self, index: usize, mut at: usize, mut to: &mut [u8]) {
        for part in self.split_frame(index).1 {
            let count = (part.len as usize).saturating_sub(at).min(to.len());
            if count > 0 {
                let (now, later) = to.split_at_mut(count);
                // SAFETY: the part is as long as that, and valid until the next burst, which needs `&mut self`. Its
                // memory may be shared with another process, so no slice of it is formed.
                unsafe { part.data.add(at).copy_to_nonoverlapping(now.as_mut_ptr(), count) }
                to = later;
            }
            at = at.saturating_sub(part.len as usize);
        }
        assert!(to.is_empty(), "the frame is shorter");
    }

    /// Copies a frame with header split, so that it is contiguous and [`Self::frame`] returns it.
    ///
    /// # Panics
    /// If the burst had no such frame.
    pub fn join(&mut self, index: usize) {
        let frame = &mut self.frames[..self.count][index];
        // SAFETY: the port is exclusively borrowed, and so is the frame.
        unsafe { shot_join(self.raw.as_ptr(), index as u16, frame) }
    }

    /// Sends frames, at most [`BURST`]: frame `i` is made of the pieces from `ends[i - 1]` to `ends[i]`. Returns how
    /// many were accepted.
    ///
    /// # Safety
    /// Every piece must be readable for its whole length until this returns, and those in [`Memory`] for as long as
    /// their frames are in use.
    pub unsafe fn send(&mut self, pieces: &[Piece], ends: &[u32]) -> usize {
        debug_assert!(ends.len() <= BURST && ends.iter().all(|end| *end as usize <= pieces.len()));
        // SAFETY: the lists are live and consistent; the caller guarantees the pieces.
        usize::from(unsafe { shot_send(self.raw.as_ptr(), pieces.as_ptr(), ends.as_ptr(), ends.len() as u16) })
    }

    /// Returns the number of accepted frames that may still be read in place. It must be called regularly: it reclaims
    /// the frames that were read.
    pub fn in_flight(&mut self) -> usize {
        // SAFETY: the port is exclusively borrowed.
        unsafe { shot_in_flight(self.raw.as_ptr()) as usize }
    }

    /// Returns `true` if the link was up when last checked, at most some milliseconds ago.
    pub fn link_is_up(&self) -> bool {
        // SAFETY: the port is live; the call reads an atomic.
        unsafe { shot_link_is_up(self.raw.as_ptr()) }
    }

    /// Returns the port's counters; zeros if the driver has none.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the port and the output value are live.
        unsafe { shot_stats(self.raw.as_ptr(), &raw mut counters) };
        counters
    }

    /// Returns the driver's own counters by name.
    pub fn extended(&self) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut values = Vec::new();
        for _ in 0..2 {
            let capacity = names.len();
            // SAFETY: names and values have space for `capacity` entries.
            let count =
                unsafe { shot_xstats(self.raw.as_ptr(), names.as_mut_ptr(), values.as_mut_ptr(), capacity as c_int) };
            let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else { return Vec::new() };
            if count <= capacity {
                names.truncate(count);
                break;
            }
            names.resize(count, [0; NAME]);
            values.resize(count, 0);
        }
        let text = |name: [c_char; NAME]| {
            let bytes = name.map(|byte| byte as u8);
            CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        names.into_iter().map(text).zip(values).collect()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the port is live and owned, and not used again.
        unsafe { shot_close(self.raw.as_ptr()) }
    }
}
