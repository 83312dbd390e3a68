//! SpaceFibre words (ECSS-E-ST-50-11C): the unit of everything that a lane carries.
//!
//! A [`Word`] is four characters of 8 bits with a K flag each. A word without K flags, or that begins with the end of
//! a packet, carries data; any other word is a [`ControlWord`] of one of three layers.
//!
//! | module | contents | clause |
//! |---|---|---|
//! | [`character`] | K-codes, and the symbols that name a control word | 5.3.7, 5.3.11, 5.3.12 |
//! | [`Word`] | four characters and their K flags | 5.3.3 to 5.3.6 |
//! | [`ControlWord`] | control words of the lane, multi-lane and data link layers | 5.3.3 to 5.3.5 |
//! | [`datagram`] | carrier datagrams: whole frames over a packet network | |
//! | [`crc`] | CRC-8 of words and broadcast frames, CRC-16 of data frames | 5.7.6.4, 5.7.6.5 |
//! | [`rdma`] | RDMA packets: a format of this project for what a virtual channel carries | |
//! | [`Scrambler`] | random bits that scramble data frames and fill idle frames | 5.7.6.2 |
//! | [`mod@line`] | words as the bits of a line: 8b/10b symbols, word alignment, receive errors | 5.3.2, 5.5.6 to 5.5.8 |
//!
//! Characters are sent in the order of the array, each with its least significant bit first. Fields of 16 bits are
//! little-endian, unlike those of this crate's other formats.
//!
//! ```
//! use shotline_wire::spacefibre::{ControlWord, SequenceNumber, Word};
//! let token = ControlWord::FlowControlToken { vc: 1, multiplier: 1, seq: SequenceNumber::from_bits(1) };
//! assert_eq!(token.emit(), Word::comma([0x7C, 0x01, 0x01, 0x4F]));
//! assert_eq!(ControlWord::parse(token.emit()), Ok(Some(token)));
//! assert_eq!(ControlWord::parse(Word::data(*b"data")), Ok(None));
//! ```

pub mod character;
pub mod crc;
pub mod datagram;
pub mod line;
pub mod rdma;

mod control;
mod scrambler;
mod word;

pub use control::{BadCrc8, BroadcastStatus, Capability, CheckedWord, ControlWord, LostSignalCause, SequenceNumber};
pub use scrambler::{KEYSTREAM, Scrambler};
pub use word::Word;
