//! The texts that users read: messages of errors and warnings, summaries, and help.
//!
//! They are collected from the sources into `messages.txt`, so that a change of any text is seen in review and all of
//! them can be read in one place. `UPDATE=1 cargo test -p shotline --test sources messages` writes the file. Doc
//! comments within macros are included, because some macros turn them into help.

use crate::source::{Sources, is_for_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ExprMethodCall, ItemEnum, ItemMod, ItemStruct, Lit, LitStr, Macro, Meta};

/// Macros and methods whose texts are seen only by developers.
const INTERNAL_MACROS: &[&str] = &["assert", "assert_eq", "assert_ne", "debug_assert", "panic", "unreachable", "todo"];
const INTERNAL_METHODS: &[&str] = &["expect"];
/// Derives that turn doc comments into help.
const HELP_DERIVES: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Returns the messages of a crate as text: a heading for each file, and one line for each message.
pub fn render(owner: &str, sources: &Sources) -> String {
    let mut by_file = BTreeMap::<&str, Vec<String>>::new();
    for module in &sources.modules {
        let mut messages = Messages { found: Vec::new(), is_help: false };
        module.items.iter().for_each(|item| messages.visit_item(item));
        by_file.entry(&sources.files[module.file]).or_default().append(&mut messages.found);
    }
    by_file.retain(|_, messages| !messages.is_empty());
    let mut text = String::new();
    for (file, messages) in by_file {
        text.push_str(&format!("== {owner}/src/{file}\n"));
        messages.iter().for_each(|message| text.push_str(&format!("{message}\n")));
    }
    text
}

struct Messages {
    found: Vec<String>,
    /// The visited item is within one whose doc comments are help.
    is_help: bool,
}

impl Messages {
    fn add(&mut self, text: &str) {
        if is_sentence(text) {
            self.found.push(text.trim().replace('\n', "\\n"));
        }
    }

    /// Adds the string literals of a token stream, including those in groups.
    fn add_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                        self.add(&text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    fn add_help<T>(&mut self, attributes: &[Attribute], item: &T, visit: fn(&mut Self, &T)) {
        let outer = self.is_help;
        self.is_help |= derives_help(attributes);
        visit(self, item);
        self.is_help = outer;
    }
}

impl Visit<'_> for Messages {
    fn visit_item_mod(&mut self, _: &ItemMod) {}

    fn visit_attribute(&mut self, attribute: &Attribute) {
        match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => {
                if let (true, Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) = (self.is_help, &pair.value) {
                    self.add(&text.value());
                }
            }
            Meta::List(list) if !list.path.is_ident("doc") && !list.path.is_ident("cfg") => {
                self.add_tokens(list.tokens.clone());
            }
            _ => {}
        }
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        self.add_help(&item.attrs, item, |messages, item| visit::visit_item_struct(messages, item));
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        self.add_help(&item.attrs, item, |messages, item| visit::visit_item_enum(messages, item));
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if !INTERNAL_METHODS.iter().any(|name| call.method == name) {
            visit::visit_expr_method_call(self, call);
        } else {
            self.visit_expr(&call.receiver);
        }
    }

    fn visit_macro(&mut self, found: &Macro) {
        let name = found.path.segments.last().map(|segment| segment.ident.to_string());
        if !name.is_some_and(|name| INTERNAL_MACROS.contains(&name.as_str())) {
            self.add_tokens(found.tokens.clone());
        }
    }

    fn visit_lit_str(&mut self, text: &LitStr) {
        self.add(&text.value());
    }
}

fn derives_help(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let names = list.tokens.clone().into_iter().filter_map(|token| match token {
            TokenTree::Ident(ident) => Some(ident.to_string()),
            _ => None,
        });
        names.into_iter().any(|name| HELP_DERIVES.contains(&name.as_str()))
    })
}

/// Returns `true` if a literal has two words or more, that is, is not a name, a key or a format.
pub fn is_sentence(text: &str) -> bool {
    let word = |word: &&str| word.chars().filter(|c| c.is_ascii_alphabetic()).count() >= 2 && !word.starts_with('{');
    text.split_whitespace().filter(word).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_help_count_and_internal_texts_do_not() {
        let text = r#"
            /// A doc comment is not a message.
            #[derive(Debug, thiserror::Error)]
            enum E { #[error("{0} is not a number")] A(u32) }
            /// Records shots.
            #[derive(clap::Args)]
            struct S { /// The output file.
                out: String }
            fn f() { println!("{} shots lost", g("too few packets").expect("never fails here")); }
            #[test]
            fn t() { f("not a message"); }
        "#;
        let sources = Sources::parse(&[("lib.rs".to_owned(), text.to_owned())].into());
        let expected = "== c/src/lib.rs\n{0} is not a number\nRecords shots.\nThe output file.\n{} shots lost\ntoo few packets\n\
                        never fails here\n";
        assert_eq!(render("c", &sources), expected);
    }
}
