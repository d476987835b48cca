//! Requests over HTTP/1.1 (RFC 9112) to an address, by a card.
//!
//! Owns sockets and the bounds of an exchange. Looks up no names, follows no redirects, reads
//! no proxies from the environment and keeps no cookies. The connection is driven by whoever
//! waits for the answer: nothing runs beside it, and dropping the value closes the socket.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::header::{HeaderMap, RETRY_AFTER, TRANSFER_ENCODING};
use hyper_util::rt::TokioIo;
use leaseroute_core::{IfIndex, InterfaceName};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use crate::exchange::{Answer, Method, Request};
use crate::session::Reply;

/// How long a connection to one address may take.
const CONNECT: Duration = Duration::from_secs(1);

/// How long a whole answer may take from when the request is sent.
const ANSWER: Duration = Duration::from_secs(2);

/// The longest body, in bytes.
const LONGEST_BODY: usize = 256 * 1024;

/// The longest head of an answer, in bytes, and the most fields in it.
const LONGEST_HEAD: usize = 16 * 1024;
const MOST_FIELDS: usize = 64;

/// The card by which requests leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) index: IfIndex,
    pub(crate) name: InterfaceName,
    /// Whether sockets are bound to it. Else it is only the zone of link-local addresses.
    pub(crate) is_bound: bool,
}

/// A connection that waits for its next request.
struct Kept {
    endpoint: SocketAddr,
    sender: SendRequest<Empty<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<TcpStream>, Empty<Bytes>>>>,
}

/// One card's connections to a service.
pub(crate) struct Client {
    /// Where the service answers; where it answered last comes first.
    endpoints: Vec<SocketAddr>,
    by: Option<By>,
    kept: Option<Kept>,
}

/// Why an exchange came to nothing.
enum Broken {
    /// A connection of an earlier request turned out to be closed.
    Closed,
    Failed(String),
}

impl Client {
    pub(crate) fn new(endpoints: Vec<SocketAddr>) -> Self {
        Self {
            endpoints,
            by: None,
            kept: None,
        }
    }

    /// By which card later requests leave. A connection by another card is closed.
    pub(crate) fn leave_by(&mut self, by: By) {
        if self.by.as_ref() != Some(&by) {
            self.kept = None;
            self.by = Some(by);
        }
    }

    /// Closes what is open.
    pub(crate) fn close(&mut self) {
        self.kept = None;
    }

    /// Makes one request. A connection that an earlier request left open is used again; when
    /// it turns out to be closed, a new one is made once. Takes as long as connecting to all
    /// addresses and one answer may take, and never longer than until `deadline`.
    pub(crate) async fn ask(&mut self, request: &Request, deadline: Instant) -> Reply {
        if let Some(kept) = self.kept.take() {
            match self.exchange(kept, request, true, deadline).await {
                Ok(reply) => return reply,
                Err(Broken::Failed(why)) => return Reply::Failed(why),
                Err(Broken::Closed) => {}
            }
        }
        let kept = match self.connect(deadline).await {
            Ok(kept) => kept,
            Err(why) => return Reply::Unreachable(why),
        };
        match self.exchange(kept, request, false, deadline).await {
            Ok(reply) => reply,
            Err(Broken::Failed(why)) => Reply::Failed(why),
            Err(Broken::Closed) => Reply::Failed("the connection was closed".to_owned()),
        }
    }

    /// Connects to the first address that lets itself be connected to.
    async fn connect(&mut self, deadline: Instant) -> Result<Kept, String> {
        let mut whys = String::new();
        for (position, endpoint) in self.endpoints.iter().copied().enumerate() {
            let until = (Instant::now() + CONNECT).min(deadline);
            let why = match timeout_at(until, connect(endpoint, self.by.as_ref())).await {
                Ok(Ok((sender, connection))) => {
                    self.endpoints.swap(0, position);
                    return Ok(Kept {
                        endpoint,
                        sender,
                        connection: Box::pin(connection),
                    });
                }
                Ok(Err(why)) => why.to_string(),
                Err(_) => "no connection in time".to_owned(),
            };
            let separator = if whys.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            write!(whys, "{separator}{endpoint}: {why}").unwrap_or_default();
        }
        if let Some(by) = self.by.as_ref().filter(|by| by.is_bound) {
            write!(whys, " (by {})", by.name).unwrap_or_default();
        }
        Err(whys)
    }

    /// One request and its answer on a connection, which is kept when that went well.
    async fn exchange(
        &mut self,
        mut kept: Kept,
        request: &Request,
        is_used: bool,
        deadline: Instant,
    ) -> Result<Reply, Broken> {
        let until = (Instant::now() + ANSWER).min(deadline);
        let asked = head_of(request, kept.endpoint)?;
        let sender = &mut kept.sender;
        let answer = async {
            let closed = |error: hyper::Error| {
                let is_closed = error.is_canceled() || error.is_closed();
                let is_cut = error.is_incomplete_message() || is_reset(&error);
                if is_used && (is_closed || is_cut || error.is_parse()) {
                    Broken::Closed
                } else {
                    Broken::Failed(whole(&error))
                }
            };
            sender.ready().await.map_err(closed)?;
            let answer = sender.send_request(asked).await.map_err(closed)?;
            read(answer).await.map_err(Broken::Failed)
        };
        let driven = drive(&mut kept.connection, answer);
        let (reply, is_open) = match timeout_at(until, driven).await {
            Ok((reply, is_open)) => (reply?, is_open),
            Err(_) => return Err(Broken::Failed("no answer in time".to_owned())),
        };
        if is_open && !matches!(reply, Reply::Failed(_)) {
            self.kept = Some(kept);
        }
        Ok(reply)
    }
}

/// Drives a connection for as long as something on it takes. Says what came of that, and
/// whether the connection is still open.
async fn drive<T>(
    connection: &mut Pin<Box<Connection<TokioIo<TcpStream>, Empty<Bytes>>>>,
    on_it: impl Future<Output = T>,
) -> (T, bool) {
    match select(pin!(on_it), connection).await {
        Either::Left((result, _)) => (result, true),
        // What the connection read before its end still waits to be taken, and the end's
        // reason too.
        Either::Right((_, on_it)) => (on_it.await, false),
    }
}

async fn connect(
    endpoint: SocketAddr,
    by: Option<&By>,
) -> io::Result<(
    SendRequest<Empty<Bytes>>,
    Connection<TokioIo<TcpStream>, Empty<Bytes>>,
)> {
    let socket = match endpoint {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    let mut endpoint = endpoint;
    if let Some(by) = by {
        if by.is_bound {
            socket.bind_device(Some(by.name.as_str().as_bytes()))?;
        }
        if let SocketAddr::V6(v6) = &mut endpoint
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
        {
            v6.set_scope_id(by.index.get());
        }
    }
    let stream = socket.connect(endpoint).await?;
    // A request is one small segment, which nothing is to be put together with.
    stream.set_nodelay(true)?;
    Builder::new()
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)
}

fn head_of(
    request: &Request,
    endpoint: SocketAddr,
) -> Result<hyper::Request<Empty<Bytes>>, Broken> {
    let host = match (endpoint.ip(), endpoint.port()) {
        (IpAddr::V4(address), 80) => address.to_string(),
        (IpAddr::V6(address), 80) => format!("[{address}]"),
        (IpAddr::V4(address), port) => format!("{address}:{port}"),
        (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
    };
    let mut head = hyper::Request::builder()
        .method(match request.method {
            Method::Get => hyper::Method::GET,
            Method::Put => hyper::Method::PUT,
        })
        .uri(request.path.as_str())
        .header("host", host)
        .header(
            "user-agent",
            concat!("leaseroute/", env!("CARGO_PKG_VERSION")),
        );
    if request.method == Method::Put {
        // Some servers refuse a PUT that does not say that it has no body.
        head = head.header("content-length", "0");
    }
    for (name, value) in &request.headers {
        head = head.header(*name, value);
    }
    head.body(Empty::new())
        .map_err(|error| Broken::Failed(format!("the request cannot be written: {error}")))
}

/// Reads an answer to its end, when that matters.
async fn read(answer: hyper::Response<Incoming>) -> Result<Reply, String> {
    let status = answer.status();
    let number = status.as_u16();
    match number {
        200 => {}
        429 | 503 => {
            let after = retry_after(answer.headers(), SystemTime::now());
            // A small body is read so that the connection can be used again; a large one is
            // not worth it.
            return match bounded(answer.into_body()).await {
                Ok(_) | Err(_) => Ok(Reply::Throttled {
                    status: number,
                    after,
                }),
            };
        }
        300..=399 => {
            return Ok(Reply::Failed(format!(
                "status {number}, a redirect, which is not followed"
            )));
        }
        408 => return Ok(Reply::Failed("status 408".to_owned())),
        400..=499 => {}
        _ => return Ok(Reply::Failed(format!("status {number}"))),
    }
    let is_chunked = answer.headers().contains_key(TRANSFER_ENCODING);
    if number == 200 && !is_chunked && answer.body().size_hint().exact().is_none() {
        return Err("an answer that does not say where it ends may be cut off".to_owned());
    }
    let body = bounded(answer.into_body()).await?;
    Ok(Reply::Answer(Answer {
        status: number,
        body: body.into(),
    }))
}

async fn bounded(body: Incoming) -> Result<Bytes, String> {
    match Limited::new(body, LONGEST_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(format!(
            "the answer is longer than {} KiB",
            LONGEST_BODY / 1024
        )),
        Err(error) => Err(whole(error.as_ref())),
    }
}

/// For how long a service wants to be left alone (RFC 9110, 10.2.3): seconds, or a date.
fn retry_after(head: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = head.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // The service's own clock counts, when it tells it: a host that has just booted may be
    // years off.
    let its_now = head.get(hyper::header::DATE);
    let its_now = its_now.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    // In the past: at once.
    Some(
        date.duration_since(its_now.unwrap_or(now))
            .unwrap_or_default(),
    )
}

fn is_reset(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
            return matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected
            );
        }
        source = error.source();
    }
    false
}

/// An error with its sources.
fn whole(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error}").unwrap_or_default();
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let mut head = HeaderMap::new();
        for (name, value) in fields {
            head.insert(*name, value.parse().unwrap());
        }
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        retry_after(&head, now)
    }

    #[test]
    fn patience_is_told_in_seconds_or_as_a_date() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[("retry-after", "120")]), seconds(120));
        assert_eq!(after(&[("retry-after", "soon")]), None);
        assert_eq!(after(&[("retry-after", "-1")]), None);
        assert_eq!(
            after(&[("retry-after", "99999999999999999999999")]),
            seconds(u64::MAX)
        );
        let date = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(after(&[date]), seconds(30));
        let its_clock = ("date", "Sun, 06 Nov 1994 08:50:02 GMT");
        assert_eq!(after(&[date, its_clock]), seconds(5));
        let its_clock = ("date", "Sun, 06 Nov 1994 08:51:00 GMT");
        assert_eq!(after(&[date, its_clock]), seconds(0));
    }
}
