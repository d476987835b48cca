//! The kernel's error numbers that mean something here (asm-generic/errno-base.h and
//! errno.h in its user interface); std has a name for only some of them.

use std::io;

pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const ESRCH: i32 = 3;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EPROTONOSUPPORT: i32 = 93;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const EAFNOSUPPORT: i32 = 97;
pub(crate) const EADDRNOTAVAIL: i32 = 99;
pub(crate) const ENETDOWN: i32 = 100;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const ENOBUFS: i32 = 105;
pub(crate) const EHOSTUNREACH: i32 = 113;

/// Whether an error is one of these numbers.
pub(crate) fn is(error: &io::Error, numbers: &[i32]) -> bool {
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}
