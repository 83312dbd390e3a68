//! Tests of the simulation against the formulas, and of effects beyond them.

use proptest::prelude::*;
use shotline_plan::Plan;
use shotline_plan::formula::queue::{burst_backlog_bytes, md1_wait_s};
use shotline_plan::papers;
use shotline_plan::sim::{Outcome, simulate};
use shotline_testing::cases;

fn read(text: &str) -> Plan {
    Plan::parse(text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(plan: &Plan, seconds: f64, seed: u64) -> Outcome {
    let outcome = simulate(plan, seconds, seed, &mut |_| ()).unwrap();
    balanced(&outcome);
    outcome
}

fn balanced(outcome: &Outcome) {
    let packets = outcome.packets;
    assert_eq!(packets.generated, packets.delivered + packets.dropped + packets.in_flight, "{outcome:?}");
    assert_eq!(packets.dropped, outcome.drops.iter().map(|drop| drop.packets).sum::<u64>());
}

fn near(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() <= within, "expected {expected}, found {found}");
}

/// Returns a plan with shots of 2000 samples of 96 channels.
fn shots(more: &str, stages: &str) -> Plan {
    let source = "[source]\nchannels = 96\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n";
    read(&format!("{source}{more}\n{stages}"))
}

const LINK: &str = "[[stage]]\nkind = \"link\"\nrate = \"100 Gbit/s\"\n";

#[test]
fn an_underloaded_chain_delivers_every_shot() {
    let plan = shots("links = 2", &format!("{LINK}[[stage]]\nkind = \"pcie\"\ngeneration = 3\nlanes = 16\n"));
    let (outcome, report) = (run(&plan, 0.1, 1), plan.report());
    assert_eq!((outcome.packets.dropped, outcome.bursts.partial, outcome.triggers_missed), (0, 0, 0));
    near(outcome.bursts.generated as f64 / 0.1, report.source.burst_hz * 2.0, 1e-3);
    for (simulated, stage) in outcome.stages.iter().zip(&report.stages[1..]) {
        near(simulated.busy_share, stage.used, 2e-3);
    }
}

#[test]
fn the_shot_rate_follows_the_trigger_formula() {
    for hz in [19_000.0, 19_286.0, 19_290.0, 30_000.0, 38_571.0, 38_575.0, 80_000.0] {
        let plan = shots(&format!("trigger = \"{hz} Hz\""), LINK);
        let (outcome, report) = (run(&plan, 0.5, 1), plan.report());
        near(outcome.bursts.generated as f64 / 0.5, report.source.burst_hz, 1e-3);
        near((outcome.triggers - outcome.triggers_missed) as f64 / 0.5, report.source.burst_hz, 1e-3);
    }
}

#[test]
fn random_triggers_are_missed_at_the_formulas_rate() {
    let plan = shots("trigger = \"15 kHz\"\nspacing = \"random\"", LINK);
    let (outcome, report) = (run(&plan, 10.0, 3), plan.report());
    near(outcome.bursts.generated as f64 / 10.0, report.source.burst_hz, 0.01);
    near(outcome.triggers_missed as f64 / 10.0, report.source.missed_hz, 0.02);
}

#[test]
fn an_overloaded_drive_delivers_its_limit_and_drops_the_rest() {
    let drive = "[[stage]]\nkind = \"drive\"\nrate = \"12 Gbit/s\"\nbuffer = \"8 MiB\"\n";
    for (hz, policy) in [(8000.0, "drop-newest"), (10_000.0, "drop-oldest"), (15_000.0, "block")] {
        let plan = shots(
            &format!("trigger = \"{hz} Hz\"\n[receiver]\npool = \"32 MiB\""),
            &format!("{LINK}{drive}policy = \"{policy}\"\n"),
        );
        let (outcome, report) = (run(&plan, 5.0, 1), plan.report());
        near(outcome.rate.mean_bits_per_s, 12e9, 0.01);
        near(outcome.bursts.dropped as f64 / outcome.bursts.generated as f64, report.dropped_share, 0.03);
        // With `block`, the pool runs out of buffers instead.
        assert_eq!(outcome.drops[0].cause, if policy == "block" { "no_buffer" } else { "sink_busy" });
        assert_eq!(outcome.drops.len(), 1);
    }
}

#[test]
fn several_drives_share_the_work() {
    let drives = "[[stage]]\nkind = \"drive\"\nrate = \"12 Gbit/s\"\ncount = 4\n";
    let plan = shots("trigger = \"15 kHz\"", &format!("{LINK}{drives}"));
    let (outcome, report) = (run(&plan, 0.5, 1), plan.report());
    assert_eq!(outcome.packets.dropped, 0);
    near(outcome.stages.last().unwrap().busy_share, report.stages.last().unwrap().used, 0.01);
}

#[test]
fn random_packets_wait_as_long_as_md1_predicts() {
    for load in [0.3, 0.6, 0.8] {
        let gbit = 10.0 * load;
        let plan = read(&format!(
            "[transfer]\nbytes = \"4096 B\"\nrate = \"{gbit} Gbit/s\"\nspacing = \"random\"\n\
             [[stage]]\nkind = \"memory\"\nrate = \"10 Gbit/s\"\npasses = 1\n"
        ));
        let outcome = run(&plan, 1.0, 7);
        let service = 4096.0 * 8.0 / 10e9;
        near(outcome.packet_latency.mean_s, service + md1_wait_s(service, load), 0.03);
        assert_eq!(outcome.packets.dropped, 0);
    }
}

#[test]
fn paper_3_module_delivers_68_8_of_100_gbit() {
    let plan = read(papers::plan(3).unwrap());
    let outcome = run(&plan, 0.01, 1);
    near(outcome.rate.mean_bits_per_s, 68.8e9, 1e-3);
    near(outcome.packets.dropped as f64 / outcome.packets.generated as f64, plan.report().dropped_share, 1e-3);
    assert_eq!((outcome.drops[0].stage.as_str(), outcome.drops[0].cause), ("DMA module", "wire_gap"));
}

#[test]
fn paper_4_loses_blocks_only_without_a_pipeline() {
    let text = papers::plan(4).unwrap();
    let sequence = run(&read(text), 30.0, 1);
    let pipeline = run(&read(&text.replace("pipelined = false", "pipelined = true")), 30.0, 1);
    near(sequence.rate.mean_bits_per_s, 64e6 * 8.0 / 75.4e-3, 0.02);
    assert!(sequence.bursts.dropped > 300 && pipeline.bursts.dropped == 0);
    near(pipeline.rate.mean_bits_per_s, 64e6 * 8.0 / 33.7e-3, 0.01);
}

/// Returns a plan with eight probes on a switch with a mean load of 70 %.
fn switched(phase: &str, buffer: &str) -> Plan {
    read(&format!(
        "[source]\nprobes = 8\nchannels = 32\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n\
         trigger = \"11 kHz\"\nphase = \"{phase}\"\n{LINK}\
         [[stage]]\nkind = \"switch\"\nrate = \"100 Gbit/s\"\nbuffer = \"{buffer}\"\n"
    ))
}

#[test]
fn synchronised_bursts_overflow_an_underloaded_switch() {
    let plan = switched("synchronised", "512 KiB");
    let (report, outcome) = (plan.report(), run(&plan, 0.1, 1));
    let switch = &report.stages[2];
    assert!(switch.used < 0.75 && report.dropped_share == 0.0);
    assert!(report.warnings.iter().any(|warning| warning.contains("send at once")), "{:?}", report.warnings);
    assert!(outcome.packets.dropped > outcome.packets.generated / 10 && outcome.bursts.partial > 0, "{outcome:?}");
    assert_eq!(outcome.drops[0].stage, "switch");
}

#[test]
fn a_buffer_sized_by_the_burst_formula_drops_nothing() {
    let plan = switched("synchronised", "100 MiB");
    let (report, outcome) = (plan.report(), run(&plan, 0.1, 1));
    assert_eq!(outcome.packets.dropped, 0);
    let waiting = outcome.stages[1].high_water_bytes as f64;
    let formula = burst_backlog_bytes(8.0, 96_064.0, 1.0, 1.0);
    near(report.stages[2].backlog_bytes, formula, 1e-9);
    assert!((waiting - formula).abs() <= 8.0 * 4096.0, "found {waiting}, formula {formula}");
    assert!(run(&switched("synchronised", "700 KiB"), 0.1, 1).packets.dropped == 0);
}

#[test]
fn unsynchronised_probes_need_a_smaller_buffer() {
    let high_water = |phase| run(&switched(phase, "100 MiB"), 0.1, 5).stages[1].high_water_bytes;
    assert!(high_water("random") < high_water("synchronised") / 2);
}

#[test]
fn ports_of_a_switch_share_its_buffer() {
    let plan = |ports| {
        read(&format!(
            "[source]\nprobes = 8\nchannels = 32\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n\
             trigger = \"5 kHz\"\n[receiver]\ncount = 2\n{LINK}\
             [[stage]]\nkind = \"switch\"\nrate = \"100 Gbit/s\"\nbuffer = \"400 KiB\"\nports = {ports}\n"
        ))
    };
    // Three of four bursts wait at each port, 288 kB: the buffer has space for those of one port, but not of two.
    assert_eq!(run(&plan(1), 0.05, 1).packets.dropped, 0);
    assert!(run(&plan(2), 0.05, 1).packets.dropped > 0);
}

#[test]
fn the_planned_pool_bridges_a_drives_stalls() {
    let drive = "[[stage]]\nkind = \"drive\"\nrate = \"20 Gbit/s\"\nstall = \"200 ms\"\nstall_every = \"2 s\"\n";
    let plan = |pool: &str| shots(&format!("trigger = \"5 kHz\"\n[receiver]\n{pool}"), &format!("{LINK}{drive}"));
    let planned = run(&plan(""), 10.0, 2);
    assert_eq!(planned.packets.dropped, 0);
    near(planned.stages[2].busy_share, plan("").report().stages[2].used, 0.01);
    assert!(planned.pool_high_water_slots > 900 && planned.pool_high_water_slots <= planned.pool_slots);
    let small = run(&plan("pool = \"128 MiB\""), 10.0, 2);
    assert_eq!((small.drops[0].cause, small.pool_high_water_slots), ("no_buffer", small.pool_slots));
    assert!(plan("pool = \"128 MiB\"").report().warnings.iter().any(|warning| warning.contains("the pool has")));
}

#[test]
fn fluctuating_service_drops_shots_below_the_mean_limit() {
    let text = include_str!("../../../../examples/plans/paper0-drive.toml");
    let (plan, seed) = (read(text), 11);
    assert!(plan.report().dropped_share == 0.0);
    let outcome = run(&plan, 10.0, seed);
    assert_eq!(outcome.drops[0].cause, "sink_busy");
    assert!(outcome.burst_latency.p99_s > 2.0 * outcome.burst_latency.p50_s);
}

#[test]
fn the_planned_receive_buffer_bridges_preemption() {
    let receive = |buffer: u32| {
        format!(
            "{LINK}[[stage]]\nkind = \"receive\"\npacket_time = \"760 ns\"\nstall = \"20 ms\"\nstall_every = \"1 s\"\n\
             buffer = \"{buffer} B\"\n"
        )
    };
    let plan = |buffer| shots("trigger = \"4 kHz\"", &receive(buffer));
    let planned = plan(1).report().receive_buffer_bytes.unwrap() as u32;
    assert_eq!(run(&plan(planned), 3.0, 1).packets.dropped, 0);
    assert!(run(&plan(planned / 2), 3.0, 1).packets.dropped > 0);
}

#[test]
fn a_link_slower_than_its_probe_makes_the_probe_overrun() {
    let link = "[[stage]]\nkind = \"link\"\nrate = \"25 Gbit/s\"\n";
    let plan = shots("", link);
    let (outcome, report) = (run(&plan, 0.5, 1), plan.report());
    assert_eq!(outcome.drops[0].cause, "overrun");
    near(outcome.packets.dropped as f64 / outcome.packets.generated as f64, report.dropped_share, 0.01);
}

#[test]
fn hundreds_of_receivers_match_the_formulas() {
    let text = "[source]\nprobes = 400\nchannels = 8\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 1000\n\
                trigger = \"1 kHz\"\nphase = \"random\"\n[receiver]\ncount = 200\n";
    let stages = "[[stage]]\nkind = \"switch\"\nrate = \"25 Gbit/s\"\n[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\n";
    let plan = read(&format!("{text}{LINK}{stages}"));
    let outcome = run(&plan, 0.1, 4);
    assert_eq!(outcome.packets.dropped, 0);
    assert_eq!(outcome.triggers, 40_000);
    near(outcome.stages[3].busy_share, plan.report().stages[3].used, 0.02);
}

#[test]
fn runs_are_determined_by_their_seed() {
    let plan = read(include_str!("../../../../examples/plans/paper0-drive.toml"));
    assert_eq!(run(&plan, 0.5, 9), run(&plan, 0.5, 9));
    assert_ne!(run(&plan, 0.5, 9).burst_latency, run(&plan, 0.5, 10).burst_latency);
}

#[test]
fn invalid_durations_are_refused() {
    let plan = shots("", LINK);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
        assert!(simulate(&plan, seconds, 1, &mut |_| ()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn every_packet_is_accounted_for(
        seed: u64,
        (probes, links, receivers) in (1_u32..6, 1_u32..4, 1_u32..4),
        samples in 16_u32..1500,
        hz in 100.0_f64..60_000.0,
        (random, synchronised) in (any::<bool>(), any::<bool>()),
        (link, switch, drive) in (1.0_f64..50.0, 1.0_f64..50.0, 0.1_f64..30.0),
        (buffer, pool, queue) in (4096_u32..500_000, 1_u32..20_000_000, 1_u32..2_000_000),
        (policy, packet_policy) in (0_usize..3, 0_usize..2),
        (ports, drives, pcies) in (1_u32..4, 1_u32..4, 1_u32..3),
        (spread, stall) in (0.0_f64..1.0, 1_u32..9),
        milliseconds in 0.5_f64..10.0,
    ) {
        let spacing = if random { "random" } else { "even" };
        let phase = if synchronised { "synchronised" } else { "random" };
        let policies = ["drop-newest", "block", "drop-oldest"];
        let (policy, packet_policy) = (policies[policy], policies[packet_policy]);
        let plan = read(&format!(
            "[source]\nprobes = {probes}\nlinks = {links}\nchannels = 16\nbits = 12\nsample_rate = \"40 MS/s\"\n\
             samples = {samples}\ntrigger = \"{hz} Hz\"\nspacing = \"{spacing}\"\nphase = \"{phase}\"\n\
             [receiver]\ncount = {receivers}\npool = \"{pool} B\"\n\
             [[stage]]\nkind = \"link\"\nrate = \"{link} Gbit/s\"\n\
             [[stage]]\nkind = \"switch\"\nrate = \"{switch} Gbit/s\"\nbuffer = \"{buffer} B\"\nports = {ports}\n\
             policy = \"{packet_policy}\"\n\
             [[stage]]\nkind = \"pcie\"\ngeneration = 1\nlanes = 4\ncount = {pcies}\nstall = \"{stall} us\"\n\
             stall_every = \"10 us\"\nbuffer = \"{buffer} B\"\n\
             [[stage]]\nkind = \"accelerator\"\nrate = \"{link} Gbit/s\"\n\
             [[stage]]\nkind = \"drive\"\nrate = \"{drive} Gbit/s\"\ncount = {drives}\nspread = {spread}\n\
             buffer = \"{queue} B\"\npolicy = \"{policy}\"\n"
        ));
        let outcome = simulate(&plan, milliseconds / 1e3, seed, &mut |_| ()).unwrap();
        balanced(&outcome);
        let bursts = outcome.bursts;
        prop_assert_eq!(
            bursts.generated,
            bursts.complete + bursts.partial + bursts.dropped + bursts.lost + bursts.in_flight
        );
        prop_assert!(outcome.pool_high_water_slots <= outcome.pool_slots);
    }
}
