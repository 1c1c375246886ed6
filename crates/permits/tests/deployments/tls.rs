//! TLS: a private authority, and certificates of clients. Faulty certificates are in `urls`.

use std::time::Duration;

use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Certificates, ClientCertificates, Server, skip};

use crate::{builder, connect, granted, in_line, in_time};

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

/// As `openssl req -x509` makes it: an authority's certificate, which the rules of the web refuse as a
/// server's.
#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_that_the_url_names_is_accepted_if_name_and_time_fit() {
    if skip::without_tls() {
        return;
    }
    let error = async |url: &str| {
        let connecting = builder(url).store_timeout(Duration::ZERO).connect();
        in_time(connecting).await.expect_err("it is refused").to_string()
    };
    for (hosts, until, refused) in [
        (&["localhost", "127.0.0.1"][..], 4000, None),
        (&["localhost", "127.0.0.1"], 2020, Some("has expired")),
        (&["elsewhere"], 4000, Some("for another host")),
    ] {
        let own = Certificates::self_signed(hosts, until);
        let server = Server::builder().tls(&own, ClientCertificates::Ignored).start();
        let with = |authority: &Certificates| {
            format!("{}?tls_ca={}", server.url(), authority.authority().path().display())
        };
        match refused {
            None => {
                let client = connect(&with(&own)).await;
                client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
            }
            Some(refused) => {
                let error = error(&with(&own)).await;
                assert!(error.contains(refused), "{error}");
            }
        }
        let error = error(&with(&Certificates::self_signed(hosts, until))).await;
        let says = if until == 2020 { "has expired" } else { "name this very certificate with ?tls_ca=" };
        assert!(error.contains(says), "a certificate that the URL does not name: {error}");
    }
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
