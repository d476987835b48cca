//! What has to be known of a client to install its hooks: the words of the table.
//!
//! A client is a [`Room`]. It has one or more [`Layout`]s, the places where a distribution
//! keeps the client's hooks; the first that fits the system is taken. A layout has
//! [`Row`]s, one for each file, link or line.

/// A DHCP client, or a program that tells of one.
#[derive(Debug)]
pub(crate) struct Room {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Other names for it.
    pub(crate) aliases: &'static [&'static str],
    /// The program that its hooks start, in [`super::table::PROGRAMS`]. `None`: it starts none.
    pub(crate) program: Option<&'static str>,
    /// It is on a system when one of these paths is there.
    pub(crate) signs: &'static [&'static str],
    pub(crate) layouts: &'static [Layout],
    /// The program that configures the cards whose events its hooks are told of, as in
    /// [`super::processes`].
    pub(crate) serves: &'static str,
    /// The names of the scripts that the client comes with. They call hooks; another one
    /// that it was started with does not.
    pub(crate) scripts: &'static [&'static str],
    /// Words in its own settings that turn our hook off: the file, the word, and the values
    /// that mean us.
    pub(crate) off: &'static [(&'static str, &'static str, &'static [&'static str])],
}

/// Where a family of distributions has the hooks of a client.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Whose it is, for people. Empty where all have the same.
    pub(crate) name: &'static str,
    /// It fits when one of these does.
    pub(crate) signs: &'static [Sign],
    pub(crate) rows: &'static [Row],
    pub(crate) starts: Start,
}

/// How to tell that a layout fits.
#[derive(Debug)]
pub(crate) enum Sign {
    /// It always fits.
    Always,
    /// A path is there.
    Exists(&'static str),
    /// One of the files has the words in it, as the client's own script that reads the
    /// folder does.
    Says(&'static [&'static str], &'static str),
}

/// When the client calls a hook that is in place.
#[derive(Debug)]
pub(crate) enum Start {
    /// With its next event.
    AtOnce,
    /// Only when it was started with one of these scripts.
    WithScript {
        scripts: &'static [&'static str],
        /// The client's own scripts; links to ours, where an administrator made them so.
        own: &'static [&'static str],
        /// Files and folders in which an administrator names a script.
        settings: &'static [&'static str],
        /// What is to be done by hand, and why.
        advice: &'static str,
    },
    /// When a unit of systemd is enabled or runs. Without systemd there is no such need.
    WithUnit {
        unit: &'static str,
        /// One of these links is there when it is enabled.
        enabled: &'static [&'static str],
        /// The process that runs then. `None`: it comes and goes.
        process: Option<&'static str>,
        /// The command that enables it, and starts it where that is needed.
        command: &'static str,
        why: &'static str,
    },
    /// It is no hook but a setting, which is read when this unit starts.
    Setting {
        /// The command that makes it count now.
        command: &'static str,
        why: &'static str,
    },
}

/// One thing that is put in place.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) path: &'static str,
    pub(crate) what: What,
    /// The folders above it that no package brings, the deepest first. They are made where
    /// they are missing, and removed again when nothing is left in them. Folders that the
    /// client's package brings are made where they are missing, and stay.
    pub(crate) ours: &'static [&'static str],
    /// Whether the client refuses the file unless its folder is root's and 0755.
    pub(crate) exact_folder: bool,
    pub(crate) why: &'static str,
}

/// What is at a path.
#[derive(Debug)]
pub(crate) enum What {
    /// A file of root's.
    File { text: &'static str, mode: u32 },
    /// A symbolic link.
    Link { target: &'static str },
    /// A line in a file of the administrator's.
    Line(&'static str),
}

impl Row {
    pub(crate) fn is_executable(&self) -> bool {
        matches!(self.what, What::File { mode, .. } if mode & 0o100 != 0)
    }

    /// The folder and the name in it.
    pub(crate) fn split(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('/').unwrap_or(("/", self.path))
    }
}
