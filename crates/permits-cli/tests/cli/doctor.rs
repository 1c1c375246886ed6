//! `permits doctor`: the text and the JSON agree, the exit code reports problems, and no keys are left. More
//! findings are in [`calls`](crate::calls).

use permits_testkit::{Resp, Server, wait};
use serde_json::Value;

use crate::support::{CLOSED_PORT, Output, output, permits, prepare};

/// A password that occurs nowhere by chance.
const PASSWORD: &str = "s3cr3t-Xyz";

/// Runs the doctor twice, for the text and for the JSON, which must agree. Returns the JSON and the text.
#[track_caller]
fn doctor(url: &str) -> (Value, String) {
    let json = output(&mut permits(url, ["doctor", "--json"]));
    let text = output(&mut permits(url, ["doctor"]));
    for Output { stdout, stderr, .. } in [&json, &text] {
        assert_eq!(stderr, "");
        assert!(!stdout.contains(PASSWORD), "the password is shown: {stdout}");
    }
    let value: Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert_eq!(json.stdout.lines().count(), 1);
    let findings = value["findings"].as_array().expect("a list");
    let problem = findings.iter().any(|finding| finding["severity"] == "problem");
    assert_eq!(value["healthy"], Value::from(!problem), "{value}");
    assert_eq!((json.code, text.code), (i32::from(problem), i32::from(problem)), "{value}");
    assert!(value["store"].as_str().is_some_and(|store| text.stdout.contains(&format!("\n{store}: "))));
    let lines = |sign: &str| text.stdout.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!(lines("PROBLEM ") > 0, problem, "{}", text.stdout);
    assert_eq!(lines("PROBLEM ") + lines("note ") + lines("ok "), findings.len(), "{}", text.stdout);
    (value, text.stdout)
}

/// Demands a finding of this subject and severity, with these words in the observation or the advice.
#[track_caller]
fn assert_found(url: &str, subject: &str, severity: &str, words: &[&str]) {
    let (value, text) = doctor(url);
    let found = value["findings"].as_array().expect("a list").iter().any(|finding| {
        let said = format!("{} {}", finding["observed"], finding["meaning"]);
        finding["subject"] == subject
            && finding["severity"] == severity
            && words.iter().all(|word| said.contains(word))
    });
    assert!(found, "no {severity} of {subject} with {words:?}: {text}");
    let sign = match severity {
        "problem" => "PROBLEM",
        "fine" => "ok",
        other => other,
    };
    let line = text.lines().find(|line| line.starts_with(sign) && line.contains(subject));
    assert!(line.is_some(), "{text}");
}

#[test]
fn a_healthy_server_is_0_and_nothing_is_left() {
    let server = Server::builder().append_only().start();
    let acl = server.command(&["ACL", "LIST"]);
    let (value, text) = doctor(&server.url());
    assert_eq!(value["healthy"], true, "{text}");
    assert!(text.starts_with("ok       connection "), "{text}");
    assert!(text.contains("0 problems, "), "{text}");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    assert_eq!(server.command(&["ACL", "LIST"]), acl);
    let configuration = server.command(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(configuration.array()[1].text(), "noeviction");
}

#[test]
fn a_replica_and_a_primary_without_min_replicas_are_problems() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    assert!(wait::until(|| primary.info("connected_slaves").as_deref() == Some("1")));
    let port = primary.port().to_string();
    assert_found(&replica.url(), "role", "problem", &["replica", &port, "Connect to the primary"]);
    let words =
        ["CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-max-lag 2", "twice the limit"];
    assert_found(&primary.url(), "replication", "problem", &words);

    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert!(wait::until(|| primary.info("min_slaves_good_slaves").as_deref() == Some("1")));
    assert_found(&primary.url(), "replication", "fine", &[]);
    replica.kill();
    assert!(wait::until(|| primary.info("min_slaves_good_slaves").as_deref() == Some("0")));
    assert_found(&primary.url(), "replication", "problem", &["refuses all writes"]);
    assert_eq!(primary.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_cluster_node_is_a_problem_that_names_the_cluster_url() {
    let node = Server::builder().arg("cluster-enabled", "yes").start();
    assert_found(&node.url(), "mode", "problem", &["redis+cluster://"]);
}

#[test]
fn a_user_made_from_the_printed_acl_has_all_rights() {
    let server = Server::builder().append_only().start();
    let printed = output(&mut permits(CLOSED_PORT, ["doctor", "--acl"]));
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "no store is asked");
    let least: Vec<&str> = printed.stdout.lines().filter(|line| line.starts_with("ACL")).collect();
    assert_eq!(least.len(), 1, "{}", printed.stdout);
    assert!(least[0].starts_with("ACL SETUSER permits on "));
    let optional: Vec<&str> = printed
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|it| it.starts_with("ACL"))
        .collect();
    for rule in ["+scan", "+config|get", "+wait", "+select", "+spublish", "db=0"] {
        let among =
            |commands: &[&str]| commands.iter().any(|command| command.split(' ').any(|word| word == rule));
        assert!(among(&optional) && !among(&least), "{rule}: {}", printed.stdout);
    }
    let commands: Vec<&str> = least.into_iter().chain(optional).collect();
    // Servers before 7.0 do not know the cluster's command, and refuse that rule.
    let clusters = server.command(&["COMMAND", "INFO", "spublish"]).array() != [Resp::Nil];
    // Servers other than Valkey from 9.1 on refuse the rule of the databases.
    let databases = !matches!(server.command(&["ACL", "SETUSER", "other", "db=3"]), Resp::Error(_));
    let known = |command: &&&str| {
        (clusters || !command.contains("+spublish")) && (databases || !command.contains("db="))
    };
    // Run each command twice: the second time it updates a user that exists.
    for command in commands.iter().chain(&commands).filter(known) {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(server.command(&words).text(), "OK", "{command}");
    }
    let url = format!("redis://permits:{PASSWORD}@{}/", server.address());
    assert_found(&url, "connection", "problem", &["denies access"]);
    assert_eq!(server.command(&["ACL", "SETUSER", "permits", &format!(">{PASSWORD}")]).text(), "OK");
    let (value, text) = doctor(&url);
    assert_eq!(value["healthy"], true, "{text}");
    prepare(&server, "exports");
    let run = output(&mut permits(&url, ["run", "exports", "--limit", "1", "--", "echo", "done"]));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "done\n", ""));
    assert_eq!(server.command(&["ACL", "LOG"]).array().len(), 1, "nothing but the login was denied");
    if databases {
        assert_found(&format!("{url}3"), "connection", "problem", &["access database"]);
        assert_eq!(server.command(&["ACL", "SETUSER", "permits", "resetdbs", "db=3"]).text(), "OK");
        assert_found(&url, "rights", "problem", &["may not use this database", "db=NUMBER"]);
        assert_eq!(doctor(&format!("{url}3")).0["healthy"], true);
    }
}
