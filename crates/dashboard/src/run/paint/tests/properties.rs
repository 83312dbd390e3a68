//! Every painter, with shots of any shape: no panic, and a picture that the page accepts.

use super::*;
use crate::run::paint::ArrayChoice;
use proptest::prelude::*;
use shotline_compute::ultrasound::Array;

/// Shape and condition of the shots of a run.
#[derive(Clone, Debug)]
struct Run {
    about: About,
    options: PaintOptions,
    /// Each event: distance to the number of the one before, and for each link the part of its packets, if it is there.
    events: Vec<(u64, Vec<Option<u32>>)>,
    seed: u64,
}

fn runs() -> impl Strategy<Value = Run> {
    let shape = (prop_oneof![Just(1_u16), 1..=9_u16], prop_oneof![Just(1_u32), 1..=200_u32, Just(2100)]);
    let format = (1..=16_u8, prop::sample::select(Packing::ALL.to_vec()));
    let rate = prop_oneof![Just(0), Just(1), Just(40_000_000), any::<u32>()];
    let trailer = prop::sample::select(vec![Trailer::Record, Trailer::None, Trailer::Block]);
    let size = prop::option::of(prop::array::uniform2(prop_oneof![1..=80_u32, Just(65_535)]));
    let links = (1..=3_usize, prop_oneof![1..=5_usize, Just(65)]);
    let event = (0..=3_u64, prop::collection::vec(prop::option::of(0..=2_u32), 3));
    (shape, format, rate, trailer, size, links, prop::collection::vec(event, 0..4), any::<u64>()).prop_map(
        |((channels, samples), (bits, packing), rate, trailer, image_size, (links, waves), events, seed)| {
            // Samples of 12 bits are pairs.
            let samples = if packing == Packing::Packed12 { samples.next_multiple_of(2) } else { samples };
            let bits = bits.min(packing.bits_per_sample() as u8);
            let angles_rad: Vec<_> = (0..waves).map(|wave| wave as f64 * 0.01).collect();
            let array = ArrayChoice::new(move |array| Array { angles_rad: angles_rad.clone(), ..array });
            let options = PaintOptions { array, image_size };
            Run { about: about(links, (channels, samples), (bits, packing), rate, trailer), options, events, seed }
        },
    )
}

impl Run {
    fn events(&self) -> Vec<Event> {
        let camera = Camera::new(self.about.clone(), 16);
        let mut random = shotline_random::SplitMix64::new(self.seed);
        let mut number = 0;
        let event = |(step, parts): &(u64, Vec<Option<u32>>)| {
            number += step;
            let mut shot = |part: u32| {
                let bytes = {
                    let mut bytes = vec![0; self.about.geometry.sample_bytes() as usize];
                    random.fill_bytes(&mut bytes);
                    bytes
                };
                camera.shot(number, &bytes, self.about.geometry.packets() * part / 2)
            };
            let shots = parts.iter().take(self.about.links).map(|part| part.map(&mut shot)).collect();
            Event { number, shots }
        };
        self.events.iter().map(event).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_shots_give_a_valid_picture_or_none(run in runs()) {
        let events = run.events();
        for set in PictureSet::ALL {
            for mut painter in set.event_painters(&run.options) {
                for rate in [0.0, 1e9] {
                    let request = painter.request(&run.about, rate);
                    prop_assert!(request.count >= 1 && request.stride >= 1 && request.multiple >= 1);
                }
                // A second time with what the first one has allocated.
                for _ in 0..2 {
                    if let Some(picture) = painter.paint(&run.about, &events) {
                        prop_assert_eq!(picture.header.kind, painter.info().kind);
                        check(&picture);
                    }
                }
            }
        }
    }
}

/// Paints one shot of zeros with all painters and returns the largest payload.
fn largest_payload(about: About) -> usize {
    let camera = Camera::new(about, 1);
    let events = [Event { number: 0, shots: vec![Some(camera.shot(0, &[], u32::MAX))] }];
    let mut largest = 0;
    for set in PictureSet::ALL {
        for mut painter in set.event_painters(&PaintOptions::default()) {
            if let Some(picture) = painter.paint(&camera.about, &events) {
                check(&picture);
                largest = largest.max(picture.payload.len());
            }
        }
    }
    largest
}

#[test]
fn large_shots_give_small_pictures() {
    for (shape, packing) in [
        ((2, 1 << 24), Packing::Int16Le),
        ((1, 1 << 26), Packing::Uint8),
        ((u16::MAX, 1), Packing::Int16Be),
        ((4096, 4096), Packing::Packed12),
    ] {
        let bits = packing.bits_per_sample() as u8;
        let largest = largest_payload(about(1, shape, (bits, packing), 500_000_000, Trailer::None));
        assert!((1..=1 << 20).contains(&largest), "{shape:?}: {largest} bytes");
    }
}

#[test]
fn frames_of_more_waves_than_are_collected_are_painted() {
    let array = ArrayChoice::new(|array| Array { angles_rad: vec![0.0; 70], ..array });
    let options = PaintOptions { array, ..PaintOptions::default() };
    let mut painter = painter(PictureSet::Ultrasound, "bmode", &options);
    let camera = Camera::new(about(1, (4, 60), (16, Packing::Int16Le), 0, Trailer::None), 70);
    let request = painter.request(&camera.about, 0.0);
    assert_eq!((request.count, request.multiple), (64, 70), "from the first wave of a frame on");
    let events: Vec<_> = (70..140).map(|number| camera.event(number, &[100; 240])).collect();
    let picture = painter.paint(&camera.about, &events).unwrap();
    check(&picture);
    assert_eq!(picture.header.note, "64 of 70 transmissions");
}
