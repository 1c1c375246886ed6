//! URLs: each is refused or tried, and no error repeats the password.
//!
//! The clients never connect: each has an invalid lease, which is checked after the URL.

use std::time::Duration;

use permits::{Client, ConnectError, InvalidInput};
use proptest::prelude::*;
use proptest::sample::select;

use super::SEEDS;
use super::damage::{changes, damaged_text};
use super::run::cases;

const PASSWORD: &str = "hunter2xyzzy";

fn urls() -> impl Strategy<Value = String> {
    const SCHEMES: [&str; 14] = [
        "redis",
        "rediss",
        "redis+unix",
        "unix",
        "valkey",
        "valkeys",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "valkeys+cluster",
        "local",
        "memory",
        "http",
        "redis+tls",
    ];
    let users = select(vec!["", "user", "us%20er", "%zz", "é"]);
    let hosts =
        ["localhost", "a:1,b:2", "[::1]:7", "[::1", "a:99999", "", "a,,b", "/tmp/socket", "h\u{e9}:1", ":1"];
    let paths = ["", "/", "/0", "/-1", "/service", "/service/3", "/service/x", "/99999999999999999999"];
    let queries = [
        String::new(),
        "?db=1".to_owned(),
        "?protocol=resp3".to_owned(),
        "?tls_cert=/x".to_owned(),
        format!("?sentinel_user=u&sentinel_password={PASSWORD}"),
        format!("?pass={PASSWORD}"),
        format!("?sentinel_password=a%zz{PASSWORD}#insecure"),
    ];
    let parts = (select(SCHEMES.to_vec()), users, select(hosts.to_vec()), select(paths.to_vec()));
    (parts, select(queries.to_vec())).prop_map(|((scheme, user, hosts, path), query)| {
        format!("{scheme}://{user}:{PASSWORD}@{hosts}{path}{query}")
    })
}

/// The error before any connection is made.
fn refused(url: &str) -> ConnectError {
    let builder = Client::builder(url).lease(Duration::ZERO);
    assert!(!format!("{builder:?}").contains(PASSWORD));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it needs nothing");
    runtime.block_on(builder.connect()).expect_err("the lease is not valid")
}

/// Checks that the error does not contain the password, in any form.
fn discreet(url: &str) -> Result<(), String> {
    if url.split_once("://").is_some_and(|(scheme, _)| scheme.contains(PASSWORD)) {
        // The damage has made the password a part of the scheme.
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
fn no_url_causes_a_panic_or_repeats_the_password() {
    cases(500, SEEDS, &urls(), |url| discreet(url));
}

/// The damage may cut the password in two; no part of it is repeated.
#[test]
fn no_damaged_url_causes_a_panic_or_repeats_the_password() {
    cases(1_000, SEEDS, &(urls(), changes()), |(url, changes)| discreet(&damaged_text(url, changes)));
}

#[test]
fn no_text_causes_a_panic() {
    let texts =
        prop_oneof![any::<String>(), "(redis|rediss|unix|redis\\+(unix|cluster|sentinel))://\\PC{0,40}"];
    cases(1_000, SEEDS, &texts, |text| {
        refused(text);
        Ok(())
    });
}

/// If a `://` was lost, the text before the first colon was once repeated as an unknown scheme.
#[test]
fn a_text_that_is_no_scheme_is_not_repeated() {
    for url in ["redishunter2xyzzy:6379", "hunter2xyzzy:", "hunter2xyzzy"] {
        assert_eq!(discreet(url), Ok(()));
    }
}

/// Shows that the tests check the URL: if the URL is valid, the error is about the lease.
#[test]
fn a_valid_url_is_not_refused() {
    for url in
        ["redis://u:p@localhost/0", "redis+cluster://u:p@a:1,b", "memory:", "redis+sentinel://a/service"]
    {
        assert!(matches!(refused(url), ConnectError::Invalid(InvalidInput::Lease { .. })), "{url}");
    }
}
