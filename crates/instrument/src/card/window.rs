//! The memory that a driver and the card share: `dpdk/window.h`.

use super::sys::Words;
use rustix::fd::BorrowedFd;
use shotline_memory::MemoryError;
use shotline_rtl::card::channel_register;
use shotline_rtl::registers::card_channel;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Layout.
pub(super) const BYTES: usize = 0x40_0000;
const HEAD: usize = 0x1_0000;
const COMMANDS_AT: usize = 0x1_1000;
const SEND_AT: usize = 0x2_0000;
/// What the window is.
pub(super) const MAGIC: u32 = 0x574C_4853;
pub(super) const VERSION: u32 = 1;
/// Entries of the rings.
pub(super) const COMMANDS: u32 = 256;
pub(super) const SEND_ENTRIES: u32 = 256;
/// Queues with a send ring, and the bytes from one ring to the next.
pub(super) const SEND_QUEUES: usize = 256;
const SEND_STRIDE: usize = 0x2000;
/// Longest frame that software sends, without FCS.
pub(super) const SEND_MAX: usize = 16_367;
/// Flag of the last piece of a frame.
pub(super) const SEND_END: u32 = 1;
/// Status of a command that was refused.
pub(super) const REFUSED: u32 = 1;
/// Kinds of commands.
pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
/// Kinds of requests on the socket.
pub(super) const MAP: u32 = 0;
pub(super) const UNMAP: u32 = 1;
pub(super) const EVENTS: u32 = 2;
/// Event descriptors of a request.
pub(super) const MAX_EVENTS: usize = 64;

// Offsets in the head.
const HEAD_MAGIC: usize = 0;
const HEAD_VERSION: usize = 4;
const HEAD_HEARTBEAT: usize = 8;
const HEAD_GIVEN: usize = 64;
const HEAD_DONE: usize = 128;
/// Bytes of an entry of either ring.
const ENTRY: usize = 16;
// Offsets in a send ring.
const RING_GIVEN: usize = 0;
const RING_DONE: usize = 64;
const RING_ENTRIES: usize = 128;

/// An access of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub address: u16,
    pub kind: u16,
    pub value: u32,
}

/// A piece of a frame that software sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: u64,
    pub length: u32,
    pub flags: u32,
}

/// The window, as the card sees it. All that a driver writes may have any value at any time.
#[derive(Debug)]
pub(super) struct Window(Words);

impl Window {
    /// Creates a window that is ready.
    pub fn new() -> Result<Self, MemoryError> {
        Words::new("shotline-card", BYTES).map(Self::ready)
    }

    /// Makes a file a window that is ready, whatever it contained.
    pub fn open(path: &Path) -> Result<Self, MemoryError> {
        Words::file(path, BYTES).map(Self::ready)
    }

    fn ready(words: Words) -> Self {
        words.u32(HEAD + HEAD_VERSION).store(VERSION, Relaxed);
        words.u32(HEAD + HEAD_MAGIC).store(MAGIC, Release);
        Self(words)
    }

    /// Shows that no card is there any more.
    pub fn close(&self) {
        self.0.u32(HEAD + HEAD_MAGIC).store(0, Release);
    }

    /// Returns the descriptor of the memory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Shows that the card is there.
    pub fn beat(&self) {
        let beat = self.0.u32(HEAD + HEAD_HEARTBEAT);
        beat.store(beat.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns the doorbell of a channel.
    pub fn software_pointer(&self, channel: usize) -> u16 {
        let register = channel_register(card_channel::SOFTWARE_POINTER, channel);
        self.0.u32(register.into()).load(Acquire) as u16
    }

    /// Returns the number of commands given, modulo 2^32.
    pub fn commands_given(&self) -> u32 {
        self.0.u32(HEAD + HEAD_GIVEN).load(Acquire)
    }

    /// Returns a command by its number.
    pub fn command(&self, number: u32) -> Command {
        let word = self.0.u64(Self::command_at(number)).load(Relaxed);
        Command { address: word as u16, kind: (word >> 16) as u16, value: (word >> 32) as u32 }
    }

    /// Answers the command with this number.
    pub fn answer(&self, number: u32, answer: u32, status: u32) {
        self.0.u64(Self::command_at(number) + 8).store(u64::from(answer) | u64::from(status) << 32, Relaxed);
        self.0.u32(HEAD + HEAD_DONE).store(number.wrapping_add(1), Release);
    }

    fn command_at(number: u32) -> usize {
        COMMANDS_AT + ENTRY * (number % COMMANDS) as usize
    }

    /// Returns the number of pieces given to a send ring, modulo 2^32.
    pub fn pieces_given(&self, queue: usize) -> u32 {
        self.0.u32(Self::ring_at(queue) + RING_GIVEN).load(Acquire)
    }

    /// Returns a piece of a send ring by its number.
    pub fn piece(&self, queue: usize, number: u32) -> Piece {
        let at = Self::ring_at(queue) + RING_ENTRIES + ENTRY * (number % SEND_ENTRIES) as usize;
        let [address, rest] = [0, 8].map(|offset| self.0.u64(at + offset).load(Relaxed));
        Piece { address, length: rest as u32, flags: (rest >> 32) as u32 }
    }

    /// Returns the pieces before this number to the driver.
    pub fn set_pieces_done(&self, queue: usize, number: u32) {
        self.0.u32(Self::ring_at(queue) + RING_DONE).store(number, Release);
    }

    fn ring_at(queue: usize) -> usize {
        SEND_AT + SEND_STRIDE * queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HEADER: &str = include_str!("../../../../dpdk/window.h");

    /// Returns the constants of the header: numbers that are defined, and those of enumerations.
    fn constants() -> BTreeMap<&'static str, u64> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let mut found = BTreeMap::new();
        for line in HEADER.lines().filter_map(|line| line.strip_prefix("#define ")) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            if let Some(value) = words.next() {
                found.insert(name, number(value).unwrap_or_else(|| panic!("{line}")));
            }
        }
        let code = without_comments();
        for list in code.split("enum").skip(1).filter_map(|text| text.split_once('{')).map(|(_, list)| list) {
            let names = list.split('}').next().unwrap().split(',').map(str::trim).filter(|name| !name.is_empty());
            let mut next = 0;
            for name in names {
                let (name, value) = name.split_once('=').unwrap_or((name, ""));
                next = number(value.trim()).unwrap_or(next);
                found.insert(name.trim(), next);
                next += 1;
            }
        }
        found
    }

    fn without_comments() -> &'static str {
        let mut code = String::new();
        for (index, part) in HEADER.split("/*").enumerate() {
            code.push_str(if index == 0 { part } else { part.split_once("*/").unwrap().1 });
        }
        code.leak()
    }

    /// Returns the offsets of a structure's fields, and its size as `""`.
    fn offsets(name: &str) -> BTreeMap<&'static str, usize> {
        let body = without_comments().split_once(&format!("struct {name} {{")).unwrap().1;
        let constants = constants();
        let (mut at, mut align, mut found) = (0_usize, 1, BTreeMap::new());
        for field in body.split('}').next().unwrap().split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let (kind, declared) = field.rsplit_once(char::is_whitespace).unwrap();
            let (field, count) = declared.split_once('[').unwrap_or((declared, "1]"));
            let count = count.strip_suffix(']').unwrap();
            let count = count.parse().unwrap_or_else(|_| constants[count] as usize);
            let (size, alignment) = match kind.split_whitespace().last().unwrap() {
                "uint16_t" => (2, 2),
                "uint32_t" | "int32_t" => (4, 4),
                "uint64_t" => (8, 8),
                "shotline_send_entry" => (16, 8),
                other => panic!("{other}"),
            };
            at = at.next_multiple_of(alignment);
            found.insert(field, at);
            (at, align) = (at + size * count, align.max(alignment));
        }
        found.insert("", at.next_multiple_of(align));
        found
    }

    #[test]
    fn constants_are_those_of_the_header() {
        let ours = [
            ("SHOTLINE_WINDOW_BYTES", BYTES as u64),
            ("SHOTLINE_WINDOW_HEAD", HEAD as u64),
            ("SHOTLINE_WINDOW_COMMANDS", COMMANDS_AT as u64),
            ("SHOTLINE_WINDOW_SEND", SEND_AT as u64),
            ("SHOTLINE_WINDOW_MAGIC", MAGIC.into()),
            ("SHOTLINE_WINDOW_VERSION", VERSION.into()),
            ("SHOTLINE_COMMANDS", COMMANDS.into()),
            ("SHOTLINE_SEND_ENTRIES", SEND_ENTRIES.into()),
            ("SHOTLINE_SEND_QUEUES", SEND_QUEUES as u64),
            ("SHOTLINE_SEND_STRIDE", SEND_STRIDE as u64),
            ("SHOTLINE_SEND_MAX", SEND_MAX as u64),
            ("SHOTLINE_SEND_END", SEND_END.into()),
            ("SHOTLINE_READ", READ.into()),
            ("SHOTLINE_WRITE", WRITE.into()),
            ("SHOTLINE_REFUSED", REFUSED.into()),
            ("SHOTLINE_MAP", MAP.into()),
            ("SHOTLINE_UNMAP", UNMAP.into()),
            ("SHOTLINE_EVENTS", EVENTS.into()),
            ("SHOTLINE_MAX_EVENTS", MAX_EVENTS as u64),
        ];
        assert_eq!(constants(), BTreeMap::from(ours));
    }

    #[test]
    fn offsets_are_those_of_the_header() {
        let head = offsets("shotline_window_head");
        let fields = ["magic", "version", "heartbeat", "commands_given", "commands_done"].map(|field| head[field]);
        assert_eq!(fields, [HEAD_MAGIC, HEAD_VERSION, HEAD_HEARTBEAT, HEAD_GIVEN, HEAD_DONE]);
        let command = offsets("shotline_command");
        let fields = ["address", "kind", "value", "answer", "status", ""].map(|field| command[field]);
        assert_eq!(fields, [0, 2, 4, 8, 12, ENTRY]);
        let entry = offsets("shotline_send_entry");
        assert_eq!(["address", "length", "flags", ""].map(|field| entry[field]), [0, 8, 12, ENTRY]);
        let ring = offsets("shotline_send_ring");
        assert_eq!(["given", "done", "entries"].map(|field| ring[field]), [RING_GIVEN, RING_DONE, RING_ENTRIES]);
        assert!(ring[""] <= SEND_STRIDE && SEND_AT + SEND_STRIDE * SEND_QUEUES <= BYTES);
        let request = offsets("shotline_request");
        assert_eq!(["kind", "address", "length", "offset", ""].map(|field| request[field]), [0, 8, 16, 24, 32]);
        let hello = offsets("shotline_hello");
        assert_eq!(["magic", "version", "window_bytes", ""].map(|field| hello[field]), [0, 4, 8, 16]);
        assert_eq!(offsets("shotline_answer")[""], 4);
    }
}
