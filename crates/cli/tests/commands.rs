//! The program as users see it: help, flags, and errors that include the remedy.

use shotline_testing::skip;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn shotline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shotline")).args(args).stdin(Stdio::null()).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the program, expects it to fail, and checks that its error contains the words.
fn refused(args: &[&str], words: &[&str]) {
    let output = shotline(args);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} succeeded");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(&output));
    for word in words {
        assert!(complaint.contains(word), "{args:?}: expected {word:?} in\n{complaint}");
    }
    assert!(!complaint.contains("panicked"), "{complaint}");
}

/// An emulated probe with small shots. It ends when this value is dropped.
struct Probe {
    child: Child,
    address: String,
}

impl Probe {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shotline"))
            .args(["emulate", "probe", "--listen", "[::1]:0", "--until-stdin-ends"])
            .args(["--links", "1", "--channels", "16", "--samples", "500", "--pattern-shots", "2"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("the probe prints its address");
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
        Self { child, address }
    }

    /// Returns the arguments to record this probe, on a port that the kernel chooses.
    fn record<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["record", "--probe", &self.address, "--bind", "[::1]:0", "--samples", "500"], more].concat()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs the program in a folder, without arguments, and returns what it prints.
fn overview(folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shotline"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    stdout(&output)
}

#[test]
fn without_a_command_machine_and_next_steps_are_shown() {
    let folder = tempfile::tempdir().expect("a directory");
    let words = overview(folder.path());
    for word in ["receive buffer", "AF_XDP", "RDMA", "DPDK", "GPUs", "disk space", "recordings here  none"] {
        assert!(words.contains(word), "no {word}: {words}");
    }
    for command in ["shotline demo", "shotline record --probe", "shotline doctor", "shotline --help"] {
        assert!(words.contains(command), "no {command}: {words}");
    }
    assert!(words.lines().count() <= 25, "{words}");
    std::fs::write(folder.path().join("other.h5"), b"\x89HDF\r\n\x1a\nand nothing more").expect("it is written");
    assert!(overview(folder.path()).contains("recordings here  none"), "a file that is no recording");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1, "it leaves nothing");
}

#[test]
fn causes_are_explained_with_commands() {
    let words = stdout(&shotline(&["--explain", "sink_busy"]));
    assert!(words.starts_with("sink_busy (why packets or shots are missing)\n"), "{words}");
    for word in ["counted in", "shots dropped", "--policy", "\n    shotline doctor --out /data/run.h5"] {
        assert!(words.contains(word), "no {word}: {words}");
    }
    let found: serde_json::Value =
        serde_json::from_slice(&shotline(&["--explain", "probe-lost", "--json"]).stdout).expect("one JSON object");
    assert_eq!((&found["kind"], &found["cause"]), (&"end".into(), &"probe-lost".into()));
    assert!(found["remedies"].as_array().is_some_and(|remedies| remedies.len() > 2), "{found}");
    refused(&["--explain", "wire_gp"], &["wire_gp", "wire_gap, bad_icrc", "similar value exists: 'wire_gap'"]);
    refused(&["--json"], &["--explain"]);
}

#[test]
fn summary_with_losses_names_their_explanation() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("demo.h5");
    let demo = ["demo", "--shots", "50", "--samples", "500", "--faults", "0.01", "--gbps", "0.5", "--out"];
    let output = shotline(&[&demo[..], &[out.to_str().expect("a name")]].concat());
    let words = stdout(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let hint = words.lines().last().expect("a line");
    assert!(hint.contains("shotline --explain bad_icrc (also wire_gap)"), "{words}");
    assert!(words.contains("duplicate") && !hint.contains("duplicate"), "nothing is lost by a duplicate: {words}");
}

#[test]
fn unknown_command_is_refused() {
    refused(&["rekord"], &["rekord", "record"]);
}

#[test]
fn help_names_every_registry_and_export_format() {
    let help = stdout(&shotline(&["--help"])).to_lowercase();
    let (_, help) = help.split_once("commands:").expect("commands are listed");
    let line = |command: &str| {
        let line = help.lines().find(|line| line.trim_start().starts_with(command)).expect("it is listed");
        line.replace(' ', "-")
    };
    let all: serde_json::Value = serde_json::from_str(&stdout(&shotline(&["list", "--json"]))).unwrap();
    for registry in all.as_object().unwrap().keys() {
        assert!(line("list").contains(registry), "{registry}");
    }
    for format in all["exports"].as_array().unwrap() {
        let name = format["format"].as_str().unwrap();
        assert!(line("export").contains(name), "{name}");
    }
}

#[test]
fn list_matches_the_documentation_page() {
    if cfg!(not(all(feature = "dpdk", feature = "s3"))) {
        skip!("docs/list.md is the list of a build with every feature");
    }
    let page = stdout(&shotline(&["list", "--markdown"]));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/list.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/list.md differs; regenerate it: cargo run -p shotline --all-features -- list --markdown > docs/list.md"
    );
}

#[test]
fn registry_is_listed_as_text_and_json() {
    let words = stdout(&shotline(&["list", "drop-causes"]));
    assert!(words.starts_with("Drop causes:\n") && words.contains("wire_gap"), "{words}");
    let json = stdout(&shotline(&["list", "drop-causes", "--json"]));
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all["drop-causes"][0]["cause"], "wire_gap");
    refused(&["list", "colours"], &["colours", "drop-causes"]);
}

#[test]
fn wrong_flags_are_named() {
    refused(&["record", "--sampels", "5"], &["--sampels", "--samples"]);
    refused(&["record", "--pool", "3GB"], &["256MiB", "3GB"]);
    refused(&["record", "--policy", "drop-all"], &["drop-all"]);
    refused(&["record", "--transport", "tcp"], &["auto, udp", "dpdk:DEVICE", "tcp"]);
    refused(&["record", "--transport", "xdp:eth1,mode=fast"], &["expected queues=0-3", "mode=fast"]);
    let xdp = ["record", "--probe", "[::1]:9", "--discard", "--transport", "xdp:eth1", "--mtu", "1500"];
    refused(&xdp, &["xdp:eth1", "--mtu", "dpdk:DEVICE"]);
    refused(&["emulate", "probe", "--transport", "auto"], &["only receive", "send with udp"]);
    refused(&["emulate", "probe", "--peer-mac", "02:00:00:00:00:01"], &["udp", "--peer-mac"]);
    refused(&["emulate", "probe", "--pace", "fast"], &["500hz", "fast"]);
    let phantom = ["emulate", "probe", "--phantom"];
    refused(&[&phantom[..], &["--input", "rf.h5"]].concat(), &["--phantom", "--input", "cannot be used with"]);
    refused(&[&phantom[..], &["--pattern-shots", "3"]].concat(), &["--phantom", "--pattern-shots"]);
    refused(&[&phantom[..], &["--sample-rate-hz", "15000000"]].concat(), &["5 MHz needs at least 16 MS/s, found 15"]);
    refused(&[&phantom[..], &["--angles", "0,85"]].concat(), &["-80 to 80 degrees, found 85"]);
    refused(&["emulate", "probe", "--phases", "4"], &["--phantom"]);
    refused(&["doctor", "--gbps", "0"], &["above 0"]);
}

#[test]
fn unused_transport_flags_are_refused() {
    let link = "spacefibre[:shm][,lanes=N][,vcs=N][,vc=SHARE[/PRIORITY[/SLOTS]]...][,ber=P]";
    for (given, users) in [
        ("--mtu 1024", format!("soft, ibverbs[:DEVICE[,port=N][,gid=INDEX]] or {link}")),
        ("--bind 127.0.0.2", format!("soft or {link}")),
        ("--receive-buffer 1M", "soft".into()),
        ("--accept-any-source-port", "soft".into()),
        ("--rdma-cm rping", "soft".into()),
    ] {
        let flag = given.split(' ').next().unwrap();
        let words = format!("target --region a=4K --transport shm --listen ./none.sock {given}");
        let words: Vec<_> = words.split(' ').collect();
        refused(&words, &[&format!("shm does not use {flag}"), &format!("--transport {users}")]);
    }
    for given in ["--mtu 1024", "--bind 127.0.0.2", "--receive-buffer 1M", "--loss 0.1"] {
        let words = format!("perf write --transport shm {given}");
        let words: Vec<_> = words.split(' ').collect();
        refused(&words, &["shm does not use", given.split(' ').next().unwrap()]);
    }
    refused(&["perf", "write", "--mtu", "8192"], &["--mtu of at most 4096 with soft", "8192"]);
    refused(&["target", "--region", "a=4K", "--mtu", "8192"], &["--mtu of at most 4096 with soft", "8192"]);
    for transport in ["xdp:eth1", "ibverbs:mlx5_9"] {
        let words = ["record", "--probe", "127.0.0.1:9", "--discard", "--transport", transport];
        let words = [&words[..], &["--receive-buffer", "1MiB"]].concat();
        refused(&words, &[transport, "does not use --receive-buffer", "auto, udp or packet:INTERFACE"]);
    }
}

#[test]
fn unusable_link_options_are_refused() {
    refused(&["link"], &["<ADDRESS|PATH>"]);
    refused(&["link", "127.0.0.1:9", "--demo"], &["--demo"]);
    refused(&["link", "127.0.0.1:9"], &["--token or --token-file"]);
    refused(&["link", "nowhere", "--token-file", "/dev/null/t"], &["HOST:PORT", "nowhere"]);
    refused(&["link", "127.0.0.1:9", "--token", "00112233445566778899aabbccddeeff"], &["cannot reach", "127.0.0.1:9"]);
    refused(&["link", "--demo", "--interval", "0.05"], &["0.1 to 3600", "0.05"]);
    refused(&["link", "--demo", "--count", "0"], &["--count", "0"]);
    refused(&["link", "--demo", "lanes=17"], &["1 to 16 lanes", "lanes=17"]);
    refused(&["link", "--demo", "vc=50%,vc=51%"], &["up to 100% in total, found 101%"]);
    refused(&["link", "--demo", "vcs=3", "--load", "1,2"], &["one for each of 3 channels, found 2"]);
    refused(&["link", "127.0.0.1:9", "--load", "1"], &["--load", "cannot be used with", "ADDRESS|PATH"]);
}

#[test]
fn service_levels_that_do_not_exist_are_refused() {
    let perf = |transport, level| ["perf", "write", "--transport", transport, "--service-level", level];
    refused(&perf("spacefibre:vcs=2", "0,2"), &["below 2", "virtual channels", "found 2"]);
    refused(&perf("soft", "1"), &["below 1", "found 1"]);
    refused(&perf("ibverbs", "16"), &["below 16", "RDMA device", "found 16"]);
    refused(&perf("spacefibre:vcs=32", "32"), &["--service-level", "32"]);
}

#[test]
fn demonstration_of_a_link_prints_tables_and_json() {
    let words = stdout(&shotline(&["link", "--demo", "vc=60%/1,vc=40%/2", "--interval", "0.1", "--count", "2"]));
    assert_eq!(
        words.lines().filter(|line| line.starts_with("link 0   on this machine   4 lanes")).count(),
        2,
        "{words}"
    );
    assert!(words.contains("60.0 %") && words.contains("retries"), "{words}");
    let json = stdout(&shotline(&["link", "--demo", "--interval", "0.1", "--count", "2", "--json"]));
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{json}");
    let link = &lines[1]["links"][0];
    let sum: u64 =
        link["channels"].as_array().unwrap().iter().map(|channel| channel["words_out"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), link["counters"]["words_out"].as_u64());
    assert_eq!(link["rates"]["channels"].as_array().map(Vec::len), Some(3));
}

#[test]
fn perf_measures_the_memory_of_its_choice() {
    let measure = |words: &str| {
        let words = format!("perf {words} --size 64K --seconds 0.02 --json");
        let output = shotline(&words.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        let row: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(row["operations"].as_u64() > Some(0), "{row}");
        row
    };
    let path = "emulated:write=2MB/s:read=1MB/s";
    for transport in ["soft", "shm"] {
        for (verb, rate) in [("write", 2e6), ("read", 1e6)] {
            let row = measure(&format!("{verb} --transport {transport} --group 2 --memory {path}"));
            // Not faster than the path, but for the 100 us by which the last bytes may be early.
            let (bytes, seconds) = (row["bytes"].as_f64().unwrap(), row["seconds"].as_f64().unwrap());
            assert!(bytes / rate <= seconds + 1e-3, "{transport} {verb}: {bytes} bytes in {seconds} s");
        }
    }
    measure("write --transport shm --memory memfd");
    measure("read --memory memfd");
}

#[test]
fn unusable_memory_of_perf_is_refused() {
    let perf = |more: &[&'static str]| [&["perf", "write", "--seconds", "0.01", "--memory"], more].concat();
    refused(&perf(&["gpu"]), &["--memory", "expected heap, huge, memfd", "found gpu"]);
    refused(&perf(&["emulated:path9"]), &["path1, path2, path3"]);
    refused(&perf(&["heap", "--to", "127.0.0.1:9"]), &["--memory", "cannot be used with", "--to"]);
    refused(&perf(&["dmabuf:7", "--transport", "shm"]), &["memory=dmabuf:7 cannot be shared", "memory=emulated"]);
    for words in ["atomic --memory emulated", "latency --operation atomic --memory emulated:path2"] {
        let words: Vec<_> = ["perf"].into_iter().chain(words.split(' ')).collect();
        refused(&words, &["--memory emulated", "no atomic operations"]);
    }
    let help = stdout(&shotline(&["perf", "--help"]));
    assert!(help.contains("--memory <KIND>") && help.contains("emulated[:PATH]"), "{help}");
}

#[test]
fn out_of_range_numbers_are_refused() {
    for words in [
        "doctor --pool 0",
        "emulate probe --pattern-shots 0",
        "emulate digitizer --to [::1]:9 --blocks 0",
        "emulate digitizer --to [::1]:9 --seconds 0",
        "emulate digitizer --to [::1]:9 --seconds nan",
        "export a.h5 a.zarr --shard 0",
        "verify a.h5 --threads 0",
        "perf write --seconds 0",
        "sweep network --repeats 0",
        "trigger --count 0",
    ] {
        let words: Vec<_> = words.split(' ').collect();
        refused(&words, &[words[words.len() - 2]]);
    }
}

#[test]
fn missing_flags_are_named() {
    refused(&["record", "--discard"], &["--probe"]);
    refused(&["record", "--probe", "[::1]:47910"], &["--out", "--discard"]);
}

#[test]
fn wrong_configuration_key_is_named_with_its_line() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("probe.toml");
    std::fs::write(&path, "samples = 500\nsampels = 500\n").expect("it is written");
    let path = path.to_str().expect("a name");
    refused(&["record", "--config", path], &["probe.toml", "line 2", "sampels", "samples"]);
    refused(&["record", "--config", "/dev/null/x.toml"], &["/dev/null/x.toml"]);
}

#[test]
fn flags_override_configuration_keys() {
    let probe = Probe::start();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("probe.toml");
    let text =
        format!("probe = \"{}\"\nbind = \"[::1]:0\"\nsamples = 500\nrate_hz = 1e-9\ndiscard = true\n", probe.address);
    std::fs::write(&path, text).expect("it is written");
    let path = path.to_str().expect("a name");
    let output = shotline(&[
        "record",
        "--config",
        path,
        "--transmit-sequence",
        "1,2",
        "--gbps",
        "0.1",
        "--shots",
        "5",
        "--json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["shots_complete"], 5, "{report}");
    refused(
        &["record", "--config", path, "--rate-hz", "5", "--post-trigger", "1"],
        &["--post-trigger", "--pre-trigger"],
    );
    refused(&["record", "--config", path, "--q-key", "1"], &["--q-key", "--listen"]);
    refused(&["record", "--config", path], &["probe.toml:4", "--rate-hz"]);
}

#[test]
fn impossible_run_is_refused_before_it_begins() {
    let probe = Probe::start();
    let folder = tempfile::tempdir().expect("a directory");
    let existing = folder.path().join("existing.h5");
    std::fs::write(&existing, "precious").expect("it is written");
    let existing = existing.to_str().expect("a name");
    refused(&probe.record(&["--out", existing, "--shots", "10"]), &["exists already", "--force"]);
    assert_eq!(std::fs::read(existing).expect("it still exists"), b"precious");
    // A path below a file, because root could write into any directory.
    refused(&probe.record(&["--out", "/dev/null/x/run.h5", "--shots", "10"]), &["/dev/null/x/run.h5", "directory"]);
    refused(&probe.record(&["--discard", "--pool", "1KiB"]), &["--pool"]);
    refused(&probe.record(&["--discard", "--framing", "morse"]), &["ud, counted, udp", "morse"]);
    refused(&probe.record(&["--discard", "--links", "2"]), &["1 links", "found 2"]);
    refused(&probe.record(&["--discard", "--links", "9"]), &["1 to 8", "found 9"]);
    refused(&probe.record(&["--discard", "--policy", "block"]), &["credits", "drop-newest"]);
    refused(&probe.record(&["--discard", "--rate-hz", "10", "--gbps", "1"]), &["--rate-hz", "--gbps"]);
    let mut huge = probe.record(&["--discard"]);
    huge.retain(|argument| *argument != "500");
    let index = huge.iter().position(|argument| *argument == "--samples").expect("it is there");
    huge.insert(index + 1, "4000000");
    refused(&huge, &["from 1 to 500", "4000000"]);
}

#[test]
fn recording_is_made_inspected_and_verified() {
    let probe = Probe::start();
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("run.h5");
    let file = file.to_str().expect("a name");
    let json = |args: &[&str]| -> serde_json::Value {
        let output = shotline(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    };
    let recorded = json(&probe.record(&["--out", file, "--shots", "20", "--rate-hz", "500", "--json"]));
    assert_eq!((&recorded["shots_recorded"], &recorded["shots_sent"]), (&20.into(), &20.into()), "{recorded}");
    let found = json(&["inspect", file, "--json"]);
    assert_eq!((&found["kind"], &found["rows"], &found["finished"]), (&"recording".into(), &20.into(), &true.into()));
    assert_eq!(json(&["verify", file, "--json"])["verified"], true);
    let words = overview(folder.path());
    assert!(words.contains("run.h5 (20 rows, ") && words.contains("shotline verify run.h5"), "{words}");
    let table = stdout(&shotline(&["inspect", file]));
    assert!(table.contains("stream 0: complete") && table.contains("16 channels x 500 samples"), "{table}");
}

#[test]
fn settings_file_is_written_once_and_recorded_with() {
    let probe = Probe::start();
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (file, out) = (path("my run.toml"), path("run.h5"));
    let init = ["init", &file, "--sender", "probe", "--address", &probe.address, "--out", &out];
    let output = shotline(&[&init[..], &["--json"]].concat());
    let written: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let values = [probe.address.as_str(), out.as_str()].map(|value| format!("\"{value}\""));
    assert_eq!(written["settings"], serde_json::json!({"probe": values[0], "out": values[1]}));
    assert_eq!(written["next"][0], format!("shotline record --config '{file}'"));
    refused(&init, &["my run.toml exists", "--force"]);
    let again = shotline(&[&init[..], &["--force", "--seconds", "5"]].concat());
    assert!(again.status.success() && stdout(&again).contains("3 settings"), "{}", stdout(&again));
    assert!(std::fs::read_to_string(&file).expect("it is there").contains("\n#samples = 2000\n"));
    let record = ["record", "--config", &file, "--bind", "[::1]:0", "--samples", "500", "--shots", "5", "--json"];
    let output = shotline(&record);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    refused(&["init", &path("x/y.toml"), "--yes"], &["x/y.toml", "cannot write"]);
    refused(&["init", &path("y.toml"), "--sender", "tape"], &["tape", "digitizer"]);
    assert!(!folder.path().join("y.toml").exists());
}

#[test]
fn doctor_reports_json_and_text() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("run.h5");
    let args = ["doctor", "--pool", "16MiB", "--gbps", "0.1", "--out", out.to_str().expect("a name")];
    let output = shotline(&[&args[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let checks = report["checks"].as_array().expect("a list");
    for name in ["receive buffer", "MTU", "huge pages", "io_uring", "direct I/O", "write speed", "TAI clock"] {
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
        assert_eq!(check["state"] == "ok", check["fix"].is_null(), "{check}");
    }
    let failed = checks.iter().any(|check| check["state"] == "fail");
    assert_eq!((report["ready"] == true, output.status.success()), (!failed, !failed));
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn doctor_fails_on_unwritable_directory() {
    let output = shotline(&["doctor", "--pool", "16MiB", "--out", "/dev/null/x/run.h5"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("FAIL  directory"), "{}", stdout(&output));
}

#[test]
fn unknown_files_are_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        path.to_str().expect("a name").to_owned()
    };
    refused(&["inspect", &file("garbage", b"GARBAGE, all of it")], &["HDF5", "pcap", "47 41 52"]);
    refused(&["inspect", &file("empty", b"")], &["empty"]);
    refused(&["inspect", &file("zipped", &[0x1F, 0x8B, 8, 0])], &["gunzip"]);
    refused(&["inspect", &file("cut.pcap", &[0xD4, 0xC3, 0xB2, 0xA1, 2, 0])], &["damaged"]);
    refused(&["inspect", &file("broken.h5", b"\x89HDF\r\n\x1a\nand nothing more")], &["broken.h5"]);
    refused(&["verify", &file("other", b"GARBAGE")], &["other"]);
    refused(&["inspect", "/nowhere/run.h5"], &["/nowhere/run.h5"]);
}

/// Checks captures made by other programs, if they are available.
#[test]
fn captures_of_other_programs_are_parsed() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !data.exists() {
        skip!("no captures in ../shared/data next to the repository");
    }
    for (name, flows, good) in [
        ("roce/pcapplusplus_rc_read_req.pcap", 1, 1),
        ("roce/hsb/hsb_embedded_64k.pcap", 1, 470),
        ("roce/hsb/hsb_separate_odd10007.pcap", 1, 180),
        ("net/trex_imix.pcap", 0, 0),
        ("net/trex_rtp_160k.pcap", 0, 0),
        ("net/trex_udp_rand_len_9k.pcap", 0, 0),
        ("net/trex_hlt_imix_4rates.pcap", 0, 0),
    ] {
        let path = data.join(name);
        let output = shotline(&["inspect", "--json", path.to_str().expect("a name")]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!((&found["kind"], &found["damage"]), (&"capture".into(), &serde_json::Value::Null));
        let listed = found["flows"].as_array().expect("a list");
        let verdicts = |name: &str| listed.iter().filter_map(|flow| flow["icrc"][name].as_u64()).sum::<u64>();
        assert_eq!((listed.len(), verdicts("good"), verdicts("bad")), (flows, good, 0), "{name}");
        assert!(found["malformed"].as_object().is_some_and(|malformed| malformed.is_empty()), "{found}");
    }
}
