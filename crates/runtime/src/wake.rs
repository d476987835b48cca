//! A word from a hook to whoever asks metadata services: a lease event has been dealt with.
//!
//! One datagram to a socket that systemd holds (`leaseroute-metadata.socket`) or nobody does.
//! A hook never waits, and it does not matter when its word is not taken: metadata only adds.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    send(&datagram, state, interface)
}

/// Says the same, and waits for as long as `patience` until there is room for the word: for
/// those who would have to ask themselves otherwise.
///
/// # Errors
///
/// When nobody listens, or has not kept up for that long, or `patience` is zero.
pub fn hand_over(state: &Path, interface: &InterfaceRef, patience: Duration) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(patience))?;
    send(&datagram, state, interface)
}

fn send(datagram: &UnixDatagram, state: &Path, interface: &InterfaceRef) -> io::Result<()> {
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
    use std::thread;

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

    #[test]
    fn a_word_that_is_handed_over_waits_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("1");
        let interface = "eth1".parse().unwrap();
        let patience = Duration::from_secs(30);
        let nobody = hand_over(&state, &interface, patience).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
        let ear = UnixDatagram::bind(socket(&state)).unwrap();
        let full = (0..100_000).find(|_| tell(&state, &interface).is_err());
        let words = full.unwrap() + 1;
        let heard = thread::scope(|scope| {
            let handed = scope.spawn(|| hand_over(&state, &interface, patience));
            thread::sleep(Duration::from_millis(50));
            assert!(!handed.is_finished(), "there is no room");
            let mut datagram = [0; LONGEST];
            let heard = (0..words).map(|_| ear.recv(&mut datagram)).collect();
            handed.join().unwrap().unwrap();
            heard
        });
        let heard: io::Result<Vec<usize>> = heard;
        assert_eq!(heard.unwrap().len(), words);
    }

    #[test]
    fn a_word_that_is_handed_over_does_not_wait_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("1");
        let ear = UnixDatagram::bind(socket(&state)).unwrap();
        let interface = "eth1".parse().unwrap();
        while tell(&state, &interface).is_ok() {}
        let patience = Duration::from_millis(50);
        let late = hand_over(&state, &interface, patience).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        drop(ear);
        let left = hand_over(&state, &interface, patience).unwrap_err();
        assert_eq!(left.kind(), io::ErrorKind::ConnectionRefused);
    }
}
