//! A headless Chromium, driven over the WebDriver protocol of its chromedriver.
//!
//! The protocol is JSON over HTTP, for which the client of these tests is enough.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use permits_testkit::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Request;
use crate::support::Running;

/// The keys of the protocol.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const LEFT: &str = "\u{e012}";
pub(crate) const RIGHT: &str = "\u{e014}";
pub(crate) const DOWN: &str = "\u{e015}";

/// A browser with one window.
pub(crate) struct Browser {
    address: SocketAddr,
    session: String,
    // Dropped after the session has ended.
    _driver: Running,
    _profile: TempDir,
}

impl Browser {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        // The system chooses a port of IPv6, which may be in use for IPv4: then the driver ends.
        let (driver, port) = (0..5).find_map(|_| driver(profile.path())).expect("a driver with a port");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut arguments =
            vec!["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"];
        if rustix::process::getuid().is_root() {
            // The sandbox refuses root, as in a container. The test loads only its own pages.
            arguments.push("--no-sandbox");
        }
        let data = format!("--user-data-dir={}", profile.path().display());
        arguments.push(&data);
        let options = json!({"goog:chromeOptions": {"args": arguments}});
        let mut browser = Self { address, session: String::new(), _driver: driver, _profile: profile };
        let session = browser.command("", &json!({"capabilities": {"alwaysMatch": options}}));
        browser.session = format!("/{}", session["sessionId"].as_str().expect("a session"));
        browser
    }

    /// Calls a command of the session.
    #[track_caller]
    fn command(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session{}{path}", self.session);
        let request = Request::new(self.address, "POST", &path).header("Content-Type", "application/json");
        let reply = request.header("Host", "localhost").body(&body.to_string()).send();
        let value: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{reply:?}"));
        assert_eq!(reply.status, 200, "{path}: {}", value["value"]["message"]);
        value["value"].clone()
    }

    #[track_caller]
    pub(crate) fn open(&self, url: &str) {
        self.command("/url", &json!({"url": url}));
    }

    /// The result of a function body.
    #[track_caller]
    pub(crate) fn script(&self, script: &str) -> Value {
        self.command("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The text of the first element that matches.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({}).innerText", json!(selector));
        self.script(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression})");
        let reached = wait::until(|| self.script(&script) == true);
        assert!(reached, "{expression}: {}", self.script("return document.body.innerText"));
    }

    /// Presses keys in the element that has the focus.
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        let presses = keys.chars().flat_map(|key| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses.collect::<Vec<Value>>()});
        self.command("/actions", &json!({"actions": [keyboard]}));
    }

    /// Clicks on the first element that matches, as a pointer does: fails if something lies above it.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let found = self.command("/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|found| found.values().next()?.as_str()).expect("an element");
        self.command(&format!("/element/{id}/click"), &json!({}));
    }

    /// Sets the size of the page, and `light` or `dark`.
    #[track_caller]
    pub(crate) fn emulate(&self, width: u32, height: u32, scheme: &str) {
        let devtools = |command: &str, parameters: Value| {
            self.command("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
        };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        devtools("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        devtools("Emulation.setEmulatedMedia", features);
    }

    /// The complaints on the console, such as a violation of the page's policy.
    #[track_caller]
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.command("/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|entry| entry["message"].as_str().map(str::to_owned)).collect()
    }

    /// A picture of the window, as a PNG file.
    #[track_caller]
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let path = format!("/session{}/screenshot", self.session);
        let reply = Request::new(self.address, "GET", &path).header("Host", "localhost").send();
        let value: Value = serde_json::from_str(&reply.body).expect("JSON");
        from_base64(value["value"].as_str().expect("a picture"))
    }
}

/// A driver that has started, and its port. `None` if it got none.
fn driver(home: &Path) -> Option<(Running, u16)> {
    let (started, refused) = ("started successfully on port ", "port not available");
    let driver = Running::start(Command::new("chromedriver").arg("--port=0").env("HOME", home));
    let has = |text: &str| driver.stdout().contains(text);
    assert!(wait::until(|| has(started) || has(refused)), "{}", driver.stdout());
    let said = driver.stdout();
    let digits = said.split(started).nth(1)?.split(|character: char| !character.is_ascii_digit()).next()?;
    Some((driver, digits.parse().expect("a port")))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. The driver alone would leave it running.
        let path = format!("/session{}", self.session);
        let delete = Request::new(self.address, "DELETE", &path).header("Host", "localhost");
        let _ = std::panic::catch_unwind(|| delete.send());
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter(|byte| *byte != b'=') {
        let value = DIGITS.iter().position(|known| *known == digit).expect("a digit");
        bits = bits << 6 | u32::try_from(value).expect("below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}
