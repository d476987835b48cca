//! Which program asked the kernel for a change.

use std::fs;

/// The most bytes of a program's name (`TASK_COMM_LEN`).
const NAME: usize = 16;

/// Who asked for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The kernel itself.
    Kernel,
    /// This process.
    Ourselves,
    /// Another program: its name and process while it lives.
    Other(Option<String>),
}

/// Finds out who has a netlink port; `own` is ours. A program's first socket has its process
/// id for a port; what has ended by now, or has other ports, stays unknown.
pub(crate) fn requester(port: Option<u32>, own: Option<u32>) -> Requester {
    let Some(port) = port else {
        return Requester::Kernel;
    };
    if own == Some(port) {
        return Requester::Ourselves;
    }
    let name = fs::read(format!("/proc/{port}/comm")).ok();
    let name = name.map(|name| printable(&name));
    Requester::Other(name.map(|name| format!("{name}[{port}]")))
}

/// A program may call itself what it likes.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name.get(..name.len().min(NAME)).unwrap_or_default());
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.trim_end_matches('\n').chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_we_are_told_from_others() {
        let own = Some(u32::MAX - 7);
        assert_eq!(requester(None, own), Requester::Kernel);
        assert_eq!(requester(own, own), Requester::Ourselves);
        // A random port, as a second socket has it.
        let other = Some(u32::MAX - 5);
        assert_eq!(requester(other, own), Requester::Other(None));
        assert_eq!(requester(other, None), Requester::Other(None));
    }

    #[test]
    fn a_name_is_one_word() {
        assert_eq!(printable(b"sd-resolve\n"), "sd-resolve");
        assert_eq!(printable("a\tb\u{1b}[c é".as_bytes()), "a?b?[c??");
    }
}
