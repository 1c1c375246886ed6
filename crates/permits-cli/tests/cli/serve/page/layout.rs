//! The page in each width and scheme, and for the keyboard and screen readers.

use std::collections::BTreeSet;

use permits_testkit::sound::Named as _;

use super::super::webdriver::{DOWN, ESCAPE, TAB};
use super::*;
use crate::support::waiter;

/// A name that would run a script and leave its cell, if it were taken for HTML.
const HOSTILE: &str = r#"<img src=x onerror="window.harmed=1"><script>window.harmed=1</script></table>"#;

#[test]
fn lanes_are_beside_the_labels_and_in_a_list() {
    let store = Local::new();
    let _holder = Holder::start(&store, "api", "--limit 1 --lane tenant-1 --lane-limit 1 --label nightly");
    let _other = Holder::start(&store, "other", "--limit 1");
    let _waiter = waiter(&store, "api", "--lane tenant-7=10 --lane-floor 1", (1, 1));
    let Some((_serve, browser)) = opened(&store, "#/api") else { return };
    browser.until("document.querySelector('#holders tr.row')?.innerText.includes('[tenant-1] nightly')");
    browser.until("document.querySelector('#waiters tr.row')?.innerText.includes('[tenant-7]')");
    browser.emulate(1920, 1080, "light");
    let rows = "[...document.querySelectorAll('#lanes tr.row')].map((row) => [...row.cells].map((cell) => cell.innerText))";
    let expected = json!([["tenant-7", "1", "0", "", "1"], ["tenant-1", "0", "1", "1", ""]]);
    assert_eq!(browser.script(&format!("return {rows}")), expected);
    browser.emulate(360, 800, "light");
    let shown =
        "return [...document.querySelectorAll('#lanes tr.row .columns')].map((part) => part.innerText)";
    assert_eq!(browser.script(shown), json!(["floor 1", "limit 1"]));
    let is_column = "return document.querySelector('#lanes td.bound').offsetParent !== null";
    assert_eq!(browser.script(is_column), false);
    browser.script("location.hash = '#/other'");
    browser.until("document.querySelector('#lanes').hidden");
    assert_eq!(browser.complaints(), [""; 0]);
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
        output(&mut permits(&server.url(), arguments)).ends(0);
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
            browser.script(&format!("location.hash = '#/' + encodeURIComponent({})", json!(name)));
            browser.until("document.querySelector('#facts').innerText.includes('\\nPAUSED by ')");
            check("#name", &[name]);
        };
        open(closed);
        check("#badges .badge", &["PAUSED", "CLOSED", "pinned"]);
        let facts = browser.text("#facts");
        let line = facts
            .lines()
            .find(|line| line.starts_with("CLOSED: moved to the new server, by admin@ops-1 "))
            .unwrap_or_default();
        assert!(line.ends_with(" ago"), "{facts}");
        open(name);
        browser.until("document.querySelector('#waiters tr.row')");
        if width >= 1100 {
            list();
        }
        check("#badges .badge", &["PAUSED", "pinned"]);
        if width > 390 {
            check("#waiters .name", &[web]);
        }
        check("#holders .label", &[label]);
        check("#waiters .label", &[label]);
        let fits = "return [document.documentElement, ...document.querySelectorAll('section, .scroll')].every((element) => element.scrollWidth <= element.clientWidth)";
        assert_eq!(browser.script(fits), true, "there is no horizontal scroll bar at {width} px");
    }
}

#[test]
fn states_differ_in_colour_and_cooling_units_are_not_at_work() {
    let server = Server::start();
    for name in ["mails", "imports", "api"] {
        prepare(&server, name);
    }
    let client = permits::Client::connect(&server.url()).wait().expect("the server is up");
    let api = client.named("api", 4).keep(Duration::from_secs(3_600));
    let _permit = api.acquire_many(2).wait().expect("it is free");
    let cooling = "--limit 3 --weight 2 --at-least 1h";
    output(&mut run(&server, "mails", cooling, "true")).ends(0);
    for arguments in [["limit", "imports", "2"], ["pause", "imports", "-v"]] {
        output(&mut permits(&server.url(), arguments)).ends(0);
    }
    server.command(&["HSET", "permits:{reports}:state", "\tstate", "abc"]);
    let Some((_serve, browser)) = opened(&server, "#/mails") else { return };
    browser.until("document.querySelector('#holders tr.row')");
    assert_eq!(browser.text("#held-now"), "0 of 3, 2 cooling");
    assert_eq!(browser.text("#holders .badge"), "cooling");
    assert!(!browser.text("#holders td.lease").contains("cooling"), "{}", browser.text("#holders"));
    for (name, badge, widths) in
        [("mails", "2 cooling", ["67%", "0%", "0%"]), ("api", "2 may be kept", ["50%", "50%", "0%"])]
    {
        let row = row(name);
        assert_eq!(browser.script(&format!("return {row}.querySelector('.badge').innerText")), badge);
        let rects = format!("return [...{row}.querySelectorAll('rect')]");
        let drawn = browser.script(&format!("{rects}.map((rect) => rect.getAttribute('width'))"));
        assert_eq!(drawn, json!(widths), "{name}: held, not cooling, at work for certain");
        let number = browser.script(&format!("return {row}.querySelector('.usage span').innerText"));
        assert_eq!(number, if name == "mails" { "0 / 3" } else { "2 / 4" });
        let colours = browser.script(&format!("{rects}.map((rect) => getComputedStyle(rect).fill)"));
        let colours: BTreeSet<&str> =
            colours.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(colours.len(), 3, "{name}: {colours:?}");
    }
    browser.script("location.hash = '#/api'");
    browser.until("document.querySelector('#held-now').innerText === '2 of 4, 2 may be kept'");
    assert_eq!(browser.text("#holders .badge"), "may be kept");

    let colours = "return ['bad', 'quiet'].map((state) => getComputedStyle(document.querySelector(`#semaphores .badge.${state}`)).backgroundColor)";
    let colours = browser.script(colours);
    assert_ne!(colours[0], colours[1]);
    browser.press("/");
    browser.press("paused");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    assert_eq!(browser.text("#semaphores .name"), "imports");

    for (hash, expected) in [("nowhere", "No such semaphore"), ("reports", "semaphore ")] {
        browser.script(&format!("location.hash = '#/' + {hash:?}"));
        browser.until(&format!("document.querySelector('#facts').innerText.startsWith({expected:?})"));
        let shown =
            "return [...document.querySelectorAll('#detail > *')].filter((part) => part.offsetParent).length";
        assert_eq!(browser.script(shown), 2, "the name, and the text");
    }
}

#[test]
fn a_hostile_name_does_no_harm_and_keys_reach_everything() {
    let store = Local::new();
    let bidirectional = "abc \u{202e}gnp.exe";
    for name in [HOSTILE, bidirectional, &"wide ".repeat(40), "a/b", "plain"] {
        output(&mut permits(&store.url(), ["limit", "--", name.trim_end(), "3"])).ends(0);
    }
    let _holder = Holder::start(&store, HOSTILE, "");
    let Some((_serve, browser)) = opened(&store, "") else { return };
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 5");
    let images =
        browser.script("return document.querySelectorAll('main img, main script, #semaphores table').length");
    assert_eq!(images, 1, "one table, and nothing that a name has made");
    let escaped = "[...document.querySelectorAll('#semaphores .name')].filter(({ textContent, title }) => \
        textContent === title && textContent === 'abc \\\\u{202e}gnp.exe').length";
    assert_eq!(browser.script(&format!("return {escaped}")), 1, "as the command shows it");
    let fits = "return document.documentElement.scrollWidth <= innerWidth && \
        [...document.querySelectorAll('#semaphores tr.row')].every((row) => row.offsetHeight === 28)";
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
    // The rows are in the order of names: `a/b` comes after the hostile name.
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
    browser.until("document.querySelector('#summary .all b').innerText === '7'");
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        for (name, hash) in [("list", ""), ("detail", "exports")] {
            browser.emulate(1280, 760, scheme);
            browser.script(&format!("location.hash = '#/' + {hash:?}"));
            if !hash.is_empty() {
                browser.until("document.querySelectorAll('#waiters tr.row').length === 3");
                browser.until("document.querySelector('#held-graph path.curve')");
            }
            browser.until("document.querySelector('#message').innerText === ''");
            picture(&browser, PICTURES, &format!("serve-{name}-{scheme}.png"));
        }
        grounds.push(browser.script("return getComputedStyle(document.body).backgroundColor"));
    }
    assert_eq!(grounds, ["rgb(244, 246, 248)", "rgb(15, 19, 24)"]);
}

#[test]
fn the_rules_of_axe_find_nothing() {
    let Some(axe) = std::env::var_os("PERMITS_AXE") else {
        println!("SKIPPED: PERMITS_AXE names no axe.min.js; scripts/more/test-page installs it");
        return;
    };
    let axe = std::fs::read_to_string(axe).expect("it can be read");
    let (server, _serve, browser, _running) = scene_in_a_browser();
    server.command(&["HSET", "permits:{reports}:state", "\tstate", "abc"]);
    browser.until("document.querySelector('#summary .unreadable b').innerText === '1'");
    let violations = "return axe.run().then((found) => found.violations.flatMap((rule) => \
        rule.nodes.map((node) => `${rule.id}: ${node.target} ${node.failureSummary}`)))";
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.emulate(width, 900, scheme);
        for (hash, click) in [("", None), ("exports", None), ("migrate", None), ("exports", Some("#pause"))] {
            browser.script(&format!("location.hash = '#/' + {hash:?}"));
            if !hash.is_empty() {
                browser.until(&format!("document.querySelector('#name').innerText === {hash:?}"));
                browser.until("document.querySelector('#facts').innerText && document.querySelector('#held-graph path.curve')");
            }
            click.into_iter().for_each(|button| browser.click(button));
            browser.script(&axe);
            assert_eq!(browser.script(violations), json!([]), "{hash:?} at {width} px, {scheme}");
            if click.is_some() {
                browser.press(ESCAPE);
            }
        }
    }
}
