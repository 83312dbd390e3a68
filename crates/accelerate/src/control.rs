//! The control region of an accelerator: what it can do, and the command queues. All numbers are little-endian.
//!
//! | offset | bytes | contents |
//! |---|---|---|
//! | 0 | 8 | `SHOTACC` and the version, 1 |
//! | 8 | 4 | number of queues |
//! | 12 | 4 | number of slots of a queue |
//! | 16 | 4 | bytes of a slot |
//! | 20 | 4 | offset of the first queue |
//! | 24 | 8 | bytes of the accelerator's memory |
//! | 32 | 4 | maximum number of steps of a command |
//! | 36 | 4 | number of threads |
//! | 64 | 64 | name of the region that is the memory, filled with zeros |
//! | 128 | 4 each | number of the queue pair that a queue belongs to, 0 if it is free |
//!
//! The accelerator writes all of this and reads nothing of it. A peer writes only the slots of its own queue.

use crate::command::COMMAND_BYTES;
use shotline_compute::stencil::MAX_STEPS;
use shotline_memory::{MemoryError, Region};
use std::sync::Arc;

/// Name of the control region of an accelerator node.
pub const CONTROL_REGION: &str = "accelerator";
/// Number of command queues.
pub const QUEUES: usize = 32;
/// Number of slots of a command queue.
pub const SLOTS: usize = 32;
/// First bytes of the region.
const MAGIC: [u8; 8] = *b"SHOTACC\x01";
/// Offset of the first queue, and length of what is before it.
pub const FIRST_QUEUE: usize = 4096;
/// Offset of the table of queue pairs, and length of the header.
pub(crate) const OWNERS: usize = 128;
/// Number of queues whose owners fit before the first queue.
const MAX_QUEUES: u32 = ((FIRST_QUEUE - OWNERS) / 4) as u32;
/// Offset and length of the name of the memory.
const NAME: usize = 64;
const NAME_BYTES: usize = 64;

/// Length of the control region in bytes.
pub const CONTROL_BYTES: usize = FIRST_QUEUE + QUEUES * SLOTS * COMMAND_BYTES;

/// What a control region says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of queues.
    pub queues: u32,
    /// Number of slots of a queue.
    pub slots: u32,
    /// Bytes of the accelerator's memory.
    pub memory_bytes: u64,
    /// Maximum number of steps of a command.
    pub max_steps: u32,
    /// Number of threads.
    pub threads: u32,
    /// Name of the region that is the memory.
    pub memory: String,
}

impl Header {
    /// Parses the first 128 bytes of a control region, which a peer may have sent.
    ///
    /// # Errors
    /// If they are not those of a control region with queues of the documented form.
    pub fn parse(bytes: &[u8; OWNERS]) -> Result<Self, String> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        if bytes[..8] != MAGIC {
            return Err(format!("expected a control region (SHOTACC, version 1), found {:02x?}", &bytes[..8]));
        }
        let (queues, slots) = (u32_at(8), u32_at(12));
        if u32_at(16) as usize != COMMAND_BYTES || u32_at(20) as usize != FIRST_QUEUE {
            return Err("the slots of the control region have another length or place than expected".into());
        }
        if !(1..=MAX_QUEUES).contains(&queues) || slots as usize != SLOTS {
            return Err(format!("expected 1 to {MAX_QUEUES} queues of {SLOTS} slots, found {queues} of {slots}"));
        }
        let name = bytes[NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
        let memory = std::str::from_utf8(name).map_err(|_| "the name of the memory is no text")?.to_owned();
        Ok(Self { queues, slots, memory_bytes: u64_at(24), max_steps: u32_at(32), threads: u32_at(36), memory })
    }

    fn emit(&self) -> [u8; OWNERS] {
        let mut bytes = [0; OWNERS];
        bytes[..8].copy_from_slice(&MAGIC);
        let numbers = [self.queues, self.slots, COMMAND_BYTES as u32, FIRST_QUEUE as u32];
        for (number, to) in numbers.into_iter().zip(bytes[8..24].as_chunks_mut::<4>().0) {
            *to = number.to_le_bytes();
        }
        bytes[24..32].copy_from_slice(&self.memory_bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.max_steps.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.threads.to_le_bytes());
        let name = self.memory.as_bytes();
        let len = name.len().min(NAME_BYTES);
        bytes[NAME..NAME + len].copy_from_slice(&name[..len]);
        bytes
    }
}

/// Returns the offset of a slot.
pub fn slot_offset(queue: usize, slot: usize) -> usize {
    FIRST_QUEUE + (queue * SLOTS + slot) * COMMAND_BYTES
}

/// Returns the offset of the number of the queue pair that a queue belongs to.
pub fn owner_offset(queue: usize) -> usize {
    OWNERS + 4 * queue
}

/// Creates the control region of an accelerator.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn make(memory: &str, memory_bytes: u64, threads: usize) -> Result<Arc<Region>, MemoryError> {
    let region = Region::memfd("shotline-accelerator", CONTROL_BYTES)?;
    reset(&region, memory, memory_bytes, threads);
    Ok(region)
}

/// Stores everything but the owners, which a peer may have overwritten, and clears the queues.
pub(crate) fn reset(region: &Region, memory: &str, memory_bytes: u64, threads: usize) {
    let (queues, slots, max_steps, threads) = (QUEUES as u32, SLOTS as u32, MAX_STEPS as u32, threads as u32);
    let header = Header { queues, slots, memory_bytes, max_steps, threads, memory: memory.to_owned() };
    region.zero(0, CONTROL_BYTES);
    region.write(0, &header.emit());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_region_has_the_documented_bytes() {
        let region = make("hbm", 1 << 30, 3).unwrap();
        let mut bytes = [0; OWNERS];
        region.read(0, &mut bytes);
        assert_eq!(bytes[..24], *b"SHOTACC\x01\x20\0\0\0\x20\0\0\0\x80\0\0\0\0\x10\0\0");
        assert_eq!((bytes[27], bytes[32], bytes[36], &bytes[64..68]), (0x40, 64, 3, &b"hbm\0"[..]));
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.memory.as_str(), header.memory_bytes, header.threads), ("hbm", 1 << 30, 3));
        assert_eq!((slot_offset(0, 0), slot_offset(1, 1), owner_offset(2)), (4096, 8320, 136));
        assert_eq!(region.len(), 135_168);
    }

    #[test]
    fn other_bytes_are_refused_with_what_was_found() {
        let good =
            Header { queues: 1, slots: 32, memory_bytes: 1, max_steps: 1, threads: 1, memory: "m".into() }.emit();
        let refused = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::parse(&bytes).unwrap_err()
        };
        assert!(Header::parse(&good).is_ok());
        assert!(refused(0, 0).contains("expected a control region"));
        assert!(refused(16, 64).contains("another length"));
        assert!(refused(9, 255).contains("found 65281 of 32"));
        assert!(refused(12, 31).contains("found 1 of 31"));
        assert!(refused(64, 0xFF).contains("no text"));
    }
}
