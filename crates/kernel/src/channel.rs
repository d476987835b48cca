//! One conversation at a time over a strict-check rtnetlink socket.
//!
//! Owns the socket, sequence numbers and framing; knows nothing of what the messages
//! say (`convert` does). A dump or a batch is answered completely before the next one
//! starts, since the kernel allows one dump per socket. A conversation that is left
//! early, since enough was read, costs the socket: closing it is the only way to end a
//! dump, and the next conversation opens another.
//!
//! Nothing here is async. The kernel has answered a route request before sendto(2)
//! returns (`netlink_unicast_kernel()` in net/netlink/af_netlink.c), so there is nothing
//! to wait for; the receive timeout is a safety net. That is why this module uses the
//! library's socket and not its connection, whose task, channels and event loop cost more
//! than the dumps themselves, and which drops what it cannot decode.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use rtnetlink::packet_core::{
    NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NetlinkBuffer, parse_i32,
};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::error::KernelError;

/// How often a dump is repeated because others changed what it reads.
pub(crate) const TRIES: u32 = 10;
/// How many changes go out before their answers are read. Answers to more than about
/// 200 would overflow the socket's default receive buffer (212,992 bytes).
const BATCH: usize = 64;
/// The size of a page as far as `NLMSG_GOODSIZE` (linux/netlink.h) depends on it, in
/// bytes: no datagram of a dump is larger unless it is read with a larger buffer.
const PAGE: usize = if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
    4 * 1024
} else {
    8 * 1024
};
/// The most that the kernel gathers for one datagram of a dump, in bytes.
const MOST: usize = 32 * 1024;
/// The longest wait for an answer, which only a broken kernel would need.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Where one message of a datagram ends and the next one starts, in bytes.
const ALIGNMENT: usize = 4;

/// A message for the kernel, header included; the sequence number is filled in when it
/// is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request(pub(crate) Vec<u8>);

/// How much of a dump one read takes. The kernel gathers as much for a datagram as the
/// largest buffer that the socket ever read with (`netlink_dump()`), and one more
/// datagram than was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// A page: cheap to cut off.
    Small,
    /// As much as possible: fewest datagrams, each of which shows one moment.
    Large,
}

/// The socket and what is needed to tell answers apart.
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    outgoing: Vec<u8>,
    /// What the last read filled the beginning of. Kept at its size, so that it is cleared
    /// once and not for each read.
    incoming: Vec<u8>,
    /// How much of it the last read filled, in bytes.
    filled: usize,
    /// Whether every request was answered to its end.
    idle: bool,
    /// Whether the socket ever read with a large buffer.
    has_read_large: bool,
    /// How many datagrams the contents of the last dump took, as far as they were read.
    pieces: usize,
}

impl Channel {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, KernelError> {
        Ok(Self {
            socket: open_socket().map_err(KernelError::Socket)?,
            sequence: 0,
            outgoing: Vec::new(),
            incoming: vec![0; PAGE],
            filled: 0,
            idle: true,
            has_read_large: false,
            pieces: 0,
        })
    }

    /// Sends a dump request and gives the body of each message to `collect`. Starts over
    /// when the dump was interrupted.
    pub(crate) fn dump<T>(
        &mut self,
        what: &'static str,
        request: &Request,
        reads: Reads,
        mut collect: impl FnMut(&[u8], &mut Vec<T>),
    ) -> Result<Vec<T>, KernelError> {
        self.dump_until(what, request, reads, |body, found| {
            collect(body, found);
            ControlFlow::Continue(())
        })
    }

    /// As [`Self::dump`], but only until `collect` has enough, at a cost that does not
    /// depend on what would follow.
    pub(crate) fn peek<T>(
        &mut self,
        what: &'static str,
        request: &Request,
        collect: impl FnMut(&[u8], &mut Vec<T>) -> ControlFlow<()>,
    ) -> Result<Vec<T>, KernelError> {
        // Another socket gathers little again.
        self.idle &= !self.has_read_large;
        self.dump_until(what, request, Reads::Small, collect)
    }

    fn dump_until<T>(
        &mut self,
        what: &'static str,
        request: &Request,
        reads: Reads,
        mut collect: impl FnMut(&[u8], &mut Vec<T>) -> ControlFlow<()>,
    ) -> Result<Vec<T>, KernelError> {
        for _ in 0..TRIES {
            let found = self.dump_once(request, reads, &mut collect);
            match found.map_err(|source| KernelError::Dump { what, source })? {
                Some(found) => return Ok(found),
                None => continue,
            }
        }
        Err(KernelError::Interrupted { what, tries: TRIES })
    }

    /// One try at a dump; `None` when it was interrupted.
    fn dump_once<T>(
        &mut self,
        request: &Request,
        reads: Reads,
        mut collect: impl FnMut(&[u8], &mut Vec<T>) -> ControlFlow<()>,
    ) -> io::Result<Option<Vec<T>>> {
        self.send(std::slice::from_ref(request))?;
        self.pieces = 0;
        let mut found = Vec::new();
        let mut interrupted = false;
        let mut enough = false;
        loop {
            self.receive(reads)?;
            let mut has_contents = false;
            for message in Messages(self.incoming.get(..self.filled).unwrap_or_default()) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    continue;
                }
                interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                match message.message_type() {
                    // The end of a dump carries its status, as an error does.
                    NLMSG_DONE | NLMSG_ERROR => {
                        self.idle = true;
                        self.pieces += usize::from(has_contents);
                        status(message.payload())?;
                        return Ok((!interrupted).then_some(found));
                    }
                    NLMSG_NOOP => {}
                    _ => {
                        has_contents = true;
                        enough = enough || collect(message.payload(), &mut found).is_break();
                    }
                }
            }
            self.pieces += usize::from(has_contents);
            // A datagram with much room left is the last one but for the end of the dump,
            // and reading that is cheaper than another socket.
            if enough && self.filled > PAGE / 2 {
                return Ok((!interrupted).then_some(found));
            }
        }
    }

    /// Whether the contents of the last dump came in more than one datagram, so that
    /// others may have changed them in between.
    pub(crate) fn came_in_pieces(&self) -> bool {
        self.pieces > 1
    }

    /// The port that the kernel knows the socket by, once something was sent.
    pub(crate) fn port(&self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// How many datagrams the last dump took, its mere end not counted.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Sends a request that has one answer and returns its body.
    pub(crate) fn ask(&mut self, request: &Request) -> io::Result<Vec<u8>> {
        self.send(std::slice::from_ref(request))?;
        loop {
            self.receive(Reads::Small)?;
            for message in Messages(self.incoming.get(..self.filled).unwrap_or_default()) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    continue;
                }
                self.idle = true;
                if message.message_type() == NLMSG_ERROR {
                    status(message.payload())?;
                }
                return Ok(message.payload().to_vec());
            }
        }
    }

    /// Sends changes, each of which asks for an acknowledgement, in as few datagrams as
    /// the receive buffer allows, and returns the kernel's answers in the same order.
    /// An answer that never came is an error of the kind `ConnectionAborted`.
    pub(crate) fn change(&mut self, requests: &[Request]) -> Vec<io::Result<()>> {
        let mut answers = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            let start = answers.len();
            answers.resize_with(start + batch.len(), || {
                Err(io::ErrorKind::ConnectionAborted.into())
            });
            let answers = answers.get_mut(start..).unwrap_or_default();
            // What a broken conversation leaves unanswered stays so, and the next batch
            // gets a new socket.
            drop(self.change_batch(batch, answers));
        }
        answers
    }

    fn change_batch(
        &mut self,
        batch: &[Request],
        answers: &mut [io::Result<()>],
    ) -> io::Result<()> {
        let first = self.send(batch)?;
        let mut left = batch.len();
        while left > 0 {
            self.receive(Reads::Small)?;
            for message in Messages(self.incoming.get(..self.filled).unwrap_or_default()) {
                let message = message?;
                if message.message_type() != NLMSG_ERROR {
                    continue;
                }
                let position = message.sequence_number().wrapping_sub(first);
                let answer = usize::try_from(position).ok();
                if let Some(answer) = answer.and_then(|position| answers.get_mut(position)) {
                    *answer = status(message.payload());
                    left = left.saturating_sub(1);
                }
            }
        }
        self.idle = true;
        Ok(())
    }

    /// Sends requests in one datagram and returns the first one's sequence number.
    fn send(&mut self, requests: &[Request]) -> io::Result<u32> {
        if !self.idle {
            // Late answers to what was left early must not meet the next request.
            self.socket = open_socket()?;
            self.has_read_large = false;
        }
        self.idle = false;
        let first = self.sequence.wrapping_add(1);
        self.outgoing.clear();
        for Request(request) in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let start = self.outgoing.len();
            self.outgoing.extend_from_slice(request);
            if let Some(message) = self.outgoing.get_mut(start..) {
                NetlinkBuffer::new(message).set_sequence_number(self.sequence);
            }
            let end = self.outgoing.len().next_multiple_of(ALIGNMENT);
            self.outgoing.resize(end, 0);
        }
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(&self.outgoing, &kernel, 0)?;
        Ok(first)
    }

    /// Reads one datagram into the buffer.
    fn receive(&mut self, reads: Reads) -> io::Result<()> {
        self.has_read_large |= reads == Reads::Large;
        // What the socket gathered for an earlier large read must fit, too.
        if self.has_read_large && self.incoming.len() < MOST {
            self.incoming.resize(MOST, 0);
        }
        let most = if self.has_read_large { MOST } else { PAGE };
        loop {
            let mut free = self.incoming.get_mut(..most).unwrap_or_default();
            match self.socket.recv(&mut free, 0) {
                Ok(length) => {
                    self.filled = length.min(most);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The messages of one datagram.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = io::Result<NetlinkBuffer<&'a [u8]>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        Some(match NetlinkBuffer::new_checked(bytes) {
            Ok(message) => {
                let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
                let next = length.checked_next_multiple_of(ALIGNMENT);
                self.0 = next.and_then(|next| bytes.get(next..)).unwrap_or_default();
                Ok(message)
            }
            Err(error) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                error.to_string(),
            )),
        })
    }
}

/// Opens a socket on which the kernel honours the filters of dump requests.
fn open_socket() -> io::Result<Socket> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_netlink_get_strict_chk(true)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    Ok(socket)
}

/// The status that starts the body of an acknowledgement and of a dump's end: 0 or a
/// negative errno. Old kernels end a dump without one.
fn status(body: &[u8]) -> io::Result<()> {
    match body.get(..4).and_then(|code| parse_i32(code).ok()) {
        Some(code @ ..=-1) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_splits_into_its_messages() {
        let mut datagram = Vec::new();
        for (length, sequence) in [(18_u32, 7), (16, 8)] {
            let start = datagram.len();
            datagram.resize(start + 20, 0);
            let mut message = NetlinkBuffer::new(&mut datagram[start..]);
            message.set_length(length);
            message.set_sequence_number(sequence);
        }
        datagram.truncate(36);
        let seen: Vec<_> = Messages(&datagram)
            .map(|message| message.map(|m| (m.sequence_number(), m.payload().len())))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(seen, [(7, 2), (8, 0)]);
    }

    #[test]
    fn a_cut_datagram_is_an_error() {
        let mut datagram = vec![0; 20];
        NetlinkBuffer::new(&mut datagram).set_length(24);
        for cut in [&datagram[..], &datagram[..7]] {
            let messages: Vec<_> = Messages(cut).collect();
            assert_eq!(messages.len(), 1);
            let kind = messages[0].as_ref().unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_status_is_an_errno_or_success() {
        assert!(status(&0_i32.to_ne_bytes()).is_ok());
        assert!(status(&[]).is_ok());
        let refused = status(&(-17_i32).to_ne_bytes()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(17));
    }
}
