//! A TOML text as tables that know their lines.
//!
//! Values are taken out of a [`Table`] one by one, each with the check that makes it a number or a choice; in the end
//! [`Table::finish`] refuses what nobody asked for. So every error names the line, and no key is ignored.

use crate::error::{Line, PlanError};
use crate::units::{Quantity, parse};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its line.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it stands.
    pub line: Line,
    /// What it is.
    pub value: Value,
}

/// What a plan's values can be.
#[derive(Clone, Debug)]
pub enum Value {
    /// A quoted text: a name, a choice, a quantity.
    Text(String),
    /// A whole or a broken number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A table.
    Table(Table),
    /// Several values.
    List(Vec<Entry>),
    /// A TOML type that no plan has.
    Other(&'static str),
}

/// A table whose values are taken one by one.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name in messages.
    pub name: String,
    /// Where its header stands.
    pub line: Line,
    entries: BTreeMap<String, Entry>,
    asked: Vec<&'static str>,
}

impl Value {
    fn kind(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{text}\""),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Table(_) => "a table".into(),
            Self::List(_) => "a list".into(),
            Self::Other(kind) => format!("a {kind}"),
        }
    }

    /// What a flag's text would be in TOML; with commas a list.
    pub fn of_flag(text: &str) -> Self {
        if text.contains(',') {
            let entry = |part: &str| Entry { line: None, value: Self::of_flag(part.trim()) };
            return Self::List(text.split(',').map(entry).collect());
        }
        match (text.parse(), text.parse()) {
            (Ok(number), _) => Self::Number(number),
            (_, Ok(flag)) => Self::Flag(flag),
            _ => Self::Text(text.to_owned()),
        }
    }
}

impl Table {
    /// Reads a whole text.
    pub fn read(text: &str) -> Result<Self, PlanError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| PlanError::Syntax {
            line: error.span().map_or(1, |span| line(span.start)),
            message: error.message().lines().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self::new(String::new(), Some(1), table.into_inner(), &line))
    }

    /// One that is not in any text.
    pub fn empty(name: &str) -> Self {
        Self { name: name.to_owned(), line: None, entries: BTreeMap::new(), asked: Vec::new() }
    }

    fn new(name: String, at: Line, table: DeTable<'_>, line: &dyn Fn(usize) -> usize) -> Self {
        let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
            let at = line(key.span().start);
            let key: std::borrow::Cow<'_, str> = key.into_inner();
            let path = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
            (key.into_owned(), Entry { line: Some(at), value: of(path, at, value, line) })
        };
        let entries = table.into_iter().map(entry).collect();
        Self { name, line: at, entries, asked: Vec::new() }
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// A refusal of the value of `key`.
    pub fn wrong(&self, line: Line, key: &str, problem: impl Display) -> PlanError {
        PlanError::Value { line: line.into(), key: self.path(key), problem: problem.to_string() }
    }

    /// A refusal of the table as a whole.
    pub fn refused(&self, problem: impl Display) -> PlanError {
        PlanError::Value { line: self.line.into(), key: self.name.clone(), problem: problem.to_string() }
    }

    fn missing(&self, key: &str, example: &str) -> PlanError {
        PlanError::Missing {
            line: self.line.into(),
            table: self.name.clone(),
            key: key.to_owned(),
            example: format!("{key} = {example}"),
        }
    }

    /// Sets a value as a flag does.
    pub fn set(&mut self, key: &str, value: Value) {
        self.entries.insert(key.to_owned(), Entry { line: None, value });
    }

    /// Whether `key` is there and is this text.
    pub fn says(&self, key: &str, wanted: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| matches!(&entry.value, Value::Text(text) if text == wanted))
    }

    /// The line of a key that is still there, else of the table.
    pub fn line_of(&self, key: &str) -> Line {
        self.entries.get(key).map_or(self.line, |entry| entry.line)
    }

    /// Takes a value out.
    pub fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.asked.push(key);
        self.entries.remove(key)
    }

    /// Takes a table out.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Table>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Table(table), .. }) => Ok(Some(table)),
            Some(Entry { line, value }) => {
                Err(self.wrong(line, key, format!("expected a table [{key}], found {}", value.kind())))
            }
        }
    }

    /// Takes a list of tables out.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Table>, PlanError> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        let entries = match entry.value {
            Value::List(list) => list,
            _ => vec![entry],
        };
        let tables = entries.into_iter().map(|entry| match entry.value {
            Value::Table(table) => Ok(table),
            other => Err(self.wrong(entry.line, key, format!("expected tables [[{key}]], found {}", other.kind()))),
        });
        tables.collect()
    }

    /// Takes a text out.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry { line, value }) => {
                Err(self.wrong(line, key, format!("expected a text, found {}", value.kind())))
            }
        }
    }

    /// Takes a quantity out.
    pub fn quantity<Q: Quantity>(&mut self, key: &'static str) -> Result<Option<Q>, PlanError> {
        self.take(key).map(|entry| self.as_quantity(key, &entry)).transpose()
    }

    fn as_quantity<Q: Quantity>(&self, key: &str, entry: &Entry) -> Result<Q, PlanError> {
        match &entry.value {
            Value::Text(text) => parse(text).map_err(|error| self.wrong(entry.line, key, error)),
            other => Err(self.wrong(
                entry.line,
                key,
                format!("expected {} with its unit, as in \"{}\", found {}", Q::WANTED, Q::EXAMPLE, other.kind()),
            )),
        }
    }

    /// Takes a quantity above zero out.
    pub fn positive<Q: Quantity>(&mut self, key: &'static str) -> Result<Option<Q>, PlanError> {
        let line = self.line_of(key);
        match self.quantity::<Q>(key)? {
            Some(quantity) if quantity.value() <= 0.0 => {
                Err(self.wrong(line, key, format!("expected {} above zero", Q::WANTED)))
            }
            found => Ok(found),
        }
    }

    /// Takes one or several quantities above zero out.
    pub fn quantities<Q: Quantity>(&mut self, key: &'static str) -> Result<Vec<Q>, PlanError> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        let list = match entry.value {
            Value::List(list) => list,
            _ => vec![entry],
        };
        list.iter()
            .map(|entry| match self.as_quantity::<Q>(key, entry)? {
                quantity if quantity.value() > 0.0 => Ok(quantity),
                _ => Err(self.wrong(entry.line, key, format!("expected {} above zero", Q::WANTED))),
            })
            .collect()
    }

    /// Takes a whole number out.
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
                    Err(self.wrong(line, key, format!("{expected}, found {number}")))
                }
            }
            Some(Entry { line, value }) => Err(self.wrong(line, key, format!("{expected}, found {}", value.kind()))),
        }
    }

    /// Takes a number out.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Number(number), .. }) if range.contains(&number) => Ok(Some(number)),
            Some(Entry { line, value }) => {
                let problem =
                    format!("expected a number from {} to {}, found {}", range.start(), range.end(), value.kind());
                Err(self.wrong(line, key, problem))
            }
        }
    }

    /// Takes yes or no out.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, PlanError> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Flag(flag), .. }) => Ok(Some(flag)),
            Some(Entry { line, value }) => {
                Err(self.wrong(line, key, format!("expected true or false, found {}", value.kind())))
            }
        }
    }

    /// Takes one of several names out.
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
                Err(self.wrong(entry.line, key, problem))
            }
        }
    }

    /// What must be there.
    pub fn required<T>(&self, found: Option<T>, key: &str, example: &str) -> Result<T, PlanError> {
        found.ok_or_else(|| self.missing(key, example))
    }

    /// Refuses what nobody asked for.
    pub fn finish(self) -> Result<(), PlanError> {
        match self.entries.iter().min_by_key(|(_, entry)| entry.line) {
            None => Ok(()),
            Some((key, entry)) => Err(PlanError::Unknown {
                line: entry.line.into(),
                table: self.name.clone(),
                key: key.clone(),
                known: self.asked.join(", "),
            }),
        }
    }
}

fn of(path: String, at: usize, value: Spanned<DeValue<'_>>, line: &dyn Fn(usize) -> usize) -> Value {
    match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("number of this size"), |n| Value::Number(n as f64)),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("number of this kind"), Value::Number),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => Value::Other("date"),
        DeValue::Table(table) => Value::Table(Table::new(path, Some(at), table, line)),
        DeValue::Array(list) => {
            let entry = |(index, value): (usize, Spanned<DeValue<'_>>)| {
                let at = line(value.span().start);
                Entry { line: Some(at), value: of(format!("{path} {}", index + 1), at, value, line) }
            };
            Value::List(list.into_iter().enumerate().map(entry).collect())
        }
    }
}
