//! Description of a CUDA device.

/// A CUDA device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Number of the device, from 0.
    pub index: u32,
    /// Name of the product.
    pub name: String,
    /// Length of its memory in bytes.
    pub memory_bytes: u64,
    /// The device exports its memory as dma-buf, so that other devices can access it directly.
    pub exports: bool,
}
