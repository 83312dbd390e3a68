//! Tests of the model of the packet card's DMA module. Each byte and each report is checked by the model's host.

use shotline_rtl::card::load::{Load, Measurement, wire_clocks};
use shotline_rtl::card::{
    Card, Cause, Counters, Defect, ReadFaults, Settings, Size, Source as _, State, Tally, channel_register, soak,
};
use shotline_rtl::registers::{card, card_channel as register};
use shotline_testing::seeds;
use std::ops::Range;

type Result = std::result::Result<(), String>;

/// Starts channels and gives each all descriptors of its ring.
fn started(size: Size, channels: Range<usize>, settings: Settings) -> std::result::Result<Card, String> {
    let mut card = Card::new(size, 1)?;
    for channel in channels {
        card.start(channel, settings, channel as u8)?;
        card.give(channel, 1 << settings.ring_log2)?;
        card.wait_for(channel, State::Running)?;
    }
    card.drain()?;
    Ok(card)
}

/// Runs until all packets are reported.
fn finish_reports(card: &mut Card, settings: Settings) -> Result {
    card.drain()?;
    card.run(256 * (2 + u64::from(settings.report_time)))
}

#[test]
fn every_length_arrives_whole_with_8_and_256_channels() -> Result {
    let lengths = (1..=700).chain((701..=16_383).step_by(97)).chain([4095, 4096, 4097, 16_383]);
    for (size, buffer, header) in [(Size::Small, 16_376, 0), (Size::Small, 16_376, 128), (Size::Full, 2048, 40)] {
        let settings = Settings { ring_log2: 11, buffer, header, report_time: 1, ..Settings::default() };
        let channels = size.channels();
        let mut card = started(size, 0..channels, settings)?;
        card.host.delay_reads(1..=5, 0);
        card.feeder.idle = 0x8000;
        for (index, length) in lengths.clone().enumerate() {
            card.send(index * 5 % channels, length);
            card.feeder.max_gap = (index % 10) as u8;
            while card.feeder.waiting() > 0 {
                card.tick()?;
            }
        }
        finish_reports(&mut card, settings)?;
        for channel in 0..channels {
            let counters = card.balance(channel)?;
            let sent = card.channel(channel).expected.sent;
            assert_eq!(counters.received, sent, "{size:?}, channel {channel}: {counters}");
        }
        assert_eq!(card.host.excess(), 0, "{size:?}");
    }
    Ok(())
}

/// Seeds of every test run, which together reach all causes; other seeds may miss some.
const SEEDS: Range<u64> = 0..8;

#[test]
fn channels_balance_under_load_starts_stops_and_faults() -> Result {
    let mut sum = soak::Summary::default();
    let mut done = Vec::new();
    for seed in seeds(SEEDS) {
        let size = if seed % 4 == 3 { Size::Full } else { Size::Small };
        sum += soak::run(seed, 60_000, size)?;
        done.push(seed);
    }
    if done.iter().copied().eq(SEEDS) {
        assert!(sum.stops.iter().all(|&count| count > 0), "{sum:?}");
        let Counters { received, stopped, no_descriptor, late } = sum.counters;
        assert!([received, stopped, no_descriptor, late].iter().all(|tally| tally.packets > 50), "{sum:?}");
        assert!(sum.reports > 100 && sum.interrupts > 10 && sum.strays > 0, "{sum:?}");
    }
    Ok(())
}

/// The channel with a fault.
const VICTIM: usize = 3;
/// Packets for each channel.
const PACKETS: u64 = 60;

/// Lets one channel fail while all receive packets, and checks that it stops for this cause and no other does.
fn only_the_victim_stops(cause: Cause, fail: impl Fn(&mut Card) -> Result) -> Result {
    let settings = Settings { ring_log2: 7, report_time: 1, ..Settings::default() };
    let mut card = started(Size::Small, 0..VICTIM, settings)?;
    for channel in VICTIM + 1..8 {
        card.start(channel, settings, 7)?;
        card.give(channel, 128)?;
    }
    card.write(card::READ_TIMEOUT, 2)?;
    card.start(VICTIM, settings, 9)?;
    fail(&mut card)?;
    card.host.delay_reads(1..=20, 0);
    card.drain()?;
    card.feeder.idle = 0xE000;
    for index in 0..8 * PACKETS {
        card.send(index as usize % 8, 64 + index as u16);
    }
    finish_reports(&mut card, settings)?;
    card.wait_for(VICTIM, State::Stopped)?;
    assert_eq!(card.finish(VICTIM)?, Some(cause));
    card.balance(VICTIM)?;
    for channel in (0..8).filter(|&channel| channel != VICTIM) {
        assert_eq!(card.state(channel)?, (State::Running, None), "{cause:?}, channel {channel}");
        let counters = card.balance(channel)?;
        assert_eq!(counters.received.packets, PACKETS, "{cause:?}, channel {channel}: {counters}");
    }
    // It starts again, with the same ring.
    card.host.fail_reads(VICTIM, ReadFaults::default());
    card.start(VICTIM, settings, 10)?;
    card.give(VICTIM, 128)?;
    card.drain()?;
    let before = card.channel(VICTIM).expected.received.packets;
    (0..100).for_each(|length| card.send(VICTIM, length + 1));
    card.run(20_000)?;
    finish_reports(&mut card, settings)?;
    assert_eq!(card.balance(VICTIM)?.received.packets, before + 100, "{cause:?}");
    Ok(())
}

#[test]
fn a_refused_write_stops_only_its_channel() -> Result {
    only_the_victim_stops(Cause::Refused, |card| {
        card.prepare(VICTIM, 5, Some(Defect::Refused));
        card.give(VICTIM, 128).map(drop)
    })
}

#[test]
fn wrong_descriptors_stop_only_their_channel() -> Result {
    for defect in Defect::ALL.into_iter().filter(|&defect| defect != Defect::Refused) {
        only_the_victim_stops(Cause::Descriptor, |card| {
            card.prepare(VICTIM, 21, Some(defect));
            card.give(VICTIM, 128).map(drop)
        })
        .map_err(|error| format!("{defect:?}: {error}"))?;
    }
    Ok(())
}

#[test]
fn completions_that_never_come_stop_only_their_channel() -> Result {
    only_the_victim_stops(Cause::Timeout, |card| {
        card.host.fail_reads(VICTIM, ReadFaults { never: u16::MAX, ..ReadFaults::default() });
        card.give(VICTIM, 128).map(drop)
    })
}

#[test]
fn completions_with_an_error_stop_only_their_channel() -> Result {
    only_the_victim_stops(Cause::Completion, |card| {
        card.host.fail_reads(VICTIM, ReadFaults { error: u16::MAX, ..ReadFaults::default() });
        card.give(VICTIM, 128).map(drop)
    })
}

#[test]
fn packets_longer_than_all_descriptors_are_dropped_whole() -> Result {
    // 16 buffers of 64 bytes.
    let settings = Settings { ring_log2: 4, buffer: 64, report_time: 1, ..Settings::default() };
    let mut card = started(Size::Small, 0..1, settings)?;
    for length in [1025, 1024, 1] {
        card.send(0, length);
    }
    finish_reports(&mut card, settings)?;
    let tally = |packets, bytes| Tally { packets, bytes };
    let expected = Counters { received: tally(1, 1024), no_descriptor: tally(2, 1026), ..Counters::default() };
    assert_eq!(card.balance(0)?, expected);
    // More descriptors than the module holds for a channel.
    let settings = Settings { ring_log2: 6, ..settings };
    let mut card = started(Size::Small, 0..1, settings)?;
    card.send(0, 33 * 64);
    card.send(0, 32 * 64);
    card.send(1, 77);
    finish_reports(&mut card, settings)?;
    let expected = Counters { received: tally(1, 2048), late: tally(1, 2112), ..Counters::default() };
    assert_eq!(card.balance(0)?, expected);
    assert_eq!(card.balance(1)?, Counters { stopped: tally(1, 77), ..Counters::default() });
    Ok(())
}

#[test]
fn two_buffers_take_header_and_payload() -> Result {
    let settings = Settings { ring_log2: 4, buffer: 256, header: 64, report_time: 1, ..Settings::default() };
    let mut card = started(Size::Small, 2..3, settings)?;
    card.feeder.max_gap = 7;
    card.send(2, 400);
    card.send(2, 64);
    card.send(2, 65);
    finish_reports(&mut card, settings)?;
    // Without the layout that the model expects: bytes of each buffer that are not the pattern of unused memory.
    let ring = card.channel(2).ring();
    let lengths = (0..10).map(|index| {
        let address = card.host.memory.read_u64(ring + 16 * index);
        let mut bytes = [0; 256];
        card.host.memory.read(address, &mut bytes[..if index % 2 == 0 { 64 } else { 256 }]);
        bytes.iter().rposition(|&byte| byte != 0xA5 && byte != 0).map_or(0, |last| last + 1)
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [64, 256, 0, 80, 64, 0, 64, 1, 0, 0]);
    assert_eq!(card.channel(2).used, 8);
    assert_eq!(card.balance(2)?.received, Tally { packets: 3, bytes: 529 });
    Ok(())
}

#[test]
fn a_reset_under_load_ends_all_writes() -> Result {
    let settings = Settings { ring_log2: 8, report_count: 1, report_time: 1, ..Settings::default() };
    let mut card = started(Size::Small, 0..8, settings)?;
    for clocks in 60..80 {
        (0..400).for_each(|index| card.send(index % 8, 300));
        card.run(clocks)?;
        card = card.reset(clocks);
        (0..80).for_each(|index| card.send(index % 8, 300));
        card.wait_until_ready()?;
        card.drain()?;
        let counters = card.balance(5)?;
        assert_eq!(counters.stopped.packets, 10, "{counters}");
        for channel in 0..8 {
            assert_eq!(card.state(channel)?, (State::Stopped, None));
            card.start(channel, settings, 1)?;
            card.give(channel, 256)?;
        }
        card.drain()?;
    }
    card.send(5, 300);
    finish_reports(&mut card, settings)?;
    assert_eq!(card.balance(5)?.received.packets, 1);
    Ok(())
}

#[test]
fn reports_come_after_count_or_time() -> Result {
    let settings =
        Settings { ring_log2: 6, report_count: 4, report_time: 200, interrupt: Some(20), ..Settings::default() };
    let mut card = started(Size::Small, 0..1, settings)?;
    for (sent, used, reports) in [(3, 0, 0), (1, 4, 1), (3, 4, 1), (1, 8, 2)] {
        (0..sent).for_each(|_| card.send(0, 100));
        card.drain()?;
        assert_eq!((card.channel(0).used, card.channel(0).reports), (used, reports));
    }
    // Both reports within the interval have one interrupt at once and one at its end.
    assert_eq!(card.channel(0).interrupts, 1);
    card.run(256 * 22)?;
    assert_eq!(card.channel(0).interrupts, 2);
    // Without the count.
    let time = 5;
    card.write_channel(0, register::REPORT, time << register::REPORT_TIME_LSB)?;
    (0..20).for_each(|_| card.send(0, 100));
    let begin = card.clock();
    while card.channel(0).used == 8 {
        card.tick()?;
    }
    let after = card.clock() - begin;
    assert!((256 * (time - 1)..256 * (time + 2)).contains(&(after as u32)), "{after}");
    assert_eq!((card.channel(0).used, card.channel(0).reports), (28, 3));
    // A stop reports at once.
    card.send(0, 100);
    card.drain()?;
    card.stop(0)?;
    card.wait_for(0, State::Stopped)?;
    assert_eq!((card.finish(0)?, card.channel(0).used), (None, 29));
    Ok(())
}

#[test]
fn reports_of_busy_channels_leave_none_out() -> Result {
    let settings = Settings { ring_log2: 12, report_count: 1, report_time: 0, ..Settings::default() };
    let channels = 10..20;
    let mut card = started(Size::Full, channels.clone(), settings)?;
    // In each turn of the reports, 256 clocks, every channel has used descriptors.
    let begin = card.clock();
    for index in 0..3000 {
        card.send_at(begin + 4 * index, 10 + index as usize % 10, 64);
    }
    while !card.feeder.is_empty() {
        card.run(3000)?;
        let used = channels.clone().map(|channel| card.channel(channel).used).collect::<Vec<_>>();
        let sent = (card.clock() - begin).min(4 * 3000) / 40;
        assert!(used.iter().all(|&used| used + 100 > sent), "{used:?} descriptors reported of {sent} used");
    }
    Ok(())
}

#[test]
fn packets_of_all_lengths_arrive_at_line_rate() -> Result {
    let lengths = [64, 65, 68, 76, 84, 100, 116, 117, 128, 180, 244, 245, 256, 500, 1518, 2036, 2037, 4000, 9018];
    for load in [Load { channels: 1, ..Load::default() }, Load { channels: 8, header: 128, ..Load::default() }] {
        let mut measurement = Measurement::new(load, 1)?;
        for length in lengths {
            let arrival = measurement.arrive(&vec![length; (20_000 / usize::from(length)).max(8)])?;
            assert!(arrival.lost == 0 && arrival.waiting <= 4, "{load:?}, {length} bytes: {arrival:?}");
        }
        // Short packets wait for long ones.
        let mixed = (0..200).map(|index| lengths[index * 7 % lengths.len()]).collect::<Vec<_>>();
        assert_eq!(measurement.arrive(&mixed)?.lost, 0, "{load:?}");
        measurement.finish()?;
    }
    assert_eq!(wire_clocks(1230), 20.0);
    Ok(())
}

#[test]
fn one_transaction_a_clock_is_slower_than_the_line() -> Result {
    for (single, expected) in [(false, 1.0..1.1), (true, 0.68..0.75)] {
        let mut measurement = Measurement::new(Load { channels: 16, single, ..Load::default() }, 1)?;
        // A packet of 129 bytes.
        let rate = measurement.rate(117)?;
        assert!(rate.lost == 0 && expected.contains(&rate.rate), "{rate:?}");
    }
    Ok(())
}

#[test]
fn registers_read_back_and_missing_ones_are_refused() -> Result {
    let mut card = Card::new(Size::Small, 2)?;
    assert_eq!((card.read(card::ID)?, card.read(card::VERSION)?), (card::ID_RESET, 1));
    let parameters = card.read(card::PARAMETERS)?;
    assert_eq!(parameters, 3 << card::PARAMETERS_BLOCKS_LOG2_LSB | 2 << card::PARAMETERS_TAGS_LOG2_LSB | 5 << 4 | 3);
    let channel = 7;
    for (address, value) in [
        (register::RING_LOW, 0xABCD_E000),
        (register::RING_HIGH, 0x1234_5678),
        (register::RING, 15),
        (register::BUFFER, 0x00F8_3FF8),
        (register::REPORT_LOW, 0xFFFF_FFF8),
        (register::REPORT_HIGH, 0x8765_4321),
        (register::REPORT, 0x1111_2222),
        (register::INTERRUPT, 0x8000_3333),
        (register::SOFTWARE_POINTER, 0x4444),
    ] {
        card.write_channel(channel, address, value)?;
        assert_eq!(card.read_channel(channel, address)?, value, "{address:#x}");
    }
    for (address, value) in [(register::RING_LOW, 0x800), (register::REPORT_LOW, 4), (register::HARDWARE_POINTER, 0)] {
        assert!(!card.try_write(channel_register(address, channel), value)?, "{address:#x}");
    }
    assert!(!card.try_write(card::ID, 0)?);
    assert!(!card.try_write(channel_register(register::CONTROL, 8), 1)?);
    assert_eq!(card.read_channel(8, register::RING)?, 0);
    Ok(())
}
