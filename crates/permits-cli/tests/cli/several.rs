//! `--also`: the command runs while the permits of several semaphores are held.

use permits_testkit::wait;

use crate::support::{
    Holder, Output, Running, Store, ageless, assert_own_lines, counts, gate, on_a_server, on_both_stores,
    output, prepare, revoke, run, status, until_counts,
};

on_both_stores! {
    the_command_has_a_permit_of_each,
}

on_a_server! {
    without_also_the_variable_is_empty,
    a_revoked_permit_of_any_ends_the_command,
    a_full_line_is_named_and_nothing_is_kept,
    the_wait_names_the_line_and_is_limited_as_a_whole,
    a_place_that_is_revoked_while_another_is_waited_for_is_76,
    a_semaphore_without_a_limit_is_named,
    a_weight_above_the_limit_in_force_is_named,
    a_required_limit_is_required_of_each,
}

/// The narrow semaphore, which is acquired before the other one.
fn narrow(store: &dyn Store, name: &str) -> String {
    let narrow = format!("{name}/tenant 7");
    prepare(store, &narrow);
    narrow
}

/// `permits run NAME OPTIONS --also ALSO -- sh -c SCRIPT`.
fn run_with(store: &dyn Store, name: &str, also: &str, options: &str, script: &str) -> std::process::Command {
    let mut command = crate::support::permits(&store.url(), ["run", name, "--also", also]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

/// The only holder.
#[track_caller]
fn holder(store: &dyn Store, name: &str) -> serde_json::Value {
    let status = status(store, name);
    assert_eq!(status["holders"].as_array().map(Vec::len), Some(1), "{status}");
    status["holders"][0].clone()
}

#[track_caller]
fn nothing_is_left(store: &dyn Store, names: [&str; 2]) {
    for name in names {
        assert_eq!(counts(store, name), (0, 0), "{name}");
    }
}

fn the_command_has_a_permit_of_each(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    prepare(store, "db:5432");
    let script = r#"echo "$PERMITS_NAME $PERMITS_HOLDER $PERMITS_TOKEN $PERMITS_SLOT"
        echo "$PERMITS_ALSO" | while read -r token slot name; do echo "<$token> <$slot> <$name>"; done
        echo ready; read x; exit 3"#;
    let options = "--limit 4 --weight 3 --holder h --label l --lease 30s --also db:5432:1";
    let mut command = run_with(store, name, &format!("{narrow}=5:2"), options, script);
    let gate = gate(&mut command);
    let running = Running::until(&mut command, "ready");
    let mut expected = Vec::new();
    for (name, weight, limit) in [(name, 3, 4), (&narrow, 2, 5), ("db:5432", 1, 1)] {
        let holder = holder(store, name);
        assert_eq!((&holder["holder"], &holder["label"]), (&"h".into(), &"l".into()));
        assert_eq!((&holder["weight"], &status(store, name)["limit"]), (&weight.into(), &limit.into()));
        assert!(holder["lease_remaining_ms"].as_u64() > Some(15_000), "{holder}");
        expected.push((holder["token"].to_string(), holder["slot"].to_string()));
    }
    let [(token, slot), (narrow_token, narrow_slot), (db_token, db_slot)] = &expected[..] else { panic!() };
    let expected = format!(
        "{name} h {token} {slot}\n<{narrow_token}> <{narrow_slot}> <{narrow}>\n<{db_token}> <{db_slot}> <db:5432>\nready\n"
    );
    assert_eq!(running.stdout(), expected);
    drop(gate);
    assert_eq!(running.finish().code, 3);
    nothing_is_left(store, [name, &narrow]);
    nothing_is_left(store, ["db:5432", &narrow]);
}

fn without_also_the_variable_is_empty(store: &dyn Store, name: &str) {
    let mut command = run(store, name, "--limit 1", r#"echo "<${PERMITS_ALSO-unset}>""#);
    assert_eq!(output(command.env("PERMITS_ALSO", "of an outer one")).stdout, "<>\n");
}

fn a_revoked_permit_of_any_ends_the_command(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    for revoked in [name, &narrow] {
        let script =
            r#"exec 2> /dev/null; trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.02; done"#;
        let mut command = run_with(store, name, &narrow, "--limit 1 --holder h", script);
        let running = Running::until(&mut command, "ready");
        revoke(store, revoked, "h", "maintenance");
        let Output { code, stdout, stderr } = running.finish();
        assert_eq!((code, stdout.as_str()), (76, "ready\nasked\n"));
        let expected =
            format!("permits: {revoked:?}: the permit was revoked: maintenance; ending the command\n");
        assert_eq!(stderr, expected);
        nothing_is_left(store, [name, &narrow]);
    }
}

fn a_full_line_is_named_and_nothing_is_kept(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    for full in [name, &narrow] {
        let first = Holder::start(store, full, "--limit 1 --holder first");
        let Output { code, stdout, stderr } =
            output(&mut run_with(store, name, &narrow, "--limit 1 --no-wait", "echo ran"));
        assert_eq!((code, stdout.as_str()), (75, ""));
        let expected = format!("permits: {full:?}: no permit now: 1 of 1 held by first, 0 waiting\n");
        assert_eq!(ageless(&stderr), expected);
        first.release();
        nothing_is_left(store, [name, &narrow]);
    }
}

fn the_wait_names_the_line_and_is_limited_as_a_whole(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    let [wide_holder, narrow_holder] =
        [name, &narrow].map(|name| Holder::start(store, name, "--limit 1 --holder first"));
    let waiter = Running::start(&mut run_with(store, name, &narrow, "-v --wait 1h", "echo ran"));
    let first = format!("for {narrow:?}: first in line, 1 of 1 held by first");
    assert!(wait::until(|| waiter.stderr().contains(&first)), "{}", waiter.stderr());
    assert_eq!(counts(store, name), (1, 0), "it keeps no place of the wide one");
    narrow_holder.release();
    until_counts(store, name, (1, 1));
    assert_eq!(counts(store, &narrow), (1, 0));
    // A second one waits behind it in the narrow line, for as long as it may.
    let refused = output(&mut run_with(store, name, &narrow, "--wait 300ms", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (75, ""));
    let expected = format!("permits: {narrow:?}: no permit within 300ms: 1 of 1 held by ");
    assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
    wide_holder.release();
    let Output { code, stdout, stderr } = waiter.finish();
    assert_eq!((code, stdout.as_str()), (0, "ran\n"));
    assert_own_lines(&stderr);
    for name in [name, &narrow] {
        assert!(stderr.contains(&format!("{name:?} granted to ")), "{stderr}");
    }
    nothing_is_left(store, [name, &narrow]);
}

fn a_place_that_is_revoked_while_another_is_waited_for_is_76(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    let first = Holder::start(store, name, "--limit 1");
    let waiter = Running::start(&mut run_with(store, name, &narrow, "--holder h", "echo ran"));
    until_counts(store, name, (1, 1));
    revoke(store, &narrow, "h", "maintenance");
    let Output { code, stdout, stderr } = waiter.finish();
    assert_eq!((code, stdout.as_str()), (76, ""));
    let expected =
        format!("permits: {narrow:?}: the permit was revoked: maintenance, before all were held\n");
    assert_eq!(stderr, expected);
    assert_eq!(counts(store, name), (1, 0));
    first.release();
    nothing_is_left(store, [name, &narrow]);
}

fn a_semaphore_without_a_limit_is_named(store: &dyn Store, name: &str) {
    let Output { code, stderr, .. } = output(&mut run_with(store, name, "new", "--limit 1", "echo ran"));
    assert_eq!(code, 64);
    let expected = "permits: semaphore \"new\" has no limit yet: give one with --also NAME=LIMIT, or set one with: permits limit NAME N\n";
    assert_eq!(stderr, expected);
    assert_eq!(counts(store, name), (0, 0));
}

fn a_weight_above_the_limit_in_force_is_named(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    let Output { code, stderr, .. } =
        output(&mut run_with(store, name, &format!("{narrow}:2"), "--limit 1", "echo ran"));
    let expected = format!("permits: {narrow:?}: a weight of 2 exceeds the limit of 1\n");
    assert_eq!((code, stderr), (64, expected));
    nothing_is_left(store, [name, &narrow]);
}

fn a_required_limit_is_required_of_each(store: &dyn Store, name: &str) {
    let narrow = narrow(store, name);
    let also = format!("{narrow}=2");
    let refused = output(&mut run_with(store, name, &also, "--limit 1 --require-limit", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("semaphore {narrow:?} has a limit of 1, not 2")));
    let granted = output(&mut run_with(store, name, &narrow, "--limit 1 --require-limit", "echo ran"));
    assert_eq!((granted.code, granted.stdout.as_str()), (0, "ran\n"), "{}", granted.stderr);
    nothing_is_left(store, [name, &narrow]);
}
