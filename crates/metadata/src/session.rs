//! What is asked about one card after an event, and when.
//!
//! Owns rounds, pauses, throttling and the deadline. Has no clock, no socket and no source of
//! chance: all three are passed in, so that a test plays an hour in no time. A round asks a
//! provider's requests until it says something; its findings are told whatever they are, and
//! while they are not complete another round follows, later and later.
//!
//! ```text
//! loop { match session.next(now, chance) {
//!     Look => session.begin(card, now),           // the card as it is at this moment
//!     Ask(request) => session.take(reply, now, chance),
//!     Pause(until) => sleep,
//!     Found(findings) => tell,
//!     Over(end) => break,
//! } }
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use leaseroute_core::Mac;

use crate::card::Card;
use crate::exchange::{Answer, Answers, Request};
use crate::finding::{Finding, Findings, Why, judge};
use crate::provider::{Provider, Step};

/// The most requests in one round. A provider that wants more goes round in circles.
pub const MOST_REQUESTS: u32 = 64;

/// The shortest pause between two rounds, before chance changes it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// Which part of the time since the event a pause takes, so that what is news in the first six
/// seconds is seen within one.
const PAUSE_PART: u32 = 8;

/// The first pause after an answer that asks to be left alone without saying for how long.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);

/// The longest such pause.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// How much later than it was told a request may come again, so that not all come at once.
const LATEST: Duration = Duration::from_secs(1);

/// The longest time that a service is believed to want to be left alone.
const LONGEST_TOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A number of chance from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance(f64);

impl Chance {
    /// A number of chance. One beyond 0 and 1 counts as the nearer of both.
    #[must_use]
    pub fn new(number: f64) -> Self {
        Self(if number.is_nan() {
            0.5
        } else {
            number.clamp(0.0, 1.0)
        })
    }

    /// Three to five quarters of a time.
    fn about(self, time: Duration) -> Duration {
        time.mul_f64(0.75 + self.0 / 2.0)
    }

    /// A time or up to a quarter more, but not more than [`LATEST`] more.
    fn at_least(self, time: Duration) -> Duration {
        time.saturating_add((time / 4).min(LATEST).mul_f64(self.0))
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer that asking again at once does not change.
    Answer(Answer),
    /// The service asks to be left alone (429, 503).
    Throttled {
        /// The HTTP status.
        status: u16,
        /// For how long (Retry-After). `None`: not told.
        after: Option<Duration>,
    },
    /// The service was reached, but no answer came that could be used: not in time, cut off, too
    /// long, a server's error, a redirect.
    Failed(String),
    /// No connection to the service.
    Unreachable(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A round begins: look at the card and call [`Session::begin`], or
    /// [`Session::not_seen`] when the card could not be looked at.
    Look,
    /// Ask this and call [`Session::take`].
    Ask(Request),
    /// Nothing until then.
    Pause(Instant),
    /// A round is over; this is what it found out. Tell whom it concerns.
    Found(Findings),
    /// Nothing more is to be asked.
    Over(End),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All is found out that can be.
    Complete,
    /// One round was wanted.
    Once,
    /// Its time is up.
    Deadline,
    /// The card is gone.
    Gone,
    /// Another card stands under its index.
    Replaced,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Complete => "all is found out",
            Self::Once => "one round was wanted",
            Self::Deadline => "the time is up",
            Self::Gone => "the card is gone",
            Self::Replaced => "another card has its place",
        })
    }
}

/// How long and how often is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time after an event in which is asked.
    pub deadline: Duration,
    /// Whether one round is all.
    pub once: bool,
}

/// Where a session is.
#[derive(Debug)]
enum State {
    /// The next round begins then.
    Waits(Instant),
    /// Nobody has called `begin` yet.
    Looks,
    /// A round is on.
    Asks(Box<Round>),
    /// A round is over, and what it found was not fetched yet.
    Tells(Findings),
    Over(End),
}

#[derive(Debug)]
struct Round {
    card: Card,
    answers: Answers,
    /// What the provider wants asked before it is called again.
    wanted: VecDeque<Request>,
    /// What is being asked.
    asked: Option<Request>,
    requests: u32,
    /// Whether nothing of earlier rounds is among the answers.
    is_fresh: bool,
    /// Whether all answers are of those that last.
    is_lasting: bool,
}

/// An answer that is good for later rounds.
#[derive(Debug)]
struct Lasting {
    request: Request,
    answer: Answer,
    until: Instant,
}

/// What is asked about one card.
pub struct Session {
    provider: &'static dyn Provider,
    limits: Limits,
    /// The last event.
    began: Instant,
    ends: Instant,
    /// The card's hardware address at the first round after the last event.
    mac: Option<Mac>,
    state: State,
    lasting: Vec<Lasting>,
    /// Nothing is asked before, because the service said so.
    left_alone_until: Option<Instant>,
    back_off: Duration,
    /// The end of the last round.
    last: Option<Instant>,
    /// An event came while a round was on, which knows nothing of it.
    again: bool,
    known: Findings,
    rounds: u32,
    requests: u32,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("provider", &self.provider.name())
            .field("state", &self.state)
            .field("rounds", &self.rounds)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A session after an event of this moment. Its first round is due at once.
    #[must_use]
    pub fn new(provider: &'static dyn Provider, limits: Limits, now: Instant) -> Self {
        Self {
            provider,
            limits,
            began: now,
            ends: later(now, limits.deadline),
            mac: None,
            state: State::Waits(now),
            lasting: Vec::new(),
            left_alone_until: None,
            back_off: FIRST_BACK_OFF,
            last: None,
            again: false,
            known: nothing_yet(),
            rounds: 0,
            requests: 0,
        }
    }

    /// Another event of the same card: deadline and pauses begin anew. A round that is on goes
    /// on, and another one follows. What a service said about being left alone stays.
    pub fn restart(&mut self, now: Instant, chance: Chance) {
        self.began = now;
        self.ends = later(now, self.limits.deadline);
        self.mac = None;
        self.known = nothing_yet();
        match &mut self.state {
            State::Asks(_) | State::Tells(_) => self.again = true,
            State::Looks => {}
            State::Waits(_) | State::Over(_) => {
                let rest = chance.about(SHORTEST_PAUSE);
                let due = self.last.map_or(now, |last| later(last, rest).max(now));
                self.state = State::Waits(due);
            }
        }
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Instant, chance: Chance) -> Next {
        loop {
            match &mut self.state {
                State::Over(end) => return Next::Over(*end),
                State::Waits(due) => {
                    let due = self.left_alone_until.map_or(*due, |until| until.max(*due));
                    if due > self.ends || now > self.ends {
                        self.state = State::Over(End::Deadline);
                    } else if due > now {
                        return Next::Pause(due);
                    } else {
                        self.state = State::Looks;
                    }
                }
                State::Looks => return Next::Look,
                State::Tells(findings) => {
                    let findings = findings.clone();
                    // What was judged by a card from before the event may be wrong since.
                    let is_past = self.again;
                    self.go_on(&findings, now, chance);
                    if !is_past {
                        return Next::Found(findings);
                    }
                }
                State::Asks(_) => {
                    if let Some(next) = self.ask(now) {
                        return next;
                    }
                }
            }
        }
    }

    /// The card as it is now that a round begins. `None`: it is gone.
    pub fn begin(&mut self, card: Option<Card>, now: Instant) {
        let Some(card) = card else {
            self.state = State::Over(End::Gone);
            return;
        };
        if *self.mac.get_or_insert(card.mac) != card.mac {
            self.state = State::Over(End::Replaced);
            return;
        }
        self.lasting.retain(|lasting| lasting.until > now);
        let mut answers = Answers::default();
        for lasting in &self.lasting {
            answers.insert(&lasting.request, lasting.answer.clone());
        }
        self.rounds = self.rounds.saturating_add(1);
        self.again = false;
        self.state = State::Asks(Box::new(Round {
            card,
            answers,
            wanted: VecDeque::new(),
            asked: None,
            requests: 0,
            is_fresh: self.lasting.is_empty(),
            is_lasting: true,
        }));
    }

    /// The card could not be looked at; the round that should begin has failed.
    pub fn not_seen(&mut self, why: impl Into<String>) {
        self.rounds = self.rounds.saturating_add(1);
        self.again = false;
        self.end_round(Findings::unknown(Why::Unreachable(why.into())));
    }

    /// What came of the request that [`Session::next`] wanted.
    pub fn take(&mut self, reply: Reply, now: Instant, chance: Chance) {
        let pause = self.pause(now, chance);
        let State::Asks(round) = &mut self.state else {
            return;
        };
        let Some(request) = round.asked.take() else {
            return;
        };
        match reply {
            Reply::Answer(answer) => {
                self.back_off = FIRST_BACK_OFF;
                self.left_alone_until = None;
                if answer.status == 401 && !round.is_fresh {
                    // A token that was good in an earlier round is not any more.
                    self.lasting.clear();
                    round.answers = Answers::default();
                    round.wanted.clear();
                    round.is_fresh = true;
                    return;
                }
                let lasts = self.provider.lasting().iter();
                let lasts = lasts.copied().find(|(path, _)| *path == request.path);
                if let (Some((_, seconds)), 200) = (lasts, answer.status) {
                    self.lasting.push(Lasting {
                        request: request.clone(),
                        answer: answer.clone(),
                        until: later(now, Duration::from_secs(seconds).min(LONGEST_TOLD)),
                    });
                }
                round.is_lasting &= lasts.is_some();
                round.answers.insert(&request, answer);
            }
            Reply::Throttled { status, after } => {
                let wait = match after {
                    Some(told) => chance.at_least(told.min(LONGEST_TOLD)),
                    None => {
                        let wait = chance.at_least(self.back_off);
                        self.back_off = (self.back_off * 2).min(LONGEST_BACK_OFF);
                        wait
                    }
                };
                let until = later(now, wait.max(pause));
                self.left_alone_until = Some(until);
                if until > self.ends {
                    let why = format!("status {status}, which asks for patience");
                    self.end_round(Findings::unknown(Why::Unreachable(why)));
                } else {
                    // What was answered stays good; the same is asked again.
                    round.wanted.push_front(request);
                }
            }
            Reply::Failed(why) | Reply::Unreachable(why) => {
                self.end_round(Findings::unknown(Why::Unreachable(why)));
            }
        }
    }

    /// The best that is known of each family since the last event: what was found last, unless
    /// that is nothing and there was something before.
    #[must_use]
    pub fn known(&self) -> &Findings {
        &self.known
    }

    /// How many rounds there were.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// When its time is up.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// The next thing to ask in the round that is on. `None`: look at the state again.
    fn ask(&mut self, now: Instant) -> Option<Next> {
        let State::Asks(round) = &mut self.state else {
            return None;
        };
        let failed = |why: &str| Findings::unknown(Why::Unreachable(why.to_owned()));
        if now >= self.ends {
            self.end_round(failed("the time is up"));
            return None;
        }
        if let Some(until) = self.left_alone_until.filter(|until| *until > now) {
            return Some(Next::Pause(until));
        }
        if let Some(asked) = &round.asked {
            // Whoever asked was stopped before the answer came.
            return Some(Next::Ask(asked.clone()));
        }
        if round.wanted.is_empty() {
            match self.provider.step(&round.card, &round.answers) {
                Step::Ask(requests) => {
                    let open = requests.into_iter();
                    let open = open.filter(|request| round.answers.to(request).is_none());
                    round.wanted = open.collect();
                    if round.wanted.is_empty() {
                        self.end_round(failed("the provider asks what was answered"));
                        return None;
                    }
                }
                Step::Said(description) => {
                    let findings = judge(description, &round.card);
                    self.end_round(findings);
                    return None;
                }
                Step::Nothing(why) => {
                    if round.is_lasting {
                        // It is a token that is of no use, and would not be next time.
                        self.lasting.clear();
                    }
                    self.end_round(Findings::unknown(why));
                    return None;
                }
            }
        }
        if round.requests >= MOST_REQUESTS {
            self.end_round(failed("the provider asks without end"));
            return None;
        }
        let request = round.wanted.pop_front()?;
        round.requests += 1;
        self.requests = self.requests.saturating_add(1);
        round.asked = Some(request.clone());
        Some(Next::Ask(request))
    }

    fn end_round(&mut self, findings: Findings) {
        if !self.again {
            let known = std::mem::replace(&mut self.known, nothing_yet());
            self.known = Findings {
                ipv4: better(known.ipv4, findings.ipv4.clone()),
                ipv6: better(known.ipv6, findings.ipv6.clone()),
            };
        }
        self.state = State::Tells(findings);
    }

    /// What follows a round that found this.
    fn go_on(&mut self, findings: &Findings, now: Instant, chance: Chance) {
        self.last = Some(now);
        self.state = if std::mem::take(&mut self.again) {
            State::Waits(later(now, chance.about(SHORTEST_PAUSE)))
        } else if findings.is_complete() {
            State::Over(End::Complete)
        } else if self.limits.once {
            State::Over(End::Once)
        } else {
            State::Waits(later(now, self.pause(now, chance)))
        };
    }

    /// How long to wait before the next round.
    fn pause(&self, now: Instant, chance: Chance) -> Duration {
        let passed = now.saturating_duration_since(self.began);
        chance.about((passed / PAUSE_PART).max(SHORTEST_PAUSE))
    }
}

fn nothing_yet() -> Findings {
    Findings::unknown(Why::Unreachable("not asked yet".to_owned()))
}

/// What counts of an earlier and a later finding.
fn better(earlier: Finding, later: Finding) -> Finding {
    match (&earlier, &later) {
        (Finding::Known(_) | Finding::Absent, Finding::Unknown(_)) => earlier,
        _ => later,
    }
}

/// A moment later, as far as the clock can say it.
fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}
