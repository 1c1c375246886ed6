//! What the server program under test is not meant for: a test that needs it says so, and is skipped there.
//!
//! A test asks in its first line, such as `if skip::before(7, 0) { return; }`. The test harness knows no test that is
//! skipped while it runs and counts it as passed; so each one is told on standard error, past the harness, as a line
//! that begins with `SKIPPED`. `scripts/test-servers` counts these.

use std::io::{self, Write};
use std::sync::LazyLock;
use std::thread;

use crate::server::Server;
use crate::tls::{Certificates, ClientCertificates};

/// What a server of the program says of itself.
struct Program {
    version: String,
    speaks_tls: bool,
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let server = Server::start();
    let version = server.info("redis_version").expect("every server tells its version");
    Program { version, speaks_tls: speaks_tls() }
});

/// Whether a server can be started that speaks TLS. Valkey takes the directives although it was built without.
fn speaks_tls() -> bool {
    match Server::builder().tls(&Certificates::new(), ClientCertificates::Ignored).attempt() {
        Ok(_) => true,
        // Redis does not know the directive, Valkey does not find the support.
        Err(site) if ["'tls-port", "finding TLS support"].iter().any(|told| site.log().contains(told)) => {
            false
        }
        Err(site) => site.give_up(),
    }
}

/// Whether the server under test is older than Redis `major.minor`, and so the calling test is skipped.
///
/// Valkey counts as the version of Redis with which it says to be compatible.
///
/// # Panics
///
/// If no server can be started.
#[track_caller]
pub fn before(major: u32, minor: u32) -> bool {
    let version = &PROGRAM.version;
    skip(parsed(version) < (major, minor), format_args!("needs Redis {major}.{minor}, and this is {version}"))
}

/// Whether the server under test was built without TLS, and so the calling test is skipped.
///
/// # Panics
///
/// If no server can be started.
#[track_caller]
pub fn without_tls() -> bool {
    skip(!PROGRAM.speaks_tls, format_args!("needs a server that was built with TLS"))
}

/// Major and minor part of a version.
#[track_caller]
fn parsed(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => panic!("the server tells {version:?} as its version"),
    }
}

fn skip(skipped: bool, reason: std::fmt::Arguments<'_>) -> bool {
    if skipped {
        let thread = thread::current();
        let test = thread.name().unwrap_or("a test");
        // Not by `eprintln!`, which the harness keeps to itself when a test passes. In one piece, among other tests.
        let _ = io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes());
    }
    skipped
}
