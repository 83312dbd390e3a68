//! Signatures of items.

use super::tokens::text;
use crate::source::{attributes, is_for_tests, is_hidden, is_public};
use proc_macro2::TokenTree;
use syn::{Attribute, Fields, Generics, ImplItem, Item, ItemImpl, Meta, TraitItem, Variant, Visibility};

/// Returns the name of a public item.
pub fn name_of(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        Item::Static(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Union(item) => (&item.vis, &item.ident),
        // Exported macros are in the root of the crate, wherever they are defined.
        Item::Macro(item) if item.attrs.iter().any(|one| one.path().is_ident("macro_export")) => {
            return item.ident.as_ref().filter(|_| !item.attrs.iter().any(is_hidden)).map(ToString::to_string);
        }
        _ => return None,
    };
    is_public(visibility, attributes(item)).then(|| name.to_string())
}

/// Returns the attributes that decide whether an item exists, and whether programs may rely on its list of fields.
pub fn conditions(attributes: &[Attribute]) -> String {
    let shown = |one: &&Attribute| one.path().is_ident("cfg") || one.path().is_ident("non_exhaustive");
    attributes.iter().filter(shown).map(|one| format!("#[{}] ", text(&one.meta))).collect()
}

/// Returns the lines of an item: its signature, then fields, variants or methods, and what it derives.
pub fn lines(item: &Item) -> Vec<String> {
    let conditions = conditions(attributes(item));
    let mut lines = match item {
        Item::Const(item) => vec![format!("pub const {}: {}", item.ident, text(&item.ty))],
        Item::Static(item) => vec![format!("pub static {}: {}", item.ident, text(&item.ty))],
        Item::Fn(item) => vec![format!("pub {}", text(&item.sig))],
        Item::Type(item) => vec![format!("pub type {}{} = {}", item.ident, generics(&item.generics), text(&item.ty))],
        Item::Struct(item) => {
            let head = format!("pub struct {}{}", item.ident, generics(&item.generics));
            fields(head, &item.fields, &item.generics)
        }
        Item::Enum(item) => {
            let head = format!("pub enum {}{}{}", item.ident, generics(&item.generics), bounds(&item.generics));
            [head].into_iter().chain(item.variants.iter().map(|one| format!("    {}", variant(one)))).collect()
        }
        Item::Trait(item) => {
            let supertraits: Vec<_> = item.supertraits.iter().map(text).collect();
            let colon = if supertraits.is_empty() { "" } else { ": " };
            let unsafety = if item.unsafety.is_some() { "unsafe " } else { "" };
            let (name, parameters) = (&item.ident, generics(&item.generics));
            let head = format!("pub {unsafety}trait {name}{parameters}{colon}{}", supertraits.join(" + "));
            let head = head + &bounds(&item.generics);
            [head].into_iter().chain(item.items.iter().filter_map(trait_item).map(|one| format!("    {one}"))).collect()
        }
        Item::Macro(item) => vec![format!("macro {}!", item.ident.as_ref().expect("a name"))],
        _ => Vec::new(),
    };
    if let Some(first) = lines.first_mut() {
        first.insert_str(0, &conditions);
    }
    let derived = derived(attributes(item));
    if !derived.is_empty() {
        lines.push(format!("    derive {}", derived.join(", ")));
    }
    lines
}

fn fields(head: String, fields: &Fields, parameters: &Generics) -> Vec<String> {
    let is_open = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
    match fields {
        Fields::Unit => vec![head + &bounds(parameters)],
        Fields::Unnamed(fields) => {
            let shown = |field: &syn::Field| {
                if is_open(&field.vis) { format!("pub {}", text(&field.ty)) } else { "_".to_owned() }
            };
            let shown: Vec<_> = fields.unnamed.iter().map(shown).collect();
            vec![format!("{head}({}){}", shown.join(", "), bounds(parameters))]
        }
        Fields::Named(fields) => {
            let name = |field: &syn::Field| field.ident.as_ref().expect("a name").to_string();
            let open = fields.named.iter().filter(|field| is_open(&field.vis));
            let open =
                open.map(|field| format!("    {}pub {}: {}", conditions(&field.attrs), name(field), text(&field.ty)));
            let has_others = fields.named.iter().any(|field| !is_open(&field.vis));
            let others = has_others.then(|| "    ..".to_owned());
            [head + &bounds(parameters)].into_iter().chain(open).chain(others).collect()
        }
    }
}

fn variant(variant: &Variant) -> String {
    conditions(&variant.attrs) + &text(variant)
}

fn trait_item(item: &TraitItem) -> Option<String> {
    let default = |has: bool| if has { " { .. }" } else { "" };
    match item {
        TraitItem::Fn(item) if !item.attrs.iter().any(is_hidden) => {
            Some(format!("{}{}{}", conditions(&item.attrs), text(&item.sig), default(item.default.is_some())))
        }
        TraitItem::Const(item) => {
            Some(format!("const {}: {}{}", item.ident, text(&item.ty), default(item.default.is_some())))
        }
        TraitItem::Type(item) => Some(text(item).trim_end_matches(';').to_owned()),
        _ => None,
    }
}

/// Returns the lines of an implementation: that of a trait is one line, otherwise one for each public item.
pub fn implementation(item: &ItemImpl) -> Vec<String> {
    let parameters = generics(&item.generics);
    let of = format!("{}{}", text(&item.self_ty), bounds(&item.generics));
    let conditions_of_all = conditions(&item.attrs);
    if let Some((path, _)) = &item.trait_ {
        return vec![format!("{conditions_of_all}impl{parameters} {} for {of}", text(path))];
    }
    // Methods of a type with parameters may depend on them.
    let head = match (&*item.self_ty, parameters.is_empty()) {
        (syn::Type::Path(path), true) if path.path.segments.iter().all(|one| one.arguments.is_none()) => String::new(),
        _ => format!("impl{parameters} {of}: "),
    };
    let items = item.items.iter().filter_map(|item| {
        let (visibility, attrs, signature) = match item {
            ImplItem::Fn(item) => (&item.vis, &item.attrs, text(&item.sig)),
            ImplItem::Const(item) => (&item.vis, &item.attrs, format!("const {}: {}", item.ident, text(&item.ty))),
            _ => return None,
        };
        let is_shown = is_public(visibility, attrs) && !attrs.iter().any(is_for_tests);
        is_shown.then(|| format!("{conditions_of_all}{}{head}pub {signature}", conditions(attrs)))
    });
    items.collect()
}

/// Returns the parameters of an item, without the `where` clause.
fn generics(generics: &Generics) -> String {
    text(generics)
}

/// Returns the `where` clause.
fn bounds(generics: &Generics) -> String {
    let clause = generics.where_clause.as_ref().map(text);
    clause.map(|clause| format!(" {clause}")).unwrap_or_default()
}

fn derived(attributes: &[Attribute]) -> Vec<String> {
    let lists = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("derive") => Some(list.tokens.clone()),
        _ => None,
    });
    let mut names = lists.fold(vec![String::new()], |mut names, tokens| {
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ',' => names.push(String::new()),
                token => names.last_mut().expect("at least one").push_str(&token.to_string()),
            }
        }
        names.push(String::new());
        names
    });
    names.retain(|name| !name.is_empty());
    names.sort();
    names
}
