use super::*;
use proptest::prelude::*;
use shotline_memory::{Buffer, Pool, Registrar};
use shotline_testing::cases;
use shotline_wire::shot::{Packetization, Trailer};

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd(1)];

fn buffers(geometry: &Geometry) -> (Buffer, Buffer) {
    let pool = Pool::new(&mut Registrar::new(), 2, geometry.slot_bytes()).unwrap();
    (pool.take().unwrap(), pool.take().unwrap())
}

/// Returns a slot whose samples are a slow sine wave with a little noise, with a nonzero trailer.
fn slot(geometry: &Geometry, noise: u32) -> Vec<u8> {
    let mut bytes = vec![0; geometry.slot_bytes() as usize];
    let count = usize::from(geometry.channels()) * geometry.samples() as usize;
    let mut state = 1_u32;
    let samples: Vec<i16> = (0..count)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((index as f64 / 50.0).sin() * 100.0) as i16 ^ ((state >> 16) & noise) as i16
        })
        .collect();
    let to = &mut bytes[..geometry.sample_bytes() as usize];
    match geometry.packing() {
        Packing::Packed12 => shotline_compute::pack12::pack(&samples, to),
        Packing::Int16Le => to.copy_from_slice(&samples.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>()),
        Packing::Int16Be => to.copy_from_slice(&samples.iter().flat_map(|s| s.to_be_bytes()).collect::<Vec<_>>()),
        Packing::Uint8 => to.iter_mut().zip(&samples).for_each(|(byte, sample)| *byte = *sample as u8),
    }
    let closing = geometry.trailer_offset() as usize..geometry.shot_bytes() as usize;
    bytes[closing].iter_mut().enumerate().for_each(|(index, byte)| *byte = 0x41 + index as u8);
    bytes
}

fn encode(codec: Codec, geometry: Geometry, slot: &[u8]) -> Option<Vec<u8>> {
    let (from, to) = buffers(&geometry);
    from.write(0, slot);
    to.write(0, &vec![0xee; to.len() as usize]);
    let len = Encoder::new(codec, geometry).encode(&from, &to)?;
    let mut chunk = vec![0; (len as usize).next_multiple_of(4096)];
    to.read(0, &mut chunk);
    assert!(chunk[len as usize..].iter().all(|byte| *byte == 0), "stale bytes after a chunk");
    chunk.truncate(len as usize);
    Some(chunk)
}

fn decode(codec: Codec, geometry: Geometry, chunk: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut slot = vec![0xdd; geometry.slot_bytes() as usize];
    Decoder::new(codec, geometry).decode(chunk, &mut slot).map(|()| slot)
}

#[test]
fn shots_round_trip_and_take_less_space() {
    for (codec, packing) in CODECS.into_iter().flat_map(|codec| Packing::ALL.map(|packing| (codec, packing))) {
        let geometry = Geometry::new(96, 2000, 8, packing, 0).unwrap();
        let slot = slot(&geometry, 3);
        let chunk = encode(codec, geometry, &slot).unwrap();
        assert!(chunk.len() < slot.len() * 3 / 4, "{codec} {packing:?}: {} of {} bytes", chunk.len(), slot.len());
        assert_eq!(decode(codec, geometry, &chunk).as_ref(), Ok(&slot), "{codec} {packing:?}");
    }
}

#[test]
fn noise_is_stored_uncompressed() {
    let geometry = Geometry::new(16, 1000, 16, Packing::Int16Le, 0).unwrap();
    for codec in CODECS {
        assert_eq!(encode(codec, geometry, &slot(&geometry, 65_535)), None, "{codec}");
    }
}

#[test]
fn nonzero_padding_is_not_compressed() {
    // 10 x 3010 samples of 12 bits are 45150 bytes, so there is padding before the record.
    let geometry = Geometry::new(10, 3010, 12, Packing::Packed12, 0).unwrap();
    let good = slot(&geometry, 0);
    assert!(encode(Codec::Lz4, geometry, &good).is_some());
    for at in [geometry.sample_bytes(), geometry.trailer_offset() - 1, geometry.shot_bytes(), geometry.slot_bytes() - 1]
    {
        let mut slot = good.clone();
        slot[at as usize] = 1;
        assert_eq!(encode(Codec::Lz4, geometry, &slot), None, "byte {at}");
    }
}

#[test]
fn truncated_chunks_are_refused_and_damage_cannot_panic() {
    let geometry = Geometry::new(10, 3010, 12, Packing::Packed12, 0).unwrap();
    for codec in CODECS {
        let slot = slot(&geometry, 3);
        let chunk = encode(codec, geometry, &slot).unwrap();
        for len in 0..chunk.len() {
            assert!(decode(codec, geometry, &chunk[..len]).is_err(), "{codec}: {len} of {} bytes", chunk.len());
        }
        for at in (0..chunk.len()).step_by(7) {
            let mut changed = chunk.clone();
            changed[at] ^= 0x5a;
            let _ = decode(codec, geometry, &changed);
        }
    }
}

#[test]
fn invalid_block_sizes_are_refused() {
    let geometry = Geometry::new(10, 3010, 12, Packing::Packed12, 0).unwrap();
    let chunk = encode(Codec::Lz4, geometry, &slot(&geometry, 0)).unwrap();
    for block in [0_u32, 1, 24, u32::MAX] {
        let mut changed = chunk.clone();
        changed[8..12].copy_from_slice(&block.to_be_bytes());
        assert!(matches!(decode(Codec::Lz4, geometry, &changed), Err(DecodeError::Header { .. })), "{block}");
    }
}

#[test]
fn filter_parameters_identify_the_codec() {
    for codec in [Codec::Lz4, Codec::Zstd(1), Codec::Zstd(-5)] {
        assert_eq!(Codec::from_filter(&codec.filter(Packing::Packed12)), Some(codec));
    }
    assert_eq!(Codec::from_filter(&[0, 5, 2, 0]), None);
    assert!("gzip".parse::<Codec>().unwrap_err().contains("lz4 or zstd"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]
    #[test]
    fn shots_of_any_geometry_round_trip(
        samples in 1_u32..6000, channels in 1_u16..8, packing in 0_usize..3, trailer in 0_usize..3, lz4: bool,
    ) {
        let samples = samples.next_multiple_of(2);
        let geometry = Geometry::new(channels, samples, 8, Packing::ALL[packing], 0).unwrap();
        let geometry = geometry.sent_as(Trailer::ALL[trailer], Packetization::default()).unwrap();
        let slot = slot(&geometry, 1);
        let codec = CODECS[usize::from(lz4)];
        if let Some(chunk) = encode(codec, geometry, &slot) {
            prop_assert!(chunk.len().next_multiple_of(4096) < slot.len());
            prop_assert_eq!(decode(codec, geometry, &chunk), Ok(slot));
        }
    }
}
