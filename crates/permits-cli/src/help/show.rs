//! Texts of the verbs that show semaphores.

pub(crate) const STATUS: &str = concat!(
    "\
Examples:
  permits status exports
  permits status exports --json | jq .held
  permits status --under exp

JSON:
  Of the fields, limit and held are units, and waiting is a number of
  waiters. Times end with _ms. At most 1,000 holders, 1,000 waiters, 32
  lanes and all pinned ones are listed. held includes the units of holders
  that have gone, and that stay taken (run --at-least); the text does not,
  and shows them as cooling N.
  docs/reference/status.schema.json describes each field.",
    exit_codes! {
        "    0  it is shown", 64, 66 "; its state is printed, too", 69, 71
    }
);

pub(crate) const LIST: &str = concat!(
    "\
Examples:
  permits list
  permits list --json | jq -r '.[].name'
  permits list --busy --sort need
  permits list --under exp

JSON:
  The fields are those of permits status --json without its lists, and
  need, by which --sort need orders: 5 and more need a look. If unreadable
  has a reason, say because the keys belong to another program, all but
  name and need is unknown, that is 0, false or null.
  docs/reference/list.schema.json describes each field.

Semaphores:
  Those in use, those used within the last minutes, and those that are
  pinned, paused or closed, or have an alert. A semaphore that begins or
  ends during the call may be missing.",
    exit_codes! {
        "    0  also if there are no semaphores", 64, 69, 71
    }
);

/// The keys of the live screen, also shown by `?` there.
macro_rules! keys {
    () => {
        "\
Keys:
  Up Down PgUp PgDn Home End k j  select
  Enter      open: the holders, oldest first, and the waiters, as
             permits status shows them
  Esc        back, or show all names again
  s          sort by need, name, held, waiting, or waited: the longest
             wait. By need: stopped with waiters, beyond an alert, the
             longest wait, unreadable, stopped, in use, idle
  b          show only semaphores with holders or waiters; or all
  /          show only names that contain a text
  ?          this help
  Ctrl-Z     suspend
  q, Ctrl-C  quit
  In a narrow window: P paused, C closed, R recovering, L limit pinned"
    };
}

pub(crate) const TOP_KEYS: &str = keys!();

pub(crate) const TOP: &str = concat!(
    "\
Examples:
  permits top
  permits top exports
  permits top --sort waited --busy

",
    keys!(),
    "\n\nCommands:
  The screen changes nothing. Below the rows are commands for the selected
  one: copy a line into a shell with the same environment. They repeat
  --url and --prefix if you gave them to top, with *** in place of a
  password.

Screen:
  The visible semaphores are read every second; all, up to 10,000, in a
  tenth of the time at most.",
    exit_codes! {
        "    0  q was pressed", "  128+n  signal n ended it: 130 after Ctrl-C", 64, 69, 71
    }
);

pub(crate) const WATCH: &str = concat!(
    "\
Examples:
  permits watch exports
  permits watch exports --interval 200ms
  permits watch --under api/
  permits watch exports --json | jq -c '[.at_ms, .held, .waiting, .grants]'

Lines:
  The state first, then each state that differs from the one before: what
  is held and by which holders, the number of waiters, the limit, its pin,
  pause, closed line and recovery, and what the store has counted since. A
  change by an operator has a line of its own. Times are UTC. The semaphore
  need not exist yet. With --under semaphores are watched from their first
  use on.

Limits:
  What begins and ends between two reads is in no state. The store counts
  it: 3 granted. While the reader of the output is behind, the store is not
  read.

JSON:
  {\"event\":\"state\",\"at_ms\", and the fields of permits status --json}
  {\"event\":\"changed\",\"at_ms\",\"name\",\"change\",\"by\",\"text\",\"limit\",
   \"holder\",\"reason\",\"age_ms\"}
  {\"event\":\"unreachable\",\"at_ms\",\"name\",\"reason\"}
  docs/operate/monitor.md describes them. The schema is
  docs/reference/watch.schema.json.

Unreachable:
  A store that cannot be reached is reported once, and read again at each
  interval.",
    exit_codes! {
        "    0  a signal (INT, TERM, HUP, QUIT) ended it, or the reader has closed
       the output",
        64, "   69  the store cannot be reached at the start, denies access, or is not
       supported",
        71
    }
);

pub(crate) const SERVE: &str = concat!(
    "\
Examples:
  permits serve
  permits serve --listen 127.0.0.1:9711 --interval 5s
  permits serve --token-file token --allow-write
  permits serve --listen 0.0.0.0:9710 --token-file token --host p.test
  permits serve --acquire --acquire-tokens tokens --allow exports/

Endpoints:
  /                          a page for browsers
  /metrics                   Prometheus or OpenMetrics
  /healthz                   200 if the store can be read, else 503
  /api/v1/semaphores         as permits list --json
  /api/v1/semaphores/NAME    as permits status --json
  /api/v1/semaphores/NAME/history
                             the last hour, or ?window_ms=MILLISECONDS
  /api/v1/history            that of the store
  /api/v1/events             changes, as server-sent events
  POST /api/v1/semaphores/NAME/change
                             makes a change, with --allow-write
  NAME is percent-encoded. docs/reference/serve.md describes them.
  POST /v1/acquire, /v1/renew and /v1/release
                             with --acquire: docs/languages/http.md

Standard output:
  listening on http://127.0.0.1:9710/    when requests are answered

Security:
  Without --token-file the server listens on a loopback address only, for
  every user of this machine. With it, all but / and /healthz need the
  token: Authorization: Bearer TOKEN. The file has the token as its only
  line and must not be accessible to all users. Neither must the file of
  --acquire-tokens, whose tokens are for permits alone. There is no TLS:
  put a proxy before the server. A request has to name the address of the
  server, localhost if it comes by a loopback address, or a --host, and a
  page of another site is refused.",
    exit_codes! {
        "    0  a signal (INT, TERM, HUP, QUIT) ended the server",
        64 ", also: another address than a loopback address without
       a token, or a token file that cannot be used",
        69, "   71  the system refuses something, such as a port that is in use"
    }
);
