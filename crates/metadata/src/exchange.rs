//! Requests and answers, without the network between them.

use std::collections::BTreeMap;
use std::fmt;

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Reads.
    Get,
    /// Asks for a token.
    Put,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Put => "PUT",
        })
    }
}

/// One request to a metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub method: Method,
    /// The path with its query, beginning with a slash.
    pub path: String,
    /// Further header fields.
    pub headers: Vec<(&'static str, String)>,
}

impl Request {
    /// A GET without header fields.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::Get,
            path: path.into(),
            headers: Vec::new(),
        }
    }

    /// A PUT without header fields.
    #[must_use]
    pub fn put(path: impl Into<String>) -> Self {
        Self {
            method: Method::Put,
            ..Self::get(path)
        }
    }

    /// The same with one more header field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What a service answered for good: a status that asking again at once does not change. Time-outs,
/// throttling and server errors are the driver's and never get here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status: 200, or one of 400 to 499 other than 408 and 429.
    pub status: u16,
    /// The body, whole and within the driver's bound.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body of a success as text; `None` for another status or bytes that are not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        (self.status == 200)
            .then(|| std::str::from_utf8(&self.body).ok())
            .flatten()
    }
}

/// The answers so far, by method and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(BTreeMap<(Method, String), Answer>);

impl Answers {
    /// Takes in an answer.
    pub fn insert(&mut self, request: &Request, answer: Answer) {
        self.0
            .insert((request.method, request.path.clone()), answer);
    }

    /// The answer to a request, when there is one.
    #[must_use]
    pub fn to(&self, request: &Request) -> Option<&Answer> {
        self.0.get(&(request.method, request.path.clone()))
    }

    /// Forgets all answers but those that a predicate on method and path keeps.
    pub fn retain(&mut self, keep: impl Fn(Method, &str) -> bool) {
        self.0.retain(|(method, path), _| keep(*method, path));
    }
}
