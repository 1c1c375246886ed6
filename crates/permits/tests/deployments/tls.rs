//! TLS: a private authority, and certificates of clients. Faulty certificates are in `urls`.

use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Certificates, ClientCertificates, Server, skip};

use crate::{connect, granted, in_line};

/// The URL of a server, with the files of these certificates.
fn url(server: &Server, certificates: &Certificates) -> String {
    let files = [
        ("tls_ca", certificates.authority().path()),
        ("tls_cert", certificates.client().path()),
        ("tls_key", certificates.client_key().path()),
    ];
    let files = files.map(|(name, path)| format!("{name}={}", path.display()));
    format!("{}?{}", server.url(), files.join("&"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_authority_and_a_clients_certificate_let_in() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let client = connect(&url(&server, &certificates)).await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().succeeds().await;
    let next = in_line(&semaphore, "next").await;
    permit.release().succeeds().await;
    granted(next).await.release().succeeds().await;
    client.close().succeeds().await;
}

/// The files are replaced before the certificates expire.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_read_again_for_the_next_connection() {
    if skip::without_tls() {
        return;
    }
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let client = connect(&url(&server, &certificates)).await;
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
    server.kill();
    certificates.replace_by(&others);
    server.restart();
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
    client.close().succeeds().await;
}
