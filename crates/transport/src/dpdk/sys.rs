//! What `shim.h` declares, and an owned port.

use shotline_memory::DeviceMemory;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;

/// Most frames of one burst.
pub const BURST: usize = 32;
/// Longer than a packet can be; the other fault is a checksum that the device found wrong.
pub const TOO_LONG: u32 = 2;
/// Bytes of a counter's name.
const NAME: usize = 64;

/// What a driver says of its device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    driver: [c_char; 64],
    pub mac: [u8; 6],
    pub max_queues: u16,
    pub max_mtu: u16,
    pub checksums: bool,
    pub spreads: bool,
}

impl Info {
    /// The driver's name.
    pub fn driver(&self) -> String {
        let bytes = self.driver.map(|byte| byte as u8);
        CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// How to set a port up.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    pub port: u16,
    pub queues: u16,
    pub mtu: u16,
    pub receive_room: u16,
    pub send_room: u16,
    pub descriptors: u16,
    pub buffers: u32,
    pub checksums: bool,
    pub spreads: bool,
    pub guarded: bool,
    pub dials: bool,
    pub gathers: bool,
    pub places: bool,
    pub lends: bool,
}

/// A frame of the last burst.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    data: *const u8,
    len: u32,
    faults: u32,
}

/// Where a frame went that was received unseen.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "C makes them")]
pub enum Came {
    /// There was none, and nothing was written.
    Nothing,
    /// All of it where it should.
    There,
    /// Elsewhere; the place may have been written.
    Elsewhere,
    /// There is none yet, and the place was written.
    Spoilt,
}

/// A piece of a frame to be sent.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    data: *const u8,
    len: u32,
    stays: bool,
}

impl Piece {
    /// Bytes that are copied at once.
    pub fn copied(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() as u32, stays: false }
    }
    /// Memory that a driver may read from where it is, for as long as the port has lent it ([`Port::lent`]).
    pub fn lying(data: *const u8, len: u32) -> Self {
        Self { data, len, stays: true }
    }
}

/// Memory of DPDK's own, which the other side of a memif reads.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// So much of it, all zeros; none if there is not enough.
    pub fn take(len: usize) -> Option<Self> {
        // SAFETY: it may be called once a port is open, which `DpdkIo` sees to.
        NonNull::new(unsafe { shot_memory_take(len) }).map(|base| Self { base, len })
    }
}

// SAFETY: a range of memory that is ours until it is dropped; its copies are raw ones.
unsafe impl Send for Memory {}
// SAFETY: as above; copies that race may tear, which regions allow for.
unsafe impl Sync for Memory {}

// SAFETY: the copies touch what their callers vouch for; the address is that of `len` bytes, at a page's beginning.
unsafe impl DeviceMemory for Memory {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for both ranges.
        unsafe { self.base.as_ptr().add(offset).copy_to_nonoverlapping(to, len) }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: the caller vouches for both ranges.
        unsafe { self.base.as_ptr().add(offset).copy_from_nonoverlapping(from, len) }
    }
    fn host_address(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was taken, and nobody has an address of it any more: a region of it is gone.
        unsafe { shot_memory_free(self.base.as_ptr()) }
    }
}

/// A port's counters.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
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
    fn shot_receive(port: *mut ShotPort, queue: u16, frames: *mut Frame, most: u16) -> u16;
    fn shot_receive_at(port: *mut ShotPort, at: *mut u8, room: u32, frame: *mut Frame) -> Came;
    fn shot_put_aside(port: *mut ShotPort, frame: *mut Frame);
    fn shot_send(port: *mut ShotPort, pieces: *const Piece, ends: *const u32, frames: u16) -> u16;
    fn shot_lent(port: *mut ShotPort) -> u32;
    fn shot_memory_take(bytes: usize) -> *mut u8;
    fn shot_memory_free(memory: *mut u8);
    fn shot_link_is_up(port: *mut ShotPort) -> bool;
    fn shot_stats(port: *mut ShotPort, stats: *mut Stats) -> c_int;
    fn shot_xstats(port: *mut ShotPort, names: *mut [c_char; NAME], values: *mut u64, most: c_int) -> c_int;
}

/// What DPDK has logged since the last call.
pub fn take_log() -> String {
    let mut text = vec![0; 8192];
    // SAFETY: the pointer and the length describe live memory.
    let len = unsafe { shot_log_take(text.as_mut_ptr(), text.len()) };
    text.truncate(len);
    String::from_utf8_lossy(&text).into_owned()
}

/// Starts EAL with these words, on a thread of its own: EAL binds its caller to a processor, and that thread ends.
pub fn start_eal(words: Vec<CString>) -> Result<(), i32> {
    let run = move || {
        // EAL keeps pointers into its words and may reorder them: they stay for as long as the process.
        let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        let argc = pointers.len() as c_int;
        pointers.push(std::ptr::null_mut());
        let argv = Box::leak(pointers.into_boxed_slice());
        // SAFETY: `argc` strings that live on, and a null pointer after them, as main() has them.
        unsafe { shot_eal_init(argc, argv.as_mut_ptr()) }
    };
    let code = std::thread::Builder::new().name("dpdk-eal".into()).spawn(run).map(std::thread::JoinHandle::join);
    match code {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(code)) => Err(-code),
        _ => Err(libc::EAGAIN),
    }
}

/// A device that is attached and not started.
pub struct Attached(u16);

impl Attached {
    /// Attaches the device of these arguments, whose port has this name.
    pub fn new(arguments: &CStr, name: &CStr) -> Result<Self, i32> {
        let mut port = 0;
        // SAFETY: both are C strings, and the port's number has a place.
        match unsafe { shot_attach(arguments.as_ptr(), name.as_ptr(), &raw mut port) } {
            0 => Ok(Self(port)),
            code => Err(-code),
        }
    }

    /// The port's number.
    pub fn id(&self) -> u16 {
        self.0
    }

    /// What its driver says of it.
    pub fn info(&self) -> Result<Info, i32> {
        // SAFETY: all-zero is a valid value of this C struct, which the call fills.
        let mut info: Info = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to live memory of that type.
        match unsafe { shot_info(self.0, &raw mut info) } {
            0 => Ok(info),
            code => Err(-code),
        }
    }

    /// Sets it up and starts it. On failure: which step, and why.
    pub fn open(self, config: &Config) -> Result<Port, (String, i32)> {
        let (mut step, mut error) = (c"".as_ptr(), 0);
        // SAFETY: the pointers are to live values; the step is a string constant.
        let (raw, step) = unsafe {
            let raw = shot_open(config, &raw mut step, &raw mut error);
            (raw, CStr::from_ptr(step))
        };
        std::mem::forget(self); // the port owns the device from here on, and has let it go if it could not be opened
        let raw = NonNull::new(raw).ok_or_else(|| (step.to_string_lossy().into_owned(), -error))?;
        let none = Frame { data: std::ptr::null(), len: 0, faults: 0 };
        Ok(Port { raw, frames: [none; BURST], count: 0 })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the port is attached and nobody else's.
        unsafe { shot_detach(self.0) }
    }
}

/// A started port.
pub struct Port {
    raw: NonNull<ShotPort>,
    frames: [Frame; BURST],
    /// Frames of the last burst, which `frames` points at.
    count: usize,
}

// SAFETY: a port may be used from any thread, by one at a time; `&mut` sees to that where it matters.
unsafe impl Send for Port {}

impl Port {
    /// Takes what waits in a queue, at most so many. The frames of the burst before are gone. Returns how many came.
    pub fn receive(&mut self, queue: u16, most: u16) -> usize {
        // SAFETY: the port is ours alone, and the frames have room for a burst.
        self.count = usize::from(unsafe { shot_receive(self.raw.as_ptr(), queue, self.frames.as_mut_ptr(), most) });
        self.count
    }

    /// Takes the frame that waits, unseen, so that it begins at `at`, if it is no longer than `room`. The frames of the
    /// burst before are gone; if one came, it is [`Self::frame`] 0. For ports that can do that ([`Config::places`]).
    ///
    /// # Safety
    /// So many bytes from there must be writable and nobody else's until the next burst.
    pub unsafe fn receive_at(&mut self, at: *mut u8, room: u32) -> Came {
        // SAFETY: the port is ours alone, and the caller vouches for the place.
        let came = unsafe { shot_receive_at(self.raw.as_ptr(), at, room, self.frames.as_mut_ptr()) };
        self.count = usize::from(!matches!(came, Came::Nothing | Came::Spoilt));
        came
    }

    /// Copies the one frame of the last burst out of the place that it was received into.
    ///
    /// # Panics
    /// If the burst had no frame.
    pub fn put_aside(&mut self) {
        let frame = &mut self.frames[..self.count][0];
        // SAFETY: the port is ours alone, and so is the frame, which is as long as it says.
        unsafe { shot_put_aside(self.raw.as_ptr(), frame) }
    }

    /// A frame of the last burst, and what the device found wrong with it.
    ///
    /// # Panics
    /// If the burst had no such frame.
    pub fn frame(&self, index: usize) -> (&[u8], u32) {
        let frame = self.frames[..self.count][index];
        // SAFETY: a burst's frames stay as they are until the next, which needs the port mutably.
        (unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) }, frame.faults)
    }

    /// Sends frames, at most [`BURST`]: frame `i` is made of the pieces from `ends[i - 1]` to `ends[i]`. Returns how
    /// many were taken.
    ///
    /// # Safety
    /// Every piece must be readable for its whole length until this returns, and those in [`Memory`] for as long as
    /// the port has lent them.
    pub unsafe fn send(&mut self, pieces: &[Piece], ends: &[u32]) -> usize {
        debug_assert!(ends.len() <= BURST && ends.iter().all(|end| *end as usize <= pieces.len()));
        // SAFETY: the lists are live and fit each other; the caller vouches for the pieces.
        usize::from(unsafe { shot_send(self.raw.as_ptr(), pieces.as_ptr(), ends.as_ptr(), ends.len() as u16) })
    }

    /// Frames that were taken and that may still be read where they lie. It has to be asked: nothing comes back else.
    pub fn lent(&mut self) -> usize {
        // SAFETY: the port is ours alone.
        unsafe { shot_lent(self.raw.as_ptr()) as usize }
    }

    /// Whether its link was up when last looked at, some milliseconds ago at most.
    pub fn link_is_up(&self) -> bool {
        // SAFETY: the port is live; the call reads an atomic.
        unsafe { shot_link_is_up(self.raw.as_ptr()) }
    }

    /// Its counters; zeros if the driver has none.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: the port and the place for its counters are live.
        unsafe { shot_stats(self.raw.as_ptr(), &raw mut stats) };
        stats
    }

    /// The driver's own counters, by its own names.
    pub fn extended(&self) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let mut values = Vec::new();
        for _ in 0..2 {
            let most = names.len();
            // SAFETY: names and values have room for so many.
            let count =
                unsafe { shot_xstats(self.raw.as_ptr(), names.as_mut_ptr(), values.as_mut_ptr(), most as c_int) };
            let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else { return Vec::new() };
            if count <= most {
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
        // SAFETY: the port is live and ours, and not used again.
        unsafe { shot_close(self.raw.as_ptr()) }
    }
}
