//! Learns the blocks of a digitizer: from any packet but the last of a block, which does not show the payload length of
//! the others.

use super::learner::{Hints, LearnedStream, Learner, Shape};
use shotline_wire::block;
use shotline_wire::framing::Digitizer;
use shotline_wire::framing::digitizer::{HEADER_LEN, Header};
use shotline_wire::shot::{PAD_BYTES, Packetization, Packing, RECORD_BYTES, Trailer};
use std::sync::Arc;

/// Bytes after a block's samples.
const TRAILER_BYTES: u32 = block::LEN as u32 + RECORD_BYTES;

/// Learner of one stream of blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    seen: u64,
}

impl Learner for Blocks {
    /// Blocks are proven by CRCs computed as packets arrive, and arrive as fast as memory allows.
    const KEEPS_PACKETS: bool = false;

    fn new(_hints: Hints) -> Self {
        Self::default()
    }

    fn header_len(_first: &[u8]) -> usize {
        HEADER_LEN
    }

    fn key(packet: &[u8]) -> Option<u32> {
        Header::parse(packet).ok().map(|(header, _)| header.stream)
    }

    fn examine(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String> {
        let Ok((header, payload)) = Header::parse(packet) else { return Ok(None) };
        self.seen += 1;
        let begins = header.offset == 0;
        if header.len as usize != payload.len() || header.len == 0 || header.last && !begins {
            return Ok(None);
        }
        let sample_bytes = header.block_bytes.checked_sub(TRAILER_BYTES).filter(|bytes| bytes % PAD_BYTES == 0);
        let Some(sample_bytes) = sample_bytes.filter(|bytes| *bytes > 0) else {
            return Err(format!(
                "its blocks of {} bytes are not samples in multiples of {PAD_BYTES} bytes with {TRAILER_BYTES} bytes after them",
                header.block_bytes
            ));
        };
        if !header.last && header.len % PAD_BYTES != 0 {
            return Err(format!("its payloads of {} bytes are not a multiple of {PAD_BYTES}", header.len));
        }
        let (rate, kind) = (header.sample_rate_hz, if header.channels == 2 { "IQ" } else { "real" });
        Ok(Some(LearnedStream {
            framing: Arc::new(Digitizer),
            key: header.stream,
            stream: Some(header.stream),
            sample_bytes,
            trailer: Trailer::Block,
            packetization: Packetization::uniform(header.len),
            shape: Some(Shape {
                channels: header.channels.into(),
                packing: Packing::Int16Le,
                bits: header.bits,
                sample_rate_hz: rate.round().clamp(0.0, f64::from(u32::MAX)) as u32,
            }),
            // This packet of the current block is lost.
            first_shot: Some(header.block.saturating_add(1)),
            description: format!(
                "digitizer stream {}: blocks of {} {kind} samples at {:.3} MS/s, {:.6} MHz, in packets of {}",
                header.stream,
                sample_bytes / (2 * u32::from(header.channels)),
                rate / 1e6,
                header.centre_hz / 1e6,
                header.len
            ),
        }))
    }

    fn missing(&self) -> String {
        format!("a packet of a block except its last: {} arrived", self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(header: Header) -> Vec<u8> {
        [header.emit().as_slice(), &vec![7; header.len as usize]].concat()
    }

    const GOOD: Header = Header {
        last: false,
        locked: true,
        triggered: false,
        channels: 2,
        bits: 16,
        stream: 9,
        block_bytes: 64_000 + 256,
        block: 41,
        tai_ns: 5,
        offset: 0,
        len: 8192,
        sample_rate_hz: 5e8,
        centre_hz: 1.3e9,
        volts_per_count: 1e-5,
    };

    #[test]
    fn one_packet_is_enough_unless_it_is_the_last_of_many() {
        let mut blocks = Blocks::new(Hints::default());
        assert_eq!(Blocks::key(b"anything else"), None);
        let last = Header { last: true, offset: 57_344, len: 6912, ..GOOD };
        assert!(blocks.examine(&packet(last)).unwrap().is_none());
        let learned = blocks.examine(&packet(GOOD)).unwrap().unwrap();
        assert_eq!((learned.key, learned.sample_bytes, learned.first_shot), (9, 64_000, Some(42)));
        assert_eq!((learned.trailer, learned.packetization), (Trailer::Block, Packetization::uniform(8192)));
        assert_eq!(
            learned.description,
            "digitizer stream 9: blocks of 16000 IQ samples at 500.000 MS/s, 1300.000000 MHz, in packets of 8192"
        );
        let whole = Header { last: true, block_bytes: 320, len: 320, ..GOOD };
        assert_eq!(blocks.examine(&packet(whole)).unwrap().unwrap().sample_bytes, 64);
    }

    #[test]
    fn impossible_blocks_are_refused() {
        let refuse = |header| Blocks::new(Hints::default()).examine(&packet(header)).unwrap_err();
        assert!(refuse(Header { block_bytes: 255, ..GOOD }).contains("blocks of 255 bytes"));
        assert!(refuse(Header { block_bytes: 256, ..GOOD }).contains("blocks of 256 bytes"));
        assert!(refuse(Header { block_bytes: 64_001 + 256, ..GOOD }).contains("64257"));
        assert!(refuse(Header { len: 1000, ..GOOD }).contains("1000"));
    }
}
