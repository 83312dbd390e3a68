//! Pictures of signals that are known.

use super::*;
use std::f64::consts::TAU;

const RATE_HZ: u32 = 1_000_000;

/// Returns I and Q of a tone, or a real one if there is one channel; all channels are the same otherwise.
fn tone(about: &About, frequency_hz: f64, amplitude: f64) -> Vec<i16> {
    let channels = usize::from(about.geometry.channels());
    let is_iq = about.geometry.trailer().has_description() && channels == 2;
    let value = |at: usize| {
        let phase = TAU * frequency_hz / f64::from(RATE_HZ) * (at / channels) as f64;
        (amplitude * if is_iq && at % 2 == 1 { phase.sin() } else { phase.cos() }).round() as i16
    };
    (0..channels * about.geometry.samples() as usize).map(value).collect()
}

fn real() -> Camera {
    Camera::new(about(2, (1, 20_000), (12, Packing::Packed12), RATE_HZ, Trailer::None), 16)
}

fn iq() -> Camera {
    Camera::new(about(1, (2, 5000), (16, Packing::Int16Le), RATE_HZ, Trailer::Block), 16)
}

fn digitizer(kind: &str) -> Box<dyn EventPainter> {
    painter(PictureSet::Digitizer, kind, &PaintOptions::default())
}

/// Returns the position on an axis of point `index` of `count`.
fn position(axis: &crate::pictures::Axis, index: usize, count: usize) -> f64 {
    axis.from + (axis.to - axis.from) * index as f64 / (count - 1) as f64
}

fn index_of_greatest(values: impl Iterator<Item = f32>) -> usize {
    values.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0
}

#[test]
fn the_spectrum_of_a_tone_has_its_peak_at_the_tone() {
    // Half of full scale is -6 dBFS in 12 bits as in 16.
    for (camera, frequency_hz, amplitude) in
        [(real(), 187_000.0, 1024.0), (iq(), -200_000.0, 16384.0), (iq(), 312_500.0, 16384.0)]
    {
        let event = camera.event(1, &tone(&camera.about, frequency_hz, amplitude));
        let picture = digitizer("spectrum").paint(&camera.about, &[event]).unwrap();
        check(&picture);
        let [line] = &lines(&picture)[..] else { panic!("{:?}", picture.header) };
        let peak = index_of_greatest(line.iter().copied());
        let found_mhz = position(&picture.header.x, peak, line.len());
        let step_mhz = position(&picture.header.x, 1, line.len()) - picture.header.x.from;
        assert!((found_mhz - frequency_hz / 1e6).abs() <= step_mhz, "{found_mhz} MHz, expected {frequency_hz} Hz");
        assert!((-8.0..-5.9).contains(&line[peak]), "{} dBFS", line[peak]);
        assert_eq!((picture.header.x.unit, picture.header.note.as_str()), ("MHz", ""));
    }
}

#[test]
fn every_channel_has_its_line_up_to_four() {
    for (channels, shown) in [(3, 3), (6, 4)] {
        let camera = Camera::new(about(1, (channels, 4096), (16, Packing::Int16Be), RATE_HZ, Trailer::None), 1);
        let events = [camera.event(1, &tone(&camera.about, 100e3, 9e3))];
        let picture = digitizer("spectrum").paint(&camera.about, &events).unwrap();
        assert_eq!(picture.header.lines.len(), shown);
        assert_eq!(picture.header.note.is_empty(), channels <= 4, "{}", picture.header.note);
    }
}

#[test]
fn a_column_of_the_waterfall_is_brightest_at_the_tone() {
    for (camera, frequencies) in [(real(), [50_000.0, 410_000.0]), (iq(), [-333_000.0, 101_000.0])] {
        let tones = frequencies.map(|frequency_hz| tone(&camera.about, frequency_hz, 1500.0));
        let events = [camera.event(7, &tones[0]), camera.event(9, &tones[1])];
        let picture = digitizer("waterfall").paint(&camera.about, &events).unwrap();
        check(&picture);
        let header = &picture.header;
        assert!(header.append && header.width == 2 && (header.x.from, header.x.to) == (7.0, 9.0), "{header:?}");
        assert!(header.y.from > header.y.to, "the highest frequency is at the top");
        for (column, frequency_hz) in frequencies.into_iter().enumerate() {
            let rows = picture.payload.chunks_exact(2).map(|row| f32::from(row[column]));
            let found_mhz = position(&header.y, index_of_greatest(rows), header.height as usize);
            assert!((found_mhz - frequency_hz / 1e6).abs() < 0.004, "{found_mhz} MHz, expected {frequency_hz} Hz");
        }
    }
}

#[test]
fn the_iq_of_a_tone_is_a_circle() {
    for (camera, amplitude, expected, note) in
        [(iq(), 8192.0, 0.25, ""), (real(), 1024.0, 0.5, "mixed down from 0.1870 MHz")]
    {
        let event = camera.event(1, &tone(&camera.about, 187_000.0, amplitude));
        let picture = digitizer("iq").paint(&camera.about, &[event]).unwrap();
        check(&picture);
        let [i, q] = &lines(&picture)[..] else { panic!("{:?}", picture.header) };
        assert!(i.len() <= 2048 && picture.header.lines == ["I", "Q"]);
        for (i, q) in i.iter().zip(q) {
            let radius = f64::from(i.hypot(*q));
            assert!((radius - expected).abs() < 0.01 * expected, "radius {radius}, expected {expected}");
        }
        assert_eq!(picture.header.note, note);
        assert!(picture.header.y.to >= expected && picture.header.y.to < 2.0 * expected + 1e-9);
    }
}

#[test]
fn a_frame_shows_its_gradient_in_every_packing() {
    let size = Some([40, 30]);
    for (packing, bits) in [
        (Packing::Uint8, 8),
        (Packing::Int16Le, 10),
        (Packing::Int16Be, 12),
        (Packing::Int16Le, 16),
        (Packing::Packed12, 12),
    ] {
        let camera = Camera::new(about(1, (1, 1200), (bits, packing), 0, Trailer::None), 1);
        // A pixel of column x in row y is 5 x + y, in the upper 8 bits.
        let pixel = |at: usize| ((at % 40 * 5 + at / 40) << (bits - 8)) as u16;
        let pixels: Vec<u16> = (0..1200).map(pixel).collect();
        let bytes = match packing {
            Packing::Uint8 => pixels.iter().map(|pixel| *pixel as u8).collect(),
            _ => packed(&camera.about.geometry, &pixels.iter().map(|pixel| *pixel as i16).collect::<Vec<_>>()),
        };
        let event = Event { number: 1, shots: vec![Some(camera.shot(1, &bytes, u32::MAX))] };
        let options = PaintOptions { image_size: size, ..PaintOptions::default() };
        let picture = painter(PictureSet::Frames, "frame", &options).paint(&camera.about, &[event]).unwrap();
        check(&picture);
        let expected: Vec<u8> = (0..1200).map(|at| (at % 40 * 5 + at / 40) as u8).collect();
        assert_eq!((picture.header.width, picture.header.height), (40, 30));
        assert!(picture.payload == expected, "{packing} {bits}: {:?}", &picture.payload[..50]);
        assert_eq!(picture.header.note, "");
    }
}

#[test]
fn sizes_of_frames_are_guessed_and_large_ones_reduced() {
    for (shape, size, shown) in [
        ((1, 640 * 480), None, [640, 480]),
        ((1, 1920 * 1080), None, [960, 540]),
        ((1, 64 * 64), None, [64, 64]),
        ((1, 10), None, [4, 3]),
        ((96, 50), None, [96, 50]),
        ((1, 40_000), Some([20_000, 2]), [1000, 1]),
    ] {
        let camera = Camera::new(about(1, shape, (8, Packing::Uint8), 0, Trailer::None), 1);
        let bytes: Vec<u8> = (0..camera.about.geometry.sample_bytes()).map(|at| (at % 251) as u8).collect();
        let event = Event { number: 1, shots: vec![Some(camera.shot(1, &bytes, u32::MAX))] };
        let options = PaintOptions { image_size: size, ..PaintOptions::default() };
        let picture = painter(PictureSet::Frames, "frame", &options).paint(&camera.about, &[event]).unwrap();
        check(&picture);
        assert_eq!([picture.header.width, picture.header.height], shown, "{shape:?}");
        let width = picture.header.x.to as usize + 1;
        let step = width.div_ceil(shown[0] as usize);
        let second = bytes.get(step * width).copied().unwrap_or(0);
        assert_eq!(picture.payload[1], bytes[step], "{shape:?}");
        assert!(shown[1] == 1 || picture.payload[shown[0] as usize] == second, "{shape:?}");
    }
}

#[test]
fn missing_links_and_packets_are_said() {
    let camera = real();
    let bytes = packed(&camera.about.geometry, &tone(&camera.about, 1e5, 100.0));
    let partial = Event { number: 3, shots: vec![None, Some(camera.shot(3, &bytes, 2))] };
    for set in PictureSet::ALL {
        for mut painter in set.event_painters(&PaintOptions::default()) {
            let info = painter.info();
            let Some(picture) = painter.paint(&camera.about, std::slice::from_ref(&partial)) else {
                // A row or a column is of a whole transmission, or of the first link.
                assert!(["bmode", "mmode", "waterfall"].contains(&info.kind), "{}", info.kind);
                continue;
            };
            let note = picture.header.note;
            assert!(note.contains("1 of 2 links") && note.contains("2 of 4 packets"), "{}: {note}", info.kind);
        }
    }
    let partial = Event { number: 4, shots: vec![Some(camera.shot(4, &bytes, 2)), None] };
    let events = [camera.event(3, &tone(&camera.about, 1e5, 100.0)), partial];
    let picture = digitizer("waterfall").paint(&camera.about, &events).unwrap();
    assert_eq!(picture.header.note, "1 of 2 shots are complete");
}
