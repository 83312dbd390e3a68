//! Measures how many packets of each length the packet card's DMA module takes, relative to a wire of 100 Gbit/s:
//! `card_load [--step STEP] [--to LENGTH] [--channels COUNT] [--header BYTES] [--packets COUNT] [--single]`. Prints a line
//! of JSON for each length of frames, with FCS: length, channels, bytes of a header's buffer, rate, and the bytes that are
//! lost at the rate of the wire, also of COUNT frames that last longer than the descriptors that the module holds. With
//! `--single` the bus takes 64 bytes of a write in each clock, instead of two writes.

use shotline_rtl::card::load::{Load, Measurement};

/// Length of the shortest frame, with FCS.
const SHORTEST: u16 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut step, mut longest, mut packets) = (1, 1526, 0);
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
            "--single" => load.single = true,
            _ => {
                return Err(format!(
                    "expected --step, --to, --channels, --header, --packets or --single, found {name}"
                )
                .into());
            }
        }
    }
    let mut measurement = Measurement::new(load, 1)?;
    for length in (SHORTEST..=longest).step_by(step) {
        let mut rate = measurement.rate(length)?;
        if packets > 0 {
            rate.lost += measurement.arrive(&vec![length; packets])?.lost;
        }
        println!(
            "{{\"length\": {length}, \"channels\": {}, \"header\": {}, \"rate\": {:.4}, \"lost\": {}}}",
            load.channels, load.header, rate.rate, rate.lost
        );
    }
    measurement.finish()?;
    Ok(())
}
