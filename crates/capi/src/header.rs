//! Writes and compares `include/shotline.h` and the list of the binary interface, `abi.txt`.

use crate::version::SHOTLINE_ABI_VERSION;
use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use shotline_testing::assert_committed;
use std::fs;
use std::path::{Path, PathBuf};

/// Files whose public items are in the header, in its order.
const SOURCES: &[&str] = &[
    "version.rs",
    "status.rs",
    "causes.rs",
    "run/handle.rs",
    "run/open.rs",
    "run/properties.rs",
    "run/shots.rs",
    "run/samples.rs",
    "run/tables.rs",
    "record/wait.rs",
    "record/recorder.rs",
    "record/take.rs",
    "record/shots.rs",
    "record/counters.rs",
    "record/probe.rs",
    "record/emulator.rs",
    "verbs/memory.rs",
    "verbs/endpoint.rs",
    "verbs/completions.rs",
    "verbs/queue_pair.rs",
    "verbs/target.rs",
];
/// Enumerations whose values are in fields of a fixed width, so that no function names them.
const ENUMS: [&str; 5] =
    ["shotline_packing", "shotline_state", "shotline_completion_kind", "shotline_wc_status", "shotline_operation"];

/// C knows `{0}` as all zeros, C++ knows `{}`; compilers warn of the other one.
const ZERO: &str = "
/**
 * Initialiser of all zeros, for structures that the caller passes: `shotline_selection selection = SHOTLINE_ZERO;`.
 */
#ifdef __cplusplus
#define SHOTLINE_ZERO {}
#else
#define SHOTLINE_ZERO {0}
#endif";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn header() -> String {
    let mut config = Config {
        header: Some(include_str!("manual.txt").trim_end().to_owned()),
        include_guard: Some("SHOTLINE_H".into()),
        no_includes: true,
        after_includes: Some(ZERO.to_owned()),
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        cpp_compat: true,
        usize_is_size_t: true,
        language: Language::C,
        style: Style::Type,
        line_length: 120,
        tab_width: 4,
        documentation_style: DocumentationStyle::Doxy,
        ..Config::default()
    };
    config.export.include = ENUMS.map(str::to_owned).to_vec();
    let sources =
        SOURCES.iter().fold(Builder::new(), |builder, file| builder.with_src(folder().join("src").join(file)));
    let mut text = Vec::new();
    sources.with_config(config).generate().expect("the sources parse").write(&mut text);
    let text = String::from_utf8(text).unwrap();
    // A comment of one line, as of most fields, needs no lines for its marks.
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let start = lines.len().saturating_sub(2);
        match &lines[start..] {
            [first, only] if line.trim() == "*/" && first.trim() == "/**" => {
                let comment = format!("{} {} */", first.trim_end(), only.trim().trim_start_matches("* "));
                lines.splice(start.., [comment]);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the declarations of functions, one a line, sorted by name.
fn functions(header: &str) -> Vec<String> {
    let code: Vec<_> = header.lines().filter(|line| !line.trim_start().starts_with(['*', '/', '#'])).collect();
    let text = code.join(" ");
    let declarations = text.split_inclusive([';', '}', '{']).map(|piece| {
        let piece = piece.trim_start_matches(['{', '}']).split_whitespace().collect::<Vec<_>>().join(" ");
        piece.replace("( ", "(")
    });
    let mut found: Vec<_> = declarations.filter(|piece| piece.contains("shotline_") && piece.ends_with(");")).collect();
    let name = |function: &String| function.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned);
    found.sort_by_key(name);
    found
}

/// Returns the values of enumerations and constants, one a line.
fn values(header: &str) -> Vec<String> {
    let is_value = |line: &&str| line.starts_with("SHOTLINE_") || line.starts_with("#define SHOTLINE_");
    let values = header.lines().map(str::trim).filter(is_value).map(|line| line.trim_end_matches(',').to_owned());
    let is_set = |line: &String| line.contains(" = ") || line.split_whitespace().count() > 2;
    values.filter(|line| is_set(line) && !line.starts_with("#define SHOTLINE_ABI_VERSION")).collect()
}

macro_rules! sizes {
    ($($name:path),+ $(,)?) => {
        vec![$(format!(
            "sizeof({}) == {}",
            stringify!($name).rsplit("::").next().unwrap_or_default().trim(),
            size_of::<$name>()
        )),+]
    };
}

fn sizes() -> Vec<String> {
    use crate::record::{counters, emulator, probe, recorder, shots as live};
    use crate::run::{handle, properties, samples, shots, tables};
    use crate::verbs::{completions, endpoint, memory, queue_pair, target};
    sizes![
        handle::shotline_run,
        properties::shotline_run_info,
        properties::shotline_link,
        shots::shotline_shot,
        samples::shotline_axis,
        samples::shotline_selection,
        samples::shotline_shape,
        tables::shotline_loss,
        tables::shotline_counter,
        recorder::shotline_recorder,
        live::shotline_shots,
        live::shotline_shots_info,
        counters::shotline_recorder_counters,
        probe::shotline_probe,
        probe::shotline_probe_description,
        probe::shotline_probe_status,
        emulator::shotline_emulator,
        emulator::shotline_given_shots,
        memory::shotline_memory,
        memory::shotline_region,
        memory::shotline_region_info,
        endpoint::shotline_endpoint,
        endpoint::shotline_remote_region,
        completions::shotline_cq,
        completions::shotline_completion,
        queue_pair::shotline_qp,
        queue_pair::shotline_qp_options,
        queue_pair::shotline_sge,
        queue_pair::shotline_send_wr,
        queue_pair::shotline_recv_wr,
        target::shotline_target,
        target::shotline_served_region,
        target::shotline_target_options,
        target::shotline_target_state,
    ]
}

#[test]
fn header_is_that_of_the_sources() {
    assert_committed(&folder().join("include/shotline.h"), header().as_bytes());
}

#[test]
fn every_source_with_a_c_function_is_in_the_header() {
    let header = header();
    let mut seen = 0;
    for file in ["", "run", "record", "verbs"]
        .into_iter()
        .flat_map(|inside| fs::read_dir(folder().join("src").join(inside)).unwrap())
    {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        for name in fs::read_to_string(&file).unwrap().split("extern \"C\" fn ").skip(1) {
            let name = name.split('(').next().unwrap();
            let is_code = name.starts_with("shotline_");
            assert!(
                !is_code || header.contains(&format!("{name}(")),
                "{}: {name} is not in the header",
                file.display()
            );
            seen += usize::from(is_code);
        }
    }
    assert!(seen > 10, "only {seen} functions found: this test looks in the wrong place");
}

/// What programs that are compiled rely on. `UPDATE=1` adds to the list; it removes nothing from it.
#[test]
fn abi_keeps_everything_of_its_version() {
    let header = header();
    let first = format!("ABI version {SHOTLINE_ABI_VERSION}");
    let mut lines = vec![first.clone()];
    lines.extend([functions(&header), values(&header), sizes()].concat());
    let path = folder().join("abi.txt");
    let before = fs::read_to_string(&path).unwrap_or_default();
    if before.lines().next() == Some(first.as_str()) {
        let gone: Vec<_> = before.lines().filter(|line| !lines.iter().any(|kept| kept == line)).collect();
        assert!(
            gone.is_empty(),
            "removed or changed, which breaks programs that are compiled: restore it, or increase \
             SHOTLINE_ABI_VERSION and the number in build.rs:\n{}",
            gone.join("\n")
        );
    }
    assert_committed(&path, (lines.join("\n") + "\n").as_bytes());
}
