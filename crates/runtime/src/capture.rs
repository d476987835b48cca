//! From the hook's process environment, or a file of the same form, to a [`RawEvent`].

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use leaseroute_core::{Client, IfIndex, InterfaceName, LeaseFile, RawEvent};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use crate::files;

/// The most that is read of a client's lease file, in bytes.
const LEASE_FILE: u64 = 64 * 1024;

/// What the process received as a hook of `client`.
#[must_use]
pub fn environment(client: Client) -> RawEvent {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let variables = env::vars_os().map(|(name, value)| (text(name), text(value)));
    let mut raw = RawEvent {
        arguments: env::args_os().skip(1).map(text).collect(),
        ..RawEvent::new(client, variables.collect())
    };
    raw.lease_file = lease_file(&raw);
    raw
}

/// What the client's own lease file for the event's interface holds, for clients that keep
/// one which their hooks have to read. Only what is known not to be there is absent.
fn lease_file(raw: &RawEvent) -> LeaseFile {
    let name = raw.client.lease_file_of(raw);
    let Some(name) = name.and_then(|name| name.parse::<InterfaceName>().ok()) else {
        return LeaseFile::Absent;
    };
    let read = || -> io::Result<Option<Vec<u8>>> {
        let any = UnixDatagram::unbound()?;
        let index = IfIndex::new(name_to_index(&any, name.as_str())?);
        let path = index.and_then(|index| raw.client.lease_file(&name, index));
        path.map(|path| files::read(Path::new(&path), LEASE_FILE))
            .transpose()
    };
    let is_missing = |error: &io::Error| {
        error.kind() == io::ErrorKind::NotFound
            || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
    };
    match read() {
        Ok(Some(text)) => LeaseFile::Text(String::from_utf8_lossy(&text).into_owned()),
        Ok(None) => LeaseFile::Absent,
        Err(error) if is_missing(&error) => LeaseFile::Absent,
        Err(_) => LeaseFile::Unreadable,
    }
}

/// An event from text: one `KEY=VALUE` a line, the value being all up to the end of the
/// line, without any quoting. Empty lines and lines that begin with `#` do not count.
#[must_use]
pub fn text(client: Client, text: &str) -> RawEvent {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    RawEvent::new(
        client,
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
    )
}

/// The longest value that is kept beside a lease, in bytes.
const KEPT: usize = 4096;

/// The part of an event that is kept beside the lease, for people: the variables that
/// describe leases, without those that could be secrets of the caller's environment. A
/// value that is longer than 4 KiB gives way to a word about its length. The lease itself
/// has all of it, so nothing may be derived from this.
#[must_use]
pub fn worth_keeping(raw: &RawEvent) -> RawEvent {
    let kept = |value: &str| match value.len() {
        0..=KEPT => value.to_owned(),
        length => format!("(left out, {length} bytes)"),
    };
    let of_lease = raw
        .variables
        .iter()
        .filter(|(name, _)| raw.client.describes_lease(name));
    let variables = of_lease.map(|(name, value)| (name.clone(), kept(value)));
    RawEvent {
        arguments: raw
            .arguments
            .iter()
            .map(|argument| kept(argument))
            .collect(),
        lease_file: match &raw.lease_file {
            LeaseFile::Text(text) => LeaseFile::Text(kept(text)),
            other => other.clone(),
        },
        ..RawEvent::new(raw.client, variables.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_of_the_lease_and_bounded() {
        let long = "24 198 51 100 192 0 2 254 ".repeat(200);
        let given = format!(
            "# a comment=1\nreason=BOUND\ninterface=eth1\nnew_routers=192.0.2.1\n\
             new_rfc3442_classless_static_routes={long}\nold_ip_address=\nTOKEN=secret\n"
        );
        let kept = worth_keeping(&text(Client::Dhclient, &given));
        let left_out = format!("(left out, {} bytes)", long.len());
        let want = [
            ("interface", "eth1"),
            ("new_rfc3442_classless_static_routes", left_out.as_str()),
            ("new_routers", "192.0.2.1"),
            ("old_ip_address", ""),
            ("reason", "BOUND"),
        ];
        assert!(
            kept.variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .eq(want),
            "{kept:?}"
        );
    }
}
