//! OpenStack's configuration drive: the files of the metadata service on an ISO 9660 or VFAT
//! disk, for clouds without the service.
//!
//! Reads drives that are mounted, which only root does, and mounts none. A drive is known by
//! that file on it. The drive tells of the machine as it was
//! created: what was plugged in later is not on it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::exchange::{Answer, Method, Request};
use crate::session::Reply;

/// The file by which a drive is known.
const MARK: &str = "openstack/latest/network_data.json";

/// Where drives are mostly mounted; any other place is found by its kind of file system.
const USUAL: [&str; 3] = ["mnt/config", "media/configdrive", "run/config-drive"];

/// The longest file, in bytes; the bound of an answer.
const LONGEST: u64 = 256 * 1024;

/// A mounted drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDrive(PathBuf);

impl ConfigDrive {
    /// A drive that is mounted below a root folder, `/` for the machine itself: at one of the
    /// usual places, or anywhere that /proc/self/mountinfo has an ISO 9660 or VFAT file system.
    #[must_use]
    pub fn find(root: &Path) -> Option<Self> {
        let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounted = mounts.lines().filter_map(mount_point);
        let places = USUAL.into_iter().map(PathBuf::from).chain(mounted);
        places
            .map(|place| root.join(place))
            .find(|place| place.join(MARK).is_file())
            .map(Self)
    }

    /// What the drive has in place of an answer: the file of the path, or that it is not found.
    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let path = request.path.trim_start_matches('/');
        let is_plain = request.method == Method::Get
            && path.split('/').all(|part| !part.is_empty() && part != "..")
            && !path.contains(['?', '\0']);
        let not_there = Reply::Answer(Answer {
            status: 404,
            body: Vec::new(),
        });
        if !is_plain {
            return not_there;
        }
        let mut body = Vec::new();
        let file = File::open(self.0.join(path));
        match file.and_then(|file| file.take(LONGEST + 1).read_to_end(&mut body)) {
            Ok(length) if length as u64 <= LONGEST => Reply::Answer(Answer { status: 200, body }),
            Ok(_) => Reply::Failed(format!("{path} on the configuration drive is too long")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => not_there,
            Err(error) => Reply::Failed(format!("{path} on the configuration drive: {error}")),
        }
    }
}

/// Where a line of mountinfo (proc_pid_mountinfo(5)) mounts a file system of a kind that such
/// drives have, relative to the root.
fn mount_point(line: &str) -> Option<PathBuf> {
    let (mount, system) = line.split_once(" - ")?;
    let kind = system.split(' ').next()?;
    let place = mount.split(' ').nth(4)?;
    // A place with white space is written in octal, and is none that anybody would choose.
    let is_usable = matches!(kind, "iso9660" | "vfat") && !place.contains('\\');
    is_usable.then(|| PathBuf::from(place.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive_at(place: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mark = root.path().join(place).join(MARK);
        std::fs::create_dir_all(mark.parent().unwrap()).unwrap();
        std::fs::write(mark, "{}").unwrap();
        root
    }

    #[test]
    fn a_drive_is_found_at_a_usual_place_or_where_it_is_mounted() {
        let root = drive_at("mnt/config");
        let usual = ConfigDrive::find(root.path()).unwrap();
        assert_eq!(usual.0, root.path().join("mnt/config"));

        let root = drive_at("srv/drive");
        assert_eq!(ConfigDrive::find(root.path()), None);
        let mounts = root.path().join("proc/self");
        std::fs::create_dir_all(&mounts).unwrap();
        let lines = "21 1 8:1 / / rw - ext4 /dev/vda1 rw\n\
                     36 21 11:0 / /srv/drive ro,relatime shared:1 - iso9660 /dev/sr0 ro\n";
        std::fs::write(mounts.join("mountinfo"), lines).unwrap();
        let mounted = ConfigDrive::find(root.path()).unwrap();
        assert_eq!(mounted.0, root.path().join("srv/drive"));
    }

    #[test]
    fn the_drive_answers_its_files_and_nothing_beside_them() {
        let root = drive_at("mnt/config");
        std::fs::write(root.path().join("mnt/secret"), "x").unwrap();
        let drive = ConfigDrive::find(root.path()).unwrap();
        let status = |request: &Request| match drive.reply(request) {
            Reply::Answer(answer) => answer.status,
            other => panic!("{other:?}"),
        };
        let mark = format!("/{MARK}");
        assert_eq!(status(&Request::get(&mark)), 200);
        assert_eq!(status(&Request::put(&mark)), 404);
        assert_eq!(status(&Request::get("/openstack/latest/none.json")), 404);
        assert_eq!(status(&Request::get("/../secret")), 404);
        assert_eq!(status(&Request::get("//etc/passwd")), 404);
    }
}
