//! Public interface of a crate as text: its public modules, and in each the items with their signatures.
//!
//! It is read from the sources, so it needs neither a particular compiler nor a build. What a macro of the crate
//! generates is listed as the arguments of the macro; that a type is `Send` or `Sync` is not listed.

mod item;
mod tokens;

use crate::cycles::Found;
use crate::source::{Meaning, Sources, attributes, is_for_tests, is_hidden};
use item::{conditions, implementation, lines, name_of};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, ItemImpl, Type};

/// A place that defines an item: a module, and the name there.
type Place = (usize, String);

/// Returns the interface of the crate with this name.
pub fn listing(name: &str, sources: &Sources) -> String {
    let mut listing = Listing {
        sources,
        paths: BTreeMap::new(),
        impls: BTreeMap::new(),
        shown: BTreeMap::new(),
        text: String::new(),
    };
    listing.find_modules(0, name.to_owned());
    listing.find_impls();
    for (path, module) in listing.paths.iter().map(|(module, path)| (path.clone(), *module)).collect::<BTreeMap<_, _>>()
    {
        listing.add_module(module, &path);
    }
    listing.text
}

struct Listing<'s> {
    sources: &'s Sources,
    /// Paths of the modules that are public, as are all above them.
    paths: BTreeMap<usize, String>,
    /// Implementations by the type, or else by the trait, that the crate defines.
    impls: BTreeMap<Place, Vec<&'s ItemImpl>>,
    /// Paths at which items of private modules were listed.
    shown: BTreeMap<Place, String>,
    text: String,
}

impl<'s> Listing<'s> {
    fn find_modules(&mut self, module: usize, path: String) {
        for (name, meanings) in &self.sources.modules[module].names {
            for meaning in meanings {
                if let Meaning::Module(child) = meaning
                    && self.sources.modules[*child].is_public
                {
                    self.find_modules(*child, format!("{path}::{name}"));
                }
            }
        }
        self.paths.insert(module, path);
    }

    fn find_impls(&mut self) {
        for (index, module) in self.sources.modules.iter().enumerate() {
            for item in &module.items {
                let Item::Impl(item) = item else { continue };
                let of_type = match &*item.self_ty {
                    Type::Path(of) => self.resolve(index, &of.path),
                    Type::Reference(of) => match &*of.elem {
                        Type::Path(of) => self.resolve(index, &of.path),
                        _ => None,
                    },
                    _ => None,
                };
                let of_trait = || item.trait_.as_ref().and_then(|(path, _)| self.resolve(index, path));
                if of_trait().is_some_and(|place| self.is_private(&place)) {
                    continue;
                }
                if let Some(place) = of_type.or_else(of_trait) {
                    self.impls.entry(place).or_default().push(item);
                }
            }
        }
    }

    fn is_private(&self, (module, name): &Place) -> bool {
        !self.sources.modules[*module].items.iter().any(|item| name_of(item).as_ref() == Some(name))
    }

    fn resolve(&self, module: usize, path: &syn::Path) -> Option<Place> {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.sources.find(module, &names).into_iter().find_map(|found| match found {
            Found::Item(owner, name) => Some((owner, name)),
            Found::Module(_) => None,
        })
    }

    fn add_module(&mut self, module: usize, path: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&format!("{}pub mod {path}\n", conditions(&self.sources.modules[module].attributes)));
        let mut entries = BTreeSet::new();
        self.collect(module, path, &mut entries);
        entries.iter().for_each(|(_, entry)| self.text.push_str(entry));
    }

    /// Collects what is in a public module: its items, and what it re-exports, by name.
    fn collect(&mut self, module: usize, path: &str, entries: &mut BTreeSet<(String, String)>) {
        let sources = self.sources;
        for item in &sources.modules[module].items {
            if let Some(name) = name_of(item) {
                entries.insert((name.clone(), self.define(&(module, name))));
            }
            if let Item::Macro(call) = item
                && call.ident.is_none()
            {
                entries.extend(self.expansion(module));
            }
        }
        for import in sources.modules[module].uses.iter().filter(|import| import.is_public) {
            let found = sources.find(module, &import.path);
            if import.glob {
                let inner = found.into_iter().filter_map(|found| match found {
                    Found::Module(inner) => Some(inner),
                    Found::Item(..) => None,
                });
                let before = entries.len();
                inner.for_each(|inner| self.collect(inner, path, entries));
                if before == entries.len() {
                    let path = import.path.join("::");
                    entries.insert((path.clone(), format!("    pub use {path}::*\n")));
                }
                continue;
            }
            let Some(name) = &import.name else { continue };
            if found.is_empty() {
                // An item of another crate, or one that a macro of this crate makes.
                let parent = &import.path[..import.path.len() - 1];
                for place in sources.find(module, parent) {
                    if let Found::Module(place) = place {
                        entries.extend(self.expansion(place));
                    }
                }
                let full = import.path.join("::");
                let renamed = if import.path.last() == Some(name) { String::new() } else { format!(" as {name}") };
                entries.insert((name.clone(), format!("    pub use {full}{renamed}\n")));
            }
            for found in found {
                let entry = match found {
                    Found::Item(owner, original) => self.reexport((owner, original), name, path),
                    Found::Module(inner) => match self.paths.get(&inner) {
                        Some(direct) => format!("    pub use {direct}\n"),
                        None => format!("    pub use {} (a private module)\n", import.path.join("::")),
                    },
                };
                entries.insert((name.clone(), entry));
            }
        }
    }

    /// Returns the entry of an item that a module re-exports: its definition, unless another path has it.
    fn reexport(&mut self, place: Place, name: &str, path: &str) -> String {
        let direct = self.paths.get(&place.0).map(|direct| format!("{direct}::{}", place.1));
        match direct.or_else(|| self.shown.get(&place).cloned()) {
            Some(other) if other.ends_with(&format!("::{name}")) => format!("    pub use {other}\n"),
            Some(other) => format!("    pub use {other} as {name}\n"),
            None => {
                self.shown.insert(place.clone(), format!("{path}::{name}"));
                self.define(&place)
            }
        }
    }

    /// Returns the signatures of an item, with those of its implementations.
    fn define(&self, place: &Place) -> String {
        let (owner, name) = place;
        let items = self.sources.modules[*owner].items.iter();
        // The same name may be there for several conditions, and in several namespaces.
        let items = items.filter(|item| name_of(item).as_ref() == Some(name));
        let mut text = String::new();
        for item in items {
            lines(item).iter().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        let mut of_type = BTreeSet::new();
        let visible = |item: &&&ItemImpl| !item.attrs.iter().any(|one| is_for_tests(one) || is_hidden(one));
        self.impls
            .get(place)
            .into_iter()
            .flatten()
            .filter(visible)
            .for_each(|item| of_type.extend(implementation(item)));
        of_type.iter().for_each(|line| text.push_str(&format!("        {line}\n")));
        text
    }

    /// Returns the arguments of the macros of this crate that make items in a module.
    fn expansion(&self, module: usize) -> Vec<(String, String)> {
        let items = self.sources.modules[module].items.iter();
        let calls = items.filter_map(|item| match item {
            Item::Macro(call) if call.ident.is_none() && !attributes(item).iter().any(is_for_tests) => Some(&call.mac),
            _ => None,
        });
        let own = calls.filter_map(|call| {
            let name = call.path.get_ident()?.to_string();
            self.sources.macros.contains_key(&name).then_some((name, call))
        });
        own.map(|(name, call)| {
            let arguments = tokens::arguments(call.tokens.clone()).into_iter().map(|line| format!("        {line}\n"));
            (name.clone(), format!("    {name}!\n{}", arguments.collect::<String>()))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing_of(files: &[(&str, &str)]) -> String {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        listing("it", &Sources::parse(&texts))
    }

    #[test]
    fn only_what_programs_can_name_is_listed() {
        let found = listing_of(&[(
            "lib.rs",
            "#[derive(Debug, Clone)] pub struct S<T> { pub a: Vec<T>, b: u8 }
             impl<T> S<T> { pub fn f(&self,
                 x: u8,
             ) -> T { todo!() } fn g() {} pub(crate) fn h() {} #[doc(hidden)] pub fn i() {} }
             impl<T> Drop for S<T> { fn drop(&mut self) {} }
             trait Private {} impl Private for S<u8> {}
             pub(crate) struct Inner; mod private { pub struct Unreachable; }
             pub mod open { #[non_exhaustive] pub enum E { A, B(u8) } pub const C: u8 = 1; }",
        )]);
        let expected = "pub mod it
    pub struct S<T>
        pub a: Vec<T>
        ..
        derive Clone, Debug
        impl<T> Drop for S<T>
        impl<T> S<T>: pub fn f(&self, x: u8) -> T

pub mod it::open
    pub const C: u8
    #[non_exhaustive] pub enum E
        A
        B(u8)
";
        assert_eq!(found, expected);
    }

    #[test]
    fn item_of_a_private_module_is_listed_where_it_is_exported() {
        let found = listing_of(&[
            ("lib.rs", "mod a; pub mod b; pub use a::T; pub use b::F as G; pub use other::X;"),
            ("a.rs", "pub trait T: Send { fn f(&self); fn g() -> u8 { 1 } type A: Copy; }"),
            ("b.rs", "pub struct F(pub u8, u8); pub use crate::a::T;"),
        ]);
        let expected = "pub mod it
    pub use it::b::F as G
    pub trait T: Send
        fn f(&self)
        fn g() -> u8 { .. }
        type A: Copy
    pub use other::X

pub mod it::b
    pub struct F(pub u8, _)
    pub use it::T
";
        assert_eq!(found, expected);
    }

    #[test]
    fn arguments_of_a_macro_stand_for_its_items() {
        let found = listing_of(&[
            ("lib.rs", "mod a; pub use a::Made;"),
            ("a.rs", "macro_rules! make { ($($a:ident),*) => {} } make! { /// One.\n One, #[cfg(x)] Two = 2 }"),
        ]);
        assert_eq!(found, "pub mod it\n    pub use a::Made\n    make!\n        One\n        Two = 2\n");
    }
}
