//! As much of YAML as services answer with: mappings and lists by indentation, lists of plain
//! values between brackets, and values on one line. All values are texts. What is anything
//! else is unreadable, and so is what ends in the middle of a line's form.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::reading::Body;
use crate::finding::Why;

/// The deepest nesting. What is read has four levels.
const MAX_DEPTH: usize = 8;

/// A list, which may be empty.
pub(super) fn list<T: DeserializeOwned>(body: Body<'_>) -> Result<Vec<T>, Why> {
    if body.text.trim().is_empty() {
        return Err(body.unreadable("it is empty"));
    }
    document(body)
}

/// A document of a given form.
pub(super) fn document<T: DeserializeOwned>(body: Body<'_>) -> Result<T, Why> {
    let value = parse(body.text);
    let value = value.ok_or_else(|| body.unreadable("it is not YAML of the expected form"))?;
    // The library's own words could hold text of the answer.
    let unexpected = |_| body.unreadable("it has not the expected fields");
    serde_json::from_value(value).map_err(unexpected)
}

struct Lines<'a> {
    /// Indentation and the rest.
    lines: Vec<(usize, &'a str)>,
    at: usize,
}

fn parse(text: &str) -> Option<Value> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let rest = line.trim_start_matches(' ');
        let content = rest.trim_end();
        if content.starts_with('\t') {
            return None;
        }
        if !content.is_empty() && !content.starts_with('#') && content != "---" {
            lines.push((line.len() - rest.len(), content));
        }
    }
    let first = *lines.first()?;
    if let (0, [only]) = (first.0, lines.as_slice())
        && only.1.starts_with('[')
    {
        return scalar(only.1);
    }
    let mut lines = Lines { lines, at: 0 };
    let value = lines.block(first.0, 0)?;
    (lines.at == lines.lines.len()).then_some(value)
}

impl<'a> Lines<'a> {
    fn peek(&self) -> Option<(usize, &'a str)> {
        self.lines.get(self.at).copied()
    }

    fn block(&mut self, indent: usize, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        if is_item(self.peek()?.1) {
            self.sequence(indent, depth)
        } else {
            self.mapping(indent, depth)
        }
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some((own, content)) = self.peek()
            && own == indent
            && is_item(content)
        {
            let rest = content.get(1..)?.trim_start();
            if rest.is_empty() {
                return None;
            }
            if key(rest).is_none() {
                self.at += 1;
                items.push(scalar(rest)?);
                continue;
            }
            let inner = own + (content.len() - rest.len());
            *self.lines.get_mut(self.at)? = (inner, rest);
            items.push(self.mapping(inner, depth + 1)?);
        }
        Some(Value::Array(items))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        while let Some((own, content)) = self.peek()
            && own == indent
            && !is_item(content)
        {
            let (key, rest) = key(content)?;
            self.at += 1;
            let value = if rest.is_empty() {
                match self.peek() {
                    Some((next, content))
                        if next > indent || (next == indent && is_item(content)) =>
                    {
                        self.block(next, depth + 1)?
                    }
                    _ => Value::Null,
                }
            } else {
                scalar(rest)?
            };
            if map.insert(key.to_owned(), value).is_some() {
                return None;
            }
        }
        Some(Value::Object(map))
    }
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// A key and what is after it on its line.
fn key(content: &str) -> Option<(&str, &str)> {
    let (key, rest) = content
        .split_once(": ")
        .or_else(|| content.strip_suffix(':').map(|key| (key, "")))?;
    let is_key = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (!key.is_empty() && key.bytes().all(is_key)).then_some((key, rest.trim()))
}

/// A value on one line.
fn scalar(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?.trim();
        if inner.is_empty() {
            return Some(Value::Array(Vec::new()));
        }
        let items = inner.split(',').map(|item| plain(item.trim()));
        return items.collect::<Option<Vec<_>>>().map(Value::Array);
    }
    plain(text)
}

fn plain(text: &str) -> Option<Value> {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            let inner = inner.strip_suffix(quote)?;
            let is_simple = !inner.contains(['"', '\'', '\\']);
            return is_simple.then(|| Value::String(inner.to_owned()));
        }
    }
    if matches!(text, "null" | "~") {
        return Some(Value::Null);
    }
    let is_plain = !text.is_empty()
        && !text.contains(['"', '\'', '{', '}', '[', ']', '<', '>', '&', '*', '|', '#']);
    is_plain.then(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_mappings_nest_by_indentation() {
        let text = "---\n# a comment\na:\n- b: 1\n  c:\n  - x\n  - 'y'\n- b: 86:00:00:2a:7d:e0\n  c: []\nd:\n  e: [1, \"2\"]\n";
        let expected = serde_json::json!({
            "a": [{"b": "1", "c": ["x", "y"]}, {"b": "86:00:00:2a:7d:e0", "c": []}],
            "d": {"e": ["1", "2"]},
        });
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("[]\n"), Some(serde_json::json!([])));
    }

    #[test]
    fn what_is_not_of_these_forms_is_refused() {
        for text in [
            "",
            "word",
            "a: [1, 2",
            "a: {b: 1}",
            "a: |\n  text",
            "a: &x 1",
            "a: \"1",
            "a: 1\na: 2",
            "a: 1\n  b: 2",
            "- a: 1\n   b: 2",
            "- a: 1\n b: 2",
            "-",
            "a:\n\t- b",
            "<html>",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let deep = (0..40).fold(String::new(), |text, n| text + &" ".repeat(n) + "a:\n");
        assert_eq!(parse(&deep), None);
    }
}
