//! Lengths of functions.

use crate::source::{Sources, is_for_tests};
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemMod, Signature, TraitItemFn};

/// A function and its length in lines, from `fn` to its closing brace.
#[derive(Debug, PartialEq)]
pub struct Function<'s> {
    /// Name of the crate.
    pub owner: &'s str,
    /// Path relative to `src`.
    pub file: &'s str,
    pub name: String,
    pub lines: usize,
}

/// Returns the functions and methods of a crate without its tests.
pub fn functions<'s>(owner: &'s str, sources: &'s Sources) -> Vec<Function<'s>> {
    let mut found = Vec::new();
    for module in &sources.modules {
        let mut lengths = Lengths { owner, file: &sources.files[module.file], found: &mut found };
        module.items.iter().for_each(|item| lengths.visit_item(item));
    }
    found
}

struct Lengths<'s, 'f> {
    owner: &'s str,
    file: &'s str,
    found: &'f mut Vec<Function<'s>>,
}

impl Lengths<'_, '_> {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let (first, last) = (signature.fn_token.span.start(), block.brace_token.span.close().end());
        let lines = last.line - first.line + 1;
        self.found.push(Function { owner: self.owner, file: self.file, name: signature.ident.to_string(), lines });
    }
}

impl Visit<'_> for Lengths<'_, '_> {
    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            self.add(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, _: &ItemMod) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_methods_count_and_tests_do_not() {
        let text = "/// Doc.\n#[inline]\npub fn short() {}\nstruct S;\nimpl S {\n    fn long(\n        &self,\n    ) {\n        \
                    let _ = 1;\n    }\n}\n#[test]\nfn proof() {\n}\n#[cfg(test)]\nmod tests { fn help() {} }\n";
        let sources = Sources::parse(&[("lib.rs".to_owned(), text.to_owned())].into());
        let found: Vec<_> = functions("c", &sources).into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(found, [("short".to_owned(), 1), ("long".to_owned(), 5)]);
    }
}
