//! Names that no program has used: a change of one warns and is made, and a verb that shows one ends with 66.

use serde_json::Value;

use crate::support::{Output, Store, on_a_server, output, permits, prepare, status};

on_a_server! {
    a_change_of_an_unknown_name_is_made_with_a_warning,
    verbs_that_show_or_remove_an_unknown_name_end_with_66,
    a_request_for_an_unknown_name_without_a_limit_has_similar_ones,
    a_name_with_a_star_is_no_pattern,
}

fn call(store: &dyn Store, arguments: &[&str]) -> Output {
    output(&mut permits(&store.url(), arguments))
}

fn a_change_of_an_unknown_name_is_made_with_a_warning(store: &dyn Store, _: &str) {
    prepare(store, "exports");
    let warning = r#"permits: no program has used "exprots" lately; similar names: "exports""#;
    for arguments in [
        &["resume", "exprots"][..],
        &["open", "exprots"],
        &["limit", "exprots", "--unpin"],
        &["pause", "exprots"],
    ] {
        let warned = call(store, arguments);
        assert_eq!((warned.code, warned.stderr.trim_end()), (0, warning), "{arguments:?}");
        assert!(warned.stdout.starts_with("exprots: "), "{}", warned.stdout);
    }
    assert_eq!(status(store, "exprots")["paused"], Value::Bool(true));
    for (arguments, because) in [
        (&["limit", "exprots", "3"][..], "it is known now"),
        (&["pause", "imports", "--new"], "it is meant to be new"),
        (&["limit", "later", "3", "--declare"], "to make it known is the purpose"),
    ] {
        let silent = call(store, arguments);
        assert_eq!((silent.code, silent.stderr.as_str()), (0, ""), "{because}");
    }
}

fn verbs_that_show_or_remove_an_unknown_name_end_with_66(store: &dyn Store, _: &str) {
    prepare(store, "exports");
    let says = "permits: no program has used \"exprots\" lately; similar names: \"exports\"\n";
    for (arguments, shown) in [
        (&["status", "exprots"][..], "exprots: not in use, no limit is set\n"),
        (&["limit", "exprots"], "exprots: no limit is set, not pinned (version 0)\n"),
        (&["delete", "exprots"], ""),
        (&["revoke", "exprots", "web-1"], ""),
        (&["revoke", "exprots", "web", "--partial"], ""),
        (&["revoke", "exprots", "--all"], ""),
    ] {
        let Output { code, stdout, stderr } = call(store, arguments);
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (66, shown, says), "{arguments:?}");
    }
    let Output { code, stdout, stderr } = call(store, &["status", "exprots", "--json"]);
    assert_eq!((code, stderr.as_str()), (66, "permits: no program has used \"exprots\" lately\n"));
    let shown: Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(shown["held"], 0, "a script that reads it goes on");
}

fn a_request_for_an_unknown_name_without_a_limit_has_similar_ones(store: &dyn Store, _: &str) {
    prepare(store, "exports");
    let Output { code, stdout, stderr } = call(store, &["run", "exprots", "true"]);
    assert_eq!((code, stdout.as_str()), (64, ""));
    assert!(stderr.ends_with("; similar names: \"exports\"\n"), "{stderr}");
}

fn a_name_with_a_star_is_no_pattern(store: &dyn Store, _: &str) {
    prepare(store, "api/tenant-1");
    let paused = call(store, &["pause", "api/*"]);
    assert_eq!((paused.code, paused.stdout.as_str()), (0, "api/*: paused, not in use, no limit is set\n"));
    let says = "permits: no program has used \"api/*\" lately; * is a plain character in a name: \
                for all that begin with \"api/\", see --under\n";
    assert_eq!(paused.stderr, says);
    assert_eq!(status(store, "api/tenant-1")["paused"], Value::Bool(false));
}
