//! Manual pages and shell completions, from the definition that also parses.

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;
use crate::error::CliError;

/// Completions for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "leaseroute", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The manual page of a subcommand, or of the program.
pub(crate) fn manual(path: &[String]) -> Result<String, CliError> {
    let mut definition = Cli::definition().disable_help_subcommand(true);
    definition.build();
    let mut command = &definition;
    for word in path.iter().flat_map(|word| word.split_whitespace()) {
        let found = command
            .get_subcommands()
            .find(|c| c.get_name() == word && !c.is_hide_set());
        command = found.ok_or_else(|| CliError::NoSubcommand(word.to_owned()))?;
    }
    page(command).map_err(|source| CliError::Write {
        path: PathBuf::from("a manual page"),
        source,
    })
}

fn page(command: &Command) -> std::io::Result<String> {
    let more = command.get_after_long_help().or(command.get_after_help());
    let more = more.map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone())
        .section("8")
        .manual("System Administration")
        .source(concat!("leaseroute ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut text)?;
    }
    if command
        .get_subcommands()
        .any(|subcommand| !subcommand.is_hide_set())
    {
        man.render_subcommands_section(&mut text)?;
    }
    sections(&more).to_writer(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The end of the help as sections of a manual: a line that ends with a colon at the
/// margin is a title, and lines below it are as they are.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut within = false;
    for line in text.lines() {
        let title = line.strip_suffix(':').filter(|t| !t.starts_with(' '));
        if let Some(title) = title {
            if within {
                roff.control("fi", []);
            }
            roff.control("SH", [title.to_uppercase().as_str()]);
            roff.control("nf", []);
            within = true;
        } else if within {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        } else {
            roff.control("PP", []);
            roff.text([roman(line)]);
        }
    }
    if within {
        roff.control("fi", []);
    }
    roff
}
