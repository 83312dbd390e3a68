//! The messages' shapes in Rust and in TypeScript are the same.

use std::collections::BTreeMap;

/// Names of the fields by the name of their type.
type Shapes = BTreeMap<String, Vec<String>>;

/// Returns the types that begin with `begin` and end with a brace at the start of a line; a field's name is what stands
/// between `before` and a colon.
fn shapes(source: &str, begin: &str, before: &str) -> Shapes {
    let mut shapes = Shapes::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix(begin).and_then(|rest| rest.strip_suffix(" {")) else { continue };
        let inside = lines.by_ref().take_while(|line| *line != "}");
        let field = |line: &str| Some(line.strip_prefix(before)?.split_once(':')?.0.to_owned());
        shapes.insert(name.to_owned(), inside.filter_map(field).collect());
    }
    shapes
}

#[test]
fn the_page_knows_every_field_of_every_message() {
    let rust = [
        include_str!("../src/status.rs"),
        include_str!("../src/subject.rs"),
        include_str!("../src/pictures/picture.rs"),
    ];
    let mut sent = Shapes::new();
    rust.iter().for_each(|source| sent.extend(shapes(source, "pub struct ", "    pub ")));
    // A header and its payload, which are no JSON object together.
    assert!(sent.remove("Picture").is_some());
    let known = shapes(include_str!("../web/src/protocol.ts"), "export interface ", "  ");
    assert!(sent.len() > 10 && sent["Status"].len() > 8, "{sent:?}");
    assert_eq!(sent, known, "left: what is sent, right: what protocol.ts has");
}
