//! A library for tests that registers memory without a device, and memory of a device that is only exported.

use super::Context;
use super::abi::*;
use super::library::Library;
use libc::{c_int, c_uint};
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use shotline_memory::{DeviceMemory, MemoryError, Region};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

/// A call of the library that registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// `ibv_reg_dmabuf_mr` instead of `ibv_reg_mr_iova2`.
    pub is_dmabuf: bool,
    /// Offset in the dma-buf, or address.
    pub start: u64,
    /// Length in bytes.
    pub len: usize,
    /// Address of the first byte for work requests and peers.
    pub iova: u64,
    /// Inode of the file descriptor; 0 without one.
    pub inode: u64,
    /// `IBV_ACCESS_*`.
    pub access: u32,
}

thread_local! {
    /// All registrations of this thread.
    static REGISTERED: RefCell<Vec<Registered>> = const { RefCell::new(Vec::new()) };
    /// Error number of the next registrations of this thread; 0: none.
    static ERROR: Cell<c_int> = const { Cell::new(0) };
    /// Number of registrations of this thread that exist.
    static EXISTING: Cell<usize> = const { Cell::new(0) };
}

/// Returns the registrations of this thread so far.
pub fn registered() -> Vec<Registered> {
    REGISTERED.with_borrow(Clone::clone)
}
/// Returns the number of registrations of this thread that still exist.
pub fn existing() -> usize {
    EXISTING.get()
}
/// Makes registrations of this thread fail with an error number.
pub fn fail(error: c_int) {
    ERROR.set(error);
}

/// Returns a device of a library with or without `ibv_reg_dmabuf_mr`.
pub fn context(has_dmabuf: bool) -> Arc<Context> {
    let library = Box::leak(Box::new(Library {
        close_device,
        alloc_pd,
        dealloc_pd,
        reg_mr_iova,
        dereg_mr,
        reg_dmabuf_mr: has_dmabuf.then_some(reg_dmabuf_mr as _),
        ..Library::unusable()
    }));
    Arc::new(Context { library, context: NonNull::dangling(), name: "fake0".into() })
}

unsafe extern "C" fn close_device(_: *mut ibv_context) -> c_int {
    0
}
unsafe extern "C" fn alloc_pd(_: *mut ibv_context) -> *mut ibv_pd {
    NonNull::dangling().as_ptr()
}
unsafe extern "C" fn dealloc_pd(_: *mut ibv_pd) -> c_int {
    0
}
unsafe extern "C" fn reg_mr_iova(
    _: *mut ibv_pd,
    address: *mut libc::c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    register(Registered { is_dmabuf: false, start: address as u64, len, iova, inode: 0, access })
}
unsafe extern "C" fn reg_dmabuf_mr(
    _: *mut ibv_pd,
    start: u64,
    len: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller passes an open descriptor, which is used only during the call.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
    let inode = rustix::fs::fstat(fd).expect("the descriptor is open").st_ino;
    register(Registered { is_dmabuf: true, start, len, iova, inode, access: access as u32 })
}
fn register(call: Registered) -> *mut ibv_mr {
    let error = ERROR.get();
    if error != 0 {
        // SAFETY: it returns the address of this thread's error number.
        unsafe { *libc::__errno_location() = error };
        return std::ptr::null_mut();
    }
    REGISTERED.with_borrow_mut(|calls| calls.push(call));
    EXISTING.set(EXISTING.get() + 1);
    let (context, pd, addr) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    Box::into_raw(Box::new(ibv_mr { context, pd, addr, length: call.len, handle: 0, lkey: 0x1100, rkey: 0x2200 }))
}
unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: `register` made it of a box, and it is deregistered once.
    drop(unsafe { Box::from_raw(mr) });
    EXISTING.set(EXISTING.get() - 1);
    0
}

/// Memory that is not mapped, and is exported as a file descriptor if it has one.
struct Exported {
    len: usize,
    fd: Option<OwnedFd>,
}

// SAFETY: no byte is accessed.
unsafe impl DeviceMemory for Exported {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, _: usize, _: *mut u8, _: usize) {}
    unsafe fn copy_in(&self, _: usize, _: *const u8, _: usize) {}
    fn export(&self) -> Option<Result<OwnedFd, MemoryError>> {
        Some(rustix::io::fcntl_dupfd_cloexec(self.fd.as_ref()?, 0).map_err(MemoryError::Seal))
    }
}

/// Returns a region of device memory and the inode of its descriptor.
pub fn exported_region(len: usize) -> (Arc<Region>, u64) {
    let fd = rustix::fs::memfd_create("exported", MemfdFlags::CLOEXEC).expect("a memfd");
    let inode = rustix::fs::fstat(&fd).expect("its status").st_ino;
    (Region::device(Arc::new(Exported { len, fd: Some(fd) })), inode)
}
/// Returns a region of device memory that has no descriptor.
pub fn unexported_region(len: usize) -> Arc<Region> {
    Region::device(Arc::new(Exported { len, fd: None }))
}
