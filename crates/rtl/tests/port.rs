//! Tests of the model of the packet card with its distributor. Each frame is compared in memory by the model's MAC.

use shotline_plan::pcie::Link;
use shotline_random::SplitMix64;
use shotline_rtl::card::{Receiver, Setup};
use shotline_wire::crc::crc32;

type Result = std::result::Result<(), String>;

const SETUP: Setup = Setup {
    gbps: 100.0,
    channels: 5,
    buffer: 2048,
    header: 0,
    pad: false,
    max_length: 9216,
    start_ns: 1 << 60,
    link: None,
    seed: 1,
};

/// Returns a frame with FCS, an IPv4 header and random addresses.
fn frame(length: usize, random: &mut SplitMix64) -> Vec<u8> {
    let mut frame = vec![0; length];
    random.fill_bytes(&mut frame);
    let head = [8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    let end = length.min(26);
    frame[12.min(end)..end].copy_from_slice(&head[..end.saturating_sub(12)]);
    let (front, fcs) = frame.split_at_mut(length - 4);
    fcs.copy_from_slice(&crc32(front).to_le_bytes());
    frame
}

/// Sends frames of these lengths back to back, which must all be delivered, and compares what is found.
fn all_arrive(setup: &Setup, lengths: impl Iterator<Item = usize>) -> Result {
    let mut receiver = Receiver::new(setup)?;
    let mut random = SplitMix64::new(1);
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
    assert_eq!(found.len(), sent.len(), "{} channels, late: {late:?}", setup.channels);
    assert!(found.iter().map(|found| &found.frame[..]).eq(sent.iter().map(|frame| &frame[..frame.len() - 4])));
    let used = outcome.channels.iter().filter(|counters| counters.received.packets > 0).count();
    assert!(10 * used >= 9 * setup.channels, "{used} of {} channels", setup.channels);
    Ok(())
}

#[test]
fn frames_of_all_lengths_arrive_at_line_rate() -> Result {
    let link = Some(Link::default());
    for (channels, buffer, header, link) in
        [(5, 2048, 0, None), (1, 2048, 0, None), (16, 256, 64, None), (5, 2048, 0, link), (16, 256, 64, link)]
    {
        let lengths = (0..600).map(|n| 64 + n % 70).chain((0..40).map(|n| 64 + n * 97 % 1500)).chain([9000, 9216]);
        all_arrive(&Setup { channels, buffer, header, link, ..SETUP }, lengths)?;
    }
    Ok(())
}

#[test]
fn padded_frames_of_all_lengths_arrive_at_line_rate() -> Result {
    let link = Some(Link::default());
    for (channels, buffer, header, link) in [(16, 2048, 80, None), (256, 2048, 0, None), (256, 256, 80, link)] {
        let lengths = (64..=200).chain((0..600).map(|n| 64 + n * 619 % 1463)).chain([9000, 9216]);
        all_arrive(&Setup { channels, buffer, header, pad: true, link, ..SETUP }, lengths)?;
    }
    Ok(())
}

#[test]
fn no_length_is_below_the_line_rate_with_padding() -> Result {
    // The frame buffer holds 1024 words, which overflow at a rate that is lower by 1/10 of a percent. The first two
    // lengths are the slowest ones.
    for length in [67, 75, 64, 65, 66, 68, 128, 131, 1518] {
        let setup = Setup { channels: 16, header: 80, pad: true, ..SETUP };
        all_arrive(&setup, std::iter::repeat_n(length, 20_000 * 67 / length))?;
    }
    Ok(())
}

#[test]
fn each_lost_frame_is_counted_once() -> Result {
    for pad in [false, true] {
        let mut receiver = Receiver::new(&Setup { gbps: 200.0, channels: 256, pad, max_length: 2000, ..SETUP })?;
        let mut random = SplitMix64::new(2);
        for number in 0..700 {
            let length = if number % 50 == 0 { 63 + number % 4 * 1000 } else { 700 };
            let mut frame = frame(length, &mut random);
            frame[length / 2] ^= u8::from(number % 50 == 7);
            receiver.send(frame, 0)?;
        }
        let outcome = receiver.finish()?;
        let found = receiver.found().count() as u64;
        let dropped = outcome.distributed;
        assert!(dropped.overflow > 100 && dropped.giant > 0 && dropped.runt > 0 && dropped.error > 0, "{dropped:?}");
        assert_eq!((outcome.frames, dropped.delivered), (700, found));
    }
    Ok(())
}

#[test]
fn no_padded_frame_exceeds_the_length_field() -> Result {
    for (pad, longest) in [(false, 16_371), (true, 16_369)] {
        let mut receiver = Receiver::new(&Setup { channels: 1, pad, max_length: 16_371, ..SETUP })?;
        let mut random = SplitMix64::new(5);
        for length in [longest, longest + 1, 64, longest + 2, longest - 1] {
            receiver.send(frame(length, &mut random), 0)?;
        }
        let distributed = receiver.finish()?.distributed;
        assert_eq!((distributed.delivered, distributed.giant), (3, 2), "{distributed:?}");
        let lengths = receiver.found().map(|found| found.frame.len() + 4).collect::<Vec<_>>();
        assert_eq!(lengths, [longest, 64, longest - 1]);
    }
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
