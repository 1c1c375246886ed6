//! `permits limit`, `alert`, `pause`, `resume`, `close`, `open`, `revoke` and `delete`: their effects,
//! messages and exit codes.

use permits_testkit::Server;
use serde_json::json;

use crate::support::{
    Holder, Output, Store, counts, on_a_server, on_both_stores, output, permits, prepare, run, status, waiter,
};

on_both_stores! {
    a_pinned_limit_counts_until_it_is_unpinned,
    holders_and_waiters_can_be_revoked,
    an_alert_is_set_shown_and_removed,
}

on_a_server! {
    a_paused_semaphore_grants_nothing_until_it_is_resumed,
    a_closed_line_sends_waiters_and_newcomers_away,
    an_unused_line_can_be_closed,
    a_declared_limit_is_not_pinned,
    an_idle_semaphore_is_deleted,
    an_unknown_holder_is_1,
    repeated_changes_succeed,
    a_limit_is_shown_and_changed_by_a_difference,
    all_are_revoked_and_counted,
    a_holder_is_revoked_by_the_beginning_of_its_name,
    the_authors_of_changes_are_shown,
}

/// Runs an operator's call, which prints one line.
#[track_caller]
fn operate<const N: usize>(store: &dyn Store, arguments: [&str; N], says: &str) {
    let Output { code, stdout, stderr } = output(&mut permits(&store.url(), arguments));
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, format!("{says}\n").as_str(), ""),
        "{arguments:?}"
    );
}

fn a_pinned_limit_counts_until_it_is_unpinned(store: &dyn Store, _: &str) {
    let name = "of its own";
    prepare(store, name);
    assert_eq!(output(&mut run(store, name, "--limit 2", "true")).code, 0);
    operate(store, ["limit", name, "5"], "of its own: limit 5, pinned (version 3)");
    let warned = output(&mut run(store, name, "--limit 2", "true"));
    assert_eq!(warned.code, 0);
    assert!(warned.stderr.starts_with("permits: warning: another limit is in force"), "{}", warned.stderr);
    assert!(warned.stderr.contains("declared=2, limit=5"), "{}", warned.stderr);
    assert_eq!(status(store, name)["limit"], json!(5));
    operate(store, ["limit", "--unpin", name], "of its own: limit 5, not pinned (version 4)");
    assert_eq!(status(store, name)["limit"], json!(5), "until a program declares another");
    assert_eq!(output(&mut run(store, name, "--limit 2", "true")).code, 0);
    assert_eq!(status(store, name)["limit"], json!(2));
}

fn an_alert_is_set_shown_and_removed(store: &dyn Store, _: &str) {
    let name = "of its own";
    prepare(store, name);
    let both = "of its own: alert beyond a wait of 30s or 100 waiting, 0 of 1 held, 0 waiting";
    operate(store, ["alert", name, "--wait", "30s", "--waiting", "100"], both);
    operate(store, ["alert", name], both);
    assert_eq!(status(store, name)["alert"], json!({ "wait_ms": 30_000, "waiting": 100 }));
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    assert!(text.contains(", alert beyond a wait of 30s or 100 waiting\n"), "{text}");
    assert!(text.contains("set the alert to a wait of 30s or 100 waiting"), "{text}");
    // Both are set together.
    let one = "of its own: alert beyond a wait of 8 h, 0 of 1 held, 0 waiting";
    operate(store, ["alert", "--wait", "8h", name], one);
    let refused = output(&mut permits(&store.url(), ["alert", name, "--waiting", "0"]));
    assert!(refused.code == 64 && refused.stderr.contains("at least 1"), "{refused:?}");
    operate(store, ["alert", name, "--off"], "of its own: no alert is set, 0 of 1 held, 0 waiting");
    assert_eq!(status(store, name)["alert"], json!({ "wait_ms": null, "waiting": null }));
}

fn a_paused_semaphore_grants_nothing_until_it_is_resumed(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 2");
    operate(store, ["pause", name], "semaphore: paused, 1 of 2 held, 0 waiting");
    let refused = output(&mut run(store, name, "--no-wait", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (75, ""));
    assert!(
        refused.stderr.starts_with("permits: no permit now: paused, 1 of 2 held by "),
        "{}",
        refused.stderr
    );
    let waiter = waiter(store, name, "", (1, 1));
    holder.release();
    assert_eq!(counts(store, name), (0, 1));
    let resumed = output(&mut permits(&store.url(), ["resume", name]));
    assert_eq!((resumed.code, resumed.stderr.as_str()), (0, ""));
    assert!(resumed.stdout.starts_with("semaphore: resumed, "), "{}", resumed.stdout);
    assert_eq!(waiter.finish().stdout, "ran\n");
}

fn a_closed_line_sends_waiters_and_newcomers_away(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1");
    let waiter = waiter(store, name, "", (1, 1));
    let reason = r#"moved to "exports-2", ½ of it"#;
    let closed = format!("semaphore: closed ({reason}), 1 of 1 held, 0 waiting");
    operate(store, ["close", name, "--reason", reason], &closed);
    assert_eq!(status(store, name)["closed"], json!(reason));
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    assert!(text.starts_with(&format!("{name}: 1 of 1 held, 0 waiting, CLOSED ({reason}) by ")), "{text}");
    let closed = (75, String::new(), format!("permits: the line is closed: {reason}\n"));
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout, waiter.stderr), closed);
    for options in ["", "--no-wait", "--wait 20s", "-q -E 0"] {
        let Output { code, stdout, stderr } = output(&mut run(store, name, options, "echo ran"));
        assert_eq!((code, stdout, stderr), closed, "{options}");
    }
    holder.release();
    for _ in 0..2 {
        operate(store, ["open", name], "semaphore: open, 0 of 1 held, 0 waiting");
    }
    assert_eq!(output(&mut run(store, name, "", "echo ran")).stdout, "ran\n");
}

fn an_unused_line_can_be_closed(store: &dyn Store, _: &str) {
    for _ in 0..2 {
        operate(store, ["close", "new", "--new"], "new: closed, not in use, no limit is set");
    }
    let refused = output(&mut run(store, "new", "--limit 1", "true"));
    assert_eq!((refused.code, refused.stderr.as_str()), (75, "permits: the line is closed\n"));
    let listed = output(&mut permits(&store.url(), ["list"])).stdout;
    assert!(listed.lines().any(|line| line.starts_with("new ") && line.ends_with("  CLOSED")), "{listed}");
    operate(store, ["open", "new"], "new: open, not in use, no limit is set");
    assert_eq!(output(&mut run(store, "new", "--limit 1 --recovery off", "true")).code, 0);
}

fn a_declared_limit_is_not_pinned(store: &dyn Store, _: &str) {
    operate(store, ["limit", "x", "3", "--declare"], "x: limit 3, not pinned (version 1)");
    operate(store, ["limit", "x", "4", "--declare"], "x: limit 4, not pinned (version 2)");
    operate(store, ["limit", "x", "5"], "x: limit 5, pinned (version 3)");
    let Output { code, stdout, stderr } =
        output(&mut permits(&store.url(), ["limit", "x", "6", "--declare"]));
    assert_eq!((code, stdout.as_str()), (0, "x: limit 5, pinned (version 3)\n"));
    assert_eq!(stderr, "permits: x: the limit is pinned: 6 does not count until --unpin\n");
}

fn an_idle_semaphore_is_deleted(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 2");
    let delete = || output(&mut permits(&store.url(), ["delete", name]));
    let used = delete();
    assert_eq!((used.code, used.stdout.as_str()), (75, ""));
    let says = "permits: semaphore \"semaphore\" is in use: 1 units are held or cool, 0 requests wait\n";
    assert_eq!(used.stderr, says);
    holder.release();
    operate(store, ["delete", name], "semaphore: deleted");
    assert_eq!(status(store, name)["limit"], json!(null));
    let unknown = delete();
    assert_eq!((unknown.code, unknown.stdout.as_str()), (66, ""));
    assert_eq!(unknown.stderr, "permits: no program has used \"semaphore\" lately\n");
}

#[test]
fn a_semaphore_that_cannot_be_read_is_deleted_by_force() {
    let server = Server::start();
    let delete = |more: &[&str]| output(permits(&server.url(), ["delete", "bad"]).args(more));
    for value in ["abc", "\u{f}of another layout"] {
        server.command(&["HSET", "permits:{bad}:state", "\tstate", value]);
        let refused = delete(&[]);
        assert_eq!(refused.code, 69, "{refused:?}");
        assert!(refused.stderr.contains("bad") && refused.stderr.contains("delete"), "{}", refused.stderr);
        let deleted = delete(&["--force"]);
        assert_eq!((deleted.code, deleted.stdout.as_str()), (0, "bad: deleted\n"), "{}", deleted.stderr);
        assert_eq!(delete(&["--force"]).code, 66, "there is none any more");
    }
}

fn holders_and_waiters_can_be_revoked(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1 --holder first");
    let waiter = waiter(store, name, "--holder second", (1, 1));
    let reason = r#"it "hangs" \o/ since ½ an hour"#;
    operate(
        store,
        ["revoke", name, "second", "--reason", reason],
        "semaphore: second revoked, 1 of 1 held, 0 waiting",
    );
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str()), (75, ""));
    assert!(waiter.stderr.contains(reason), "{}", waiter.stderr);
    operate(store, ["revoke", name, "first"], "semaphore: first revoked, 0 of 1 held, 0 waiting");
    let holder = holder.finish();
    assert_eq!(holder.code, 76);
    assert_eq!(holder.stderr, "permits: the permit was revoked; ending the command\n");
}

fn an_unknown_holder_is_1(store: &dyn Store, name: &str) {
    prepare(store, name);
    let output = output(&mut permits(&store.url(), ["revoke", name, "web-3"]));
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    assert_eq!(output.stderr, format!("permits: {name}: \"web-3\" neither holds nor waits\n"));
}

fn repeated_changes_succeed(store: &dyn Store, _: &str) {
    for _ in 0..2 {
        operate(store, ["limit", "x", "4", "--new"], "x: limit 4, pinned (version 1)");
        operate(store, ["pause", "x"], "x: paused, 0 of 4 held, 0 waiting");
    }
    for _ in 0..2 {
        operate(store, ["resume", "x"], "x: resumed, 0 of 4 held, 0 waiting");
        operate(store, ["limit", "x", "--unpin"], "x: limit 4, not pinned (version 2)");
    }
}

fn a_limit_is_shown_and_changed_by_a_difference(store: &dyn Store, _: &str) {
    operate(store, ["limit", "x", "4", "--new"], "x: limit 4, pinned (version 1)");
    operate(store, ["limit", "x", "+2"], "x: limit 6, pinned (version 2)");
    operate(store, ["limit", "x", "-1"], "x: limit 5, pinned (version 3)");
    operate(store, ["limit", "x"], "x: limit 5, pinned (version 3)");
    let refused = output(&mut permits(&store.url(), ["limit", "x", "-5"]));
    assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{}", refused.stderr);
    operate(store, ["limit", "x"], "x: limit 5, pinned (version 3)");
}

fn all_are_revoked_and_counted(store: &dyn Store, name: &str) {
    let holders = ["--limit 3 --weight 2", ""].map(|options| Holder::start(store, name, options));
    let waiters = [1, 2, 3].map(|place| waiter(store, name, "", (2, place)));
    let says = "semaphore: 2 holders and 3 waiters revoked, 0 of 3 held, 0 waiting";
    operate(store, ["revoke", name, "--all", "--reason", "the disk is full"], says);
    for waiter in waiters {
        let waiter = waiter.finish();
        assert_eq!((waiter.code, waiter.stdout.as_str()), (75, ""), "none was granted on the way");
        assert!(waiter.stderr.contains("the disk is full"), "{}", waiter.stderr);
    }
    assert_eq!(holders.map(|holder| holder.finish().code), [76, 76]);
    let none = output(&mut permits(&store.url(), ["revoke", name, "--all"]));
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
}

fn a_holder_is_revoked_by_the_beginning_of_its_name(store: &dyn Store, name: &str) {
    let holders = ["web-1", "web-10", "db"].map(|holder| {
        let options = format!("--limit 3 --holder {holder}");
        Holder::start(store, name, &options)
    });
    let revoke = |holder: &str| output(&mut permits(&store.url(), ["revoke", name, holder, "--partial"]));
    let ambiguous = revoke("web-1");
    assert_eq!((ambiguous.code, ambiguous.stdout.as_str()), (64, ""));
    assert!(ambiguous.stderr.contains("2 holders and waiters begin with \"web-1\""), "{}", ambiguous.stderr);
    assert_eq!(revoke("mail").code, 1);
    assert_eq!(revoke("d").stdout, "semaphore: db revoked, 2 of 3 held, 0 waiting\n");
    // Without the option the name must match as a whole.
    operate(store, ["revoke", name, "web-1"], "semaphore: web-1 revoked, 1 of 3 held, 0 waiting");
    assert_eq!(counts(store, name), (1, 0));
    drop(holders);
}

fn the_authors_of_changes_are_shown(store: &dyn Store, name: &str) {
    let change = |arguments: &[&str]| {
        let mut call = permits(&store.url(), arguments);
        let Output { code, stderr, .. } = output(call.env("USER", "alice"));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    };
    change(&["limit", name, "3", "--by", "deploy 7", "--new"]);
    change(&["pause", name]);
    change(&["close", name, "--reason", "moved", "--by", "deploy 8"]);
    let seen = status(store, name);
    let changes = seen["changes"].as_array().expect("it is a list");
    let kinds: Vec<_> = changes.iter().map(|change| change["change"].as_str().expect("a text")).collect();
    assert_eq!(kinds, ["line_closed", "paused", "limit_set"]);
    assert_eq!((&changes[0]["by"], &changes[0]["reason"]), (&json!("deploy 8"), &json!("moved")));
    assert_eq!((&changes[2]["by"], &changes[2]["limit"]), (&json!("deploy 7"), &json!(3)));
    let by = changes[1]["by"].as_str().expect("it is a text");
    assert!(by.starts_with("alice@") && by.len() > "alice@".len(), "{by}");

    let shown = output(&mut permits(&store.url(), ["status", name])).stdout;
    for part in
        [", limit pinned by deploy 7 ", &format!(", PAUSED by {by} "), ", CLOSED (moved) by deploy 8 "]
    {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    assert!(shown.contains("closed the line: moved\n"), "{shown}");
    for wrong in ["", "a\tb", &"x".repeat(121)] {
        let refused = output(&mut permits(&store.url(), ["resume", name, "--by", wrong]));
        assert_eq!(refused.code, 64, "{wrong:?}: {refused:?}");
    }
}
