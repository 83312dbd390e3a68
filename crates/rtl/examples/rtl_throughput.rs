//! Measures the RTL's clocks per packet at every length, with consecutive packets and without back-pressure:
//! `rtl_throughput [STEP]`. Prints a line of JSON for each framing and IP version, with rows of payload bytes, frame
//! bytes, clocks (for [`PACKETS`] packets).

use shotline_rtl::{Config, Framing, Limits, Sender, Shot};
use shotline_wire::icrc::{Flow, Network};

/// Packets whose clocks are counted.
const PACKETS: usize = 32;
/// Packets before those, which fill the pipeline.
const WARM_UP: usize = 48;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let step = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    for framing in Framing::ALL {
        for (ip, network) in [
            (4, Network::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2], id: 0 }),
            (6, Network::V6 { src: [1; 16], dst: [2; 16] }),
        ] {
            let flow = Flow { network, src_port: 0xC000, dst_port: 4791 };
            let config =
                Config { framing, packet_mode: true, flow, stream: Some(1), psn: Some(0), ..Config::default() };
            let mut sender = Sender::new(1);
            sender.configure(&config)?;
            let rows = (1..=4096).rev().step_by(step).map(|len| {
                let payload = vec![0x5A; len];
                (0..WARM_UP + PACKETS).for_each(|_| sender.send(&Shot::default(), &payload));
                sender.run(Limits::default());
                let ends: Vec<u64> = sender.frames().map(|frame| frame.clock).collect();
                let bytes = sender.frames().next().map_or(0, |frame| frame.bytes.len());
                sender.discard(ends.len());
                let clocks = ends.last().zip(ends.get(WARM_UP - 1)).map_or(0, |(last, first)| last - first);
                assert_eq!((ends.len(), bytes), (WARM_UP + PACKETS, config.frame_len(len)), "packets of {len} bytes");
                format!("[{len},{bytes},{clocks}]")
            });
            let rows = rows.collect::<Vec<_>>().join(",");
            let name = config.framing.wire_framing().name();
            println!("{{\"framing\":\"{name}\",\"ip\":{ip},\"packets\":{PACKETS},\"rows\":[{rows}]}}");
        }
    }
    Ok(())
}
