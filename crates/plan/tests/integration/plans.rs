//! Tests of invalid plans: each is refused with its line.

use shotline_plan::Plan;
use shotline_plan::sim::simulate;
use std::path::Path;

const SOURCE: &str = "[source]\nchannels = 96\nbits = 12\nsample_rate = \"40 MS/s\"\nsamples = 2000\n";

/// Returns the error for the default source with more lines, from line 6.
fn refused(rest: &str) -> String {
    match Plan::parse(&format!("{SOURCE}{rest}"), &[]) {
        Ok(plan) => panic!("accepted: {plan:?}"),
        Err(error) => error.to_string(),
    }
}

fn names(error: &str, line: usize, words: &[&str]) {
    assert!(error.starts_with(&format!("line {line}: ")), "expected line {line}: {error}");
    for word in words {
        assert!(error.contains(word), "expected {word}: {error}");
    }
}

#[test]
fn every_wrong_key_and_value_is_refused_with_its_line() {
    let cases: &[(&str, usize, &[&str])] = &[
        ("probes = 0", 6, &["source.probes", "1 to 65536", "found 0"]),
        ("probes = 1.5", 6, &["found 1.5"]),
        ("links = -2", 6, &["found -2"]),
        ("sampels = 1", 6, &["no key sampels", "expected one of", "samples"]),
        ("dead_time = \"1.85 MHz\"", 6, &["source.dead_time", "\"MHz\"", "us"]),
        ("dead_time = 1.85", 6, &["with its unit", "found 1.85"]),
        ("dead_time = \"-1 us\"", 6, &["from 0"]),
        ("trigger = \"0 Hz\"", 6, &["above zero"]),
        ("phase = \"now\"", 6, &["\"synchronised\", \"random\"", "\"now\""]),
        ("sweep = [\"1 kHz\", \"2 s\"]", 6, &["source.sweep", "\"s\""]),
        ("sweep = [\n\"1 kHz\",\n2 ]", 8, &["source.sweep", "found 2"]),
        ("[transfer]\nbytes = \"1 GB\"", 1, &["[transfer]", "found both"]),
        ("[stages]\n", 6, &["no key stages", "stage"]),
        ("[stage]\nkind = \"link\"\nrate = 5\n", 8, &["stage 1 (link).rate", "found 5"]),
        ("[[stage]]\nkind = \"cable\"", 7, &["stage 1.kind", "\"link\"", "\"cable\""]),
        ("[[stage]]\nrate = \"1 Gbit/s\"", 6, &["[stage 1] lacks kind", "kind = \"link\""]),
        ("[[stage]]\nkind = \"link\"", 6, &["[stage 1 (link)] lacks rate", "rate = \"100 Gbit/s\""]),
        ("[[stage]]\nkind = \"link\"\nrate = \"100 Gbit\"", 8, &["\"Gbit\"", "Gbit/s"]),
        ("[[stage]]\nkind = \"link\"\nrate = \"1 Gbit/s\"\nlanes = 2", 9, &["no key lanes", "framing"]),
        ("[[stage]]\nkind = \"pcie\"\ngeneration = 9\nlanes = 4", 8, &["generation", "1 to 6", "found 9"]),
        ("[[stage]]\nkind = \"pcie\"\ngeneration = 3\nlanes = 13", 9, &["lanes", "1, 2, 4, 8, 16, 32", "found 13"]),
        ("[[stage]]\nkind = \"pcie\"\ngeneration = 3\nlanes = 4\nmax_payload = \"100 B\"", 10, &["power of two"]),
        ("[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\nspread = 9", 9, &["spread", "0 to 3"]),
        ("[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\nstall = \"1 s\"", 9, &["stall_every"]),
        (
            "[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\nstall = \"2 s\"\nstall_every = \"1 s\"",
            9,
            &["shorter than"],
        ),
        (
            "[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\n[[stage]]\nkind = \"link\"\nrate = \"1 GB/s\"",
            10,
            &["packets"],
        ),
        ("[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\nper = \"link\"", 6, &["per"]),
        ("[[stage]]\nkind = \"link\"\nrate = \"1 GB/s\"\npolicy = \"drop-oldest\"", 9, &["drop-newest"]),
        ("[[stage]]\nkind = \"dma\"\nwidth = 12\nclock = \"1 GHz\"", 8, &["multiple of 8"]),
        ("[[stage]]\nkind = \"memory\"\npasses = 2", 6, &["lacks rate"]),
        ("[[stage]]\nkind = \"memory\"\nrate = \"1 GB/s\"\nclock = \"1 GHz\"", 8, &["found both"]),
        ("[receiver]\npool = \"256\"", 7, &["receiver.pool", "no unit", "MiB"]),
        ("[receiver]\ncount = 99999999", 7, &["receiver.count", "65536"]),
        ("this is no TOML", 6, &["expected"]),
        ("pool = 2026-11-20", 6, &["no key pool"]),
        ("", 1, &["lacks stage", "[[stage]]"]),
    ];
    for (rest, line, words) in cases {
        names(&refused(rest), *line, words);
    }
}

#[test]
fn invalid_geometries_are_refused_with_their_line() {
    let with = |from: &str, to: &str| {
        let error = Plan::parse(&SOURCE.replace(from, to), &[]).unwrap_err();
        error.to_string()
    };
    names(&with("channels = 96", "channels = 0"), 2, &["source.channels", "1 to 65535", "found 0"]);
    names(&with("bits = 12", "bits = 17"), 3, &["source.bits", "1 to 16", "found 17"]);
    names(&with("40 MS/s", "40 MHz"), 4, &["source.sample_rate", "MS/s"]);
    names(&with("40 MS/s", "0 S/s"), 4, &["above zero"]);
    names(&with("samples = 2000", "samples = 2000000"), 5, &["packet index allows 4096", "fewer samples"]);
    names(&with("samples = 2000", "samples = 0"), 5, &["found 0"]);
    names(&with("samples = 2000", "samples = \"many\""), 5, &["found \"many\""]);
    names(&with("samples = 2000\n", ""), 1, &["[source] lacks samples", "samples = 2000"]);
    let odd = SOURCE.replace("= 96", "= 1").replace("2000", "3");
    names(&Plan::parse(&odd, &[]).unwrap_err().to_string(), 5, &["in pairs"]);
    names(&Plan::parse("", &[]).unwrap_err().to_string(), 1, &["the plan lacks source"]);
}

#[test]
fn transfers_are_checked_like_shots() {
    let refused = |text: &str| Plan::parse(&format!("[transfer]\n{text}"), &[]).unwrap_err().to_string();
    names(&refused("packet = \"1 kB\""), 1, &["lacks bytes"]);
    names(&refused("bytes = \"1 MB\"\npacket = \"0.5 B\""), 3, &["whole bytes"]);
    names(&refused("bytes = \"1000 TB\"\npacket = \"1 B\""), 2, &["2^28 packets"]);
    names(&refused("bytes = \"1 MB\"\nrate = \"1 GB/s\"\nevery = \"1 s\""), 3, &["found both"]);
    names(&refused("bytes = \"1 MB\"\nchannels = 5"), 3, &["no key channels"]);
}

#[test]
fn flags_override_the_text_and_are_named_in_errors() {
    let text = format!("{SOURCE}[[stage]]\nkind = \"drive\"\nrate = \"1 GB/s\"\n");
    let with = |table, key, value: &str| Plan::parse(&text, &[(table, key, value.to_owned())]);
    let plan = with("source", "samples", "500").unwrap();
    assert_eq!(plan.source.burst.bytes(), 72_064);
    assert_eq!(with("drive", "count", "4").unwrap().stages[0].count, 4);
    let added = with("link", "rate", "25 Gbit/s").unwrap();
    assert_eq!((added.stages.len(), added.stages[0].kind.name()), (2, "link"));
    let error = with("source", "bits", "24").unwrap_err().to_string();
    assert!(error.starts_with("command line: source.bits") && error.contains("found 24"), "{error}");
    assert!(with("tape", "rate", "1 GB/s").unwrap_err().to_string().contains("tape"));
}

#[test]
fn no_value_causes_a_panic() {
    const VALUES: &[&str] = &[
        "0",
        "1",
        "-1",
        "1e18",
        "65536",
        "4294967296",
        "0.1",
        "nan",
        "inf",
        "true",
        "\"\"",
        "[]",
        "{}",
        "[[1]]",
        "\"1e-18 bit/s\"",
        "\"1e18 bit/s\"",
        "\"1 B\"",
        "\"1e18 B\"",
        "\"1e-18 s\"",
        "\"1e18 s\"",
        "\"1e-18 Hz\"",
        "\"1e18 Hz\"",
        "\"1 S/s\"",
        "\"4294967295 S/s\"",
        "\"block\"",
        "\"random\"",
        "\"infiniband\"",
        "\"switch\"",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans");
    let mut accepted = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        // A tile of 4 GB would be a million packets in the first nanosecond.
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap().replace("\"4 GB\"", "\"4 MB\"");
        let lines: Vec<_> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((key, _)) = line.split_once('=') else { continue };
            for value in VALUES {
                let changed = format!("{key} = {value}");
                let text = [&lines[..index], &[changed.as_str()], &lines[index + 1..]].concat().join("\n");
                if let Ok(plan) = Plan::parse(&text, &[]) {
                    let report = plan.report();
                    assert!(report.stages.iter().all(|stage| stage.limit_bits_per_s > 0.0), "{changed}");
                    if plan.source.streams() < 1000 && plan.receiver.count < 1000 {
                        // Simulate one nanosecond, so that no frequency makes the run long.
                        simulate(&plan, 1e-9, 1, &mut |_| ()).unwrap();
                    }
                    accepted += 1;
                }
            }
        }
    }
    assert!(accepted > 100, "only {accepted} of them were plans");
}

#[test]
fn extremely_slow_stages_do_not_overflow_a_simulation() {
    for stages in [
        "[[stage]]\nkind = \"link\"\nrate = \"1e-9 bit/s\"\n",
        "[[stage]]\nkind = \"memory\"\nrate = \"1e-9 bit/s\"\nstall = \"1e17 s\"\nstall_every = \"1e18 s\"\n",
        "[[stage]]\nkind = \"drive\"\nrate = \"1e-9 bit/s\"\nspread = 3\nstall = \"9 ns\"\nstall_every = \"9.001 ns\"\n",
    ] {
        for dead_time in ["0 s", "1e18 s"] {
            let text = format!("{SOURCE}dead_time = \"{dead_time}\"\n{stages}");
            let plan = Plan::parse(&text, &[]).unwrap();
            let outcome = simulate(&plan, 0.01, 1, &mut |_| ()).unwrap();
            assert_eq!(outcome.packets.delivered, 0);
        }
    }
}
