//! A server whose clock is set back to before its own start, as by a machine that boots with a clock that is
//! ahead.

use std::fs;
use std::process::Command;

use permits::{AcquireError, Client, Limit, PermitStatus, Recovery, Severity};
use permits_testkit::sound::Named as _;
use permits_testkit::{HOUR, Server, skip, wait};
use tempfile::TempDir;

/// A library that adds the seconds in the file that `SHIFT_FILE` names to the clock of a program.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
  char text[32];
  int file = open(getenv("SHIFT_FILE"), O_RDONLY);
  ssize_t length = file < 0 ? 0 : read(file, text, 31);
  if (file >= 0) close(file);
  text[length < 0 ? 0 : length] = 0;
  return atol(text);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  long failed = syscall(SYS_gettimeofday, now, zone);
  if (!failed && now) now->tv_sec += shift();
  return failed;
}

time_t time(time_t *at) {
  struct timeval now;
  gettimeofday(&now, 0);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"#;

#[tokio::test]
async fn a_server_whose_clock_is_behind_its_start_serves_and_is_named_by_a_diagnosis() {
    if skip::without_program("cc") {
        return;
    }
    let directory = TempDir::new().expect("there is room");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("shift.c"), SHIFT).expect("there is room");
    fs::write(at("seconds"), "7200").expect("there is room");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([at("shift.so"), at("shift.c")]).status();
    assert!(compiled.expect("it runs").success());
    let server = Server::builder().env("LD_PRELOAD", at("shift.so")).env("SHIFT_FILE", at("seconds")).start();
    let connecting = Client::builder(server.url()).lease(HOUR).recovery(Recovery::Off).connect();
    let client = connecting.await.expect("it runs");
    let semaphore = client.semaphore("exports", 2).expect("it is valid");
    let held = semaphore.acquire().await.expect("it is free");

    // Replaced as a whole, since the server reads it at any time.
    fs::write(at("new"), "0").expect("there is room");
    fs::rename(at("new"), at("seconds")).expect("it is there");
    let uptime = || server.info("uptime_in_seconds").is_some_and(|uptime| uptime.starts_with('-'));
    if !wait::until(uptime) {
        panic!("the clock is not behind the start: {:?}", server.info("uptime_in_seconds"));
    }

    held.renew().await.expect("the store has it");
    let second = semaphore.try_acquire().await.expect("it is free");
    assert!(second.token() > held.token());
    assert_eq!(held.status(), PermitStatus::Held);
    assert!(matches!(semaphore.try_acquire().await, Err(AcquireError::NoPermits)));
    assert_eq!(semaphore.inspect().await.expect("it is read").held, 2);
    second.release().await.expect("the store has it");
    let unused = client.named("unused", Limit::Stored);
    assert_eq!(unused.inspect().await.expect("it is read").held, 0);
    // The store may have forgotten its state: for a window, nothing is granted.
    let careful = Client::builder(server.url()).recovery(Recovery::Strict).connect().await.expect("it runs");
    let outcome = careful.semaphore("other", 1).expect("it is valid").try_acquire().await;
    assert!(matches!(outcome, Err(AcquireError::Recovering { .. })), "{outcome:?}");

    let diagnosis = Client::builder(server.url()).diagnose().await.expect("the settings are valid");
    let clock = diagnosis.findings.iter().find(|finding| finding.subject == "clock").expect("it is told");
    assert_eq!(clock.severity, Severity::Problem);
    assert!(clock.observed.contains("before the server's start"), "{clock:?}");
}
