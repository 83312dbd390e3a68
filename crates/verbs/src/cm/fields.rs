//! Fields of messages: values are validated when they are parsed.

use crate::api::{Mtu, QpType};
use crate::random;
use serde::{Deserialize, Serialize};
use shotline_memory::Access;

/// Maximum bytes of a region's name.
pub const MAX_NAME_BYTES: usize = 64;

/// Transport service of a queue pair, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

impl From<Kind> for QpType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Rc => Self::Rc,
            Kind::Uc => Self::Uc,
            Kind::Ud => Self::Ud,
        }
    }
}

/// A 24-bit number: a queue pair number or PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Bits24(u32);

impl Bits24 {
    /// Returns the number if it has 24 bits.
    pub fn new(number: u32) -> Option<Self> {
        (number < 1 << 24).then_some(Self(number))
    }
    /// Returns the number.
    pub fn get(self) -> u32 {
        self.0
    }
    /// Returns a number from the operating system's random source.
    pub fn random() -> Option<Self> {
        let [a, b, c] = random::bytes().ok()?;
        Some(Self(u32::from_be_bytes([0, a, b, c])))
    }
}

impl TryFrom<u32> for Bits24 {
    type Error = String;
    fn try_from(number: u32) -> Result<Self, String> {
        Self::new(number).ok_or_else(|| format!("expected a number of 24 bits, found {number}"))
    }
}

impl From<Bits24> for u32 {
    fn from(number: Bits24) -> Self {
        number.0
    }
}

/// A path MTU in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PathMtu(pub Mtu);

impl TryFrom<u32> for PathMtu {
    type Error = String;
    fn try_from(bytes: u32) -> Result<Self, String> {
        let mtu = Mtu::from_bytes(bytes).map(Self);
        mtu.ok_or_else(|| format!("expected an MTU of 256, 512, 1024, 2048 or 4096, found {bytes}"))
    }
}

impl From<PathMtu> for u32 {
    fn from(mtu: PathMtu) -> Self {
        mtu.0.bytes()
    }
}

/// Name of a region: 1 to [`MAX_NAME_BYTES`] letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.chars().all(is_valid) {
            return Err(format!("expected a name of 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' and '-'"));
        }
        Ok(Self(text))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Remote rights, written as letters: `r` read, `w` write, `a` atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rights(pub Access);

const LETTERS: [(char, Access); 3] =
    [('r', Access::REMOTE_READ), ('w', Access::REMOTE_WRITE), ('a', Access::REMOTE_ATOMIC)];

impl TryFrom<String> for Rights {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let right = |letter: char| LETTERS.iter().find(|(name, _)| *name == letter).map(|(_, right)| *right);
        let rights = text.chars().map(right).try_fold(Access::NONE, |all, right| right.map(|right| all | right));
        match rights {
            Some(rights) if text.len() <= LETTERS.len() => Ok(Self(rights)),
            _ => Err("expected rights of the letters r, w and a".into()),
        }
    }
}

impl From<Rights> for String {
    fn from(rights: Rights) -> Self {
        LETTERS.iter().filter(|(_, right)| rights.0.allows(*right)).map(|(letter, _)| *letter).collect()
    }
}
