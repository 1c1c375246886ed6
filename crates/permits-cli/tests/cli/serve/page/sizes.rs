//! Sizes: how many rows fit, that no text is cut without a sign, and pictures of each width.

use permits_testkit::sound::Named as _;

use super::super::webdriver::ESCAPE;
use super::*;
use crate::support::waiter;

/// The number of rows of holders and waiters of which no part is cut or covered.
const WHOLE_ROWS: &str = "[...document.querySelectorAll('#holders tr.row, #waiters tr.row')].filter((row) => {
    const box = row.getBoundingClientRect();
    return [box.top + 1, box.bottom - 1].every((y) => row.contains(document.elementFromPoint(box.left + 20, y)));
}).length";

/// The texts that are cut: without an ellipsis, without a tooltip with the whole text, or although they are
/// numbers.
const CUT: &str = "const isCut = (element) => element.scrollWidth > element.clientWidth && element.clientWidth > 0;
    const texts = [...document.querySelectorAll('main :not(caption), header *')].filter((element) =>
        element.offsetParent && element.textContent && [...element.childNodes].some((node) => node.nodeType === 3));
    return texts.filter(isCut).filter((element) => {
        const style = getComputedStyle(element);
        const titled = element.closest('[title]:not([title=\"\"])');
        const isTold = style.textOverflow === 'ellipsis' && style.overflowX !== 'visible' && titled?.title.includes(element.textContent);
        const isClamped = style.webkitLineClamp !== 'none';
        return (element.closest('.number') && !element.matches('.label')) || !(isTold || isClamped);
    }).map((element) => `${element.className}: ${element.textContent}`)";

#[test]
fn holders_and_waiters_come_first_and_are_many() {
    let server = Server::start();
    prepare(&server, "ledger");
    let _running: Vec<Running> = (1..=14)
        .map(|number| {
            let options = format!(
                "--limit 4 --label nightly-{number} --holder host-{number}.example.org/of-job-{number}"
            );
            let running = Running::start(&mut run(&server, "ledger", &options, "exec sleep 1000"));
            until_counts(&server, "ledger", (number.min(4), number.saturating_sub(4)));
            running
        })
        .collect();
    let Some((_serve, browser)) = opened_by_operator(&server, "#/ledger") else { return };
    for (width, height, least) in
        [(390, 844, 8), (768, 1024, 14), (1024, 768, 11), (1280, 800, 14), (1440, 900, 14), (1920, 1080, 14)]
    {
        browser.emulate(width, height, "light");
        browser.until("document.querySelectorAll('#waiters tr.row').length === 10");
        browser.script("document.querySelector('#body').scrollTop = 0");
        browser.until(&format!("{WHOLE_ROWS} >= {least}"));
        let beside = "return document.querySelector('#past').getBoundingClientRect().left > document.querySelector('#holders').getBoundingClientRect().left + 100";
        assert_eq!(browser.script(beside), width >= 1280, "{width} px");
        if width > 700 {
            let height = browser.script("return document.querySelector('#holders tr.row').offsetHeight");
            assert_eq!(height, 32, "{width} px");
        }
    }
    // The graphs fold, and no part of the page but the scroller below the heading scrolls.
    browser.emulate(1024, 768, "light");
    let scrollers = "return [...document.querySelectorAll('#detail, #detail *')].filter((element) => element.scrollHeight > element.clientHeight + 1 && \
        getComputedStyle(element).overflowY === 'auto').map((element) => element.id)";
    assert_eq!(browser.script(scrollers), json!(["body"]));
    browser.click("#past summary");
    browser.until("!document.querySelector('#past').open");
    // A server with too many semaphores says that it has no graphs of this one.
    browser.script(
        "const real = window.fetch; window.fetch = (path, options) => path.includes('/history') \
            ? Promise.resolve(new Response(JSON.stringify({ at_ms: Date.now(), omitted: true, points: [] }))) : real(path, options);
        document.querySelector('#past').open = true;",
    );
    browser.until("document.querySelector('#unkept').innerText.includes('is not kept')");
    browser.until("document.querySelector('#graphs').offsetParent === null");
}

#[test]
fn no_text_is_cut_without_a_sign_and_no_number_at_all() {
    let server = Server::start();
    let long = format!("{}/{}", "a".repeat(100), "b".repeat(99));
    let right_to_left = "مرحبا/".repeat(16);
    let wide = "日本の輸出".repeat(13);
    let names = [&long, right_to_left.trim_end_matches('/'), &wide];
    let client = permits::Client::connect(&server.url()).wait().expect("the server is up");
    let mut held = Vec::new();
    for name in names {
        prepare(&server, name);
        let semaphore = client.named(name, u32::MAX);
        let short: String = name.chars().take(40).collect();
        let options = permits::AcquireOptions::new().weight(u32::MAX).label(short.clone()).lane(short);
        let options = options.lane_limit(u32::MAX).lane_floor(u32::MAX);
        held.push(semaphore.acquire_with(options).wait().expect("it is free"));
    }
    let _waiter = waiter(&server, names[0], "--holder x", (1, 1));
    output(&mut permits(&server.url(), ["pause", names[1], "--reason", names[2]])).ends(0);
    let Some((_serve, browser)) = opened_by_operator(&server, "") else { return };
    for width in [320, 360, 390, 430, 600, 768, 1024, 1280, 1440, 1920] {
        browser.emulate(width, 900, "light");
        for name in ["", names[0], names[1], names[2]] {
            browser.script(&format!("location.hash = '#/' + encodeURIComponent({})", json!(name)));
            if name.is_empty() {
                browser.until("document.querySelectorAll('#semaphores tr.row').length === 3");
            } else {
                browser.until(&format!("document.querySelector('#name').innerText === {}", json!(name)));
                browser.until("document.querySelector('#holders tr.row')");
            }
            assert_eq!(browser.script(CUT), json!([]), "{name:?} at {width} px");
            let fits = "return document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.script(fits), true, "{name:?} at {width} px");
        }
    }
    drop(held);
}

#[test]
fn a_wall_shows_thirty_rows() {
    if without_browser() {
        return;
    }
    let store = Local::new();
    for number in 0..40 {
        output(&mut permits(&store.url(), ["limit", &format!("s{number:02}"), "3"])).ends(0);
    }
    let serve = Serve::start(&store, &[]);
    let browser = Browser::start();
    browser.emulate(1920, 1080, "dark");
    browser.open(&format!("http://{}/", serve.address));
    browser.until("document.querySelectorAll('#semaphores tr.row').length > 30");
    let rows = "const { bottom } = document.querySelector('#semaphores').getBoundingClientRect(); \
        return [...document.querySelectorAll('#semaphores tr.row')].filter((row) => row.getBoundingClientRect().bottom <= bottom).length";
    assert!(browser.script(rows).as_u64() >= Some(30), "{}", browser.script(rows));
    browser.click("#whole summary");
    browser.until("document.querySelector('#store-held-graph path.curve')");
    assert_eq!(browser.script("return document.title"), "permits");
    let _holder = Holder::start(&store, "s07", "");
    output(&mut permits(&store.url(), ["pause", "s07"])).ends(0);
    let _waiter = waiter(&store, "s07", "--limit 3 --weight 3", (1, 1));
    browser.until("document.title === '(1) permits'");
}

#[test]
fn pictures_of_each_width() {
    if without_browser() || std::env::var_os(WIDTHS).is_none() {
        return;
    }
    let (_server, _serve, browser, _running) = scene_in_a_browser();
    browser.until(&format!("{}?.item.waiting === 3", row("exports")));
    for (width, height) in [(390, 844), (768, 1024), (1024, 768), (1280, 800), (1440, 900), (1920, 1080)] {
        for scheme in ["light", "dark"] {
            browser.emulate(width, height, scheme);
            browser.script("location.hash = ''");
            browser.until("document.querySelector('#semaphores tr.row')?.offsetParent");
            picture(&browser, WIDTHS, &format!("{width}-{scheme}-list.png"));
            browser.script("location.hash = '#/exports'");
            browser.until("document.querySelectorAll('#waiters tr.row').length === 3");
            browser.until("document.querySelector('#held-graph path.curve')");
            picture(&browser, WIDTHS, &format!("{width}-{scheme}-detail.png"));
            browser.click("#holders tr.row button");
            picture(&browser, WIDTHS, &format!("{width}-{scheme}-dialog.png"));
            browser.press(ESCAPE);
        }
    }
}
