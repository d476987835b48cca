//! Reads files that another program may have put in the place of what is expected.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::OFlags;

/// Reads a regular file of at most `limit` bytes. Anything else in its place could make the
/// reader wait, or never end, and is an error of the kind `InvalidData`.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_dated(path, limit).map(|(text, _)| text)
}

/// The same, with the moment the file was written.
pub(crate) fn read_dated(path: &Path, limit: u64) -> io::Result<(Vec<u8>, SystemTime)> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a file of the expected kind and size",
        ));
    }
    let written = found.modified()?;
    let mut text = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
    file.take(limit).read_to_end(&mut text)?;
    Ok((text, written))
}
