//! How commands fail.

/// What a command reports in the end. Anything that goes wrong is an error with the remedy in its words.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
