//! The Rust sources of one crate, parsed, as a tree of modules without its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Attribute, Item, ItemUse, Meta, Token, UseTree, Visibility};

/// Texts of source files by their path below `src`, with `/` between folders.
pub type Texts = BTreeMap<String, String>;

/// The sources of a crate; index 0 of `modules` is its root.
pub struct Sources {
    /// Paths below `src`.
    pub files: Vec<String>,
    pub modules: Vec<Module>,
    /// Index of the module that defines each `macro_rules!` macro.
    pub macros: BTreeMap<String, usize>,
}

/// A module: a file, or a `mod name { .. }` within one.
pub struct Module {
    pub parent: Option<usize>,
    /// It is `pub`, and its documentation is not hidden.
    pub is_public: bool,
    /// The attributes of its declaration.
    pub attributes: Vec<Attribute>,
    /// Index of the file that contains it.
    pub file: usize,
    pub names: BTreeMap<String, Vec<Meaning>>,
    /// The `use` declarations, those within functions included.
    pub uses: Vec<Use>,
    /// Its items without those for tests, nested modules and `use` declarations.
    pub items: Vec<Item>,
}

/// What a name means in the module that has it.
#[derive(Clone)]
pub enum Meaning {
    /// An item defined there.
    Item,
    /// A module, by its index.
    Module(usize),
    /// The import of a path.
    Import(Vec<String>),
}

/// One imported path.
pub struct Use {
    pub path: Vec<String>,
    pub glob: bool,
    /// The name that it gets; none for `_` and of a glob.
    pub name: Option<String>,
    /// It has a visibility, as `pub use` has.
    pub exported: bool,
    /// That visibility is `pub`.
    pub is_public: bool,
}

/// Visibility of a `use` declaration.
#[derive(Clone, Copy)]
struct Exported {
    exported: bool,
    is_public: bool,
}

/// Reads every `.rs` file below a folder.
pub fn read_texts(src: &Path) -> Texts {
    let mut texts = Texts::new();
    let mut open = vec![src.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
                texts.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    texts
}

impl Sources {
    /// Parses the files that `lib.rs` or `main.rs` reaches by `mod` declarations.
    ///
    /// # Panics
    ///
    /// If there is no such root, a file does not parse, or a declared module has no file.
    pub fn parse(texts: &Texts) -> Self {
        let root = ["lib.rs", "main.rs"].into_iter().find(|name| texts.contains_key(*name)).expect("a crate root");
        let mut sources = Self { files: Vec::new(), modules: Vec::new(), macros: BTreeMap::new() };
        sources.add_file(texts, root, "", None);
        sources
    }

    /// Adds a file whose child modules are in `folder`, which is empty or ends in `/`.
    fn add_file(&mut self, texts: &Texts, name: &str, folder: &str, parent: Option<usize>) -> usize {
        let parsed = syn::parse_file(&texts[name]).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.files.push(name.to_owned());
        self.add_module(texts, parsed.items, folder, parent, self.files.len() - 1)
    }

    fn add_module(
        &mut self,
        texts: &Texts,
        items: Vec<Item>,
        folder: &str,
        parent: Option<usize>,
        file: usize,
    ) -> usize {
        let index = self.modules.len();
        self.modules.push(Module {
            parent,
            is_public: parent.is_none(),
            attributes: Vec::new(),
            file,
            names: BTreeMap::new(),
            uses: Vec::new(),
            items: Vec::new(),
        });
        for item in items.into_iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            self.add_item(texts, item, folder, index);
        }
        index
    }

    fn add_item(&mut self, texts: &Texts, item: Item, folder: &str, module: usize) {
        if let Item::Mod(item) = item {
            let name = item.ident.to_string();
            let below = format!("{folder}{name}/");
            let child = match item.content {
                Some((_, items)) => self.add_module(texts, items, &below, Some(module), self.modules[module].file),
                None => {
                    let places = [format!("{folder}{name}.rs"), format!("{below}mod.rs")];
                    let place = places.iter().find(|place| texts.contains_key(*place));
                    let place = place.unwrap_or_else(|| panic!("no file of `mod {name};`: {places:?}"));
                    self.add_file(texts, place, &below, Some(module))
                }
            };
            self.modules[child].is_public = is_public(&item.vis, &item.attrs);
            self.modules[child].attributes = item.attrs;
            self.modules[module].names.entry(name).or_default().push(Meaning::Module(child));
            return;
        }
        let mut imports = Imports(&mut self.modules[module]);
        imports.visit_item(&item);
        if let Item::Macro(item) = &item
            && let Some(name) = &item.ident
        {
            self.macros.insert(name.to_string(), module);
        }
        let module = &mut self.modules[module];
        for name in defined_names(&item) {
            module.names.entry(name).or_default().push(Meaning::Item);
        }
        if !matches!(item, Item::Use(_)) {
            module.items.push(item);
        }
    }
}

/// Collects the `use` declarations of a module; those within its functions count as the module's own.
struct Imports<'m>(&'m mut Module);

impl Visit<'_> for Imports<'_> {
    fn visit_item_use(&mut self, item: &ItemUse) {
        let exported = !matches!(item.vis, Visibility::Inherited);
        let exported = Exported { exported, is_public: is_public(&item.vis, &item.attrs) };
        if item.leading_colon.is_none() && !item.attrs.iter().any(is_for_tests) {
            add_uses(self.0, &item.tree, &mut Vec::new(), exported);
        }
    }

    fn visit_item_mod(&mut self, _: &syn::ItemMod) {}
}

fn add_uses(module: &mut Module, tree: &UseTree, prefix: &mut Vec<String>, exported: Exported) {
    match tree {
        UseTree::Path(tree) => {
            prefix.push(tree.ident.to_string());
            add_uses(module, &tree.tree, prefix, exported);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_uses(module, tree, prefix, exported)),
        UseTree::Glob(_) => {
            let Exported { exported, is_public } = exported;
            module.uses.push(Use { path: prefix.clone(), glob: true, name: None, exported, is_public });
        }
        UseTree::Name(name) if name.ident == "self" => {
            add_import(module, prefix.clone(), prefix.last().cloned(), exported);
        }
        UseTree::Name(name) => {
            let path = [prefix.as_slice(), &[name.ident.to_string()]].concat();
            add_import(module, path, Some(name.ident.to_string()), exported);
        }
        UseTree::Rename(name) => {
            let path = match name.ident == "self" {
                true => prefix.clone(),
                false => [prefix.as_slice(), &[name.ident.to_string()]].concat(),
            };
            add_import(module, path, Some(name.rename.to_string()), exported);
        }
    }
}

fn add_import(module: &mut Module, path: Vec<String>, name: Option<String>, exported: Exported) {
    let (name, Exported { exported, is_public }) = (name.filter(|name| name != "_"), exported);
    module.uses.push(Use { path: path.clone(), glob: false, name: name.clone(), exported, is_public });
    if let Some(name) = name {
        module.names.entry(name).or_default().push(Meaning::Import(path));
    }
}

/// Returns `true` if an item is `pub`, and its documentation is not hidden.
pub fn is_public(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(is_hidden)
}

/// Returns `true` for `#[doc(hidden)]`.
pub fn is_hidden(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    }
}

/// Returns `true` if an attribute limits its item to test builds.
pub fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => needs_test(list),
        _ => false,
    }
}

/// Returns `true` if a condition of `cfg` can hold only together with `test`.
fn needs_test(list: &syn::MetaList) -> bool {
    let parts = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone()).unwrap_or_default();
    let mut needs = parts.iter().map(|part| match part {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => !list.path.is_ident("not") && needs_test(list),
        Meta::NameValue(_) => false,
    });
    if list.path.is_ident("any") { needs.all(|needs| needs) } else { needs.any(|needs| needs) }
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the names that an item defines in its module.
fn defined_names(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) if item.ident.is_some() => item.ident.as_ref().unwrap(),
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::ForeignMod(block) => {
            let function = |item: &syn::ForeignItem| match item {
                syn::ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
                _ => None,
            };
            return block.items.iter().filter_map(function).collect();
        }
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}
