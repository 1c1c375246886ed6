//! The Lua scripts: one for each kind of operation, put together from files in `lua/`.
//!
//! - `ops`: one file an operation, with its Lua files and the encoding of its arguments and answers.
//! - `codec`: the encoding of commands, replies and events, as far as the operations share it.
//! - `change`: the line of a remembered change by an operator.
//! - `entry`: the packed entry of a holder or waiter, as commands carry it and as the hash stores it.
//! - `layout`: what the scripts and Rust agree on; it fills in the `$NAME`s of the Lua files.
//! - `values`: readers of returned values.
//!
//! A script is [`NO_KEYS`], `clock`, `read`, `waits`, the operation's ordinary course if it has one, the
//! files in [`LANES`], that course again, the files in [`FOUND`] and [`SHARED`], the operation's general
//! course, `head` and `finish`, in this order. The script of `inspect` has no file that writes. The headers
//! of the Lua files describe the arguments that Rust encodes and the answers that Rust decodes; a test
//! compares them.

mod change;
pub(super) mod codec;
mod entry;
mod layout;
pub(super) mod ops;
pub(super) mod values;

use std::sync::OnceLock;

use self::ops::Lua;
use crate::protocol::OperationKind;

pub(super) const CLOCK: &str = include_str!("lua/clock.lua");
const READ: &str = concat!(include_str!("lua/read.lua"), "\n", include_str!("lua/waits.lua"));
const LANES: [&str; 3] =
    [include_str!("lua/lanes.lua"), include_str!("lua/lane_first.lua"), include_str!("lua/lane_heads.lua")];
const FOUND: [&str; 3] =
    [include_str!("lua/begin.lua"), include_str!("lua/era.lua"), include_str!("lua/entries.lua")];
const SHARED: [&str; 12] = [
    include_str!("lua/slots.lua"),
    include_str!("lua/pending.lua"),
    "if not bounds then",
    ops::BOUNDS,
    "end",
    include_str!("lua/order.lua"),
    include_str!("lua/forget.lua"),
    include_str!("lua/reap.lua"),
    include_str!("lua/refuse.lua"),
    include_str!("lua/declared.lua"),
    include_str!("lua/promote.lua"),
    include_str!("lua/turns.lua"),
];
const VIEW: &str = include_str!("lua/view.lua");
const HEAD: &str = include_str!("lua/head.lua");
const FINISH: &str = include_str!("lua/finish.lua");

/// Lets a script be called without an effect, to learn whether the server has loaded it, or to load it.
const NO_KEYS: &str = "if #KEYS == 0 then return end";

/// Returns the commands that the user may not run, without executing any.
pub(crate) const ACL_PROBE: &str = include_str!("lua/acl_probe.lua");

/// The text of a script, and the hash by which a server that has loaded it knows it.
pub(crate) struct Script {
    pub(crate) code: String,
    pub(crate) hash: String,
}

/// The scripts, each made when it is first used: a program needs few of them, and its first permit soon.
pub(crate) struct Scripts {
    clock: &'static str,
    sharded: bool,
    by_kind: [OnceLock<Script>; OperationKind::ALL.len()],
}

impl Scripts {
    /// The scripts for one server, or for the nodes of a cluster, where messages are `sharded`.
    pub(crate) fn new(sharded: bool) -> Self {
        Self::with(CLOCK, sharded)
    }

    /// The scripts with the Lua text `clock` in place of `clock.lua`.
    pub(super) fn with(clock: &'static str, sharded: bool) -> Self {
        Self { clock, sharded, by_kind: [const { OnceLock::new() }; OperationKind::ALL.len()] }
    }

    /// The script that executes operations of this kind.
    pub(crate) fn of(&self, kind: OperationKind) -> &Script {
        self.by_kind[kind as usize].get_or_init(|| self.make(kind))
    }

    fn make(&self, kind: OperationKind) -> Script {
        let publish = if self.sharded { "SPUBLISH" } else { "PUBLISH" };
        let Lua { holders_at, ordinary, in_lanes, general } = ops::lua(kind);
        let begun = [NO_KEYS, self.clock, READ];
        let parts: Vec<&str> = if kind == OperationKind::Inspect {
            [&begun[..], &LANES[..1], &FOUND, &[VIEW, HEAD], general].concat()
        } else {
            [&begun[..], ordinary, &LANES, in_lanes, &FOUND, &SHARED, general, &[HEAD, FINISH]].concat()
        };
        let code = layout::filled(&parts.join("\n"), kind.name(), holders_at, publish);
        let hash = sha1_smol::Sha1::from(&code).digest().to_string();
        Script { code, hash }
    }
}
