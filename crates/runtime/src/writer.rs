//! Writes log messages: as entries of systemd's journal, or as lines on standard error.
//!
//! A subscriber of our own, since programs that live for a millisecond have no spans, and
//! the general one (`tracing-subscriber`) sets up what spans need before the first message,
//! which cost 8 % of a renewal. Entries follow the journal's native protocol
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>). A message that nobody takes is lost:
//! logging never stops the work.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber, span};

/// Takes events and writes each at once.
pub(crate) struct Writer {
    /// What messages are marked with.
    pub(crate) program: &'static str,
    /// How much is written.
    pub(crate) level: LevelFilter,
    /// A socket that leads to the journal; `None` stands for standard error.
    pub(crate) journal: Option<UnixDatagram>,
}

impl Writer {
    /// An entry of the journal.
    fn entry(&self, event: &tracing::Event<'_>) -> Vec<u8> {
        // The numbers of syslog(3).
        let priority = match *event.metadata().level() {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            Level::DEBUG | Level::TRACE => "7",
        };
        let mut entry = Entry(Vec::new());
        entry.put("PRIORITY", priority);
        entry.put("SYSLOG_IDENTIFIER", self.program);
        entry.put("TARGET", event.metadata().target());
        event.record(&mut entry);
        entry.0
    }

    /// `program: level: message`, as other programs of the system have it.
    fn line(&self, event: &tracing::Event<'_>) -> String {
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        let mut line = Line(format!("{}: {level}", self.program));
        event.record(&mut line);
        line.0.push('\n');
        line.0
    }
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let written = match &self.journal {
            Some(journal) => journal.send(&self.entry(event)).map(drop),
            None => write_line(&self.line(event)),
        };
        // There is no other place to say that it failed.
        drop(written);
    }

    // Spans are not used, so that one number does for all.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Writes a line to standard error unless that would block: a reader that has stopped
/// reading must not hold up a lease. A pipe that is ready takes as much as PIPE_BUF at once
/// (pipe(7)), so that a longer line is cut.
fn write_line(line: &str) -> io::Result<()> {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default()))? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let mut bytes = line.as_bytes().to_vec();
    if bytes.len() > PIPE_BUF {
        bytes.truncate(PIPE_BUF - 1);
        bytes.push(b'\n');
    }
    stderr.lock().write_all(&bytes)
}

/// What a pipe takes at once, in bytes (linux/limits.h).
const PIPE_BUF: usize = 4096;

/// The message of an event. Its other fields repeat the message and are for the journal.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" && write!(self.0, "{value:?}").is_err() {
            self.0.push_str("(a message that cannot be shown)");
        }
    }
}

/// The fields of an event in the journal's protocol: with the length of each value, so
/// that values may hold anything.
struct Entry(Vec<u8>);

impl Entry {
    fn put(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        let length = value.len() as u64;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }

    fn put_field(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.put("MESSAGE", value),
            // A prefix keeps them apart from the journal's own.
            name => self.put(&format!("F_{}", name.to_ascii_uppercase()), value),
        }
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_field(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(journal: Option<UnixDatagram>) -> Writer {
        Writer {
            program: "leaseroute-test",
            level: LevelFilter::INFO,
            journal,
        }
    }

    /// What one event looks like in the journal, as the fields and their values.
    fn fields(log: impl FnOnce()) -> Vec<(String, String)> {
        let (near, far) = UnixDatagram::pair().expect("a pair of sockets");
        tracing::subscriber::with_default(writer(Some(near)), log);
        let mut datagram = vec![0; 4096];
        let length = far.recv(&mut datagram).expect("an entry");
        let mut rest = datagram.get(..length).expect("what was read");
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').expect("a name");
            let (name, after) = rest.split_at(end);
            let (size, after) = after.split_at(9);
            let size = u64::from_le_bytes(size[1..].try_into().expect("eight bytes"));
            let (value, after) = after.split_at(size.try_into().expect("a size"));
            assert_eq!(after.first(), Some(&b'\n'));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push((text(name), text(value)));
            rest = &after[1..];
        }
        fields
    }

    #[test]
    fn an_entry_holds_the_message_and_the_structured_fields() {
        let found = fields(|| {
            let interface = "eth1";
            tracing::warn!(interface, family = %"IPv4", changed = true, "two\nlines = one");
        });
        let wanted = [
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "leaseroute-test"),
            ("TARGET", "leaseroute_runtime::writer::tests"),
            ("MESSAGE", "two\nlines = one"),
            ("F_INTERFACE", "eth1"),
            ("F_FAMILY", "IPv4"),
            ("F_CHANGED", "true"),
        ];
        assert_eq!(found, wanted.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn what_is_below_the_level_is_not_written() {
        let (near, far) = UnixDatagram::pair().expect("a pair of sockets");
        far.set_nonblocking(true)
            .expect("a socket that does not wait");
        tracing::subscriber::with_default(writer(Some(near)), || tracing::debug!("detail"));
        let received = far.recv(&mut [0; 16]).map_err(|error| error.kind());
        assert_eq!(received, Err(io::ErrorKind::WouldBlock));
    }
}
