//! Text below the options in `--help` and the manual pages.
//!
//! It consists of blocks with an empty line between them: a heading that ends with a colon, then indented
//! lines. [`generate`](crate::generate) makes sections of a manual page from them. A test limits the length
//! of the lines, because a manual page indents them in 80 columns.

/// The exit codes of every verb that asks a store, after the verb's own.
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
  local:                   a file that this user's processes on this
                           machine share: permits/semaphores.db under
                           $XDG_STATE_HOME or ~/.local/state
  local:/path/file.db      another file; not on a network file system
  redis://host:port/db     Redis 6.2 or newer, or Valkey: many machines
  rediss://host:port/db    the same over TLS
  redis+unix:///path?db=0  the same over a Unix socket
  redis+sentinel://host,host/service
                           the primary that the sentinels name
  redis+cluster://host,host
                           a cluster, Redis 7.0 or newer
  memory:                  this process only, to try things out

Environment:
  PERMITS_URL             the store, unless --url names one
  PERMITS_URL_FILE        a file that contains the URL
  PERMITS_REQUIRE_SERVER  1 refuses local: and memory:
  PERMITS_LOG             the events on standard error, unless -v is
                          given: warn,permits::waiting=debug
  Without a URL the store is local:. An empty variable is an error.

Exit code:
  Each verb lists its own. Always: 64 for wrong usage, 69 if the store
  cannot be reached, 75 if the same call may succeed later.";

pub(crate) const RUN: &str = "\
Examples:
  permits run exports --limit 4 echo one of four at most
  permits run migrate --limit 1 --wait 30s echo within 30 s
  permits run nightly --limit 1 --no-wait -- echo now or not at all
  permits run nightly --limit 1 --no-wait -q -E 0 echo or silence, and 0
  permits run per-host --limit 9 --holder \"$(hostname)\" -- echo one a host
  permits run licence --limit 8 -- sh -c 'echo \"seat $PERMITS_SLOT\"'
  permits run api --limit 100 --also api/tenant-7=10 echo both or none

Environment of the command:
  PERMITS_NAME     the semaphore
  PERMITS_HOLDER   the holder's name
  PERMITS_TOKEN    fencing token: greater than in every earlier grant of
                   the semaphore
  PERMITS_SLOT     a number from 0 to the limit less 1 that no other live
                   permit has
  PERMITS_ALSO     the permits of --also, one a line: token, slot and name,
                   with spaces between them; empty without --also

Several semaphores:
  With --also the command runs when the permits of all are held, and is
  ended if one of them is lost. They are acquired one after the other, in
  an order that all programs share: names with more / first, then by name.
  So no two programs block each other, and a full line of api/tenant-7
  keeps no unit of api. --limit, --weight, --at-least and the environment
  variables but PERMITS_ALSO are NAME's. --wait is the limit of the whole
  wait. --lease, --holder, --label and --require-limit are of each.
  In --also, the number after the last : is the weight, and the number
  after the last = the limit. If a name ends so, write both after it:
  --also db:5432=4:1, or the weight: --also db:5432:1.

The limit:
  A --limit that differs from the stored limit replaces it for all
  programs, with a message. A limit that an operator has pinned stays
  (permits limit). --require-limit refuses to run under any other limit.

The store:
  A store that cannot be reached is retried for --store-timeout, else for
  --wait, else for 10 s. The command inherits PERMITS_URL, with the
  password in it, so that it can call permits itself. PERMITS_URL_FILE
  keeps the password in a file.

While waiting:
  On a terminal a line on standard error shows the time since the start of
  the wait, the number of waiters before this one, and some holders. On
  another stream there is a line after 10 s, and then every minute.

Signals:
  INT, TERM, HUP and QUIT end the wait. While the command runs, they and
  USR1, USR2 and TSTP are forwarded to its process group. On a terminal
  Ctrl-C and Ctrl-Z work as without permits. A suspended permits renews
  nothing: if the lease ends before it is continued, the command is ended.

When the permit is lost:
  If it cannot be renewed, the command's process group gets SIGTERM while
  the permit is still held: a fifth of the lease before its end, at most
  5 s (3 s with the default lease). SIGKILL comes shortly before the end. A
  longer --lease survives a longer absence of the store.
  If the permit is lost at once, because it was revoked or permits was
  suspended, SIGTERM comes then, and SIGKILL 5 s later. Meanwhile the units
  may have been granted to another holder.
  If permits itself is killed, the kernel kills the command (on Linux only;
  not the command's children, nor a command that changes its user).

Exit code:
  the command's own; 128+n if signal n ended it, or ended the wait
   64  wrong usage, also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  no permit in time (or -E): none is free, --wait has passed, the line
       is full or closed, the holder holds or waits already, or an operator
       revoked the place in line
   76  the permit was lost, or one of those of --also
  126  the command cannot be executed
  127  the command was not found";

pub(crate) const HOLD: &str = "\
Examples:
  permits hold exports --limit 4
  sleep 1 | permits hold exports --limit 4 --wait 30s

Standard output:
  One JSON object a line:
  {\"event\":\"waiting\",\"name\":\"exports\",\"position\":3}
  {\"event\":\"granted\",\"name\":\"exports\",\"holder\":\"...\",\"weight\":1,
   \"token\":1795301840882167,\"slot\":0,\"remaining_ms\":14990,\"also\":[]}
  {\"event\":\"unsure\",\"remaining_ms\":9000}    renewals fail
  {\"event\":\"held\",\"remaining_ms\":14990}     they succeed again
  {\"event\":\"lost\",\"name\":\"exports\",\"reason\":\"...\"}    stop at once
  {\"event\":\"released\",\"reason\":\"...\"}
  {\"event\":\"failed\",\"exit_code\":75,\"reason\":\"...\"}    no permit
  The resource may be used from granted to lost, released or the end of
  this process. docs/hold.md has programs in several languages. The schema
  is docs/hold.schema.json.

Standard input:
  release   release the permit
  renew     renew it now; held or unsure follows
  The end of standard input, or of the parent process, releases it, too.

Signals:
  TERM releases the permit. INT, HUP and QUIT do so only if standard input
  is a terminal: otherwise they have reached the program as well, which
  may still use the resource.

Exit code:
    0  released, also before a permit was granted
  143  released because of TERM; 128+n of another signal n
   64  wrong usage, also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  no permit in time (or -E)
   76  the permit was lost, or one of those of --also";

pub(crate) const ACQUIRE: &str = "\
Examples:
  permits acquire build --limit 2 --lease 1h >build.permit
  permits renew - <build.permit
  permits release - <build.permit

Handle:
  The permit as a text of one line. Any process that has it can renew and
  release the permit, on any machine, with the same store and --prefix:
  treat it as a secret. No process renews the permit, so it ends when
  --lease has passed since the grant or the last permits renew. With
  permits run or permits hold a permit lives as long as its process.

JSON:
  {\"handle\",\"name\",\"holder\",\"weight\",\"token\",\"slot\",\"remaining_ms\"}
  The schema is docs/acquire.schema.json.

Exit code:
    0  the handle is on standard output
   64  wrong usage, also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  no permit in time (or -E)
  128+n  signal n ended the wait";

pub(crate) const RENEW: &str = "\
Examples:
  permits acquire build --limit 2 >b.permit
  permits renew - <b.permit

Renewed:
  The permit lasts for its whole lease again, from now on. The handle
  stays valid.

Exit code:
    0  it is renewed
   64  wrong usage, also: the text is no handle
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  the store lost its state and cannot put the permit back yet
   76  the store no longer has the permit: its lease ended, or it was
       released or revoked";

pub(crate) const RELEASE: &str = "\
Examples:
  permits acquire build --limit 2 >b.permit
  permits release - <b.permit

Released:
  The next in line is granted in the same moment.

Exit code:
    0  it is released
   64  wrong usage, also: the text is no handle
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   76  the store no longer has the permit: its lease ended, so that another
       holder may have used the resource, or it was released or revoked";

pub(crate) const STATUS: &str = concat!(
    "\
Examples:
  permits status exports
  permits status exports --json | jq .held

JSON:
  {\"name\",\"limit\",\"held\",\"paused\",
   \"holders\":[{\"holder\",\"weight\",\"slot\",\"token\",\"lease_remaining_ms\",
               \"age_ms\",\"label\",\"cooling\"}],
   \"waiters\":[{\"holder\",\"weight\",\"position\",\"age_ms\",\"label\"}],
   \"store\",\"waiting\",\"pinned\",\"limit_version\",\"recovering_ms\",
   \"closed\",\"oldest_holder_age_ms\",\"oldest_waiter_age_ms\",
   \"grants\",\"refused\",\"expired\",\"revoked\"}
  limit and held are units, waiting is a number of waiters. limit is null
  if none is set, label if none was given. recovering_ms is the time until
  free units are granted again after a start of the server. At most 1,000
  holders and 1,000 waiters are listed. cooling: the holder has gone, and
  its units stay taken for lease_remaining_ms more (run --at-least).
  closed is the reason for which the line is closed, null if it is open.
  grants, refused, expired and revoked count what has happened since the
  store has the semaphore.
  The schema is docs/status.schema.json.",
    exit_codes!("    0  also if the semaphore is not in use\n")
);

pub(crate) const LIST: &str = concat!(
    "\
Examples:
  permits list
  permits list --json | jq -r '.[].name'
  permits list --busy

JSON:
  [{\"name\",\"limit\",\"held\",\"waiting\",\"paused\",\"pinned\",\"limit_version\",
    \"recovering_ms\",\"oldest_holder_age_ms\",\"oldest_waiter_age_ms\",
    \"closed\",\"grants\",\"refused\",\"expired\",\"revoked\"}]
  The fields are those of permits status --json. The ages are of the first
  1,000 holders and waiters, null if there are none. The schema is
  docs/list.schema.json.

Semaphores:
  Those in use, those used within the last minutes, and those that are
  pinned, paused or closed. A semaphore that begins or ends during the
  call may be missing.",
    exit_codes!("    0  also if there are no semaphores\n")
);

pub(crate) const LIMIT: &str = concat!(
    "\
Examples:
  permits limit exports
  permits limit exports 8
  permits limit exports +2
  permits limit exports --unpin
  permits limit exports 4 --declare

Pinned:
  A limit that is set here overrides the limits that programs declare (run
  --limit) until --unpin. After --unpin the limit stays as it is until a
  program declares one. A higher limit grants at once. A lower limit
  revokes no permit: nothing is granted until the held units fit. +N and
  -N change the limit in one step, so that two operators do not undo each
  other's change. The version counts the changes.

Declared:
  --declare makes a semaphore known with its limit before anything is
  acquired, as a program does with its limit. It does not pin. An idle
  semaphore that is not pinned is forgotten within minutes.",
    exit_codes!("    0  the limit is set, declared, unpinned or shown\n")
);

pub(crate) const PAUSE: &str = concat!(
    "\
Examples:
  permits pause exports

Paused:
  Nothing is granted until permits resume is called. Waiters keep their
  places; run --no-wait ends with 75. An unused semaphore can be paused,
  too.",
    exit_codes!("    0  it is paused, or was paused already\n")
);

pub(crate) const RESUME: &str = concat!(
    "\
Examples:
  permits resume exports",
    exit_codes!("    0  it is resumed, or was not paused\n")
);

pub(crate) const CLOSE: &str = concat!(
    "\
Examples:
  permits close exports --reason 'moved to exports-2'

Closed:
  Waiters are sent away with the reason, and so are new requests, until
  permits open is called: run exits with 75 and reports it. Holders keep
  their permits. To let requests wait, use permits pause. An unused
  semaphore can be closed, too.",
    exit_codes!("    0  it is closed, or was closed already\n")
);

pub(crate) const OPEN: &str = concat!(
    "\
Examples:
  permits open exports",
    exit_codes!("    0  it is open, or was not closed\n")
);

pub(crate) const DELETE: &str = "\
Examples:
  permits limit old 2 --declare && permits delete old

Deleted:
  The limit is forgotten, and so are its pin, a pause and a closed line.
  A program that acquires declares its limit again. An idle semaphore is
  forgotten within minutes by itself, unless it is pinned, paused or
  closed.

Exit code:
    0  it is deleted
    1  there is no such semaphore
   64  wrong usage
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a thread
   75  it is in use, or the server started or lost its data a moment ago";

pub(crate) const REVOKE: &str = concat!(
    "\
Examples:
  permits revoke exports web-3 --reason 'it hangs'
  permits revoke exports db1:30220/ --partial
  permits revoke exports --all

Effect:
  permits run ends its command and exits with 76, or leaves the line and
  exits with 75, and reports the reason. A holder that cannot be reached
  works on until its next renewal, while another holder may be granted its
  units.

All:
  The holders and waiters at the start of the command. Later ones may be
  granted: pause the semaphore first to prevent that.",
    exit_codes!("    0  it is revoked\n    1  no such holder or waiter\n")
);

/// The keys of the live screen, also shown by `?` there.
macro_rules! keys {
    () => {
        "\
Keys:
  Up Down PgUp PgDn Home End k j  select
  Enter      open: the holders, oldest first, and the waiters
  Esc        back, or cancel the input
  /          show only names that contain a text
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

pub(crate) const SERVE: &str = "\
Examples:
  permits serve
  permits serve --listen 127.0.0.1:9711 --interval 5s
  permits serve --token-file token --allow-write
  permits serve --listen 0.0.0.0:9710 --token-file token --host p.test
  permits serve --textfile permits.prom

Endpoints:
  /                          a page for browsers
  /metrics                   Prometheus or OpenMetrics
  /healthz                   200 if the store answers, else 503
  /api/v1/semaphores         as permits list --json
  /api/v1/semaphores/NAME    as permits status --json
  /api/v1/semaphores/NAME/history
                             the last five minutes
  /api/v1/events             changes, as server-sent events
  POST /api/v1/semaphores/NAME/limit, pause, resume or revoke
                             with --allow-write
  NAME is percent-encoded. docs/serve.md describes them.

Standard output:
  listening on http://127.0.0.1:9710/    when requests are answered

Security:
  Without --token-file the server listens on a loopback address only, for
  every user of this machine. With it, all but / and /healthz need the
  token: Authorization: Bearer TOKEN. The file has the token as its only
  line and must not be accessible to all users. There is no TLS: put a
  proxy before the server. A request has to name the address of the
  server, localhost or a --host, and a page of another site is refused.

Exit code:
    0  a signal (INT, TERM, HUP, QUIT) ended the server; with --textfile:
       the file is written
   64  wrong usage, also: another address than a loopback address without
       a token, or a token file that cannot be used
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses something, such as a port that is in use";

pub(crate) const DOCTOR: &str = "\
Examples:
  permits doctor
  permits doctor --url redis://db.example/ --json | jq .healthy
  permits doctor --acl --prefix team-a

Checks:
  Every operation is tried on a semaphore of its own, which is deleted
  afterwards. On a server, and on every primary of a cluster: the version,
  the user's rights, eviction, memory, persistence, replication,
  connections, the clock and the latency. On a file: its owner, modes,
  directory, file system and contents.

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
   71  standard output cannot be written to";

pub(crate) const MAN: &str = "\
Examples:
  permits man | man -l -
  permits man run | man -l -
  permits man run > permits-run.1

Exit code:
    0  the page is on standard output
   64  wrong usage, also: there is no such verb
   71  standard output cannot be written to";

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
