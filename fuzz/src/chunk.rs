//! Invariants of arbitrary bytes of a compressed chunk. Separate from the other targets, which build without HDF5.

use shotline_memory::{Pool, Registrar};
use shotline_store::codec::{Codec, Decoder, Encoder};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};

/// Bytes before the chunk: codec, packing, trailer, channels, samples (u16).
pub const HEAD: usize = 6;

/// Decodes codec and geometry from the first bytes of the input.
pub fn shape(head: &[u8; HEAD]) -> Option<(Codec, Geometry)> {
    let [codec, packing, trailer, channels, samples @ ..] = *head;
    let codec = if codec % 2 == 0 { Codec::Lz4 } else { Codec::Zstd(1) };
    let packing = Packing::ALL[usize::from(packing) % Packing::ALL.len()];
    let trailer = Trailer::ALL[usize::from(trailer) % Trailer::ALL.len()];
    let samples = u32::from(u16::from_be_bytes(samples));
    let geometry = Geometry::new(u16::from(channels) % 8, samples, 8, packing, 0).ok()?;
    Some((codec, geometry.sent_as(trailer, Packetization::default()).ok()?))
}

/// A chunk is either refused or decompresses to a slot with zero padding, which survives a round trip through the
/// codec.
pub fn chunk(data: &[u8]) {
    let Some((head, chunk)) = data.split_first_chunk::<HEAD>() else { return };
    let Some((codec, geometry)) = shape(head) else { return };
    let mut decoder = Decoder::new(codec, geometry);
    let mut slot = vec![0xdd; geometry.slot_bytes() as usize];
    if decoder.decode(chunk, &mut slot).is_err() {
        return;
    }
    let (samples, trailer) = (geometry.sample_bytes() as usize, geometry.trailer_offset() as usize);
    assert!(slot[samples..trailer].iter().chain(&slot[geometry.shot_bytes() as usize..]).all(|byte| *byte == 0));
    let pool = Pool::new(&mut Registrar::new(), 2, geometry.slot_bytes()).expect("memory for two slots");
    let (Some(shot), Some(out)) = (pool.take(), pool.take()) else { return };
    shot.write(0, &slot);
    let Some(len) = Encoder::new(codec, geometry).encode(&shot, &out) else { return };
    let (mut compressed, mut again) = (vec![0; len as usize], vec![0xdd; slot.len()]);
    out.read(0, &mut compressed);
    assert_eq!(decoder.decode(&compressed, &mut again), Ok(()));
    assert!(again == slot, "the round trip changed the slot");
}
