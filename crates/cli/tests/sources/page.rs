//! The page of all messages of errors, `docs/messages.md`: what the sources say, with the cures of `cures.toml`.

use crate::errors::ErrorText;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the page begins with.
pub const INTRODUCTION: &str = "# Messages of errors

<!-- Written by `UPDATE=1 cargo test -p shotline --test sources`, from the sources and crates/cli/tests/sources/cures.toml. -->

Every error that a command ends with or that the Python package raises, by topic: in bold what to do, below it the messages, with their causes. Search the page
for a part of a message that is the same each time, and not for names, numbers and addresses: `…` stands for them.

A message may contain another one, after a colon: search for that one, too. It has the more specific cause. Where no cause
is given, the message itself names it.

Not here are the losses of a run, which are no errors (`shotline --explain CAUSE` explains each; [Counters and drop
causes](user-guide.md#counters-and-drop-causes)), the checks of `shotline doctor`, which print their fixes, and errors of the
operating system, such as `Permission denied (os error 13)`, of which the message before the colon says what failed.
";

/// Folders and files whose messages no user sees: conformance suites, tests and checks of the FPGA's models.
const INTERNAL: &[&str] =
    &["testing/", "conformance/", "random/", "rtl/src/card/", "rtl/src/sender/soak.rs", "plan/src/schema.rs"];

/// The first word of a remedy.
const REMEDIES: &[&str] = &[
    "add",
    "allocate",
    "assign",
    "bind",
    "build",
    "capture",
    "change",
    "check",
    "choose",
    "configure",
    "convert",
    "copy",
    "create",
    "deregister",
    "destroy",
    "end",
    "export",
    "free",
    "give",
    "gunzip",
    "increase",
    "install",
    "leave",
    "limit",
    "lower",
    "make",
    "measure",
    "mount",
    "move",
    "name",
    "omit",
    "open",
    "please",
    "prepare",
    "provide",
    "query",
    "raise",
    "record",
    "reduce",
    "remove",
    "report",
    "request",
    "reset",
    "restart",
    "run",
    "seal",
    "see",
    "send",
    "set",
    "specify",
    "start",
    "stop",
    "switch",
    "take",
    "try",
    "unbind",
    "unmount",
    "update",
    "use",
    "verify",
    "wait",
    "write",
    // Commands, and rights that are missing.
    "apt",
    "dmesg",
    "echo",
    "ethtool",
    "gunzip",
    "ip",
    "ls",
    "lspci",
    "modprobe",
    "nvidia-smi",
    "rdma",
    "ss",
    "sudo",
    "ulimit",
];
/// Phrases of other remedies.
const PHRASES: &[&str] = &["it needs ", "needs root", " or --", "or use ", "is needed"];

/// The table of cures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cures {
    pub topic: Vec<Topic>,
}

/// A section of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    pub title: String,
    /// Files and folders from the crate's on, such as `store/src/import`; the longest one of all topics decides.
    pub from: Vec<String>,
    /// The cure of messages that have none of their own.
    pub cure: String,
    #[serde(default)]
    pub cures: Vec<Cure>,
}

/// The cure of some messages of a topic.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cure {
    pub cure: String,
    /// Pieces of messages, as on the page.
    #[serde(default)]
    pub messages: Vec<String>,
    /// Error types, files and folders; for those of their messages that do not say what to do.
    #[serde(default)]
    pub from: Vec<String>,
}

/// Where a cure is from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum From {
    /// The message itself.
    Message,
    /// An entry of the topic, by its index.
    Entry(usize),
    Topic,
}

impl Cures {
    pub fn parse(text: &str) -> Self {
        toml::from_str(text).unwrap_or_else(|error| panic!("cures.toml: {error}"))
    }

    /// Returns the topic of a file, by its index.
    pub fn topic_of(&self, file: &str) -> Option<usize> {
        let all = self.topic.iter().enumerate().flat_map(|(at, topic)| topic.from.iter().map(move |from| (at, from)));
        all.filter(|(_, from)| is_within(file, from)).max_by_key(|(_, from)| from.len()).map(|(at, _)| at)
    }

    /// Returns the names of entries, or pieces of them, that give no message its cure.
    pub fn unused(&self, errors: &[ErrorText]) -> Vec<String> {
        let mut unused = BTreeSet::new();
        for (at, topic) in self.topic.iter().enumerate() {
            let own: Vec<_> = errors.iter().filter(|error| self.topic_of(&error.file) == Some(at)).collect();
            let is_used = |from: &String| own.iter().any(|error| is_within(&error.file, from));
            unused.extend(topic.from.iter().filter(|from| !is_used(from)).cloned());
            let used: Vec<_> = own.iter().map(|error| (topic.cure_of(error), error)).collect();
            for (entry, cure) in topic.cures.iter().enumerate() {
                let own = || used.iter().filter(|(from, _)| *from == From::Entry(entry)).map(|(_, error)| error);
                let is_piece = |piece: &String| own().any(|error| shown(error).contains(piece.as_str()));
                unused.extend(cure.messages.iter().filter(|piece| !is_piece(piece)).cloned());
                let is_source = |from: &String| own().any(|error| is_from(error, from));
                unused.extend(cure.from.iter().filter(|from| !is_source(from)).cloned());
            }
        }
        unused.into_iter().collect()
    }

    /// Returns the page.
    pub fn page(&self, introduction: &str, errors: &[ErrorText]) -> String {
        let mut page = introduction.to_owned();
        for (at, topic) in self.topic.iter().enumerate() {
            let own: Vec<_> = errors.iter().filter(|error| self.topic_of(&error.file) == Some(at)).collect();
            page.push_str(&topic.section(&own));
        }
        page
    }
}

impl Topic {
    fn cure_of(&self, error: &ErrorText) -> From {
        let text = shown(error);
        let by_message = |cure: &Cure| cure.messages.iter().any(|piece| text.contains(piece.as_str()));
        if let Some(at) = self.cures.iter().position(by_message) {
            return From::Entry(at);
        }
        if says_remedy(&error.text) {
            return From::Message;
        }
        let by_source = |cure: &Cure| cure.from.iter().any(|from| is_from(error, from));
        self.cures.iter().position(by_source).map_or(From::Topic, From::Entry)
    }

    fn section(&self, errors: &[&ErrorText]) -> String {
        let mut groups = BTreeMap::<From, BTreeMap<String, BTreeSet<String>>>::new();
        for error in errors {
            let causes = groups.entry(self.cure_of(error)).or_default().entry(shown(error)).or_default();
            causes.extend(error.cause.iter().filter(|cause| !repeats(cause, &error.text)).cloned());
        }
        let mut section = format!("\n## {}\n", self.title);
        for (from, messages) in groups {
            let heading = match from {
                From::Message => "These messages say what to do:",
                From::Entry(at) => &self.cures[at].cure,
                From::Topic => &self.cure,
            };
            section.push_str(&format!("\n**{}**\n\n", linked(heading)));
            for (message, causes) in messages {
                let causes: Vec<_> = causes.iter().map(|cause| format!(" {cause}")).collect();
                section.push_str(&format!("- {}{}\n", code(&message), causes.concat()));
            }
        }
        section
    }
}

/// Returns `true` if a user can see the message on the screen, and it is more than a word.
pub fn is_for_users(error: &ErrorText) -> bool {
    let words = shown(error).split_whitespace().count();
    let is_text = shown(error).split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 1).count() > 1;
    let expects = ["cannot ", "expected "].iter().any(|word| error.text.starts_with(word));
    let is_seen = is_text && !is_description(&error.text) && (!error.part || words > 3 || expects);
    is_seen && !is_internal(&error.file)
}

/// Returns `true` if no user sees the messages of a file.
pub fn is_internal(file: &str) -> bool {
    INTERNAL.iter().any(|folder| file.starts_with(folder)) || file.contains("conformance")
}

/// Returns `true` if a text begins like a sentence, as descriptions and questions do, and errors do not.
fn is_description(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(|c| c.is_lowercase() || c == ' ')
}

/// Returns a message as on the page: `…` stands for what varies.
pub fn shown(error: &ErrorText) -> String {
    let text = varied(&error.text);
    let is_inner = is_inner(&text);
    let begins = if is_inner {
        "… "
    } else if text.starts_with([';', ',']) {
        "…"
    } else {
        ""
    };
    let ends = if is_inner || error.text.ends_with(' ') || text.ends_with(':') { " …" } else { "" };
    format!("{begins}{text}{ends}")
}

/// Returns a text in one line, with `…` for what varies.
pub fn varied(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..];
        if brace.starts_with("{{") || brace.starts_with("}}") {
            text.push_str(&brace[..1]);
            rest = &brace[2..];
        } else {
            text.push('…');
            rest = brace.split_once('}').map_or("", |(_, rest)| rest);
        }
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `true` if a text ends where the name of a file or device follows, as in "cannot {write the header of} FILE".
fn is_inner(text: &str) -> bool {
    [" of", " in", " to", " from", " on"].iter().any(|end| text.ends_with(end))
}

/// Returns `true` if a message contains its remedy.
fn says_remedy(text: &str) -> bool {
    if is_inner(text) || text.starts_with("make the") {
        return false;
    }
    let clauses = text.split([';', ':', ',', '(', '?']).map(str::trim_start);
    let begins = |clause: &str| {
        let clause =
            ["or ", "and ", "then ", "perhaps "].iter().fold(clause, |c, word| c.strip_prefix(word).unwrap_or(c));
        let first = clause.split([' ', ')', '`', '.']).find(|word| !word.is_empty()).unwrap_or_default();
        // "end of", "address of" and the like are nouns.
        clause.contains(' ') && REMEDIES.contains(&first) && clause.split_whitespace().nth(1) != Some("of")
    };
    text.starts_with(';') || clauses.into_iter().any(begins) || PHRASES.iter().any(|phrase| text.contains(phrase))
}

/// Returns `true` if a cause has no word that the message lacks.
fn repeats(cause: &str, text: &str) -> bool {
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        words.filter(|word| word.len() > 3).collect()
    };
    words(cause).is_subset(&words(text))
}

fn is_from(error: &ErrorText, from: &str) -> bool {
    error.of.as_deref() == Some(from) || is_within(&error.file, from)
}

fn is_within(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}

/// Returns a text in which names of pages are links.
fn linked(text: &str) -> String {
    let link = |word: &str| match word.strip_prefix("docs/").and_then(|rest| rest.split_once(".md")) {
        Some((page, rest)) => format!("[docs/{page}.md]({page}.md){rest}"),
        None => word.to_owned(),
    };
    text.split(' ').map(link).collect::<Vec<_>>().join(" ")
}

/// Returns a text as code of Markdown.
fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}
