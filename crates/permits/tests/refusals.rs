//! Bad input and bad surroundings: each is a clear, typed error in bounded time, and leaves nothing in the store.
//!
//! First what is wrong with the arguments, then with the address, then with the server. No error, log line or
//! debug output ever shows a password: wherever one is used here, everything that can be printed is searched.

mod support {
    pub(crate) mod packed;
}

use std::fmt::{Debug, Display, Write as _};
use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use permits::error::InvalidInput;
use permits::store::redis::acl_rules;
use permits::{
    AcquireError, AcquireOptions, AdminError, AdoptError, Client, ClientBuilder, ConnectError, Lost, Permit,
    PermitHandle, PermitStatus, Recovery, ReleaseError, StoreError,
};
use permits_testkit::{Proxy, Resp, Server, skip, wait};

use support::packed;

/// More than anything here should take on a busy machine, and less than forever.
const LIMIT: Duration = Duration::from_secs(20);

/// A password that stands nowhere by chance.
const PASSWORD: &str = "s3cr3t-Xyz";

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it ends in time")
}

/// Settings for a server that was started just now, and remembers all there was.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    in_time(builder(url).connect()).await.expect("the server is up")
}

/// What waiting does not mend: in less time than a store is waited for.
async fn connect_error(url: &str) -> ConnectError {
    in_time(builder(url).connect()).await.expect_err("it cannot connect")
}

/// The error of a single attempt.
async fn attempt_error(url: &str) -> ConnectError {
    in_time(builder(url).store_timeout(Duration::ZERO).connect()).await.expect_err("it cannot connect")
}

#[track_caller]
fn nothing_is_left(server: &Server) {
    assert_eq!(server.command(&["KEYS", "*"]).array(), []);
}

/// Its text, for people and for developers, has no password.
#[track_caller]
fn keeps_the_secret(error: &(impl Display + Debug)) {
    assert_secret(&format!("{error} {error:?} {error:#?}"));
}

#[track_caller]
fn assert_secret(text: &str) {
    assert!(!text.contains(PASSWORD) && !text.contains("s3cr3t"), "the password is shown: {text}");
}

// What is wrong with the arguments.

#[tokio::test]
async fn names_that_are_not_valid_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let long = "é".repeat(100) + "x";
    for (name, what) in [("", "empty"), (&long, "201 bytes"), ("a\nb", "'\\n'"), ("a\u{0}", "'\\0'")] {
        let semaphore = client.semaphore(name, 1);
        let invalid = semaphore.name().expect_err("it is not valid");
        assert!(invalid.to_string().contains(what), "{invalid}");
        assert_eq!(semaphore.acquire().await.map(drop), Err(AcquireError::Invalid(invalid.clone())));
        assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Invalid(invalid.clone())));
        assert_eq!(semaphore.inspect().await, Err(AdminError::Invalid(invalid.clone())));
        assert_eq!(semaphore.set_limit(1).await, Err(AdminError::Invalid(invalid.clone())));
        assert_eq!(semaphore.pause().await, Err(AdminError::Invalid(invalid.clone())));
        assert_eq!(semaphore.revoke("web-3", "").await, Err(AdminError::Invalid(invalid)));
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn holders_and_reasons_that_are_not_valid_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.semaphore("exports", 1);
    for holder in ["", &"x".repeat(201), "web\t3", "\u{7f}"] {
        let error = semaphore.acquire_with(AcquireOptions::new().holder(holder)).await;
        assert!(matches!(error, Err(AcquireError::Invalid(_))), "{holder:?}: {error:?}");
        let error = semaphore.revoke(holder, "").await;
        assert!(matches!(error, Err(AdminError::Invalid(_))), "{holder:?}: {error:?}");
    }
    for reason in [&*"x".repeat(1001), "two\nlines"] {
        let error = semaphore.revoke("web-3", reason).await;
        assert!(matches!(error, Err(AdminError::Invalid(_))), "{reason:?}: {error:?}");
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn limits_and_weights_that_cannot_be_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let none = client.semaphore("exports", 0);
    assert_eq!(none.acquire().await.map(drop), Err(AcquireError::Invalid(InvalidInput::ZeroLimit)));
    assert_eq!(none.set_limit(0).await, Err(AdminError::Invalid(InvalidInput::ZeroLimit)));
    assert_eq!(none.set_limit_if_version(0, 0).await, Err(AdminError::Invalid(InvalidInput::ZeroLimit)));
    let three = client.semaphore("exports", 3);
    let weighing = |weight| three.acquire_with(AcquireOptions::new().weight(weight));
    assert_eq!(weighing(0).await.map(drop), Err(AcquireError::Invalid(InvalidInput::ZeroWeight)));
    for weight in [4, u32::MAX] {
        let error = AcquireError::ExceedsLimit { weight, limit: 3 };
        assert_eq!(weighing(weight).await.map(drop), Err(error));
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn leases_out_of_range_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.semaphore("exports", 1);
    let day = Duration::from_secs(24 * 60 * 60);
    for lease in [Duration::ZERO, Duration::from_millis(99), day + Duration::from_millis(1), Duration::MAX] {
        let error = semaphore.acquire_with(AcquireOptions::new().lease(lease)).await;
        assert!(
            matches!(error, Err(AcquireError::Invalid(InvalidInput::Lease { .. }))),
            "{lease:?}: {error:?}"
        );
        let error = builder(&server.url()).lease(lease).connect().await;
        assert!(
            matches!(error, Err(ConnectError::Invalid(InvalidInput::Lease { .. }))),
            "{lease:?}: {error:?}"
        );
    }
    nothing_is_left(&server);
    for lease in [Duration::from_millis(100), day] {
        drop(builder(&server.url()).lease(lease).connect().await.expect("it is in range"));
    }
}

#[tokio::test]
async fn prefixes_and_labels_that_are_not_valid_are_refused() {
    let server = Server::start();
    for prefix in ["", "{", "a}b", "a b", "é", "a\n", &"x".repeat(65)] {
        for url in [&*server.url(), "memory:"] {
            let error = builder(url).prefix(prefix).connect().await;
            let expected = InvalidInput::Prefix { prefix: prefix.into() };
            assert_eq!(error.map(drop), Err(ConnectError::Invalid(expected)));
        }
    }
    for label in ["", "a\u{0}", &"x".repeat(121)] {
        let error = builder(&server.url()).label(label).connect().await;
        assert!(matches!(error, Err(ConnectError::Invalid(_))), "{label:?}: {error:?}");
    }
    let (prefix, label) = ("x".repeat(64), "x".repeat(120));
    let client = builder(&server.url()).prefix(prefix).label(label).connect().await.expect("both just fit");
    let longest = client.semaphore("x".repeat(200), 1).acquire().await.expect("it just fits");
    longest.release().await.expect("it is held");
}

#[tokio::test]
async fn handles_that_are_none_are_refused() {
    for text in ["", "permits1", "exports", "permits1:a:b:c", "permits9:exports:h:s.1:1:15000:7:0"] {
        let error = text.parse::<PermitHandle>().expect_err("it is no handle");
        assert!(matches!(error, InvalidInput::Handle { .. }), "{text:?}: {error}");
    }
}

#[tokio::test]
async fn handles_of_what_is_not_there_take_nothing() {
    let server = Server::start();
    let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let permit = client.semaphore("exports", 1).acquire().await.expect("it is free");
    let (token, text) =
        (permit.token().to_string(), permit.hand_over().await.expect("it is held").to_string());
    for (part, instead) in [(":exports:", ":imports:"), (&*token, "7")] {
        assert!(text.contains(part), "{text}");
        let handle: PermitHandle = text.replace(part, instead).parse().expect("it looks like one");
        assert_eq!(other.adopt(&handle).await.map(drop), Err(AdoptError::Gone), "{handle}");
    }
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
    let adopted = other.adopt(&text.parse().expect("it is a handle")).await.expect("its lease runs");
    adopted.release().await.expect("it is held");
}

#[tokio::test]
async fn a_line_of_no_length_refuses_who_would_wait() {
    let server = Server::start();
    let client = builder(&server.url()).max_waiters(0).connect().await.expect("the server is up");
    let semaphore = client.semaphore("exports", 1);
    let permit = semaphore.acquire().await.expect("holders do not count");
    assert_eq!(semaphore.acquire().await.map(drop), Err(AcquireError::QueueFull { max: 0 }));
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::NoPermits));
    permit.release().await.expect("it is held");
}

#[tokio::test]
async fn a_required_limit_that_is_not_in_force_leaves_nothing() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let one = client.semaphore("exports", 1);
    one.set_limit(1).await.expect("the server is up");
    let state = packed::reading_state("permits:{exports}:state");
    let before = server.command(&state);
    let error = client.semaphore("exports", 2).require_limit().acquire().await.map(drop);
    let mismatch = AcquireError::LimitMismatch { semaphore: "exports".into(), required: 2, stored: 1 };
    assert_eq!(error, Err(mismatch));
    let version = |state: &Resp| packed::field(state, "limit_version");
    assert_eq!(version(&server.command(&state)), version(&before));
    assert_eq!(server.command(&["KEYS", "*"]).array().len(), 1, "the state that was there");
    let error = client.open("imports").acquire().await.map(drop);
    assert_eq!(error, Err(AcquireError::NoLimit { semaphore: "imports".into() }));
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
}

// What is wrong with the address.

#[tokio::test]
async fn unknown_schemes_are_named_with_those_that_are_known() {
    for scheme in ["http", "postgres", "redis+http", "memcached", "rediss+unix"] {
        let error = connect_error(&format!("{scheme}://user:{PASSWORD}@127.0.0.1:6379/")).await;
        let ConnectError::UnknownScheme { scheme: named, known } = &error else { panic!("{error:?}") };
        assert_eq!(named, scheme);
        assert!(known.contains("redis://") && known.contains("memory:"), "{known}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn a_url_that_is_mistyped_is_not_repeated() {
    for url in [
        "",
        PASSWORD,
        "127.0.0.1:6379",
        "memory",
        "redis",
        "redis:",
        "redis://",
        "redis:///0",
        &format!("{PASSWORD}@127.0.0.1:6379"),
        &format!("redis//:{PASSWORD}@127.0.0.1"),
        &format!("redis://:{PASSWORD}@127.0.0.1:port/"),
        &format!("redis://:{PASSWORD}@127.0.0.1:99999/"),
        &format!("redis://:{PASSWORD}@127.0.0.1/first"),
        &format!("redis://:{PASSWORD}@/0"),
        &format!("redis://:{PASSWORD}%FF@127.0.0.1/"),
        &format!("redis://:{PASSWORD}@[::1/"),
        &format!("redis://:{PASSWORD}@127.0.0.1 :6379/"),
        &format!("redis+unix://?pass={PASSWORD}"),
        &format!("redis://:{PASSWORD}@127.0.0.1/?protocol=resp9"),
    ] {
        let error = connect_error(url).await;
        let about_the_url = matches!(error, ConnectError::Url { .. } | ConnectError::UnknownScheme { .. });
        assert!(about_the_url, "{url:?}: {error:?}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn an_attempt_without_a_server_says_where() {
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound").port();
    let error = attempt_error(&format!("redis://:{PASSWORD}@127.0.0.1:{port}/")).await;
    let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains(&port.to_string()), "it says where: {reason}");
    assert!(reason.contains("refused"), "it says what: {reason}");
    keeps_the_secret(&error);

    let error = attempt_error("redis+unix:///nowhere/at/all.sock").await;
    let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("/nowhere/at/all.sock"), "it says where: {reason}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let urls = ["redis", "rediss"].map(|scheme| format!("{scheme}://:{PASSWORD}@{address}/"));
    let (plain, tls) = tokio::join!(attempt_error(&urls[0]), attempt_error(&urls[1]));
    for error in [plain, tls] {
        let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
        assert!(reason.contains(&address.to_string()), "it says where: {reason}");
        assert!(reason.contains("no connection within"), "it says what: {reason}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let server = Server::builder().unix_socket().password(PASSWORD).start();
    let path = server.url().replace("redis+unix://", "");
    for scheme in ["redis+unix", "valkey+unix", "unix"] {
        let client = connect(&format!("{scheme}://{path}")).await;
        let permit = client.semaphore("exports", 1).acquire().await.expect("it is free");
        permit.release().await.expect("it is held");
        client.close().await.expect("the server is up");
    }
}

#[tokio::test]
async fn the_database_of_the_address_is_used() {
    let server = Server::start();
    let third = connect(&format!("{}3", server.url())).await;
    let permit = third.semaphore("exports", 1).acquire().await.expect("it is free");
    let first = connect(&server.url()).await;
    drop(first.semaphore("exports", 1).try_acquire().await.expect("it is another database"));
    let mut connection = server.connect().expect("the server is up");
    assert_eq!(connection.call(&["SELECT", "3"]).expect("the server is up").text(), "OK");
    let state = connection.call(&packed::reading_state("permits:{exports}:state")).expect("the server is up");
    assert_eq!(packed::field(&state, "held"), Some(1));
    // Its waiters are woken, too: messages know no database.
    let waiter = tokio::spawn({
        let semaphore = third.semaphore("exports", 1);
        async move { semaphore.acquire().await }
    });
    let semaphore = third.semaphore("exports", 1);
    while semaphore.inspect().await.expect("the server is up").waiting == 0 {}
    permit.release().await.expect("it is held");
    let permit = in_time(waiter).await.expect("no panic").expect("it is granted");
    permit.release().await.expect("it is held");

    let error = connect_error(&format!("{}99", server.url())).await;
    assert!(error.to_string().contains("out of range"), "{error}");
}

// What is wrong with the server.

#[tokio::test]
async fn a_wrong_password_or_user_is_denied_and_not_shown() {
    let server = Server::builder().password("another").start();
    let address = server.address();
    assert_eq!(
        server.command(&["ACL", "SETUSER", "exporter", "on", ">another", "~*", "&*", "+@all"]).text(),
        "OK"
    );
    for url in [
        format!("redis://:{PASSWORD}@{address}/"),
        format!("redis://{address}/"),
        format!("redis://exporter:{PASSWORD}@{address}/"),
        format!("redis://nobody:{PASSWORD}@{address}/"),
        format!("redis://exporter@{address}/"),
    ] {
        assert_secret(&format!("{:?}", builder(&url)));
        let error = connect_error(&url).await;
        assert!(matches!(error, ConnectError::Store(StoreError::Denied { .. })), "{url}: {error:?}");
        keeps_the_secret(&error);
    }
    connect(&format!("redis://exporter:another@{address}/")).await.close().await.expect("the server is up");
    assert_eq!(server.command(&["KEYS", "*"]).array(), []);
}

#[tokio::test]
async fn a_password_is_shown_nowhere() {
    let log = Log::begin();
    let server = Server::builder().password(PASSWORD).start();
    let proxy = Proxy::start(server.address());
    let url = format!("redis://:{PASSWORD}@{}/", proxy.address());
    let settings = builder(&url).store_timeout(Duration::from_millis(300));
    assert_secret(&format!("{settings:?} {settings:#?}"));
    let client = in_time(settings.connect()).await.expect("the server is up");
    let semaphore = client.semaphore("exports", 1);
    let permit = semaphore.acquire().await.expect("it is free");
    assert_secret(&format!("{client:?} {semaphore:?} {permit:?}"));
    assert_secret(&format!("{:?}", semaphore.inspect().await));

    proxy.refuse(true);
    keeps_the_secret(&in_time(semaphore.acquire()).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(semaphore.inspect()).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(permit.renew()).await.expect_err("the server cannot be reached"));
    let handle: PermitHandle = "permits1:exports:h:s.1:1:15000:7:0".parse().expect("it is a handle");
    keeps_the_secret(&in_time(client.adopt(&handle)).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(client.close()).await.expect_err("the server cannot be told"));
    assert!(!log.about(&proxy.address(), "connecting again", 1).is_empty());
    log.about(&proxy.address(), "", 0).iter().for_each(|line| assert_secret(line));
}

#[tokio::test]
async fn a_server_that_is_too_old_is_named() {
    let address = fake_server("redis_version:5.0.14\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    let error = connect_error(&format!("redis://{address}/")).await;
    let ConnectError::Store(StoreError::Unsupported { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("5.0.14") && reason.contains("6.2"), "{reason}");
}

/// Something that speaks just enough of the protocol: `info` to INFO, OK to everything else.
fn fake_server(info: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The client goes whenever it has heard enough.
            thread::spawn(move || answer(&stream, info));
        }
    });
    address
}

fn answer(stream: &TcpStream, info: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = move |start: char| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length: usize = line.trim_end().strip_prefix(start)?.parse().ok()?;
        if start == '*' {
            return Some((length, String::new()));
        }
        let mut text = vec![0; length + 2];
        reader.read_exact(&mut text).ok()?;
        Some((length, String::from_utf8_lossy(&text[..length]).into_owned()))
    };
    loop {
        let (parts, _) = line('*')?;
        let parts: Vec<String> = (0..parts).map(|_| Some(line('$')?.1)).collect::<Option<_>>()?;
        let reply = match parts[0].as_str() {
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "+OK\r\n".to_owned(),
        };
        (&*stream).write_all(reply.as_bytes()).ok()?;
    }
}

#[tokio::test]
async fn a_foreign_key_is_an_error_and_stays() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    for part in ["state", "entries", "queue", "leases", "free"] {
        let key = format!("permits:{{{part}}}:{part}");
        for foreign in [["SET", &key, "theirs"], ["SADD", &key, "theirs"]] {
            server.command(&foreign);
            let before = server.command(&["DUMP", &key]);
            let semaphore = client.semaphore(part, 1);
            let error = semaphore.acquire().await.expect_err("a key is not ours");
            let AcquireError::Store(StoreError::WrongType { semaphore: named, .. }) = &error else {
                panic!("{part}: {error:?}");
            };
            assert_eq!(named, part);
            assert!(error.to_string().contains("prefix"), "it says what to do: {error}");
            assert!(
                !error.to_string().contains("script"),
                "where in which script is nothing to tell: {error}"
            );
            let error = semaphore.try_acquire().await.map(drop);
            assert!(
                matches!(error, Err(AcquireError::Store(StoreError::WrongType { .. }))),
                "{part}: {error:?}"
            );
            let error = semaphore.inspect().await;
            assert!(
                matches!(error, Err(AdminError::Store(StoreError::WrongType { .. }))),
                "{part}: {error:?}"
            );
            let error = semaphore.set_limit(2).await;
            assert!(
                matches!(error, Err(AdminError::Store(StoreError::WrongType { .. }))),
                "{part}: {error:?}"
            );
            assert_eq!(server.command(&["DUMP", &key]), before, "{part}");
            assert_eq!(server.command(&["KEYS", "*"]).array().len(), 1, "{part}: nothing else is left");
            server.command(&["DEL", &key]);
            semaphore.acquire().await.expect("all is ours again").release().await.expect("it is held");
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn without_memory_acquiring_fails_and_giving_back_works() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.semaphore("exports", 2);
    let first = semaphore.acquire().await.expect("it is free");
    let second = semaphore.acquire().await.expect("it is free");
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    while semaphore.inspect().await.expect("the server is up").waiting == 0 {}

    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]).text(), "OK");
    // Nor has it the scripts any more, as after a restart.
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]).text(), "OK");
    for name in ["exports", "imports"] {
        let error = client.semaphore(name, 2).acquire().await.expect_err("there is no memory");
        assert!(matches!(error, AcquireError::Store(StoreError::OutOfMemory { .. })), "{error:?}");
        assert!(!error.to_string().contains("script"), "{error}");
        assert!(!error.is_not_now());
    }
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
    let seen = semaphore.inspect().await.expect("looking works");
    assert_eq!((seen.held, seen.waiting), (2, 1), "the refusals changed nothing");

    first.renew().await.expect("renewing works");
    first.release().await.expect("releasing works");
    let third = in_time(waiter).await.expect("no panic").expect("what is freed is handed on");
    assert_eq!(semaphore.revoke(second.holder(), "enough").await, Ok(true));
    in_time(second.lost()).await;
    semaphore.pause().await.expect("pausing works");
    semaphore.resume().await.expect("resuming works");
    third.release().await.expect("releasing works");
    let seen = semaphore.inspect().await.expect("looking works");
    assert_eq!((seen.held, seen.waiting), (0, 0));

    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "0"]).text(), "OK");
    semaphore.acquire().await.expect("there is memory again").release().await.expect("it is held");
}

#[tokio::test]
async fn a_replica_is_an_error_that_says_so() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    assert!(wait::until(LIMIT, || replica.info("master_link_status").as_deref() == Some("up")));
    let timeout = Duration::from_secs(1);
    let client = builder(&replica.url()).store_timeout(timeout).connect().await.expect("it is up");
    let semaphore = client.semaphore("exports", 1);
    let error = in_time(semaphore.acquire()).await.expect_err("it may not write");
    let AcquireError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("read only replica"), "{reason}");
    let error = in_time(semaphore.set_limit(3)).await.expect_err("it may not write");
    assert!(error.to_string().contains("read only replica"), "{error}");
    let connections = replica.info("total_connections_received").expect("servers count");
    let connections: u32 = connections.parse().expect("it is a number");
    assert!(connections < 500, "it is tried again with pauses, and not {connections} times");
    nothing_is_left(&primary);
}

#[tokio::test]
async fn a_user_without_the_channel_is_told_at_connect() {
    let server = Server::start();
    let user = ["ACL", "SETUSER", "exporter", "on", &format!(">{PASSWORD}"), "~*", "resetchannels", "+@all"];
    assert_eq!(server.command(&user).text(), "OK");
    let error = connect_error(&format!("redis://exporter:{PASSWORD}@{}/", server.address())).await;
    let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("SUBSCRIBE") && reason.contains("permits:wake:"), "{reason}");
    keeps_the_secret(&error);
}

#[tokio::test]
async fn a_user_without_a_command_is_denied() {
    let server = Server::start();
    for command in ["info", "subscribe", "evalsha", "time", "hset", "zadd"] {
        let user =
            ["ACL", "SETUSER", "exporter", "on", "nopass", "~*", "&*", "+@all", &format!("-{command}")];
        assert_eq!(server.command(&user).text(), "OK");
        let url = format!("redis://exporter:any@{}/", server.address());
        let error = match in_time(builder(&url).connect()).await {
            Err(ConnectError::Store(error)) => error,
            Err(other) => panic!("{command}: {other:?}"),
            Ok(client) => match in_time(client.semaphore("exports", 1).acquire()).await {
                Err(AcquireError::Store(error)) => error,
                other => panic!("{command}: {other:?}"),
            },
        };
        assert!(matches!(error, StoreError::Denied { .. }), "{command}: {error:?}");
        server.command(&["FLUSHALL"]);
    }
}

/// `ACL SETUSER exporter` with these rules, which it must accept.
fn set_user<'a>(server: &Server, rules: impl IntoIterator<Item = &'a str>) -> String {
    let command: Vec<&str> = ["ACL", "SETUSER", "exporter"].into_iter().chain(rules).collect();
    assert_eq!(server.command(&command).text(), "OK");
    format!("redis://exporter:{PASSWORD}@{}/", server.address())
}

/// The rules of a user that may do what is needed and nothing else.
fn least_rules() -> Vec<String> {
    let rights = acl_rules("permits").expect("it is valid");
    let needed = rights.into_iter().filter(|rights| rights.needed).flat_map(|rights| rights.rules);
    [format!(">{PASSWORD}")].into_iter().chain(needed).collect()
}

#[tokio::test]
async fn a_user_without_one_of_the_least_rights_is_told_which_at_connect() {
    // An older server cannot say what a user may run. That one is denied when it runs it: see above.
    if skip::before(7, 0) {
        return;
    }
    let server = Server::start();
    let needed = least_rules();
    let rules = || needed.iter().map(String::as_str);
    let url = set_user(&server, rules());
    for rule in needed.iter().filter(|rule| rule.starts_with(['+', '~', '&'])) {
        let others = ["reset"].into_iter().chain(rules().filter(|other| other != rule));
        set_user(&server, others);
        let error = connect_error(&url).await;
        let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{rule}: {error:?}") };
        let named = match rule.split_at(1) {
            ("+", command) => reason.to_lowercase().contains(command),
            ("~", keys) => reason.contains("HSET") && reason.contains(&format!(" on keys {keys}")),
            (_, channels) => reason.contains(channels.trim_end_matches('*')),
        };
        assert!(named, "{rule}: {reason}");
        keeps_the_secret(&error);
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn the_least_rights_are_enough_and_another_database_needs_one_more() {
    let server = Server::start();
    let url = set_user(&server, least_rules().iter().map(String::as_str));
    let client = connect(&url).await;
    let permit = in_time(client.semaphore("exports", 1).acquire()).await.expect("it is free");
    permit.release().await.expect("it is held");
    client.close().await.expect("the server is up");

    let error = connect_error(&format!("{url}3")).await;
    let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("select"), "{reason}");
    set_user(&server, ["+select"]);
    connect(&format!("{url}3")).await.close().await.expect("the server is up");
}

#[tokio::test]
async fn a_permit_whose_renewal_cannot_be_sent_is_unsure_and_then_lost() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let lease = Duration::from_secs(2);
    let client = in_time(builder(&proxy.url()).lease(lease).connect()).await.expect("the server is up");
    let semaphore = client.semaphore("exports", 2);
    let permit = semaphore.acquire().await.expect("it is free");
    let again = semaphore.acquire().await.expect("it is free");
    assert_eq!(permit.status(), PermitStatus::Held);
    proxy.refuse(true);
    in_time(reaches(&permit, PermitStatus::Unsure)).await;
    assert!(permit.is_held() && !permit.remaining().is_zero(), "{permit:?}");
    proxy.refuse(false);
    in_time(reaches(&permit, PermitStatus::Held)).await;
    again.release().await.expect("it is held");

    proxy.refuse(true);
    assert_eq!(in_time(permit.lost()).await, Lost::Expired);
    assert_eq!(permit.status(), PermitStatus::Lost);
    proxy.refuse(false);
    assert_eq!(in_time(permit.release()).await, Err(ReleaseError::Lost(Lost::Expired)));
}

async fn reaches(permit: &Permit, standing: PermitStatus) {
    while permit.status() != standing {
        assert_ne!(permit.status(), PermitStatus::Lost, "it was never {standing:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_that_may_evict_is_warned_about() {
    let log = Log::begin();
    let warned = |server: &Server, count| log.about(&server.address(), "evict", count);
    let server = |policy| Server::builder().arg("maxmemory", "100mb").arg("maxmemory-policy", policy).start();
    let (evicting, other) = (server("allkeys-lru"), server("noeviction"));
    drop(connect(&other.url()).await);
    drop(connect(&evicting.url()).await);
    let lines = warned(&evicting, 1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN") && lines[0].contains("allkeys-lru"), "{lines:?}");
    assert!(lines[0].contains("noeviction"), "{lines:?}");
    assert_eq!(warned(&other, 0), [""; 0], "and it was first");
}

/// What the library logs, in this process, from the first [`Log::begin`] on.
struct Log;

static LINES: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

impl Log {
    /// Listens, if nobody does yet.
    fn begin() -> Self {
        // Lost only to another test that does the same.
        let _ = tracing::subscriber::set_global_default(Self);
        Self
    }

    /// The lines that name this server and contain `text`. Events come on a thread of their own, in their order: waits
    /// until there are so many.
    #[track_caller]
    fn about(&self, server: &SocketAddr, text: &str, count: usize) -> Vec<String> {
        let server = server.to_string();
        let mut found = Vec::new();
        wait::until(LIMIT, || {
            let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            let about = |line: &&String| line.contains(&server) && line.contains(text);
            found = lines.iter().filter(about).cloned().collect();
            found.len() >= count
        });
        found
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("permits")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                let _ = write!(self.0, " {field}={value:?}");
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A server that has just started may have forgotten holders. How long it waits for them to come back does not depend
/// on how long a lease the first request asks for, and the reason of a refusal stays right until the end.
#[tokio::test]
async fn a_young_server_says_so_until_it_grants_within_seconds_whatever_the_lease() {
    let server = Server::start();
    let lease = Duration::from_secs(24 * 60 * 60);
    let client = Client::builder(server.url()).lease(lease).connect().await.expect("the server runs");
    let (began, mut refused, mut left) = (std::time::Instant::now(), 0, Duration::from_secs(5));
    let semaphore = client.semaphore("exports", 1);
    let permit = loop {
        match semaphore.try_acquire().await {
            Ok(permit) => break permit,
            Err(AcquireError::Recovering { remaining }) => {
                assert!(remaining <= left, "{remaining:?} after {left:?}");
                let seen = client.open("exports").inspect().await.expect("the server runs");
                assert!(seen.recovering <= remaining, "{seen:?}");
                (refused, left) = (refused + 1, remaining);
            }
            Err(error) => panic!("{error:?} with {left:?} left"),
        }
        tokio::time::sleep(left.min(Duration::from_millis(200))).await;
    };
    assert!(refused > 1, "it was refused {refused} times");
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
    permit.release().await.expect("it is held");
}
