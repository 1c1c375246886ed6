//! A store that is waited for, and the name of the store on terminals.

use std::fs;

use permits_testkit::{Certificates, ClientCertificates, Server, skip, wait};

use crate::support::{Running, output, permits};
use crate::terminal::Terminal;
use crate::top::view::View;

#[test]
fn a_terminal_shows_the_store_without_its_password() {
    let server = Server::builder().password("t0p-secret").start();
    let mut terminal = Terminal::start(&mut permits(&server.url(), ["list"]));
    terminal.shows(&format!("permits: store redis://***@{}/", server.address()));
    assert_eq!(terminal.finish(), 0);
    let mut view = View::top(&server, &[]);
    view.shows(&format!("permits top: 0 semaphores by need (redis://***@{}/)", server.address()));
    view.quits();
}

#[test]
fn a_variable_that_replaces_the_certificates_of_the_system_by_none_is_the_cause() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(path("empty")).and_then(|()| fs::write(path("damaged"), "x")).expect("it is ours");
    fs::copy(certificates.authority().path(), path("whole")).expect("it is ours");
    let with = |variables: &[(&str, &str)]| {
        let mut command = permits(&server.url(), ["list"]);
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").envs(variables.iter().copied());
        output(&mut command)
    };
    let [missing, damaged, empty, whole] = ["missing", "damaged", "empty", "whole"].map(path);
    for (variable, path, fault) in [
        ("SSL_CERT_FILE", &*missing, format!(": {missing}: No such file or directory (os error 2)")),
        ("SSL_CERT_FILE", &damaged, format!(": {damaged} holds no certificate in PEM form")),
        ("SSL_CERT_FILE", "", " is empty".to_owned()),
        ("SSL_CERT_DIR", &missing, format!(": {missing}: No such file or directory (os error 2)")),
        ("SSL_CERT_DIR", &empty, format!(": {empty} holds no certificate in PEM form")),
    ] {
        let says = format!("{variable}{fault}; this variable replaces the system's certificates");
        let refused = with(&[(variable, path)]);
        assert!(refused.code == 69 && refused.stderr.contains(&says), "{says}: {}", refused.stderr);
    }
    // Another variable may name certificates, but not the one that is missing.
    let other = Certificates::new();
    let other = other.authority().path().display().to_string();
    let refused = with(&[("SSL_CERT_FILE", &other), ("SSL_CERT_DIR", &missing)]);
    let says = format!("?tls_ca=/path/ca.pem (SSL_CERT_DIR: {missing}: No such file");
    assert!(refused.code == 69 && refused.stderr.contains(&says), "{}", refused.stderr);
    let refused = with(&[("SSL_CERT_FILE", &other)]);
    assert!(refused.code == 69 && !refused.stderr.contains("SSL_CERT"), "{}", refused.stderr);
    with(&[("SSL_CERT_FILE", &whole)]).ends(0);
}

#[test]
fn an_unreachable_store_is_waited_for_and_reported() {
    let server = Server::start();
    let (url, address) = (server.url(), server.address());
    server.kill();
    let waiter = |name: &str, options: &[&str]| {
        let options =
            [&["run", name, "--limit", "1", "--recovery", "off"], options, &["echo", "ran"]].concat();
        Running::start(&mut permits(&url, options))
    };
    let in_time = [waiter("x", &["--wait", "45s"]), waiter("y", &["--store-timeout", "45s", "--no-wait"])];
    let too_late = waiter("x", &["--wait", "1200ms"]).finish();
    too_late.prints(69, "");
    assert!(too_late.stderr.contains(&format!("cannot be reached: {address}")), "{}", too_late.stderr);
    for waiter in &in_time {
        let says = [&address.to_string(), "retrying", "within=45s"];
        let said = wait::until(|| says.iter().all(|text| waiter.stderr().contains(text)));
        assert!(said, "{}", waiter.stderr());
    }
    server.restart();
    for waiter in in_time {
        waiter.finish().prints(0, "ran\n");
    }
}
