//! As much of YAML as is written here: block mappings and lists, with comments.
//!
//! Every text is in double quotes with everything escaped that is not printable ASCII, so
//! that YAML 1.1 and 1.2 read the same; words without quotes are ours alone.

use crate::export::text::comment;

/// A value.
pub(super) enum Value {
    /// A word of the format, as it is.
    Word(&'static str),
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<Map>),
    Texts(Vec<String>),
    Map(Map),
}

/// A mapping in the order of writing.
#[derive(Default)]
pub(super) struct Map {
    entries: Vec<Entry>,
    /// What is said after the last entry.
    last: Vec<String>,
}

struct Entry {
    comments: Vec<String>,
    key: String,
    value: Value,
}

impl Map {
    /// An entry whose key is a word of the format.
    pub(super) fn put(&mut self, key: &'static str, value: Value) {
        self.push(key.to_owned(), value);
    }

    /// An entry whose key is any text.
    pub(super) fn put_named(&mut self, key: &str, value: Value) {
        self.push(quoted(key), value);
    }

    fn push(&mut self, key: String, value: Value) {
        let comments = std::mem::take(&mut self.last);
        self.entries.push(Entry {
            comments,
            key,
            value,
        });
    }

    /// A comment before the entry that comes next.
    pub(super) fn say(&mut self, text: &str) {
        self.last.push(comment(text));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The whole as a document.
    pub(super) fn document(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0, 0);
        text
    }

    /// Writes it indented; the first line has so much of that already.
    fn write(&self, text: &mut String, indent: usize, mut first: usize) {
        let mut begin = |text: &mut String| {
            text.push_str(&" ".repeat(indent - first));
            first = 0;
        };
        for entry in &self.entries {
            for comment in &entry.comments {
                begin(text);
                text.push_str(comment);
            }
            begin(text);
            text.push_str(&entry.key);
            text.push(':');
            entry.value.write(text, indent);
        }
        for comment in &self.last {
            begin(text);
            text.push_str(comment);
        }
    }
}

impl Value {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "most callers make the value for this alone"
    )]
    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    pub(super) fn number(number: impl Into<u64>) -> Self {
        Self::Number(number.into())
    }

    fn write(&self, text: &mut String, indent: usize) {
        match self {
            Self::Word(word) => text.push_str(&format!(" {word}\n")),
            Self::Text(value) => text.push_str(&format!(" {}\n", quoted(value))),
            Self::Number(number) => text.push_str(&format!(" {number}\n")),
            Self::Flag(flag) => text.push_str(&format!(" {flag}\n")),
            Self::Map(map) if map.entries.is_empty() => {
                text.push_str(" {}\n");
                map.write(text, indent + 2, 0);
            }
            Self::Map(map) => {
                text.push('\n');
                map.write(text, indent + 2, 0);
            }
            Self::List(list) if list.is_empty() => text.push_str(" []\n"),
            Self::List(list) => {
                text.push('\n');
                for map in list {
                    text.push_str(&" ".repeat(indent));
                    text.push_str("- ");
                    map.write(text, indent + 2, indent + 2);
                }
            }
            Self::Texts(texts) if texts.is_empty() => text.push_str(" []\n"),
            Self::Texts(texts) => {
                text.push('\n');
                for item in texts {
                    text.push_str(&format!("{}- {}\n", " ".repeat(indent), quoted(item)));
                }
            }
        }
    }
}

/// A text as a scalar in double quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' ' => quoted.push(' '),
            c if c.is_ascii_graphic() => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
