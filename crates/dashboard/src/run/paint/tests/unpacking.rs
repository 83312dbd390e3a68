//! Samples in every packing.

use super::super::part::{Samples, unpack};
use super::*;

fn geometry(shape: (u16, u32), bits: u8, packing: Packing) -> Geometry {
    about(1, shape, (bits, packing), 0, Trailer::None).geometry
}

#[test]
fn every_packing_gives_back_its_samples() {
    for (packing, bits) in [
        (Packing::Packed12, 12),
        (Packing::Int16Le, 16),
        (Packing::Int16Be, 14),
        (Packing::Uint8, 8),
        (Packing::Uint8, 5),
    ] {
        let geometry = geometry((2, 3), bits, packing);
        let largest = ((1_i32 << (bits - 1)) - 1) as i16;
        let values = [0, 1, -1, largest, -largest - 1, 5];
        let (bytes, mut found) = (packed(&geometry, &values), vec![7; 3]);
        unpack(&geometry, &bytes, 6, &mut found);
        assert_eq!(found, values, "{packing} {bits}");
    }
}

#[test]
fn an_odd_number_of_12_bit_samples_is_unpacked() {
    let geometry = geometry((2, 2), 12, Packing::Packed12);
    let (bytes, mut found) = (packed(&geometry, &[1, -2, 3, -4]), Vec::new());
    unpack(&geometry, &bytes, 3, &mut found);
    assert_eq!(found, [1, -2, 3]);
    unpack(&geometry, &bytes[..5], 4, &mut found);
    assert_eq!(found, [1, -2, 0, 0], "half a pair has no samples");
}

#[test]
fn bytes_that_are_not_there_are_zeros() {
    for packing in Packing::ALL {
        let mut found = Vec::new();
        unpack(&geometry((2, 2), 8, packing), &[], 4, &mut found);
        assert_eq!(found, [0; 4], "{packing}");
    }
}

#[test]
fn only_the_first_samples_of_a_shot_are_taken() {
    for (packing, bits) in [(Packing::Packed12, 12), (Packing::Int16Le, 16), (Packing::Uint8, 8)] {
        let camera = Camera::new(about(1, (3, 4), (bits, packing), 0, Trailer::None), 1);
        let values: Vec<i16> = (-6..6).collect();
        let event = camera.event(0, &values);
        let shot = event.shots[0].as_ref().unwrap();
        let mut samples = Samples::default();
        assert_eq!(samples.first(&camera.about.geometry, shot, 3), &values[..9], "{packing}");
        assert_eq!(samples.first(&camera.about.geometry, shot, 99), values, "{packing}");
    }
}
