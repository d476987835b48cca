//! The units of systemd as its folders show them: whether they are installed, enabled, and
//! started. Nothing is asked of systemd, so that an image can be looked at, too.

use std::io;

use crate::hooks::Root;

/// Where units are, those of the administrator first.
const FOLDERS: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Where the links are that enable units.
const ENABLING: &[&str] = &["/etc/systemd/system", "/run/systemd/system"];

/// systemd keeps a link for each unit that is started (`unit_export_invocation_id` in its
/// sources).
const STARTED: &str = "/run/systemd/units";

/// The units of a system.
pub(super) struct Units<'a> {
    root: &'a Root,
}

impl<'a> Units<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self { root }
    }

    /// The file of a unit, if it is installed and not masked.
    pub(super) fn installed(&self, unit: &str) -> io::Result<Option<String>> {
        for folder in FOLDERS {
            let path = format!("{folder}/{unit}");
            if !self.root.has(&path)? {
                continue;
            }
            // A link to the null device masks it; its target is none of the root's files.
            let is_masked = matches!(
                self.root.find(&path)?,
                crate::hooks::Found::Link(target) if target.as_os_str() == "/dev/null"
            );
            return Ok((!is_masked).then_some(path));
        }
        Ok(None)
    }

    /// The links that enable a unit. A name that ends with `@` stands for all instances.
    pub(super) fn enabled(&self, unit: &str) -> io::Result<Vec<String>> {
        let mut links = Vec::new();
        for folder in ENABLING {
            for wanting in self.root.names(folder)? {
                if !wanting.ends_with(".wants") && !wanting.ends_with(".requires") {
                    continue;
                }
                let folder = format!("{folder}/{wanting}");
                for name in self.root.names(&folder)? {
                    if fits(&name, unit) {
                        links.push(format!("{folder}/{name}"));
                    }
                }
            }
        }
        Ok(links)
    }

    /// The units that are started. A name that ends with `@` stands for all instances.
    pub(super) fn started(&self, unit: &str) -> io::Result<Vec<String>> {
        let names = self.root.names(STARTED)?;
        let units = names
            .iter()
            .filter_map(|name| name.strip_prefix("invocation:"));
        let fitting = units.filter(|name| fits(name, unit));
        Ok(fitting.map(|name| format!("{name} is started")).collect())
    }

    /// What shows that one of these is enabled or started.
    pub(super) fn at_work(&self, units: &[&str]) -> io::Result<Vec<String>> {
        let mut evidence = Vec::new();
        for unit in units {
            evidence.extend(self.enabled(unit)?);
            evidence.extend(self.started(unit)?);
        }
        Ok(evidence)
    }
}

fn fits(name: &str, unit: &str) -> bool {
    if unit.ends_with('@') {
        name.starts_with(unit)
    } else {
        name == unit
    }
}
