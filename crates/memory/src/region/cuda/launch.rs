//! Kernels of a device, launched by the driver. Not tested on a device yet.

use super::context::{Context, Owned, allocate, event, stream};
use super::error::CudaError;
use super::kernels::CudaKernels;
use super::nvrtc;
use cudarc::driver::sys;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// Kernels that are loaded into the context of a device.
pub(super) struct Kernels {
    context: Arc<Context>,
    memory: sys::CUdeviceptr,
    functions: Vec<sys::CUfunction>,
    scratch: Option<(Owned<sys::CUdeviceptr>, usize)>,
    event: Owned<sys::CUevent>,
    stream: Owned<sys::CUstream>,
    /// Has the functions.
    _module: Owned<sys::CUmodule>,
}

// SAFETY: the functions are handles of the driver, which may be used in every thread.
unsafe impl Send for Kernels {}

impl Kernels {
    /// Compiles and loads kernels for memory of the device.
    pub(super) fn compile(
        context: &Arc<Context>,
        memory: sys::CUdeviceptr,
        source: &str,
        names: &[&CStr],
    ) -> Result<Self, CudaError> {
        let code = nvrtc::compile(source, capability(context)?)?;
        // SAFETY: the compiler's output is a whole module; the call writes the handle of a new object.
        let load = |to| unsafe { sys::cuModuleLoadData(to, code.as_ptr().cast()) };
        let module = Owned::new(context, "cuModuleLoadData", ptr::null_mut(), load, sys::cuModuleUnload)?;
        let find = |name: &&CStr| {
            let mut function = ptr::null_mut();
            // SAFETY: the module is valid, and the handle and the name outlive the call.
            let found = || unsafe { sys::cuModuleGetFunction(&raw mut function, module.value, name.as_ptr()) };
            context.call("cuModuleGetFunction", found)?;
            Ok(function)
        };
        let functions = names.iter().map(find).collect::<Result<_, CudaError>>()?;
        let (stream, event) = (stream(context)?, event(context)?);
        Ok(Self { context: Arc::clone(context), memory, functions, scratch: None, event, stream, _module: module })
    }
}

/// Returns the compute capability of a device, times 10.
fn capability(context: &Context) -> Result<c_int, CudaError> {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the device is valid, and the integer outlives the call.
        let get = || unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, context.device) };
        context.call("cuDeviceGetAttribute", get)?;
        Ok(value)
    };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(10 * major + minor)
}

impl CudaKernels for Kernels {
    fn memory(&self) -> u64 {
        self.memory
    }

    fn scratch(&mut self, len: usize) -> Result<u64, CudaError> {
        if self.scratch.as_ref().is_none_or(|(_, has)| *has < len) {
            // Freed first, so that there is room.
            self.scratch = None;
            self.scratch = Some((allocate(&self.context, len)?, len));
        }
        Ok(self.scratch.as_ref().map_or(0, |(memory, _)| memory.value))
    }

    fn read_scratch(&mut self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let (address, has) = self.scratch.as_ref().map_or((0, 0), |(memory, len)| (memory.value, *len));
        assert!(offset <= has && to.len() <= has - offset, "{offset}+{} is outside of {has} bytes", to.len());
        // SAFETY: the source range was checked, and the target is a live exclusive slice.
        let copy = || unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address + offset as u64, to.len()) };
        self.context.call("cuMemcpyDtoH", copy)
    }

    unsafe fn launch(&mut self, kernel: usize, grid: u32, block: u32, arguments: &[u64]) -> Result<(), CudaError> {
        let (function, stream) = (self.functions[kernel], self.stream.value);
        let mut parameters = [arguments.as_ptr().cast::<c_void>().cast_mut()];
        // SAFETY: function and stream are valid and of the context. The driver copies the arguments, which have the length
        // of the parameter; the caller guarantees that, and what the kernel accesses.
        let launch = || unsafe {
            let parameters = parameters.as_mut_ptr();
            sys::cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, ptr::null_mut())
        };
        self.context.call("cuLaunchKernel", launch)
    }

    fn finish(&mut self) -> Result<(), CudaError> {
        let (event, stream) = (self.event.value, self.stream.value);
        // SAFETY: event and stream are valid and of the same context.
        self.context.call("cuEventRecord", || unsafe { sys::cuEventRecord(event, stream) })?;
        // SAFETY: the event is valid.
        self.context.call("cuEventSynchronize", || unsafe { sys::cuEventSynchronize(event) })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // After an error, kernels may still be in progress.
        let _ = self.finish();
    }
}
