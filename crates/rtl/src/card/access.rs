//! Accesses of registers, over AXI4-Lite or over PCIe.

use super::sys::{Inputs, Outputs};
use crate::registers::card;

/// Clocks after which a register access or a reset has failed.
const LIMIT: u64 = 20_000;

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

impl Access {
    /// Sets the inputs of the AXI4-Lite port.
    pub fn drive(&self, inputs: &mut Inputs) {
        if self.accepted {
            return;
        }
        (inputs.axil_awaddr, inputs.axil_araddr) = (self.address, self.address);
        inputs.axil_wdata = self.value.unwrap_or(0);
        (inputs.axil_awvalid, inputs.axil_wvalid) = (self.value.is_some(), self.value.is_some());
        inputs.axil_arvalid = self.value.is_none();
    }

    /// Takes the outputs of the AXI4-Lite port, and returns the answer if it has come.
    pub fn settle(&mut self, outputs: &Outputs) -> Option<Answer> {
        let ready = if self.value.is_some() { outputs.axil_awready } else { outputs.axil_arready };
        self.accepted |= ready == 1;
        let answered = outputs.axil_bvalid == 1 || outputs.axil_rvalid == 1;
        answered.then_some(Answer { refused: outputs.axil_bresp != 0, data: outputs.axil_rdata })
    }
}

/// A simulation with registers. It goes on during accesses.
pub(crate) trait Registers {
    /// Returns the clocks since the reset.
    fn clock(&self) -> u64;

    /// Sets the access in progress.
    fn set_access(&mut self, access: Option<Access>);

    /// Runs for one clock, and returns the answer that came in it.
    ///
    /// # Errors
    /// At the first violation of a rule.
    fn step(&mut self) -> Result<Option<Answer>, String>;

    /// Accesses a register.
    ///
    /// # Errors
    /// If it does not respond, or as [`step`](Self::step).
    fn access(&mut self, address: u16, value: Option<u32>) -> Result<Answer, String> {
        self.set_access(Some(Access { address, value, accepted: false }));
        for _ in 0..LIMIT {
            if let Some(answer) = self.step()? {
                self.set_access(None);
                return Ok(answer);
            }
        }
        Err(format!("clock {}: register {address:#06x} does not respond", self.clock()))
    }

    /// Reads a register.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    fn read_register(&mut self, address: u16) -> Result<u32, String> {
        Ok(self.access(address, None)?.data)
    }

    /// Reads both words of a 48-bit counter.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    fn read_counter(&mut self, address: u16) -> Result<u64, String> {
        let low = self.read_register(address)?;
        Ok(u64::from(self.read_register(address + 4)?) << 32 | u64::from(low))
    }

    /// Runs until the card has cleared its channels after a reset.
    ///
    /// # Errors
    /// If it does not become ready, or as [`step`](Self::step).
    fn become_ready(&mut self) -> Result<(), String> {
        while self.read_register(card::STATUS)? & card::STATUS_READY == 0 {
            if self.clock() > LIMIT {
                return Err("the card does not become ready".into());
            }
        }
        Ok(())
    }
}
