//! Plans of five published systems, to compare their figures with the formulas.
//!
//! 0. Cossettini et al., "A RDMA Interface for Ultra-Fast Ultrasound Data-Streaming over an Optical Link"
//! 1. Cilardo, "Evaluation of HPC Acceleration and Interconnect Technologies for High-Throughput Data Acquisition"
//! 2. Gibson et al., "Efficient High Data Rate Networking Using Remote Direct Memory Access Over SpaceFibre"
//! 3. Kubálek, "High-speed DMA packet transfer in system DPDK"
//! 4. Ryoshi et al., "High-Bandwidth Data Handling Using PCIe DMA and 40-GbE with MTCA"
//!
//! Each [`Check`] holds a published figure and the value that this crate's formulas give for that paper's plan. Nothing
//! is fitted to the figures except the dead time of Cossettini et al., which is not published.

use crate::formula::bus::Pcie;
use crate::formula::link::{Framing, spacefibre_bits_per_s};
use crate::formula::queue::measured_throughput;
use crate::formula::{bus, shot};
use crate::plan::{Burst, Kind, Plan, Start};
use serde::Serialize;

/// Plans of the papers, in the order of their numbers.
const PLANS: [&str; 5] = [
    include_str!("../../../examples/plans/paper0.toml"),
    include_str!("../../../examples/plans/paper1.toml"),
    include_str!("../../../examples/plans/paper2.toml"),
    include_str!("../../../examples/plans/paper3.toml"),
    include_str!("../../../examples/plans/paper4.toml"),
];

/// 2^30, the prefix "giga" in the data rates of Cossettini et al.
const GIBI: f64 = 1_073_741_824.0;

/// A published figure and the computed one.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Quantity, in words.
    pub quantity: String,
    /// Section or table of the paper.
    pub location: &'static str,
    /// Unit of both figures.
    pub unit: &'static str,
    /// Published value.
    pub published: f64,
    /// Computed value.
    pub computed: f64,
    /// Relative difference of the computed to the published value.
    pub difference: f64,
    /// Remark, if any.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
}

/// Returns the text of a paper's plan, or `None` if there is no such paper.
pub fn plan(paper: u8) -> Option<&'static str> {
    PLANS.get(usize::from(paper)).copied()
}

/// Returns a paper's figures with the computed ones; empty if there is no such paper.
pub fn checks(paper: u8) -> Vec<Check> {
    let Some(plan) = plan(paper).and_then(|text| Plan::parse(text, &[]).ok()) else { return Vec::new() };
    match paper {
        0 => ultrasound(&plan),
        1 => accelerator(&plan),
        2 => spacefibre(&plan),
        3 => dma(&plan),
        _ => digitizer(&plan),
    }
}

fn check(
    quantity: impl Into<String>,
    location: &'static str,
    unit: &'static str,
    published: f64,
    computed: f64,
) -> Check {
    let difference = computed / published - 1.0;
    Check { quantity: quantity.into(), location, unit, published, computed, difference, note: "" }
}

impl Check {
    fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

/// Returns the limit of the stage with this name in bits per second; 0 if the plan has none.
fn limit(plan: &Plan, name: &str) -> f64 {
    let stage = plan.stages.iter().find(|stage| stage.name == name);
    stage.map_or(0.0, |stage| stage.limit_bits_per_s(&plan.source.burst))
}

fn ultrasound(plan: &Plan) -> Vec<Check> {
    let Burst::Shot { geometry: g, .. } = &plan.source.burst else { return Vec::new() };
    let raw = |channels: u32| shot::raw_bits_per_s(channels, g.bits().into(), g.sample_rate_hz().into()) / 1e9;
    let link = u32::from(g.channels());
    let mut checks = vec![
        check("32 channels, continuous sampling", "I, II.A", "Gbit/s", 15.36, raw(32)),
        check("96 channels: one link", "IV", "Gbit/s", 46.0, raw(link)).note("the paper rounds 46.08"),
        check("192 channels: the probe", "II.A", "Gbit/s", 92.16, raw(2 * link)),
    ];
    for (samples, khz, gibits) in [(500, 69.68, 74.76), (1000, 37.24, 79.90), (2000, 19.28, 82.74), (4000, 9.82, 84.26)]
    {
        let Ok(plan) = plan.with_samples(samples) else { continue };
        let source = plan.report().source;
        checks.push(check(format!("frame rate, N_s = {samples}"), "Table I", "kHz", khz, source.burst_hz / 1e3));
        let rate = source.sample_bits_per_s / GIBI;
        checks.push(check(format!("data rate, N_s = {samples}"), "Table I", "2^30 bit/s", gibits, rate));
    }
    let highest = 1.0 / plan.source.busy_s();
    let over = plan.with_start(Start::Periodic(highest * 1.001)).report().source.burst_hz;
    checks.push(
        check("frame rate just above the maximum, relative to it", "IV, Fig. 6", "", 0.5, over / highest)
            .note("every second trigger is missed"),
    );
    let synthetic = limit(plan, "100G Ethernet") / GIBI;
    checks.push(
        check("synthetic data on one link", "IV", "2^30 bit/s", 90.4, synthetic)
            .note("the paper does not state the unit; in 10^9 bit/s the line carries 97.8"),
    );
    let one_link = g.sample_bytes() as f64 * 8.0 * 5e3 / 1e9;
    checks.push(
        check("one link into the drive at f_ext = 5 kHz", "IV, Fig. 7", "Gbit/s", 12.0, one_link)
            .note("published: the drive's limit; shots are dropped even below it"),
    );
    checks
}

fn accelerator(plan: &Plan) -> Vec<Check> {
    let bytes = |bits_per_s: f64| bits_per_s / 8e9;
    let find = |kind: &str| plan.stages.iter().find(|stage| stage.kind.name() == kind).map(|stage| stage.kind);
    let (Some(Kind::Pcie(pcie)), Some(Kind::Memory { bits_per_s: bank, .. })) = (find("pcie"), find("memory")) else {
        return Vec::new();
    };
    let writes = pcie.data_bits_per_s() * 4096.0 / pcie.write_bytes(4096);
    let slow_bank = bus::memory_bits_per_s(256, 1, 250e6);
    let edr = 100e9 * 4096.0 / f64::from(Framing::Infiniband.line_bytes(4096, false));
    // The tile is written, computed and read back at the rates of section 4.
    let tile = plan.source.burst.bytes() as f64 / 1e9;
    let baseline_s = tile / 4.8 + tile / 7.2 + tile / 1.2;
    vec![
        check("PCIe 3 x16, line", "3", "GB/s", 16.0, bytes(pcie.line_bits_per_s())),
        check("PCIe 3 x16, writes of 256 bytes", "4", "GB/s", 10.0, bytes(writes))
            .note("published: measured through the backplane's switch; the formula is the bus's limit"),
        check("HBM, 32 banks of 256 bits at 450 MHz", "3", "GB/s", 460.0, bytes(bank) * 32.0),
        check("stencil on one bank, each byte read and written", "4", "GB/s", 7.2, bytes(bank) / 2.0),
        check("writes with HBM at 250 MHz", "4", "GB/s", 7.6, bytes(slow_bank)).note("published: measured"),
        check("reads with HBM at 250 MHz", "4", "GB/s", 7.1, bytes(slow_bank)).note("published: measured"),
        check("InfiniBand EDR, 4096-byte packets", "4, Fig. 3", "GB/s", 12.5, bytes(edr))
            .note("published: \"closely approaches\" the link's 100 Gbit/s"),
        check("4 GB tile: write, stencil, read, in sequence", "4", "s", 4.57, baseline_s)
            .note("from the baseline's 4.8, 7.2 and 1.2 GB/s, each \"around\""),
    ]
}

fn spacefibre(plan: &Plan) -> Vec<Check> {
    let Some(Kind::Spacefibre { lanes, lane_bits_per_s, .. }) = plan.stages.first().map(|stage| stage.kind) else {
        return Vec::new();
    };
    let line = f64::from(lanes) * lane_bits_per_s / 1e9;
    let rate = |both_ways| spacefibre_bits_per_s(lanes, lane_bits_per_s, both_ways) / 1e9;
    let image = 2560.0 * 1440.0 * 4.0;
    vec![
        check("four lanes, signalling", "III", "Gbit/s", 31.25, line),
        check("one way", "Abstract", "Gbit/s", 23.8, rate(false))
            .note("8b/10b, 64 of 66 words, SKIP; the remaining difference is not explained"),
        check("both ways", "Abstract", "Gbit/s", 23.1, rate(true))
            .note("8b/10b, 64 of 68 words, SKIP; the same difference remains"),
        check("both ways, relative to one way", "Abstract", "", 23.1 / 23.8, rate(true) / rate(false)),
        check("256 KB x 8 RDMA writes", "Table II", "Gbit/s", 23.45, rate(false)).note("published: measured"),
        check("256 KB x 8 RDMA reads", "Table IV", "Gbit/s", 23.28, rate(false)).note("published: measured"),
        check("display, 2560 x 1440 at 60 Hz", "IV.A", "Gbit/s", 7.0, image * 8.0 * 60.0 / 1e9),
        check("display, 3840 x 2160 at 30 Hz", "IV.A", "Gbit/s", 7.9, 3840.0 * 2160.0 * 4.0 * 8.0 * 30.0 / 1e9),
        check("images in 8 GB", "IV.A", "", 582.0, (8.0 * GIBI / image).floor()).note("8 x 2^30 bytes"),
        check(
            "display without the 32 rows of statistics",
            "IV.C",
            "Gbit/s",
            6.9,
            2560.0 * 1408.0 * 4.0 * 8.0 * 60.0 / 1e9,
        ),
    ]
}

/// Returns the throughput of Kubálek's DMA module for packets of `bytes` on the line, by formula 1 of the paper:
/// packets arriving at line rate, less those that the module cannot accept.
pub fn dma_throughput_bits_per_s(bytes: u32, line_bits_per_s: f64, word_bytes: u32, clock_hz: f64) -> f64 {
    let module_bytes = bytes + 12; // less 4 bytes of FCS, plus 16 of header
    let arriving = line_bits_per_s / (f64::from(module_bytes) * 8.0);
    let accepted = 1.0 / bus::dma_s(module_bytes, word_bytes, clock_hz);
    measured_throughput(line_bits_per_s, arriving, (arriving - accepted).max(0.0), 0.0)
}

fn dma(plan: &Plan) -> Vec<Check> {
    let Some(Kind::Dma { word_bytes, clock_hz }) = plan.stages.first().map(|stage| stage.kind) else {
        return Vec::new();
    };
    let at = |bytes| dma_throughput_bits_per_s(bytes, 100e9, word_bytes, clock_hz) / 1e9;
    let pcie = Pcie { generation: 3, lanes: 16, max_payload: 256 };
    vec![
        check("bus of the module", "6", "Gbit/s", 102.4, f64::from(word_bytes) * 8.0 * clock_hz / 1e9),
        check("116 bytes on the line, 2 full transactions", "7, Fig. 3", "Gbit/s", 100.0, at(116)),
        check("117 bytes, 3 transactions, the first drop", "7", "Gbit/s", 68.8, at(117)),
        check("180 bytes, 3 full transactions", "7, Fig. 3", "Gbit/s", 100.0, at(180)),
        check(
            "PCIe 3 x16, writes of 256 bytes",
            "2",
            "Gbit/s",
            100.0,
            pcie.data_bits_per_s() * 256.0 / pcie.write_bytes(256) / 1e9,
        )
        .note("91.7 with writes of 64 bytes: the core must merge them"),
    ]
}

fn digitizer(plan: &Plan) -> Vec<Check> {
    let report = plan.report();
    let ms = |name: &str| {
        let stage = report.stages.iter().find(|stage| stage.name == name);
        stage.map_or(0.0, |stage| stage.burst_s * 1e3)
    };
    let bits = plan.source.burst.sample_bits();
    let made_ms = 64.0 * 1024.0 * 1024.0 / (500e6 * 4.0) * 1e3;
    let memory = |transfers: f64| bus::memory_bits_per_s(64, 1, transfers) / 1e9;
    vec![
        check("DMA of 64 MB", "3.4", "ms", 24.7, ms("DMA")),
        check("DPDK of 64 MB", "3.4", "ms", 22.3, ms("DPDK, 40GbE"))
            .note("64 MB x 8 / 23.8 Gbit/s is 21.5; the paper's 22.3 is not explained"),
        check("HDF5 of 64 MB", "3.4", "ms", 29.3, ms("HDF5")),
        check("DMA of 64 MB, hardware counter", "3.4", "ms", 20.1, bits / 25.5e9 * 1e3),
        check("all three in sequence", "3.5", "ms", 76.3, report.sequential_s * 1e3),
        check("slowest stage, pipelined", "3.5", "ms", 29.3, report.pipelined_s * 1e3)
            .note("published: the slowest stage; the pipeline was not implemented"),
        check("acquisition of a block, I and Q at 500 MS/s", "3.5", "ms", 33.7, made_ms)
            .note("MB is 2^20 bytes here, 10^6 in the times above"),
        check("memory, DDR3-1066", "2", "Gbit/s", 68.0, memory(1066.67e6)).note("Table 1 has 64, the text 68"),
        check("memory, DDR4-2133", "Table 1", "Gbit/s", 137.0, memory(2133.33e6)),
        check("memory, DDR3-1600", "Table 2", "Gbit/s", 102.0, memory(1600e6)),
        check("memory, DDR4-2666", "Table 2", "Gbit/s", 171.0, memory(2666.67e6)),
    ]
}
