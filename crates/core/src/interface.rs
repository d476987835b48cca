//! Names, indexes and hardware addresses of network interfaces.
//!
//! A name comes from whoever could create or rename a device, so it is checked before
//! anything else sees it: netdevice(7) and `dev_valid_name()` in the kernel's
//! net/core/dev.c allow at most 15 bytes, no `/`, no `:`, no white space, and neither
//! `.` nor `..`. Control characters are refused here as well.

use std::borrow::Borrow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The kernel's limit on a name, in bytes (IFNAMSIZ - 1).
const MAX_NAME: usize = 15;
/// The kernel's limit on an alternative name, in bytes (ALTIFNAMSIZ - 1).
const MAX_ALTERNATIVE: usize = 127;

/// Why a text is not an interface name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidInterface {
    /// Nothing was given.
    #[error("interface name is empty")]
    Empty,
    /// Longer than the kernel allows.
    #[error("interface name {name} has {length} bytes, at most {limit} are possible", name = crate::Quoted::shortened(name), length = name.len())]
    TooLong {
        /// The name as given.
        name: String,
        /// The limit it broke, in bytes.
        limit: usize,
    },
    /// `.`, `..`, or a byte that the kernel refuses.
    #[error("interface name {} has a character that no interface name can have", crate::Quoted(.0))]
    Forbidden(String),
}

/// The name of a network interface as the kernel knows it now: 1 to 15 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

/// What a client calls an interface: its name, or one of its alternative names (up to
/// 127 bytes, `ip link property`). Only the kernel's link list can tell which.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceRef(String);

fn checked(name: &str, limit: usize) -> Result<(), InvalidInterface> {
    if name.is_empty() {
        return Err(InvalidInterface::Empty);
    }
    if name.len() > limit {
        return Err(InvalidInterface::TooLong {
            name: name.to_owned(),
            limit,
        });
    }
    // Control characters pass the kernel's check, but would reach terminals through logs.
    let bad = |c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c.is_control();
    if name == "." || name == ".." || name.contains(bad) {
        return Err(InvalidInterface::Forbidden(name.to_owned()));
    }
    Ok(())
}

macro_rules! name_type {
    ($type:ident, $limit:expr) => {
        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidInterface;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                checked(name, $limit).map(|()| Self(name.to_owned()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidInterface;

            fn try_from(name: String) -> Result<Self, Self::Error> {
                checked(&name, $limit).map(|()| Self(name))
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name_type!(InterfaceName, MAX_NAME);
name_type!(InterfaceRef, MAX_ALTERNATIVE);

impl From<InterfaceName> for InterfaceRef {
    fn from(name: InterfaceName) -> Self {
        Self(name.0)
    }
}

/// The kernel's number of an interface: never 0, unique within a network namespace
/// while the interface lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IfIndex(NonZeroU32);

impl IfIndex {
    /// The index, or `None` for 0, which names no interface.
    #[must_use]
    pub const fn new(index: u32) -> Option<Self> {
        match NonZeroU32::new(index) {
            Some(index) => Some(Self(index)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name as one word for a POSIX shell: as it is, or in single quotes. The kernel lets a
/// name hold nearly any character that a shell acts on.
pub(crate) struct ShellWord<'a>(pub(crate) &'a str);

impl fmt::Display for ShellWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-@%+".contains(c);
        if self.0.chars().all(plain) {
            f.write_str(self.0)
        } else {
            write!(f, "'{}'", self.0.replace('\'', r"'\''"))
        }
    }
}

/// An interface with both of its handles: the kernel goes by the index, people by the
/// name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// The index, which decides.
    pub index: IfIndex,
    /// The name at the time of the snapshot.
    pub name: InterfaceName,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name.as_str())
    }
}

/// A 48-bit hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// Why a text is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is not a hardware address such as 02:00:5e:10:00:01", crate::Quoted(.0))]
pub struct InvalidMac(String);

impl Mac {
    /// The address from its six bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// The six bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }
}

impl TryFrom<String> for Mac {
    type Error = InvalidMac;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidMac(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(invalid)?;
            if part.is_empty() || part.len() > 2 {
                return Err(invalid());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(invalid()),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_kernel() {
        for good in ["eth0", "enx0012345abcde", "w;id&x'$(id)", "a.b", "...", "é"] {
            assert!(good.parse::<InterfaceName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a:b",
            "a b",
            "a\tb",
            "a\nb",
            "a\x0bb",
            "a\0b",
            "a\x1bb",
            "sixteen-bytes-xx",
            "../../etc/passwd",
        ] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_stays_one_word_in_a_shell() {
        let word = |name: &str| ShellWord(name).to_string();
        assert_eq!(word("eth0.5"), "eth0.5");
        assert_eq!(word("w;id&x'$(id)"), r"'w;id&x'\''$(id)'");
    }

    #[test]
    fn alternative_names_may_be_long() {
        assert!("eni-0a1b2c3d4e5f60718".parse::<InterfaceRef>().is_ok());
        assert!("x".repeat(127).parse::<InterfaceRef>().is_ok());
        assert!("x".repeat(128).parse::<InterfaceRef>().is_err());
        assert!("eni/0".parse::<InterfaceRef>().is_err());
    }

    #[test]
    fn hardware_addresses_read_back() {
        let mac: Mac = "02:00:5E:10:0:1".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:01");
        for bad in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "02:00:5e:10:00:zz",
            "020:0:5e:10:0:1",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
