//! URLs: whatever is asked for is refused or tried, and no error repeats the password.
//!
//! Nothing is connected to: each client is given a lease that is not valid, which is looked at after the URL.

use std::time::Duration;

use permits::{Client, ConnectError, InvalidInput};
use proptest::prelude::*;

use super::SEEDS;
use super::damage::{changes, damaged_text};
use super::run::cases;

const PASSWORD: &str = "hunter2xyzzy";

fn urls() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![
        Just("redis"),
        Just("rediss"),
        Just("redis+unix"),
        Just("unix"),
        Just("valkey"),
        Just("valkeys"),
        Just("redis+sentinel"),
        Just("rediss+sentinel"),
        Just("redis+cluster"),
        Just("valkeys+cluster"),
        Just("local"),
        Just("memory"),
        Just("http"),
        Just("redis+tls"),
    ];
    let user = prop_oneof![Just(""), Just("user"), Just("us%20er"), Just("%zz"), Just("é")];
    let hosts = prop_oneof![
        Just("localhost"),
        Just("a:1,b:2"),
        Just("[::1]:7"),
        Just("[::1"),
        Just("a:99999"),
        Just(""),
        Just("a,,b"),
        Just("/tmp/socket"),
        Just("127.0.0.1:6379"),
        Just("h\u{e9}:1"),
        Just(":1"),
    ];
    let path = prop_oneof![
        Just(""),
        Just("/"),
        Just("/0"),
        Just("/-1"),
        Just("/service"),
        Just("/service/3"),
        Just("/service/x"),
        Just("/99999999999999999999"),
    ];
    let query = prop_oneof![
        Just(String::new()),
        Just("?db=1".to_owned()),
        Just("?protocol=resp3".to_owned()),
        Just("?tls_cert=/x".into()),
        Just(format!("?sentinel_user=u&sentinel_password={PASSWORD}")),
        Just(format!("?pass={PASSWORD}")),
        Just(format!("?sentinel_password=a%zz{PASSWORD}#insecure")),
    ];
    (scheme, user, hosts, path, query).prop_map(|(scheme, user, hosts, path, query)| {
        format!("{scheme}://{user}:{PASSWORD}@{hosts}{path}{query}")
    })
}

/// What connecting fails with, before anything is connected to.
fn refused(url: &str) -> ConnectError {
    let builder = Client::builder(url).lease(Duration::ZERO);
    assert!(!format!("{builder:?}").contains(PASSWORD));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it needs nothing");
    runtime.block_on(builder.connect()).expect_err("the lease is not valid")
}

/// Whether the error says nothing of the password, in any form.
fn discreet(url: &str) -> Result<(), String> {
    if url.split_once("://").is_some_and(|(scheme, _)| scheme.contains(PASSWORD)) {
        // The damage has made a scheme of it.
        return Ok(());
    }
    let error = refused(url);
    for said in [error.to_string(), format!("{error:?}"), format!("{error:#?}")] {
        if said.contains(PASSWORD) {
            return Err(format!("{url}: {said}"));
        }
    }
    Ok(())
}

#[test]
fn no_url_makes_a_panic_or_tells_the_password() {
    cases(500, SEEDS, &urls(), |url| discreet(url));
}

/// The damage may cut the password in two; what is left of it in one piece is still not told.
#[test]
fn no_damaged_url_makes_a_panic_or_tells_the_password() {
    cases(1_000, SEEDS, &(urls(), changes()), |(url, changes)| discreet(&damaged_text(url, changes)));
}

#[test]
fn no_text_makes_a_panic() {
    let texts =
        prop_oneof![any::<String>(), "(redis|rediss|unix|redis\\+(unix|cluster|sentinel))://\\PC{0,40}"];
    cases(1_000, SEEDS, &texts, |text| {
        refused(text);
        Ok(())
    });
}

/// Where a `://` was lost, what stands before the first colon was once told as a scheme that nobody knows.
#[test]
fn what_is_no_scheme_is_not_told() {
    for url in ["redishunter2xyzzy:6379", "hunter2xyzzy:", "hunter2xyzzy"] {
        assert_eq!(discreet(url), Ok(()));
    }
}

/// That the test sees what is told: a lease that is refused comes after a URL that is not.
#[test]
fn a_valid_url_is_not_what_is_refused() {
    for url in
        ["redis://u:p@localhost/0", "redis+cluster://u:p@a:1,b", "memory:", "redis+sentinel://a/service"]
    {
        assert!(matches!(refused(url), ConnectError::Invalid(InvalidInput::Lease { .. })), "{url}");
    }
}
