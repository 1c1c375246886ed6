//! TLS: a private authority, certificates of clients, and what is wrong with them.

use permits::{Client, ConnectError, StoreError};
use permits_testkit::{Certificates, ClientCertificates, Server};

use crate::{connect, granted, in_line, in_time};

/// The URL of a server, with files of certificates.
fn url(server: &Server, files: &[(&str, &std::path::Path)]) -> String {
    let files: Vec<String> = files.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
    format!("{}?{}", server.url(), files.join("&"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_authority_and_a_clients_certificate_let_in() {
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let files = [
        ("tls_ca", certificates.authority().path()),
        ("tls_cert", certificates.client().path()),
        ("tls_key", certificates.client_key().path()),
    ];
    let client = connect(&url(&server, &files)).await;
    let semaphore = client.semaphore("exports", 1);
    let permit = semaphore.acquire().await.expect("it is free");
    let next = in_line(&semaphore, "next").await;
    permit.release().await.expect("it is held");
    granted(next).await.release().await.expect("it is held");
    client.close().await.expect("it is up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_vouches_for_is_refused() {
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
    connect(&url(&server, &[("tls_ca", certificates.authority().path())])).await;
    let stranger = Certificates::new();
    for url in [server.url(), url(&server, &[("tls_ca", stranger.authority().path())])] {
        let error = in_time(Client::connect(&url)).await.expect_err("it is not trusted");
        let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
        assert!(reason.contains("certificate"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_certificate_that_is_asked_for_is_refused() {
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let url = url(&server, &[("tls_ca", certificates.authority().path())]);
    let error = in_time(Client::connect(&url)).await.expect_err("it shows none");
    assert!(matches!(error, ConnectError::Store(StoreError::Unreachable { .. })), "{error:?}");
}
