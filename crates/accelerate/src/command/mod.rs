//! Commands and completions, byte by byte. All numbers are little-endian.

mod completion;
mod exchange;
mod fields;
mod range;
mod tile;

pub use completion::{COMPLETION_BYTES, Completion, Outcome};
pub use exchange::{Connect, Exchange, MAX_ADDRESS_BYTES, NEIGHBOURS};
pub use tile::{TileSteps, Values};

use fields::{Reader, Writer};

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 128;

/// The work of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Nothing, to measure the queue.
    Nop,
    /// Steps of a five-point stencil on a tile.
    Stencil(TileSteps),
    /// Connects to another accelerator node.
    Connect(Connect),
    /// Writes to the memory of a neighbour, then its signal.
    Put {
        /// Number of the neighbour.
        neighbour: u32,
        /// What is written. `to` and `signal` are offsets in the neighbour's memory.
        exchange: Exchange,
    },
    /// Waits for a signal, then copies, all in the accelerator's own memory.
    Wait(Exchange),
}

/// Where the completion of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Number chosen by the initiator, returned in the completion.
    pub id: u64,
    /// Address of the initiator's memory that the completion is written to.
    pub address: u64,
    /// Its rkey.
    pub rkey: u32,
    /// Write the completion with immediate data (the number of the slot), which consumes a receive of the initiator.
    pub notify: bool,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// Where the completion goes.
    pub to: ReplyTo,
    /// The work.
    pub kernel: Kernel,
}

/// Bytes that are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is malformed: {reason}")]
pub struct Malformed {
    /// Where the completion goes nevertheless.
    pub to: ReplyTo,
    /// What is wrong.
    pub reason: &'static str,
}

const NOP: u8 = 0;
const STENCIL: u8 = 1;
const CONNECT: u8 = 2;
const PUT: u8 = 3;
const WAIT: u8 = 4;

/// Flag of a command whose completion has immediate data. The others belong to the stencil.
const NOTIFY: u8 = 4;

/// What a kernel has in a command: everything but where the completion goes.
struct Body {
    /// Kernel, two bytes of its own, and flags.
    head: [u8; 4],
    number: u32,
    rest: [u8; 64],
}

impl Kernel {
    fn emit(&self) -> Body {
        let mut rest = [0; 64];
        let mut put = Writer(&mut rest);
        let (head, number) = match self {
            Self::Nop => ([NOP, 0, 0, 0], 0),
            Self::Stencil(work) => {
                let ([values, boundary, edges], steps) = work.emit(&mut put);
                ([STENCIL, values, boundary, edges], steps)
            }
            Self::Connect(to) => {
                to.emit(&mut put);
                ([CONNECT, 0, 0, 0], to.neighbour)
            }
            Self::Put { neighbour, exchange } => {
                exchange.emit(&mut put);
                ([PUT, 0, 0, 0], *neighbour)
            }
            Self::Wait(exchange) => {
                exchange.emit(&mut put);
                ([WAIT, 0, 0, 0], 0)
            }
        };
        Body { head, number, rest }
    }

    fn parse(body: &Body) -> Result<Self, &'static str> {
        let Body { head, number, rest } = body;
        let neighbour = || if *number < NEIGHBOURS { Ok(*number) } else { Err("there are fewer neighbours") };
        let rest = Reader(rest);
        Ok(match head[0] {
            NOP => Self::Nop,
            STENCIL => Self::Stencil(TileSteps::parse(*head, *number, rest)?),
            CONNECT => Self::Connect(Connect::parse(neighbour()?, rest)),
            PUT => Self::Put { neighbour: neighbour()?, exchange: Exchange::parse(rest) },
            WAIT => Self::Wait(Exchange::parse(rest)),
            _ => return Err("the kernel is unknown"),
        })
    }
}

impl Command {
    /// Returns the bytes of the command.
    pub fn emit(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        let mut put = Writer(&mut bytes);
        let Body { head: [kernel, a, b, flags], number, rest } = self.kernel.emit();
        put.bytes([kernel, a, b, flags | if self.to.notify { NOTIFY } else { 0 }]);
        put.u32(number);
        put.u64(self.to.id);
        put.bytes(rest);
        put.u64(self.to.address);
        put.u32(self.to.rkey);
        bytes
    }

    /// Returns `true` if the bytes of a command, valid or not, may have a token.
    pub(crate) fn has_token(bytes: &[u8; COMMAND_BYTES]) -> bool {
        bytes[0] == CONNECT
    }

    /// Parses a command.
    ///
    /// # Errors
    /// If a byte has a value without a meaning. Ranges are not checked ([`Kernel::check`]).
    pub fn parse(bytes: &[u8; COMMAND_BYTES]) -> Result<Self, Malformed> {
        let mut take = Reader(bytes);
        let (head, number, id): ([u8; 4], _, _) = (take.bytes(), take.u32(), take.u64());
        let body = Body { head, number, rest: take.bytes() };
        let flags = head[3];
        let to = ReplyTo { id, address: take.u64(), rkey: take.u32(), notify: flags & NOTIFY != 0 };
        let refuse = |reason| Malformed { to, reason };
        let command = Self { to, kernel: Kernel::parse(&body).map_err(refuse)? };
        // Bytes that this command does not use are zeros.
        if command.emit() == *bytes { Ok(command) } else { Err(refuse("a reserved bit is set")) }
    }
}

impl Kernel {
    /// Checks that the work can be done in a memory of this many bytes, by this many threads.
    ///
    /// # Errors
    /// [`Outcome::OutOfRange`], or as [`TileSteps::check`].
    pub fn check(&self, memory: u64, threads: usize) -> Result<(), Outcome> {
        match self {
            Self::Nop => Ok(()),
            Self::Stencil(work) => work.check(memory, threads),
            Self::Connect(to) => to.check(memory),
            Self::Put { exchange, .. } => exchange.check_put(memory),
            Self::Wait(exchange) => exchange.check_wait(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_compute::stencil::{Boundary, Edge, Tile, Weights};
    use shotline_verbs::cm::Token;

    const TO: ReplyTo = ReplyTo { id: 0x0102_0304_0506_0708, address: 0x1122_3344, rkey: 0xAABB_CCDD, notify: true };

    pub(super) fn work() -> TileSteps {
        TileSteps {
            values: Values::F32,
            tile: Tile { rows: 32, columns: 100, above: Edge::Halo, below: Edge::Border },
            boundary: Boundary::Insulated,
            weights: Weights { center: 0.5, neighbour: 0.125 },
            steps: 8,
            source: 4096,
            result: 4096 + 8 * 512,
            stride: 512,
            squares: Some(0),
        }
    }

    #[test]
    fn commands_have_the_documented_bytes() {
        let bytes = Command { to: TO, kernel: Kernel::Stencil(work()) }.emit();
        assert_eq!(bytes[..16], [1, 0, 2, 1 | 4, 8, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([16, 24, 32, 40, 48, 56].map(number), [32, 100, 4096, 4096 + 8 * 512, 512, 0]);
        assert_eq!([64, 72].map(|at| f64::from_bits(number(at))), [0.5, 0.125]);
        assert_eq!((number(80), number(88)), (0x1122_3344, 0xAABB_CCDD));
        assert_eq!(bytes[96..], [0; 32]);
        let connect = Connect {
            neighbour: 1,
            token: Token::from_bytes([9; 16]),
            address: 64,
            address_bytes: 256,
            identity_at: 1,
            identity: 2,
        };
        let bytes = Command { to: TO, kernel: Kernel::Connect(connect) }.emit();
        assert_eq!((bytes[..8].to_vec(), bytes[64..80].to_vec()), (vec![2, 0, 0, 4, 1, 0, 0, 0], vec![9; 16]));
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([16, 24, 32, 40, 48, 56, 80].map(number), [64, 256, 1, 2, 0, 0, 0x1122_3344]);
        let exchange = Exchange { from: 1, to: 2, bytes: 3, signal: 8, value: 5, timeout_ms: 6 };
        for (kernel, first) in [(Kernel::Put { neighbour: 7, exchange }, [3, 7]), (Kernel::Wait(exchange), [4, 0])] {
            let bytes = Command { to: TO, kernel }.emit();
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            assert_eq!([16, 24, 32, 40, 48, 56, 64, 72].map(number), [1, 2, 3, 8, 5, 6, 0, 0]);
            assert_eq!(([bytes[0], bytes[4]], Command::parse(&bytes)), (first, Ok(Command { to: TO, kernel })));
        }
        let nop = Command { to: ReplyTo { notify: false, ..TO }, kernel: Kernel::Nop };
        assert_eq!((nop.emit()[0], Command::parse(&nop.emit())), (0, Ok(nop)));
    }

    #[test]
    fn byte_that_a_command_does_not_use_must_be_zero() {
        let exchange = Exchange { from: 1, to: 2, bytes: 3, signal: 8, value: 5, timeout_ms: 6 };
        for (kernel, unused) in [
            (Kernel::Nop, [1, 3, 4, 16, 79]),
            (Kernel::Wait(exchange), [1, 2, 4, 64, 79]),
            (Kernel::Put { neighbour: 7, exchange }, [1, 2, 3, 64, 127]),
        ] {
            let bytes = Command { to: TO, kernel }.emit();
            for at in unused {
                let mut changed = bytes;
                changed[at] |= 1;
                assert_eq!(
                    Command::parse(&changed).unwrap_err().reason,
                    "a reserved bit is set",
                    "{kernel:?}, byte {at}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: [u8; 32], valid: [u8; 4]) {
            let mut command = Command { to: TO, kernel: Kernel::Stencil(work()) }.emit();
            command[..4].copy_from_slice(&valid.map(|byte| byte % 8));
            command[16..48].copy_from_slice(&bytes);
            if let Ok(parsed) = Command::parse(&command) {
                prop_assert_eq!(parsed.emit(), command);
                let _ = parsed.kernel.check(u64::MAX, 1);
            }
        }
    }
}
