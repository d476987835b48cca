//! `leaseroute wait-online`: returns when cards have their lease and their routing.

use std::fmt;

use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::{Paths, StateFolder};
use leaseroute_watch::wait::{self, Answer, Card, Missing, Wanted};
use serde::Serialize;

use crate::error::CliError;
use crate::view::FORMAT;
use crate::world;

/// What came of a wait.
#[derive(Debug, Serialize)]
pub(crate) struct WaitView {
    version: u32,
    complete: bool,
    cards: Vec<CardView>,
    trouble: Vec<String>,
    /// How long the wait was at most, in words.
    #[serde(skip)]
    limit: String,
}

/// One card.
#[derive(Debug, Serialize)]
struct CardView {
    complete: bool,
    #[serde(flatten)]
    card: Card,
    /// In place of the card's own: the same with words.
    missing: Vec<MissingView>,
}

/// Something that a card lacks.
#[derive(Debug, Serialize)]
struct MissingView {
    #[serde(flatten)]
    missing: Missing,
    text: String,
}

/// Waits.
pub(crate) fn run(wanted: &Wanted) -> Result<WaitView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    let state = StateFolder::at(paths.state);
    let answer = wait::wait(wanted, &loaded.settings, &state)?;
    Ok(WaitView::new(answer, wanted))
}

impl WaitView {
    fn new(answer: Answer, wanted: &Wanted) -> Self {
        let seconds = wanted.timeout.map(|timeout| timeout.as_secs());
        Self {
            version: FORMAT,
            complete: answer.complete,
            cards: answer.cards.into_iter().map(CardView::new).collect(),
            trouble: answer.trouble,
            limit: seconds.map_or_else(String::new, |seconds| format!(" after {seconds} s")),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        if self.complete {
            Exit::Done
        } else {
            Exit::Incomplete
        }
    }

    /// What is missing and why; nothing after a wait that ended well.
    pub(crate) fn failures(&self) -> Vec<String> {
        if self.complete {
            return Vec::new();
        }
        let mut lines = vec![format!("cards are not ready{}", self.limit)];
        let cards = self.cards.iter();
        lines.extend(cards.flat_map(|view| view.card.missing_lines()));
        lines.extend(self.trouble.iter().cloned());
        lines
    }
}

impl CardView {
    fn new(card: Card) -> Self {
        let missing = card.missing.iter().map(|missing| MissingView {
            text: missing.to_string(),
            missing: missing.clone(),
        });
        Self {
            complete: card.is_complete(),
            missing: missing.collect(),
            card,
        }
    }
}

/// A line for each card that is ready.
impl fmt::Display for WaitView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cards.is_empty() {
            return writeln!(
                f,
                "nothing is required: no --interface is given, and no [[interface]] section says \
                 required = true"
            );
        }
        let mut ready = self.cards.iter().filter(|view| view.complete);
        ready.try_for_each(|view| writeln!(f, "{}", view.card))
    }
}
