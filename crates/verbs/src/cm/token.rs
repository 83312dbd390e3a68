//! The secret that authenticates a control connection.

use crate::random;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

const BYTES: usize = 16;

/// 128 random bits, written as 32 hexadecimal digits. `Debug` does not reveal them.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token([u8; BYTES]);

/// Error of reading or creating a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Invalid format: the number of characters. The text is not repeated, because it may be a secret with a typing
    /// error.
    #[error("expected a token of 32 hexadecimal digits, found an invalid token of {0} characters")]
    Format(usize),
    /// The random source failed.
    #[error("the operating system's random source cannot be read")]
    Random,
    /// Other users can read the file: its path and mode.
    #[error("{path} has mode {mode:04o}, so other users can read the token: chmod 600 {path}", path = .0.display(), mode = .1)]
    Permissions(PathBuf, u32),
    /// The file could not be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

impl Token {
    /// Creates a token from the operating system's random source.
    ///
    /// # Errors
    /// [`TokenError::Random`] if the source fails.
    pub fn random() -> Result<Self, TokenError> {
        random::bytes().map(Self).map_err(|_| TokenError::Random)
    }

    /// Returns the token that has these bits.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bits.
    pub fn to_bytes(self) -> [u8; BYTES] {
        self.0
    }

    /// Returns `true` if two tokens are equal, in a time that does not depend on where they differ.
    pub fn matches(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        std::hint::black_box(differences) == 0
    }

    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read it, or it does not contain a token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File { path: path.to_owned(), source };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Permissions(path.to_owned(), mode));
        }
        let mut text = String::new();
        // A token and a line end; longer content is invalid.
        (&mut file).take(64).read_to_string(&mut text).map_err(failed)?;
        text.trim().parse()
    }

    /// Writes the token to a new file that only its owner can read (mode 0600).
    ///
    /// # Errors
    /// [`TokenError::File`] if the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::File { path: path.to_owned(), source };
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        writeln!(file, "{self}").map_err(failed)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let wrong = || TokenError::Format(text.chars().count());
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return Err(wrong());
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |index: usize| char::from(pair[index]).to_digit(16).ok_or_else(wrong);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl TryFrom<String> for Token {
    type Error = TokenError;
    fn try_from(text: String) -> Result<Self, TokenError> {
        text.parse()
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn token_round_trips_and_matches_only_itself() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(one.matches(&one.to_string().parse().unwrap()));
        assert!(!one.matches(&other));
        let mut last = one;
        last.0[15] ^= 1;
        assert!(!one.matches(&last));
    }

    #[test]
    fn invalid_token_is_refused_without_being_repeated() {
        for text in ["", "12", "zz112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff00", "ä"] {
            let words = text.parse::<Token>().unwrap_err().to_string();
            assert!(words.contains("32 hexadecimal digits") && (text.is_empty() || !words.contains(text)), "{words}");
        }
        assert_eq!(format!("{:?}", Token([0x5A; 16])), "Token(..)");
    }

    #[test]
    fn token_file_readable_by_others_is_refused() {
        let folder = std::env::temp_dir().join(format!("shotline-token-{}", Token::random().unwrap()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("token");
        let token = Token::random().unwrap();
        token.write(&path).unwrap();
        assert!(Token::read(&path).unwrap().matches(&token));
        assert!(matches!(token.write(&path), Err(TokenError::File { .. })), "an existing file is not overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let words = Token::read(&path).unwrap_err().to_string();
        assert!(words.contains("0640") && words.contains("chmod 600"), "{words}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
