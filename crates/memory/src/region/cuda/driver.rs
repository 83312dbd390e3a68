//! The CUDA driver, whose library is loaded at run time.
//!
//! Not tested on a device yet: the tests have a simulated copy engine. Every function that is used exists since CUDA 11.0,
//! which [`initialize`] requires, except that of [`export`], which is called only if the driver has it.

use super::context::{self, Context, Owned, check, event, stream};
use super::device::CudaDevice;
use super::error::CudaError;
use super::launch;
use super::staging::{BUFFER, BUFFERS, CopyEngine, Parts, Transfer};
use cudarc::driver::sys::{self, CUresult};
use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// First version of the driver that has all functions, as `cuDriverGetVersion` returns it.
const MIN_VERSION: c_int = 11_000;
/// First version of the driver that exports memory as dma-buf, as `cuDriverGetVersion` returns it.
const EXPORT_VERSION: c_int = 11_070;

/// Loads the driver and returns the number of devices. The number of the device is for messages.
fn initialize(index: u32) -> Result<u32, CudaError> {
    // SAFETY: loading the driver runs its initialisers, which are safe to run in any thread.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoLibrary);
    }
    let (mut count, mut version) = (0, 0);
    // SAFETY: the library is present, and the integer outlives the call. A missing function of it would be a panic.
    check(index, "cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < MIN_VERSION {
        return Err(CudaError::OldDriver { major: version / 1000, minor: version % 1000 / 10 });
    }
    // SAFETY: the library is present, and the integer outlives the call.
    let (initialized, counted) = unsafe { (sys::cuInit(0), sys::cuDeviceGetCount(&raw mut count)) };
    match initialized {
        CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        other => check(index, "cuInit", other)?,
    }
    check(index, "cuDeviceGetCount", counted)?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// Returns the driver's handle of a device.
fn handle(index: u32) -> Result<sys::CUdevice, CudaError> {
    let count = initialize(index)?;
    let ordinal = c_int::try_from(index).ok().filter(|_| index < count).ok_or(CudaError::NoDevice { index, count })?;
    let mut device = 0;
    // SAFETY: the driver is initialised, and the handle outlives the call.
    check(index, "cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
    Ok(device)
}

/// Returns `true` if a device exports its memory as dma-buf.
fn can_export(device: sys::CUdevice) -> bool {
    let (mut version, mut supported) = (0, 0);
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    // SAFETY: the driver is initialised, and the integers outlive the calls.
    let known = unsafe { sys::cuDriverGetVersion(&raw mut version) } == CUresult::CUDA_SUCCESS;
    // SAFETY: as above. An older driver returns an error for an attribute that it does not know.
    let found = unsafe { sys::cuDeviceGetAttribute(&raw mut supported, attribute, device) } == CUresult::CUDA_SUCCESS;
    known && version >= EXPORT_VERSION && found && supported != 0
}

/// Returns all devices.
pub(super) fn devices() -> Result<Vec<CudaDevice>, CudaError> {
    let describe = |index| {
        let device = handle(index)?;
        let (mut name, mut memory_bytes) = ([0_u8; 100], 0);
        // SAFETY: the driver writes a string that ends with a zero, of at most the given length.
        let named = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        check(index, "cuDeviceGetName", named)?;
        // SAFETY: the integer outlives the call.
        let measured = unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory_bytes, device) };
        check(index, "cuDeviceTotalMem", measured)?;
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        let exports = can_export(device);
        Ok(CudaDevice { index, name: name.unwrap_or_default(), memory_bytes: memory_bytes as u64, exports })
    };
    (0..initialize(0)?).map(describe).collect()
}

/// Memory of the device.
enum Allocation {
    Own(Owned<sys::CUdeviceptr>),
    Other { pointer: sys::CUdeviceptr, _keep_alive: Box<dyn Any + Send + Sync> },
}

impl Allocation {
    fn pointer(&self) -> sys::CUdeviceptr {
        match self {
            Self::Own(memory) => memory.value,
            Self::Other { pointer, _keep_alive: _ } => *pointer,
        }
    }
}

/// The copy engine of a device, with a stream of its own and an event for each staging buffer.
struct Engine {
    context: Arc<Context>,
    stream: Owned<sys::CUstream>,
    events: [Owned<sys::CUevent>; BUFFERS],
    staging: [Owned<*mut c_void>; BUFFERS],
    memory: Allocation,
}

impl Engine {
    fn new(context: &Arc<Context>, memory: Allocation) -> Result<Self, CudaError> {
        let buffer = || {
            // SAFETY: the call writes the address of new memory.
            let allocate = |to| unsafe { sys::cuMemHostAlloc(to, BUFFER, 0) };
            Owned::new(context, "cuMemHostAlloc", ptr::null_mut(), allocate, sys::cuMemFreeHost)
        };
        let (events, staging) = ([event(context)?, event(context)?], [buffer()?, buffer()?]);
        Ok(Self { context: Arc::clone(context), stream: stream(context)?, events, staging, memory })
    }

    /// Zeroes the memory, so that nothing of another program can be read.
    fn zero(&self, len: usize) -> Result<(), CudaError> {
        let (pointer, stream) = (self.memory.pointer(), self.stream.value);
        // SAFETY: the memory has this length, and nothing else uses it yet.
        self.context.call("cuMemsetD8Async", || unsafe { sys::cuMemsetD8Async(pointer, 0, len, stream) })?;
        self.synchronize()
    }

    fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is valid.
        self.context.call("cuStreamSynchronize", || unsafe { sys::cuStreamSynchronize(self.stream.value) })
    }
}

// SAFETY: `cuMemHostAlloc` allocated the buffers with this length, and only the copies that `start` queues use them.
unsafe impl CopyEngine for Engine {
    fn staging(&self, buffer: usize) -> NonNull<u8> {
        NonNull::new(self.staging[buffer].value.cast()).expect("the driver returns memory or an error")
    }
    fn start(&mut self, transfer: Transfer, buffer: usize, offset: usize, len: usize) -> Result<(), CudaError> {
        let (host, device) = (self.staging[buffer].value, self.memory.pointer() + offset as u64);
        let (stream, event) = (self.stream.value, self.events[buffer].value);
        // SAFETY: the caller (`Region`) has checked that the range is inside the memory, and the buffer is as long as a
        // piece; nothing else accesses the buffer until `wait` returns.
        let copy = || unsafe {
            match transfer {
                Transfer::ToDevice => sys::cuMemcpyHtoDAsync_v2(device, host, len, stream),
                Transfer::FromDevice => sys::cuMemcpyDtoHAsync_v2(host, device, len, stream),
            }
        };
        let name = match transfer {
            Transfer::ToDevice => "cuMemcpyHtoDAsync",
            Transfer::FromDevice => "cuMemcpyDtoHAsync",
        };
        self.context.call(name, copy)?;
        // SAFETY: event and stream are valid and of the same context.
        self.context.call("cuEventRecord", || unsafe { sys::cuEventRecord(event, stream) })
    }
    fn wait(&mut self, buffer: usize) -> Result<(), CudaError> {
        // SAFETY: the event is valid.
        self.context.call("cuEventSynchronize", || unsafe { sys::cuEventSynchronize(self.events[buffer].value) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A copy that failed may have left others in progress.
        let _ = self.synchronize();
    }
}

/// Allocates zeroed memory.
pub(super) fn allocate(index: u32, len: usize) -> Result<Parts, CudaError> {
    let context = Context::open(index, handle(index)?)?;
    let memory = context::allocate(&context, len)?;
    let engine = Engine::new(&context, Allocation::Own(memory))?;
    engine.zero(len)?;
    Ok(finish(context, engine, len))
}

/// Uses memory of another owner.
///
/// # Safety
/// `pointer` has at least `len` bytes on this device, which stay allocated until `keep_alive` is dropped.
pub(super) unsafe fn from_raw(
    index: u32,
    pointer: u64,
    len: usize,
    keep_alive: Box<dyn Any + Send + Sync>,
) -> Result<Parts, CudaError> {
    let context = Context::open(index, handle(index)?)?;
    let engine = Engine::new(&context, Allocation::Other { pointer, _keep_alive: keep_alive })?;
    Ok(finish(context, engine, len))
}

fn finish(context: Arc<Context>, engine: Engine, len: usize) -> Parts {
    let pointer = engine.memory.pointer();
    let compiled_for = Arc::clone(&context);
    Parts {
        engine: Box::new(engine),
        export: Box::new(move || export(&context, pointer, len)),
        compile: Box::new(move |source, names| {
            Ok(Box::new(launch::Kernels::compile(&compiled_for, pointer, source, names)?))
        }),
    }
}

/// Exports memory as a dma-buf, which an RDMA device can register. Address and length must be multiples of the host's page
/// size.
fn export(context: &Context, pointer: sys::CUdeviceptr, len: usize) -> Result<OwnedFd, CudaError> {
    if !can_export(context.device) {
        return Err(CudaError::NoExport(context.index));
    }
    let mut fd: RawFd = -1;
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let to = (&raw mut fd).cast();
    // SAFETY: for this type of handle the driver writes an int, which outlives the call.
    let export = || unsafe { sys::cuMemGetHandleForAddressRange(to, pointer, len, kind, 0) };
    context.call("cuMemGetHandleForAddressRange", export)?;
    // SAFETY: the driver returned a new descriptor, which the caller owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
