//! The messages of errors: the texts that reach a user as the end of a command, apart from help, reports and logs.
//!
//! They are found in the syntax trees: `#[error("..")]` of an error type, texts that become an `Err`, and texts of
//! functions and variables that such an error is made of.

use crate::messages::is_sentence;
use crate::source::{Sources, attributes, is_for_tests};
use crate::syntax::{derives_error, doc, error_text, idents, inserted_names, pattern_names, trait_name, type_name};
use std::collections::BTreeSet;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ExprLit, Item, Lit, LitStr, Macro, Pat, ReturnType, Token};

/// Macros whose texts are seen by developers only, or are no errors: reports and logs.
const OTHER_MACROS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "panic",
    "unreachable",
    "todo",
    "errln",
    "outln",
    "eprintln",
    "println",
];
/// Methods whose arguments are compared or internal.
const OTHER_METHODS: &[&str] =
    &["expect", "contains", "starts_with", "ends_with", "strip_prefix", "strip_suffix", "find", "split", "join", "arg"];
/// Methods whose arguments become errors.
const ERROR_METHODS: &[&str] = &["map_err", "ok_or", "ok_or_else"];
/// Types that errors of other crates show by their `Display`.
const SHOWN: &[&str] = &["Event"];
/// Functions to which a text of an error is passed, although they do not return it.
const TAKERS: &[&str] = &["mismatch"];
/// Functions whose texts are names and reports, although an error may contain them.
const NAMES: &[&str] = &["new", "name", "meaning", "text", "line", "describe", "hint", "title", "texts", "words"];
/// Calls that pass a text on as it is.
const TRANSPARENT: &[&str] = &["Err", "Box", "String", "Some", "new", "from", "other", "custom", "new_err"];

/// A message of an error.
#[derive(Clone)]
pub struct ErrorText {
    /// The source file from the folder of the crate on, such as `store/src/error.rs`.
    pub file: String,
    /// The error type that declares it, or that it is a part of.
    pub of: Option<String>,
    /// The text as in the sources.
    pub text: String,
    /// It is inserted into the message of another error.
    pub part: bool,
    /// The first paragraph of the variant's doc comment, as Markdown without links.
    pub cause: Option<String>,
}

/// The names of the error types of all crates.
#[derive(Default)]
pub struct ErrorTypes {
    names: BTreeSet<String>,
    /// The types of their fields, which their messages show.
    fields: BTreeSet<String>,
}

impl ErrorTypes {
    /// Adds the types of a crate that derive or implement `Error`.
    pub fn add(&mut self, sources: &Sources) {
        for item in sources.modules.iter().flat_map(|module| &module.items) {
            match item {
                Item::Enum(item) if derives_error(&item.attrs) => {
                    self.names.insert(item.ident.to_string());
                    let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                    self.fields.extend(fields.map(|field| type_name(&field.ty)));
                }
                Item::Struct(item) if derives_error(&item.attrs) => {
                    self.names.insert(item.ident.to_string());
                }
                Item::Impl(item) if trait_name(item).is_some_and(|name| name == "Error") => {
                    self.names.insert(type_name(&item.self_ty));
                }
                _ => {}
            }
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || name.ends_with("Error")
    }

    /// Returns `true` if messages of errors contain the `Display` of this type.
    fn shows(&self, name: &str) -> bool {
        self.contains(name) || self.fields.contains(name) || SHOWN.contains(&name)
    }
}

/// Returns the messages of a crate in the order of its files.
pub fn errors(owner: &str, sources: &Sources, types: &ErrorTypes) -> Vec<ErrorText> {
    let mut bodies = Vec::new();
    let mut found = Vec::new();
    let mut consts = Vec::new();
    for module in &sources.modules {
        let file = format!("{owner}/src/{}", sources.files[module.file]);
        for item in &module.items {
            declared(item, &file, &mut found);
            if let Item::Const(item) = item {
                consts.push((item.ident.to_string(), file.clone(), &*item.expr));
            }
        }
        let mut functions = Bodies { file: &file, types, self_type: None, found: &mut bodies };
        module.items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)).for_each(|item| {
            functions.visit_item(item);
        });
    }
    let mut named = BTreeSet::new();
    let mut takers: BTreeSet<String> = TAKERS.iter().map(|name| (*name).to_owned()).collect();
    loop {
        let before = (named.len(), takers.len());
        let mut texts = Vec::new();
        for body in &bodies {
            let is_named = named.contains(&body.name) && !NAMES.contains(&body.name.as_str());
            let mut within = body_errors(body, body.is_error || body.is_text && is_named, types, &takers);
            if body.texts.iter().any(|name| within.named.contains(name)) && !NAMES.contains(&body.name.as_str()) {
                takers.insert(body.name.clone());
            }
            named.append(&mut within.named);
            texts.append(&mut within.found);
        }
        for (name, file, expr) in &consts {
            if named.contains(name) {
                let mut within = Within::new(file, None, types);
                within.as_error(|within| within.visit_expr(expr));
                texts.append(&mut within.found);
            }
        }
        if (named.len(), takers.len()) == before {
            found.append(&mut texts);
            break;
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

/// Adds the messages that an item declares by `#[error("..")]`.
fn declared(item: &Item, file: &str, found: &mut Vec<ErrorText>) {
    let mut add = |of: &syn::Ident, attrs: &[Attribute]| {
        if let Some(text) = error_text(attrs) {
            let (file, of) = (file.to_owned(), Some(of.to_string()));
            found.push(ErrorText { file, of, text, part: false, cause: doc(attrs) });
        }
    };
    match item {
        Item::Enum(item) => item.variants.iter().for_each(|variant| add(&item.ident, &variant.attrs)),
        Item::Struct(item) => add(&item.ident, &item.attrs),
        _ => {}
    }
}

/// A function with a body.
struct Body<'a> {
    file: String,
    name: String,
    self_type: Option<String>,
    block: &'a Block,
    /// All of its texts are of errors.
    is_error: bool,
    /// It returns a text or an error, so that an error can be made of its result.
    is_text: bool,
    /// The parameters that are texts.
    texts: Vec<String>,
}

/// Collects the functions of a module.
struct Bodies<'a, 'o> {
    file: &'o str,
    types: &'o ErrorTypes,
    self_type: Option<String>,
    found: &'o mut Vec<Body<'a>>,
}

impl<'a> Bodies<'a, '_> {
    fn add(&mut self, signature: &syn::Signature, block: &'a Block, is_display: bool) {
        let returned = match &signature.output {
            ReturnType::Default => BTreeSet::new(),
            ReturnType::Type(_, returned) => idents(returned),
        };
        let is_result = ["Result", "Vec", "BTreeMap"].iter().any(|name| returned.contains(*name));
        let is_own = returned.contains("Self") && self.self_type.as_ref().is_some_and(|of| self.types.contains(of));
        let of_error = is_own || returned.iter().any(|name| self.types.contains(name));
        let parameter = |input: &syn::FnArg| match input {
            syn::FnArg::Typed(input) if ["String", "str", "Display"].iter().any(|t| idents(&input.ty).contains(*t)) => {
                pattern_names(&input.pat).into_iter().next()
            }
            _ => None,
        };
        self.found.push(Body {
            file: self.file.to_owned(),
            name: signature.ident.to_string(),
            self_type: self.self_type.clone(),
            block,
            is_error: is_display || of_error && !is_result,
            is_text: !is_result && (of_error || returned.contains("String") || returned.contains("str")),
            texts: match is_result {
                true => signature.inputs.iter().filter_map(parameter).collect(),
                false => Vec::new(),
            },
        });
    }
}

impl<'a> Visit<'a> for Bodies<'a, '_> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            self.add(&item.sig, &item.block, false);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let name = type_name(&item.self_ty);
        let is_display = trait_name(item).is_some_and(|name| name == "Display") && self.types.shows(&name);
        self.self_type = Some(name);
        for item in &item.items {
            if let syn::ImplItem::Fn(item) = item
                && !item.attrs.iter().any(is_for_tests)
            {
                self.add(&item.sig, &item.block, is_display);
            }
        }
        self.self_type = None;
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        for item in &item.items {
            if let syn::TraitItem::Fn(item) = item
                && let Some(block) = &item.default
            {
                self.add(&item.sig, block, false);
            }
        }
    }
}

/// Returns the messages of a function, with those of the variables that its errors are made of.
fn body_errors<'a>(body: &'a Body, is_error: bool, types: &'a ErrorTypes, takers: &BTreeSet<String>) -> Within<'a> {
    let mut named = BTreeSet::new();
    loop {
        let mut within = Within::new(&body.file, body.self_type.as_deref(), types);
        within.locals.clone_from(&named);
        within.takers.clone_from(takers);
        match is_error {
            true => within.as_error(|within| within.visit_block(body.block)),
            false => within.visit_block(body.block),
        }
        let before = named.len();
        named.extend(within.named.iter().cloned());
        if named.len() == before {
            return within;
        }
    }
}

/// Collects the messages within a function.
struct Within<'a> {
    file: &'a str,
    self_type: Option<&'a str>,
    types: &'a ErrorTypes,
    /// Names that errors are made of, as far as they are known.
    locals: BTreeSet<String>,
    /// Functions and closures that make errors of the texts that they are given.
    takers: BTreeSet<String>,
    /// The names of functions, variables and constants from which errors are made.
    named: BTreeSet<String>,
    found: Vec<ErrorText>,
    is_error: bool,
    part: bool,
    /// The error type that is being made.
    of: Option<String>,
}

impl<'a> Within<'a> {
    fn new(file: &'a str, self_type: Option<&'a str>, types: &'a ErrorTypes) -> Self {
        let (locals, takers, named) = Default::default();
        Self {
            file,
            self_type,
            types,
            locals,
            takers,
            named,
            found: Vec::new(),
            is_error: false,
            part: false,
            of: None,
        }
    }

    fn as_error(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_error, true);
        visit(self);
        self.is_error = outer;
    }

    /// Visits what becomes a whole error.
    fn as_whole(&mut self, visit: impl FnOnce(&mut Self)) {
        let part = std::mem::replace(&mut self.part, false);
        self.as_error(visit);
        self.part = part;
    }

    /// Visits what a function takes for its errors: whole messages, or names of what is wrong.
    fn as_taken<'t>(&mut self, arguments: impl IntoIterator<Item = &'t Expr>) {
        for argument in arguments {
            match argument {
                Expr::Lit(_) => self.as_error(|within| within.as_part(None, |within| within.visit_expr(argument))),
                _ => self.as_whole(|within| within.visit_expr(argument)),
            }
        }
    }

    /// Visits what becomes a part of an error of this type, or of one that a function makes.
    fn as_part(&mut self, of: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outer = (self.part, self.of.clone());
        self.part = true;
        self.of = of.or(self.of.take());
        visit(self);
        (self.part, self.of) = outer;
    }

    fn add(&mut self, text: &str) {
        if !is_sentence(text) {
            return;
        }
        let (file, of, text) = (self.file.to_owned(), self.of.clone(), text.to_owned());
        self.found.push(ErrorText { file, of, text, part: self.part, cause: None });
    }

    /// Returns the error type of which a path makes a value.
    fn made(&self, path: &syn::Path) -> Option<String> {
        let names = path.segments.iter().rev().take(2).map(|segment| segment.ident.to_string());
        let own = |name: String| if name == "Self" { self.self_type.unwrap_or("Self").to_owned() } else { name };
        let names: Vec<_> = names.map(own).collect();
        names.into_iter().rev().find(|name| self.types.contains(name))
    }
}

impl<'t> Visit<'t> for Within<'_> {
    fn visit_item(&mut self, _: &Item) {}

    fn visit_attribute(&mut self, _: &Attribute) {}

    fn visit_pat(&mut self, _: &Pat) {}

    fn visit_local(&mut self, local: &'t syn::Local) {
        let names = pattern_names(&local.pat);
        let Some(init) = &local.init else { return };
        let outer = self.is_error;
        self.is_error = names.iter().any(|name| self.locals.contains(name));
        // A closure makes the whole message, other variables a part of it.
        let part = std::mem::replace(&mut self.part, !matches!(&*init.expr, Expr::Closure(_)));
        if let Expr::Closure(closure) = &*init.expr {
            let before = std::mem::take(&mut self.named);
            self.visit_expr(&closure.body);
            let inputs: BTreeSet<_> = closure.inputs.iter().flat_map(pattern_names).collect();
            if !self.is_error && !inputs.is_disjoint(&self.named) {
                self.takers.extend(names);
            }
            self.named.extend(before);
        } else {
            self.visit_expr(&init.expr);
        }
        self.part = part;
        self.is_error = outer;
        if let Some((_, diverge)) = &init.diverge {
            self.visit_expr(diverge);
        }
    }

    fn visit_expr_call(&mut self, call: &'t syn::ExprCall) {
        let Expr::Path(function) = &*call.func else { return visit::visit_expr_call(self, call) };
        let last = function.path.segments.last().unwrap().ident.to_string();
        let made = self.made(&function.path);
        if last == "Ok" {
            let outer = std::mem::replace(&mut self.is_error, false);
            visit::visit_expr_call(self, call);
            self.is_error = outer;
        } else if self.takers.contains(&last) {
            self.as_taken(&call.args);
        } else if last == "Err" || last == "new_err" {
            self.as_whole(|within| call.args.iter().for_each(|argument| within.visit_expr(argument)));
        } else if let Some(made) = made {
            self.named.insert(last.clone());
            let plain = TRANSPARENT.contains(&last.as_str());
            self.as_error(|within| match plain {
                true => call.args.iter().for_each(|argument| within.visit_expr(argument)),
                false => within.as_part(Some(made), |w| call.args.iter().for_each(|argument| w.visit_expr(argument))),
            });
        } else {
            if self.is_error {
                self.named.insert(last.clone());
            }
            match TRANSPARENT.contains(&last.as_str()) {
                true => call.args.iter().for_each(|argument| self.visit_expr(argument)),
                false => self.as_part(None, |w| call.args.iter().for_each(|argument| w.visit_expr(argument))),
            }
        }
    }

    fn visit_expr_struct(&mut self, made: &'t syn::ExprStruct) {
        match self.made(&made.path) {
            Some(of) => self.as_error(|within| within.as_part(Some(of), |w| visit::visit_expr_struct(w, made))),
            None => self.as_part(None, |w| visit::visit_expr_struct(w, made)),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'t syn::ExprMethodCall) {
        let name = call.method.to_string();
        self.visit_expr(&call.receiver);
        if OTHER_METHODS.contains(&name.as_str()) {
            return;
        }
        if self.is_error {
            self.named.insert(name.clone());
        }
        let arguments = |w: &mut Self| call.args.iter().for_each(|argument| w.visit_expr(argument));
        if self.takers.contains(&name) {
            self.as_taken(&call.args);
        } else if ERROR_METHODS.contains(&name.as_str()) {
            self.as_whole(arguments);
        } else if ["unwrap_or", "unwrap_or_else", "map", "map_or", "map_or_else", "and_then"].contains(&name.as_str()) {
            arguments(self);
        } else {
            self.as_part(None, arguments);
        }
    }

    fn visit_expr_if(&mut self, branch: &'t syn::ExprIf) {
        let outer = std::mem::replace(&mut self.is_error, false);
        self.visit_expr(&branch.cond);
        self.is_error = outer;
        self.visit_block(&branch.then_branch);
        if let Some((_, otherwise)) = &branch.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_match(&mut self, choice: &'t syn::ExprMatch) {
        let outer = std::mem::replace(&mut self.is_error, false);
        self.visit_expr(&choice.expr);
        self.is_error = outer;
        choice.arms.iter().for_each(|arm| self.visit_expr(&arm.body));
    }

    fn visit_expr_binary(&mut self, pair: &'t syn::ExprBinary) {
        let is_sum = matches!(pair.op, syn::BinOp::Add(_) | syn::BinOp::AddAssign(_));
        let outer = self.is_error;
        self.is_error &= is_sum;
        visit::visit_expr_binary(self, pair);
        self.is_error = outer;
    }

    fn visit_expr_path(&mut self, path: &'t syn::ExprPath) {
        if self.is_error {
            self.named.extend(path.path.segments.last().map(|segment| segment.ident.to_string()));
        }
    }

    fn visit_macro(&mut self, found: &'t Macro) {
        let name = found.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if OTHER_MACROS.contains(&name.as_str()) || name == "matches" {
            return;
        }
        let Ok(arguments) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(found.tokens.clone()) else {
            return;
        };
        let mut is_format = ["format", "format_args", "write", "writeln"].contains(&name.as_str());
        for argument in &arguments {
            match argument {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if is_format => {
                    is_format = false;
                    if self.is_error {
                        self.add(&text.value());
                        self.named.extend(inserted_names(&text.value()));
                    }
                }
                _ => self.as_part(None, |within| within.visit_expr(argument)),
            }
        }
    }

    fn visit_lit_str(&mut self, text: &'t LitStr) {
        if self.is_error {
            self.add(&text.value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let sources = Sources::parse(&[("lib.rs".to_owned(), text.to_owned())].into());
        let mut types = ErrorTypes::default();
        types.add(&sources);
        errors("c", &sources, &types).into_iter().map(|error| error.text).collect()
    }

    #[test]
    fn declared_errors_have_their_doc_comment_as_cause() {
        let text = r#"
            #[derive(Debug, thiserror::Error)]
            enum E {
                /// The [`File`] is
                /// damaged.
                ///
                /// Details.
                #[error("cannot read {0}")] A(u32),
            }
        "#;
        let sources = Sources::parse(&[("lib.rs".to_owned(), text.to_owned())].into());
        let errors = errors("c", &sources, &ErrorTypes::default());
        assert_eq!(errors[0].text, "cannot read {0}");
        assert_eq!(errors[0].cause.as_deref(), Some("The `File` is damaged."));
    }

    #[test]
    fn texts_that_become_errors_are_found() {
        let text = r#"
            const ADVICE: &str = "start it again";
            fn f() -> Result<(), Box<dyn Error>> {
                let why = if g() { "the first reason" } else { "the second reason" };
                let cannot = |error| format!("cannot open it: {error}");
                open().map_err(cannot)?;
                let refused = |text: &str| Err(text.into());
                if h() { return refused("it was refused again"); }
                k().ok_or_else(missing)?;
                Err(format!("it failed ({why}): {ADVICE}").into())
            }
            fn missing() -> String { "there is none".into() }
        "#;
        let expected = [
            "the first reason",
            "the second reason",
            "cannot open it: {error}",
            "it was refused again",
            "it failed ({why}): {ADVICE}",
            "there is none",
            "start it again",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn reports_logs_and_panics_are_no_errors() {
        let text = r#"
            fn f() -> Result<(), E> {
                let title = "shots of the run";
                errln!("the drive is slow");
                println!("{} shots lost", g().expect("never fails here"));
                assert!(title.contains("of the"), "a defect of this");
                h().map_err(|error| { errln!("not the error"); error })
            }
        "#;
        assert_eq!(found(text), Vec::<String>::new());
    }
}
