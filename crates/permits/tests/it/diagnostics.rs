//! Diagnoses: the findings that a program receives, and that a diagnosis leaves nothing in the store.
//!
//! The command's tests cover each finding's condition and advice.

use std::time::Duration;

use permits::error::InvalidInput;
use permits::{AclRules, acl_rules};
use permits::{Client, ConnectError, Diagnosis, Finding, Severity};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, Proxy, Server, wait};
use tempfile::TempDir;

async fn diagnose(url: &str) -> Diagnosis {
    let diagnosing = Client::builder(url).diagnose();
    let diagnosis = tokio::time::timeout(HANGS, diagnosing).await.expect("it ends in time");
    let diagnosis = diagnosis.expect("the settings are valid");
    for Finding { severity, observed, advice, .. } in &diagnosis.findings {
        assert!(!observed.is_empty() && advice.is_empty() == (*severity == Severity::Fine), "{diagnosis:?}");
    }
    diagnosis
}

fn problems(diagnosis: &Diagnosis) -> Vec<&str> {
    let problem = |finding: &&Finding| finding.severity == Severity::Problem;
    diagnosis.findings.iter().filter(problem).map(|finding| finding.subject).collect()
}

fn subjects(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.findings.iter().map(|finding| finding.subject).collect()
}

/// `ACL SETUSER exporter` with these rules.
fn set_user<'a>(server: &Server, rules: impl IntoIterator<Item = &'a str>) -> String {
    let command: Vec<&str> = ["ACL", "SETUSER", "exporter"].into_iter().chain(rules).collect();
    assert_eq!(server.command(&command).text(), "OK");
    format!("redis://exporter:secret@{}/", server.address())
}

/// The rights outside of clusters. The tests of clusters try the rest, which a server before 7.0 does not
/// know.
fn rights_alone() -> Vec<AclRules> {
    let mut rights = acl_rules("permits").expect("it is valid");
    rights.retain(|rights| !rights.rules.iter().any(|rule| rule == "+spublish"));
    rights
}

#[tokio::test]
async fn a_diagnosis_of_the_settings_writes_nothing() {
    let server = Server::builder().arg("maxmemory", "100mb").arg("maxmemory-policy", "allkeys-lru").start();
    let diagnosing = Client::builder(server.url()).diagnose_settings();
    let settings =
        tokio::time::timeout(HANGS, diagnosing).await.expect("it ends in time").expect("it is valid");
    assert_eq!(problems(&settings), ["eviction"]);
    assert!(!subjects(&settings).contains(&"semaphore"), "{settings:?}");
    let dirty = || server.info("rdb_changes_since_last_save");
    assert_eq!(dirty().as_deref(), Some("0"));
    let whole = diagnose(&server.url()).await;
    assert!(subjects(&whole).contains(&"semaphore") && dirty().as_deref() != Some("0"), "{whole:?}");

    let directory = TempDir::new().expect("a directory");
    let url = format!("local:{}", directory.path().join("permits").display());
    drop(Client::connect(&url).await.expect("it can be made"));
    let diagnosing = Client::builder(&url).diagnose_settings();
    let settings =
        tokio::time::timeout(HANGS, diagnosing).await.expect("it ends in time").expect("it is valid");
    assert!(settings.is_healthy() && !subjects(&settings).contains(&"semaphore"), "{settings:?}");
}

#[tokio::test]
async fn a_healthy_server_is_diagnosed_with_the_documented_rights_and_nothing_is_left() {
    let server = Server::builder().append_only().start();
    let rights = rights_alone();
    let rules: Vec<&str> = rights.iter().flat_map(|rights| &rights.rules).map(String::as_str).collect();
    let url = set_user(&server, [">secret"].into_iter().chain(rules));
    server.command(&["ACL", "LOG", "RESET"]);
    let before = server.command(&["ACL", "LIST"]);

    let diagnosis = diagnose(&url).await;
    assert!(diagnosis.is_healthy(), "{diagnosis:?}");
    assert_eq!(diagnosis.store, server.address().to_string());
    for subject in
        ["connection", "version", "rights", "eviction", "persistence", "clock", "semaphore", "latency"]
    {
        assert!(subjects(&diagnosis).contains(&subject), "{subject}: {diagnosis:?}");
    }
    // A busy machine may be slow.
    let noted = |finding: &&Finding| finding.severity != Severity::Fine && finding.subject != "latency";
    assert_eq!(diagnosis.findings.iter().find(noted), None);

    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    assert_eq!(server.command(&["ACL", "LIST"]), before);
    assert_eq!(server.command(&["ACL", "LOG"]).array(), [], "nothing was denied");
    let channels = || server.command(&["PUBSUB", "CHANNELS"]).array().is_empty();
    assert!(wait::until(channels), "no subscription is left");
}

#[tokio::test]
async fn each_right_that_is_missing_is_named() {
    let server = Server::start();
    let rights = rights_alone();
    let all: Vec<&str> = rights.iter().flat_map(|rights| &rights.rules).map(String::as_str).collect();
    for rule in all.iter().filter(|rule| rule.starts_with(['+', '~', '&'])) {
        let needed =
            rights.iter().any(|rights| rights.needed && rights.rules.iter().any(|needed| needed == rule));
        let others = all.iter().copied().filter(|other| other != rule);
        let url = set_user(&server, ["reset", ">secret"].into_iter().chain(others));
        let diagnosis = diagnose(&url).await;
        let about = |finding: &&Finding| matches!(finding.subject, "rights" | "configuration");
        let named: Vec<&Finding> = diagnosis.findings.iter().filter(about).collect();
        let what = rule.trim_start_matches(['+', '~', '&']).replace('|', " ");
        let names = |finding: &&&Finding| finding.observed.to_lowercase().contains(&what);
        let finding = named.iter().find(names).unwrap_or_else(|| panic!("{rule}: {named:?}"));
        let expected = if needed { Severity::Problem } else { Severity::Note };
        assert_eq!(finding.severity, expected, "{rule}: {named:?}");
        assert_eq!(diagnosis.is_healthy(), !needed, "{rule}: {diagnosis:?}");
        if needed {
            assert!(finding.advice.contains(rule), "it says what to do: {finding:?}");
            assert!(!subjects(&diagnosis).contains(&"semaphore"), "{rule}: no self-test is run");
        }
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[tokio::test]
async fn a_command_that_was_renamed_is_named() {
    let server =
        Server::builder().arg("rename-command", "ZADD another").arg("rename-command", "CONFIG b").start();
    let diagnosis = diagnose(&server.url()).await;
    assert_eq!(problems(&diagnosis), ["rights"], "{diagnosis:?}");
    let said = |what: &str| diagnosis.findings.iter().any(|finding| finding.observed.contains(what));
    assert!(said("does not know ZADD") && said("CONFIG GET"), "{diagnosis:?}");
}

/// The first error of a client names it, too.
#[tokio::test]
async fn a_server_without_scripts_is_named() {
    let hidden = |name: &str| format!("{name} \"\"");
    let server =
        Server::builder().arg("rename-command", &hidden("EVAL")).arg("rename-command", &hidden("EVALSHA"));
    let server = server.start();
    let diagnosis = diagnose(&server.url()).await;
    assert_eq!(problems(&diagnosis), ["rights"], "{diagnosis:?}");
    let found = diagnosis.findings.iter().find(|found| found.is_problem()).expect("there is one");
    assert!(found.observed.contains("does not know EVAL, EVALSHA"), "{found:?}");
    assert!(found.advice.contains("Lua scripting is switched off"), "{found:?}");
    let error = Client::connect(&server.url()).await.expect_err("nothing can be acquired").to_string();
    assert!(error.contains("Lua scripting is switched off"), "{error}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_a_finding() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    proxy.swallow_reply_to(b"TIME");
    let diagnosis = diagnose(&proxy.url()).await;
    assert_eq!(problems(&diagnosis), ["connection"], "{diagnosis:?}");
    assert_eq!(subjects(&diagnosis), ["connection", "connection"], "it was reached before");
}

#[tokio::test]
async fn a_diagnosis_whose_receiver_is_dropped_leaves_nothing() {
    let server = Server::start();
    let diagnosing = Client::builder(server.url()).diagnose();
    let dropped = tokio::time::timeout(Duration::ZERO, diagnosing).await;
    assert!(dropped.is_err(), "it was not ready yet");
    let tried = || server.command(&["INFO", "commandstats"]).text().contains("cmdstat_evalsha");
    assert!(wait::until(tried), "it goes on");
    let alone = || server.info("connected_clients").as_deref() == Some("1");
    assert!(wait::until(alone), "it ends");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[tokio::test]
async fn wrong_settings_are_errors_and_no_findings() {
    let builder = |url: &str| Client::builder(url);
    let error = builder("http://127.0.0.1/").diagnose().await.expect_err("no such store");
    assert!(matches!(error, ConnectError::UnknownScheme { .. }), "{error:?}");
    let error = builder("redis://127.0.0.1:port/").diagnose().await.expect_err("no such port");
    assert!(matches!(error, ConnectError::Url { .. }), "{error:?}");
    let error = builder("memory:").prefix("a b").diagnose().await.expect_err("no such prefix");
    assert!(matches!(error, ConnectError::Invalid(InvalidInput::Prefix { .. })), "{error:?}");
    let error = builder("memory:").lease(Duration::ZERO).diagnose().await.expect_err("no such lease");
    assert!(matches!(error, ConnectError::Invalid(InvalidInput::Lease { .. })), "{error:?}");
}

#[tokio::test]
async fn memory_is_healthy() {
    let diagnosis = diagnose("memory:").await;
    assert!(diagnosis.is_healthy() && subjects(&diagnosis) == ["store"], "{diagnosis:?}");
}

#[tokio::test]
async fn a_directory_in_use_is_diagnosed_and_nothing_is_left() {
    let directory = TempDir::new().expect("there is room");
    let path = directory.path().join("permits");
    let url = format!("local:{}", path.display());

    let diagnosis = diagnose(&url).await;
    assert!(diagnosis.is_healthy(), "{diagnosis:?}");
    assert!(!path.exists() && !subjects(&diagnosis).contains(&"semaphore"), "it is not made");

    let client = Client::connect(&url).succeeds().await;
    let permit = client.named("exports", 1).acquire().succeeds().await;
    let files = || std::fs::read_dir(&path).expect("it is there").count();
    let before = files();
    let diagnosis = diagnose(&url).await;
    assert!(diagnosis.is_healthy(), "{diagnosis:?}");
    for subject in ["directory", "contents", "clock", "semaphore", "latency"] {
        assert!(subjects(&diagnosis).contains(&subject), "{subject}: {diagnosis:?}");
    }
    assert_eq!((client.list().await, files()), (Ok(vec!["exports".into()]), before), "nothing is left");
    permit.renew().await.expect("it is held all the while");
    permit.release().succeeds().await;
    client.close().succeeds().await;
}
