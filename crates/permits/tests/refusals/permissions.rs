//! Users without a permission.

use permits::acl_rules;
use permits::{AcquireError, ConnectError, StoreError};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Server, skip};

use crate::{PASSWORD, builder, connect, connect_error, in_time, keeps_the_secret, nothing_is_left};

#[tokio::test]
async fn a_user_without_a_command_is_denied() {
    let server = Server::start();
    for command in ["info", "subscribe", "evalsha", "time", "hset", "zadd"] {
        let user =
            ["ACL", "SETUSER", "exporter", "on", "nopass", "~*", "&*", "+@all", &format!("-{command}")];
        assert_eq!(server.command(&user).text(), "OK");
        let url = format!("redis://exporter:any@{}/", server.address());
        let error = match in_time(builder(&url).connect()).await {
            Err(ConnectError::Store(error)) => error,
            Err(other) => panic!("{command}: {other:?}"),
            Ok(client) => match in_time(client.named("exports", 1).acquire()).await {
                Err(AcquireError::Store(error)) => error,
                other => panic!("{command}: {other:?}"),
            },
        };
        assert!(matches!(error, StoreError::Denied { .. }), "{command}: {error:?}");
        server.command(&["FLUSHALL"]);
    }
}

/// `ACL SETUSER exporter` with these rules, which it must accept.
fn set_user<'a>(server: &Server, rules: impl IntoIterator<Item = &'a str>) -> String {
    let command: Vec<&str> = ["ACL", "SETUSER", "exporter"].into_iter().chain(rules).collect();
    assert_eq!(server.command(&command).text(), "OK");
    format!("redis://exporter:{PASSWORD}@{}/", server.address())
}

/// The least rules of a user.
fn least_rules() -> Vec<String> {
    let groups = acl_rules("permits").expect("it is valid");
    let needed = groups.into_iter().filter(|group| group.needed).flat_map(|group| group.rules);
    [format!(">{PASSWORD}")].into_iter().chain(needed).collect()
}

#[tokio::test]
async fn each_missing_least_right_is_reported_at_connect() {
    // An older server cannot test permissions: the test above shows the denial of the command itself.
    if skip::before(7, 0) {
        return;
    }
    let server = Server::start();
    let needed = least_rules();
    let rules = || needed.iter().map(String::as_str);
    let url = set_user(&server, rules());
    for rule in needed.iter().filter(|rule| rule.starts_with(['+', '~', '&'])) {
        let others = ["reset"].into_iter().chain(rules().filter(|other| other != rule));
        set_user(&server, others);
        let error = connect_error(&url).await;
        let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{rule}: {error:?}") };
        let named = match rule.split_at(1) {
            ("+", command) => reason.to_lowercase().contains(command),
            ("~", keys) => reason.contains("HSET") && reason.contains(&format!(" on keys {keys}")),
            (_, channels) => reason.contains(channels.trim_end_matches('*')),
        };
        assert!(named, "{rule}: {reason}");
        keeps_the_secret(&error);
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn the_least_rights_are_enough_and_another_database_needs_one_more() {
    let server = Server::start();
    let url = set_user(&server, least_rules().iter().map(String::as_str));
    let client = connect(&url).await;
    let permit = in_time(client.named("exports", 1).acquire()).succeeds().await;
    permit.release().succeeds().await;
    client.close().succeeds().await;

    let error = connect_error(&format!("{url}3")).await;
    let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("select"), "{reason}");
    set_user(&server, ["+select"]);
    connect(&format!("{url}3")).await.close().succeeds().await;
}
