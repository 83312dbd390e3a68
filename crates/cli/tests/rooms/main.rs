//! Rules that no compiler checks: which crate may use which, that no files of a crate import each other in a
//! cycle, where `unsafe` may stand, and how long a file and a function may be.

mod cycles;
mod functions;
mod source;

use functions::Function;
use source::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a crate must not use, not even through another, though it stands above: (crate, never used).
const CLOSED_DOORS: &[(&str, &[&str])] = &[
    ("instrument", &["acquire", "store", "verbs"]), // it meets the receiver only on the wire
    ("store", &["transport"]),
    ("compute", &["transport"]),
    ("python", &["transport", "acquire", "instrument", "verbs"]), // it reads
];

/// Crates that may hold `unsafe` anywhere. Elsewhere it lives in `sys` modules and provider folders.
const UNSAFE_CRATES: &[&str] = &["memory", "transport", "python", "capi"];
const UNSAFE_FOLDERS: &[&str] = &["sys", "soft", "shm", "ibverbs"];

const LONGEST_FILE: usize = 600;
/// Upper bound of a function's length, in lines.
const LONGEST_FUNCTION: usize = 80;
const SOURCES: &[&str] = &["rs", "py", "c", "h", "sv", "ts", "tsx"];

#[test]
fn crates_use_only_crates_above_them() {
    let order = rooms_in_order();
    let uses = workspace_uses();
    for (user, used) in &uses {
        let place = order.iter().position(|room| room == user).unwrap_or_else(|| panic!("{user} is not in the table"));
        for name in used {
            assert!(order[..place].contains(name), "{user} uses {name}, which does not stand above it");
        }
    }
    for room in &order {
        assert!(uses.contains_key(room), "ARCHITECTURE.md has a room {room}, the workspace has no such crate");
    }
}

#[test]
fn what_tests_share_is_for_tests_alone() {
    for package in packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_for_tests = dependency["kind"] == "dev";
            assert!(dependency["name"] != "shotline-testing" || is_for_tests, "{} needs it to run", package["name"]);
        }
    }
}

#[test]
fn closed_doors_stay_closed() {
    let uses = workspace_uses();
    for (user, doors) in CLOSED_DOORS {
        let reached = reachable(&uses, user);
        for door in *doors {
            assert!(!reached.contains(*door), "{user} uses {door}, directly or through another crate");
        }
    }
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let Ok(inside) = file.strip_prefix(root().join("crates")) else { continue };
        seen += 1;
        let parts: Vec<_> = inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let allowed = UNSAFE_CRATES.contains(&parts[0].as_str())
            || parts[1..].iter().any(|part| UNSAFE_FOLDERS.contains(&part.as_str()));
        let text = fs::read_to_string(file).unwrap();
        if let (false, Some(line)) = (allowed, text.lines().position(has_unsafe)) {
            panic!("{}:{}: unsafe outside its rooms", file.display(), line + 1);
        }
    }
    assert!(seen > 10, "only {seen} source files found: this test looks in the wrong place");
}

#[test]
fn no_source_file_is_long() {
    for file in sources() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines, at most {LONGEST_FILE} are readable", file.display());
    }
}

#[test]
fn no_import_cycle_between_modules() {
    let mut failures = String::new();
    for (name, sources) in crates() {
        for cycle in cycles::cycles(&sources) {
            failures.push_str(&format!("{name}:\n{cycle}"));
        }
    }
    assert!(failures.is_empty(), "files import each other in a cycle:\n{failures}");
}

#[test]
fn no_function_is_long() {
    let crates = crates();
    assert!(crates.len() > 10, "only {} crates found: this test looks in the wrong place", crates.len());
    let functions = crates.iter().flat_map(|(name, sources)| functions::functions(name, sources));
    let long = functions.filter(|function| function.lines > LONGEST_FUNCTION);
    let long: Vec<_> = long
        .map(|Function { owner, file, name, lines }| format!("{owner}/src/{file}: {name} has {lines} lines"))
        .collect();
    assert!(long.is_empty(), "functions of more than {LONGEST_FUNCTION} lines:\n{}", long.join("\n"));
}

/// The parsed sources of every crate, by the name of its folder.
fn crates() -> BTreeMap<String, Sources> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let name = |folder: &Path| folder.file_name().unwrap().to_string_lossy().into_owned();
    let parsed = |folder: PathBuf| (name(&folder), Sources::parse(&source::read_texts(&folder.join("src"))));
    folders.filter(|folder| folder.join("src").is_dir()).map(parsed).collect()
}

/// The crates in the order of ARCHITECTURE.md's table, the highest first.
fn rooms_in_order() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| crate |")).take_while(|line| line.starts_with('|'));
    let first_cells = table.skip(2).map(|line| line.split('|').nth(1).unwrap().to_owned());
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Every crate of the workspace with the workspace's crates that it names in its Cargo.toml, for whatever
/// purpose: tests obey the arrows too.
fn workspace_uses() -> BTreeMap<String, BTreeSet<String>> {
    let used = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap();
        dependencies.iter().filter(|d| d["path"].is_string()).map(|d| room(&d["path"])).collect()
    };
    packages().iter().map(|package| (room(&package["manifest_path"]), used(package))).collect()
}

/// The workspace's packages, as Cargo knows them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The folder under `crates/` in a path of Cargo's.
fn room(path: &serde_json::Value) -> String {
    let inside = Path::new(path.as_str().unwrap()).strip_prefix(root().join("crates")).unwrap();
    inside.iter().next().unwrap().to_string_lossy().into_owned()
}

fn reachable(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(user) = open.pop() {
        open.extend(uses[user].iter().filter(|name| reached.insert((*name).clone())).map(String::as_str));
    }
    reached
}

/// Whether the keyword begins a block, function, implementation, trait or foreign block on this line;
/// comments and lint names do not count.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap();
    let begins = |rest: &str| ["{", "fn ", "impl", "trait ", "extern "].iter().any(|next| rest.starts_with(next));
    code.split("unsafe").skip(1).any(|rest| begins(rest.trim_start()))
}

/// Source files of this repository: not what was built, fetched or generated.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                let elsewhere = ["target", "node_modules", "generated", "book", "artifacts"].contains(&name.as_str());
                if !elsewhere && !name.starts_with('.') {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| SOURCES.iter().any(|source| extension == *source)) {
                found.push(path);
            }
        }
    }
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}
