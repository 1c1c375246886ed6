//! Credentials and certificates that change while clients hold and acquire: no permit is lost, and no caller
//! gets an error. Connections are cut again and again meanwhile, so that each new credential is used.
//! `PERMITS_CASES` multiplies the rotations; `scripts/lab rotations` runs them for more than a minute.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use permits::{Client, ClientBuilder, Credentials, PermitStatus};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{
    Certificates, ClientCertificates, Cluster, Resp, Sentinels, Server, random, skip, wait,
};
use tempfile::TempDir;

use crate::{builder, in_time};

/// The number of rotations of a test, times `PERMITS_CASES`, and the time after each rotation.
const ROTATIONS: u32 = 4;
const EVERY: Duration = Duration::from_millis(400);

/// Some semaphores, which are on several nodes of a cluster.
const NAMES: [&str; 4] = ["exports", "mails", "imports", "api"];

/// A file with a password.
struct Secret(TempDir);

impl Secret {
    fn new(password: &str) -> Self {
        let secret = Self(tempfile::tempdir().expect("there is room"));
        secret.write(password);
        secret
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("password")
    }

    /// As a careful writer does: no reader sees half of it.
    fn write(&self, password: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, format!("{password}\n")).expect("there is room");
        std::fs::rename(new, self.path()).expect("it is ours");
    }
}

/// Holds a permit with a short lease, and acquires and releases others, while `rotate` is called.
async fn bears(builder: ClientBuilder, mut rotate: impl FnMut(u32) + Send + 'static) {
    let rotations = ROTATIONS * random::cases();
    let client = in_time(builder.lease(Duration::from_secs(2)).connect()).succeeds().await;
    let held = client.named("held", 1).acquire().succeeds().await;
    let rotating = Arc::new(AtomicBool::new(true));
    let work = NAMES.map(|name| {
        let (semaphore, rotating) = (client.named(name, 1), rotating.clone());
        tokio::spawn(async move {
            let (mut cycles, mut longest) = (0, Duration::ZERO);
            while rotating.load(Ordering::SeqCst) {
                let began = Instant::now();
                in_time(semaphore.acquire()).succeeds().await.release().succeeds().await;
                (cycles, longest) = (cycles + 1, longest.max(began.elapsed()));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (cycles, longest)
        })
    });
    let rotated = tokio::task::spawn_blocking(move || {
        for number in 1..=rotations {
            rotate(number);
            std::thread::sleep(EVERY);
        }
        rotate
    });
    // The closure has the files, which have to stay until the end.
    let _rotate = rotated.await.expect("it rotates");
    rotating.store(false, Ordering::SeqCst);
    let (mut cycles, mut longest) = (0, Duration::ZERO);
    for work in work {
        let (own, wait) = in_time(work).await.expect("no acquisition fails");
        (cycles, longest) = (cycles + own, longest.max(wait));
    }
    println!("{rotations} rotations, {cycles} cycles, the longest {longest:.0?}");
    assert!(cycles > rotations, "{cycles} cycles in {rotations} rotations");
    assert_eq!(held.status(), PermitStatus::Held);
    held.release().succeeds().await;
    client.close().succeeds().await;
}

/// Ends the connections of all other clients.
fn cut(server: &mut permits_testkit::Connection) {
    for kind in ["pubsub", "normal"] {
        ask(server, &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

fn ask(server: &mut permits_testkit::Connection, command: &[&str]) -> Resp {
    let reply = server.call(command).expect("it replies");
    assert!(!matches!(reply, Resp::Error(_)), "{command:?}: {reply:?}");
    reply
}

/// A connection that stays logged in, whatever happens to the password.
fn operator(server: &Server) -> permits_testkit::Connection {
    server.connect().expect("it is up")
}

fn with_file(url: &str, secret: &Secret) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}password_file={}", secret.path().display())
}

/// The server has one password at a time: the file is written before the server changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_servers_password_is_replaced_under_load() {
    let server = Server::start();
    let mut operator = operator(&server);
    ask(&mut operator, &["CONFIG", "SET", "requirepass", "p0"]);
    let secret = Secret::new("p0");
    let url = with_file(&server.url(), &secret);
    bears(builder(&url), move |number| {
        let password = format!("p{number}");
        secret.write(&password);
        std::thread::sleep(Duration::from_millis(20));
        cut(&mut operator);
        ask(&mut operator, &["CONFIG", "SET", "requirepass", &password]);
        cut(&mut operator);
    })
    .await;
}

/// As a secret is replaced where an operator may: the server has both passwords for some time.
#[tokio::test(flavor = "multi_thread")]
async fn a_users_password_is_replaced_in_a_cluster_under_load() {
    if skip::before(7, 0) {
        return;
    }
    let cluster = Cluster::builder().replicas(0).start();
    let mut operators: Vec<_> = cluster.nodes().iter().map(operator).collect();
    let mut all = move |command: &[&str]| operators.iter_mut().for_each(|each| drop(ask(each, command)));
    all(&["ACL", "SETUSER", "app", "on", ">p0", "~*", "&*", "+@all"]);
    let secret = Secret::new("p0");
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://app@");
    bears(builder(&url).password_file(secret.path()), move |number| {
        let (old, new) = (format!("<p{}", number - 1), format!("p{number}"));
        all(&["ACL", "SETUSER", "app", &format!(">{new}")]);
        secret.write(&new);
        all(&["ACL", "SETUSER", "app", &old]);
        for kind in ["pubsub", "normal"] {
            all(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
    })
    .await;
}

/// A request to a node that nobody lets in waits, as for a node that is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_in_a_file_is_no_error_of_a_request() {
    if skip::before(7, 0) {
        return;
    }
    let cluster = Cluster::builder().replicas(0).start();
    for node in cluster.nodes() {
        ask(&mut operator(node), &["ACL", "SETUSER", "app", "on", ">good", "~*", "&*", "+@all"]);
    }
    let secret = Secret::new("good");
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://app@");
    // A call has a fifth of the lease.
    let builder = builder(&url).lease(Duration::from_secs(2)).password_file(secret.path());
    let client = in_time(builder.connect()).succeeds().await;
    let semaphore = client.named("exports", 1);
    drop(semaphore.acquire().succeeds().await);
    secret.write("wrong");
    cluster.nodes().iter().for_each(|node| cut(&mut operator(node)));
    let refused =
        || cluster.nodes().iter().any(|node| !ask(&mut operator(node), &["ACL", "LOG"]).array().is_empty());
    assert!(wait::until(refused));
    let asking = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    if asking.is_finished() {
        panic!("it must wait, and ended with {:?}", asking.await);
    }
    secret.write("good");
    let permit = in_time(asking).await.expect("it does not panic").expect("it is granted");
    permit.release().succeeds().await;
}

/// The servers' password and the sentinels' are in files of their own.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_of_servers_and_sentinels_are_replaced_under_load() {
    let set = Sentinels::builder().replicas(0).sentinels(1).quorum(1).start();
    let mut server = operator(&set.servers()[0]);
    let mut sentinel = operator(&set.sentinels()[0]);
    let set_users = move |server: &mut permits_testkit::Connection, rules: &[&str]| {
        ask(server, &[&["ACL", "SETUSER"], rules].concat());
    };
    set_users(&mut server, &["app", "on", ">p0", "~*", "&*", "+@all"]);
    set_users(&mut sentinel, &["default", "resetpass", ">s0"]);
    let (own, watching) = (Secret::new("p0"), Secret::new("s0"));
    let url = set.url().replace("redis+sentinel://", "redis+sentinel://app@");
    let url = format!("{url}?sentinel_password_file={}", watching.path().display());
    bears(builder(&with_file(&url, &own)), move |number| {
        for (server, user, name, secret) in
            [(&mut sentinel, "default", "s", &watching), (&mut server, "app", "p", &own)]
        {
            let (old, new) = (format!("<{name}{}", number - 1), format!("{name}{number}"));
            set_users(server, &[user, &format!(">{new}")]);
            secret.write(&new);
            set_users(server, &[user, &old]);
            cut(server);
        }
    })
    .await;
}

/// The authority is replaced, too.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_under_load() {
    if skip::without_tls() || skip::before(7, 0) {
        return;
    }
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates, ClientCertificates::Required).start();
    let mut operator = operator(&server);
    let path = |file: &Path| file.display().to_string();
    let files = [
        ("tls_ca", certificates.authority()),
        ("tls_cert", certificates.client()),
        ("tls_key", certificates.client_key()),
    ];
    let files = files.map(|(name, file)| format!("{name}={}", path(file.path())));
    bears(builder(&format!("{}?{}", server.url(), files.join("&"))), move |_| {
        certificates.replace_by(&Certificates::new());
        // The server reads the file again, although its name is the same.
        ask(&mut operator, &["CONFIG", "SET", "tls-ca-cert-file", &path(certificates.authority().path())]);
        cut(&mut operator);
    })
    .await;
}

/// The number of logins that the server has seen, with any result.
fn logins(server: &mut permits_testkit::Connection) -> u32 {
    let stats = ask(server, &["INFO", "commandstats"]);
    let line = stats.text().lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// The ids of the connections that subscribe.
fn connections(server: &mut permits_testkit::Connection) -> Vec<String> {
    let list = ask(server, &["CLIENT", "LIST", "TYPE", "pubsub"]);
    list.text().lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A client with a user whose token ends.
async fn with_token(server: &Server, token: impl Fn(u32) -> Credentials + Send + Sync + 'static) -> Client {
    let calls = Arc::new(AtomicU32::new(0));
    let provide = move || {
        let token = token(calls.fetch_add(1, Ordering::SeqCst));
        async move { Ok::<_, String>(token) }
    };
    in_time(builder(&server.url()).credentials(provide).connect()).succeeds().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_logs_in_again_before_its_token_ends() {
    let server = Server::start();
    let mut operator = operator(&server);
    ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">t0", ">t1", ">t2", ">t3", "~*", "&*", "+@all"]);
    let client = with_token(&server, |call| {
        Credentials::new(format!("t{}", call.min(3))).user("app").expires_in(Duration::from_millis(400))
    })
    .await;
    let permit = client.named("exports", 1).acquire().succeeds().await;
    let before = connections(&mut operator);
    assert_eq!(before.len(), 1, "{before:?}");
    assert!(wait::until(|| logins(&mut operator) > 4));
    assert_eq!(connections(&mut operator), before, "the connection is the same");
    let user = ask(&mut operator, &["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert!(user.text().contains("user=app"), "{user:?}");
    permit.release().succeeds().await;
}

/// The connection stays, and the next token is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_leaves_the_connection_open() {
    let server = Server::start();
    let mut operator = operator(&server);
    ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">good", "~*", "&*", "+@all"]);
    let client = with_token(&server, |call| {
        let token = if call == 1 { "another" } else { "good" };
        Credentials::new(token).user("app").expires_in(Duration::from_millis(400))
    })
    .await;
    let before = connections(&mut operator);
    assert!(wait::until(|| logins(&mut operator) >= 2));
    let failed = ask(&mut operator, &["ACL", "LOG"]);
    assert_eq!(failed.array().len(), 1, "one login was refused: {failed:?}");
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
    // A refused one, and at least one that succeeds.
    assert!(wait::until(|| logins(&mut operator) >= 4));
    assert_eq!(connections(&mut operator), before, "the connection is the same");
    client.close().succeeds().await;
}

/// Also one with a URL in a file: the server need not close the connection for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_logs_in_again_after_its_file_has_changed() {
    let server = Server::start();
    let mut operator = operator(&server);
    ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">p0", ">p1", "~*", "&*", "+@all"]);
    let secret = Secret::new("p0");
    let url = |password: &str| format!("redis://app{password}@{}/", server.address());
    let whole = Secret::new(&url(":p0"));
    let by_password = in_time(builder(&with_file(&url(""), &secret)).connect()).succeeds().await;
    let by_url = in_time(builder(&format!("file:{}", whole.path().display())).connect()).succeeds().await;
    let before = connections(&mut operator);
    assert_eq!((logins(&mut operator), before.len()), (2, 2));
    secret.write("p1");
    whole.write(&url(":p1"));
    assert!(wait::until(|| logins(&mut operator) == 4));
    // Another user may have the same password.
    ask(&mut operator, &["ACL", "SETUSER", "other", "on", ">p1", "~*", "&*", "+@all"]);
    whole.write(&format!("redis://other:p1@{}/", server.address()));
    assert!(wait::until(|| logins(&mut operator) == 5));
    assert_eq!(connections(&mut operator), before, "the connections are the same");
    for client in [by_password, by_url] {
        client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
    }
}

/// The time of the provider is not counted as the time of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_may_take_longer_than_an_attempt_to_connect() {
    let server = Server::start();
    let mut operator = operator(&server);
    ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all"]);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let slow = builder(&server.url()).store_timeout(Duration::ZERO).credentials(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(Duration::from_millis(5500)).await;
            Ok::<_, String>(Credentials::new("p").user("app"))
        }
    });
    let client = in_time(slow.connect()).succeeds().await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    client.close().succeeds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_is_the_error_of_the_first_connection() {
    let server = Server::start();
    let failing = builder(&server.url())
        .store_timeout(Duration::from_millis(100))
        .credentials(|| async { Err::<Credentials, _>("the issuer is down") });
    let error = in_time(failing.connect()).await.expect_err("there is no token").to_string();
    assert!(error.contains("the provider of credentials: the issuer is down"), "{error}");

    // As every wrong password: at once, whatever the timeout is.
    let mut operator = operator(&server);
    ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">p", "~*", "&*", "+@all"]);
    let secret = Secret::new("s3cr3t");
    let wrong = builder(&format!("redis://app@{}/", server.address())).password_file(secret.path());
    let error = in_time(wrong.connect()).await.expect_err("the password is wrong").to_string();
    let source = format!("it comes from the password file {:?}", secret.path());
    assert!(error.contains("the password is wrong") && error.contains(&source), "{error}");
    assert!(!error.contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn two_passwords_are_refused_and_both_are_named() {
    let secret = Secret::new("s3cr3t");
    let file = secret.path().display().to_string();
    let missing = format!("{file}.missing");
    let provider = "the provider of credentials";
    let whole = Secret::new("redis://:s3cr3t@a/");
    for (url, given, says) in [
        (format!("redis://:hunter@a/?password_file={file}"), None, vec!["a password itself", &file]),
        (format!("redis+unix:///a?pass=hunter&password_file={file}"), None, vec!["a password itself", &file]),
        (
            format!("redis+sentinel://a/s?sentinel_password=hunter&sentinel_password_file={file}"),
            None,
            vec!["a password itself", &file],
        ),
        ("redis+cluster://u:hunter@a,b".to_owned(), Some(true), vec!["a password itself", &file]),
        (format!("redis://a/?password_file={file}"), Some(false), vec![&file, provider]),
        (format!("file:{}", whole.path().display()), Some(true), vec!["a password itself", &file]),
        ("memory:".to_owned(), Some(true), vec!["its store has no passwords", &file]),
        (format!("redis://a/?password_file={missing}"), None, vec![&missing, "cannot be read"]),
        (
            format!("redis+sentinel://a/s?sentinel_password_file={missing}"),
            None,
            vec![&missing, "cannot be read"],
        ),
    ] {
        let builder = Client::builder(&url);
        let builder = match given {
            None => builder,
            Some(true) => builder.password_file(&file),
            Some(false) => builder.credentials(|| async { Ok::<_, String>(Credentials::new("s3cr3t")) }),
        };
        let error = builder.address().expect_err(&url).to_string();
        assert!(says.iter().all(|part| error.contains(part)), "{url}: {error}");
        assert!(!error.contains("hunter") && !error.contains("s3cr3t"), "{url}: {error}");
    }
    let both = Client::builder("redis://a/").password_file(&file);
    let both = both.credentials(|| async { Ok::<_, String>(Credentials::new("p")) });
    let error = both.address().expect_err("there are two").to_string();
    assert!(error.contains(&file) && error.contains(provider), "{error}");
}
