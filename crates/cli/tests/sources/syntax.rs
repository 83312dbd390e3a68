//! What the search for messages reads from syntax trees: attributes, doc comments, and the names in types and patterns.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, Pat, Type};

/// Returns the text of `#[error("..")]`.
pub fn error_text(attrs: &[Attribute]) -> Option<String> {
    let list = attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("error") => Some(list.tokens.clone()),
        _ => None,
    })?;
    match list.into_iter().next()? {
        TokenTree::Literal(literal) => Some(syn::parse_str::<LitStr>(&literal.to_string()).ok()?.value()),
        _ => None,
    }
}

pub fn derives_error(attrs: &[Attribute]) -> bool {
    attrs.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| match &attribute.meta {
        Meta::List(list) => token_idents(list.tokens.clone()).contains("Error"),
        _ => false,
    })
}

/// Returns the first paragraph of a doc comment, with links as plain code.
pub fn doc(attrs: &[Attribute]) -> Option<String> {
    let lines = attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let plain = paragraph.replace("[`", "`").replace("`]", "`");
    // Codes of a protocol begin with their number.
    let plain = match plain.split_once(": ") {
        Some((number, rest)) if number.parse::<u16>().is_ok() => capitalised(rest),
        _ => plain,
    };
    Some(plain).filter(|text| !text.is_empty())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub fn trait_name(item: &syn::ItemImpl) -> Option<String> {
    item.trait_.as_ref()?.0.segments.last().map(|segment| segment.ident.to_string())
}

pub fn type_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Returns every name in a type.
pub fn idents(of: &Type) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl Visit<'_> for Names {
        fn visit_ident(&mut self, ident: &syn::Ident) {
            self.0.insert(ident.to_string());
        }
    }
    let mut names = Names(BTreeSet::new());
    names.visit_type(of);
    names.0
}

fn token_idents(tokens: TokenStream) -> BTreeSet<String> {
    let name = |token| match token {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    };
    tokens.into_iter().filter_map(name).collect()
}

pub fn pattern_names(pattern: &Pat) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl Visit<'_> for Names {
        fn visit_pat_ident(&mut self, pattern: &syn::PatIdent) {
            self.0.insert(pattern.ident.to_string());
            visit::visit_pat_ident(self, pattern);
        }
    }
    let mut names = Names(BTreeSet::new());
    names.visit_pat(pattern);
    names.0
}

/// Returns the names of the variables that a format inserts.
pub fn inserted_names(format: &str) -> Vec<String> {
    let names = format.split('{').skip(1).map(|rest| rest.split(['}', ':']).next().unwrap_or_default());
    names.filter(|name| name.starts_with(char::is_alphabetic)).map(str::to_owned).collect()
}
