//! Texts of the verbs that check the store and install the command.

pub(crate) const DOCTOR: &str = concat!(
    "\
Examples:
  permits doctor
  permits doctor --url redis://db.example/ --json | jq .healthy
  permits doctor --acl --prefix team-a

Checks:
  Every operation is tried on a semaphore of its own, which is deleted
  afterwards. On a server, and on every primary of a cluster: the version,
  the user's rights, eviction, memory, persistence, replication,
  connections, the clock and the latency. On a local store: its
  directory, file system, space, contents and clock.",
    exit_codes! {
        "    0  no problem was found; there may be notes",
        "    1  there is a problem, also: the store cannot be reached, or denies
       access",
        64 ", also: the URL is wrong", 71
    }
);

pub(crate) const COMPLETIONS: &str = concat!(
    "\
Examples:
  source <(permits completions bash)
  permits completions fish > ~/.config/fish/completions/permits.fish
  permits completions zsh > \"${fpath[1]}/_permits\"",
    exit_codes! {
        "    0  the script is on standard output", 64, "   71  standard output cannot be written to"
    }
);

pub(crate) const MAN: &str = concat!(
    "\
Examples:
  permits man | man -l -
  permits man run | man -l -
  permits man run > permits-run.1",
    exit_codes! {
        "    0  the page is on standard output", 64 ", also: there is no such verb",
        "   71  standard output cannot be written to"
    }
);
