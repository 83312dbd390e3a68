//! Learns the heaps of a SPEAD sender: from one whole heap that carries data.

use super::learner::{Hints, LearnedStream, Learner};
use shotline_wire::framing::{MAX_HEADER, Spead};
use shotline_wire::shot::{Packetization, Trailer};
use shotline_wire::spead::{Flavour, Header, WORD};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of heaps examined in parallel: senders may interleave them.
const MAX_HEAPS: usize = 64;

/// Heaps that are not whole yet.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    heaps: BTreeMap<u64, Heap>,
    seen: u64,
}

#[derive(Debug, Default)]
struct Heap {
    control: bool,
    bytes: u64,
    /// Length and items by offset.
    pieces: BTreeMap<u64, (u64, u16)>,
}

impl Learner for Heaps {
    fn new(_hints: Hints) -> Self {
        Self::default()
    }

    fn header_len(first: &[u8]) -> usize {
        Header::peek_len(first)
    }

    /// There is one stream per address: SPEAD packets have no stream identifier.
    fn key(packet: &[u8]) -> Option<u32> {
        Header::parse(packet).ok().map(|_| 0)
    }

    fn examine(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String> {
        let Ok((header, payload)) = Header::parse(packet) else { return Ok(None) };
        self.seen += 1;
        let Some(bytes) = header.heap_bytes else {
            return Err("its packets lack the size of their heap (item 2)".into());
        };
        let piece = payload.len() as u64 == header.len && header.offset.saturating_add(header.len) <= bytes;
        if !piece || header.len == 0 {
            return Ok(None);
        }
        if self.heaps.len() == MAX_HEAPS && !self.heaps.contains_key(&header.heap) {
            self.heaps.pop_first();
        }
        let heap = self.heaps.entry(header.heap).or_default();
        heap.bytes = bytes;
        heap.control |= header.control;
        heap.pieces.insert(header.offset, (header.len, header.items));
        if !heap.is_whole() || heap.control {
            return Ok(None);
        }
        // Heaps may be interleaved: the first one to be whole is not necessarily the first one that began.
        let begun = |heap: &Heap| heap.bytes == bytes && !heap.control && heap.pieces.contains_key(&0);
        let first_shot = self.heaps.iter().find(|(_, heap)| begun(heap)).map(|(counter, _)| *counter);
        let heap = &self.heaps[&header.heap];
        heap.learned(header.flavour).map(|learned| Some(LearnedStream { first_shot, ..learned }))
    }

    fn missing(&self) -> String {
        let seen = self.seen;
        format!("one complete heap of data: {seen} packets were descriptors, or pieces of incomplete heaps")
    }
}

impl Heap {
    fn is_whole(&self) -> bool {
        let end = self.pieces.iter().try_fold(0, |end, (offset, (len, _))| (*offset == end).then_some(end + len));
        end == Some(self.bytes)
    }

    fn learned(&self, flavour: Flavour) -> Result<LearnedStream, String> {
        let pieces: Vec<_> = self.pieces.values().copied().collect();
        let (first, first_items) = pieces[0];
        let (rest, items) = pieces.get(1).copied().unwrap_or(pieces[0]);
        let middle = pieces.get(1..pieces.len() - 1).unwrap_or(&[]);
        let last = pieces[pieces.len() - 1].0;
        if middle.iter().any(|(len, _)| *len != rest) || pieces.len() > 1 && last > rest {
            return Err("it divides its heaps into pieces of irregular lengths".into());
        }
        let max_items = (MAX_HEADER - WORD) / WORD;
        if let Some(items) = [first_items, items].into_iter().find(|items| usize::from(*items) > max_items) {
            return Err(format!(
                "a packet of its heaps has {items} items, at most {max_items} are supported: configure it to send fewer immediate values, or all of them in one item"
            ));
        }
        let number = |bytes: u64| u32::try_from(bytes).map_err(|_| format!("a heap of {bytes} bytes is too large"));
        let (sample_bytes, first, rest) = (number(self.bytes)?, number(first)?, number(rest)?);
        Ok(LearnedStream {
            framing: Arc::new(Spead { flavour, first_items, items }),
            key: 0,
            stream: None,
            shape: None,
            sample_bytes,
            trailer: Trailer::None,
            packetization: Packetization { first, rest, separate_trailer: false },
            first_shot: None,
            description: format!(
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
    use proptest::prelude::*;

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
    fn one_whole_heap_is_enough_in_any_order_of_its_pieces() {
        let mut heaps = Heaps::default();
        assert_eq!(Heaps::key(b"no SPEAD at all"), None);
        assert!(heaps.examine(&packet(1, 2500, 1000, 1000)).unwrap().is_none(), "the rest of it is lost");
        for (heap, offset, len) in [(2, 2000, 500), (3, 0, 1000), (2, 0, 1000)] {
            assert!(heaps.examine(&packet(heap, 2500, offset, len)).unwrap().is_none());
        }
        let learned = heaps.examine(&packet(2, 2500, 1000, 1000)).unwrap().unwrap();
        assert_eq!((learned.sample_bytes, learned.trailer), (2500, Trailer::None));
        assert_eq!(learned.packetization, Packetization::uniform(1000));
        assert_eq!(learned.description, "SPEAD-64-48: heaps of 2500 bytes in 3 packets of 1000");
        assert_eq!(learned.first_shot, Some(2), "heap 1 had begun before, heap 3 was interleaved with heap 2");
    }

    #[test]
    fn an_incomplete_older_heap_becomes_the_first_shot() {
        let mut heaps = Heaps::default();
        for (heap, offset) in [(7, 1000), (8, 0), (9, 0)] {
            assert!(heaps.examine(&packet(heap, 2000, offset, 1000)).unwrap().is_none());
        }
        assert!(heaps.examine(&packet(5, 600, 0, 500)).unwrap().is_none(), "heaps of another size do not count");
        assert_eq!(heaps.examine(&packet(9, 2000, 1000, 1000)).unwrap().unwrap().first_shot, Some(8));
    }

    #[test]
    fn more_items_than_a_header_holds_are_refused() {
        let mut bytes = packet(1, 10, 0, 10);
        bytes[7] = 16;
        bytes.splice(40..40, [[0x96, 0, 0, 0, 0, 0, 0, 0]; 12].concat());
        assert!(Heaps::default().examine(&bytes).unwrap_err().contains("16 items, at most 15 are supported"));
    }

    #[test]
    fn a_short_first_packet_is_learned_but_irregular_ones_are_not() {
        let mut heaps = Heaps::default();
        assert!(heaps.examine(&packet(1, 2500, 0, 900)).unwrap().is_none());
        assert!(heaps.examine(&packet(1, 2500, 900, 1000)).unwrap().is_none());
        let learned = heaps.examine(&packet(1, 2500, 1900, 600)).unwrap().unwrap();
        assert_eq!(learned.packetization, Packetization { first: 900, rest: 1000, separate_trailer: false });
        let mut heaps = Heaps::default();
        for (offset, len) in [(0, 900), (900, 1000), (1900, 100)] {
            assert!(heaps.examine(&packet(1, 2500, offset, len)).unwrap().is_none());
        }
        assert!(heaps.examine(&packet(1, 2500, 2000, 500)).unwrap_err().contains("irregular"));
    }

    proptest! {
        #[test]
        fn any_input_is_refused_or_gives_a_valid_heap_shape(
            packets in prop::collection::vec((0_u64..3, 0_u64..4000, 0_u64..4000, 0_u64..2000, any::<u32>()), 1..40),
        ) {
            let mut heaps = Heaps::default();
            for (heap, bytes, offset, len, noise) in packets {
                let mut packet = packet(heap, bytes, offset, len);
                if noise % 4 == 0 {
                    let at = noise as usize % packet.len();
                    packet[at] ^= (noise >> 24) as u8;
                }
                prop_assert!(Heaps::header_len(&packet) >= WORD);
                if let Ok(Some(learned)) = heaps.examine(&packet) {
                    let Packetization { first, rest, .. } = learned.packetization;
                    prop_assert!(learned.sample_bytes > 0 && first > 0 && rest > 0 && first <= learned.sample_bytes);
                }
                let _ = heaps.missing();
            }
        }
    }
}
