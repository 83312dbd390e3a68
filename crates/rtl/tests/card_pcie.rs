//! Tests of the packet card behind a PCIe link: each request on its stream and each byte in memory is checked.

use shotline_plan::pcie::{Generation, Link};
use shotline_rtl::card::load::{Load, Measurement};
use shotline_rtl::card::{Card, Cause, ReadFaults, Settings, State, soak};
use shotline_testing::seeds;

type Result = std::result::Result<(), String>;

fn link(generation: Generation, lanes: u32, max_payload: u32) -> Link {
    Link { generation, lanes, max_payload, ..Link::default() }
}

#[test]
fn the_link_and_its_stream_limit_the_card_and_nothing_else() -> Result {
    // Behind gen 3 x16 the link limits 64, the requester stream 69 and 101, the words of the module 117 and 1518.
    for (link, header) in [
        (link(Generation::Three, 16, 256), 0),
        (link(Generation::Four, 8, 512), 0),
        (link(Generation::Three, 16, 256), 64),
        (link(Generation::Three, 4, 128), 0),
    ] {
        let mut measurement = Measurement::new(Load { channels: 16, header, ..Load::default() }.behind(link), 1)?;
        for length in [64, 69, 76, 101, 117, 245, 1518] {
            let passed = measurement.passed(length)?;
            let share = passed.rate / passed.limit;
            assert!((0.99..1.01).contains(&share), "{link:?}, header {header}, {length} bytes: {share}: {passed:?}");
        }
        measurement.finish()?;
    }
    Ok(())
}

#[test]
fn channels_behind_a_link_balance_under_load_and_faults() -> Result {
    let mut sum = soak::Summary::default();
    for seed in seeds(0..2) {
        sum += soak::run_behind(&Link::default(), seed, 60_000)?;
    }
    assert!(sum.counters.received.packets > 1000 && sum.reports > 50 && sum.interrupts > 0, "{sum:?}");
    Ok(())
}

#[test]
fn a_failed_completion_on_the_stream_stops_only_its_channel() -> Result {
    let mut card = Card::behind(&Link::default(), 1)?;
    let settings = Settings { ring_log2: 7, report_time: 1, ..Settings::default() };
    card.host.fail_reads(1, ReadFaults { error: u16::MAX, ..ReadFaults::default() });
    for channel in 0..3 {
        card.start(channel, settings, 1)?;
        card.give(channel, 128)?;
    }
    card.wait_for(1, State::Stopped)?;
    assert_eq!(card.finish(1)?, Some(Cause::Completion));
    (0..90).for_each(|index| card.send(index % 3, 64 + index as u16));
    card.drain()?;
    card.run(1000)?;
    for channel in 0..3 {
        let counters = card.balance(channel)?;
        let (received, stopped) = (counters.received.packets, counters.stopped.packets);
        assert_eq!((received, stopped), if channel == 1 { (0, 30) } else { (30, 0) }, "channel {channel}");
    }
    Ok(())
}

#[test]
fn a_card_behind_a_link_works_again_after_a_reset_under_load() -> Result {
    let settings = Settings { ring_log2: 7, report_time: 1, ..Settings::default() };
    let mut card = Card::behind(&Link::default(), 1)?;
    for run in 0..3 {
        for channel in 0..4 {
            card.start(channel, settings, run)?;
            card.give(channel, 128)?;
        }
        card.run(1000)?; // until descriptors are there
        (0..100).for_each(|index| card.send(index % 4, 1000 + index as u16));
        card.run(120)?;
        if run < 2 {
            card = card.reset(run.into());
            card.wait_until_ready()?;
        }
    }
    card.drain()?;
    card.run(1000)?;
    for channel in 0..4 {
        assert_eq!(card.balance(channel)?.received.packets, 25, "channel {channel}");
    }
    Ok(())
}
