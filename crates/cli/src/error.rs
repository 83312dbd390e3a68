//! Result type of the commands.

/// Result of a command. The text of an error includes its remedy.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
