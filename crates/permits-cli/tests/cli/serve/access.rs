//! Requests that are refused.

use permits_testkit::{skip, wait};

use crate::support::{CLOSED_PORT, Local, Store as _, assert_own_lines, output, permits};

use super::http::Request;
use super::{PAUSE, Serve, TOKEN, token_file};

/// Paths that need the token, if there is one.
const DATA: [&str; 6] = [
    "/metrics",
    "/api/v1/semaphores",
    "/api/v1/semaphores/x",
    "/api/v1/semaphores/x/history",
    "/api/v1/events",
    "/api/v1/semaphores/%2E%2E",
];

#[test]
fn another_address_than_a_loopback_address_needs_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = output(&mut permits(CLOSED_PORT, ["serve", "--listen", listen]));
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{listen}");
        assert!(refused.stderr.contains("give a token with --token-file PATH"), "{}", refused.stderr);
        assert_own_lines(&refused.stderr);
    }
    let token = token_file(TOKEN, 0o640);
    let mut command = permits(&Local::new().url(), ["serve", "--listen", "0.0.0.0:0"]);
    let serve = Serve::of(command.arg("--token-file").arg(token.path()), None);
    let reached = std::net::SocketAddr::from(([127, 0, 0, 1], serve.address.port()));
    assert_eq!(Request::new(reached, "GET", "/metrics").send().status, 401);
    assert_eq!(Request::new(reached, "GET", "/metrics").bearer(TOKEN).send().status, 200);
}

#[test]
fn a_socket_of_both_families_answers_both() {
    if skip::without_dual_stack() {
        return;
    }
    let (store, token) = (Local::new(), token_file(TOKEN, 0o600));
    let mut command = permits(&store.url(), ["serve", "--listen", "[::]:0", "--allow-write", "--token-file"]);
    let serve = Serve::of(command.arg(token.path()), None);
    let port = serve.address.port();
    for (by, host, status) in [
        ("[::1]", "[::1]", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "[::ffff:127.0.0.1]", 200),
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "127.0.0.2", 421),
        ("127.0.0.1", "[::1]", 421),
    ] {
        let reached = format!("{by}:{port}").parse().expect("an address");
        let request = Request::new(reached, "GET", "/healthz").header("Host", &format!("{host}:{port}"));
        assert_eq!(request.send().status, status, "{host} by {by}");
    }
    let reached = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let pause = Request::new(reached, "POST", "/api/v1/semaphores/x/change").bearer(TOKEN);
    assert_eq!(pause.header("Content-Type", "application/json").body(PAUSE).send().status, 200);
    let is_reported = || serve.stderr().starts_with("permits: 127.0.0.1:");
    assert!(wait::until(is_reported), "{}", serve.stderr());
    // A loopback address in the other notation needs no token.
    let serve = Serve::of(&mut permits(&store.url(), ["serve", "--listen", "[::ffff:127.0.0.1]:0"]), None);
    let reached = std::net::SocketAddr::from(([127, 0, 0, 1], serve.address.port()));
    assert_eq!(Request::new(reached, "GET", "/healthz").send().status, 200);
}

#[test]
fn a_token_file_that_cannot_be_used_is_64() {
    for (token, mode, reason) in [
        (TOKEN, 0o644, "has mode 644, so every user has access: chmod 600 "),
        (TOKEN, 0o602, "has mode 602"),
        ("0123456789abcde", 0o600, "has 15 bytes in place of a token of 16 to 1024"),
        ("", 0o600, "has 0 bytes"),
        (&"x".repeat(1025), 0o600, "has 1025 bytes"),
        ("0123456789 abcdef", 0o600, "printable ASCII without spaces"),
        ("0123456789abcdef\nsecond line", 0o600, "printable ASCII without spaces"),
    ] {
        let file = token_file(token, mode);
        let mut command = permits(CLOSED_PORT, ["serve", "--listen", "127.0.0.1:0", "--token-file"]);
        let refused = output(command.arg(file.path()));
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{reason}");
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
        assert!(token.is_empty() || !refused.stderr.contains(token), "{}", refused.stderr);
    }
    let missing = output(&mut permits(CLOSED_PORT, ["serve", "--token-file", "/nowhere/token"]));
    assert!(missing.code == 64 && missing.stderr.contains("cannot be read"), "{}", missing.stderr);
}

#[test]
fn all_data_needs_the_token() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    for path in DATA {
        for request in [
            serve.get(path),
            serve.get(path).bearer("0123456789abcdef0123456789abcdeF"),
            serve.get(path).bearer(""),
            serve.get(path).header("Authorization", &format!("Basic {TOKEN}")),
            serve.get(&format!("{path}?token={TOKEN}")),
            serve.get(path).header("Cookie", &format!("token={TOKEN}")),
        ] {
            let refused = request.send();
            assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
            assert!(!refused.body.contains(TOKEN), "{refused:?}");
        }
        if path != "/api/v1/events" {
            assert_eq!(serve.get(path).bearer(TOKEN).send().status, 200, "{path}");
        }
    }
    let unsigned = Request::new(serve.address, "POST", "/api/v1/semaphores/x/change");
    assert_eq!(unsigned.header("Content-Type", "application/json").body(PAUSE).send().status, 401);
    for path in ["/", "/healthz", "/page/main.js", "/page/style.css"] {
        assert_eq!(serve.read(path).status, 200, "{path}");
    }
}

#[test]
fn a_foreign_host_or_origin_is_refused() {
    let store = Local::new();
    let serve = Serve::start(&store, &["--host", "Permits.Example.org", "--host", "second.test"]);
    let port = serve.address.port();
    for path in DATA.into_iter().chain(["/", "/healthz", "/nowhere"]) {
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", ""] {
            assert_eq!(serve.get(path).header("Host", host).send().status, 421, "{path} {host}");
        }
    }
    let of_proxy = Request::new(serve.address, "GET", "http://evil.example/metrics");
    assert_eq!(of_proxy.send().status, 421);
    let twice = serve.get("/metrics").header("Host", "localhost").header("Host", "evil.example");
    assert_eq!(twice.send().status, 400);
    for host in ["localhost", "permits.example.org", "PERMITS.example.org:443", "second.test"] {
        assert_eq!(serve.get("/metrics").header("Host", host).send().status, 200, "{host}");
    }
    let refused = serve.get("/metrics").header("Origin", "http://evil.example").send();
    assert!(refused.refusal().0 == 403 && !refused.head.to_ascii_lowercase().contains("access-control"));
    let own = format!("http://127.0.0.1:{port}");
    assert_eq!(serve.get("/metrics").header("Origin", &own).send().status, 200);
    let preflight = Request::new(serve.address, "OPTIONS", "/api/v1/semaphores/x/change");
    let preflight = preflight.header("Origin", &own).header("Access-Control-Request-Method", "POST").send();
    assert!(preflight.status == 403 && !preflight.head.to_ascii_lowercase().contains("access-control"));
}

#[test]
fn every_reply_has_the_headers_of_a_safe_page() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
        base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (path, status, media) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/page/style.css", 200, "text/css; charset=utf-8"),
        ("/page/main.js", 200, "text/javascript; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/api/v1/semaphores", 200, "application/json"),
        ("/api/v1/semaphores/a%0Ab", 400, "application/problem+json"),
        ("/healthz", 200, "text/plain; charset=utf-8"),
        ("/nowhere", 404, "application/problem+json"),
        ("/page/../../etc/passwd", 404, "application/problem+json"),
    ] {
        let reply = serve.read(path);
        assert_eq!((reply.status, reply.header("content-type")), (status, Some(media)), "{path}");
        for (header, value) in [
            ("content-security-policy", policy),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(header), Some(value), "{path}");
        }
    }
    let refused = serve.get("/").header("Host", "evil.example").send();
    assert_eq!(refused.header("content-security-policy"), Some(policy));
}

#[test]
fn the_page_has_no_inline_script_or_style_and_loads_nothing_else() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let page = serve.read("/").body;
    assert!(!page.contains("style=") && !page.contains("<style") && !page.contains(" on"), "{page}");
    for script in page.split("<script").skip(1) {
        let (open, rest) = script.split_once('>').expect("the end of a tag");
        assert!(open.contains("src=\"page/") && rest.starts_with("</script>"), "{script}");
    }
    let mut files = vec![page];
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/page");
    let names = std::fs::read_dir(directory).expect("it is there").flatten();
    let names: Vec<String> = names.map(|file| file.file_name().into_string().expect("text")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names.iter().filter(|name| *name != "index.html") {
        let file = serve.read(&format!("/page/{name}"));
        assert_eq!(file.status, 200, "{name}");
        files.push(file.body);
    }
    for file in files {
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "//cdn"]
        {
            assert!(!file.contains(forbidden), "{forbidden}");
        }
        let links = file.matches("http").count() - file.matches("http-equiv").count();
        let namespace = file.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(links, namespace, "no address of another server: {file}");
    }
}
