//! Tests of the model of the packet card with its distributor. Each frame is compared in memory by the model's MAC.

use shotline_plan::pcie::Link;
use shotline_random::SplitMix64;
use shotline_rtl::card::{Receiver, Setup};

type Result = std::result::Result<(), String>;

const SETUP: Setup = Setup {
    gbps: 100.0,
    channels: 5,
    buffer: 2048,
    header: 0,
    max_length: 9216,
    start_ns: 1 << 60,
    link: None,
    seed: 1,
};

/// Returns a frame with an IPv4 header and random addresses.
fn frame(length: usize, random: &mut SplitMix64) -> Vec<u8> {
    let mut frame = vec![0; length];
    random.fill_bytes(&mut frame);
    let head = [8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    let end = length.min(26);
    frame[12.min(end)..end].copy_from_slice(&head[..end.saturating_sub(12)]);
    frame
}

#[test]
fn frames_of_all_lengths_arrive_at_line_rate() -> Result {
    let link = Some(Link::default());
    for (channels, buffer, header, link) in
        [(5, 2048, 0, None), (1, 2048, 0, None), (16, 256, 64, None), (5, 2048, 0, link), (16, 256, 64, link)]
    {
        let mut receiver = Receiver::new(&Setup { channels, buffer, header, link, ..SETUP })?;
        let mut random = SplitMix64::new(1);
        let lengths = (0..600).map(|n| 64 + n % 70).chain((0..40).map(|n| 64 + n * 97 % 1500)).chain([9000, 9216]);
        let mut sent = Vec::new();
        for length in lengths {
            sent.push(frame(length, &mut random));
            receiver.send(sent[sent.len() - 1].clone(), 0)?;
        }
        let outcome = receiver.finish()?;
        assert_eq!(outcome.distributed.delivered, sent.len() as u64, "{outcome:?}");
        let mut found = receiver.found().collect::<Vec<_>>();
        found.sort_by_key(|found| found.time_ns);
        assert!(found[0].time_ns - SETUP.start_ns < 30, "{}", found[0].time_ns - SETUP.start_ns);
        let late = outcome.channels.iter().map(|counters| counters.late.packets).collect::<Vec<_>>();
        assert_eq!(found.len(), sent.len(), "{channels} channels, late: {late:?}");
        assert!(found.iter().map(|found| &found.frame[..]).eq(sent.iter().map(|frame| &frame[..frame.len() - 4])));
        assert_eq!(outcome.channels.iter().filter(|counters| counters.received.packets > 0).count(), channels);
    }
    Ok(())
}

#[test]
fn each_lost_frame_is_counted_once() -> Result {
    let mut receiver = Receiver::new(&Setup { gbps: 200.0, channels: 256, max_length: 2000, ..SETUP })?;
    let mut random = SplitMix64::new(2);
    for number in 0..700 {
        let length = if number % 50 == 0 { 63 + number % 4 * 1000 } else { 700 };
        receiver.send(frame(length, &mut random), 0)?;
    }
    let outcome = receiver.finish()?;
    let found = receiver.found().count() as u64;
    let dropped = outcome.distributed;
    assert!(dropped.overflow > 100 && dropped.giant > 0 && dropped.runt > 0, "{dropped:?}");
    assert_eq!((outcome.frames, dropped.delivered), (700, found));
    Ok(())
}

#[test]
fn drops_that_take_long_to_decide_are_waited_for() -> Result {
    // More descriptors than the card holds: it counts 256 of them, a clock each, before it drops a packet.
    let mut receiver = Receiver::new(&Setup { channels: 1, buffer: 8, header: 64, ..SETUP })?;
    let mut random = SplitMix64::new(4);
    for _ in 0..50 {
        receiver.send(frame(1518, &mut random), 0)?;
    }
    let outcome = receiver.finish()?;
    assert_eq!(outcome.channels[0].late.packets, 50, "{outcome:?}");
    Ok(())
}

#[test]
fn idle_time_is_in_the_time_stamps_and_not_simulated() -> Result {
    let mut receiver = Receiver::new(&SETUP)?;
    let mut random = SplitMix64::new(3);
    for at_ns in [0, 0, 50_000, 36_000_000_000_000] {
        receiver.send(frame(100, &mut random), at_ns)?;
    }
    receiver.finish()?;
    let mut times = receiver.found().map(|found| found.time_ns - SETUP.start_ns).collect::<Vec<_>>();
    times.sort_unstable();
    assert!(times[1] < 40 && (50_000..50_020).contains(&times[2]), "{times:?}");
    assert!((36_000_000_000_000..36_000_000_000_020).contains(&times[3]), "{times:?}");
    assert!(receiver.clocks() < 100_000 && receiver.seconds() > 36_000.0);
    Ok(())
}
