//! The driver against servers that speak raw bytes, well and badly.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends with a panic"
)]

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{PLAIN, Plain, card};
use leaseroute_core::{Endpoint, IfIndex};
use leaseroute_kernel::topology::NewAddress;
use leaseroute_lab::{privilege, site::Site};
use leaseroute_metadata::{
    Asker, Card, Cards, ConfigDrive, End, Finding, Findings, Outcome, Provider, Sessions, Way, Why,
    ask,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a server does on a connection.
#[derive(Clone, Debug)]
enum Do {
    /// Reads a request to the end of its head.
    Read,
    /// Writes.
    Say(String),
    /// Writes a byte every 100 ms.
    Drip(String),
    /// Writes the same again and again.
    Flood(String),
    /// Does nothing for good.
    Hold,
}

use Do::{Drip, Flood, Hold, Read, Say};

fn say(text: &str) -> Do {
    Say(text.to_owned())
}

fn answer(status: &str, fields: &str, body: &str) -> Do {
    Say(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{fields}\r\n{body}",
        body.len()
    ))
}

fn good() -> Do {
    answer("200 OK", "", "192.0.2.1")
}

/// The requests of each connection, and when they came.
type Heard = Arc<Mutex<Vec<(usize, Instant, String)>>>;

/// Plays one script for each connection, the last one for all that follow.
fn serve(listener: TcpListener, scripts: Vec<Vec<Do>>) -> Heard {
    let heard = Heard::default();
    let log = Arc::clone(&heard);
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let script = scripts[number.min(scripts.len() - 1)].clone();
            tokio::spawn(play(stream, script, number, Arc::clone(&log)));
        }
    });
    heard
}

async fn play(mut stream: TcpStream, script: Vec<Do>, number: usize, log: Heard) {
    for step in script {
        let went_well = match step {
            Read => {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                log.lock().unwrap().push((number, Instant::now(), head));
                true
            }
            Say(text) => stream.write_all(text.as_bytes()).await.is_ok(),
            Drip(text) => {
                for byte in text.bytes() {
                    if stream.write_u8(byte).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                true
            }
            Flood(text) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {}
                false
            }
            Hold => std::future::pending().await,
        };
        if !went_well {
            return;
        }
    }
}

/// Cards that stay as they are.
#[derive(Default)]
struct Fixed {
    cards: RefCell<BTreeMap<IfIndex, Card>>,
    told: RefCell<Vec<(IfIndex, Findings)>>,
    /// How many findings are not taken in.
    refusals: Cell<usize>,
}

impl Fixed {
    fn with(cards: impl IntoIterator<Item = Card>) -> Self {
        let cards = cards.into_iter().map(|card| (card.index, card)).collect();
        Self {
            cards: RefCell::new(cards),
            ..Self::default()
        }
    }
}

impl Cards for Fixed {
    type Error = Infallible;

    fn card(&self, index: IfIndex) -> Result<Option<Card>, Infallible> {
        Ok(self.cards.borrow().get(&index).cloned())
    }

    fn tell(&self, card: &Card, findings: &Findings) -> bool {
        self.told.borrow_mut().push((card.index, findings.clone()));
        let left = self.refusals.get();
        self.refusals.set(left.saturating_sub(1));
        left == 0
    }
}

fn on_loopback() -> Card {
    card("lo", 1, &["192.0.2.1"])
}

fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

fn asker(provider: &'static dyn Provider, address: SocketAddr) -> Asker {
    Asker::new(provider).at(Some(Endpoint::new(address)))
}

/// One round against a server of these scripts.
async fn once(scripts: Vec<Vec<Do>>) -> (Outcome, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let asker = asker(&PLAIN, listener.local_addr().unwrap()).once(true);
    let heard = serve(listener, scripts);
    let cards = Fixed::with([on_loopback()]);
    let outcome = ask(&asker, &cards, on_loopback().index).await;
    (outcome, heard)
}

fn is_known(outcome: &Outcome) -> bool {
    matches!(outcome.findings.ipv4, Finding::Known(_))
}

fn why(outcome: &Outcome) -> String {
    match &outcome.findings.ipv4 {
        Finding::Unknown(Why::Unreachable(why)) => why.clone(),
        other => panic!("{other:?}"),
    }
}

/// One round that must fail for a reason.
fn fails(script: Vec<Do>, reason: &str) {
    in_runtime(async {
        let (outcome, _) = once(vec![script]).await;
        assert_eq!(outcome.end, End::Once);
        let why = why(&outcome);
        assert!(why.contains(reason), "{why}");
        assert!(outcome.took < Duration::from_secs(10));
    });
}

#[test]
fn a_plain_answer_is_taken_and_the_request_says_who_asks() {
    in_runtime(async {
        let (outcome, heard) = once(vec![vec![Read, good(), Hold]]).await;
        assert_eq!(outcome.end, End::Complete);
        assert!(is_known(&outcome));
        let heard = heard.lock().unwrap();
        let head = heard[0].2.to_lowercase();
        assert!(head.starts_with("get /card http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nhost: 127.0.0.1:"), "{head}");
        let agent = concat!("\r\nuser-agent: leaseroute/", env!("CARGO_PKG_VERSION"));
        assert!(head.contains(agent), "{head}");
        assert!(!head.contains("accept-encoding"), "{head}");
    });
}

#[test]
fn a_finding_that_could_not_be_taken_in_is_told_again() {
    in_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asker = asker(&PLAIN, listener.local_addr().unwrap()).deadline(Duration::from_secs(20));
        let _server = serve(listener, vec![vec![Read, good(), Hold]]);
        let cards = Fixed::with([on_loopback()]);
        cards.refusals.set(2);
        let outcome = ask(&asker, &cards, on_loopback().index).await;
        assert_eq!((outcome.end, outcome.requests), (End::Complete, 1));
        let told = cards.told.borrow();
        assert_eq!(told.len(), 3);
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
    });
}

#[test]
fn answers_in_other_forms_are_taken_too() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                   4\r\n192.\r\n5\r\n0.2.1\r\n0\r\n\r\n";
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\n192.0.2.1";
    let go_on =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n192.0.2.1";
    for text in [chunked, old, go_on] {
        in_runtime(async {
            let (outcome, _) = once(vec![vec![Read, say(text)]]).await;
            assert!(is_known(&outcome), "{text}: {outcome:?}");
        });
    }
}

#[test]
fn a_slow_drip_is_given_up() {
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{}",
        "1".repeat(900)
    );
    fails(vec![Read, Drip(text)], "no answer in time");
}

#[test]
fn silence_is_given_up() {
    fails(vec![Read, Hold], "no answer in time");
}

#[test]
fn an_endless_body_is_given_up() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("1000\r\n{}\r\n", "1".repeat(0x1000));
    fails(vec![Read, say(head), Flood(chunk)], "longer than 256 KiB");
}

#[test]
fn a_chunked_answer_without_end_is_given_up() {
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n192.0.2.1\r\n";
    fails(vec![Read, say(text), Hold], "no answer in time");
    fails(vec![Read, say(text)], "");
}

#[test]
fn a_body_that_is_announced_too_long_is_not_waited_for() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n";
    let chunk = "1".repeat(4096);
    fails(vec![Read, say(text), Flood(chunk)], "longer than 256 KiB");
}

#[test]
fn huge_heads_are_refused() {
    let field = format!("x-long: {}\r\n", "x".repeat(4000));
    fails(
        vec![Read, say("HTTP/1.1 200 OK\r\n"), Flood(field)],
        "too large",
    );
    let mut many = "HTTP/1.1 200 OK\r\n".to_owned();
    for number in 0..100 {
        many.push_str(&format!("x-{number}: 1\r\n"));
    }
    many.push_str("content-length: 9\r\n\r\n192.0.2.1");
    fails(vec![Read, Say(many)], "too large");
}

#[test]
fn a_body_shorter_than_announced_is_no_answer() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n192.0.2.1";
    fails(vec![Read, say(text)], "");
}

#[test]
fn an_answer_that_may_be_cut_off_is_no_answer() {
    let text = "HTTP/1.0 200 OK\r\n\r\n192.0.2.1";
    fails(vec![Read, say(text)], "may be cut off");
}

#[test]
fn an_early_close_is_no_answer() {
    fails(vec![Read], "");
    fails(vec![Read, say("HTTP/1.1 200 OK\r\ncont")], "");
    fails(vec![], "");
}

#[test]
fn garbage_is_no_answer() {
    fails(vec![Read, say("\u{1}\u{2}garbage\r\n\r\n")], "");
    fails(vec![Read, say("SSH-2.0-OpenSSH_9.2p1\r\n")], "");
    let twice = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-length: 5\r\n\r\n192.0.2.1";
    fails(vec![Read, say(twice)], "");
}

#[test]
fn a_redirect_is_not_followed() {
    in_runtime(async {
        let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("location: http://{}/\r\n", trap.local_addr().unwrap());
        let trapped = serve(trap, vec![vec![Read, good()]]);
        let (outcome, _) = once(vec![vec![Read, answer("302 Found", &to, ""), Hold]]).await;
        assert!(why(&outcome).contains("redirect"), "{outcome:?}");
        assert!(trapped.lock().unwrap().is_empty());
    });
}

#[test]
fn server_errors_fail_the_round_and_refusals_reach_the_provider() {
    fails(vec![Read, answer("500 Oops", "", "")], "status 500");
    fails(vec![Read, answer("408 Late", "", "")], "status 408");
    fails(vec![Read, answer("204 None", "", "")], "status 204");
    in_runtime(async {
        let (outcome, _) = once(vec![vec![Read, answer("404 None", "", "no"), Hold]]).await;
        let refused = Why::Refused {
            path: "/card".to_owned(),
            status: 404,
        };
        assert_eq!(outcome.findings, Findings::unknown(refused));
    });
}

#[test]
fn a_service_that_wants_patience_gets_it() {
    let in_two_seconds = std::time::SystemTime::now() + Duration::from_secs(3600);
    let date = format!(
        "date: {}\r\nretry-after: {}\r\n",
        httpdate::fmt_http_date(in_two_seconds - Duration::from_secs(2)),
        httpdate::fmt_http_date(in_two_seconds)
    );
    for (status, fields, least) in [
        ("429 Slow", "retry-after: 1\r\n", 1.0),
        ("429 Slow", date.as_str(), 2.0),
        ("503 Busy", "", 1.0),
    ] {
        in_runtime(async {
            let (outcome, heard) = once(vec![vec![
                Read,
                answer(status, fields, "wait"),
                Read,
                good(),
                Hold,
            ]])
            .await;
            assert!(is_known(&outcome), "{outcome:?}");
            let heard = heard.lock().unwrap();
            let gap = (heard[1].1 - heard[0].1).as_secs_f64();
            assert!(gap >= least, "{fields}: {gap}");
            assert_eq!(heard[1].0, 0, "the connection is used again");
        });
    }
}

static WITH_TOKEN: Plain = Plain {
    way: Way::Host,
    endpoints: &[],
    rate: 1000,
    wants_token: true,
};

#[test]
fn requests_share_a_connection_and_a_closed_one_is_made_anew() {
    in_runtime(async {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let asker = asker(&WITH_TOKEN, listener.local_addr().unwrap()).once(true);
        let token = answer("200 OK", "", "t");
        let scripts = vec![vec![Read, token.clone()], vec![Read, good(), Hold]];
        let heard = serve(listener, scripts);
        let cards = Fixed::with([on_loopback()]);
        let outcome = ask(&asker, &cards, on_loopback().index).await;
        assert!(is_known(&outcome), "{outcome:?}");
        let heard = heard.lock().unwrap().clone();
        assert_eq!(heard.len(), 2);
        assert_eq!((heard[0].0, heard[1].0), (0, 1));
        assert!(heard[0].2.starts_with("PUT /token"));
        assert!(heard[1].2.contains("x-token: t\r\n"));

        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let asker = self::asker(&WITH_TOKEN, listener.local_addr().unwrap()).once(true);
        let heard = serve(listener, vec![vec![Read, token, Read, good(), Hold]]);
        let outcome = ask(&asker, &cards, on_loopback().index).await;
        assert!(is_known(&outcome), "{outcome:?}");
        assert!(
            heard
                .lock()
                .unwrap()
                .iter()
                .all(|(number, ..)| *number == 0)
        );
    });
}

/// An address at which nobody listens.
fn refusing() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn the_next_address_is_tried_when_one_refuses() {
    in_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = vec![refusing(), listener.local_addr().unwrap()].leak();
        let provider = Box::leak(Box::new(Plain {
            endpoints,
            way: Way::Card,
            ..PLAIN
        }));
        serve(listener, vec![vec![Read, good(), Hold]]);
        let asker = Asker::new(provider).once(true);
        let cards = Fixed::with([on_loopback()]);
        let outcome = ask(&asker, &cards, on_loopback().index).await;
        assert!(is_known(&outcome), "{outcome:?}");
    });
}

#[test]
fn nobody_there_is_said_with_the_card() {
    in_runtime(async {
        let provider = Box::leak(Box::new(Plain {
            way: Way::Card,
            ..PLAIN
        }));
        let asker = asker(provider, refusing()).deadline(Duration::from_secs(2));
        let cards = Fixed::with([on_loopback()]);
        let outcome = ask(&asker, &cards, on_loopback().index).await;
        assert_eq!(outcome.end, End::Deadline);
        assert!(outcome.rounds > 3, "{outcome:?}");
        let why = why(&outcome);
        assert!(why.contains("refused") && why.ends_with("(by lo)"), "{why}");
        assert_eq!(cards.told.borrow().len(), outcome.rounds as usize);
    });
}

#[test]
fn one_card_that_is_stuck_holds_up_no_other() {
    in_runtime(async {
        // The first connection is never answered, all others are.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asker = asker(&PLAIN, listener.local_addr().unwrap()).deadline(Duration::from_secs(20));
        serve(listener, vec![vec![Read, Hold], vec![Read, good(), Hold]]);
        let all = (1..=15).map(|index| card("lo", index, &["192.0.2.1"]));
        let cards = Rc::new(Fixed::with(all));
        let mut sessions = Sessions::new(Rc::new(asker), Rc::clone(&cards));
        for index in 1..=15 {
            sessions.event(IfIndex::new(index).unwrap());
            sessions.event(IfIndex::new(index).unwrap());
        }
        assert_eq!(sessions.len(), 15);
        let began = Instant::now();
        for _ in 0..14 {
            assert_eq!(sessions.next().await.unwrap().end, End::Complete);
        }
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        sessions.stop();
        assert!(sessions.is_empty());
        assert_eq!(sessions.next().await, None);
    });
}

#[test]
fn all_cards_together_stay_within_the_rate_of_the_service() {
    in_runtime(async {
        let provider = Box::leak(Box::new(Plain { rate: 20, ..PLAIN }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asker =
            asker(provider, listener.local_addr().unwrap()).deadline(Duration::from_secs(3));
        let heard = serve(listener, vec![vec![Read, answer("404 None", "", "")]]);
        let all = (1..=15).map(|index| card("lo", index, &["192.0.2.1"]));
        let mut sessions = Sessions::new(Rc::new(asker), Rc::new(Fixed::with(all)));
        for index in 1..=15 {
            sessions.event(IfIndex::new(index).unwrap());
        }
        let began = Instant::now();
        while sessions.next().await.is_some() {}
        let (requests, took) = (heard.lock().unwrap().len(), began.elapsed());
        assert!(requests > 15, "{requests}");
        assert!(
            requests as f64 <= 20.0 * (took.as_secs_f64() + 1.0),
            "{requests} in {took:?}"
        );
    });
}

#[test]
fn a_drive_answers_where_the_service_never_did() {
    in_runtime(async {
        let root = tempfile::tempdir().unwrap();
        let drive = root.path().join("mnt/config");
        std::fs::create_dir_all(drive.join("openstack/latest")).unwrap();
        std::fs::write(drive.join("openstack/latest/network_data.json"), "{}").unwrap();
        std::fs::write(drive.join("card"), "192.0.2.1").unwrap();
        let with_drive = |address| {
            let drive = ConfigDrive::find(root.path());
            asker(&PLAIN, address).once(true).or_drive(drive)
        };
        let cards = Fixed::with([on_loopback()]);
        let outcome = ask(&with_drive(refusing()), &cards, on_loopback().index).await;
        assert!(is_known(&outcome), "{outcome:?}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let reached = with_drive(listener.local_addr().unwrap());
        serve(listener, vec![vec![Read, answer("500 Oops", "", "")]]);
        let outcome = ask(&reached, &cards, on_loopback().index).await;
        assert!(why(&outcome).contains("status 500"), "{outcome:?}");
    });
}

#[test]
fn a_card_that_is_gone_ends_quietly() {
    in_runtime(async {
        let asker = asker(&PLAIN, refusing());
        let cards = Fixed::default();
        let outcome = ask(&asker, &cards, IfIndex::new(9).unwrap()).await;
        assert_eq!((outcome.end, outcome.requests), (End::Gone, 0));
        assert!(cards.told.borrow().is_empty());
    });
}

#[test]
fn an_event_brings_a_session_back_from_its_pause() {
    in_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asker = asker(&PLAIN, listener.local_addr().unwrap()).deadline(Duration::from_secs(3));
        serve(listener, vec![vec![Read, answer("404 None", "", "")]]);
        let cards = Rc::new(Fixed::with([on_loopback()]));
        let mut sessions = Sessions::new(Rc::new(asker), cards);
        let began = Instant::now();
        sessions.event(on_loopback().index);
        let early = tokio::time::timeout(Duration::from_secs(2), sessions.next()).await;
        assert!(early.is_err());
        sessions.event(on_loopback().index);
        let outcome = sessions.next().await.unwrap();
        assert_eq!(outcome.end, End::Deadline);
        assert!(
            began.elapsed() > Duration::from_secs(4),
            "{:?}",
            began.elapsed()
        );
    });
}

#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    const INSIDE: &str = "LEASEROUTE_TEST_WITH_PROXY";
    if std::env::var_os(INSIDE).is_some() {
        return in_runtime(async {
            let (outcome, _) = once(vec![vec![Read, good(), Hold]]).await;
            assert!(is_known(&outcome), "{outcome:?}");
        });
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "a_proxy_of_the_environment_is_not_asked"]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        again.env(name, format!("http://{}", refusing()));
    }
    let status = again.env(INSIDE, "1").status().unwrap();
    assert!(status.success());
}

/// A card of the host in the documentation's subnet, and its service at the far end.
fn connect(host: &Site, far: &Site, number: usize) -> IfIndex {
    let card = format!("eth{number}").parse().unwrap();
    let port = "eth0".parse().unwrap();
    let (here, there) = host.connect((&card, None), far, (&port, None)).unwrap();
    let ours = format!("198.51.100.{}/24", number + 1);
    for (site, link, address) in [
        (host, here, ours.as_str()),
        (far, there, "198.51.100.254/24"),
    ] {
        let address = NewAddress::permanent(address.parse().unwrap());
        site.net(|net| net.add_address(link, &address)).unwrap();
        site.net(|net| net.set_up(link, true)).unwrap();
    }
    host.await_running(here).unwrap();
    here
}

/// Two cards, and one address that answers on the far end of each with another text.
#[test]
fn a_request_leaves_by_the_card_it_asks_about() {
    privilege::with_namespaces("a_request_leaves_by_the_card_it_asks_about", || {
        let (host, service) = (
            Site::new("host").unwrap(),
            [
                Site::new("service-a").unwrap(),
                Site::new("service-b").unwrap(),
            ],
        );
        let mut cards = Vec::new();
        for (number, far) in service.iter().enumerate() {
            let here = connect(&host, far, number);
            let mut card = card(&format!("eth{number}"), here.get(), &[]);
            card.leased.insert("192.0.2.1".parse().unwrap());
            cards.push(card);
            let told = format!("192.0.2.1\n192.0.2.{}", 100 + number);
            let started = far.namespace().run(move || {
                let listener = std::net::TcpListener::bind("198.51.100.254:80").unwrap();
                listener.set_nonblocking(true).unwrap();
                listener
            });
            std::thread::spawn(move || {
                in_runtime(async move {
                    let listener = TcpListener::from_std(started).unwrap();
                    serve(
                        listener,
                        vec![vec![Read, answer("200 OK", "", &told), Hold]],
                    );
                    tokio::time::sleep(Duration::from_secs(30)).await;
                });
            });
        }
        let (outcomes, lost) = host.run(move || {
            let provider = Box::leak(Box::new(Plain {
                way: Way::Card,
                ..PLAIN
            }));
            let to = "198.51.100.254:80".parse().unwrap();
            let asker = asker(provider, to).deadline(Duration::from_secs(20));
            let fixed = Fixed::with(cards.clone());
            let nowhere = "198.51.100.77:80".parse().unwrap();
            let hole = self::asker(provider, nowhere).once(true);
            in_runtime(async {
                let mut outcomes = Vec::new();
                for card in &cards {
                    outcomes.push(ask(&asker, &fixed, card.index).await);
                }
                let lost = ask(&hole, &fixed, cards[0].index).await;
                (outcomes, lost)
            })
        });
        let why = why(&lost);
        assert!(why.contains("no connection in time (by eth0)"), "{why}");
        for (number, outcome) in outcomes.iter().enumerate() {
            let Finding::Known(said) = &outcome.findings.ipv4 else {
                panic!("{outcome:?}");
            };
            let expected = format!("192.0.2.{}", 100 + number);
            assert_eq!(said.addresses[1].to_string(), expected);
        }
    });
}
