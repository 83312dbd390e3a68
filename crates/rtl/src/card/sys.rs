//! Safe wrapper of the models' C interface (`shim.cpp`): a [`Model`] owns one simulation and runs for one clock a call.

use std::ptr::NonNull;

/// Maximum number of clocks of the MAC in one clock of the module.
pub const MAC_CLOCKS: usize = 4;

/// Clocks of a reset, and after it until no part of a module is in reset.
const RESET_CLOCKS: usize = 8;

/// A module that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// `shotline_card_dma` with 256 channels.
    Dma = 0,
    /// `shotline_card_dma` with small parameters.
    Small = 1,
    /// `shotline_card_port` with 256 channels.
    Port = 2,
    /// `shotline_card` with 256 channels.
    Pcie = 3,
    /// `shotline_card_ethernet` with 256 channels.
    Ethernet = 4,
}

/// Inputs of the module in one clock of the MAC, in the layout of the shim.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MacClock {
    pub data: [u64; 8],
    pub time: u64,
    pub valid: bool,
    pub last: bool,
    /// Bytes of the word, 1 to 64.
    pub bytes: u8,
    /// With `last`: the FCS is wrong.
    pub damaged: bool,
}

/// Inputs of the module in one clock, in the layout of the shim. The names are those of the ports.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub mac: [MacClock; MAC_CLOCKS],
    pub data: [u64; 8],
    pub completion_data: [u64; 4],
    pub axil_wdata: u32,
    pub axil_awaddr: u16,
    pub axil_araddr: u16,
    pub length: u16,
    reset: bool,
    pub axil_awvalid: bool,
    pub axil_wvalid: bool,
    pub axil_arvalid: bool,
    pub valid: bool,
    pub first: bool,
    pub first_block: u8,
    pub channel: u8,
    pub data_ready: bool,
    pub slot_ready: bool,
    pub read_ready: bool,
    pub completion_valid: bool,
    pub completion_tag: u8,
    pub completion_error: bool,
    pub notice_valid: bool,
    pub notice_kind: u8,
    pub notice_channel: u8,
    /// Clocks of the MAC before the edge at the end of this clock.
    pub mac_clocks: u8,
}

/// Outputs of the module before the edge at the end of a clock, in the layout of the shim. Ports of one bit are 0 or 1.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    pub data: [u64; 8],
    pub slot_address: [u64; 2],
    pub slot_report: u64,
    pub read_address: u64,
    pub axil_rdata: u32,
    pub slot_length: u32,
    pub slot_channel: u16,
    pub axil_awready: u8,
    pub axil_arready: u8,
    pub axil_bvalid: u8,
    pub axil_bresp: u8,
    pub axil_rvalid: u8,
    pub ready: u8,
    pub data_valid: u8,
    pub data_keep: u8,
    pub slot_valid: u8,
    pub slot_kind: u8,
    pub slot_block: u8,
    pub read_valid: u8,
    pub read_tag: u8,
}

/// Inputs of the module in one clock of the integrated block for PCIe, in the layout of the shim.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct PcieInputs {
    pub rc_data: [u64; 8],
    pub cq_data: [u64; 8],
    pub rq_ready: bool,
    pub rc_valid: bool,
    pub rc_last: bool,
    pub cq_valid: bool,
    /// Credits for reads, 15 for more.
    pub read_credits: u8,
}

/// Outputs of the module before the edge at the end of a clock of the integrated block, in the layout of the shim. Ports
/// of one bit are 0 or 1.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct PcieOutputs {
    pub rq_data: [u64; 8],
    /// The lowest 64 bits; the others are 0.
    pub rq_user: u64,
    pub cc_data: [u64; 2],
    pub rq_keep: u16,
    pub rq_valid: u8,
    pub rc_ready: u8,
    pub cq_ready: u8,
    pub cc_valid: u8,
    pub interrupt_valid: u8,
    pub interrupt_channel: u8,
}

/// Opaque type of the shim's simulation.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn shotline_card_new(top: i32, seed: u64) -> *mut Raw;
    fn shotline_card_free(model: *mut Raw);
    fn shotline_card_tick(model: *mut Raw, inputs: *const Inputs, outputs: *mut Outputs);
    fn shotline_card_tick_pcie(model: *mut Raw, inputs: *const PcieInputs, outputs: *mut PcieOutputs);
    fn shotline_rtl_failures() -> u64;
}

/// One simulation. Failed assertions are counted per thread, so it must stay on the thread that created it.
#[derive(Debug)]
pub(crate) struct Model(NonNull<Raw>);

impl Model {
    /// Creates a simulation and resets it. `seed` determines the values of registers without a reset.
    pub(crate) fn new(top: Top, seed: u64) -> Self {
        // SAFETY: all arguments are valid; `new` in C++ does not return null.
        let raw = unsafe { shotline_card_new(top as i32, seed) };
        Self(NonNull::new(raw).expect("C++'s new returns an address"))
    }

    /// Runs for one clock.
    pub(crate) fn tick(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: `self` owns the model; both pointers are valid within the call; the layouts are those of the shim.
        unsafe { shotline_card_tick(self.0.as_ptr(), inputs, &mut outputs) }
        outputs
    }

    /// Runs for one clock of the integrated block for PCIe, if the module has its streams.
    pub(crate) fn tick_pcie(&mut self, inputs: &PcieInputs) -> PcieOutputs {
        let mut outputs = PcieOutputs::default();
        // SAFETY: `self` owns the model; both pointers are valid within the call; the layouts are those of the shim.
        unsafe { shotline_card_tick_pcie(self.0.as_ptr(), inputs, &mut outputs) }
        outputs
    }

    /// Resets the module, with all its clocks running, and waits until all of it has left the reset.
    pub(crate) fn reset(&mut self) {
        for clock in 0..2 * RESET_CLOCKS {
            self.tick(&Inputs { reset: clock < RESET_CLOCKS, mac_clocks: 2, ..Inputs::default() });
            self.tick_pcie(&PcieInputs::default());
        }
    }

    /// Returns the number of the RTL's assertions that have failed on this thread.
    pub(crate) fn failures(&self) -> u64 {
        // SAFETY: reads a counter of this thread.
        unsafe { shotline_rtl_failures() }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: created by `shotline_card_new`, and freed only here.
        unsafe { shotline_card_free(self.0.as_ptr()) }
    }
}
