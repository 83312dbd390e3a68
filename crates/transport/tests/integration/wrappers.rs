//! Every wrapper in the workspace has a delegation check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The traits that are wrapped, and the function that checks the delegation of each.
const TRAITS: [(&str, &str); 3] = [
    ("PacketIo", "delegation::check("),
    ("PrebuiltIo", "delegation::check_prebuilt("),
    // Checked together with the transport that wraps the steer.
    ("Steer", "delegation::check("),
];

#[test]
fn every_wrapper_in_the_workspace_has_a_delegation_check() {
    let (mut wrappers, mut checked) = (BTreeSet::new(), BTreeSet::new());
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        let text = fs::read_to_string(&file).unwrap();
        // The suite's own tests have wrappers that are wrong on purpose.
        let is_suite = file.components().any(|part| part.as_os_str() == "conformance");
        let found = text.lines().filter_map(wrapper).filter(|_| !is_suite);
        wrappers.extend(found.map(|(of, name)| (of, name.to_owned())));
        for (of, check) in TRAITS {
            // Within the suite the functions have no path.
            if text.contains(check) || is_suite && text.contains(&check["delegation::".len()..]) {
                checked.extend(text.split('"').skip(1).step_by(2).map(|name| (of, name.to_owned())));
            }
        }
    }
    for known in [("PacketIo", "Lossy"), ("Steer", "Demultiplexer")] {
        assert!(wrappers.contains(&(known.0, known.1.to_owned())), "only {wrappers:?}: looks in the wrong place");
    }
    let missing: Vec<_> = wrappers.difference(&checked).collect();
    assert!(missing.is_empty(), "wrappers without a test of their delegation: {missing:?}");
}

/// Returns the trait and the type's name, if this line starts an implementation of a trait for a type that is generic
/// over another implementation of it.
fn wrapper(line: &str) -> Option<(&'static str, &str)> {
    let (generics, rest) = line.trim_start().strip_prefix("impl<")?.split_once('>')?;
    let (of, name) = rest.split_once(" for ")?;
    let (of, _) = TRAITS.into_iter().find(|(name, _)| of.trim().rsplit("::").next() == Some(name))?;
    let is_trait = |word: &str| TRAITS.iter().any(|(name, _)| word == *name);
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    generics.split([' ', '+', ':', ',']).any(is_trait).then_some((of, name))
}

#[test]
fn wrappers_are_recognised_by_their_trait_bound() {
    assert_eq!(wrapper("impl<P: PacketIo> PacketIo for Ud<P> {"), Some(("PacketIo", "Ud")));
    assert_eq!(wrapper("    impl<P: PrebuiltIo + Send> PacketIo for Whole<P> {"), Some(("PacketIo", "Whole")));
    assert_eq!(wrapper("impl<S: Steer> Steer for Demultiplexer<'_, S> {"), Some(("Steer", "Demultiplexer")));
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
