//! Texts of the verbs that acquire, renew and release permits.

pub(crate) const RUN: &str = concat!(
    "\
Examples:
  permits run exports --limit 4 echo one of four at most
  permits run migrate --limit 1 --wait 30s echo within 30 s
  permits run nightly --limit 1 --no-wait -- echo now or not at all
  permits run nightly --limit 1 --no-wait -q -E 0 echo or silence, and 0
  permits run per-host --limit 9 --holder \"$(hostname)\" -- echo one a host
  permits run licence --limit 8 -- sh -c 'echo \"seat $PERMITS_SLOT\"'
  permits run api --limit 100 --also api/tenant-7=10 echo both or none
  permits run shop --limit 20 --lane tenant-7 echo one lane of many

Environment of the command:
  PERMITS_NAME     the semaphore
  PERMITS_HOLDER   the holder's name
  PERMITS_TOKEN    fencing token: greater than in every earlier grant of
                   the same PERMITS_SLOT
  PERMITS_SLOT     a number from 0 to the limit less 1 that no other live
                   permit has
  PERMITS_ALSO     the permits of --also, one a line: token, slot and name,
                   with spaces between them; empty without --also
  PERMITS_OUTER    the permits of this run and of all runs around it, in
                   the same form: a permits that waits for one of them
                   says so

Several semaphores:
  With --also the command runs when the permits of all are held, and is
  ended if one of them is lost. They are acquired one after the other, in
  an order that all programs share: names with more / first, then by name.
  So no two programs block each other, and a full line of api/tenant-7
  keeps no unit of api. --limit, --weight, --at-least, --lane and the
  environment variables up to PERMITS_SLOT are NAME's. --wait is the limit
  of the whole wait. --lease, --holder, --label, --supersede and
  --require-limit (where a limit is named) are of each, and so is
  --max-hold: it counts from the grant of each on, also while the others
  are waited for. In --also, the number after the last :
  is the weight, and the number after the last = the limit. If a name ends
  so, write both after it: --also db:5432=4:1, or the weight:
  --also db:5432:1. A lane comes after one of them: --also api:1@tenant-7,
  --also api=100@tenant-7=10. An @ without a number before it belongs to
  the name: --also db@host.

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
  the wait, the number of waiters before this one, and some holders: each
  with its label, else its name, and the time since its grant. In a line
  with lanes that number can grow. On another stream there is a line after
  10 s, and then every minute; with -q, none. A run inside runs that hold
  what it waits for waits for itself, and says so at once.

Signals:
  While permits waits, INT, TERM, HUP, QUIT and other signals that end a
  program also end the wait. USR1 and USR2 do not.
  While the command runs, permits forwards every signal that it can catch
  to the command's process group: also WINCH, TTIN and the real-time ones,
  but not CHLD, PIPE, or the signals of a fault (such as SEGV). On a
  terminal, Ctrl-C and Ctrl-Z work as they do without permits.
  TSTP, TTIN and TTOU stop permits only after they have stopped the
  command. While permits is stopped it renews nothing: if the lease ends
  before you continue it, permits ends the command. STOP cannot be caught.
  It stops permits alone, and the command runs on without a permit: send
  STOP to the command instead.

When the permit is lost:
  If it cannot be renewed, the command's process group gets SIGTERM while
  the permit is still held: a fifth of the lease before its end, or a bit
  earlier, at most 5.7 s (3 s with the default lease). SIGKILL comes
  shortly before the end. A longer --lease survives a longer absence of the
  store. The end of
  --max-hold is the same, with a fifth of it if it is shorter than the
  lease.
  If the permit is lost at once, because it was revoked or permits was
  suspended, SIGTERM comes then, and SIGKILL 5 s later. Meanwhile the units
  may have been granted to another holder.
  If permits itself is killed, the kernel kills the command (on Linux only;
  not the command's children, nor a command that changes its user).",
    exit_codes! {
        "  the command's own; 128+n if signal n ended it, or ended the wait",
        64 ", also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one",
        69, 71, 75 ". -E sets another code if others have the units:
       none is free, --wait has passed, the line is full, or the holder
       holds or waits already. It stays 75 if an operator paused, closed
       the line or revoked the place in line, a newer request has its key
       (--supersede), a recovery is not near its end, or --max-hold of one
       has ended before all of --also were held",
        76 ", or one of those of --also", "  126  the command cannot be executed",
        "  127  the command was not found"
    }
);

pub(crate) const HOLD: &str = concat!(
    "\
Examples:
  permits hold exports --limit 4
  sleep 1 | permits hold exports --limit 4 --wait 30s
  echo '{\"id\":1,\"acquire\":\"exports\"}' | permits hold --many

Standard output:
  One JSON object a line:
  {\"event\":\"waiting\",\"name\":\"exports\",\"position\":3,
   \"expected_ms\":8200}    if the line moves
  {\"event\":\"granted\",\"name\":\"exports\",\"holder\":\"...\",\"weight\":1,
   \"token\":1795301840882167,\"slot\":0,\"remaining_ms\":14990,\"also\":[]}
  {\"event\":\"unsure\",\"remaining_ms\":9000}    renewals fail
  {\"event\":\"held\",\"remaining_ms\":14990}     they succeed again
  {\"event\":\"lost\",\"name\":\"exports\",\"reason\":\"...\"}    stop at once
  {\"event\":\"released\",\"reason\":\"...\"}
  {\"event\":\"failed\",\"exit_code\":75,\"reason\":\"...\"}    no permit
  The resource may be used from granted to lost, released or the end of
  this process. docs/languages/any.md has programs in several languages,
  docs/reference/hold.schema.json is the schema.

Standard input:
  release   release the permit
  count N   with --at-least: the grant counts for N units, once released
  renew     renew it now; held or unsure follows
  The end of standard input, of the parent process, or of the reader of
  standard output releases it, too.

Many permits:
  With --many, standard input has one JSON object a line, and each event
  has the id of its request, which the program chooses:
  {\"id\":7,\"acquire\":\"exports\",\"limit\":4,\"timeout_ms\":30000}
  {\"id\":7,\"renew\":true}
  {\"id\":7,\"release\":true}
  The first event is {\"event\":\"hello\",\"lines\":1,...}: it names what the
  lines can do. docs/languages/any.md has all of them: several permits at
  once, handles, the state of semaphores and changes by an operator.
  A loss or a refusal ends that id alone, and a line that is not valid has
  no effect: {\"id\":7,\"event\":\"invalid\",\"line\":3,\"reason\":\"...\"}. All
  permits share one connection to the store. Up to 100,000 requests at
  once. The schema of the lines is docs/reference/hold-many.schema.json.
  With --listen unix:/run/permits/socket, any number of programs do so over
  a Unix socket, which only this user can connect to (mode 0600), and with
  --group NAME the members of that group (mode 0660). The end of a
  connection releases its permits. The socket of a process that has died
  is replaced. --listen systemd takes the socket of a .socket unit.

Signals:
  TERM releases the permit. INT, HUP and QUIT do so only if standard input
  is a terminal: otherwise they have reached the program as well, which
  may still use the resource. With --listen, each of them ends the process.",
    exit_codes! {
        "    0  released, also before a permit was granted",
        "  143  released because of TERM; 128+n of another signal n",
        64 ", also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one",
        69, 71, 75 " (-E sets another code if others have the units)", 76 ", or one of those of --also",
        "  With --many and --listen, 75 and 76 appear in events, not as exit code."
    }
);

pub(crate) const ACQUIRE: &str = concat!(
    "\
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
  The schema is docs/reference/acquire.schema.json.",
    exit_codes! {
        "    0  the handle is on standard output",
        64 ", also: no limit is known, the weight exceeds the limit,
       or the limit in force is not the required one",
        69, 71 ", or standard output
       is closed, so that no reader would have the handle",
        75 " (-E sets another code if others have the units)", 76, "  128+n  signal n ended the wait"
    }
);

pub(crate) const RENEW: &str = concat!(
    "\
Examples:
  permits acquire build --limit 2 >b.permit
  permits renew - <b.permit

Renewed:
  The permit lasts for its whole lease again, from now on. The handle
  stays valid.",
    exit_codes! {
        "    0  it is renewed", 64 ", also: the text is no handle", 69, 71,
        "   75  the store lost its state and cannot put the permit back yet",
        "   76  the store no longer has the permit: its lease ended, it was
       released, revoked or adopted, or the store lost it"
    }
);

pub(crate) const RELEASE: &str = concat!(
    "\
Examples:
  permits acquire build --limit 2 >b.permit
  permits release - <b.permit

Released:
  The next in line is granted in the same moment.",
    exit_codes! {
        "    0  it is released", 64 ", also: the text is no handle", 69, 71,
        "   76  the store no longer has the permit: its lease ended, so that another
       holder may have used the resource, or it was released or revoked"
    }
);
