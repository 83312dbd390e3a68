//! The context of a CUDA device, and what the driver allocates in it.

use super::error::CudaError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUresult};
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

/// Returns an error of a function of the driver.
fn failed(index: u32, call: &'static str, result: CUresult) -> CudaError {
    let name = DriverError(result).error_name().map(|name| name.to_string_lossy().into_owned());
    CudaError::Call { index, call, error: name.unwrap_or_else(|_| format!("{result:?}")) }
}

/// Returns the error of a call, if it is one.
pub(super) fn check(index: u32, call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(index, call, result)) }
}

/// The primary context of a device, which the CUDA runtime and frameworks use too.
pub(super) struct Context {
    pub(super) index: u32,
    pub(super) device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: the driver allows calls of every thread, each of which makes the context current first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context of a device, whose driver is initialised.
    pub(super) fn open(index: u32, device: sys::CUdevice) -> Result<Arc<Self>, CudaError> {
        let mut context = ptr::null_mut();
        // SAFETY: the handle is valid, and the pointer outlives the call.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check(index, "cuDevicePrimaryCtxRetain", retained)?;
        Ok(Arc::new(Self { index, device, context }))
    }

    /// Makes a call while the context is the current one of this thread. Then the caller's own context is current again.
    pub(super) fn call(&self, name: &'static str, call: impl FnOnce() -> CUresult) -> Result<(), CudaError> {
        check(self.index, name, self.within(call)?)
    }

    pub(super) fn within<T>(&self, call: impl FnOnce() -> T) -> Result<T, CudaError> {
        // SAFETY: the context is retained while this value lives.
        check(self.index, "cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        let result = call();
        let mut popped = ptr::null_mut();
        // SAFETY: the pointer outlives the call; the context was pushed above.
        check(self.index, "cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) })?;
        Ok(result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the counterpart of the call in `open`; everything in the context that this module created is freed.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// An object of the driver, which is freed on drop.
pub(super) struct Owned<T: Copy> {
    context: Arc<Context>,
    pub(super) value: T,
    free: unsafe fn(T) -> CUresult,
}

// SAFETY: a handle of the driver, which may be used in every thread.
unsafe impl<T: Copy> Send for Owned<T> {}

impl<T: Copy> Owned<T> {
    /// Creates an object by a call that writes its handle.
    pub(super) fn new(
        context: &Arc<Context>,
        name: &'static str,
        empty: T,
        create: impl FnOnce(*mut T) -> CUresult,
        free: unsafe fn(T) -> CUresult,
    ) -> Result<Self, CudaError> {
        let mut value = empty;
        context.call(name, || create(&raw mut value))?;
        Ok(Self { context: Arc::clone(context), value, free })
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the object, and the function is that of its type.
        let _ = self.context.within(|| unsafe { (self.free)(self.value) });
    }
}

/// Creates a stream that does not wait for others.
pub(super) fn stream(context: &Arc<Context>) -> Result<Owned<sys::CUstream>, CudaError> {
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
    // SAFETY: the call writes the handle of a new object.
    let create = |to| unsafe { sys::cuStreamCreate(to, flags) };
    Owned::new(context, "cuStreamCreate", ptr::null_mut(), create, sys::cuStreamDestroy_v2)
}

/// Creates an event, for which a thread waits asleep.
pub(super) fn event(context: &Arc<Context>) -> Result<Owned<sys::CUevent>, CudaError> {
    let flags =
        sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
    // SAFETY: the call writes the handle of a new object.
    let create = |to| unsafe { sys::cuEventCreate(to, flags) };
    Owned::new(context, "cuEventCreate", ptr::null_mut(), create, sys::cuEventDestroy_v2)
}

/// Allocates memory of the device.
pub(super) fn allocate(context: &Arc<Context>, len: usize) -> Result<Owned<sys::CUdeviceptr>, CudaError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the integers outlive the call.
    context.call("cuMemGetInfo", || unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    let mut pointer = 0;
    // SAFETY: the address outlives the call.
    match context.within(|| unsafe { sys::cuMemAlloc_v2(&raw mut pointer, len) })? {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Err(CudaError::OutOfMemory { index: context.index, needed: len as u64, free: free as u64 })
        }
        other => {
            check(context.index, "cuMemAlloc", other)?;
            Ok(Owned { context: Arc::clone(context), value: pointer, free: sys::cuMemFree_v2 })
        }
    }
}
