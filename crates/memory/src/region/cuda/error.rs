//! Errors of CUDA devices.

use crate::format_bytes;

/// Reason for which the memory of a CUDA device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The driver is older than the functions that are used.
    #[error("the NVIDIA driver is for CUDA {major}.{minor}, expected at least 11.0: update it, or use memory=emulated")]
    OldDriver {
        /// Major version.
        major: i32,
        /// Minor version.
        minor: i32,
    },
    /// The machine has no CUDA driver.
    #[error("libcuda.so.1 was not found: install the NVIDIA driver, or use memory=emulated")]
    NoLibrary,
    /// The program was built without CUDA.
    #[error("this build has no CUDA: build it with --features cuda, or use memory=emulated")]
    NotBuilt,
    /// The machine has no such device.
    #[error(
        "no CUDA device {index}: this machine has {count}, numbered from 0 (nvidia-smi -L lists them); use one of them, or \
         memory=emulated"
    )]
    NoDevice {
        /// Requested device.
        index: u32,
        /// Number of devices.
        count: u32,
    },
    /// The device has too little free memory.
    #[error(
        "{needed} of CUDA device {index} are needed, and {free} are free: request less, or end other programs that use it \
         (nvidia-smi)",
        needed = format_bytes(*needed),
        free = format_bytes(*free)
    )]
    OutOfMemory {
        /// The device.
        index: u32,
        /// Requested length in bytes.
        needed: u64,
        /// Free memory in bytes.
        free: u64,
    },
    /// The driver returned an error. Errors of a copy are permanent: the device may be lost.
    #[error("CUDA device {index}: {call} returned {error}; check the device with nvidia-smi and dmesg")]
    Call {
        /// The device.
        index: u32,
        /// Function of the driver.
        call: &'static str,
        /// Name of the error, such as `CUDA_ERROR_ECC_UNCORRECTABLE`.
        error: String,
    },
    /// The machine has no compiler of kernels.
    #[error("libnvrtc.so was not found: install NVRTC of the CUDA toolkit, or add its folder to LD_LIBRARY_PATH")]
    NoCompiler,
    /// The compiler of kernels is older than the functions that are used, or than the device.
    #[error(
        "NVRTC {major}.{minor} does not compile for a device of compute capability {capability}: expected NVRTC 11.2 or \
         later, of the age of the device or newer"
    )]
    OldCompiler {
        /// Major version.
        major: i32,
        /// Minor version.
        minor: i32,
        /// Compute capability of the device, times 10.
        capability: i32,
    },
    /// The compiler refused the kernels.
    #[error("NVRTC did not compile the kernels: {call} returned {error}: {log}")]
    Compile {
        /// Function of the compiler.
        call: &'static str,
        /// Name of the error.
        error: String,
        /// What the compiler wrote.
        log: String,
    },
    /// The device or its driver does not export memory.
    #[error(
        "CUDA device {0} does not export memory as dma-buf: expected CUDA 11.7 or later, and the open kernel modules of \
         the driver"
    )]
    NoExport(u32),
}
