//! Tests that the server program cannot run: they are skipped there.
//!
//! A test asks in its first line, such as `if skip::before(7, 0) { return; }`. The test harness counts a test
//! that returns as passed. So each skipped test is reported past the harness, as a line on standard error
//! that begins with `SKIPPED`; `scripts/lab test-servers` counts these.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use crate::server::Server;
use crate::tls::{Certificates, ClientCertificates};

/// The variable with the programs, separated by commas, without which tests fail in place of being skipped.
pub const REQUIRED: &str = "PERMITS_TEST_REQUIRED";

/// The properties of the server program.
struct Program {
    version: String,
    speaks_tls: bool,
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let server = Server::start();
    let version = server.info("redis_version").expect("every server tells its version");
    Program { version, speaks_tls: speaks_tls() }
});

/// Returns whether the server program speaks TLS. Valkey accepts the directives although it was built
/// without.
fn speaks_tls() -> bool {
    match Server::builder().tls(&Certificates::new(), ClientCertificates::Ignored).attempt() {
        Ok(_) => true,
        // Redis rejects the directive, Valkey fails at the support.
        Err(site)
            if ["'tls-port", "finding TLS support"].iter().any(|reason| site.log().contains(reason)) =>
        {
            false
        }
        Err(site) => site.give_up(),
    }
}

/// Returns whether the server under test is older than Redis `major.minor`, and so the calling test is
/// skipped.
///
/// Valkey counts as the version of Redis with which it declares to be compatible.
#[track_caller]
pub fn before(major: u32, minor: u32) -> bool {
    let version = &PROGRAM.version;
    skip(parsed(version) < (major, minor), format_args!("needs Redis {major}.{minor}, and this is {version}"))
}

/// Returns whether the server under test was built without TLS, and so the calling test is skipped.
#[track_caller]
pub fn without_tls() -> bool {
    skip(!PROGRAM.speaks_tls, format_args!("needs a server that was built with TLS"))
}

/// Returns whether this machine has no `program`, and so the calling test, or the part of it that runs the
/// program, is skipped.
#[track_caller]
pub fn without_program(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()));
    let required = std::env::var(REQUIRED).unwrap_or_default();
    let is_required = required.split(',').any(|name| name == program);
    assert!(
        found || !is_required,
        "{program} is not in PATH, and {REQUIRED} names it: install it, or unset {REQUIRED}"
    );
    skip(!found, format_args!("needs {program}"))
}

/// Returns whether this command cannot be run on this machine, and so the calling test is skipped.
#[track_caller]
pub fn unless_it_runs(command: &mut Command) -> bool {
    let refusal = refusal(command);
    skip(refusal.is_some(), format_args!("needs {command:?}: {}", refusal.unwrap_or_default()))
}

/// Why a command failed.
fn refusal(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns whether clients cannot reach a socket of this machine by both IPv6 and IPv4, and so the calling
/// test is skipped.
pub fn without_dual_stack() -> bool {
    let reach = |listener: TcpListener| {
        let port = listener.local_addr()?.port();
        TcpStream::connect((Ipv6Addr::LOCALHOST, port))?;
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
    };
    let reached = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(reach);
    skip(reached.is_err(), format_args!("needs sockets that are reached by IPv6 and by IPv4"))
}

/// The command that runs a program as the first process of a pid namespace, with the right to make another
/// one.
pub const IN_NAMESPACE: [&str; 6] =
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];

/// Returns whether this machine refuses namespaces, and so the calling test is skipped.
#[track_caller]
pub fn without_namespaces() -> bool {
    let [program, arguments @ ..] = IN_NAMESPACE;
    let refusal = refusal(Command::new(program).args(arguments).arg("true"));
    skip(refusal.is_some(), format_args!("needs namespaces: {}", refusal.unwrap_or_default()))
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
        // The line bypasses `eprintln!`, which the harness captures when a test passes. It is one write,
        // because other tests write, too.
        let _ = io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes());
    }
    skipped
}
