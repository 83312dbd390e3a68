//! Unreliable datagram queue pairs that share one `PacketIo`.
//!
//! The layer is a filter with the same calls as the backend below it: receives are posted to it, a steer chooses among
//! them, batches are received. In between it demultiplexes: a packet whose opcode, queue pair or Q_Key does not belong
//! to a queue pair here gets no destination and is marked `unknown_stream`; it has no other effect and is not answered
//! (IBTA 9.6.1.4.1, 10.2.5).

use crate::random;
use arrayvec::ArrayVec;
use shotline_transport::{
    BatchInfo, IoError, MAX_BATCH, PacketIo, PayloadDestination, Pick, RxPacket, Steer, delegate_packet_io,
    delegate_steer,
};
use shotline_wire::roce::ud_header;
use shotline_wire::shot::DropCause;

/// Number and Q_Key of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// 24-bit number, not reserved by InfiniBand.
    pub number: u32,
    /// Q_Key that every packet must contain.
    pub q_key: u32,
}

/// Fields of a work completion of a datagram, encoded as bytes in place of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdCompletion {
    /// Receiving queue pair.
    pub dest_qp: u32,
    /// Sending queue pair.
    pub src_qp: u32,
    /// Immediate data.
    pub imm: Option<u32>,
}

impl UdCompletion {
    /// Encoded length in bytes: two numbers, immediate data, and a flag for its presence.
    pub const LEN: usize = 13;

    /// Encodes the fields.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.dest_qp.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.src_qp.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.imm.unwrap_or(0).to_be_bytes());
        bytes[12] = u8::from(self.imm.is_some());
        bytes
    }

    /// Decodes the fields; `None` if the length is wrong.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let word = |offset: usize| u32::from_be_bytes([0, 1, 2, 3].map(|index| bytes[offset + index]));
        Some(Self { dest_qp: word(0), src_qp: word(4), imm: (bytes[12] != 0).then(|| word(8)) })
    }
}

/// Returns a substitute for a datagram's UDP source port, which a device does not report: the low 16 bits of the
/// sender's queue pair number.
pub fn substitute_port(src_qp: u32) -> u16 {
    src_qp as u16
}

/// Queue pairs over one `PacketIo`.
pub struct Ud<P> {
    io: P,
    pairs: Vec<QueuePair>,
}

impl<P: PacketIo> Ud<P> {
    /// Creates a layer without queue pairs.
    pub fn new(io: P) -> Self {
        Self { io, pairs: Vec::new() }
    }

    /// Creates a queue pair with a random number and a random Q_Key, so that an attacker cannot guess them.
    ///
    /// # Errors
    /// If the operating system's random source cannot be read.
    pub fn create(&mut self) -> Result<QueuePair, IoError> {
        let number = random::fresh_number(|number| self.pairs.iter().any(|pair| pair.number == number))?;
        let pair = QueuePair { number, q_key: random::fresh_q_key()? };
        self.pairs.push(pair);
        Ok(pair)
    }

    /// Adds a queue pair with a number and key chosen by the caller, for senders without connection set-up.
    pub fn attach(&mut self, pair: QueuePair) {
        if !self.pairs.contains(&pair) {
            self.pairs.push(pair);
        }
    }

    /// Removes a queue pair: packets to it are marked `unknown_stream` from then on.
    pub fn destroy(&mut self, number: u32) {
        self.pairs.retain(|pair| pair.number != number);
    }

    /// Returns the underlying `PacketIo`.
    pub fn io(&self) -> &P {
        &self.io
    }
}

impl<P: PacketIo> PacketIo for Ud<P> {
    delegate_packet_io!(io; except poll);

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        self.io.poll(&mut Demultiplexer { pairs: &self.pairs, steer }, max)
    }
}

struct Demultiplexer<'a, S> {
    pairs: &'a [QueuePair],
    steer: &'a mut S,
}

impl<S> Demultiplexer<'_, S> {
    fn accepts(&self, header: &[u8]) -> Result<(), DropCause> {
        let ud = ud_header(header).map_err(|_| DropCause::Malformed)?;
        let pair = QueuePair { number: ud.dest_qp, q_key: ud.q_key };
        if self.pairs.contains(&pair) { Ok(()) } else { Err(DropCause::UnknownStream) }
    }
}

impl<S: Steer> Steer for Demultiplexer<'_, S> {
    delegate_steer!(steer; except pick, margins, landed);

    fn pick(&mut self, batch: &BatchInfo<'_>, picks: &mut [Pick]) {
        if self.accepts(batch.first).is_ok() {
            self.steer.pick(batch, picks);
        }
    }

    /// Leaves no space around payloads. Receiving sealed datagrams one by one at their destinations is slower than
    /// copying them out of a burst: a driver call per frame costs more than the copy that it saves.
    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }

    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        let mut checked = ArrayVec::<RxPacket<'_>, MAX_BATCH>::new();
        for packet in batch {
            // A bad ICRC has priority: no field of such a header can be trusted.
            let fault = packet.fault.or_else(|| self.accepts(packet.header).err());
            checked.push(RxPacket { fault, ..*packet });
        }
        self.steer.landed(&checked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_fields_round_trip() {
        for imm in [None, Some(0), Some(0xDEAD_BEEF)] {
            let completion = UdCompletion { dest_qp: 17, src_qp: 0xABCDEF, imm };
            assert_eq!(UdCompletion::parse(&completion.emit()), Some(completion));
            assert_eq!(UdCompletion::parse(&completion.emit()[1..]), None);
        }
    }
}
