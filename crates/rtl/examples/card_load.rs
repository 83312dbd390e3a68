//! Measures how many packets of each length the packet card takes, relative to a wire of 100 Gbit/s for each module:
//! `card_load [--step STEP] [--to LENGTH] [--channels COUNT] [--header BYTES] [--packets COUNT] [--modules COUNT]
//! [--single | --link LINK]`. Prints a line of JSON for each length of frames, with FCS.
//!
//! The bus of the DMA module is always ready; with `--single` it takes 64 bytes of a write in each clock, instead of two
//! writes. `lost`: bytes that are lost at the rate of the wire, also of COUNT frames that last longer than the descriptors
//! that the module holds.
//!
//! With a link, such as `3x16/256` (generation, lanes, maximum payload), the card has its bus side and is behind this link.
//! `limit`: the rate that the model of the bus (`shotline_plan::pcie`) permits with as many descriptor reads and reports
//! as were sent.

use shotline_rtl::card::load::{Load, Measurement};
use std::ops::RangeInclusive;

/// Length of the shortest frame, with FCS.
const SHORTEST: u16 = 64;

struct Arguments {
    lengths: std::iter::StepBy<RangeInclusive<u16>>,
    packets: usize,
    modules: u64,
    load: Load,
}

fn arguments() -> Result<Arguments, Box<dyn std::error::Error>> {
    let (mut step, mut longest, mut packets, mut modules) = (1, 1526, 0, 1);
    let mut load = Load { channels: 256, ..Load::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--step" => step = value()?.parse()?,
            "--to" => longest = value()?.parse()?,
            "--channels" => load.channels = value()?.parse()?,
            "--header" => load.header = value()?.parse()?,
            "--packets" => packets = value()?.parse()?,
            "--modules" => modules = value()?.parse()?,
            "--single" => load.single = true,
            "--link" => load = load.behind(value()?.parse()?),
            _ => return Err(format!("expected an option of card_load (see its source), found {name}").into()),
        }
    }
    Ok(Arguments { lengths: (SHORTEST..=longest).step_by(step), packets, modules, load })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { lengths, packets, modules, load } = arguments()?;
    let new = |seed| Measurement::new(load, seed);
    let mut measurements = (1..=modules).map(new).collect::<Result<Vec<_>, _>>()?;
    let Load { channels, header, .. } = load;
    for length in lengths {
        let mut sum = Line::default();
        for measurement in &mut measurements {
            sum.add(measurement, length, packets)?;
        }
        let Line { rate, lost, limit } = sum;
        println!(
            "{{\"length\": {length}, \"channels\": {channels}, \"header\": {header}, \"rate\": {rate:.4}, \
             \"lost\": {lost}, \"limit\": {limit:.4}}}"
        );
    }
    Ok(measurements.into_iter().try_for_each(Measurement::finish)?)
}

/// Sums over the modules.
#[derive(Default)]
struct Line {
    rate: f64,
    lost: u64,
    limit: f64,
}

impl Line {
    fn add(&mut self, measurement: &mut Measurement, length: u16, packets: usize) -> Result<(), String> {
        if measurement.load().link.is_some() {
            let passed = measurement.passed(length)?;
            self.rate += passed.rate;
            self.limit += passed.limit;
        } else {
            let measured = measurement.rate(length)?;
            self.rate += measured.rate;
            self.lost += measured.lost;
        }
        if packets > 0 {
            self.lost += measurement.arrive(&vec![length; packets])?.lost;
        }
        Ok(())
    }
}
