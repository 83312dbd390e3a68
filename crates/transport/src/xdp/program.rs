//! The XDP program that runs for each frame (BPF, RFC 9669): it redirects our frames to a socket and passes all others
//! to the kernel.
//!
//! Our frames are whole UDP datagrams, and first fragments, to one address and port. ARP, neighbour discovery and all
//! other traffic go to the kernel, and so do later fragments, which have no port number.

use std::net::{IpAddr, SocketAddr};

/// `struct bpf_insn` of `linux/bpf.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high four.
    registers: u8,
    offset: i16,
    immediate: i32,
}

// Opcodes: class, size or operation, and source of the operand.
const LOAD_64_IMMEDIATE: u8 = 0x18;
const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_8: u8 = 0x71;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const ADD: u8 = 0x07;
const ADD_REGISTER: u8 = 0x0F;
const MOVE: u8 = 0xB7;
const MOVE_REGISTER: u8 = 0xBF;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
/// Compares the lower 32 bits: in the 64-bit comparison the immediate would be sign-extended.
const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
const JUMP_IF_LESS: u8 = 0xA5;
const JUMP_IF_GREATER_REGISTER: u8 = 0x2D;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The immediate of [`LOAD_64_IMMEDIATE`] is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

// `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

const ETHERNET: i32 = 14;
const UDP: i32 = 17;

// Register use: r0 scratch, r1 to r5 as below or a call's arguments, r6 preserved across calls.
const R0: u8 = 0;
const CONTEXT: u8 = 1;
const FRAME: u8 = 2;
const END: u8 = 3;
const BOUND: u8 = 4;
const LENGTH: u8 = 5;
const SAVED_CONTEXT: u8 = 6;

/// Builds the program that redirects frames to this address and port to the socket of their receive queue. `sockets` is
/// the descriptor of the map from queue to socket.
pub fn filter(local: SocketAddr, sockets: i32) -> Vec<Instruction> {
    let mut program = Program::default();
    program.push(MOVE_REGISTER, SAVED_CONTEXT, CONTEXT, 0, 0);
    program.push(LOAD_32, FRAME, CONTEXT, DATA, 0);
    program.push(LOAD_32, END, CONTEXT, DATA_END, 0);
    match local.ip() {
        IpAddr::V4(ip) => {
            program.require_bytes(ETHERNET + 20 + 8);
            program.pass_unless(LOAD_16, 12, i32::from(0x0800_u16.to_be()));
            program.pass_unless(LOAD_8, 23, UDP);
            program.pass_unless(LOAD_32, 30, i32::from_ne_bytes(ip.octets()));
            program.push(LOAD_16, R0, FRAME, 20, 0);
            program.push(AND, R0, 0, 0, i32::from(0x1FFF_u16.to_be()));
            program.pass_if(JUMP_UNLESS_EQUAL, R0, 0, 0); // a later fragment
            program.push(LOAD_8, LENGTH, FRAME, 14, 0);
            program.push(AND, LENGTH, 0, 0, 15);
            program.push(SHIFT_LEFT, LENGTH, 0, 0, 2);
            program.pass_if(JUMP_IF_LESS, LENGTH, 0, 20);
            program.push(ADD_REGISTER, FRAME, LENGTH, 0, 0);
            program.require_bytes(ETHERNET + 4);
            program.pass_unless(LOAD_16, ETHERNET as i16 + 2, i32::from(local.port().to_be()));
        }
        IpAddr::V6(ip) => {
            program.require_bytes(ETHERNET + 40 + 8);
            program.pass_unless(LOAD_16, 12, i32::from(0x86DD_u16.to_be()));
            program.pass_unless(LOAD_8, 20, UDP);
            let octets = ip.octets();
            let (words, _) = octets.as_chunks::<4>();
            for (index, word) in words.iter().enumerate() {
                program.pass_unless(LOAD_32, 38 + 4 * index as i16, i32::from_ne_bytes(*word));
            }
            program.pass_unless(LOAD_16, 14 + 40 + 2, i32::from(local.port().to_be()));
        }
    }
    program.redirect(sockets)
}

/// A program under construction: instructions, and the indices of those that jump to the end.
#[derive(Default)]
struct Program {
    instructions: Vec<Instruction>,
    passes: Vec<usize>,
}

impl Program {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    /// Passes the frame to the kernel if this comparison is true.
    fn pass_if(&mut self, code: u8, register: u8, other: u8, value: i32) {
        self.passes.push(self.instructions.len());
        self.push(code, register, other, 0, value);
    }

    /// Passes the frame to the kernel unless the field at this offset has this value, in network byte order.
    fn pass_unless(&mut self, load: u8, at: i16, value: i32) {
        self.push(load, R0, FRAME, at, 0);
        self.pass_if(JUMP_UNLESS_EQUAL_32, R0, 0, value);
    }

    /// Passes the frame to the kernel unless at least `bytes` bytes follow the frame pointer. The verifier requires
    /// this bounds check.
    fn require_bytes(&mut self, bytes: i32) {
        self.push(MOVE_REGISTER, BOUND, FRAME, 0, 0);
        self.push(ADD, BOUND, 0, 0, bytes);
        self.pass_if(JUMP_IF_GREATER_REGISTER, BOUND, END, 0);
    }

    /// Ends the program: redirects to the socket of the frame's queue, or passes to the kernel if there is none.
    fn redirect(mut self, sockets: i32) -> Vec<Instruction> {
        self.push(LOAD_64_IMMEDIATE, 1, PSEUDO_MAP_FD, 0, sockets);
        self.push(0, 0, 0, 0, 0); // the constant's upper half
        self.push(LOAD_32, 2, SAVED_CONTEXT, RX_QUEUE_INDEX, 0);
        self.push(MOVE, 3, 0, 0, XDP_PASS);
        self.push(CALL, 0, 0, 0, REDIRECT_MAP);
        self.push(EXIT, 0, 0, 0, 0);
        let pass = self.instructions.len();
        self.push(MOVE, R0, 0, 0, XDP_PASS);
        self.push(EXIT, 0, 0, 0, 0);
        for at in self.passes {
            self.instructions[at].offset = (pass - at - 1) as i16;
        }
        self.instructions
    }
}
