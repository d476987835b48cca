//! Sessions in simulated time: what is asked when, whatever a service answers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends with a panic"
)]

mod common;

use std::time::{Duration, Instant};

use common::{Insatiable, PLAIN, Plain, card};
use leaseroute_metadata::{
    Answer, Card, Chance, End, Finding, Findings, Limits, MOST_REQUESTS, Next, Provider, Reply,
    Request, Session, Way, Why,
};
use proptest::prelude::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ok(body: &str) -> Reply {
    status(200, body)
}

fn status(status: u16, body: &str) -> Reply {
    Reply::Answer(Answer {
        status,
        body: body.into(),
    })
}

const WITH_TOKEN: Plain = Plain {
    wants_token: true,
    way: Way::Host,
    endpoints: &[],
    rate: 1000,
};
static TOKEN: Plain = WITH_TOKEN;

/// A session and its clock.
struct Play {
    start: Instant,
    now: Instant,
    session: Session,
    card: Card,
    /// What was asked, and when since the start.
    asked: Vec<(Duration, Request)>,
    found: Vec<Findings>,
    begun: Vec<Duration>,
    chance: Chance,
}

impl Play {
    fn new(provider: &'static dyn Provider, deadline: u64) -> Self {
        let start = Instant::now();
        let limits = Limits {
            deadline: seconds(deadline),
            once: false,
        };
        Self {
            start,
            now: start,
            session: Session::new(provider, limits, start),
            card: card("eth1", 3, &["192.0.2.1"]),
            asked: Vec::new(),
            found: Vec::new(),
            begun: Vec::new(),
            chance: Chance::new(0.5),
        }
    }

    fn passed(&self) -> Duration {
        self.now - self.start
    }

    /// Goes on until the session is over or the time is up, each request taking 10 ms.
    fn until(&mut self, stop: Duration, mut serve: impl FnMut(&Request) -> Reply) -> Option<End> {
        for _ in 0..100_000 {
            match self.session.next(self.now, self.chance) {
                Next::Look => {
                    self.begun.push(self.passed());
                    self.session.begin(Some(self.card.clone()), self.now);
                }
                Next::Ask(request) => {
                    if self.passed() >= stop {
                        return None;
                    }
                    self.asked.push((self.passed(), request.clone()));
                    self.now += Duration::from_millis(10);
                    let reply = serve(&request);
                    self.session.take(reply, self.now, self.chance);
                }
                Next::Pause(until) => {
                    assert!(until > self.now);
                    if until - self.start >= stop {
                        self.now = self.start + stop;
                        return None;
                    }
                    self.now = until;
                }
                Next::Found(findings) => self.found.push(findings),
                Next::Over(end) => return Some(end),
            }
        }
        panic!("the session does not end");
    }

    fn run(&mut self, serve: impl FnMut(&Request) -> Reply) -> End {
        self.until(seconds(1 << 20), serve).unwrap()
    }

    fn paths(&self) -> Vec<&str> {
        let paths = self.asked.iter();
        paths.map(|(_, request)| request.path.as_str()).collect()
    }
}

#[test]
fn a_complete_answer_ends_the_session_in_one_round() {
    let mut play = Play::new(&PLAIN, 60);
    assert_eq!(play.run(|_| ok("192.0.2.1\n192.0.2.2")), End::Complete);
    assert_eq!(play.session.rounds(), 1);
    assert_eq!(play.found, [play.session.known().clone()]);
    assert!(matches!(&play.found[0].ipv4, Finding::Known(said) if said.addresses.len() == 2));
    assert_eq!(play.found[0].ipv6, Finding::Absent);
}

#[test]
fn a_card_that_is_not_known_yet_is_asked_about_until_it_is() {
    let mut play = Play::new(&PLAIN, 60);
    let mut left = 10;
    let end = play.run(|_| {
        left -= 1;
        if left > 0 {
            status(404, "")
        } else {
            ok("192.0.2.1")
        }
    });
    assert_eq!((end, play.session.rounds()), (End::Complete, 10));
    assert_eq!(play.found.len(), 10);
}

#[test]
fn news_of_the_first_six_seconds_are_seen_within_one() {
    for chance in [0.0, 0.5, 1.0] {
        let mut play = Play::new(&PLAIN, 60);
        play.chance = Chance::new(chance);
        play.run(|_| status(404, ""));
        let early = play.begun.windows(2).filter(|pair| pair[0] < seconds(6));
        assert!(early.clone().all(|pair| pair[1] - pair[0] < seconds(1)));
        assert!(early.count() > 6);
        assert!(play.session.rounds() < 70, "{}", play.session.rounds());
    }
}

#[test]
fn one_round_is_all_when_that_is_wanted() {
    let now = Instant::now();
    let limits = Limits {
        deadline: seconds(60),
        once: true,
    };
    let mut play = Play::new(&PLAIN, 60);
    play.session = Session::new(&PLAIN, limits, now);
    play.now = now;
    assert_eq!(play.run(|_| status(404, "")), End::Once);
    assert_eq!(play.session.rounds(), 1);
}

#[test]
fn nothing_found_later_takes_the_place_of_what_was_found() {
    let mut play = Play::new(&PLAIN, 5);
    // Known in IPv4, and in IPv6 the card has an address that is not told of.
    play.card = card("eth1", 3, &["192.0.2.1", "2001:db8::1"]);
    let mut first = true;
    let end = play.run(|_| {
        if std::mem::take(&mut first) {
            ok("192.0.2.1")
        } else {
            Reply::Failed("status 500".to_owned())
        }
    });
    assert_eq!(end, End::Deadline);
    assert!(matches!(play.session.known().ipv4, Finding::Known(_)));
    let last = play.found.last().unwrap();
    assert_eq!(
        last.ipv4,
        Finding::Unknown(Why::Unreachable("status 500".to_owned()))
    );
}

#[test]
fn a_token_is_asked_for_once_while_it_lasts() {
    let mut play = Play::new(&TOKEN, 60);
    play.until(seconds(25), |request| match request.path.as_str() {
        "/token" => ok("t"),
        _ => status(404, ""),
    });
    let tokens = |play: &Play| play.paths().iter().filter(|p| **p == "/token").count();
    assert_eq!(tokens(&play), 1);
    assert!(play.session.rounds() > 5);
    play.until(seconds(45), |request| match request.path.as_str() {
        "/token" => ok("t"),
        _ => status(404, ""),
    });
    assert_eq!(tokens(&play), 2);
}

#[test]
fn a_token_that_is_refused_is_asked_for_anew_in_the_same_round() {
    let mut play = Play::new(&TOKEN, 60);
    let (mut tokens, mut asked) = (0, 0);
    let end = play.run(|request| {
        if request.path == "/token" {
            tokens += 1;
            return ok(&tokens.to_string());
        }
        asked += 1;
        let token = &request.headers[0].1;
        match (asked, token.as_str()) {
            (1, "1") => status(404, ""),
            (_, "1") => status(401, ""),
            _ => ok("192.0.2.1"),
        }
    });
    assert_eq!((end, play.session.rounds()), (End::Complete, 2));
    assert_eq!(
        play.paths(),
        ["/token", "/card", "/card", "/token", "/card"]
    );
}

#[test]
fn a_service_that_refuses_every_token_gets_one_a_round() {
    let mut play = Play::new(&TOKEN, 3);
    let end = play.run(|request| match request.path.as_str() {
        "/token" => ok("t"),
        _ => status(401, ""),
    });
    assert_eq!(end, End::Deadline);
    assert!(play.session.requests() <= play.session.rounds() * 3);
}

/// A page with status 200 may stand where the token belongs.
#[test]
fn a_token_that_cannot_be_read_is_asked_for_anew_in_each_round() {
    let mut play = Play::new(&TOKEN, 60);
    let mut tokens = 0;
    let end = play.run(|request| match request.path.as_str() {
        "/token" => {
            tokens += 1;
            ok(if tokens < 3 { "<html>" } else { "t" })
        }
        _ => ok("192.0.2.1"),
    });
    assert_eq!((end, play.session.rounds()), (End::Complete, 3));
    assert_eq!(play.paths(), ["/token", "/token", "/token", "/card"]);
}

#[test]
fn a_provider_that_asks_without_end_is_stopped() {
    let mut play = Play::new(&Insatiable, 5);
    assert_eq!(play.run(|_| ok("")), End::Deadline);
    assert!(play.session.requests() <= play.session.rounds() * MOST_REQUESTS);
    let why = Why::Unreachable("the provider asks without end".to_owned());
    assert_eq!(play.found[0], Findings::unknown(why));
}

#[test]
fn back_off_doubles_from_one_second_to_thirty() {
    let mut play = Play::new(&PLAIN, 3600);
    play.chance = Chance::new(0.0);
    let throttled = Reply::Throttled {
        status: 503,
        after: None,
    };
    play.until(seconds(130), |_| throttled.clone());
    let gaps: Vec<f64> = play
        .asked
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0).as_secs_f64())
        .collect();
    let expected = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0];
    assert!(gaps.len() >= expected.len(), "{gaps:?}");
    for (gap, expected) in gaps.iter().zip(expected) {
        assert!(*gap >= expected && *gap < expected + 0.1, "{gaps:?}");
    }
}

#[test]
fn a_throttled_round_goes_on_where_it_was() {
    let mut play = Play::new(&TOKEN, 60);
    let mut left = 2;
    let end = play.run(|request| match request.path.as_str() {
        "/token" => ok("t"),
        _ if left > 0 => {
            left -= 1;
            Reply::Throttled {
                status: 429,
                after: Some(seconds(3)),
            }
        }
        _ => ok("192.0.2.1"),
    });
    assert_eq!((end, play.session.rounds()), (End::Complete, 1));
    assert_eq!(play.paths(), ["/token", "/card", "/card", "/card"]);
    assert!(play.asked[2].0 - play.asked[1].0 >= seconds(3));
}

#[test]
fn patience_beyond_the_deadline_ends_the_session_at_once() {
    for after in [seconds(120), Duration::MAX] {
        let mut play = Play::new(&PLAIN, 60);
        let throttled = Reply::Throttled {
            status: 429,
            after: Some(after),
        };
        assert_eq!(play.run(|_| throttled.clone()), End::Deadline);
        assert_eq!(play.session.requests(), 1);
        assert!(play.passed() < seconds(1));
    }
}

#[test]
fn another_event_begins_deadline_and_pauses_anew_but_not_patience() {
    let mut play = Play::new(&PLAIN, 10);
    play.until(seconds(8), |_| status(404, ""));
    play.session.restart(play.now, play.chance);
    let before = play.begun.len();
    play.until(seconds(17), |_| status(404, ""));
    assert!(play.begun[before] - seconds(8) < Duration::from_millis(200));
    assert!(play.begun[before + 1] - play.begun[before] < Duration::from_millis(300));

    let mut play = Play::new(&PLAIN, 60);
    let throttled = Reply::Throttled {
        status: 429,
        after: Some(seconds(20)),
    };
    play.until(seconds(1), |_| throttled.clone());
    play.session.restart(play.now, play.chance);
    play.run(|_| ok("192.0.2.1"));
    assert!(play.asked[1].0 >= seconds(20));
}

#[test]
fn an_event_in_the_middle_of_a_round_calls_for_another_round() {
    let mut play = Play::new(&PLAIN, 60);
    assert_eq!(play.session.next(play.now, play.chance), Next::Look);
    play.session.begin(Some(play.card.clone()), play.now);
    let Next::Ask(_) = play.session.next(play.now, play.chance) else {
        panic!("nothing is asked");
    };
    play.session.restart(play.now, play.chance);
    play.session.take(ok("192.0.2.1"), play.now, play.chance);
    assert_eq!(play.run(|_| ok("192.0.2.1\n192.0.2.9")), End::Complete);
    assert_eq!(play.session.rounds(), 2);
}

#[test]
fn a_card_that_is_gone_or_another_ends_the_session() {
    let mut play = Play::new(&PLAIN, 60);
    play.until(seconds(1), |_| status(404, ""));
    let mut gone = false;
    loop {
        match play.session.next(play.now, play.chance) {
            Next::Look => {
                play.session.begin(None, play.now);
                gone = true;
            }
            Next::Pause(until) => play.now = until,
            Next::Over(end) => {
                assert_eq!(end, End::Gone);
                break;
            }
            _ => {}
        }
    }
    assert!(gone);

    let mut play = Play::new(&PLAIN, 60);
    play.until(seconds(1), |_| status(404, ""));
    play.card.mac = "02:00:00:00:00:02".parse().unwrap();
    assert_eq!(play.run(|_| status(404, "")), End::Replaced);
    // An event says that the card has changed.
    play.session.restart(play.now, play.chance);
    assert_eq!(play.run(|_| ok("192.0.2.1")), End::Complete);
}

#[test]
fn a_storm_of_events_makes_no_storm_of_requests() {
    let mut play = Play::new(&PLAIN, 60);
    for millisecond in 0..5000 {
        play.until(Duration::from_millis(millisecond), |_| ok("192.0.2.1"));
        play.now = play.start + Duration::from_millis(millisecond).max(play.passed());
        play.session.restart(play.now, play.chance);
    }
    assert!(play.asked.len() < 40, "{}", play.asked.len());
    assert!(play.asked.len() > 15, "{}", play.asked.len());
}

/// What a service may do.
fn any_reply() -> impl Strategy<Value = Reply> {
    let after = proptest::option::of(prop_oneof![0_u64..40, Just(u64::MAX)]);
    let throttled = after.prop_map(|after| Reply::Throttled {
        status: 429,
        after: after.map(Duration::from_secs),
    });
    prop_oneof![
        Just(status(404, "")),
        Just(status(401, "")),
        Just(ok("t")),
        Just(ok("203.0.113.1")),
        Just(Reply::Failed("status 500".to_owned())),
        Just(Reply::Unreachable("refused".to_owned())),
        throttled,
    ]
}

proptest! {
    #[test]
    fn whatever_is_answered_a_session_keeps_its_distance_and_its_deadline(
        replies in proptest::collection::vec(any_reply(), 1..40),
        chances in proptest::collection::vec(0.0..=1.0_f64, 1..20),
        deadline in 1_u64..90,
    ) {
        let mut replies = replies.iter().cycle();
        let mut chances = chances.iter().cycle();
        let mut play = Play::new(&TOKEN, deadline);
        let mut left_alone = Duration::ZERO;
        let mut last_end: Option<Duration> = None;
        let end = loop {
            play.chance = Chance::new(*chances.next().unwrap());
            match play.session.next(play.now, play.chance) {
                Next::Look => {
                    let shortest = Duration::from_millis(150);
                    prop_assert!(last_end.is_none_or(|end| play.passed() - end >= shortest));
                    play.session.begin(Some(play.card.clone()), play.now);
                }
                Next::Ask(_) => {
                    prop_assert!(play.passed() >= left_alone);
                    prop_assert!(play.passed() < seconds(deadline));
                    play.now += Duration::from_millis(5);
                    let reply = replies.next().unwrap().clone();
                    if let Reply::Throttled { after, .. } = &reply {
                        let told = after.unwrap_or(seconds(1)).min(seconds(86_400));
                        left_alone = play.passed() + told;
                    }
                    play.session.take(reply, play.now, play.chance);
                }
                Next::Pause(until) => {
                    prop_assert!(until > play.now);
                    prop_assert!(until <= play.session.ends());
                    play.now = until;
                }
                Next::Found(_) => last_end = Some(play.passed()),
                Next::Over(end) => break end,
            }
        };
        prop_assert!(matches!(end, End::Deadline | End::Complete));
        prop_assert!(play.passed() <= seconds(deadline) + Duration::from_millis(5));
        prop_assert!(play.session.requests() <= play.session.rounds() * MOST_REQUESTS);
    }
}
