//! What a digitizer's blocks are like: any of its packets tells, but for the payload of those that are not the last.

use super::learner::{Hints, Learned, Learner, Shape};
use shotline_wire::block;
use shotline_wire::framing::Digitizer;
use shotline_wire::framing::digitizer::{HEADER_LEN, Header};
use shotline_wire::shot::{Cut, PAD_BYTES, Packing, RECORD_BYTES, Trailer};
use std::sync::Arc;

/// Bytes behind a block's samples.
const TRAILER_BYTES: u32 = block::LEN as u32 + RECORD_BYTES;

/// One stream of blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    seen: u64,
}

impl Learner for Blocks {
    /// Blocks are proven by CRCs that are taken as packets arrive, and come as fast as memory allows.
    const HANDS_ON: bool = false;

    fn new(_hints: Hints) -> Self {
        Self::default()
    }

    fn header_len(_first: &[u8]) -> usize {
        HEADER_LEN
    }

    fn key(packet: &[u8]) -> Option<u32> {
        Header::parse(packet).ok().map(|(header, _)| header.stream)
    }

    fn look(&mut self, packet: &[u8]) -> Result<Option<Learned>, String> {
        let Ok((header, payload)) = Header::parse(packet) else { return Ok(None) };
        self.seen += 1;
        let begins = header.offset == 0;
        if header.len as usize != payload.len() || header.len == 0 || header.last && !begins {
            return Ok(None);
        }
        let sample_bytes = header.block_bytes.checked_sub(TRAILER_BYTES).filter(|bytes| bytes % PAD_BYTES == 0);
        let Some(sample_bytes) = sample_bytes.filter(|bytes| *bytes > 0) else {
            return Err(format!(
                "its blocks of {} bytes are not samples, in multiples of {PAD_BYTES} bytes, and {TRAILER_BYTES} bytes behind them",
                header.block_bytes
            ));
        };
        if !header.last && header.len % PAD_BYTES != 0 {
            return Err(format!("its payloads of {} bytes are no multiple of {PAD_BYTES}", header.len));
        }
        let (rate, kind) = (header.sample_rate_hz, if header.channels == 2 { "IQ" } else { "real" });
        Ok(Some(Learned {
            framing: Arc::new(Digitizer),
            key: header.stream,
            stream: Some(header.stream),
            sample_bytes,
            trailer: Trailer::Block,
            cut: Cut::uniform(header.len),
            shape: Some(Shape {
                channels: header.channels.into(),
                packing: Packing::Int16Le,
                bits: header.bits,
                sample_rate_hz: rate.round().clamp(0.0, f64::from(u32::MAX)) as u32,
            }),
            // The block under way has lost this packet.
            first_shot: Some(header.block.saturating_add(1)),
            words: format!(
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
        format!("a packet of a block but its last: {} came", self.seen)
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
    fn one_packet_teaches_unless_it_is_the_last_of_many() {
        let mut blocks = Blocks::new(Hints::default());
        assert_eq!(Blocks::key(b"anything else"), None);
        let last = Header { last: true, offset: 57_344, len: 6912, ..GOOD };
        assert!(blocks.look(&packet(last)).unwrap().is_none());
        let learned = blocks.look(&packet(GOOD)).unwrap().unwrap();
        assert_eq!((learned.key, learned.sample_bytes, learned.first_shot), (9, 64_000, Some(42)));
        assert_eq!((learned.trailer, learned.cut), (Trailer::Block, Cut::uniform(8192)));
        assert_eq!(
            learned.words,
            "digitizer stream 9: blocks of 16000 IQ samples at 500.000 MS/s, 1300.000000 MHz, in packets of 8192"
        );
        let whole = Header { last: true, block_bytes: 320, len: 320, ..GOOD };
        assert_eq!(blocks.look(&packet(whole)).unwrap().unwrap().sample_bytes, 64);
    }

    #[test]
    fn blocks_that_cannot_be_are_refused() {
        let refuse = |header| Blocks::new(Hints::default()).look(&packet(header)).unwrap_err();
        assert!(refuse(Header { block_bytes: 255, ..GOOD }).contains("blocks of 255 bytes"));
        assert!(refuse(Header { block_bytes: 256, ..GOOD }).contains("blocks of 256 bytes"));
        assert!(refuse(Header { block_bytes: 64_001 + 256, ..GOOD }).contains("64257"));
        assert!(refuse(Header { len: 1000, ..GOOD }).contains("1000"));
    }
}
