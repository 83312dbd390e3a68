//! Memory of a CUDA device.

#[cfg(feature = "cuda")]
mod context;
mod device;
#[cfg(feature = "cuda")]
mod driver;
mod error;
mod kernels;
#[cfg(feature = "cuda")]
mod launch;
#[cfg(feature = "cuda")]
mod nvrtc;
mod staging;
#[cfg(all(test, not(loom)))]
mod tests;

pub use device::CudaDevice;
pub use error::CudaError;
pub use kernels::CudaKernels;

use super::description::RegionDescription;
use super::{DeviceMemory, MemoryError, Pages, Region};
use rustix::fd::OwnedFd;
use staging::{Compile, CopyEngine, Export, Parts};
use std::any::Any;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "cuda",
    form: "cuda:N",
    backing: "memory of CUDA device N, copied by its copy engine through pinned memory",
    pages: Pages::Device,
    privilege: Some("an NVIDIA GPU and its driver"),
};

impl CudaDevice {
    /// Returns all devices of this machine.
    ///
    /// # Errors
    /// If the driver is not installed or fails, or the program was built without CUDA.
    pub fn all() -> Result<Vec<Self>, CudaError> {
        #[cfg(feature = "cuda")]
        return driver::devices();
        #[cfg(not(feature = "cuda"))]
        return Err(CudaError::NotBuilt);
    }
}

/// Compiles kernels for devices of a compute capability (times 10), such as 90, without such a device: to check their source.
/// The result is machine code, or, if the compiler does not know the capability, the text of code for an earlier one.
///
/// # Errors
/// If the compiler, NVRTC, is missing or too old, or refuses the source, or the program was built without CUDA.
pub fn compile_cuda_kernels(source: &str, capability: i32) -> Result<Vec<u8>, CudaError> {
    #[cfg(feature = "cuda")]
    return nvrtc::compile(source, capability);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (source, capability);
        Err(CudaError::NotBuilt)
    }
}

impl Region {
    /// Allocates zeroed memory on a CUDA device: [`CudaMemory::allocate`].
    ///
    /// # Errors
    /// If `len` is 0, the driver or the device is missing, or the device has too little memory.
    pub fn cuda(device: u32, len: usize) -> Result<Arc<Self>, MemoryError> {
        Ok(Self::device(Arc::new(CudaMemory::allocate(device, len)?)))
    }

    /// Compiles kernels for the device that has the memory, by NVRTC, whose library is loaded at run time. `None` if the
    /// memory is not that of a CUDA device. `names` are the functions of the source, which is CUDA C++; they are not
    /// mangled (`extern "C"`).
    pub fn cuda_kernels(&self, source: &str, names: &[&CStr]) -> Option<Result<Box<dyn CudaKernels>, CudaError>> {
        let memory: &CudaMemory = self.device.as_ref()?.as_any()?.downcast_ref()?;
        Some((memory.compile)(source, names))
    }
}

/// Memory of a CUDA device. The copy engine of the device copies it, through two pinned buffers that are used in turn,
/// on a stream of its own. A caller that waits sleeps. Copies of several threads take turns.
///
/// The stream does not synchronise with others: work that others queue on the same memory must be complete.
pub struct CudaMemory {
    len: usize,
    engine: Mutex<Box<dyn CopyEngine>>,
    export: Export,
    compile: Compile,
    failure: OnceLock<CudaError>,
}

impl CudaMemory {
    /// Allocates zeroed memory on a device. The length is rounded up to whole pages of the host.
    ///
    /// # Errors
    /// If `len` is 0, the driver or the device is missing, or the device has too little memory.
    pub fn allocate(device: u32, len: usize) -> Result<Self, MemoryError> {
        let len = super::map::round_up(len, rustix::param::page_size())?;
        #[cfg(feature = "cuda")]
        return Ok(Self::new(len, driver::allocate(device, len)?));
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (device, len);
            Err(CudaError::NotBuilt.into())
        }
    }

    /// Uses `len` bytes of a device that other code has allocated in its primary context, such as a tensor.
    /// `keep_alive` is dropped when the memory is no longer used.
    ///
    /// # Safety
    /// `pointer` is the device address of at least `len` bytes on this device, which stay allocated until `keep_alive` is
    /// dropped.
    ///
    /// # Errors
    /// If `len` is 0, or the driver or the device is missing.
    pub unsafe fn from_raw(
        device: u32,
        pointer: u64,
        len: usize,
        keep_alive: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        #[cfg(feature = "cuda")]
        // SAFETY: guaranteed by the caller.
        return Ok(Self::new(len, unsafe { driver::from_raw(device, pointer, len, keep_alive) }?));
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (device, pointer, keep_alive);
            Err(CudaError::NotBuilt.into())
        }
    }

    #[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))]
    fn new(len: usize, Parts { engine, export, compile }: Parts) -> Self {
        Self { len, engine: Mutex::new(engine), export, compile, failure: OnceLock::new() }
    }

    /// Uses the engine, unless a copy has failed: then it may still be copying. Returns `true` if the copy succeeded.
    fn copy(&self, copy: impl FnOnce(&mut dyn CopyEngine) -> Result<(), CudaError>) -> bool {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failure.get().is_some() {
            return false;
        }
        let copied = copy(&mut **engine);
        copied.map_err(|error| self.failure.set(error)).is_ok()
    }
}

// SAFETY: copies access only the given ranges and the staging buffers; there is no host address.
unsafe impl DeviceMemory for CudaMemory {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        if !self.copy(|engine| unsafe { staging::copy_out(engine, offset, to, len) }) {
            // What the target had before could be another peer's.
            // SAFETY: as above.
            unsafe { to.write_bytes(0, len) };
        }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: guaranteed by the caller.
        self.copy(|engine| unsafe { staging::copy_in(engine, offset, from, len) });
    }
    fn failure(&self) -> Option<MemoryError> {
        self.failure.get().cloned().map(MemoryError::Cuda)
    }
    fn export(&self) -> Option<Result<OwnedFd, MemoryError>> {
        Some((self.export)().map_err(MemoryError::Cuda))
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl std::fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaMemory({} bytes)", self.len)
    }
}
