//! The `leaseroute` command: shows what the hooks did, does it by hand, and undoes it.
//!
//! `args` is the command line as typed, `request` the same ready to use; each subcommand
//! turns a request into a view, which prints as text or JSON. What is shown is found out
//! by `leaseroute-core`, and done by `leaseroute-runtime`.

mod apply;
mod args;
mod config;
mod doctor;
mod error;
mod export;
mod generate;
mod given;
mod hooks;
mod mask;
mod metadata;
mod output;
mod plan;
mod report;
mod request;
mod status;
mod status_text;
mod verify;
mod view;
mod wait;
mod watcher;
mod world;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;
use leaseroute_lab::demo::DemoError;
use leaseroute_runtime::exit::Exit;
use leaseroute_runtime::hook;
use leaseroute_runtime::logging::Sink;

use crate::args::Cli;
use crate::error::CliError;
use crate::request::{Form, Request};

fn main() -> ExitCode {
    let ended = Request::new(Cli::parse()).and_then(run);
    ended.unwrap_or_else(|error| {
        output::say(&error.with_causes());
        error.exit().into()
    })
}

/// Does what is asked for and prints the answer.
fn run(request: Request) -> Result<ExitCode, CliError> {
    match request {
        Request::Plan {
            events,
            origin,
            form,
        } => answer(
            &output::render(&plan::run(events, origin, now())?, form)?,
            Exit::Done,
        ),
        Request::Export {
            events,
            origin,
            wanted,
        } => {
            let exported = export::run(events, origin, &wanted, now())?;
            for warning in &exported.warnings {
                output::warn(warning);
            }
            for failure in &exported.failures {
                output::say(failure);
            }
            answer(&exported.text, exported.exit())
        }
        Request::Apply { events, form } => changed(&apply::apply(events)?, form),
        Request::Remove {
            interfaces,
            missing_ok,
            form,
        } => changed(&apply::remove(&interfaces, missing_ok)?, form),
        Request::Status { verify, form } => {
            let view = status::run(verify, now())?;
            answer(&output::render(&view, form)?, view.exit())
        }
        Request::WaitOnline { wanted, form } => {
            let view = wait::run(&wanted)?;
            let answered = answer(&output::render(&view, form)?, view.exit())?;
            for failure in view.failures().iter().filter(|_| form == Form::Text) {
                output::say(failure);
            }
            Ok(answered)
        }
        Request::Metadata {
            interfaces,
            how,
            form,
        } => {
            let view = metadata::run(&interfaces, how)?;
            answer(&output::render(&view, form)?, view.exit())
        }
        Request::Listen => Ok(metadata::listen()?.into()),
        Request::CheckConfig { form } => {
            let view = config::check();
            answer(&output::render(&view, form)?, view.exit())
        }
        Request::ShowConfig { interface, form } => {
            answer(&config::show(interface.as_ref(), form)?, Exit::Done)
        }
        Request::Capture {
            events,
            output,
            mask,
        } => answer(
            &report::run(events, output.as_deref(), mask, now())?,
            Exit::Done,
        ),
        Request::ListHooks {
            root,
            clients,
            form,
        } => answer(
            &output::render(&hooks::list(&root, &clients, now())?, form)?,
            Exit::Done,
        ),
        Request::InstallHooks {
            root,
            clients,
            programs,
            form,
        } => changed_hooks(&hooks::install(&root, &clients, programs.as_deref()), form),
        Request::RemoveHooks {
            root,
            clients,
            form,
        } => changed_hooks(&hooks::remove(&root, &clients), form),
        Request::Doctor { root, form } => {
            let view = doctor::run(&root, now());
            answer(&output::render(&view, form)?, view.exit())
        }
        Request::Completions(shell) => answer(&generate::completions(shell), Exit::Done),
        Request::Man(command) => answer(&generate::manual(&command)?, Exit::Done),
        Request::Hook(client) => Ok(hook::run(client, "leaseroute", Sink::Stderr).into()),
        Request::Watch => Ok(leaseroute_watch::watch().into()),
        Request::Demo => demo(),
    }
}

/// Tells the story with this very program in the leading part.
fn demo() -> Result<ExitCode, CliError> {
    match leaseroute_lab::demo::run(Path::new("/proc/self/exe")) {
        // The audience has left.
        Err(DemoError::Output(e)) if e.kind() == ErrorKind::BrokenPipe => {}
        told => told?,
    }
    Ok(Exit::Done.into())
}

fn answer(text: &str, exit: Exit) -> Result<ExitCode, CliError> {
    output::print(text)?;
    Ok(exit.into())
}

fn changed(view: &apply::ChangeView, form: Form) -> Result<ExitCode, CliError> {
    for failure in view.failures() {
        output::say(&failure);
    }
    answer(&output::render(view, form)?, view.exit())
}

fn changed_hooks(view: &hooks::ChangedHooks, form: Form) -> Result<ExitCode, CliError> {
    for warning in view.warnings() {
        output::warn(warning);
    }
    for failure in view.failures() {
        output::say(&failure);
    }
    answer(&output::render(view, form)?, view.exit())
}

/// The time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}
