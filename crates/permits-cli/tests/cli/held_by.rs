//! Holders in lines for people: the label first, then the name and the age; and the label by default.

use permits_testkit::{Server, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Holder, Local, Running, Store, ageless, gate, on_a_server, output, permits, prepare, run, status,
    until_counts,
};

on_a_server! {
    refusals_and_waits_tell_the_label_before_the_name,
    a_watch_names_the_holders,
    the_label_is_the_user_and_the_program_without_arguments,
}

const OPTIONS: [&str; 4] = ["--holder", "web-1", "--label", "first holder"];

fn refusals_and_waits_tell_the_label_before_the_name(store: &dyn Store, name: &str) {
    let mut holder = permits(&store.url(), ["run", name, "--limit", "1"]);
    holder.args(OPTIONS).args(["sh", "-c", "echo ready; read x"]);
    let gate = gate(&mut holder);
    let _holder = Running::until(&mut holder, "ready");
    let refused = output(&mut run(store, name, "--no-wait", "true"));
    let says = "permits: no permit now: 1 of 1 held by \"first holder\" (web-1), 0 waiting\n";
    assert_eq!(ageless(&refused.stderr), says);
    assert_ne!(refused.stderr, says, "the age is told");
    let waiter = Running::start(&mut run(store, name, "-v", "true"));
    let says = "first in line, 1 of 1 held by \"first holder\" (web-1)\n";
    assert!(wait::until(|| ageless(&waiter.stderr()).contains(says)), "{}", waiter.stderr());
    drop(gate);
    assert_eq!(waiter.finish().code, 0);
}

fn a_watch_names_the_holders(store: &dyn Store, name: &str) {
    prepare(store, name);
    let watch = Running::until(&mut permits(&store.url(), ["watch", name, "--interval", "100ms"]), "Z  ");
    let mut holder = permits(&store.url(), ["run", name, "--limit", "1"]);
    holder.args(OPTIONS).args(["sh", "-c", "echo ready; read x"]);
    let gate = gate(&mut holder);
    let holder = Running::until(&mut holder, "ready");
    watch.prints("1 of 1 held, 0 waiting; held by \"first holder\" (web-1); 1 granted\n");
    let waiter = Running::start(&mut run(store, name, "--holder web-2", "true"));
    watch.prints("1 of 1 held, 1 waiting; held by \"first holder\" (web-1)\n");
    waiter.signal(Signal::TERM);
    assert!(wait::until(|| watch.stdout().ends_with("0 waiting; held by \"first holder\" (web-1)\n")));
    drop(gate);
    assert_eq!(holder.finish().code, 1);
    assert!(wait::until(|| watch.stdout().ends_with("0 of 1 held, 0 waiting\n")), "{}", watch.stdout());
}

fn the_label_is_the_user_and_the_program_without_arguments(store: &dyn Store, name: &str) {
    let label = |options: &[&str], variable: Option<&str>| {
        let mut holder = permits(&store.url(), ["run", name, "--limit", "1"]);
        holder.args(options).args(["/bin/sh", "-c", "echo ready; read secret"]);
        match variable {
            Some(label) => holder.env("PERMITS_LABEL", label),
            None => holder.env_remove("PERMITS_LABEL"),
        };
        let gate = gate(holder.env("USER", "alice"));
        let holder = Running::until(&mut holder, "ready");
        let label = status(store, name)["holders"][0]["label"].clone();
        drop(gate);
        assert_eq!(holder.finish().code, 1);
        label
    };
    assert_eq!(label(&[], None), json!("alice: sh"));
    assert_eq!(label(&["--label", "mine"], None), json!("mine"));
    assert_eq!(label(&["--label", ""], None), Value::Null);
    assert_eq!(label(&[], Some("build 7")), json!("build 7"));
    assert_eq!(label(&[], Some("")), Value::Null);
    assert_eq!(label(&["--label", "mine"], Some("build 7")), json!("mine"));
    let mut acquire = permits(&store.url(), ["acquire", name]);
    assert_eq!(output(acquire.env("USER", "alice").env_remove("PERMITS_LABEL")).code, 0);
    let holder = status(store, name)["holders"][0].clone();
    assert_eq!(holder["label"], json!("alice: permits acquire"));
    // Host name and process id, by which an operator finds the process, and no label.
    let name = holder["holder"].as_str().expect("a text");
    let id = name.split_once('/').and_then(|(process, _)| process.rsplit_once(':')?.1.parse::<u32>().ok());
    assert!(id.is_some(), "{name}");
}

#[test]
fn a_label_of_the_environment_that_is_not_valid_is_64() {
    let long = "x".repeat(121);
    for wrong in ["a\tb", &long] {
        let mut refused = run(&Local::new(), "x", "--limit 1", "echo ran");
        let refused = output(refused.env("PERMITS_LABEL", wrong));
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
        assert!(refused.stderr.starts_with("permits: PERMITS_LABEL: the label "), "{}", refused.stderr);
    }
    // A program's name of any length is cut off.
    let (store, long) = (Local::new(), format!("./{}", "ä".repeat(100)));
    let mut holder = permits(&store.url(), ["run", "x", "--limit", "1", &long]);
    assert_eq!(output(holder.env_remove("PERMITS_LABEL")).code, 127);
}

#[test]
fn a_wait_that_shows_nothing_asks_the_store_nothing() {
    let server = Server::start();
    prepare(&server, "x");
    let lasting = "--limit 1 --lease 1h";
    let _holder = Holder::start(&server, "x", lasting);
    assert_eq!(status(&server, "x")["held"], 1);
    let inspections = || {
        let stats = server.command(&["INFO", "commandstats"]);
        // No other script uses this command.
        let calls = stats.text().split("cmdstat_zrangebyscore:calls=").nth(1).map(str::to_owned);
        let calls = calls.expect("there were some");
        calls.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).expect("a number")
    };
    let before = inspections();
    let _silent = Running::start(&mut run(&server, "x", lasting, "true"));
    let queued = || server.command(&["ZCARD", "permits:{x}:queue"]).int();
    assert!(wait::until(|| queued() == 1));
    // It shows its wait after the time at which the other would have done so.
    let verbose = Running::start(&mut run(&server, "x", &format!("{lasting} -v"), "true"));
    assert!(wait::until(|| verbose.stderr().contains("1 before you")), "{}", verbose.stderr());
    assert_eq!(inspections() - before, 1);
    until_counts(&server, "x", (1, 2));
}
