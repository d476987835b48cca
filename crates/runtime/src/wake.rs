//! A word from a hook to whoever asks metadata services: a lease event has been dealt with.
//!
//! One datagram to a socket that systemd holds (`leaseroute-metadata.socket`) or nobody does.
//! Sending never waits, and it does not matter when it fails: metadata only adds.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use leaseroute_core::InterfaceRef;

/// The name of the socket, beside the state folders of all network namespaces.
const SOCKET: &str = "metadata.socket";

/// The longest datagram, in bytes.
pub const LONGEST: usize = 256;

/// Where the socket is that belongs to a state folder.
#[must_use]
pub fn socket(state: &Path) -> PathBuf {
    state.parent().unwrap_or(state).join(SOCKET)
}

/// Says that something happened to the lease of an interface.
///
/// # Errors
///
/// When nobody listens, or does not keep up.
pub fn tell(state: &Path, interface: &InterfaceRef) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    datagram.set_nonblocking(true)?;
    let word = format!("{} {interface}\n", namespace(state));
    datagram.send_to(word.as_bytes(), socket(state)).map(|_| ())
}

/// Reads such a word: the interface. `None` when it makes no sense, or comes from another
/// network namespace than that of the state folder.
#[must_use]
pub fn read(state: &Path, datagram: &[u8]) -> Option<InterfaceRef> {
    let word = std::str::from_utf8(datagram).ok()?.strip_suffix('\n')?;
    let (origin, interface) = word.split_once(' ')?;
    (origin == namespace(state)).then(|| interface.parse().ok())?
}

/// State folders are named after their namespace.
fn namespace(state: &Path) -> String {
    let name = state.file_name().map(OsStr::to_string_lossy);
    name.unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_arrives_and_foreign_ones_are_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("4026531840");
        let interface: InterfaceRef = "eth1".parse().unwrap();
        assert!(tell(&state, &interface).is_err(), "nobody listens");
        let ear = UnixDatagram::bind(socket(&state)).unwrap();
        tell(&state, &interface).unwrap();
        let mut datagram = [0; LONGEST];
        let length = ear.recv(&mut datagram).unwrap();
        let heard = &datagram[..length];
        assert_eq!(read(&state, heard), Some(interface));
        assert_eq!(read(&folder.path().join("4026532000"), heard), None);
        for bad in [
            &b"4026531840 ../x\n"[..],
            b"4026531840 eth1",
            b"eth1\n",
            b"\xff\n",
            b"",
        ] {
            assert_eq!(read(&state, bad), None);
        }
    }

    #[test]
    fn a_listener_that_does_not_listen_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("1");
        let _ear = UnixDatagram::bind(socket(&state)).unwrap();
        let interface = "eth1".parse().unwrap();
        assert!((0..100_000).any(|_| tell(&state, &interface).is_err()));
    }
}
