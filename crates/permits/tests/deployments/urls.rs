//! URLs that do not fit the store, or that the store refuses: each is an immediate error with a remedy,
//! without a password and without the text of a library's error. The parser's tests have
//! more that are faulty in themselves.

use std::path::Path;
use std::time::{Duration, Instant};

use permits::{Client, ClientBuilder, ConnectError, Recovery, StoreError};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Certificates, ClientCertificates, Cluster, HANGS, HOUR, Sentinels, Server, skip};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A password that no message contains by chance. Its slash must be encoded in a URL.
const PASSWORD: &str = "s3cr3t/X-y-z";
const ENCODED: &str = "s3cr3t%2FX-y-z";

/// Texts that no message may contain: of libraries, of scripts, and passwords.
const INNARDS: [&str; 18] = [
    "InvalidClientConfig",
    "AuthenticationFailed",
    "ResponseError",
    "Other(",
    "OtherError",
    "UnknownIssuer",
    "InvalidContentType",
    "rustls",
    "RespError",
    "Redis URL",
    " - ",
    "os error",
    "user_script",
    "script:",
    "with args",
    "permits:{}",
    "s3cr3t",
    "X-y-z",
];

/// The kinds of errors that no retry can help.
#[derive(Debug, PartialEq)]
enum Kind {
    Url,
    Denied,
    Mismatch,
    Tls,
}

fn kind(error: &ConnectError) -> Option<Kind> {
    match error {
        ConnectError::Url { .. } | ConnectError::UnknownScheme { .. } => Some(Kind::Url),
        ConnectError::Store(StoreError::Denied { .. }) => Some(Kind::Denied),
        ConnectError::Store(StoreError::Mismatch { .. }) => Some(Kind::Mismatch),
        ConnectError::Store(StoreError::Tls { .. }) => Some(Kind::Tls),
        _ => None,
    }
}

/// Connects to each URL, and demands the error beside it.
async fn all_are_reported(table: Vec<(String, Kind, &'static str)>) {
    let cases = table.into_iter().map(|(url, expected, words)| {
        tokio::spawn(async move {
            let began = Instant::now();
            let connecting = Client::builder(&url).store_timeout(HOUR).connect();
            let error = tokio::time::timeout(HANGS, connecting).await;
            let error = error.unwrap_or_else(|_| panic!("{url}: no answer within {HANGS:?}"));
            let error = error.map(drop).expect_err(&url);
            let message = error.to_string();
            eprintln!("{:.1} s  {url}\n       {message}", began.elapsed().as_secs_f64());
            assert_eq!(kind(&error), Some(expected), "{url}: {error:?}");
            assert!(message.contains(words), "{url}: {message:?} lacks {words:?}");
            let printed = format!("{message} {error:?}");
            let found = INNARDS.iter().find(|innards| printed.contains(**innards));
            assert_eq!(found, None, "{url}: {printed}");
        })
    });
    let mut failed = Vec::new();
    for case in cases.collect::<Vec<_>>() {
        failed.extend(case.await.err().map(|error| error.to_string()));
    }
    assert_eq!(failed, [""; 0]);
}

#[tokio::test]
async fn faults_of_a_url_are_reported() {
    let table = [
        ("127.0.0.1:7701", "did you mean redis://127.0.0.1:7701?"),
        ("s3cr3t:6379", "did you mean redis://HOST:PORT?"),
        ("http://h:1", "redis+cluster://"),
        ("redis://:s3cr3t/X-y-z@h", "must be percent-encoded"),
        ("memory:?recover=off", "did you mean recovery?"),
    ];
    all_are_reported(table.map(|(url, words)| (url.to_owned(), Kind::Url, words)).into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_a_server_are_reported() {
    let servers = [Server::start(), Server::builder().password(PASSWORD).start()];
    let [open, closed] = [&servers[0], &servers[1]].map(Server::address);
    let table = [
        (format!("redis://{closed}"), Kind::Denied, "requires a password"),
        (format!("redis://:{ENCODED}x@{closed}"), Kind::Denied, "user or the password is wrong"),
        (format!("redis://exporter:{ENCODED}@{closed}"), Kind::Denied, "user or the password is wrong"),
        (format!("redis://:{ENCODED}@{open}"), Kind::Denied, "has no password: leave it out"),
        (format!("redis://{open}/99"), Kind::Mismatch, "has no database 99 (DB index is out of range)"),
    ];
    all_are_reported(table.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_missing_permissions_are_reported() {
    // An older server cannot test permissions.
    if skip::before(7, 0) {
        return;
    }
    let server = Server::start();
    let password = format!(">{PASSWORD}");
    let user = ["ACL", "SETUSER", "exporter", "on", &password, "resetchannels", "~no:*", "+@all"];
    assert_eq!(server.command(&user).text(), "OK");
    let less = ["ACL", "SETUSER", "lesser", "on", &password, "allkeys", "allchannels", "+@all"];
    let less: Vec<&str> = less.into_iter().chain(["-hset", "-zadd", "-publish"]).collect();
    assert_eq!(server.command(&less).text(), "OK");
    let address = server.address();
    let table = [
        (
            format!("redis://exporter:{ENCODED}@{address}"),
            Kind::Denied,
            "ZSCORE, TYPE, PEXPIREAT, PERSIST on keys permits:{*",
        ),
        (
            format!("redis://lesser:{ENCODED}@{address}"),
            Kind::Denied,
            "may not run PUBLISH on channels permits:wake:*; nor HSET, ZADD on keys permits:{*: allow it",
        ),
    ];
    all_are_reported(table.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_another_kind_is_reported() {
    if skip::before(7, 0) {
        return;
    }
    let server = Server::start();
    let set = Sentinels::builder().replicas(0).sentinels(1).quorum(1).sentinel_password(PASSWORD).start();
    let cluster = Cluster::builder().primaries(1).replicas(0).start();
    let (server, sentinel) = (server.address(), set.sentinels()[0].address());
    let node = cluster.nodes()[0].address();
    let table = [
        (
            format!("redis+sentinel://{server}/service"),
            Kind::Mismatch,
            "it is no sentinel: name the sentinels",
        ),
        (format!("redis+sentinel://{server},127.0.0.1:1/service"), Kind::Mismatch, "it is no sentinel"),
        (format!("redis+sentinel://{sentinel}/service"), Kind::Denied, "requires a password"),
        (
            format!("redis+sentinel://{sentinel}/service?sentinel_password={ENCODED}x"),
            Kind::Denied,
            "user or the password is wrong",
        ),
        (
            format!("redis://:{ENCODED}@{sentinel}"),
            Kind::Mismatch,
            "connect with redis+sentinel://HOST,HOST/SERVICE",
        ),
        (format!("redis+cluster://{server}"), Kind::Mismatch, "connect with redis://"),
        (format!("redis://{node}"), Kind::Mismatch, "connect with redis+cluster://"),
        (format!("redis://{node}/3"), Kind::Mismatch, "has no database 3"),
    ];
    all_are_reported(table.into()).await;
}

/// Another server may come in its place, so this is reported when the store timeout has passed.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_protocol_is_reported() {
    let nested = "*1\r\n".repeat(100_000);
    for reply in ["HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(), nested] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let reply = reply.clone();
                tokio::spawn(async move {
                    let _ = stream.read_u8().await;
                    // The client has closed the connection before it has read all.
                    let _ = stream.write_all(reply.as_bytes()).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                });
            }
        });
        let connecting = Client::builder(&url).store_timeout(Duration::from_secs(1)).connect();
        let error = connecting.await.map(drop).expect_err("it is no Redis server").to_string();
        assert!(error.contains("not in the protocol of Redis: is it a Redis or Valkey server?"), "{error}");
        serving.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_that_does_not_fit_is_reported() {
    if skip::without_tls() {
        return;
    }
    let (certificates, stranger) = (Certificates::new(), Certificates::new());
    let plain = Server::start();
    let server = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
    let strict = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let with = |server: &Server, files: &[(&str, &Path)]| {
        let files: Vec<String> =
            files.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
        format!("rediss://localhost:{}?{}", server.port(), files.join("&"))
    };
    let authority = ("tls_ca", certificates.authority().path());
    let theirs = [("tls_cert", stranger.client().path()), ("tls_key", stranger.client_key().path())];
    let mixed = [("tls_cert", certificates.client().path()), theirs[1]];
    let (plain, port) = (plain.address(), server.port());
    let table = [
        (format!("rediss://{plain}"), Kind::Mismatch, "write redis:// instead of rediss://"),
        (format!("rediss+cluster://{plain}"), Kind::Mismatch, "write redis:// instead of rediss://"),
        (format!("rediss+sentinel://{plain}/service"), Kind::Mismatch, "write redis:// instead of rediss://"),
        (format!("redis://127.0.0.1:{port}"), Kind::Mismatch, "write rediss:// instead of redis://"),
        (
            format!("redis://:{ENCODED}@127.0.0.1:{port}/3"),
            Kind::Mismatch,
            "write rediss:// instead of redis://",
        ),
        (format!("redis+cluster://127.0.0.1:{port}"), Kind::Mismatch, "write rediss:// instead of redis://"),
        (format!("redis+sentinel://127.0.0.1:{port}/service"), Kind::Mismatch, "write rediss:// instead"),
        (
            format!("rediss://127.0.0.1:{port}"),
            Kind::Tls,
            "not trusted: name the authority's certificate with ?tls_ca=",
        ),
        (
            with(&server, &[("tls_ca", stranger.authority().path())]),
            Kind::Tls,
            "authority that is not trusted",
        ),
        (with(&strict, &[authority]), Kind::Tls, "requires a client's certificate: ?tls_cert="),
        (
            with(&strict, &[authority, theirs[0], theirs[1]]),
            Kind::Tls,
            "does not accept the certificate in tls_cert",
        ),
        (
            with(&strict, &[authority, mixed[0], mixed[1]]),
            Kind::Tls,
            "tls_cert and tls_key do not belong together",
        ),
        (with(&strict, &[authority, theirs[0]]), Kind::Url, "tls_cert and tls_key belong together"),
        (
            with(&strict, &[("tls_ca", certificates.client_key().path())]),
            Kind::Url,
            "holds no certificate in PEM form",
        ),
    ];
    all_are_reported(table.into()).await;
}

/// All of 127.0.0.0/8 is this machine.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_reported() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::builder().arg("bind", "127.0.0.1 127.0.0.2");
    let server = server.tls(&certificates, ClientCertificates::Ignored).start();
    let url =
        format!("rediss://127.0.0.2:{}?tls_ca={}", server.port(), certificates.authority().path().display());
    all_are_reported(vec![(url, Kind::Tls, "is for another host than the URL names")]).await;
}

/// A server that was started just now and has no state grants nothing at first, unless recovery is off.
#[tokio::test(flavor = "multi_thread")]
async fn the_recovery_of_the_url_counts_unless_the_program_sets_another() {
    let server = Server::start();
    let options = [("", None, false), ("?recovery=strict", None, false), ("?recovery=off", None, true)];
    let settings =
        [("?recovery=off", Some(Recovery::Strict), false), ("?recovery=strict", Some(Recovery::Off), true)];
    for (number, (option, set, granted)) in options.into_iter().chain(settings).enumerate() {
        let builder = Client::builder(format!("{}{option}", server.url())).lease(Duration::from_secs(86_400));
        let builder = set.into_iter().fold(builder, ClientBuilder::recovery);
        let client = builder.connect().succeeds().await;
        let semaphore = client.named(format!("semaphore-{number}"), 1);
        assert_eq!(semaphore.try_acquire().await.is_ok(), granted, "{option} {set:?}");
    }
    let client = Client::connect("memory:recovery?recovery=off").await.expect("memory takes it, too");
    client.named("exports", 1).try_acquire().succeeds().await.release().succeeds().await;
}
