//! `permits completions` and `permits man`, generated from the arguments, so that they agree with the parser.

use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;
use roff::{Roff, bold, roman};

use crate::args::{Args, Completions, Man};
use crate::exit::{self, Failure, USAGE};

/// Prints a shell's completion script.
pub(crate) fn completions(options: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Args::command(), "permits", &mut script);
    Ok(exit::print(script))
}

/// Prints the manual page of a verb, or the overview.
pub(crate) fn man(options: &Man) -> Result<u8, Failure> {
    let mut permits = Args::command().disable_help_subcommand(true).subcommand_help_heading("VERBS");
    // Gives the verbs their full names.
    permits.build();
    let command = match &options.verb {
        None => permits,
        Some(verb) => permits.find_subcommand(verb).cloned().ok_or_else(|| no_such_verb(&permits, verb))?,
    };
    Ok(exit::print(page(command).map_err(Failure::system)?))
}

fn no_such_verb(permits: &Command, verb: &str) -> Failure {
    let verbs: Vec<&str> = permits.get_subcommands().map(Command::get_name).collect();
    Failure::new(USAGE, format!("there is no verb {verb:?}: the verbs are {}", verbs.join(", ")))
}

/// The page of `clap_mangen` with two changes: the synopsis is the usage of the help, and each block of text
/// below the options is a section, with its lines as they are.
fn page(mut command: Command) -> std::io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let verbs = command.has_subcommands();
    // The date is a space: without one, the arguments after it would move up.
    let version = concat!("permits ", env!("CARGO_PKG_VERSION"));
    let page = Page::new(command).date(" ").source(version).manual("permits");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    let usage = usage.trim_start_matches("Usage: ");
    Roff::new().control("SH", ["SYNOPSIS"]).text([bold(usage)]).to_writer(&mut text)?;
    page.render_options_section(&mut text)?;
    if verbs {
        page.render_subcommands_section(&mut text)?;
    }
    sections(&below).to_writer(&mut text)?;
    Ok(text)
}

/// The blocks of [`help`](crate::help) as sections.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    for block in text.split("\n\n") {
        let (heading, lines) = block.split_once('\n').unwrap_or((block, ""));
        roff.control("SH", [heading.trim_end_matches(':').to_uppercase().as_str()]).control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("fi", []);
    }
    roff
}
