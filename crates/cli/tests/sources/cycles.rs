//! Import cycles between the files of one crate.
//!
//! File A uses file B if A names an item that B defines, whether by an import, a path or a
//! re-export. A module's declaration, and its re-export of items of its submodules, do not count as a use.

use crate::source::{Meaning, Sources, Use, is_for_tests};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ImplItemFn, Macro, Meta, Path};

/// Edges of the graph of uses: (user, used) to the names that are used.
pub type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What a path resolves to.
#[derive(Clone)]
pub enum Found {
    /// An item: the module that defines it, and its name there.
    Item(usize, String),
    Module(usize),
}

/// Returns the import cycles of a crate, each as lines of `A -> B: names`. A file is listed only in the largest cycle
/// that contains it.
pub fn cycles(sources: &Sources) -> Vec<String> {
    let edges = edges(sources);
    let reached: Vec<_> = (0..sources.files.len()).map(|from| reachable(&edges, from)).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in 0..sources.files.len() {
        let cycle: BTreeSet<_> =
            reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
        if cycle.len() < 2 || !seen.insert(cycle.clone()) {
            continue;
        }
        let edges = edges.iter().filter(|((user, used), _)| cycle.contains(user) && cycle.contains(used));
        let line = |((user, used), names): (&(usize, usize), &BTreeSet<String>)| {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            format!("  {} -> {}: {}\n", sources.files[*user], sources.files[*used], names.join(", "))
        };
        found.push(edges.map(line).collect());
    }
    found
}

fn reachable(edges: &Edges, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(user) = open.pop() {
        let used = edges.range((user, 0)..=(user, usize::MAX)).map(|((_, used), _)| *used);
        open.extend(used.filter(|used| reached.insert(*used)));
    }
    reached
}

/// Returns every use of one file's item in another.
pub fn edges(sources: &Sources) -> Edges {
    let mut uses = Uses { sources, module: 0, edges: Edges::new() };
    for (index, module) in sources.modules.iter().enumerate() {
        uses.module = index;
        module.uses.iter().for_each(|import| uses.add_import(import));
        module.items.iter().for_each(|item| uses.visit_item(item));
    }
    uses.edges
}

/// Visitor that collects the names of other files in a module's code.
struct Uses<'s> {
    sources: &'s Sources,
    module: usize,
    edges: Edges,
}

impl Uses<'_> {
    fn add_import(&mut self, import: &Use) {
        for found in self.sources.find(self.module, &import.path) {
            let Found::Item(owner, name) = found else { continue };
            if !(import.exported && self.sources.is_below(owner, self.module)) {
                self.add(owner, &name);
            }
        }
    }

    fn add_path(&mut self, path: &[String]) {
        for found in self.sources.find(self.module, path) {
            if let Found::Item(owner, name) = found {
                self.add(owner, &name);
            }
        }
    }

    fn add(&mut self, owner: usize, name: &str) {
        let (user, used) = (self.sources.modules[self.module].file, self.sources.modules[owner].file);
        if user != used {
            self.edges.entry((user, used)).or_default().insert(name.to_owned());
        }
    }

    fn add_macro(&mut self, path: &[String]) {
        match path {
            // A macro is also in scope below its definition, without an import.
            [name] if self.sources.find(self.module, path).is_empty() => {
                if let Some(owner) = self.sources.macros.get(name) {
                    self.add(*owner, name);
                }
            }
            _ => self.add_path(path),
        }
    }

    /// Adds the paths in the arguments of a macro or an attribute, which have no common syntax. A single name counts
    /// only if it has the form of a type or is called, because any other may be a variable.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let is = |at: usize, mark: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let follows_path = at > 0 && (is(at - 1, '.') && !(at > 1 && is(at - 2, '.')) || is(at - 1, '\''));
                    let mut path = vec![first.to_string()];
                    while is(at + 1, ':')
                        && is(at + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    let is_called = matches!(tokens.get(at + 1),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    match () {
                        () if follows_path => {}
                        () if is(at + 1, '!') && !is(at + 2, '=') => self.add_macro(&path),
                        () if path.len() > 1 || is_called || is_type_name(&path[0]) => self.add_path(&path),
                        () => {}
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

fn is_type_name(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

fn segments(path: &Path) -> Vec<String> {
    match path.leading_colon {
        Some(_) => Vec::new(),
        None => path.segments.iter().map(|segment| segment.ident.to_string()).collect(),
    }
}

impl Visit<'_> for Uses<'_> {
    fn visit_path(&mut self, path: &Path) {
        let names = segments(path);
        if names.len() > 1 || names.first().is_some_and(|name| is_type_name(name)) {
            self.add_path(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Expr::Path(function) = &*call.func {
            self.add_path(&segments(&function.path));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.add_macro(&segments(&call.path));
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }
}

impl Sources {
    /// Resolves a path in a module. The result is empty for items of other crates.
    pub fn find(&self, from: usize, path: &[String]) -> Vec<Found> {
        self.find_path(from, path, &mut BTreeSet::new())
    }

    fn find_path(&self, from: usize, path: &[String], open: &mut BTreeSet<(usize, Vec<String>)>) -> Vec<Found> {
        let mut found = vec![Found::Module(from)];
        for (place, name) in path.iter().enumerate() {
            let step = |at: &Found| match (at, name.as_str()) {
                // A variant or an associated item.
                (Found::Item(..), _) => vec![at.clone()],
                (Found::Module(_), "crate") if place == 0 => vec![Found::Module(0)],
                (Found::Module(_), "self") => vec![at.clone()],
                (Found::Module(at), "super") => self.modules[*at].parent.map(Found::Module).into_iter().collect(),
                (Found::Module(at), name) => self.find_name(*at, name, open),
            };
            found = found.iter().flat_map(step).collect();
            // A function may have the name of a module; only the module has something below it.
            if place + 1 < path.len() && found.iter().any(|found| matches!(found, Found::Module(_))) {
                found.retain(|found| matches!(found, Found::Module(_)));
            }
        }
        found
    }

    /// Resolves a name in a module. `open` holds the imports that are being resolved.
    fn find_name(&self, module: usize, name: &str, open: &mut BTreeSet<(usize, Vec<String>)>) -> Vec<Found> {
        let mut found = Vec::new();
        for meaning in self.modules[module].names.get(name).into_iter().flatten() {
            match meaning {
                Meaning::Item => found.push(Found::Item(module, name.to_owned())),
                Meaning::Module(child) => found.push(Found::Module(*child)),
                Meaning::Import(path) => {
                    let key = (module, path.clone());
                    if open.insert(key.clone()) {
                        found.extend(self.find_path(module, path, open));
                        open.remove(&key);
                    }
                }
            }
        }
        if found.is_empty() {
            for glob in self.modules[module].uses.iter().filter(|import| import.glob) {
                let key = (module, glob.path.clone());
                if open.insert(key.clone()) {
                    for place in self.find_path(module, &glob.path, open) {
                        if let Found::Module(place) = place {
                            found.extend(self.find_name(place, name, open));
                        }
                    }
                    open.remove(&key);
                }
            }
        }
        found
    }

    /// Returns `true` if `module` is a descendant of `above`.
    fn is_below(&self, module: usize, above: usize) -> bool {
        let mut ancestors = std::iter::successors(self.modules[module].parent, |at| self.modules[*at].parent);
        ancestors.any(|ancestor| ancestor == above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        cycles(&Sources::parse(&texts))
    }

    #[test]
    fn cycle_is_listed_with_its_names() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{self, Second}; pub struct First(Second); fn f() { b::g() }"),
            ("b/mod.rs", "pub struct Second; pub fn g() { super::a::First::new(); }"),
            ("c.rs", "use crate::a::First; fn f(_: First) {}"),
        ]);
        assert_eq!(found, ["  a.rs -> b/mod.rs: Second, g\n  b/mod.rs -> a.rs: First\n"]);
    }

    #[test]
    fn parent_and_child_form_a_cycle() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; struct Shared; fn f() { a::run() }"),
            ("a.rs", "use super::Shared; pub fn run() { let _: Shared; }"),
        ]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn cycle_of_three_files_is_listed_once() {
        let found = cycles_of(&[
            ("main.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "pub struct B(Box<crate::c::C>);"),
            ("c.rs", "use crate::a::*; pub struct C(A);"),
        ]);
        assert_eq!(found, ["  a.rs -> b.rs: B\n  b.rs -> c.rs: C\n  c.rs -> a.rs: A\n"]);
    }

    #[test]
    fn reexport_is_not_a_cycle() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; pub use a::{First, Second};"),
            ("a/mod.rs", "mod first; mod second; pub use first::First; pub use second::*;"),
            ("a/first.rs", "use crate::Second; pub struct First(Second);"),
            ("a/second.rs", "pub struct Second;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn reexport_does_not_hide_a_cycle() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "pub struct A(crate::B);"),
            ("b.rs", "pub struct B(Vec<crate::A>);"),
        ]);
        assert_eq!(found, ["  a.rs -> b.rs: B\n  b.rs -> a.rs: A\n"]);
    }

    #[test]
    fn function_may_have_the_name_of_a_module() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; mod b; fn a() { a::f(); b::g() }"),
            ("a.rs", "pub fn f() {}"),
            ("b.rs", "use super::a::f; pub fn g() { f() }"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn test_module_is_ignored() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "pub struct B; #[cfg(all(test, unix))] mod tests { use crate::a::A; fn f(_: A) {} }"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn comments_and_strings_are_ignored() {
        let found = cycles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "/// [`crate::a::A`] // crate::a::A\npub struct B; pub const TEXT: &str = \"crate::a::A\";"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn paths_in_macros_and_attributes_count() {
        let found = cycles_of(&[
            ("lib.rs", "#[macro_use] mod a; mod b; mod c;"),
            ("a.rs", "macro_rules! say { () => { $crate::b::print() } }"),
            ("b.rs", "pub fn print() { say!() }"),
            ("c.rs", "#[arg(parse = crate::b::print)] struct C;"),
        ]);
        assert_eq!(found, ["  a.rs -> b.rs: print\n  b.rs -> a.rs: say\n"]);
    }
}
