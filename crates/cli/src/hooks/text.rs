//! The answers of `leaseroute hooks` for people.

use std::fmt;

use super::cards::{CardView, ManagerView};
use super::change::{Change, ChangedClient, ChangedHooks, Did, Kind, ToDo};
use super::list::{ClientView, EntryView, HooksView, Live, Word};

impl Did {
    fn word(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Updated => "updated",
            Self::Already => "already",
            Self::Removed => "removed",
            Self::Left => "left",
            Self::Failed => "FAILED",
        }
    }
}

impl Word {
    fn word(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            Self::Missing => "missing",
            Self::Outdated => "outdated",
            Self::NotExecutable => "not executable",
            Self::WrongMode => "wrong mode",
            Self::WrongOwner => "not root's",
            Self::Unreadable => "not readable",
            Self::Foreign => "not ours",
            Self::OutOfPlace => "not needed",
        }
    }
}

impl fmt::Display for ChangedHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clients.is_empty() {
            return writeln!(f, "nothing to do");
        }
        for client in &self.clients {
            client.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ChangedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client)?;
        write_layout(self.layout, f)?;
        writeln!(f)?;
        for change in &self.changes {
            write!(f, "  {change}")?;
        }
        for to_do in &self.to_do {
            write!(f, "  {to_do}")?;
        }
        Ok(())
    }
}

fn write_layout(layout: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match layout {
        "" => Ok(()),
        name => write!(f, " (as {name})"),
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8} {}", self.did.word(), self.path)?;
        match self.kind {
            Kind::Line => f.write_str(" (one line)")?,
            Kind::File | Kind::Link | Kind::Program | Kind::Folder => {}
        }
        match &self.cause {
            Some(cause) if self.path.is_empty() => writeln!(f, "{cause}"),
            Some(cause) => writeln!(f, ": {cause}"),
            None => writeln!(f),
        }
    }
}

impl fmt::Display for ToDo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command {
            Some(command) => writeln!(f, "to do    {command}  # {}", self.why),
            None => writeln!(f, "to do    {}", self.why),
        }
    }
}

impl fmt::Display for HooksView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |view: &&ClientView| {
            view.here || view.live == Live::Unknown || !view.entries.is_empty()
        };
        for client in self.clients.iter().filter(told) {
            client.fmt(f)?;
        }
        let absent: Vec<&str> = self
            .clients
            .iter()
            .filter(|view| !told(view))
            .map(|view| view.client)
            .collect();
        if !absent.is_empty() {
            writeln!(f, "not here: {}", absent.join(", "))?;
        }
        if self.clients.iter().any(ClientView::lacks) {
            writeln!(
                f,
                "\"leaseroute hooks install\" puts right what is not in place"
            )?;
        }
        if let Some(cards) = &self.cards {
            writeln!(f, "\ncards")?;
            for card in cards {
                card.write(self.time, f)?;
            }
            if cards.is_empty() {
                writeln!(f, "  none")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ClientView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client)?;
        write_layout(self.layout, f)?;
        let live = match (self.live, self.is_setting) {
            (Live::Unknown, _) => "could not be looked at",
            _ if !self.here => "not here",
            (Live::Yes, false) => "hook live",
            (Live::Yes, true) => "settings in place",
            (Live::No, false) => "hook NOT live",
            (Live::No, true) => "settings NOT in place",
            (Live::ByProcess, _) => "hook live where it is started with our script",
        };
        writeln!(f, ": {live}")?;
        for entry in &self.entries {
            write!(f, "  {entry}")?;
        }
        if let Some(program) = &self.program {
            writeln!(f, "  {:14} {}", program.state.word(), program.path)?;
        }
        for why in self.why_not.iter().filter(|why| !self.shows(why)) {
            writeln!(f, "  why not        {why}")?;
        }
        for to_do in &self.to_do {
            match to_do.command {
                Some(command) => writeln!(f, "  to do          {command}")?,
                None => writeln!(f, "  to do          {}", to_do.why)?,
            }
        }
        Ok(())
    }
}

impl ClientView {
    /// Whether a reason is seen from the line of an entry or program already.
    fn shows(&self, why: &str) -> bool {
        let program = self.program.iter().map(|program| program.path.as_str());
        let mut paths = self.entries.iter().map(|entry| entry.path).chain(program);
        paths.any(|path| {
            why.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(' '))
        })
    }

    /// Whether `install` would change something.
    fn lacks(&self) -> bool {
        use Word::{Missing, NotExecutable, Outdated, WrongMode, WrongOwner};
        self.here
            && self.entries.iter().any(|entry| {
                matches!(
                    entry.state,
                    Missing | Outdated | NotExecutable | WrongMode | WrongOwner
                )
            })
    }
}

impl fmt::Display for EntryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:14} {}", self.state.word(), self.path)?;
        match &self.detail {
            Some(detail) => writeln!(f, ": {detail}"),
            None => writeln!(f),
        }
    }
}

impl CardView {
    fn write(&self, now: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: ", self.name)?;
        match self.managers.as_slice() {
            [] => writeln!(f, "no client is seen at work")?,
            [one] => writeln!(f, "{one}")?,
            several => {
                writeln!(
                    f,
                    "{} clients, which may undo each other's work",
                    several.len()
                )?;
                for manager in several {
                    writeln!(f, "    {manager}")?;
                }
            }
        }
        for told in &self.told {
            let ago = now.saturating_sub(told.updated);
            let client = told.client.unwrap_or("a client");
            writeln!(
                f,
                "    {client} told of its {} lease {ago} s ago",
                told.family
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ManagerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (process {}; {}), ",
            self.program, self.pid, self.evidence
        )?;
        if self.live {
            f.write_str("hook live")
        } else {
            write!(f, "hook NOT live: {}", self.why_not.join("; "))
        }
    }
}
