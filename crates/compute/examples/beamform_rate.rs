//! Measures a beamformer for `bench/bmode.py`: `beamform_rate KEY=VALUE...`, where the file `rf` has the samples of each
//! wave as a shot of little-endian 16-bit integers and `out` receives the image, the real part in columns, as float32.
//!
//! Prints the seconds of each stage, a line for each frame: samples as floating-point numbers to traces, the image, the
//! envelope and its compression, and unpacking of 12-bit samples to traces.

use shotline_compute::pack12;
use shotline_compute::ultrasound::{
    Apodisation, Array, Beamformer, BeamformerConfig, Display, Grid, Quadrature, Reference, Rf,
};
use shotline_wire::shot::Packing;
use std::collections::HashMap;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let values: HashMap<&str, &str> = arguments.iter().filter_map(|argument| argument.split_once('=')).collect();
    let config = configuration(&values)?;
    let shots = read_shots(get(&values, "rf")?, &config)?;
    let channels: Vec<Vec<f32>> = shots.iter().map(|shot| by_channel(shot, config.elements)).collect();
    let bytes: Vec<Vec<u8>> = shots.iter().map(|shot| packed(shot)).collect();

    let mut beamformer = Beamformer::new(&config)?;
    let display = Display::new(60.0, Reference::Maximum)?;
    let pixels = config.grid.pixels();
    let (mut image, mut picture) = (vec![Default::default(); pixels], vec![0; pixels]);
    for _ in 0..get(&values, "frames")?.parse()? {
        let mut stages = [0.0; 4];
        let mut last = Instant::now();
        let mut lap = |stage: usize| {
            let now = Instant::now();
            stages[stage] = (now - last).as_secs_f64();
            last = now;
        };
        for (wave, bytes) in bytes.iter().enumerate() {
            beamformer.add(wave, 0, Rf::Shot { bytes, packing: Packing::Packed12, channels: config.elements })?;
        }
        lap(3);
        for (wave, channels) in channels.iter().enumerate() {
            beamformer.add(wave, 0, Rf::Channels(channels))?;
        }
        lap(0);
        beamformer.finish(&mut image)?;
        lap(1);
        display.draw(&image, config.grid.columns, &mut picture)?;
        lap(2);
        println!("{} {} {} {}", stages[0], stages[1], stages[2], stages[3]);
    }
    let real: Vec<u8> = image.iter().flat_map(|value| value.re.to_le_bytes()).collect();
    std::fs::write(get(&values, "out")?, real)?;
    Ok(())
}

fn get<'a>(values: &HashMap<&str, &'a str>, key: &str) -> Result<&'a str, Failure> {
    values.get(key).copied().ok_or_else(|| format!("usage: beamform_rate KEY=VALUE...: {key} is missing").into())
}

fn configuration(values: &HashMap<&str, &str>) -> Result<BeamformerConfig, Failure> {
    let number = |key| -> Result<f64, Failure> { Ok(get(values, key)?.parse()?) };
    let count = |key| -> Result<usize, Failure> { Ok(get(values, key)?.parse()?) };
    let angles: Result<Vec<f64>, _> = get(values, "angles")?.split(',').map(str::parse).collect();
    let array = Array { pitch_m: number("pitch")?, angles_rad: angles?, ..Array::default() };
    let grid = Grid {
        columns: count("columns")?,
        rows: count("rows")?,
        x_m: number("x")?,
        z_m: number("z")?,
        column_pitch_m: number("dx")?,
        row_pitch_m: number("dz")?,
    };
    let f_number = number("f_number")?;
    let apodisation = match get(values, "window")? {
        "boxcar" => Apodisation::Boxcar { f_number },
        "hann" => Apodisation::Hann { f_number },
        _ => Apodisation::None,
    };
    let quadrature = if get(values, "quadrature")? == "channels" { Quadrature::Channels } else { Quadrature::Columns };
    let config = BeamformerConfig::new(&array, count("elements")?, count("samples")?, number("rate")?);
    Ok(BeamformerConfig { grid, apodisation, quadrature, ..config })
}

fn read_shots(file: &str, config: &BeamformerConfig) -> Result<Vec<Vec<i16>>, Failure> {
    let bytes = std::fs::read(file)?;
    let samples: Vec<i16> = bytes.as_chunks().0.iter().map(|word| i16::from_le_bytes(*word)).collect();
    Ok(samples.chunks_exact(config.elements * config.samples).map(<[i16]>::to_vec).collect())
}

fn by_channel(shot: &[i16], elements: usize) -> Vec<f32> {
    let channel = |element| shot.iter().skip(element).step_by(elements).map(|sample| f32::from(*sample));
    (0..elements).flat_map(channel).collect()
}

fn packed(shot: &[i16]) -> Vec<u8> {
    let mut bytes = vec![0; pack12::packed_bytes(shot.len())];
    pack12::pack(shot, &mut bytes);
    bytes
}
