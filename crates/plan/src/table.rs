//! TOML tables with line numbers.
//!
//! Values are removed from a [`Table`] one by one, each with its type check; finally [`Table::finish`] refuses the
//! remaining keys. Every error therefore has a line number, and no key is ignored.

use crate::error::{LineNumber, PlanError};
use crate::units::{Quantity, parse};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its line number.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Line number.
    pub line: LineNumber,
    /// The value.
    pub value: Value,
}

/// A value of a plan.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string: a name, a choice, a quantity.
    Text(String),
    /// An integer or a float.
    Number(f64),
    /// A Boolean.
    Boolean(bool),
    /// A table.
    Table(Table),
    /// An array.
    List(Vec<Entry>),
    /// A TOML type that plans do not use.
    Other(&'static str),
}

/// A table whose values are removed one by one.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name in messages.
    pub name: String,
    /// Line number of its header.
    pub line: LineNumber,
    entries: BTreeMap<String, Entry>,
    known_keys: Vec<&'static str>,
}

impl Value {
    fn kind(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{text}\""),
            Self::Number(number) => number.to_string(),
            Self::Boolean(flag) => flag.to_string(),
            Self::Table(_) => "a table".into(),
            Self::List(_) => "a list".into(),
            Self::Other(kind) => format!("a {kind}"),
        }
    }

    /// Converts the text of a flag; commas separate the values of a list.
    pub fn from_flag(text: &str) -> Self {
        if text.contains(',') {
            let entry = |part: &str| Entry { line: None, value: Self::from_flag(part.trim()) };
            return Self::List(text.split(',').map(entry).collect());
        }
        match (text.parse(), text.parse()) {
            (Ok(number), _) => Self::Number(number),
            (_, Ok(flag)) => Self::Boolean(flag),
            _ => Self::Text(text.to_owned()),
        }
    }
}

impl Table {
    /// Parses a TOML text.
    pub fn read(text: &str) -> Result<Self, PlanError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| PlanError::Syntax {
            line: error.span().map_or(1, |span| line(span.start)),
            message: error.message().lines().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self::new(String::new(), Some(1), table.into_inner(), &line))
    }

    /// Creates an empty table without a line.
    pub fn empty(name: &str) -> Self {
        Self { name: name.to_owned(), line: None, entries: BTreeMap::new(), known_keys: Vec::new() }
    }

    fn new(name: String, at: LineNumber, table: DeTable<'_>, line: &dyn Fn(usize) -> usize) -> Self {
        let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
            let at = line(key.span().start);
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            let path = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
            (key.into_owned(), Entry { line: Some(at), value: value_of(path, at, value, line) })
        };
        let entries = table.into_iter().map(entry).collect();
        Self { name, line: at, entries, known_keys: Vec::new() }
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// Returns an error for an invalid value of `key`.
    pub fn value_error(&self, line: LineNumber, key: &str, problem: impl Display) -> PlanError {
        PlanError::Value { line: line.into(), key: self.path(key), problem: problem.to_string() }
    }

    /// Returns an error for an invalid table.
    pub fn table_error(&self, problem: impl Display) -> PlanError {
        PlanError::Value { line: self.line.into(), key: self.name.clone(), problem: problem.to_string() }
    }

    fn missing(&self, key: &str, example: &str) -> PlanError {
        self.missing_table(key, &format!("{key} = {example}"))
    }

    /// Returns an error for a missing key or table.
    pub fn missing_table(&self, key: &str, example: &str) -> PlanError {
        PlanError::Missing {
            line: self.line.into(),
            table: self.name.clone(),
            key: key.to_owned(),
            example: example.to_owned(),
        }
    }

    /// Sets a value from a flag.
    pub fn set(&mut self, key: &str, value: Value) {
        self.entries.insert(key.to_owned(), Entry { line: None, value });
    }

    /// Returns `true` if `key` has this text.
    pub fn has_text(&self, key: &str, wanted: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| matches!(&entry.value, Value::Text(text) if text == wanted))
    }

    /// Returns the line of a remaining key, else of the table.
    pub fn line_of(&self, key: &str) -> LineNumber {
        self.entries.get(key).map_or(self.line, |entry| entry.line)
    }

    /// Removes and returns a value.
    pub fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.known_keys.push(key);
        self.entries.remove(key)
    }

    /// Removes and returns a table.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Table>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Table(table), .. }) => Ok(Some(table)),
            Some(Entry { line, value }) => {
                Err(self.value_error(line, key, format!("expected a table [{key}], found {}", value.kind())))
            }
        }
    }

    /// Removes and returns an array of tables.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Table>, PlanError> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        let entries = match entry.value {
            Value::List(list) => list,
            _ => vec![entry],
        };
        let tables = entries.into_iter().map(|entry| match entry.value {
            Value::Table(table) => Ok(table),
            other => {
                Err(self.value_error(entry.line, key, format!("expected tables [[{key}]], found {}", other.kind())))
            }
        });
        tables.collect()
    }

    /// Removes and returns a text.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry { line, value }) => {
                Err(self.value_error(line, key, format!("expected a string, found {}", value.kind())))
            }
        }
    }

    /// Removes and returns a quantity.
    pub fn quantity<Q: Quantity>(&mut self, key: &'static str) -> Result<Option<Q>, PlanError> {
        self.take(key).map(|entry| self.as_quantity(key, &entry)).transpose()
    }

    fn as_quantity<Q: Quantity>(&self, key: &str, entry: &Entry) -> Result<Q, PlanError> {
        match &entry.value {
            Value::Text(text) => parse(text).map_err(|error| self.value_error(entry.line, key, error)),
            other => Err(self.value_error(
                entry.line,
                key,
                format!("expected {} with its unit, as in \"{}\", found {}", Q::NAME, Q::EXAMPLE, other.kind()),
            )),
        }
    }

    /// Removes and returns a quantity above zero.
    pub fn positive<Q: Quantity>(&mut self, key: &'static str) -> Result<Option<Q>, PlanError> {
        let line = self.line_of(key);
        match self.quantity::<Q>(key)? {
            Some(quantity) if quantity.value() <= 0.0 => {
                Err(self.value_error(line, key, format!("expected {} above zero", Q::NAME)))
            }
            found => Ok(found),
        }
    }

    /// Removes and returns one or several quantities above zero.
    pub fn quantities<Q: Quantity>(&mut self, key: &'static str) -> Result<Vec<Q>, PlanError> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        let list = match entry.value {
            Value::List(list) => list,
            _ => vec![entry],
        };
        list.iter()
            .map(|entry| match self.as_quantity::<Q>(key, entry)? {
                quantity if quantity.value() > 0.0 => Ok(quantity),
                _ => Err(self.value_error(entry.line, key, format!("expected {} above zero", Q::NAME))),
            })
            .collect()
    }

    /// Removes and returns a whole number in `range`.
    pub fn whole(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Result<Option<u32>, PlanError> {
        let expected = format!("expected a whole number from {} to {}", range.start(), range.end());
        match self.take(key) {
            None => Ok(None),
            Some(Entry { line, value: Value::Number(number) }) => {
                let fits =
                    number.fract() == 0.0 && (f64::from(*range.start())..=f64::from(*range.end())).contains(&number);
                if fits {
                    Ok(Some(number as u32))
                } else {
                    Err(self.value_error(line, key, format!("{expected}, found {number}")))
                }
            }
            Some(Entry { line, value }) => {
                Err(self.value_error(line, key, format!("{expected}, found {}", value.kind())))
            }
        }
    }

    /// Removes and returns a number in `range`.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Number(number), .. }) if range.contains(&number) => Ok(Some(number)),
            Some(Entry { line, value }) => {
                let problem =
                    format!("expected a number from {} to {}, found {}", range.start(), range.end(), value.kind());
                Err(self.value_error(line, key, problem))
            }
        }
    }

    /// Removes and returns a Boolean.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Boolean(flag), .. }) => Ok(Some(flag)),
            Some(Entry { line, value }) => {
                Err(self.value_error(line, key, format!("expected true or false, found {}", value.kind())))
            }
        }
    }

    /// Removes a name and returns its choice.
    pub fn choice<T: Copy>(&mut self, key: &'static str, names: &[(&str, T)]) -> Result<Option<T>, PlanError> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        let found = match &entry.value {
            Value::Text(text) => names.iter().find(|(name, _)| name == text).map(|(_, choice)| *choice),
            _ => None,
        };
        match found {
            Some(choice) => Ok(Some(choice)),
            None => {
                let known: Vec<_> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                let problem = format!("expected one of {}, found {}", known.join(", "), entry.value.kind());
                Err(self.value_error(entry.line, key, problem))
            }
        }
    }

    /// Returns the value, or an error if it is missing.
    pub fn required<T>(&self, found: Option<T>, key: &str, example: &str) -> Result<T, PlanError> {
        found.ok_or_else(|| self.missing(key, example))
    }

    /// Refuses the remaining keys, which are unknown.
    pub fn finish(self) -> Result<(), PlanError> {
        match self.entries.iter().min_by_key(|(_, entry)| entry.line) {
            None => Ok(()),
            Some((key, entry)) => Err(PlanError::Unknown {
                line: entry.line.into(),
                table: self.name.clone(),
                key: key.clone(),
                known: self.known_keys.join(", "),
            }),
        }
    }
}

fn value_of(path: String, at: usize, value: Spanned<DeValue<'_>>, line: &dyn Fn(usize) -> usize) -> Value {
    match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("number beyond 64 bits"), |n| Value::Number(n as f64)),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("number of unknown form"), Value::Number),
        DeValue::Boolean(flag) => Value::Boolean(flag),
        DeValue::Datetime(_) => Value::Other("date"),
        DeValue::Table(table) => Value::Table(Table::new(path, Some(at), table, line)),
        DeValue::Array(list) => {
            let entry = |(index, value): (usize, Spanned<DeValue<'_>>)| {
                let at = line(value.span().start);
                Entry { line: Some(at), value: value_of(format!("{path} {}", index + 1), at, value, line) }
            };
            Value::List(list.into_iter().enumerate().map(entry).collect())
        }
    }
}
