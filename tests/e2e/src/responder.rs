//! A DHCPv4 server that does what no honest one can be asked to: leases of seconds,
//! refusals, another address at the renewal, options with any content.
//!
//! It runs on a router of the fabric and serves one card. Answers go straight to the
//! card's hardware address, by a permanent neighbour entry of the router. The wire format
//! is that of RFC 2131 and 2132; options beyond 255 octets are split as in RFC 3396.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leaseroute_lab::fabric::Card;

use crate::host::Host;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;
/// Where the options of a message begin, behind the magic cookie.
const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

/// What the server does.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The address it gives.
    pub address: Ipv4Addr,
    /// The network mask; `None`: no option.
    pub mask: Option<Ipv4Addr>,
    /// The routers of option 3.
    pub routers: Vec<Ipv4Addr>,
    /// T1, T2 and the lease time, in seconds.
    pub times: [u32; 3],
    /// Whether it refuses requests for any address but its own.
    pub refuses: bool,
    /// Whether it answers at all.
    pub answers: bool,
    /// More options: number and content.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Terms {
    /// The fabric's address for a card, renewed every other second, gone after `lease`.
    #[must_use]
    pub fn of(card: &Card, lease: u32) -> Self {
        Self {
            address: card.ipv4,
            mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            routers: vec![card.gateway4()],
            times: [2, lease.saturating_sub(1), lease],
            refuses: true,
            answers: true,
            options: Vec::new(),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Responder {
    terms: Arc<Mutex<Terms>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts a server for a card. `addresses` are all that it will ever give.
    #[must_use]
    pub fn start(machine: &Host, card: &Card, terms: Terms, addresses: &[Ipv4Addr]) -> Self {
        let router = machine.fabric.router(card.subnet).unwrap();
        for address in addresses {
            let mut command = std::process::Command::new("ip");
            command.args(["neigh", "replace", &address.to_string()]);
            command.args([
                "lladdr",
                &card.mac.to_string(),
                "dev",
                &card.port.to_string(),
            ]);
            command.args(["nud", "permanent"]);
            assert!(router.run(move || command.status()).unwrap().success());
        }
        let socket = router
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 67)))
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let server = card.gateway4();
        let terms = Arc::new(Mutex::new(terms));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, told) = (Arc::clone(&terms), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !told.load(Ordering::Relaxed) {
                let Ok((length, _)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let terms = shared.lock().unwrap().clone();
                if let Some((answer, to)) = reply(&buffer[..length], &terms, server) {
                    socket.send_to(&answer, SocketAddr::from((to, 68))).unwrap();
                }
            }
        });
        Self {
            terms,
            stop,
            thread: Some(thread),
        }
    }

    /// Changes what it does from now on.
    pub fn change(&self, change: impl FnOnce(&mut Terms)) {
        change(&mut self.terms.lock().unwrap());
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

/// The answer to a message, and where it goes.
fn reply(message: &[u8], terms: &Terms, server: Ipv4Addr) -> Option<(Vec<u8>, Ipv4Addr)> {
    if !terms.answers || message.len() < OPTIONS || message[0] != 1 {
        return None;
    }
    let wanted = option(message, 50).unwrap_or(&message[12..16]);
    let kind = match *option(message, 53)?.first()? {
        DISCOVER => OFFER,
        REQUEST if terms.refuses && wanted != terms.address.octets() => NAK,
        REQUEST => ACK,
        _ => return None,
    };
    let mut answer = vec![0; OPTIONS];
    answer[..12].copy_from_slice(&message[..12]);
    answer[0] = 2;
    answer[28..44].copy_from_slice(&message[28..44]);
    answer[236..240].copy_from_slice(&COOKIE);
    let mut push = |number: u8, content: &[u8]| {
        for part in content.chunks(255) {
            answer.extend([number, u8::try_from(part.len()).unwrap()]);
            answer.extend(part);
        }
    };
    push(53, &[kind]);
    push(54, &server.octets());
    if kind != NAK {
        for (number, seconds) in [58, 59, 51].into_iter().zip(terms.times) {
            push(number, &seconds.to_be_bytes());
        }
        if let Some(mask) = terms.mask {
            push(1, &mask.octets());
        }
        let routers: Vec<u8> = terms
            .routers
            .iter()
            .flat_map(|router| router.octets())
            .collect();
        push(3, &routers);
        for (number, content) in &terms.options {
            push(*number, content);
        }
        answer[16..20].copy_from_slice(&terms.address.octets());
    }
    answer.push(255);
    // A client that has an address listens there (RFC 2131 4.1).
    let to = if message[12..16] != [0; 4] {
        let [a, b, c, d] = [message[12], message[13], message[14], message[15]];
        Ipv4Addr::new(a, b, c, d)
    } else {
        terms.address
    };
    Some((answer, to))
}

/// The content of an option of a message.
fn option(message: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = &message[OPTIONS..];
    loop {
        match rest {
            [0, ..] => rest = &rest[1..],
            [number, length, ..] if *number != 255 => {
                let content = rest.get(2..2 + usize::from(*length))?;
                if *number == wanted {
                    return Some(content);
                }
                rest = &rest[2 + content.len()..];
            }
            _ => return None,
        }
    }
}
