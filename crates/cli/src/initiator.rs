//! Access of commands to running targets.

use crate::Result;
use shotline_verbs::cm::Token;
use std::path::PathBuf;

/// Arguments that give access to running targets, which the command names by `to`.
#[derive(clap::Args)]
pub struct Access {
    /// Token of the running target
    #[arg(long, value_name = "TOKEN", requires = "to")]
    token: Option<Token>,
    /// File with the token, readable only by its owner
    #[arg(long, value_name = "FILE", requires = "to", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

impl Access {
    /// Returns the token.
    pub fn token(&self) -> Result<Token> {
        match (self.token, &self.token_file) {
            (Some(token), _) => Ok(token),
            (None, Some(path)) => Ok(Token::read(path)?),
            (None, None) => Err("a target needs a token: use --token or --token-file".into()),
        }
    }
}
