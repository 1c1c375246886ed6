//! The tokens of `--acquire-tokens`, and the names that they may use.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use permits_testkit::wait;
use serde_json::{Value, json};

use super::super::http::Request;
use super::super::{Serve, TOKEN};
use crate::support::{Local, Store as _, counts, prepare};

const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// The reply to a request with a token, in JSON.
#[track_caller]
fn post(serve: &Serve, token: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::new(serve.address, "POST", path).bearer(token);
    let reply = request.header("Content-Type", "application/json").body(&body.to_string()).send();
    (reply.status, serde_json::from_str(&reply.body).expect("it is JSON"))
}

#[test]
fn a_token_reaches_no_name_and_no_handle_of_others() {
    let store = Local::new();
    let tokens = format!("{TOKEN} exports/\n{OTHER} backup/ exports/shared\n");
    let serve = Serve::acquiring(&store.url(), &tokens, &[]);
    let body = |name: &str| json!({ "acquire": name, "limit": 1, "timeout_ms": 0 });
    for name in ["exports/1", "backup/1", "exports/shared"] {
        prepare(&store, name);
    }
    let (status, permit) = post(&serve, TOKEN, "/v1/acquire", &body("exports/1"));
    assert_eq!(status, 200, "{permit}");
    let handle = json!({ "handle": permit["handle"] });
    let name = "this token may not use the name";
    for (token, path, body) in [
        (OTHER, "/v1/acquire", &body("exports/1")),
        (OTHER, "/v1/acquire", &body("backup")),
        (TOKEN, "/v1/acquire", &body("backup/1")),
        (OTHER, "/v1/renew", &handle),
        (OTHER, "/v1/release", &handle),
    ] {
        let (status, problem) = post(&serve, token, path, body);
        assert_eq!(status, 403, "{path} {body}: {problem}");
        assert!(problem["detail"].as_str().expect("a text").starts_with(name), "{problem}");
    }
    // Forge handles with other names. A name that the token may use does not belong to this permit. Another's
    // name stays another's name in every spelling.
    let handle_of = |name: &str| {
        let (mark, rest) = permit["handle"].as_str().expect("a text").split_once(':').expect("it has parts");
        let rest = rest.split_once(':').expect("it has parts").1;
        json!({ "handle": format!("{mark}:{name}:{rest}") })
    };
    assert_eq!(post(&serve, TOKEN, "/v1/renew", &handle_of("exports/1")).0, 200, "{handle}");
    for (name, expected) in [
        ("backup/1", 409),
        ("exports/shared", 409),
        ("exports%2F1", 403),
        ("%65xports/1", 403),
        ("backup/%2E%2E/exports/1", 409),
        ("backup/1%3Aexports/1", 409),
        ("", 422),
    ] {
        for path in ["/v1/renew", "/v1/release"] {
            let (status, problem) = post(&serve, OTHER, path, &handle_of(name));
            assert_eq!(status, expected, "{path} {name}: {problem}");
        }
    }
    // A token is refused if it is cut, too long, joined with another, or in upper case.
    for shown in
        [&TOKEN[..31], &TOKEN[1..], &format!("{TOKEN}0"), &format!("{TOKEN},{OTHER}"), &OTHER.to_uppercase()]
    {
        assert_eq!(post(&serve, shown, "/v1/release", &handle).0, 401, "{shown}");
    }
    assert_eq!(counts(&store, "exports/1"), (1, 0), "it is held");
    // A name in another letter case is another name, and so is an encoded name.
    for name in ["Exports/1", "exports%2F1", "exports\u{2215}1", " exports/1", "../exports/1"] {
        assert_eq!(post(&serve, TOKEN, "/v1/acquire", &body(name)).0, 403, "{name}");
    }
    for (token, expected) in [(TOKEN, 200), (OTHER, 429)] {
        let (status, reply) = post(&serve, token, "/v1/acquire", &body("exports/shared"));
        assert_eq!(status, expected, "{reply}");
    }
    assert_eq!(post(&serve, TOKEN, "/v1/release", &handle).0, 200);
    // The server has no token for its data, and still the endpoints of permits demand theirs.
    let list = Request::new(serve.address, "GET", "/v1/acquire").send();
    assert_eq!((list.status, list.header("www-authenticate")), (401, Some("Bearer")));
}

#[test]
fn the_names_of_the_command_line_are_those_of_all_tokens() {
    let store = Local::new();
    let serve = Serve::acquiring(&store.url(), TOKEN, &["--allow", "exports/", "--allow", "x"]);
    let status = |name| post(&serve, TOKEN, "/v1/acquire", &json!({ "acquire": name, "limit": 1 })).0;
    prepare(&store, "exports/1");
    assert_eq!((status("exports/1"), status("exports"), status("backup")), (200, 403, 403));
}

#[test]
fn tokens_rotate_while_the_server_runs() {
    let store = Local::new();
    let serve = Serve::acquiring(&store.url(), TOKEN, &[]);
    // The body is not valid, so that a request with a known token changes nothing.
    let status = |token| post(&serve, token, "/v1/renew", &json!({})).0;
    assert_eq!((status(TOKEN), status(OTHER)), (422, 401));
    let write = |text: &str| fs::write(serve.tokens(), text).expect("it can be written");
    write(&format!("# both\n{TOKEN}\n{OTHER} exports/\n"));
    assert!(wait::until(|| status(OTHER) == 422), "{}", serve.stderr());
    assert_eq!(status(TOKEN), 422);
    write(&format!("{OTHER} exports/\n"));
    assert!(wait::until(|| status(TOKEN) == 401), "{}", serve.stderr());
    // A file that is half written keeps nobody out.
    write("half a to");
    assert!(wait::until(|| serve.stderr().contains("the tokens stay as they were") || status(TOKEN) != 401));
    assert_eq!((status(TOKEN), status(OTHER)), (401, 422));
    fs::remove_file(serve.tokens()).expect("it is there");
    assert!(wait::until(|| serve.stderr().contains("cannot be read") || status(TOKEN) != 401));
    assert_eq!((status(TOKEN), status(OTHER)), (401, 422));
    write(TOKEN);
    fs::set_permissions(serve.tokens(), PermissionsExt::from_mode(0o600)).expect("ours");
    assert!(wait::until(|| (status(TOKEN), status(OTHER)) == (422, 401)), "{}", serve.stderr());
    let log = serve.stderr();
    assert!(!log.contains(TOKEN) && !log.contains(OTHER), "{log}");
}
