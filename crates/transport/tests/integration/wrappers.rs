//! Every wrapper of the workspace is held to its delegation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The traits that are wrapped.
const TRAITS: [&str; 3] = ["PacketIo", "PrebuiltIo", "Steer"];

#[test]
fn every_wrapper_of_the_workspace_has_its_delegation_checked() {
    let (mut wrappers, mut checked) = (BTreeSet::new(), BTreeSet::new());
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        let text = fs::read_to_string(&file).unwrap();
        // The suite's own tests have wrappers that do wrong.
        let is_suite = file.components().any(|part| part.as_os_str() == "conformance");
        wrappers.extend(text.lines().filter_map(wrapper).filter(|_| !is_suite).map(str::to_owned));
        if text.contains("delegation::check") || is_suite {
            checked.extend(text.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(
        wrappers.contains("Lossy") && wrappers.contains("Demultiplexer"),
        "only {wrappers:?}: looks in the wrong place"
    );
    let missing: Vec<_> = wrappers.difference(&checked).collect();
    assert!(missing.is_empty(), "wrappers without a test with conformance::delegation::check: {missing:?}");
}

/// The type's name, if this line begins an implementation of a trait for what holds another implementation of it.
fn wrapper(line: &str) -> Option<&str> {
    let (generics, rest) = line.trim_start().strip_prefix("impl<")?.split_once('>')?;
    let (of, name) = rest.split_once(" for ")?;
    let of = TRAITS.into_iter().find(|name| of.trim().rsplit("::").next() == Some(name))?;
    let wraps = |bounds: &str| TRAITS.iter().any(|name| bounds.split([' ', '+', ':', ',']).any(|word| word == *name));
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (wraps(generics) && !of.is_empty()).then_some(name)
}

#[test]
fn a_wrapper_is_known_by_its_bound() {
    assert_eq!(wrapper("impl<P: PacketIo> PacketIo for Ud<P> {"), Some("Ud"));
    assert_eq!(wrapper("    impl<P: PrebuiltIo + Send> PacketIo for Whole<P> {"), Some("Whole"));
    assert_eq!(wrapper("impl<S: Steer> Steer for Demultiplexer<'_, S> {"), Some("Demultiplexer"));
    assert_eq!(wrapper("impl<L: Learner> Steer for Look<'_, L> {"), None);
    assert_eq!(wrapper("impl PacketIo for UdpIo {"), None);
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![root.to_path_buf()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
                found.push(entry.path());
            }
        }
    }
    found
}
