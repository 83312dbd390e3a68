//! Tests of each rule, by the key that its error has.

use super::*;

/// Parses settings; without a sender or a sink in `text`, adds one that listens, and one that discards.
fn settings(text: &str) -> Settings {
    let names = |key: &str| text.lines().any(|line| line.starts_with(key));
    let mut all = text.to_owned();
    if !names("probe") && !names("listen") {
        all += "\nlisten = \"[::1]:9\"";
        all += if names("framing") { "" } else { "\nframing = \"udp\"" };
    }
    all += if names("out") || names("discard") { "" } else { "\ndiscard = true" };
    toml::from_str(&all).unwrap()
}

fn assert_refused(rows: &[(&str, Key, &str)]) {
    for (text, key, words) in rows {
        let error = settings(text).check().expect_err(text);
        assert_eq!(error.key, *key, "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_refused(&[
        ("shots = 0", Key::shots, "--shots from 1"),
        ("seconds = 0.0", Key::seconds, "--seconds above 0"),
        ("seconds = nan", Key::seconds, "--seconds above 0"),
        ("idle_s = 0.0", Key::idle_s, "--idle-s above 0"),
        ("roll_seconds = 2e9", Key::roll_seconds, "--roll-seconds above 0"),
        ("pre_trigger = -1.0", Key::pre_trigger, "--pre-trigger from 0"),
        ("window = 0", Key::window, "--window from 1"),
        ("timeout_ms = 0", Key::timeout_ms, "--timeout-ms from 1"),
        ("timeout_ms = 18446744073710", Key::timeout_ms, "--timeout-ms from 1"),
        ("in_flight = 0", Key::in_flight, "--in-flight from 1"),
        ("in_flight = 5000", Key::in_flight, "--in-flight from 1 to 4096, found 5000"),
        ("commit_ms = 0", Key::commit_ms, "--commit-ms from 1"),
        ("keep = 0", Key::keep, "--keep above 0, found 0"),
        ("links = 9", Key::links, "--links from 1 to 8"),
        ("receive_buffer = \"3GiB\"", Key::receive_buffer, "--receive-buffer from 1"),
        ("compress_threads = 100000", Key::compress_threads, "threads"),
        ("cpu = 4294967295", Key::cpu, "processor 4294967295"),
        ("framing = \"ud\"\nqueue_pair = 0\nq_key = 7", Key::queue_pair, "found 0x0"),
        ("framing = \"ud\"\nqueue_pair = 0xffffff\nq_key = 7\nlinks = 2", Key::queue_pair, "link 1"),
    ]);
}

#[test]
fn settings_of_probes_and_listening_exclude_each_other() {
    assert_eq!(settings("probe = \"[::1]:9\"\nrate_hz = 5.0").check().map(drop), Ok(()));
    assert_eq!(settings("external_trigger = false").check().map(drop), Ok(()));
    assert_refused(&[
        ("probe = \"[::1]:9\"\nlisten = \"[::1]:9\"\nq_key = 17", Key::listen, "give one of --probe and --listen"),
        ("probe = \"[::1]:9\"\nqueue_pair = 17", Key::queue_pair, "--queue-pair is for a sender without set-up"),
        ("probe = \"[::1]:9\"\nq_key = 17", Key::q_key, "--q-key is for a sender"),
        ("probe = \"[::1]:9\"\npages = 4", Key::pages, "--pages is for a sender"),
        ("probe = \"[::1]:9\"\nidle_s = 4.0", Key::idle_s, "--seconds"),
        ("rate_hz = 5.0", Key::rate_hz, "--rate-hz is for a --probe"),
        ("gbps = 5.0", Key::gbps, "--gbps is for a --probe"),
        ("external_trigger = true", Key::external_trigger, "--external-trigger is for a --probe"),
        ("bind = \"[::1]:9\"", Key::bind, "--listen is the local address"),
        ("transmit_sequence = [1, 2]", Key::transmit_sequence, "--transmit-sequence is for a --probe"),
    ]);
}

#[test]
fn settings_that_a_probe_does_not_support_are_refused() {
    let sequence = |events: usize| settings(&format!("probe = \"[::1]:9\"\ntransmit_sequence = {:?}", vec![1; events]));
    assert_eq!(sequence(55).check().map(drop), Ok(()));
    assert!(sequence(56).check().is_err_and(|error| error.key == Key::transmit_sequence));
    assert_refused(&[
        ("probe = \"[::1]:9\"\nframing = \"spead\"", Key::framing, "does not support set-up"),
        ("probe = \"[::1]:9\"\nrate_hz = 5.0\ngbps = 5.0", Key::rate_hz, "give one of"),
        ("probe = \"[::1]:9\"\ngbps = 5.0\nexternal_trigger = true", Key::gbps, "give one of"),
        ("probe = \"[::1]:9\"\nrate_hz = 0.0", Key::rate_hz, "0.001 to 1e9"),
        ("probe = \"[::1]:9\"\ngbps = 0.0", Key::gbps, "above 0"),
        ("probe = \"[::1]:9\"\nlinks = 2\nquorum = 3", Key::quorum, "at most 2"),
    ]);
    assert_eq!(settings("probe = \"[::1]:9\"\nquorum = 3").check().map(drop), Ok(()), "the probe may have 3 links");
}

#[test]
fn a_framing_without_set_up_needs_its_settings() {
    let named = settings("framing = \"ud\"\nqueue_pair = 17\nq_key = 18");
    assert_eq!(named.check().unwrap().queue_pair, Some(QueuePair { number: 17, q_key: 18 }));
    assert_eq!(settings("framing = \"udp\"\nlinks = 2\nquorum = 2").check().unwrap().queue_pair, None);
    assert_refused(&[
        ("framing = \"counted\"", Key::framing, "only set-up specifies"),
        ("framing = \"ud\"", Key::queue_pair, "--queue-pair and --q-key"),
        ("framing = \"ud\"\nq_key = 7", Key::queue_pair, "--queue-pair and --q-key"),
        ("framing = \"ud\"\nqueue_pair = 7", Key::q_key, "--queue-pair and --q-key"),
        ("framing = \"spead\"\nlinks = 2", Key::links, "one receiver for each address"),
        ("quorum = 2", Key::quorum, "at most 1"),
    ]);
}

#[test]
fn settings_must_not_describe_a_described_sender() {
    for text in [
        "framing = \"digitizer\"",
        "channels = 4",
        "samples = 500",
        "bits = 12",
        "sample_format = \"int16_le\"",
        "sample_rate_hz = 40000000",
        "queue_pair = 17",
        "q_key = 17",
        "pages = 4",
    ] {
        let settings = toml::from_str::<Settings>(&format!("listen = \"[::1]:9\"\ndiscard = true\n{text}")).unwrap();
        let error = settings.check_described(false).expect_err(text);
        assert!(text.starts_with(error.key.name()), "{text}: {error}");
    }
    let settings = |text: &str| toml::from_str::<Settings>(&format!("discard = true\n{text}")).unwrap();
    let refused = |text: &str| settings(text).check_described(false).map_err(|error| error.key).map(drop);
    assert_eq!(refused("probe = \"[::1]:9\""), Err(Key::probe));
    assert_eq!(refused("listen = \"[::1]:9\"\nbind = \"[::1]:9\""), Err(Key::bind));
    assert_eq!(refused("listen = \"[::1]:9\"\nlinks = 2\nidle_s = 1.0"), Ok(()), "no rule of ud applies");
}

#[test]
fn large_shots_have_a_larger_pool_and_fewer_writes() {
    let defaults = |resolved: ResolvedSettings<'_>| (resolved.framing, resolved.pool_bytes, resolved.in_flight);
    let (small, large) = (settings("framing = \"udp\""), settings("framing = \"digitizer\"\nlinks = 2"));
    assert_eq!(defaults(small.check().unwrap()), (Some(Kind::Udp), 256 << 20, 16));
    assert_eq!(defaults(large.check().unwrap()), (Some(Kind::Digitizer), 3 << 30, 4));
    let own = small.without(&[Key::framing]);
    assert_eq!(defaults(own.check_described(false).unwrap()), (None, 256 << 20, 16));
    assert_eq!(defaults(own.check_described(true).unwrap()), (None, 3 << 29, 4));
    let given = Settings { pool: Some(Bytes(1 << 20)), in_flight: Some(7), ..own };
    assert_eq!(defaults(given.check_described(true).unwrap()), (None, 1 << 20, 7));
}

#[test]
fn settings_that_need_another_are_refused_alone() {
    assert_eq!(settings("out = [\"a.h5\", \"b.h5\"]\npre_trigger = 1.0\npost_trigger = 2.0").check().map(drop), Ok(()));
    assert_refused(&[
        ("out = []", Key::out, "--out"),
        ("post_trigger = 2.0", Key::post_trigger, "--pre-trigger"),
        ("trigger = \"flag\"", Key::trigger, "--pre-trigger"),
        ("sequential = true", Key::sequential, "--policy block"),
        ("out = \"a.h5\"\ncompress = \"zstd\"\ncompress_level = 99", Key::compress_level, "level"),
        ("align_window = \"5us\"", Key::align_window, "--align stamp"),
        ("out = \"a.h5\"\nroll_shots = 5\nalign = \"stamp\"", Key::align, "one plain file"),
        ("mtu = 1500", Key::mtu, "udp does not use --mtu"),
        ("peer_mac = \"02:00:00:00:00:01\"", Key::peer_mac, "udp does not use --peer-mac"),
        ("transport = \"packet:eth1\"\neal = \"-l 1\"", Key::eal, "packet:eth1 does not use --eal"),
    ]);
}

#[test]
fn a_packet_capture_refuses_settings_of_recordings() {
    let given = [
        ("pre_trigger = 1.0", Key::pre_trigger),
        ("compress = \"lz4\"", Key::compress),
        ("durable = true", Key::durable),
        ("recycle = true", Key::recycle),
        ("buffered = true", Key::buffered),
        ("capacity = 5", Key::capacity),
        ("commit_ms = 5", Key::commit_ms),
        ("roll_size = \"1GiB\"", Key::roll_size),
        ("roll_seconds = 5.0", Key::roll_seconds),
        ("roll_shots = 5", Key::roll_shots),
        ("keep = \"1GiB\"", Key::keep),
    ];
    assert_eq!(given.map(|(_, key)| key), NOT_FOR_CAPTURES);
    for (text, key) in given {
        assert_refused(&[(&format!("out = \"a.pcapng\"\n{text}"), key, "a packet capture is one plain file")]);
    }
    assert_refused(&[("out = [\"a.h5\", \"b.pcapng\"]", Key::out, "a packet capture is one plain file")]);
    assert_eq!(settings("out = \"a.pcapng\"\ndurable = false\ncompress = \"none\"").check().map(drop), Ok(()));
}

#[test]
fn discard_and_recording_conflict_unless_flags_override_a_file() {
    for (text, key) in [
        ("out = \"run.h5\"", Key::out),
        ("durable = true", Key::durable),
        ("compress = \"lz4\"", Key::compress),
        ("capacity = 5", Key::capacity),
        ("roll_shots = 5", Key::roll_shots),
        ("pre_trigger = 1.0", Key::pre_trigger),
    ] {
        assert_refused(&[(&format!("discard = true\n{text}"), key, "--discard stores nothing")]);
    }
    let discard = settings("discard = true");
    let out = settings("out = \"run.h5\"\nkeep = \"4GiB\"\npost_trigger = 1.0\npre_trigger = 1.0");
    let discarded = discard.clone().over_file(out);
    assert_eq!((discarded.check().map(drop), &discarded.out), (Ok(()), &None));
    let recorded = settings("out = \"other.h5\"").over_file(discard.clone());
    assert_eq!((recorded.check().map(drop), recorded.discard), (Ok(()), None));
    assert!(settings("discard = false\ncapacity = 5").over_file(discard).check().is_err());
}

#[test]
fn a_flag_overrides_a_contradicting_key_of_the_file() {
    let from_listener = settings("framing = \"ud\"\nqueue_pair = 17\nq_key = 17\nidle_s = 1.0\nshots = 5");
    let from_probe =
        settings("probe = \"[::1]:8\"\nbind = \"[::1]:9\"\nrate_hz = 5.0\ntransmit_sequence = [1]\nshots = 5");
    let flags = |text: &str| toml::from_str::<Settings>(text).unwrap();
    let both = flags("probe = \"[::1]:7\"").over_file(from_listener);
    assert_eq!((both.check().map(|resolved| resolved.sender.address().port()), both.shots), (Ok(7), Some(5)));
    let both = flags("listen = \"[::1]:7\"\nframing = \"udp\"").over_file(from_probe.clone());
    assert_eq!((both.check().map(|resolved| resolved.sender.address().port()), both.shots), (Ok(7), Some(5)));
    for text in ["gbps = 1.0", "external_trigger = true", "rate_hz = 7.0"] {
        let both = flags(text).over_file(from_probe.clone());
        assert_eq!((both.check().map(drop), both.rate_hz), (Ok(()), flags(text).rate_hz), "{text}");
    }
    let both = flags("external_trigger = false").over_file(from_probe);
    assert_eq!((both.check().map(drop), both.rate_hz), (Ok(()), Some(5.0)), "no other start condition is given");
}

#[test]
fn pool_is_of_any_kind_unless_another_process_writes_it() {
    for kind in RegionKind::all().into_iter().filter(|kind| !matches!(kind, RegionKind::File(_))) {
        let settings = settings(&format!("pool_memory = \"{kind}\""));
        assert_eq!(settings.check().map(drop), Ok(()), "{kind}");
        assert_eq!(settings.pool_region_kind(), Some(kind));
    }
    assert_eq!(settings("").pool_region_kind(), Some(RegionKind::Heap));
    let shared = RegionKind::all().map(|kind| shared_pool(&kind));
    assert_eq!(shared[..3], [Some(RegionKind::Memfd), None, Some(RegionKind::Memfd)], "heap, huge and memfd");
    assert!(shared[3..].iter().all(Option::is_none), "{shared:?}");
}
