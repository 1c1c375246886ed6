//! The page in a real browser. Skipped without `chromium` and `chromedriver`; `scripts/more/test-page`
//! installs them.
//!
//! Set `PERMITS_SCREENSHOTS=DIRECTORY` to write the pictures of the documentation there, and
//! `PERMITS_PAGE_WIDTHS=DIRECTORY` for pictures of each width.

mod graphs;
mod layout;
mod operator;
mod rank;
mod scale;
mod sizes;

use std::thread::sleep;
use std::time::Duration;

use permits_testkit::{Server, skip};
use serde_json::{Value, json};

use super::webdriver::{Browser, ENTER};
use super::{Serve, TOKEN};
use crate::support::{Holder, Local, Running, Store, output, permits, prepare, run, until_counts};

/// The variable with the directory for pictures of the documentation.
const PICTURES: &str = "PERMITS_SCREENSHOTS";

/// The variable with the directory for pictures of each width.
const WIDTHS: &str = "PERMITS_PAGE_WIDTHS";

fn without_browser() -> bool {
    skip::without_program("chromium") || skip::without_program("chromedriver")
}

/// The name of a row that exists.
fn row(name: &str) -> String {
    let name = Value::from(name);
    format!("[...document.querySelectorAll('#semaphores tr.row')].find((row) => row.item.name === {name})")
}

/// The page below this path of a server that changes nothing; `None` if this machine has no browser.
#[track_caller]
fn opened(store: &dyn Store, path: &str) -> Option<(Serve, Browser)> {
    open(Serve::start(store, &[]), path)
}

/// The page with the token of an operator; `None` if this machine has no browser.
#[track_caller]
fn opened_by_operator(store: &dyn Store, path: &str) -> Option<(Serve, Browser)> {
    let (serve, browser) = open(Serve::writable(store), path)?;
    enter_token(&browser);
    Some((serve, browser))
}

#[track_caller]
fn open(serve: Serve, path: &str) -> Option<(Serve, Browser)> {
    if without_browser() {
        return None;
    }
    let browser = Browser::start();
    browser.open(&format!("http://{}/{path}", serve.address));
    Some((serve, browser))
}

/// Gives the page its token.
#[track_caller]
fn enter_token(browser: &Browser) {
    browser.until("document.querySelector('#token-dialog').open");
    browser.press(TOKEN);
    browser.press(ENTER);
    browser.until("document.querySelector('#state').innerText === 'live'");
}

/// Calls `check` with the address of the page of a semaphore that is held, of a server that changes nothing.
fn with_a_holder(check: impl FnOnce(&Browser, &str)) {
    let store = Local::new();
    let _holder = Holder::start(&store, "exports", "--limit 1");
    let serve = Serve::start(&store, &[]);
    check(&Browser::start(), &format!("http://{}/#exports", serve.address));
}

/// The texts among `wanted` that a reader does not see in full: no element that matches has the text, or the
/// text is cut off.
#[track_caller]
fn unseen(browser: &Browser, selector: &str, wanted: &[&str]) -> Vec<String> {
    let script = format!(
        "const isSeen = (element) => {{
            element.scrollIntoView({{ block: 'center' }});
            const box = element.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const isWhole = element.scrollWidth <= element.clientWidth && element.scrollHeight <= element.clientHeight + 1;
            const isInside = (outer) => box.left >= outer.left && box.right <= outer.right + 1 && box.top >= outer.top && box.bottom <= outer.bottom + 1;
            const outer = element.closest('td') ?? document.body;
            return box.width > 0 && isWhole && isInside(outer.getBoundingClientRect()) && document.elementFromPoint(x, y) === element;
        }};
        const elements = [...document.querySelectorAll({})];
        return {}.filter((text) => !elements.some((element) => element.textContent === text && isSeen(element)));",
        json!(selector),
        json!(wanted),
    );
    let unseen = browser.script(&script);
    unseen.as_array().expect("an array").iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The page of a store with the semaphores of [`scene`], open and with its token.
fn scene_in_a_browser() -> (Server, Serve, Browser, Vec<Running>) {
    let server = Server::start();
    let (serve, browser) = opened_by_operator(&server, "").expect("the caller has looked for a browser");
    let running = scene(&server);
    (server, serve, browser, running)
}

/// Semaphores as in a small company.
fn scene(server: &Server) -> Vec<Running> {
    let mut running = Vec::new();
    for (name, limit, holders, waiters) in
        [("exports", 4, 4, 3), ("api/tenant-7", 20, 9, 0), ("nightly", 1, 1, 0), ("licence/cad", 8, 3, 0)]
    {
        prepare(server, name);
        if waiters > 0 && std::env::var_os(PICTURES).is_some() {
            a_busy_minute(server, name);
        }
        for number in 1..=holders + waiters {
            let options = format!("--limit {limit} --holder {name}-web-{number} --label release-12");
            running.push(Running::start(&mut run(server, name, &options, "exec sleep 1000")));
            until_counts(server, name, (number.min(holders), number.saturating_sub(holders)));
        }
    }
    for arguments in [
        &["limit", "migrate", "2"][..],
        &["pause", "migrate", "--by", "admin@ops-1"],
        &["limit", "thumbnails", "12", "--declare"],
        &["limit", "exports", "4", "--by", "admin@ops-1"],
        &["close", "imports", "--reason", "moved to imports-2", "--by", "admin@ops-2"],
    ] {
        output(&mut permits(&server.url(), arguments)).ends(0);
    }
    running
}

/// Jobs that come and go, so that the graphs of the pictures show something.
fn a_busy_minute(server: &Server, name: &str) {
    let mut jobs = Vec::new();
    for number in 0..32 {
        let script = format!("sleep {}", 2 + number * 5 % 7);
        jobs.push(Running::start(&mut run(server, name, "--limit 4", &script)));
        sleep(Duration::from_millis(300 + 500 * (number % 5)));
    }
    jobs.into_iter().for_each(|job| drop(job.finish()));
}

/// Writes a picture, if the caller of the test wants it.
#[track_caller]
fn picture(browser: &Browser, variable: &str, name: &str) {
    if let Some(directory) = std::env::var_os(variable) {
        let picture = browser.screenshot();
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        std::fs::write(std::path::Path::new(&directory).join(name), picture).expect("it can be written");
    }
}
