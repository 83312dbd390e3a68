//! Requests of the card on the requester stream of the integrated block for PCIe (AMD PG213: 512 bits, straddle,
//! dword-aligned).

use super::held::Held;
use super::sys::PcieOutputs;

/// Dwords of a half beat: a TLP begins at one.
const HALF: usize = 8;
/// Dwords of a descriptor.
const DESCRIPTOR: usize = 4;
/// Kinds of requests.
const READ: u32 = 0;
const WRITE: u32 = 1;

/// A TLP of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Writes bytes at an address.
    Write { address: u64, bytes: Vec<u8> },
    /// Reads bytes at an address; the completions have its tag.
    Read { address: u64, length: usize, tag: u8 },
}

/// A TLP whose end has not come.
#[derive(Debug)]
struct Open {
    first_be: u32,
    last_be: u32,
    dwords: Vec<u32>,
}

/// Finds the requests in the beats, and checks the rules of the stream.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: Option<Open>,
    held: Held<([u64; 8], u64, u16)>,
}

impl Requests {
    /// Takes the stream's outputs of a clock, and appends the requests that end in it.
    ///
    /// # Errors
    /// If they are against the rules of the stream.
    pub fn take(&mut self, outputs: &PcieOutputs, ready: bool, found: &mut Vec<Request>) -> Result<(), String> {
        let offer = (outputs.rq_valid == 1).then_some((outputs.rq_data, outputs.rq_user, outputs.rq_keep));
        self.held.check("beat of requests", offer, ready)?;
        match offer {
            None if self.open.is_some() => Err("the stream of requests pauses within a TLP".into()),
            Some((data, user, keep)) if ready => self.beat(&data, user, keep, found),
            _ => Ok(()),
        }
    }

    fn beat(&mut self, data: &[u64; 8], user: u64, keep: u16, found: &mut Vec<Request>) -> Result<(), String> {
        let fail = |what: &str| Err(format!("beat of requests with user signals {user:#x} and keep {keep:#x}: {what}"));
        let field = |low: u32, width: u32| (user >> low) as u32 & ((1 << width) - 1);
        let (starts, ends) = (field(20, 2), field(26, 2));
        if user >> 36 != 0 || field(16, 4) != 0 || starts == 2 || ends == 2 {
            return fail("bits that are not 0");
        }
        let starts_at = |start: u32| HALF / 2 * (field(22 + 2 * start, 2) as usize);
        let ends_at = |end: u32| field(28 + 4 * end, 4) as usize;
        let mut used = [false; 2];
        for (half, used) in used.iter_mut().enumerate() {
            if let Some(start) = (0..starts.count_ones()).find(|&start| starts_at(start) == half * HALF) {
                let (first_be, last_be) = (field(4 * start, 4), field(8 + 4 * start, 4));
                if self.open.replace(Open { first_be, last_be, dwords: Vec::new() }).is_some() {
                    return fail("a TLP begins within another");
                }
            }
            let Some(open) = &mut self.open else { continue };
            *used = true;
            let end = (0..ends.count_ones()).map(ends_at).find(|&at| at / HALF == half);
            let count = end.map_or(HALF, |at| at % HALF + 1);
            let dword = |index: usize| (data[index / 2] >> (32 * (index % 2))) as u32;
            open.dwords.extend((half * HALF..half * HALF + count).map(dword));
            if end.is_some() {
                found.extend(self.open.take().map(|open| open.request()).transpose()?);
            }
        }
        let expected = if used[1] { 0xFFFF } else { 0x00FF };
        if used[0] && keep == expected { Ok(()) } else { fail("halves without a TLP") }
    }
}

impl Open {
    /// Decodes the TLP and checks what must hold for each request of the card.
    fn request(self) -> Result<Request, String> {
        let Self { first_be, last_be, dwords } = self;
        let Some((&[low, high, head, route], payload)) = dwords.split_first_chunk::<DESCRIPTOR>() else {
            return Err(format!("a request of {} dwords", dwords.len()));
        };
        let address = u64::from(high) << 32 | u64::from(low);
        let (kind, count) = (head >> 11 & 0xF, (head & 0x7FF) as usize);
        let length = 4 * count;
        let fail = || Err(format!("request {head:#x}, {route:#x} at {address:#x}: {} dwords", payload.len()));
        let in_page = (address % 4096) as usize + length <= 4096 && address.is_multiple_of(8);
        let enables = if count == 1 { last_be == 0 } else { first_be == 15 };
        let last = if count == 1 { first_be } else { last_be };
        if !in_page || !enables || ![1, 3, 7, 15].contains(&last) || count == 0 || head >> 15 != 0 {
            return fail();
        }
        match kind {
            READ if payload.is_empty() && last == 15 && route >> 8 == 0 => {
                Ok(Request::Read { address, length, tag: route as u8 })
            }
            WRITE if payload.len() == count && route == 0 => {
                let mut bytes = payload.iter().flat_map(|dword| dword.to_le_bytes()).collect::<Vec<_>>();
                bytes.truncate(length - (last ^ 15).count_ones() as usize);
                Ok(Request::Write { address, bytes })
            }
            _ => fail(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a beat in which TLPs begin and end at these dwords.
    fn beat(data: [u64; 8], starts: &[u64], ends: &[u64], enables: u64) -> PcieOutputs {
        let flags = |of: &[u64]| (1_u64 << of.len()) - 1;
        let at = |of: &[u64], width: usize| of.iter().rev().fold(0, |all, &dword| all << width | dword);
        let starts_at = starts.iter().map(|dword| dword / 4).collect::<Vec<_>>();
        let user = enables | flags(starts) << 20 | at(&starts_at, 2) << 22 | flags(ends) << 26 | at(ends, 4) << 28;
        let keep = if ends.last().is_none_or(|&end| end >= 8) || starts.contains(&8) { 0xFFFF } else { 0xFF };
        PcieOutputs { rq_data: data, rq_user: user, rq_keep: keep, rq_valid: 1, ..PcieOutputs::default() }
    }

    #[test]
    fn straddled_tlps_are_found_with_their_bytes() {
        let mut requests = Requests::default();
        let mut found = Vec::new();
        // A write of 3 bytes, then one of 44 bytes that ends in the next beat, then a read.
        let first = [0x1000, 1 | 1 << 11, 0x00AA_BBCC, 0, 0x2000, 11 | 1 << 11, 0x1111, 0x2222];
        requests.take(&beat(first, &[0, 8], &[4], 0xF0F7), true, &mut found).unwrap();
        let second = [0x3333, 0x4444, 0x5555, 0x66, 0x3000, 64 | 7 << 32, 0, 0];
        requests.take(&beat(second, &[8], &[6, 11], 0xF0F), true, &mut found).unwrap();
        assert_eq!(found[0], Request::Write { address: 0x1000, bytes: vec![0xCC, 0xBB, 0xAA] });
        let Request::Write { address: 0x2000, bytes } = &found[1] else { panic!("{:?}", found[1]) };
        assert_eq!((bytes.len(), bytes[40]), (44, 0x66));
        assert_eq!(found[2], Request::Read { address: 0x3000, length: 256, tag: 7 });
        assert!(requests.open.is_none());
    }

    #[test]
    fn broken_rules_of_the_stream_are_errors() {
        let write = [0x1000, 11 | 1 << 11, 0x1111, 0x2222, 1, 2, 3, 4];
        let broken = [
            (beat(write, &[0, 8], &[], 0xFFFF), "within another"),
            (beat(write, &[8], &[], 0xFF), "halves without"),
            (beat(write, &[0], &[13], 0xF0F), "10 dwords"),
            (beat([0xFFC, 11 | 1 << 11, 0, 0, 0, 0, 0, 0], &[0], &[14], 0xF0F), "0xffc"),
        ];
        for (beat, error) in broken {
            let message = Requests::default().take(&beat, true, &mut Vec::new()).unwrap_err();
            assert!(message.contains(error), "{message}, not {error}");
        }
        let mut requests = Requests::default();
        requests.take(&beat(write, &[0], &[], 0xF0F), true, &mut Vec::new()).unwrap();
        let pause = requests.take(&PcieOutputs::default(), true, &mut Vec::new()).unwrap_err();
        assert!(pause.contains("pauses"), "{pause}");
    }
}
