//! ISC dhclient: `dhclient.leases`, in the form of dhclient.leases(5).
//!
//! A file may hold leases of several interfaces and several leases of each; the last one of
//! an interface is the one in force. Options are written as the script gets them, but with
//! commas: `option routers 192.0.2.1,192.0.2.2;`. Times are in UTC, `1 2026/11/30 16:01:41`
//! (the number is the day of the week), or `epoch 1796055701`, or `never`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::client::Client;
use crate::event::RawEvent;

use super::MAX_PARTS;

/// The folders of its lease files: of Debian, of the RHEL family, and NetworkManager's.
pub const FOLDERS: [&str; 3] = [
    "/var/lib/dhcp",
    "/var/lib/dhclient",
    super::networkmanager::LEASES,
];

/// How deep blocks lie in each other: `lease6 { ia-na … { iaaddr … {`.
const MAX_DEPTH: usize = 4;

/// The most words of one statement: 512 routes of option 121 are at most 4608 octets.
const MAX_WORDS: usize = 8192;

/// The most statements of one block.
const MAX_STATEMENTS: usize = 1024;

/// The most interfaces of one file, in each family.
const MAX_INTERFACES: usize = 1024;

/// The longest name of an option, in bytes.
const MAX_NAME: usize = 64;

/// Whether a file of this name holds leases of dhclient.
#[must_use]
pub fn is_lease_file(file_name: &str) -> bool {
    let ends = [".leases", ".lease"];
    file_name.starts_with("dhclient") && ends.iter().any(|end| file_name.ends_with(end))
}

/// What its script would be told of the leases in a file. Those of DHCPv6 come in parts, as
/// the script is told of one address or prefix at a time.
#[must_use]
pub fn events(text: &str) -> Vec<RawEvent> {
    let mut leases: BTreeMap<(bool, String), Vec<RawEvent>> = BTreeMap::new();
    for block in Blocks::of(text) {
        let is_ipv6 = match block.words.as_slice() {
            [word] if word == "lease" => false,
            [word] if word == "lease6" => true,
            _ => continue,
        };
        let Some(interface) = block.value("interface") else {
            continue;
        };
        let key = (is_ipv6, interface.clone());
        if leases.len() == MAX_INTERFACES && !leases.contains_key(&key) {
            continue;
        }
        let events = match is_ipv6 {
            false => vec![lease(&block, interface)],
            true => lease6(&block, &interface),
        };
        leases.insert(key, events);
    }
    leases.into_values().flatten().collect()
}

fn lease(block: &Block<'_>, interface: String) -> RawEvent {
    let mut raw = told("BOUND", interface);
    for statement in &block.statements {
        let Some((keyword, rest)) = statement.split_first() else {
            continue;
        };
        let (variable, value) = match (keyword.as_ref(), rest) {
            ("fixed-address", [address]) => ("new_ip_address".to_owned(), address.to_string()),
            ("expire", when) => match moment(when) {
                Some(value) => ("new_expiry".to_owned(), value),
                None => continue,
            },
            // The scripts of all distributions leave it out.
            ("option", [name, mtu]) if name == "interface-mtu" && mtu == "576" => continue,
            ("option", [name, value @ ..]) if is_option(name) => {
                let name = name.replace(['-', '.'], "_");
                (format!("new_{name}"), value.join(" "))
            }
            _ => continue,
        };
        raw.variables.insert(variable, value);
    }
    raw
}

fn lease6(block: &Block<'_>, interface: &str) -> Vec<RawEvent> {
    if block.has("released") {
        return Vec::new();
    }
    let associations = block.blocks.iter().filter(|association| {
        let word = association.words.first().map(AsRef::as_ref);
        matches!(word, Some("ia-na" | "ia-ta" | "ia-pd"))
    });
    let parts = associations.flat_map(|association| &association.blocks);
    let part = |part: &Block<'_>| {
        let [kind, value] = part.words.as_slice() else {
            return None;
        };
        let variable = match kind.as_ref() {
            "iaaddr" => "new_ip6_address",
            "iaprefix" => "new_ip6_prefix",
            _ => return None,
        };
        let mut raw = told("BOUND6", interface.to_owned());
        let mut set = |variable: &str, value: Option<String>| {
            let value = value.map(|value| (variable.to_owned(), value));
            raw.variables.extend(value);
        };
        set(variable, Some(value.to_string()));
        set("new_life_starts", part.value("starts"));
        set("new_preferred_life", part.value("preferred-life"));
        set("new_max_life", part.value("max-life"));
        Some(raw)
    };
    parts.filter_map(part).take(2 * MAX_PARTS).collect()
}

fn told(reason: &str, interface: String) -> RawEvent {
    let variables = [("reason", reason.to_owned()), ("interface", interface)];
    super::event(Client::Dhclient, variables)
}

fn is_option(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(fits)
}

/// A time in seconds since 1970; `None`: never. What is no time stays as it is written, for
/// the parser to complain of.
fn moment(words: &[Cow<'_, str>]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let seconds = match words.as_slice() {
        ["never"] => return None,
        ["epoch", seconds] => Some((*seconds).to_owned()),
        [_, date, time] => seconds_since_1970(date, time).map(|seconds| seconds.to_string()),
        _ => None,
    };
    Some(seconds.unwrap_or_else(|| words.join(" ")))
}

/// Seconds since 1970 of a date `2026/11/30` and a time `16:01:41` in UTC.
fn seconds_since_1970(date: &str, time: &str) -> Option<u64> {
    let numbers = |text: &str, between: char| -> Option<[u64; 3]> {
        let numbers: Option<Vec<u64>> = text
            .split(between)
            .map(|word| {
                let is_number = word.len() <= 4 && word.bytes().all(|b| b.is_ascii_digit());
                word.parse().ok().filter(|_| is_number)
            })
            .collect();
        numbers?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '/')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let length = |month: u64| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(month)).contains(&day);
    // 60: a leap second.
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !is_date || !is_time {
        return None;
    }
    let leaps = |years: u64| years / 4 - years / 100 + years / 400;
    let before = year - 1;
    let days = (year - 1970) * 365 + leaps(before) - leaps(1969)
        + (1..month).map(length).sum::<u64>()
        + (day - 1);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// A block: the words before its brace, its statements and the blocks in it.
#[derive(Default)]
struct Block<'a> {
    words: Vec<Cow<'a, str>>,
    statements: Vec<Vec<Cow<'a, str>>>,
    blocks: Vec<Block<'a>>,
}

impl Block<'_> {
    /// The value of a statement that has one.
    fn value(&self, keyword: &str) -> Option<String> {
        let mut values = self.statements.iter().filter_map(|statement| {
            let [found, value] = statement.as_slice() else {
                return None;
            };
            (found == keyword).then(|| value.to_string())
        });
        values.next_back()
    }

    /// Whether a keyword stands alone in it.
    fn has(&self, keyword: &str) -> bool {
        let is_it = |statement: &Vec<Cow<'_, str>>| matches!(statement.as_slice(), [word] if word == keyword);
        self.statements.iter().any(is_it)
    }
}

/// The outermost blocks of a file, one after the other. A file that breaks a bound, or ends
/// within a block, has no more of them.
struct Blocks<'a> {
    tokens: Tokens<'a>,
}

impl<'a> Blocks<'a> {
    fn of(text: &'a str) -> Self {
        let tokens = Tokens { rest: text };
        Self { tokens }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut open: Vec<Block<'a>> = Vec::new();
        let mut words = Vec::new();
        loop {
            match self.tokens.next()? {
                Token::Word(_) if words.len() == MAX_WORDS => return None,
                Token::Word(word) => words.push(word),
                Token::End => {
                    let statement = std::mem::take(&mut words);
                    if let Some(block) = open.last_mut() {
                        if block.statements.len() == MAX_STATEMENTS {
                            return None;
                        }
                        block.statements.push(statement);
                    }
                }
                Token::Open if open.len() == MAX_DEPTH => return None,
                Token::Open => open.push(Block {
                    words: std::mem::take(&mut words),
                    ..Block::default()
                }),
                Token::Close => {
                    let closed = open.pop()?;
                    words.clear();
                    match open.last_mut() {
                        None => return Some(closed),
                        Some(around) if around.blocks.len() == MAX_STATEMENTS => return None,
                        Some(around) => around.blocks.push(closed),
                    }
                }
            }
        }
    }
}

enum Token<'a> {
    Word(Cow<'a, str>),
    End,
    Open,
    Close,
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.rest = self
                .rest
                .trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
            let Some(comment) = self.rest.strip_prefix('#') else {
                break;
            };
            self.rest = comment.split_once('\n')?.1;
        }
        let mut behind = self.rest.chars();
        let single = match behind.next()? {
            ';' => Some(Token::End),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            '"' => {
                let (text, rest) = quoted(behind.as_str())?;
                self.rest = rest;
                return Some(Token::Word(text));
            }
            _ => None,
        };
        if single.is_some() {
            self.rest = behind.as_str();
            return single;
        }
        let ends = |c: char| ",;{}\"#".contains(c) || c.is_ascii_whitespace();
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        Some(Token::Word(Cow::Borrowed(word)))
    }
}

/// A text up to its closing quote, with what was escaped in it, and what comes behind.
/// dhclient writes `\"` and the like, and octets that are not printable as `\377`.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    let (plain, rest) = text.split_at_checked(end)?;
    if let Some(behind) = rest.strip_prefix('"') {
        return Some((Cow::Borrowed(plain), behind));
    }
    let mut octets = plain.as_bytes().to_vec();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => match octal(chars.as_str()) {
                Some((octet, rest)) => {
                    octets.push(octet);
                    chars = rest.chars();
                }
                None => {
                    let escaped = chars.next()?;
                    octets.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
            },
            other => octets.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    let decoded = String::from_utf8_lossy(&octets).into_owned();
    Some((Cow::Owned(decoded), chars.as_str()))
}

/// Three octal digits that make an octet.
fn octal(text: &str) -> Option<(u8, &str)> {
    let (digits, rest) = text.split_at_checked(3)?;
    let is_octal = digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let octet = u8::from_str_radix(digits, 8).ok().filter(|_| is_octal)?;
    Some((octet, rest))
}
