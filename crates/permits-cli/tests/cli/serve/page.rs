//! The page in a real browser. Skipped without `chromium` and `chromedriver`; `scripts/test-page` installs
//! them.
//!
//! With `PERMITS_SCREENSHOTS=DIRECTORY` the pictures of the documentation are written there.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;
use std::thread::sleep;
use std::time::Duration;

use permits_testkit::sound::Named as _;
use permits_testkit::{Server, skip};
use serde_json::{Value, json};

use super::webdriver::{Browser, DOWN, ENTER, ESCAPE, TAB};
use super::{Serve, TOKEN};
use crate::support::{
    Holder, Local, Running, Store, TIMEOUT, output, permits, prepare, run, status, until_counts, waiter,
};

/// A name that would run a script and leave its cell, if it were taken for HTML.
const HOSTILE: &str = r#"<img src=x onerror="window.harmed=1"><script>window.harmed=1</script></table>"#;

/// The variable with the directory for pictures.
const PICTURES: &str = "PERMITS_SCREENSHOTS";

fn without_browser() -> bool {
    skip::without_program("chromium") || skip::without_program("chromedriver")
}

/// The name of a row that exists.
fn row(name: &str) -> String {
    let name = Value::from(name);
    format!("[...document.querySelectorAll('#semaphores tr.row')].find((row) => row.item.name === {name})")
}

/// Gives the page its token.
#[track_caller]
fn enter_token(browser: &Browser) {
    browser.until("document.querySelector('#token-dialog').open");
    browser.press(TOKEN);
    browser.press(ENTER);
    browser.until("document.querySelector('#state').innerText === 'live'");
}

#[test]
fn an_operator_works_with_the_page() {
    if without_browser() {
        return;
    }
    let server = Server::start();
    prepare(&server, "exports");
    let serve = Serve::writable(&server);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", serve.address));
    enter_token(&browser);

    let holder = Holder::start(&server, "exports", "--limit 1 --holder web/1");
    browser.until(&format!("{}?.innerText.includes('1 / 1')", row("exports")));
    let waiter = waiter(&server, "exports", "--holder web/2", (1, 1));
    browser.until(&format!("{}.item.waiting === 1", row("exports")));

    browser.click("#semaphores tr.row");
    browser.until("document.querySelector('#holders tr.row')?.innerText.includes('web/1')");
    browser.until("document.querySelector('#waiters tr.row')?.innerText.includes('web/2')");
    browser.until("document.querySelector('#held-graph path.curve')");
    let described = browser.script("return document.querySelector('#held-graph').getAttribute('aria-label')");
    assert_eq!(described, "Held units over the last 1 min: now 1, at most 1");
    assert!(browser.text("#grants-now").starts_with("1 in the last "), "{}", browser.text("#grants-now"));
    browser.until("document.querySelector('#grants-graph rect.grants')");
    let described =
        browser.script("return document.querySelector('#grants-graph').getAttribute('aria-label')");
    assert!(
        described.as_str().is_some_and(|text| text.starts_with("Grants over the last 1 min: 1, at most "))
    );

    browser.click("#pause");
    browser.until("document.querySelector('#facts').innerText.includes('PAUSED')");
    assert_eq!(status(&server, "exports")["paused"], true);
    browser.until("document.querySelector('#changes tr.row')?.innerText.includes('paused')");
    assert!(browser.text("#changes tr.row").contains("serve by "), "{}", browser.text("#changes"));
    assert_eq!(browser.text("#pause"), "Resume");

    for (list, holder, reason) in [("waiters", "web/2", "too late"), ("holders", "web/1", "it hangs")] {
        browser.click(&format!("#{list} tr.row button"));
        assert!(browser.text("#confirm-title").contains(holder));
        browser.press(ESCAPE);
        browser.until("!document.querySelector('#confirm-dialog').open");
        assert_eq!(status(&server, "exports")[list].as_array().map(Vec::len), Some(1), "it was cancelled");
        browser.click(&format!("#{list} tr.row button"));
        browser.press(reason);
        browser.press(ENTER);
        browser.until(&format!("document.querySelector('#{list} .row') === null"));
    }
    let (waiter, holder) = (waiter.finish(), holder.finish());
    assert!(waiter.code == 75 && waiter.stderr.contains("too late"), "{waiter:?}");
    assert!(holder.code == 76 && holder.stderr.contains("it hangs"), "{holder:?}");

    browser.click("#limit");
    browser.script("document.querySelector('#confirm-input').value = ''");
    browser.press(&format!("5{ENTER}"));
    browser.until("document.querySelector('#facts').innerText.includes('limit 5, pinned')");
    assert_eq!(status(&server, "exports")["limit"], 5);
    assert_eq!(browser.complaints().iter().filter(|line| !line.contains("401")).count(), 0);
}

#[test]
fn lanes_are_beside_the_labels_and_in_a_list() {
    if without_browser() {
        return;
    }
    let store = Local::new();
    let _holder = Holder::start(&store, "api", "--limit 1 --lane tenant-1 --label nightly");
    let _other = Holder::start(&store, "other", "--limit 1");
    let _waiter = waiter(&store, "api", "--lane tenant-7=10", (1, 1));
    let serve = Serve::start(&store, &[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/#api", serve.address));
    browser.until("document.querySelector('#holders tr.row')?.innerText.includes('[tenant-1] nightly')");
    browser.until("document.querySelector('#waiters tr.row')?.innerText.includes('[tenant-7]')");
    let rows = "[...document.querySelectorAll('#lanes tr.row')].map((row) => [...row.cells].map((cell) => cell.innerText))";
    let expected = json!([["tenant-7", "1", "0"], ["tenant-1", "0", "1"]]);
    assert_eq!(browser.script(&format!("return {rows}")), expected);
    browser.script("location.hash = 'other'");
    browser.until("document.querySelector('#lanes').hidden");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Calls `check` with the address of the page of a semaphore that is held, of a server that changes nothing.
fn with_a_holder(check: impl FnOnce(&Browser, &str)) {
    let store = Local::new();
    let _holder = Holder::start(&store, "exports", "--limit 1");
    let serve = Serve::start(&store, &[]);
    check(&Browser::start(), &format!("http://{}/#exports", serve.address));
}

#[test]
fn without_the_right_to_write_there_are_no_buttons() {
    if without_browser() {
        return;
    }
    with_a_holder(|browser, page| {
        browser.open(page);
        browser.until("document.querySelector('#holders tr.row')");
        let visible = "return [...document.querySelectorAll('#actions button, #holders button')].filter((button) => button.offsetParent).length";
        assert_eq!(browser.script(visible), 0);
        assert_eq!(browser.complaints(), [""; 0], "no violation of the policy, and no request that failed");
    });
}

/// The texts among `wanted` that a reader does not see in full in an element that matches: there is none, or
/// it is cut off.
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

#[test]
fn names_labels_and_states_are_visible_in_every_width() {
    if without_browser() {
        return;
    }
    let server = Server::start();
    let (name, label) = ("licence/cad-workstations", "seats of the second floor");
    let closed = "imports/europe-west-1";
    prepare(&server, name);
    let holder = |holder: &str, counts| {
        let arguments = ["run", name, "--limit", "1", "--holder", holder, "--label", label, "sleep", "1000"];
        let running = Running::start(&mut permits(&server.url(), arguments));
        until_counts(&server, name, counts);
        running
    };
    let (agent, web) = ("build-agent-17.example.org:12345/nightly", "vm:2823/WAV-7WfqNyBB.0");
    let _running = [holder(agent, (1, 0)), holder(web, (1, 1))];
    for arguments in [
        &["limit", name, "1"][..],
        &["pause", name],
        &["limit", closed, "1"],
        &["pause", closed],
        &["close", closed, "--reason", "moved to the new server", "--by", "admin@ops-1"],
        &["limit", "api/tenant-1", "3"],
        &["limit", "api/tenant-2", "3"],
    ] {
        assert_eq!(output(&mut permits(&server.url(), arguments)).code, 0);
    }
    server.command(&["HSET", "permits:{reports}:state", "\tstate", "abc"]);
    let serve = Serve::start(&server, &[]);
    let browser = Browser::start();
    for width in [390, 768, 1024, 1280] {
        browser.emulate(width, 800, "light");
        browser.open(&format!("http://{}/?{width}", serve.address));
        let check = |selector: &str, wanted: &[&str]| {
            assert_eq!(unseen(&browser, selector, wanted), [""; 0], "{selector} at {width} px");
        };
        let list = || {
            check("#semaphores .name", &[name, closed, "reports", "api/tenant-1", "api/tenant-2"]);
            check("#semaphores .badge", &["PAUSED", "CLOSED", "pinned", "UNREADABLE"]);
            let column = browser.script("return document.querySelector('#semaphores th').offsetWidth");
            assert!(column.as_u64() >= Some(12 * 16), "{column} at {width} px");
        };
        browser.until("document.querySelectorAll('#semaphores tr.row').length === 5");
        list();
        let open = |name: &str| {
            browser.script(&format!("location.hash = encodeURIComponent({})", json!(name)));
            browser.until("document.querySelector('#facts').innerText.startsWith('PAUSED by ')");
            check("#name", &[name]);
        };
        open(closed);
        check("#badges .badge", &["PAUSED", "CLOSED", "pinned"]);
        let facts = browser.text("#facts");
        let line = facts.lines().find(|line| line.starts_with("CLOSED by admin@ops-1 ")).unwrap_or_default();
        assert!(line.ends_with(" ago: moved to the new server"), "{facts}");
        open(name);
        browser.until("document.querySelector('#waiters tr.row')");
        if width >= 1100 {
            list();
        }
        check("#badges .badge", &["PAUSED", "pinned"]);
        check("#holders .name", &[agent]);
        check("#waiters .name", &[web]);
        check("#holders .label", &[label]);
        check("#waiters .label", &[label]);
        let fits = "return [document.documentElement, ...document.querySelectorAll('section, .scroll')].every((element) => element.scrollWidth <= element.clientWidth)";
        assert_eq!(browser.script(fits), true, "there is no horizontal scroll bar at {width} px");
    }
}

#[test]
fn states_differ_in_colour_and_cooling_units_are_not_at_work() {
    if without_browser() {
        return;
    }
    let server = Server::start();
    for name in ["mails", "imports", "api"] {
        prepare(&server, name);
    }
    let client = permits::Client::connect(&server.url()).wait().expect("the server is up");
    let api = client.named("api", 4).keep(Duration::from_secs(3_600));
    let _permit = api.acquire_many(2).wait().expect("it is free");
    let cooling = "--limit 3 --weight 2 --at-least 1h";
    assert_eq!(output(&mut run(&server, "mails", cooling, "true")).code, 0);
    for arguments in [["limit", "imports", "2"], ["pause", "imports", "-v"]] {
        assert_eq!(output(&mut permits(&server.url(), arguments)).code, 0);
    }
    server.command(&["HSET", "permits:{reports}:state", "\tstate", "abc"]);
    let serve = Serve::start(&server, &[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/#mails", serve.address));
    browser.until("document.querySelector('#holders tr.row')");
    assert_eq!(browser.text("#held-now"), "2 of 3, cooling 2");
    assert_eq!(browser.text("#holders .badge"), "cooling");
    assert!(!browser.text("#holders td.lease").contains("cooling"), "{}", browser.text("#holders"));
    for (name, badge, widths) in
        [("mails", "cooling 2", ["67%", "0%", "0%"]), ("api", "2 may be kept", ["50%", "50%", "0%"])]
    {
        let row = row(name);
        assert_eq!(browser.script(&format!("return {row}.querySelector('.badge').innerText")), badge);
        let rects = format!("return [...{row}.querySelectorAll('rect')]");
        let drawn = browser.script(&format!("{rects}.map((rect) => rect.getAttribute('width'))"));
        assert_eq!(drawn, json!(widths), "{name}: held, not cooling, at work for certain");
        let colours = browser.script(&format!("{rects}.map((rect) => getComputedStyle(rect).fill)"));
        let colours: BTreeSet<&str> =
            colours.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(colours.len(), 3, "{name}: {colours:?}");
    }
    browser.script("location.hash = 'api'");
    browser.until("document.querySelector('#held-now').innerText === '2 of 4, 2 may be kept'");
    assert_eq!(browser.text("#holders .badge"), "may be kept");

    let colours = "return ['bad', 'quiet'].map((state) => getComputedStyle(document.querySelector(`#semaphores .badge.${state}`)).backgroundColor)";
    let colours = browser.script(colours);
    assert_ne!(colours[0], colours[1]);
    browser.press("/");
    browser.press("paused");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    assert_eq!(browser.text("#semaphores .name"), "imports");
    assert_eq!(browser.text("label:has(#busy)"), "busy");

    for (hash, expected) in [("nowhere", "No such semaphore"), ("reports", "semaphore ")] {
        browser.script(&format!("location.hash = {hash:?}"));
        browser.until(&format!("document.querySelector('#facts').innerText.startsWith({expected:?})"));
        let shown =
            "return [...document.querySelectorAll('#detail > *')].filter((part) => part.offsetParent).length";
        assert_eq!(browser.script(shown), 2, "the name, and the text");
    }
}

#[test]
fn a_hostile_name_does_no_harm_and_keys_reach_everything() {
    if without_browser() {
        return;
    }
    let store = Local::new();
    let bidirectional = "abc \u{202e}gnp.exe";
    for name in [HOSTILE, bidirectional, &"wide ".repeat(40), "a/b", "plain"] {
        assert_eq!(output(&mut permits(&store.url(), ["limit", "--", name.trim_end(), "3"])).code, 0);
    }
    let _holder = Holder::start(&store, HOSTILE, "");
    let serve = Serve::start(&store, &[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", serve.address));
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 5");
    let images =
        browser.script("return document.querySelectorAll('main img, main script, #semaphores table').length");
    assert_eq!(images, 1, "one table, and nothing that a name has made");
    let fits = "return document.documentElement.scrollWidth <= innerWidth && \
        [...document.querySelectorAll('#semaphores tr.row')].every((row) => row.offsetHeight === 30)";
    assert_eq!(browser.script(fits), true);

    // Search, open the first match, close, and clear the search, without a pointer.
    browser.press("/");
    browser.press("onerror");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    assert_eq!(browser.text("#count"), "1 of 5 semaphores");
    browser.press(ENTER);
    browser.until("document.querySelector('#holders tr.row')");
    assert_eq!(browser.text("#name"), HOSTILE);
    assert_eq!(browser.script("return document.activeElement.id"), "name");
    browser.press(ESCAPE);
    browser.until("document.querySelector('#detail').hidden");
    browser.press("/");
    browser.press(ESCAPE);
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 5");
    // In the order of names: after the hostile one.
    browser.press(&format!("{DOWN}{DOWN}"));
    let selected = "return document.querySelector('#semaphores tr[aria-selected=true]').item.name";
    assert_eq!(browser.script(selected), "a/b");
    let active = "const id = document.querySelector('#semaphores').getAttribute('aria-activedescendant'); \
        return document.getElementById(id).item.name";
    assert_eq!(browser.script(active), "a/b");
    browser.press(ENTER);
    browser.until("document.querySelector('#name').innerText === 'a/b'");
    browser.until("document.querySelector('#facts').innerText.includes('limit 3')");
    browser.press(TAB);
    assert_eq!(browser.script("return document.activeElement.id"), "back");
    browser.press(ENTER);
    browser.until("document.querySelector('#detail').hidden");
    assert_eq!(browser.script("return location.hash"), "");

    let accessible = "return [...document.querySelectorAll('input, button, [role=img]')].every((element) => \
        element.labels?.length || element.innerText || element.textContent || element.getAttribute('aria-label') || !element.offsetParent)";
    assert_eq!(browser.script(accessible), true, "each control has a name");
    let heads = "return [...document.querySelectorAll('th')].every((head) => head.scope === 'col') && \
        [...document.querySelectorAll('table')].every((table) => table.caption.textContent)";
    assert_eq!(browser.script(heads), true, "each table has heads and a caption");
    assert_eq!(browser.script("return window.harmed ?? null"), Value::Null);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_page_is_light_and_dark() {
    if without_browser() {
        return;
    }
    let server = Server::start();
    let serve = Serve::writable(&server);
    let browser = Browser::start();
    browser.emulate(1280, 760, "light");
    browser.open(&format!("http://{}/", serve.address));
    enter_token(&browser);
    let _running = scene(&server);
    browser.until(&format!("{}?.item.waiting === 3", row("exports")));
    browser.until("document.querySelector('#count').innerText === '7 semaphores'");
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        for (name, hash) in [("list", ""), ("detail", "exports")] {
            browser.emulate(1280, 760, scheme);
            browser.script(&format!("location.hash = {hash:?}"));
            if !hash.is_empty() {
                browser.until("document.querySelectorAll('#waiters tr.row').length === 3");
                browser.until("document.querySelector('#held-graph path.curve')");
            }
            browser.until("document.querySelector('#message').innerText === ''");
            picture(&browser, &format!("serve-{name}-{scheme}.png"));
        }
        grounds.push(browser.script("return getComputedStyle(document.body).backgroundColor"));
    }
    assert_eq!(grounds, ["rgb(246, 247, 249)", "rgb(15, 19, 24)"]);
}

#[test]
fn a_thousand_semaphores_and_ten_thousand_waiters_are_a_few_rows() {
    if without_browser() {
        return;
    }
    let server = Server::start();
    prepare(&server, "huge");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // On a busy machine the calls of so many waiters take longer than the timeout that is the default.
    let client = permits::Client::builder(server.url()).store_timeout(TIMEOUT);
    let client = runtime.block_on(client.connect()).expect("the server is up");
    for number in 0..999 {
        let semaphore = client.named(format!("s{number:03}"), permits::Limit::Stored);
        runtime.block_on(semaphore.set_limit(3)).expect("it can be set");
    }
    let huge = client.named("huge", 1);
    let _permit = runtime.block_on(huge.acquire()).expect("it is free");
    let mut waiters: Vec<_> = (0..9_999).map(|_| Box::pin(huge.acquire())).collect();
    // A request is sent when it is polled for the first time.
    runtime.block_on(poll_fn(|context| {
        assert!(waiters.iter_mut().all(|waiter| waiter.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    }));
    // On a busy machine this takes longer than a browser is waited for.
    while runtime.block_on(huge.inspect_up_to(0)).expect("the server is up").waiting < 9_999 {
        sleep(Duration::from_millis(100));
    }
    let serve = Serve::start(&server, &[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", serve.address));
    browser.until("document.querySelector('#count').innerText === '1000 semaphores'");
    browser.until(&format!("{}?.item.waiting === 9999", row("huge")));
    let rows =
        || browser.script("return document.querySelectorAll('tr.row').length").as_u64().expect("a number");
    assert!(rows() < 80, "{}", rows());
    browser.script("const list = document.querySelector('#semaphores'); list.scrollTop = list.scrollHeight");
    browser.until(&row("s998"));
    assert!(rows() < 80, "{}", rows());
    browser.press("/");
    browser.press("huge");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    browser.press(ENTER);
    browser.until("document.querySelector('#waiters caption').innerText.includes('9999 waiting')");
    assert!(rows() < 160, "{}", rows());
    let took = "const began = performance.now(); const search = document.querySelector('#search'); search.value = ''; \
        search.dispatchEvent(new Event('input')); document.body.offsetHeight; return performance.now() - began";
    let metrics = serve.read("/metrics").body;
    let read = metrics.lines().find(|line| line.starts_with("permits_store_scrape_duration_seconds "));
    eprintln!("a search over 1,000 rows: {} ms; {}", browser.script(took), read.expect("a metric"));
    assert_eq!(browser.complaints(), [""; 0]);
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
        &["pause", "migrate"],
        &["limit", "thumbnails", "12", "--declare"],
        &["limit", "exports", "4", "--by", "admin@ops-1"],
        &["close", "imports", "--reason", "moved to imports-2"],
    ] {
        assert_eq!(output(&mut permits(&server.url(), arguments)).code, 0);
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
fn picture(browser: &Browser, name: &str) {
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"), "{name}");
    if let Some(directory) = std::env::var_os(PICTURES) {
        std::fs::write(std::path::Path::new(&directory).join(name), picture).expect("it can be written");
    }
}
