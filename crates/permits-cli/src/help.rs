//! What `--help` and the manual pages say below the options.
//!
//! Blocks, with an empty line between them: a heading that ends with a colon, then indented lines, which
//! [`generate`](crate::generate) makes sections of a manual page. No line is longer than what is left of a
//! terminal's 80 columns there; a test sees to it.

/// The exit codes that every verb which asks a store has, behind those that are the verb's own.
macro_rules! exit_codes {
    ($own:literal) => {
        concat!(
            "\n\nExit code:\n",
            $own,
            "   64  wrong usage\n",
            "   69  the store cannot be reached, denies access, or is not supported\n",
            "   71  the system refuses something, such as a thread"
        )
    };
}

pub(crate) const PERMITS: &str = "\
Examples:
  permits run exports --limit 4 echo one of four at most
  permits run nightly --limit 1 --no-wait echo now or not at all
  permits status exports

Stores:
  local:                   a file, shared by this user's processes on this
                           machine: permits/semaphores.db under
                           $XDG_STATE_HOME or ~/.local/state
  local:/path/file.db      another file; not on a network file system
  redis://host:port/db     Redis 6.2 or newer, or Valkey: many machines
  rediss://host:port/db    the same over TLS
  redis+unix:///path?db=0  the same over a Unix socket
  redis+sentinel://host,host/service
                           the server that the sentinels name
  redis+cluster://host,host
                           a cluster, Redis 7.0 or newer
  memory:                  this process alone, to try things out

Environment:
  PERMITS_URL             the store, unless --url names one
  PERMITS_URL_FILE        a file with the URL in it, instead of that
  PERMITS_REQUIRE_SERVER  1 refuses local: and memory:
  Without a URL the store is local:. An empty variable is an error.

Exit code:
  Each verb lists its own. 64 is always wrong usage, 69 a store that cannot
  be reached, 75 that the same call may succeed later.";

pub(crate) const RUN: &str = "\
Examples:
  permits run exports --limit 4 echo one of four at most
  permits run migrate --limit 1 --wait 30s echo within 30 s
  permits run nightly --limit 1 --no-wait -- echo now or not at all
  permits run nightly --limit 1 --no-wait -q -E 0 echo or silence, and 0
  permits run per-host --limit 9 --holder \"$(hostname)\" -- echo one a host
  permits run licence --limit 8 -- sh -c 'echo \"seat $PERMITS_SLOT\"'

Environment of the command:
  PERMITS_NAME     the semaphore
  PERMITS_HOLDER   who holds the permit
  PERMITS_TOKEN    fencing token: greater than that of every earlier grant
                   of the semaphore
  PERMITS_SLOT     a number from 0, below the limit, that no other live
                   permit has

The limit:
  A --limit that differs from the stored one replaces it for all, and says
  so; one that an operator pinned stays (permits limit). --require-limit
  refuses to run under another one.

The store:
  One that is away is waited for: --store-timeout, else --wait, else 10 s.
  The command inherits PERMITS_URL, with the password in it, so that it can
  call permits itself. PERMITS_URL_FILE keeps the password in a file.

While waiting:
  On a terminal a line on standard error shows how long it has waited, how
  many are ahead, and who holds. Otherwise there is a line after 10 s, and
  then every minute.

Signals:
  INT, TERM, HUP and QUIT leave the line while waiting. While the command
  runs, they and USR1, USR2 and TSTP are passed on to its process group. On
  a terminal Ctrl-C and Ctrl-Z work as without permits; but a suspended
  permits renews nothing, and if its lease ends meanwhile the command is
  ended when it is continued.

When the permit is lost:
  If it cannot be renewed, the command's process group gets SIGTERM while
  the permit is still held: a fifth of the lease before its end, at most
  5 s (3 s with the default lease). SIGKILL comes shortly before its end. A
  longer --lease bears a longer absence of the store.
  If the permit is lost at once, because it was revoked or permits was
  suspended, SIGTERM comes then, and SIGKILL 5 s later. Meanwhile the units
  may have been granted to another.
  Should permits itself be killed, the kernel kills the command (on Linux;
  not what the command has started, nor a command that changes its user).

Exit code:
  the command's own; 128+n if signal n ended it, or ended the waiting
   64  wrong usage, also: no limit is known, the weight exceeds it, or it
       is not the one required
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  no permit in time (or -E): none is free, waited for too long, the
       line is full, the holder has or waits for one already, the place in
       line was revoked
   76  the permit was lost
  126  the command cannot be executed
  127  the command was not found";

pub(crate) const STATUS: &str = concat!(
    "\
Examples:
  permits status exports
  permits status exports --json | jq .held

JSON:
  {\"name\",\"limit\",\"held\",\"paused\",
   \"holders\":[{\"holder\",\"weight\",\"slot\",\"token\",\"lease_remaining_ms\",
               \"age_ms\",\"label\"}],
   \"waiters\":[{\"holder\",\"weight\",\"position\",\"age_ms\",\"label\"}],
   \"store\",\"waiting\",\"pinned\",\"limit_version\",\"recovering_ms\"}
  limit and held are units, waiting is how many wait; limit is null if none
  is set, label if none was given. recovering_ms is how long free units are
  still held back after a start of the server. At most 1,000 holders and
  1,000 waiters are listed. The schema is docs/status.schema.json.",
    exit_codes!("    0  also if nobody uses the semaphore\n")
);

pub(crate) const LIST: &str = concat!(
    "\
Examples:
  permits list
  permits list --json | jq -r '.[].name'
  permits list --busy

JSON:
  [{\"name\",\"limit\",\"held\",\"waiting\",\"paused\",\"pinned\",\"limit_version\",
    \"recovering_ms\",\"oldest_holder_age_ms\",\"oldest_waiter_age_ms\"}]
  As in permits status --json. The ages are of the first 1,000 holders and
  waiters, null if there are none. The schema is docs/list.schema.json.

What is listed:
  Semaphores in use, those used within the last minutes, and those that are
  pinned or paused. One that begins or ends meanwhile may be missing.",
    exit_codes!("    0  also if there are none\n")
);

pub(crate) const LIMIT: &str = concat!(
    "\
Examples:
  permits limit exports
  permits limit exports 8
  permits limit exports +2
  permits limit exports --unpin

Pinned:
  A limit that is set here counts, whatever programs declare (run --limit),
  until --unpin. Then the limit stays as it is until programs declare one.
  A higher limit grants at once. A lower one revokes nobody: nothing is
  granted until what is held fits. +N and -N change it in one step, so that
  two operators do not undo each other's change. The version counts the
  changes.",
    exit_codes!("    0  the limit is as said\n")
);

pub(crate) const PAUSE: &str = concat!(
    "\
Examples:
  permits pause exports

Paused:
  Waiters keep their places; run --no-wait ends with 75. It stays so until
  permits resume. A semaphore that nobody has used yet can be paused, too.",
    exit_codes!("    0  it is paused, or was so already\n")
);

pub(crate) const RESUME: &str = concat!(
    "\
Examples:
  permits resume exports",
    exit_codes!("    0  it is not paused, or was not\n")
);

pub(crate) const REVOKE: &str = concat!(
    "\
Examples:
  permits revoke exports web-3 --reason 'it hangs'
  permits revoke exports db1:30220/ --partial
  permits revoke exports --all

What happens:
  permits run ends its command and exits with 76, or leaves the line and
  exits with 75, and tells the reason. Until the holder has heard of it,
  which takes until its next renewal if it is out of reach, it may go on
  working while another is granted its units.

All:
  Those that hold or wait when the command begins. Those that come later
  may be granted: pause the semaphore first to prevent that.",
    exit_codes!("    0  it is revoked\n    1  no such holder holds or waits\n")
);

/// The keys of the live screen, also shown by `?` there.
macro_rules! keys {
    () => {
        "\
Keys:
  Up Down PgUp PgDn Home End k j  select
  Enter      open: who holds, oldest first, and who waits
  Esc        back, or end what is being typed
  /          show only names with a text in them
  p          pause: grant nothing; or resume
  l          set the limit, and pin it
  u          unpin: let programs declare the limit again
  r          revoke the selected permit or place in line
  ?          this help
  Ctrl-Z     suspend
  q, Ctrl-C  quit"
    };
}

pub(crate) const TOP_KEYS: &str = keys!();

pub(crate) const TOP: &str = concat!(
    "\
Examples:
  permits top
  permits top exports

",
    keys!(),
    exit_codes!("    0  quit\n")
);

pub(crate) const DOCTOR: &str = "\
Examples:
  permits doctor
  permits doctor --url redis://db.example/ --json | jq .healthy
  permits doctor --acl --prefix team-a

What is looked at:
  Every operation is tried on a semaphore of its own, of which nothing is
  left. Of a server also the version, the user's rights, eviction, memory,
  persistence, replication, connections, the clock and the latency, on
  every primary of a cluster; of a file its owner, modes and directory,
  what it lies on, and what is in it.

Exit code:
    0  no problem was found; there may be notes
    1  there is a problem, also: the store cannot be reached, or denies
       access
   64  wrong usage, also: the URL is wrong
   71  the system refuses something, such as a thread";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  source <(permits completions bash)
  permits completions fish > ~/.config/fish/completions/permits.fish
  permits completions zsh > \"${fpath[1]}/_permits\"

Exit code:
    0  the script is on standard output
   64  wrong usage
   71  it cannot be written";

pub(crate) const MAN: &str = "\
Examples:
  permits man | man -l -
  permits man run | man -l -
  permits man run > permits-run.1

Exit code:
    0  the page is on standard output
   64  wrong usage, also: there is no such verb
   71  it cannot be written";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::args::Args;

    #[test]
    fn no_line_is_too_long_for_a_manual_page() {
        let permits = Args::command();
        for command in permits.get_subcommands().chain([&permits]) {
            let text = command.get_after_help().expect("every verb has examples").to_string();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 75).collect();
            assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        }
    }
}
