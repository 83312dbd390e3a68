//! Rules about the sources that the compiler does not check: layering of crates, import cycles, where `unsafe` is
//! allowed, lengths of files and functions, and the texts of messages.

mod api;
mod cycles;
mod errors;
mod functions;
mod messages;
mod page;
mod python;
mod source;
mod syntax;

use functions::Function;
use source::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Dependencies that are forbidden although the table allows them, also through other crates: (crate, dependencies).
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("instrument", &["acquire", "store", "verbs"]), // emulators reach the receiver only over the wire
    ("store", &["transport"]),
    ("compute", &["transport"]),
];

/// Crates in which `unsafe` is allowed anywhere. In others it is allowed in these folders only.
const UNSAFE_CRATES: &[&str] = &["memory", "transport", "python", "capi"];
const UNSAFE_FOLDERS: &[&str] = &["sys", "soft", "shm", "ibverbs"];

const MAX_FILE_LINES: usize = 600;
/// Written from several sources: one header is what C programmers expect.
const GENERATED: &str = "crates/capi/include/shotline.h";
const MAX_FUNCTION_LINES: usize = 80;
const SOURCES: &[&str] = &["rs", "py", "c", "h", "sv", "ts", "tsx"];

#[test]
fn crates_use_only_crates_above_them() {
    let order = crates_in_order();
    let uses = workspace_uses();
    for (user, used) in &uses {
        let index = order.iter().position(|name| name == user).unwrap_or_else(|| panic!("{user} is not in the table"));
        for name in used {
            assert!(order[..index].contains(name), "{user} uses {name}, which is not above it in ARCHITECTURE.md");
        }
    }
    for name in &order {
        assert!(uses.contains_key(name), "ARCHITECTURE.md lists {name}, the workspace has no such crate");
    }
}

#[test]
fn testing_is_only_a_dev_dependency() {
    for package in packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_for_tests = dependency["kind"] == "dev";
            assert!(dependency["name"] != "shotline-testing" || is_for_tests, "{} needs it to run", package["name"]);
        }
    }
}

#[test]
fn forbidden_dependencies_are_absent() {
    let uses = workspace_uses();
    for (user, forbidden) in FORBIDDEN {
        let reached = reachable(&uses, user);
        for name in *forbidden {
            assert!(!reached.contains(*name), "{user} uses {name}, directly or through another crate");
        }
    }
}

#[test]
fn unsafe_is_only_in_its_folders() {
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let Ok(inside) = file.strip_prefix(root().join("crates")) else { continue };
        seen += 1;
        let parts: Vec<_> = inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let allowed = UNSAFE_CRATES.contains(&parts[0].as_str())
            || parts[1..].iter().any(|part| UNSAFE_FOLDERS.contains(&part.as_str()));
        let text = fs::read_to_string(file).unwrap();
        if let (false, Some(line)) = (allowed, text.lines().position(has_unsafe)) {
            panic!("{}:{}: unsafe is not allowed in this file", file.display(), line + 1);
        }
    }
    assert!(seen > 10, "only {seen} source files found: this test looks in the wrong place");
}

#[test]
fn files_are_short() {
    for file in sources().into_iter().filter(|file| !file.ends_with(GENERATED)) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= MAX_FILE_LINES, "{} has {lines} lines, at most {MAX_FILE_LINES} are allowed", file.display());
    }
}

#[test]
fn modules_have_no_import_cycle() {
    let mut failures = String::new();
    for (name, sources) in crates() {
        for cycle in cycles::cycles(&sources) {
            failures.push_str(&format!("{name}:\n{cycle}"));
        }
    }
    assert!(failures.is_empty(), "files import each other in a cycle:\n{failures}");
}

#[test]
fn functions_are_short() {
    let crates = crates();
    assert!(crates.len() > 10, "only {} crates found: this test looks in the wrong place", crates.len());
    let functions = crates.iter().flat_map(|(name, sources)| functions::functions(name, sources));
    let long = functions.filter(|function| function.lines > MAX_FUNCTION_LINES);
    let long: Vec<_> = long
        .map(|Function { owner, file, name, lines }| format!("{owner}/src/{file}: {name} has {lines} lines"))
        .collect();
    assert!(long.is_empty(), "functions of more than {MAX_FUNCTION_LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn messages_match_the_snapshot() {
    let texts: Vec<_> = crates().iter().map(|(name, sources)| messages::render(name, sources)).collect();
    shotline_testing::assert_committed(
        &root().join("crates/cli/tests/sources/messages.txt"),
        texts.concat().as_bytes(),
    );
}

#[test]
fn page_of_messages_lists_every_error() {
    let page = cures().page(page::INTRODUCTION, &errors());
    shotline_testing::assert_committed(&root().join("docs/messages.md"), page.as_bytes());
}

/// Crates that programs outside of this repository build on.
const LIBRARIES: &[&str] = &["transport", "verbs", "store", "acquire"];

#[test]
fn public_interfaces_match_their_listings() {
    let crates = crates();
    for name in LIBRARIES {
        let listing = api::listing(&format!("shotline_{name}"), &crates[*name]);
        shotline_testing::assert_committed(&root().join(format!("crates/{name}/api.txt")), listing.as_bytes());
    }
}

/// Texts that begin like errors, and are warnings of a run that goes on, or checks of `doctor`.
const WARNINGS: &[&str] = &[
    "cannot be read further",
    "cannot create a recorder: ",
    "cannot flush ",
    "cannot register {bytes} bytes of shot buffers",
    "cannot write row {row}",
    "expected {lanes} lanes, found {found} at the far end",
];

#[test]
fn texts_that_expect_something_are_on_the_page() {
    // The search for errors follows the code; this one looks at every text, and so finds what the other one overlooks.
    let page = fs::read_to_string(root().join("docs/messages.md")).unwrap();
    let mut absent = Vec::new();
    let mut unused: BTreeSet<_> = WARNINGS.iter().collect();
    for (name, sources) in crates() {
        let rendered = messages::render(&name, &sources);
        let mut is_internal = false;
        for line in rendered.lines() {
            if let Some(file) = line.strip_prefix("== ") {
                is_internal = page::is_internal(file);
            } else if let Some(warning) = WARNINGS.iter().find(|warning| line.starts_with(**warning)) {
                unused.remove(warning);
            } else if !is_internal && (line.starts_with("expected ") || line.starts_with("cannot ")) {
                let text = page::varied(&line.replace("\\n", " "));
                absent.extend((!page.contains(&text)).then(|| line.to_owned()));
            }
        }
    }
    assert!(unused.is_empty(), "no longer in the sources: {unused:?}");
    assert!(absent.is_empty(), "not in docs/messages.md:\n{}", absent.join("\n"));
}

#[test]
fn declared_errors_have_a_cause() {
    let errors = errors();
    let without = errors.iter().filter(|error| error.of.is_some() && !error.part && error.cause.is_none());
    let without: Vec<_> = without.map(|error| format!("{}: {}", error.file, error.text)).collect();
    assert!(without.is_empty(), "errors without a doc comment:\n{}", without.join("\n"));
}

#[test]
fn every_error_has_a_topic_with_a_cure() {
    let (cures, errors) = (cures(), errors());
    let without = errors.iter().filter(|error| cures.topic_of(&error.file).is_none());
    let files: BTreeSet<_> = without.map(|error| &error.file).collect();
    assert!(files.is_empty(), "files of no topic in cures.toml: {files:?}");
    assert!(errors.len() > 1000, "only {} messages found: this test looks in the wrong place", errors.len());
}

#[test]
fn every_cure_is_of_a_message() {
    let unused = cures().unused(&errors());
    assert!(unused.is_empty(), "entries of cures.toml that no message uses:\n{}", unused.join("\n"));
}

fn cures() -> page::Cures {
    let path = root().join("crates/cli/tests/sources/cures.toml");
    page::Cures::parse(&fs::read_to_string(path).unwrap())
}

/// Returns the messages of errors that a user can see.
fn errors() -> Vec<errors::ErrorText> {
    let crates = crates();
    let mut types = errors::ErrorTypes::default();
    crates.values().for_each(|sources| types.add(sources));
    let all = crates.iter().flat_map(|(name, sources)| errors::errors(name, sources, &types));
    let python = ["python", "python/shotline"].map(|folder| python::errors(&root().join(folder), folder));
    all.chain(python.into_iter().flatten()).filter(page::is_for_users).collect()
}

/// Returns the parsed sources of every crate by the name of its folder.
fn crates() -> BTreeMap<String, Sources> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let name = |folder: &Path| folder.file_name().unwrap().to_string_lossy().into_owned();
    let parsed = |folder: PathBuf| (name(&folder), Sources::parse(&source::read_texts(&folder.join("src"))));
    folders.filter(|folder| folder.join("src").is_dir()).map(parsed).collect()
}

/// Returns the crates in the order of the table in ARCHITECTURE.md, from the top.
fn crates_in_order() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| crate |")).take_while(|line| line.starts_with('|'));
    let first_cells = table.skip(2).map(|line| line.split('|').nth(1).unwrap().to_owned());
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns every crate of the workspace with its dependencies in the workspace, dev-dependencies included.
fn workspace_uses() -> BTreeMap<String, BTreeSet<String>> {
    let used = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap();
        dependencies.iter().filter(|d| d["path"].is_string()).map(|d| folder(&d["path"])).collect()
    };
    packages().iter().map(|package| (folder(&package["manifest_path"]), used(package))).collect()
}

/// Returns the packages of the workspace from `cargo metadata`.
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

/// Returns the folder below `crates/` in a path from `cargo metadata`.
fn folder(path: &serde_json::Value) -> String {
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

/// Returns `true` if `unsafe` starts a block, function, implementation, trait or foreign block on this line. Comments
/// and lint names do not count.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap();
    let begins = |rest: &str| ["{", "fn ", "impl", "trait ", "extern "].iter().any(|next| rest.starts_with(next));
    code.split("unsafe").skip(1).any(|rest| begins(rest.trim_start()))
}

/// Returns the source files of the repository without built, fetched and generated ones.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                let elsewhere = ["node_modules", "generated", "book", "artifacts"].contains(&name.as_str());
                // A build folder of cargo, and not the module of this name. Cargo tags only folders that it has created.
                let is_build = path.join("CACHEDIR.TAG").exists() || path == root().join("target");
                if !elsewhere && !is_build && !name.starts_with('.') {
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
