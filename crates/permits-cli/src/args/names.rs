//! The semaphores of a verb, as arguments.

use super::value;
use crate::exit::{self, Failure};

// A semaphore by its name, or all semaphores whose names begin with a text.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Names {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name, allow_negative_numbers = true)]
    pub(crate) name: Option<String>,

    /// In place of NAME: all semaphores whose names begin with PREFIX, of those that permits list shows
    #[arg(long, value_name = "PREFIX")]
    pub(crate) under: Option<String>,
}

impl Names {
    /// The choice. Refuses a name beside a prefix, which the parser cannot do for
    /// `permits limit --under PREFIX N`.
    pub(crate) fn chosen(&self) -> Result<Chosen<'_>, Failure> {
        match (&self.name, &self.under) {
            (Some(name), None) => Ok(Chosen::One(name)),
            (None, Some(prefix)) => Ok(Chosen::Under(prefix)),
            (Some(name), Some(_)) => {
                let message = format!("the name {name:?} cannot be used with --under");
                Err(Failure::new(exit::USAGE, message))
            }
            (None, None) => unreachable!("the parser demands one of them"),
        }
    }
}

/// The chosen semaphores: one by its name, or all whose names begin with a prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chosen<'a> {
    One(&'a str),
    Under(&'a str),
}

// The author of a change.
#[derive(Debug, clap::Args)]
pub(crate) struct Author {
    /// The name to show as the author of this change, at most 120 bytes [default: the user and the host]
    #[arg(long, value_name = "TEXT", value_parser = value::author)]
    pub(crate) by: Option<String>,
}

// The semaphores that a verb changes, and the author of the change.
#[derive(Debug, clap::Args)]
pub(crate) struct Targets {
    #[command(flatten)]
    pub(crate) names: Names,

    /// Change several semaphores of --under without asking. Without a terminal they are refused otherwise
    #[arg(long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) author: Author,
}

// The semaphores of a change that can be made before the first use.
#[derive(Debug, clap::Args)]
pub(crate) struct Changed {
    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Do not warn if no program has used NAME lately
    #[arg(long, conflicts_with = "under")]
    pub(crate) new: bool,
}
