//! `leaseroute metadata`: asks the cloud's metadata service what no lease carries.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use leaseroute_core::{Family, IfIndex, InterfaceRef, ProviderChoice, Said};
use leaseroute_kernel::Netlink;
use leaseroute_metadata::{Finding, Outcome};
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::logging::{self, Sink};
use leaseroute_runtime::{Engine, Paths, StateFolder, sandbox, snapshot, wake};
use leaseroute_watch::metadata::{self, Asked, Listener};
use serde::Serialize;
use tracing::{debug, warn};

use crate::error::CliError;
use crate::output;
use crate::request::Asking;
use crate::view::{FORMAT, SaidWords};
use crate::world;

/// How long a card that is handed over waits for room among the words that nobody has read yet:
/// much longer than the service takes to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of asking.
#[derive(Debug, Serialize)]
pub(crate) struct MetadataView {
    version: u32,
    /// Who was asked; `null`: nobody.
    provider: Option<&'static str>,
    /// Whether all was found out.
    complete: bool,
    /// How many cards were not asked about to the end, since a signal came.
    unfinished: usize,
    /// How applying what was found ended.
    applied: Exit,
    cards: Vec<CardView>,
    /// Cards that somebody else asks about, of which JSON never tells.
    #[serde(skip)]
    handed_over: Vec<InterfaceRef>,
    /// Why nobody was asked.
    #[serde(skip)]
    nobody: &'static str,
}

/// What was found out of one card.
#[derive(Debug, Serialize)]
struct CardView {
    index: IfIndex,
    /// `null` when the card was gone before anything was asked.
    name: Option<String>,
    families: Vec<FamilyView>,
    rounds: u32,
    requests: u32,
    /// In seconds.
    took: f64,
    /// Why it ended, in words.
    end: String,
}

/// What was found out in one family.
#[derive(Debug, Serialize)]
struct FamilyView {
    family: Family,
    finding: FindingView,
}

/// One of the three answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum FindingView {
    Known(Said),
    Absent,
    Unknown {
        why: String,
        /// Whether asking again is of no use.
        #[serde(rename = "final")]
        is_final: bool,
    },
}

/// Asks about the named cards, or about all that could have more than their lease tells.
pub(crate) fn run(names: &[InterfaceRef], how: Asking) -> Result<MetadataView, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    logging::start("leaseroute", loaded.log_level, Sink::Stderr);
    let settings = loaded.settings;
    let root = Path::new("/");
    let Some(provider) = metadata::provider(&settings.metadata, root) else {
        return Ok(MetadataView {
            version: FORMAT,
            provider: None,
            complete: true,
            unfinished: 0,
            applied: Exit::Done,
            cards: Vec::new(),
            handed_over: Vec::new(),
            nobody: match settings.metadata.provider {
                ProviderChoice::None => "metadata.provider is \"none\"",
                ProviderChoice::Auto | ProviderChoice::Named(_) => {
                    "the firmware of this machine names no cloud that is known here"
                }
            },
        });
    };
    let state = StateFolder::at(paths.state);
    let asker =
        metadata::asker(provider, &settings.metadata, &state, root).once(how == Asking::Once);
    if let Err(error) = state.make() {
        output::warn(&leaseroute_runtime::error::with_causes(&error));
    }
    let engine = Engine::new(Netlink::open()?, settings, state);
    let mut handed_over = Vec::new();
    let cards = if names.is_empty() {
        metadata::cards(&engine)?
    } else {
        let host = leaseroute_core::Host {
            links: snapshot::links(engine.kernel(), engine.settings())?,
            ..leaseroute_core::Host::default()
        };
        let index = |name: &InterfaceRef| {
            let link = host.resolve(name).map(|link| link.index);
            link.ok_or_else(|| CliError::NoInterface(name.clone()))
        };
        let named = names.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        let mut left = Vec::new();
        for (name, card) in names.iter().zip(named) {
            if how == Asking::HandOver && hand_over(engine.state(), name) {
                handed_over.push(name.clone());
            } else {
                left.push(card);
            }
        }
        left
    };
    for part in sandbox::enter(engine.state().path()) {
        debug!("the sandbox is not complete: {part}");
    }
    let Asked {
        mut outcomes,
        unfinished,
        applied,
    } = metadata::ask(engine, asker, cards).map_err(CliError::Metadata)?;
    outcomes.sort_by_key(|outcome| outcome.index);
    let is_found = |outcome: &Outcome| outcome.findings.is_complete();
    Ok(MetadataView {
        version: FORMAT,
        provider: Some(provider.name()),
        complete: unfinished == 0 && outcomes.iter().all(is_found),
        unfinished,
        applied,
        cards: outcomes.iter().map(CardView::new).collect(),
        handed_over,
        nobody: "",
    })
}

/// Hands a card over to who asks about all cards. Says whether that was taken.
fn hand_over(state: &StateFolder, name: &InterfaceRef) -> bool {
    let Err(error) = wake::hand_over(state.path(), name, PATIENCE) else {
        return true;
    };
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            debug!("{name}: nobody listens: {error}");
        }
        _ => warn!("{name} could not be handed over: {error}; it is asked about here"),
    }
    false
}

/// Asks about cards as hooks tell of them on standard input.
pub(crate) fn listen() -> Result<Exit, CliError> {
    let ear = Listener::on_standard_input().map_err(CliError::Ear)?;
    let served = serve(&ear);
    if !matches!(served, Ok(true)) {
        ear.ignore();
    }
    served.map(|_| Exit::Done)
}

/// Says whether there was anybody to ask.
fn serve(ear: &Listener) -> Result<bool, CliError> {
    let paths = Paths::from_environment();
    let loaded = world::configuration(&paths)?;
    logging::start("leaseroute", loaded.log_level, Sink::Journal);
    let settings = loaded.settings;
    let root = Path::new("/");
    let Some(provider) = metadata::provider(&settings.metadata, root) else {
        debug!("there is no metadata service to ask");
        return Ok(false);
    };
    let state = StateFolder::at(paths.state);
    if let Err(error) = state.make() {
        warn!("{}", leaseroute_runtime::error::with_causes(&error));
    }
    let asker = metadata::asker(provider, &settings.metadata, &state, root);
    for part in sandbox::enter(state.path()) {
        debug!("the sandbox is not complete: {part}");
    }
    let engine = Engine::new(Netlink::open()?, settings, state);
    ear.serve(engine, asker).map_err(CliError::Metadata)?;
    Ok(true)
}

impl MetadataView {
    pub(crate) fn exit(&self) -> Exit {
        match self.applied {
            Exit::Done if self.complete => Exit::Done,
            Exit::Done => Exit::Incomplete,
            failed => failed,
        }
    }
}

impl CardView {
    fn new(outcome: &Outcome) -> Self {
        let families = Family::BOTH.map(|family| FamilyView {
            family,
            finding: match outcome.findings.of(family) {
                Finding::Known(said) => FindingView::Known(said.clone()),
                Finding::Absent => FindingView::Absent,
                Finding::Unknown(why) => FindingView::Unknown {
                    why: why.to_string(),
                    is_final: !why.may_pass(),
                },
            },
        });
        Self {
            index: outcome.index,
            name: outcome.card.as_ref().map(|card| card.name.to_string()),
            families: families.into(),
            rounds: outcome.rounds,
            requests: outcome.requests,
            took: seconds(outcome.took),
            end: outcome.end.to_string(),
        }
    }
}

/// In seconds, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// A block for each card.
impl fmt::Display for MetadataView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(provider) = self.provider else {
            return writeln!(f, "nobody is asked: {}", self.nobody);
        };
        for name in &self.handed_over {
            writeln!(
                f,
                "{name}: {provider}, handed over to leaseroute-metadata.service"
            )?;
        }
        if self.unfinished > 0 {
            writeln!(
                f,
                "{provider}: told to end, {} cards were not asked about to the end",
                self.unfinished
            )?;
        } else if self.cards.is_empty() && self.handed_over.is_empty() {
            return writeln!(f, "{provider}: there is no card to ask about");
        }
        for card in &self.cards {
            let name = card.name.as_deref().unwrap_or("a card that is gone");
            writeln!(
                f,
                "{name}: {provider}, {} requests in {} s: {}",
                card.requests, card.took, card.end
            )?;
            for FamilyView { family, finding } in &card.families {
                match finding {
                    FindingView::Known(said) => writeln!(f, "  {family}: {}", SaidWords(said))?,
                    FindingView::Absent => writeln!(f, "  {family}: the card has none")?,
                    FindingView::Unknown {
                        why,
                        is_final: true,
                    } => {
                        writeln!(f, "  {family}: {why}")?;
                    }
                    FindingView::Unknown {
                        why,
                        is_final: false,
                    } => {
                        writeln!(f, "  {family}: not found out: {why}; what is there stays")?;
                    }
                }
            }
        }
        Ok(())
    }
}
