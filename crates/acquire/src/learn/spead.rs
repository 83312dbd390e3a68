//! What a SPEAD sender's heaps are like: from one whole heap that carries data.

use super::{Learned, Learner};
use shotline_wire::framing::Spead;
use shotline_wire::shot::{Cut, Trailer};
use shotline_wire::spead::{Flavour, Header};
use std::collections::BTreeMap;

/// Heaps that are looked at side by side: senders may interleave them.
const MOST_HEAPS: usize = 64;

/// Heaps that are not whole yet.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    heaps: BTreeMap<u64, Heap>,
    seen: u64,
    foreign: u64,
}

#[derive(Debug, Default)]
struct Heap {
    control: bool,
    bytes: u64,
    /// Length and items by offset.
    pieces: BTreeMap<u64, (u64, u16)>,
}

impl Learner for Heaps {
    fn header_len(&self, first: &[u8]) -> usize {
        Header::len_seen(first)
    }

    fn look(&mut self, packet: &[u8]) -> Result<Option<Learned>, String> {
        let Ok((header, payload)) = Header::parse(packet) else {
            self.foreign += 1;
            return Ok(None);
        };
        self.seen += 1;
        let Some(bytes) = header.heap_bytes else {
            return Err("its packets do not tell the size of their heap (item 2)".into());
        };
        let piece = payload.len() as u64 == header.len && header.offset.saturating_add(header.len) <= bytes;
        if !piece || header.len == 0 {
            return Ok(None);
        }
        if self.heaps.len() == MOST_HEAPS && !self.heaps.contains_key(&header.heap) {
            self.heaps.pop_first();
        }
        let heap = self.heaps.entry(header.heap).or_default();
        heap.bytes = bytes;
        heap.control |= header.control;
        heap.pieces.insert(header.offset, (header.len, header.items));
        match heap.is_whole() && !heap.control {
            true => heap.learned(header.flavour).map(Some),
            false => Ok(None),
        }
    }

    fn missing(&self) -> String {
        match self.seen {
            0 => format!("SPEAD packets: none of {} was one (64-40 or 64-48, version 4)", self.foreign),
            seen => format!("one whole heap of data: {seen} packets were pieces of heaps that were never whole"),
        }
    }
}

impl Heap {
    fn is_whole(&self) -> bool {
        let end = self.pieces.iter().try_fold(0, |end, (offset, (len, _))| (*offset == end).then_some(end + len));
        end == Some(self.bytes)
    }

    fn learned(&self, flavour: Flavour) -> Result<Learned, String> {
        let pieces: Vec<_> = self.pieces.values().copied().collect();
        let (first, first_items) = pieces[0];
        let (rest, items) = pieces.get(1).copied().unwrap_or(pieces[0]);
        let middle = pieces.get(1..pieces.len() - 1).unwrap_or(&[]);
        let last = pieces[pieces.len() - 1].0;
        if middle.iter().any(|(len, _)| *len != rest) || pieces.len() > 1 && last > rest {
            return Err("it cuts its heaps into pieces of irregular lengths".into());
        }
        let number = |bytes: u64| u32::try_from(bytes).map_err(|_| format!("a heap of {bytes} bytes is too large"));
        let (sample_bytes, first, rest) = (number(self.bytes)?, number(first)?, number(rest)?);
        Ok(Learned {
            framing: Box::new(Spead { flavour, first_items, items }),
            key: 0,
            sample_bytes,
            trailer: Trailer::None,
            cut: Cut { first, rest, trailer_apart: false },
            words: format!(
                "SPEAD-64-{}: heaps of {sample_bytes} bytes in {} packets of {rest}",
                flavour.bits(),
                pieces.len()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(heap: u64, bytes: u64, offset: u64, len: u64) -> Vec<u8> {
        let header = Header {
            flavour: Flavour::F48,
            items: 4,
            heap,
            heap_bytes: Some(bytes),
            offset,
            len,
            stop: false,
            control: false,
        };
        [header.emit().as_slice(), &vec![7; len as usize]].concat()
    }

    #[test]
    fn one_whole_heap_teaches_whatever_order_its_pieces_have() {
        let mut heaps = Heaps::default();
        assert!(heaps.look(b"no SPEAD at all").unwrap().is_none());
        assert!(heaps.look(&packet(1, 2500, 1000, 1000)).unwrap().is_none(), "the rest of it is lost");
        for (heap, offset, len) in [(2, 2000, 500), (3, 0, 1000), (2, 0, 1000)] {
            assert!(heaps.look(&packet(heap, 2500, offset, len)).unwrap().is_none());
        }
        let learned = heaps.look(&packet(2, 2500, 1000, 1000)).unwrap().unwrap();
        assert_eq!((learned.sample_bytes, learned.trailer), (2500, Trailer::None));
        assert_eq!(learned.cut, Cut::uniform(1000));
        assert_eq!(learned.words, "SPEAD-64-48: heaps of 2500 bytes in 3 packets of 1000");
    }

    #[test]
    fn a_first_packet_that_is_shorter_is_understood_and_irregular_ones_are_refused() {
        let mut heaps = Heaps::default();
        assert!(heaps.look(&packet(1, 2500, 0, 900)).unwrap().is_none());
        assert!(heaps.look(&packet(1, 2500, 900, 1000)).unwrap().is_none());
        let learned = heaps.look(&packet(1, 2500, 1900, 600)).unwrap().unwrap();
        assert_eq!(learned.cut, Cut { first: 900, rest: 1000, trailer_apart: false });
        let mut heaps = Heaps::default();
        for (offset, len) in [(0, 900), (900, 1000), (1900, 100)] {
            assert!(heaps.look(&packet(1, 2500, offset, len)).unwrap().is_none());
        }
        assert!(heaps.look(&packet(1, 2500, 2000, 500)).unwrap_err().contains("irregular"));
    }
}
