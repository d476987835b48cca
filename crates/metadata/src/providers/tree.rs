//! The form of EC2's service, which others took over: a list of the cards by hardware address,
//! under each a list of its keys, and under each key a value.

use super::reading::{self, Body, Reading};
use crate::card::Card;
use crate::exchange::{Answers, Request};
use crate::finding::Why;

/// The keys of a card that are both known and listed, and the requests for their values.
pub(super) struct Keys {
    keys: Vec<(&'static str, Request)>,
}

impl Keys {
    /// Asks for the lists under `macs`, a path that ends with a slash. `get` makes a request
    /// of a path. The keys come in the order of `known`.
    pub(super) fn read(
        card: &Card,
        answers: &Answers,
        get: impl Fn(String) -> Request,
        macs: &str,
        known: &[&'static str],
    ) -> Reading<Self> {
        let request = get(macs.to_owned());
        let list = reading::body(answers, &request)?;
        let mut listed = None;
        for line in list.lines()? {
            let name = line.strip_suffix('/').unwrap_or(line);
            if list.mac(name)? == card.mac {
                listed = Some(name);
            }
        }
        let name = listed.ok_or(Why::NotListed)?;

        let request = get(format!("{macs}{name}/"));
        let list = listed_body(answers, &request)?;
        let lines = list.lines()?;
        let is_key = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-/".contains(&b);
        if let Some(line) = lines.iter().find(|line| !line.bytes().all(is_key)) {
            return Err(list.invalid("key", line).into());
        }
        let keys = known.iter().filter(|key| lines.contains(*key));
        let keys = keys.map(|key| (*key, get(format!("{macs}{name}/{key}"))));
        Ok(Self {
            keys: keys.collect(),
        })
    }

    /// Whether one of these is listed.
    pub(super) fn have(&self, any: &[&str]) -> bool {
        self.keys.iter().any(|(key, _)| any.contains(key))
    }

    /// Asks for all values at once.
    pub(super) fn values<'a>(
        &'a self,
        answers: &'a Answers,
    ) -> Reading<Vec<(&'static str, Body<'a>)>> {
        reading::ask_all(answers, self.keys.iter().map(|(_, request)| request))?;
        let values = self.keys.iter();
        let values = values.map(|(key, request)| Ok((*key, listed_body(answers, request)?)));
        values.collect()
    }
}

/// The answer about what the service listed. That it is not there now means that the service is
/// about to change, and not that there is none.
fn listed_body<'a>(answers: &'a Answers, request: &'a Request) -> Reading<Body<'a>> {
    let body = reading::optional(answers, request)?;
    Ok(body.ok_or_else(|| Why::Vanished(request.path.clone()))?)
}
