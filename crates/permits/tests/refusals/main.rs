//! Bad arguments, addresses and servers: each is a clear, typed error in bounded time, and leaves nothing in
//! the store.
//!
//! Errors and debug output never show a password: tests that use one search everything that can be printed.
//! `observability` searches the events.

mod addresses;
mod arguments;
#[path = "../../../permits-redis/tests/support/packed.rs"]
mod packed;
mod permissions;
mod servers;
mod unwritable;

use std::fmt::{Debug, Display};
use std::time::Duration;

use permits::{Client, ClientBuilder, ConnectError, Recovery};
use permits_testkit::Server;
use permits_testkit::sound::Succeeds as _;
use permits_testkit::wait::in_time;

/// A password that no message contains by chance.
const PASSWORD: &str = "s3cr3t-Xyz";

/// A client of a server that has just started, and has forgotten nothing.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    in_time(builder(url).connect()).succeeds().await
}

/// An error that no retry can help: it comes before the store timeout.
async fn connect_error(url: &str) -> ConnectError {
    in_time(builder(url).connect()).await.expect_err("it cannot connect")
}

/// The error of a single attempt.
async fn attempt_error(url: &str) -> ConnectError {
    in_time(builder(url).store_timeout(Duration::ZERO).connect()).await.expect_err("it cannot connect")
}

#[track_caller]
fn nothing_is_left(server: &Server) {
    assert_eq!(server.command(&["KEYS", "*"]).array(), []);
}

/// Demands that the error's texts, for users and for developers, do not contain the password.
#[track_caller]
fn keeps_the_secret(error: &(impl Display + Debug)) {
    assert_secret(&format!("{error} {error:?} {error:#?}"));
}

#[track_caller]
fn assert_secret(text: &str) {
    assert!(!text.contains(PASSWORD) && !text.contains("s3cr3t"), "the password is shown: {text}");
}
