//! Asks about cards, many at once, on the runtime of whoever waits for it.
//!
//! Owns the clock, chance and the sockets of sessions. Starts no thread and no task: a session
//! goes on while [`ask`] or [`Sessions::next`] is awaited, and dropping those ends it. Needs a
//! tokio runtime with I/O and time, in one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use leaseroute_core::{Endpoint, IfIndex};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::card::Card;
use crate::config_drive::ConfigDrive;
use crate::finding::Findings;
use crate::http::{By, Client};
use crate::pace::Pace;
use crate::provider::{Provider, Way};
use crate::session::{Chance, End, Limits, Next, Reply, Session};

/// How long after a finding could not be taken in it is told again.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Where facts about cards come from, and where findings go. Both are called between two
/// requests and hold up all sessions for as long as they take.
pub trait Cards {
    /// Why a card could not be looked at.
    type Error: fmt::Display;

    /// The card as it is now; asked before each round. `None`: there is none, which ends its
    /// session. An error fails the round, and the card is looked at again for the next one.
    ///
    /// # Errors
    ///
    /// When it cannot be found out.
    fn card(&self, index: IfIndex) -> Result<Option<Card>, Self::Error>;

    /// Takes what a round found out, also when that is nothing. The card is the one whose facts
    /// the round was judged by. `false`: it could not be taken in and is told again later.
    fn tell(&self, card: &Card, findings: &Findings) -> bool;
}

/// How a service is asked, for all cards of the host.
#[derive(Debug)]
pub struct Asker {
    provider: Named,
    endpoints: Vec<SocketAddr>,
    limits: Limits,
    drive: Option<ConfigDrive>,
    pace: RefCell<Pace>,
    chance: RefCell<fastrand::Rng>,
    /// Whether the service has ever answered; then the drive, which is as old as the last boot,
    /// is not believed any more.
    answered: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Named(&'static dyn Provider);

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Asker {
    /// Asks a provider's service at its own addresses, for 60 seconds after an event.
    #[must_use]
    pub fn new(provider: &'static dyn Provider) -> Self {
        Self {
            provider: Named(provider),
            endpoints: provider.endpoints().to_vec(),
            limits: Limits {
                deadline: Duration::from_secs(60),
                once: false,
            },
            drive: None,
            pace: RefCell::new(Pace::new(provider.rate())),
            chance: RefCell::new(fastrand::Rng::new()),
            answered: Cell::new(false),
        }
    }

    /// At another address, if one is given.
    #[must_use]
    pub fn at(mut self, endpoint: Option<Endpoint>) -> Self {
        if let Some(endpoint) = endpoint {
            self.endpoints = vec![endpoint.address()];
        }
        self
    }

    /// For another time after an event.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline;
        self
    }

    /// One round only, if so.
    #[must_use]
    pub fn once(mut self, once: bool) -> Self {
        self.limits.once = once;
        self
    }

    /// Reads a drive, if there is one, while the service has never been reached.
    #[must_use]
    pub fn or_drive(mut self, drive: Option<ConfigDrive>) -> Self {
        self.drive = drive;
        self
    }

    /// Whom it asks.
    #[must_use]
    pub fn provider(&self) -> &'static dyn Provider {
        self.provider.0
    }

    fn chance(&self) -> Chance {
        Chance::new(self.chance.borrow_mut().f64())
    }
}

/// What came of asking about one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The card's interface index.
    pub index: IfIndex,
    /// The card as it was in the last round. `None`: there was none.
    pub card: Option<Card>,
    /// The best that was found out in each family since the last event; nothing found later
    /// takes its place.
    pub findings: Findings,
    /// How many rounds were made.
    pub rounds: u32,
    /// How many requests were made.
    pub requests: u32,
    /// How long it took.
    pub took: Duration,
    /// Why it is over.
    pub end: End,
}

/// Word of another event to a session.
#[derive(Debug, Default)]
struct Event {
    came: Cell<bool>,
    notify: Notify,
}

/// Asks about one card until all is found out or the time is up.
pub async fn ask<C: Cards>(asker: &Asker, cards: &C, index: IfIndex) -> Outcome {
    run(asker, cards, index, &Event::default()).await
}

async fn run<C: Cards>(asker: &Asker, cards: &C, index: IfIndex, event: &Event) -> Outcome {
    let began = Instant::now();
    let provider = asker.provider.0;
    let mut session = Session::new(provider, asker.limits, began.into_std());
    let mut client = Client::new(asker.endpoints.clone());
    let mut card: Option<Card> = None;
    // What could not be taken in, of the last round that found anything.
    let mut untold: Option<(Card, Findings)> = None;
    let end = loop {
        let (now, chance) = (Instant::now().into_std(), asker.chance());
        if event.came.take() {
            session.restart(now, chance);
            // The card may have another address now, from which nothing kept works.
            client.close();
        }
        match session.next(now, chance) {
            Next::Look => match cards.card(index) {
                Ok(seen) => {
                    if let Some(seen) = &seen {
                        client.leave_by(By {
                            index,
                            name: seen.name.clone(),
                            is_bound: provider.way() == Way::Card,
                        });
                        card = Some(seen.clone());
                    }
                    session.begin(seen, now);
                }
                Err(why) => session.not_seen(format!("the card cannot be looked at: {why}")),
            },
            Next::Ask(request) => {
                let slot = asker.pace.borrow_mut().slot(now);
                let ends = Instant::from_std(session.ends());
                let slot = Instant::from_std(slot);
                sleep_until(slot.min(ends)).await;
                let mut reply = if slot < ends {
                    client.ask(&request, ends).await
                } else {
                    Reply::Failed("other cards are asked about until the time is up".to_owned())
                };
                tracing::debug!(%index, method = %request.method, path = request.path, ?reply, "asked");
                match &reply {
                    Reply::Unreachable(_) if !asker.answered.get() => {
                        if let Some(drive) = &asker.drive {
                            reply = drive.reply(&request);
                        }
                    }
                    Reply::Unreachable(_) => {}
                    Reply::Answer(_) | Reply::Throttled { .. } | Reply::Failed(_) => {
                        asker.answered.set(true);
                    }
                }
                let now = Instant::now().into_std();
                session.take(reply, now, chance);
            }
            Next::Pause(until) => {
                tokio::select! {
                    () = sleep_until(Instant::from_std(until)) => {}
                    () = event.notify.notified() => {}
                }
            }
            Next::Found(findings) => {
                if let Some(card) = &card {
                    let taken = cards.tell(card, &findings);
                    untold = (!taken).then(|| (card.clone(), findings));
                }
            }
            Next::Over(end) => {
                let is_there = !matches!(end, End::Gone | End::Replaced);
                let again = Instant::now() + TELL_AGAIN;
                match &untold {
                    Some((card, findings)) if is_there && again.into_std() < session.ends() => {
                        sleep_until(again).await;
                        if cards.tell(card, findings) {
                            untold = None;
                        }
                    }
                    _ => break end,
                }
            }
        }
    };
    Outcome {
        index,
        card,
        findings: session.known().clone(),
        rounds: session.rounds(),
        requests: session.requests(),
        took: began.elapsed(),
        end,
    }
}

/// Sessions of many cards at once, each on its own: one that waits holds up no other.
pub struct Sessions<C> {
    asker: Rc<Asker>,
    cards: Rc<C>,
    running: FuturesUnordered<LocalBoxFuture<'static, Outcome>>,
    events: BTreeMap<IfIndex, Rc<Event>>,
}

impl<C: Cards + 'static> Sessions<C> {
    /// No sessions yet.
    #[must_use]
    pub fn new(asker: Rc<Asker>, cards: Rc<C>) -> Self {
        Self {
            asker,
            cards,
            running: FuturesUnordered::new(),
            events: BTreeMap::new(),
        }
    }

    /// Something happened to a card: a session begins, or that which runs begins its deadline
    /// and its pauses anew. Returns at once; [`Sessions::next`] does the work.
    pub fn event(&mut self, index: IfIndex) {
        if let Some(event) = self.events.get(&index) {
            event.came.set(true);
            event.notify.notify_one();
            return;
        }
        let event = Rc::new(Event::default());
        self.events.insert(index, Rc::clone(&event));
        let (asker, cards) = (Rc::clone(&self.asker), Rc::clone(&self.cards));
        let session = async move { run(&asker, cards.as_ref(), index, &event).await };
        self.running.push(Box::pin(session));
    }

    /// Goes on with all sessions until one is over, and says what came of it. `None`: there is
    /// none, at once; in a loop with `select!` guard it with [`Sessions::is_empty`]. May be dropped
    /// before that, as `select!` does, and called again: no session loses anything.
    pub async fn next(&mut self) -> Option<Outcome> {
        let outcome = self.running.next().await?;
        let late = self.events.remove(&outcome.index);
        // An event that came in the session's last moment is one for the next session.
        if late.is_some_and(|event| event.came.get()) {
            self.event(outcome.index);
        }
        Some(outcome)
    }

    /// How many cards are asked about.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether no card is asked about.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Ends all sessions at once, in the middle of whatever they do.
    pub fn stop(&mut self) {
        self.running.clear();
        self.events.clear();
    }
}

impl<C> fmt::Debug for Sessions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cards = self.events.keys();
        f.debug_list().entries(cards).finish()
    }
}
