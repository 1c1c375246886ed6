//! Texts of the verbs that change semaphores.

/// The part about names of the verbs that change semaphores before their first use.
macro_rules! unknown_names {
    () => {
        "

Names:
  A name that no program has used lately is reported with similar ones, and
  the change is made; --new says that it is meant. Several semaphores of
  --under are changed after a question on a terminal, or with --yes."
    };
}

pub(crate) const LIMIT: &str = concat!(
    "\
Examples:
  permits limit exports
  permits limit exports 8
  permits limit exports +2
  permits limit exports --unpin
  permits limit exports 4 --declare
  permits limit --under exp 4 --yes

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
  semaphore that is not pinned is forgotten after two to four times the
  longest lease or --at-least: with the default lease, half a minute to a
  minute.",
    unknown_names!(),
    exit_codes! {
        "    0  the limit is set, declared, unpinned or shown", 1, 64,
        "   66  to be shown, and no program has used it lately; or no name begins
       with PREFIX",
        69, 71
    }
);

pub(crate) const ALERT: &str = concat!(
    "\
Examples:
  permits alert exports
  permits alert exports --wait 30s --waiting 100
  permits alert --under batch/ --wait 8h --yes
  permits alert exports --off

Thresholds:
  A semaphore needs a look while a request has waited for longer than
  --wait, or more than --waiting wait. permits list --sort need, top, the
  page of permits serve and its metrics for alerts use them; without one
  they have their own. Both are set together: one that is not given is
  removed. They are kept until --off or permits delete, and change no
  grant.",
    unknown_names!(),
    exit_codes! {
        "    0  they are set, removed or shown", 1, 64,
        "   66  to be shown, and no program has used it lately; or no name begins
       with PREFIX",
        69, 71
    }
);

pub(crate) const LANE: &str = concat!(
    "\
Examples:
  permits lane api tenant-7
  permits lane api tenant-7 --limit 10 --floor 2
  permits lane api tenant-7 --unpin
  permits lane --under api/ tenant-7 --limit 5 --yes

Pinned:
  A limit and a floor that are set here override those that requests name
  (run --lane-limit, --lane-floor) until --unpin. Both are set together:
  one that is not given is removed. All that the lane holds counts for
  them. A higher limit grants at once, and a lower one revokes no permit.
  After --unpin they stay until a request of the lane names others, or
  none holds or waits in it. At most 1,000 lanes of a semaphore are
  pinned.",
    unknown_names!(),
    exit_codes! {
        "    0  they are set, unpinned or shown", 1, 64,
        "   66  to be shown, and no program has used it lately; or no name begins
       with PREFIX",
        69, 71
    }
);

pub(crate) const PAUSE: &str = concat!(
    "\
Examples:
  permits pause exports
  permits pause --under exp --yes

Paused:
  Nothing is granted until permits resume is called. Waiters keep their
  places; run --no-wait ends with 75. An unused semaphore can be paused,
  too.",
    unknown_names!(),
    exit_codes! {
        "    0  it is paused, or was paused already", 1, 64, "   66  no name begins with PREFIX", 69, 71
    }
);

pub(crate) const RESUME: &str = concat!(
    "\
Examples:
  permits resume exports",
    unknown_names!(),
    exit_codes! {
        "    0  it is resumed, or was not paused", 1, 64, "   66  no name begins with PREFIX", 69, 71
    }
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
    unknown_names!(),
    exit_codes! {
        "    0  it is closed, or was closed already", 1, 64, "   66  no name begins with PREFIX", 69, 71
    }
);

pub(crate) const OPEN: &str = concat!(
    "\
Examples:
  permits open exports",
    unknown_names!(),
    exit_codes! {
        "    0  it is open, or was not closed", 1, 64, "   66  no name begins with PREFIX", 69, 71
    }
);

pub(crate) const DELETE: &str = concat!(
    "\
Examples:
  permits limit old 2 --declare && permits delete old

Deleted:
  The limit is forgotten, and so are its pin and those of lanes, a pause, a
  closed line and an alert. A program that acquires declares its limit
  again. An idle semaphore is forgotten by itself (permits limit --help
  says when), unless it or a lane of it is pinned, or it is paused or
  closed, or has an alert.
  --force deletes also a semaphore that is damaged or of another layout,
  even if it is in use. If a holder of it is alive, more than the limit may
  be held until its lease ends.",
    exit_codes! {
        "    0  it is deleted", 64, 66, 69, 71,
        "   75  it is in use, or the server started or lost its data a moment ago"
    }
);

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
  units. A grant that would still count (--at-least) is freed, too: by the
  name of its holder if it is among the first 1,000.

All:
  The holders and the waiters at the start of the command. Later ones may
  be granted: pause the semaphore first to prevent that. It must be paused
  if more than 1,000 hold, and those that are revoked come again at once
  and hide others. With --under those of all semaphores whose names begin
  so: several after a question on a terminal, or with --yes.",
    exit_codes! {
        "    0  it is revoked", "    1  no such holder or waiter; or the question was answered with no", 64,
        "   66  no program has used the semaphore lately", 69, 71,
        "   75  more than 1,000 hold, and some may be left: pause it first"
    }
);
