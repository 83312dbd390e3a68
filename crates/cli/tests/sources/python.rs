//! The messages of the errors that the Python package and scripts raise.

use crate::errors::ErrorText;
use std::path::Path;

/// Returns the errors of the sources in a folder, whose files are named from `owner` on.
pub fn errors(folder: &Path, owner: &str) -> Vec<ErrorText> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let of_file = |path: &Path| {
        let file = format!("{owner}/{}", path.file_name().unwrap().to_string_lossy());
        let source = std::fs::read_to_string(path).unwrap();
        let texts: Vec<_> = raised(&source).collect();
        texts.into_iter().map(move |text| ErrorText { file: file.clone(), of: None, text, part: false, cause: None })
    };
    paths.iter().filter(|path| path.extension().is_some_and(|end| end == "py")).flat_map(|path| of_file(path)).collect()
}

/// Returns the texts of the exceptions that a source raises.
fn raised(source: &str) -> impl Iterator<Item = String> {
    let statements = source.split("raise ").skip(1).filter_map(|rest| {
        let (name, arguments) = rest.split_once('(')?;
        name.chars().all(char::is_alphanumeric).then(|| literals(arguments))
    });
    statements.filter(|text| !text.is_empty())
}

/// Returns the string literals up to the closing parenthesis, joined as Python joins them.
fn literals(arguments: &str) -> String {
    let (mut text, mut quote, mut depth) = (String::new(), None, 0);
    for letter in arguments.chars() {
        match (quote, letter) {
            (Some(end), letter) if end == letter => quote = None,
            (Some(_), letter) => text.push(letter),
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => break,
            (None, ')') => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_exceptions_are_joined() {
        let source = r#"
            if a: raise ValueError(f"expected {a}, " f'found {b(c)}') from None
            raise
            raise OSError(error)
            raise Unreadable(
                f"{path}, line {number}: a point"
            )
            x = ("not raised")
        "#;
        let texts: Vec<_> = raised(source).collect();
        assert_eq!(texts, ["expected {a}, found {b(c)}", "{path}, line {number}: a point"]);
    }
}
