//! Text of tokens as it is in the source, on one line.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use std::ops::Range;

/// Returns the text of a part of a syntax tree without attributes and comments, with one space where the source has white
/// space.
pub fn text(of: &impl ToTokens) -> String {
    let mut text = Text::default();
    text.add_all(of.to_token_stream());
    text.finish()
}

/// Returns the arguments of a macro, one line each.
pub fn arguments(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let is = |token: &TokenTree, mark| matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark);
    let separator = if tokens.iter().any(|token| is(token, ';')) { ';' } else { ',' };
    let mut lines = vec![Text::default()];
    for token in without_attributes(tokens) {
        if is(&token, separator) {
            lines.push(Text::default());
        } else {
            lines.last_mut().expect("at least one").add(token);
        }
    }
    lines.into_iter().map(Text::finish).filter(|line| !line.is_empty()).collect()
}

fn without_attributes(tokens: impl IntoIterator<Item = TokenTree>) -> impl Iterator<Item = TokenTree> {
    let mut is_attribute = false;
    tokens.into_iter().filter(move |token| match token {
        TokenTree::Punct(punct) if punct.as_char() == '#' => {
            is_attribute = true;
            false
        }
        _ => !std::mem::take(&mut is_attribute),
    })
}

#[derive(Default)]
struct Text {
    text: String,
    /// End of the last token in the source.
    end: usize,
}

impl Text {
    fn add_all(&mut self, tokens: TokenStream) {
        without_attributes(tokens).for_each(|token| self.add(token));
    }

    fn add(&mut self, token: TokenTree) {
        let TokenTree::Group(group) = token else {
            return self.push(&token.to_string(), token.span().byte_range());
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        self.push(open, group.span_open().byte_range());
        self.add_all(group.stream());
        self.push(close, group.span_close().byte_range());
    }

    fn push(&mut self, token: &str, at: Range<usize>) {
        if at.start != self.end && !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(token);
        self.end = at.end;
    }

    /// Removes what a list on several lines has more than one on a single line.
    fn finish(self) -> String {
        let mut text = self.text;
        for (long, short) in [
            ("( ", "("),
            ("[ ", "["),
            (", )", ")"),
            (",)", ")"),
            (" )", ")"),
            (", ]", "]"),
            (" ]", "]"),
            (", >", ">"),
            (", }", " }"),
            (" ,", ","),
        ] {
            text = text.replace(long, short);
        }
        text.trim().trim_end_matches(',').to_owned()
    }
}
