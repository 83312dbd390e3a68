//! Changes to an end-of-shot record that preserve the validity of its CRC.

use shotline_wire::crc;
use shotline_wire::record::{LEN, MAGIC};

const FLAGS: usize = 7;
const SHOT: usize = 8;
const TAI_NS: usize = 16;
const STREAM: usize = 24;
const CRC: usize = 60;

/// Changes to a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patch {
    /// Offset added to the shot number.
    pub(super) number_offset: u64,
    /// New stream.
    pub(super) stream: Option<u32>,
    /// New time of the first sample (TAI, ns) and lock state of its clock.
    pub(super) stamp: Option<(u64, bool)>,
}

impl Patch {
    /// Applies the changes to a record; bytes without the record's magic number are unchanged. Returns the xor of old
    /// and new bytes. Its CRC remainder is also the change of the packet's remainder, because the record ends the
    /// packet.
    ///
    /// The CRC is linear: the new CRC is the old one xor the CRC of the change, which is zero before the record.
    pub(super) fn apply(&self, record: &mut [u8; LEN]) -> [u8; LEN] {
        let before = *record;
        if before.starts_with(&MAGIC) {
            if self.number_offset > 0 {
                let number = u64::from_be_bytes(field(&before, SHOT)).wrapping_add(self.number_offset);
                record[SHOT..SHOT + 8].copy_from_slice(&number.to_be_bytes());
            }
            if let Some((tai_ns, locked)) = self.stamp {
                record[TAI_NS..TAI_NS + 8].copy_from_slice(&tai_ns.to_be_bytes());
                record[FLAGS] = record[FLAGS] & !1 | u8::from(locked);
            }
            if let Some(stream) = self.stream {
                record[STREAM..STREAM + 4].copy_from_slice(&stream.to_be_bytes());
            }
        }
        let mut change: [u8; LEN] = std::array::from_fn(|at| record[at] ^ before[at]);
        let crc = u32::from_le_bytes(field(&before, CRC)) ^ crc::remainder(&change[..CRC]);
        record[CRC..].copy_from_slice(&crc.to_le_bytes());
        (CRC..LEN).for_each(|at| change[at] = record[at] ^ before[at]);
        change
    }
}

fn field<const N: usize>(record: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| record[at + index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::record::{Record, is_whole};
    use shotline_wire::shot::{Geometry, Packing};

    #[test]
    fn patching_preserves_validity_and_sets_the_fields() {
        let geometry = Geometry::new(4, 100, 12, Packing::Packed12, 1000).unwrap();
        let samples = vec![0x37; geometry.trailer_offset() as usize];
        let register = crc::register(u32::MAX, &samples);
        let record = Record { shot: 5, tai_ns: 77, stream: 3, triggered: true, event: 9, ..Record::of(&geometry) };
        let patch = Patch { number_offset: 1 << 33, stream: Some(8), stamp: Some((99, true)) };
        for damage in [0, 0x10] {
            let mut bytes = record.finish(register);
            bytes[33] ^= damage;
            let before = bytes;
            let change = patch.apply(&mut bytes);
            assert_eq!(is_whole(crc::register(register, &bytes)), damage == 0);
            assert_eq!(crc::remainder(&bytes), crc::remainder(&before) ^ crc::remainder(&change));
            bytes[33] ^= damage;
            let after = Record { shot: 5 + (1 << 33), tai_ns: 99, stream: 8, clock_locked: true, ..record };
            assert_eq!(Record::parse(&bytes).unwrap(), after);
        }
    }

    #[test]
    fn empty_patches_and_foreign_bytes_change_nothing() {
        let geometry = Geometry::new(4, 100, 12, Packing::Packed12, 1000).unwrap();
        let mut bytes = Record::of(&geometry).finish(1);
        let before = bytes;
        assert_eq!(Patch::default().apply(&mut bytes), [0; LEN]);
        assert_eq!(bytes, before);
        let mut foreign = [0xA5; LEN];
        Patch { number_offset: 1, stream: Some(1), stamp: None }.apply(&mut foreign);
        assert_eq!(foreign, [0xA5; LEN]);
    }
}
