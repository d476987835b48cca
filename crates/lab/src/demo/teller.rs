//! How the story looks: on a terminal in colour, in a log without.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use crate::privilege::Privilege;
use crate::probe::{Matrix, Outcome};

/// The widest line of an ip(8) command that still has its reason beside it.
const WIDTH: usize = 100;

/// Writes the story.
pub(super) struct Teller<W> {
    out: W,
    colour: bool,
    chapter: usize,
}

/// A manner of writing, as the number of an SGR sequence (ECMA-48 8.3.117).
#[derive(Clone, Copy)]
enum Ink {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
}

impl Teller<io::Stdout> {
    /// To standard output, in colour on a terminal unless NO_COLOR is set.
    pub(super) fn to_stdout() -> Self {
        let out = io::stdout();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            colour: wanted && out.is_terminal(),
            out,
            chapter: 0,
        }
    }
}

impl<W: Write> Teller<W> {
    /// To anything, without colour.
    pub(super) fn plain(out: W) -> Self {
        Self {
            out,
            colour: false,
            chapter: 0,
        }
    }

    /// What it is about, and with what right it runs.
    pub(super) fn title(&mut self, privilege: Privilege) -> io::Result<()> {
        let title = "leaseroute: replies that leave by the card they were asked on";
        let title = self.inked(Ink::Bold, title);
        let how = match privilege {
            Privilege::Given => "",
            Privilege::UserNamespace => ", without root",
        };
        writeln!(
            self.out,
            "{title}\n\n   A network of namespaces is built for this{how}. The network of this machine is not\n   touched, and nothing is left when it ends."
        )
    }

    /// The last line.
    pub(super) fn end(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "\n{text}")
    }

    /// A new chapter.
    pub(super) fn chapter(&mut self, title: &str) -> io::Result<()> {
        self.chapter += 1;
        let title = format!("{}. {title}", self.chapter);
        let title = self.inked(Ink::Bold, &title);
        writeln!(self.out, "\n{title}\n")
    }

    /// Lines of text as they are, indented.
    pub(super) fn say(&mut self, text: impl Display) -> io::Result<()> {
        for line in text.to_string().lines() {
            let indent = if line.is_empty() { "" } else { "   " };
            writeln!(self.out, "{indent}{line}")?;
        }
        Ok(())
    }

    /// Something that came out as told.
    pub(super) fn pass(&mut self, text: impl Display) -> io::Result<()> {
        let mark = self.inked(Ink::Green, "ok");
        writeln!(self.out, "   {mark} {text}")
    }

    /// A line that a machine wrote or reads; what follows ` # ` is its reason.
    pub(super) fn quote(&mut self, line: &str) -> io::Result<()> {
        let Some((command, reason)) = line.split_once("  # ") else {
            let line = if line.starts_with('#') {
                self.inked(Ink::Dim, line)
            } else {
                line.to_owned()
            };
            return writeln!(self.out, "     {line}");
        };
        let reason = self.inked(Ink::Dim, &format!("# {reason}"));
        if line.len() <= WIDTH {
            writeln!(self.out, "     {command}  {reason}")
        } else {
            writeln!(self.out, "     {command}\n         {reason}")
        }
    }

    /// A table of who reached what.
    pub(super) fn table(&mut self, matrix: &Matrix) -> io::Result<()> {
        write!(self.out, "     {:<14}", "from")?;
        for cell in matrix
            .rows()
            .next()
            .into_iter()
            .flat_map(|(_, cells)| cells)
        {
            write!(
                self.out,
                "{:<13}",
                format!("eth{} {}", cell.card, cell.family)
            )?;
        }
        writeln!(self.out)?;
        for (caller, cells) in matrix.rows() {
            write!(self.out, "     {caller:<14}")?;
            for cell in cells {
                let ink = if cell.outcome.is_answered() {
                    Ink::Green
                } else {
                    Ink::Red
                };
                let outcome = format!("{:<13}", cell.outcome);
                let outcome = self.inked(ink, &outcome);
                write!(self.out, "{outcome}")?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn inked(&self, ink: Ink, text: &str) -> String {
        if self.colour {
            format!("\x1b[{}m{text}\x1b[0m", ink as u8)
        } else {
            text.to_owned()
        }
    }
}

/// A duration as people read it.
pub(super) fn milliseconds(duration: Duration) -> String {
    Outcome::Answered(duration).to_string()
}
