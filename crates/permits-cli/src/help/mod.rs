//! Text below the options in `--help` and the manual pages.
//!
//! The text consists of blocks with an empty line between them: a heading that ends with a colon, then
//! indented lines. [`generate`](crate::generate) makes sections of a manual page from them. A test limits the
//! length of the lines, because a manual page indents them in 80 columns.

/// The line of an exit code. Lines that several verbs share stand here, once.
macro_rules! exit_code {
    (1) => {
        "    1  the question was answered with no"
    };
    (64) => {
        "   64  wrong usage"
    };
    (66) => {
        "   66  no program has used it lately"
    };
    (69) => {
        "   69  the store cannot be reached, denies access, or is not supported"
    };
    (71) => {
        "   71  the system refuses something, such as a thread"
    };
    (75) => {
        "   75  no permit in time"
    };
    (76) => {
        "   76  the permit was lost"
    };
    ($own:literal) => {
        $own
    };
}

/// The exit codes of a verb. Each item is a number of [`exit_code`], which may be followed by a text that
/// continues its line, or a line of the verb's own.
macro_rules! exit_codes {
    ($($code:tt $($more:literal)?),* $(,)?) => {
        concat!("\n\nExit code:", $("\n", exit_code!($code) $(, $more)?),*)
    };
}

mod acquire;
mod administer;
mod install;
mod show;

pub(crate) use acquire::*;
pub(crate) use administer::*;
pub(crate) use install::*;
pub(crate) use show::*;

pub(crate) const PERMITS: &str = "\
Examples:
  permits run exports --limit 4 echo one of four at most
  permits run nightly --limit 1 --no-wait echo now or not at all
  permits status exports

Stores:
  local:                   a directory that this user's processes on this
                           machine share: $XDG_STATE_HOME/permits, else
                           ~/.local/state/permits
  local:/path/permits      another directory; not on a network file system
  redis://host:port/db     Redis 6.2 or newer, or Valkey: many machines
  rediss://host:port/db    the same over TLS
  redis+unix:///path?db=0  the same over a Unix socket
  redis+sentinel://host,host/service
                           the primary that the sentinels name
  redis+cluster://host,host
                           a cluster, Redis 7.0 or newer
  memory:                  this process only, to try things out
  file:/path/url           the URL in this file

Environment:
  PERMITS_URL             the store, unless --url names one
  PERMITS_URL_FILE        a file that contains the URL; its password may be
                          replaced meanwhile
  PERMITS_PASSWORD_FILE   a file with the password of the server, which may
                          be replaced meanwhile
  PERMITS_PASSWORD_COMMAND
                          a command that prints it, such as a token
  PERMITS_PREFIX          the first part of every key, unless --prefix is
                          given
  PERMITS_REQUIRE_SERVER  1 refuses local: and memory:
  PERMITS_LABEL           the label of acquisitions, unless --label is
                          given; none if it is empty
  PERMITS_LOG             the events on standard error, unless -v is
                          given: warn,permits::waiting=debug
  Without a URL the store is local:. An empty variable is an error, apart
  from PERMITS_LABEL.

Several semaphores:
  With --under PREFIX in place of NAME, the verbs list, status, watch,
  limit, alert, lane, pause, resume, close, open and revoke --all work on
  all semaphores whose names begin with PREFIX: those that permits list
  shows.
  A change of more than one asks on a terminal; --yes answers. * is a plain
  character.

Exit code:
  Each verb lists its own. Most have: 64 for wrong usage, 66 for a
  semaphore that no program has used lately, 69 if the store cannot be
  reached, 75 if the same call may succeed later.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::args::Args;

    #[test]
    fn no_line_is_too_long_for_a_manual_page() {
        let mut permits = Args::command().disable_help_subcommand(true);
        permits.build();
        for command in permits.get_subcommands().chain([&permits]) {
            let text = command.get_after_help().expect("every verb has examples").to_string();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 75).collect();
            assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        }
    }
}
