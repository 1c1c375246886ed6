//! Servers that speak TLS, seen by a client that checks certificates.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use permits_testkit::{Certificates, ClientCertificates, Connection, Server, skip};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Sends PING as a client that trusts the authority of `trusted` and has the certificate of `shown`.
fn ping(server: &Server, trusted: &Certificates, shown: Option<&Certificates>) -> io::Result<String> {
    let certificate =
        |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(trusted.authority().text())).expect("it is valid");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(shown) => {
            let key =
                PrivateKeyDer::from_pem_slice(shown.client_key().text().as_bytes()).expect("it is a key");
            config
                .with_client_auth_cert(vec![certificate(shown.client().text())], key)
                .expect("they belong together")
        }
    };
    let name = ServerName::try_from("127.0.0.1").expect("it is an address");
    let client = ClientConnection::new(Arc::new(config), name).expect("the configuration is complete");
    let stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(client, stream);
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[track_caller]
fn assert_served(outcome: io::Result<String>) {
    assert_eq!(outcome.expect("the connection is good"), "+PONG\r\n");
}

#[test]
fn a_server_that_requires_certificates_serves_only_clients_with_one() {
    if skip::without_tls() {
        return;
    }
    let (ours, other) = (Certificates::new(), Certificates::new());
    let server = Server::builder().tls(&ours, ClientCertificates::Required).start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
    assert_served(ping(&server, &ours, Some(&ours)));
    ping(&server, &ours, None).expect_err("it shows no certificate");
    ping(&server, &ours, Some(&other)).expect_err("its certificate is of another authority");

    server.kill();
    server.restart();
    assert_served(ping(&server, &ours, Some(&ours)));
}

#[test]
fn a_server_with_optional_certificates_refuses_wrong_ones_alone() {
    if skip::without_tls() {
        return;
    }
    let (ours, other) = (Certificates::new(), Certificates::new());
    let server = Server::builder().tls(&ours, ClientCertificates::Optional).start();
    assert_served(ping(&server, &ours, Some(&ours)));
    assert_served(ping(&server, &ours, None));
    ping(&server, &ours, Some(&other)).expect_err("its certificate is of another authority");
}

#[test]
fn a_server_that_ignores_certificates_serves_all() {
    if skip::without_tls() {
        return;
    }
    let (ours, other) = (Certificates::new(), Certificates::new());
    let server = Server::builder().tls(&ours, ClientCertificates::Ignored).start();
    assert_served(ping(&server, &ours, None));
    assert_served(ping(&server, &ours, Some(&other)));
}

#[test]
fn a_client_that_trusts_another_authority_turns_away() {
    if skip::without_tls() {
        return;
    }
    let (ours, other) = (Certificates::new(), Certificates::new());
    let server = Server::builder().tls(&ours, ClientCertificates::Ignored).start();
    let error = ping(&server, &other, None).expect_err("the server's certificate is of ours");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[test]
fn without_tls_nothing_is_said_on_its_port() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
    let mut plain = Connection::connect(server.address()).expect("it listens");
    plain.call(&["PING"]).expect_err("it is not TLS");
}

#[test]
fn the_kit_speaks_to_a_server_with_tls_and_a_password() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server =
        Server::builder().tls(&certificates, ClientCertificates::Required).password("secret").start();
    assert_eq!(server.url(), format!("rediss://:secret@127.0.0.1:{}/", server.port()));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn the_files_go_with_the_last_clone() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let file = certificates.client_key().path().to_owned();
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    drop(certificates);
    assert!(file.is_file(), "the server may be restarted");
    server.stop();
    server.restart();
    drop(server);
    assert!(!file.exists());
}
