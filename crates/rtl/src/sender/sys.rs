//! Safe wrapper of the model's C interface (`shim.cpp`): a [`Model`] owns one simulation.

use super::config::Shot;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::slice;

/// Limits of [`Sender::run`](crate::Sender::run), which returns when any of them is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of clocks.
    pub clocks: u64,
    /// Number of stored frames.
    pub frames: usize,
    /// Number of clocks without an output word.
    pub quiet: u64,
    /// Returns when all input frames have been accepted.
    pub inputs_accepted: bool,
}

impl Default for Limits {
    /// Runs until no word has left for 1000 clocks.
    fn default() -> Self {
        Self { clocks: u64::MAX >> 1, frames: usize::MAX, quiet: 1000, inputs_accepted: false }
    }
}

/// Metadata of a shot in the layout of the shim.
#[repr(C)]
struct RawShot {
    number: u64,
    time: u64,
    stream: u32,
    event: u32,
    flags: u8,
}

/// Opaque type of the shim's simulation.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn shotline_rtl_new(seed: u64) -> *mut Raw;
    fn shotline_rtl_trace(model: *mut Raw, path: *const c_char) -> i32;
    fn shotline_rtl_free(model: *mut Raw);
    fn shotline_rtl_send(model: *mut Raw, shot: *const RawShot, bytes: *const u8, length: usize);
    fn shotline_rtl_run(model: *mut Raw, cycles: u64, frames: usize, quiet: u64, inputs_accepted: i32);
    fn shotline_rtl_write(model: *mut Raw, address: u16, value: u32) -> u32;
    fn shotline_rtl_read(model: *mut Raw, address: u16) -> u32;
    fn shotline_rtl_pause(model: *mut Raw, output: i32, chance: u32, from: u64, until: u64);
    fn shotline_rtl_cycles(model: *const Raw) -> u64;
    fn shotline_rtl_input_words(model: *const Raw) -> u64;
    fn shotline_rtl_output_words(model: *const Raw) -> u64;
    fn shotline_rtl_waiting(model: *const Raw) -> usize;
    fn shotline_rtl_failures() -> u64;
    fn shotline_rtl_frames(model: *const Raw) -> usize;
    fn shotline_rtl_bytes(model: *const Raw) -> *const u8;
    fn shotline_rtl_ends(model: *const Raw) -> *const u64;
    fn shotline_rtl_clocks(model: *const Raw) -> *const u64;
    fn shotline_rtl_discard(model: *mut Raw, count: usize);
}

/// One simulation. Failed assertions are counted per thread, so it must stay on the thread that created it.
#[derive(Debug)]
pub(crate) struct Model(NonNull<Raw>);

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        // SAFETY: every seed is valid; `new` in C++ does not return null.
        let raw = unsafe { shotline_rtl_new(seed) };
        Self(NonNull::new(raw).expect("C++'s new returns an address"))
    }

    /// Returns `true` if the file was created.
    pub(crate) fn trace(&mut self, path: &CStr) -> bool {
        // SAFETY: `self` owns the model, and the path is read only within the call.
        unsafe { shotline_rtl_trace(self.0.as_ptr(), path.as_ptr()) == 1 }
    }

    pub(crate) fn send(&mut self, shot: &Shot, bytes: &[u8]) {
        let Shot { number, time, stream, event, flags } = *shot;
        let raw = RawShot { number, time, stream, event, flags };
        // SAFETY: `self` owns the model; both pointers are valid, and read only within the call.
        unsafe { shotline_rtl_send(self.0.as_ptr(), &raw, bytes.as_ptr(), bytes.len()) }
    }

    pub(crate) fn run(&mut self, Limits { clocks, frames, quiet, inputs_accepted }: Limits) {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_run(self.0.as_ptr(), clocks, frames, quiet, inputs_accepted.into()) }
    }

    pub(crate) fn write(&mut self, address: u16, value: u32) -> u32 {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_write(self.0.as_ptr(), address, value) }
    }

    pub(crate) fn read(&mut self, address: u16) -> u32 {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_read(self.0.as_ptr(), address) }
    }

    pub(crate) fn pause(&mut self, output: bool, chance: u32, from: u64, until: u64) {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_pause(self.0.as_ptr(), output.into(), chance, from, until) }
    }

    pub(crate) fn cycles(&self) -> u64 {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_cycles(self.0.as_ptr()) }
    }

    pub(crate) fn input_words(&self) -> u64 {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_input_words(self.0.as_ptr()) }
    }

    pub(crate) fn output_words(&self) -> u64 {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_output_words(self.0.as_ptr()) }
    }

    pub(crate) fn waiting(&self) -> usize {
        // SAFETY: `self` owns the model.
        unsafe { shotline_rtl_waiting(self.0.as_ptr()) }
    }

    pub(crate) fn failures(&self) -> u64 {
        // SAFETY: reads a counter of this thread.
        unsafe { shotline_rtl_failures() }
    }

    /// Returns the bytes of all frames, the offset of each frame's end, and the clock in which each ended.
    pub(crate) fn frames(&self) -> (&[u8], &[u64], &[u64]) {
        let model = self.0.as_ptr();
        // SAFETY: `self` owns the model. It stores `count` ends and clocks, and as many bytes as the last end; none of
        // them moves while `self` is borrowed, because all methods that change them take `&mut self`.
        unsafe {
            let count = shotline_rtl_frames(model);
            if count == 0 {
                return (&[], &[], &[]);
            }
            let ends = slice::from_raw_parts(shotline_rtl_ends(model), count);
            let clocks = slice::from_raw_parts(shotline_rtl_clocks(model), count);
            let bytes = slice::from_raw_parts(shotline_rtl_bytes(model), ends[count - 1] as usize);
            (bytes, ends, clocks)
        }
    }

    /// Discards the oldest `count` frames, or all if there are fewer.
    pub(crate) fn discard(&mut self, count: usize) {
        // SAFETY: `self` owns the model, and `count` is at most the number of frames.
        unsafe {
            let count = count.min(shotline_rtl_frames(self.0.as_ptr()));
            shotline_rtl_discard(self.0.as_ptr(), count);
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: created by `shotline_rtl_new`, and freed only here.
        unsafe { shotline_rtl_free(self.0.as_ptr()) }
    }
}
