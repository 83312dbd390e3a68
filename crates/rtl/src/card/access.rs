//! Accesses of registers, over AXI4-Lite or over PCIe.

/// A register access in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub address: u16,
    /// What is written, `None` for a read.
    pub value: Option<u32>,
    pub accepted: bool,
}

/// The answer to a register access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub refused: bool,
    pub data: u32,
}
