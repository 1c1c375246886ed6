//! The order of the list, its summary, and what is folded.

use super::super::webdriver::{DOWN, ESCAPE, RIGHT};
use super::*;
use crate::support::waiter;

/// The names of the rows in their order.
const NAMES: &str = "[...document.querySelectorAll('#semaphores .name')].map((name) => name.innerText)";

fn until_names(browser: &Browser, expected: &[&str]) {
    browser.until(&format!("JSON.stringify({NAMES}) === JSON.stringify({})", json!(expected)));
}

#[test]
fn what_needs_a_look_comes_first_and_what_is_idle_is_folded() {
    let store = Local::new();
    let set = |arguments: &[&str]| output(&mut permits(&store.url(), arguments)).ends(0);
    for number in 1..=9 {
        set(&["limit", &format!("idle-{number}"), "2"]);
    }
    for name in ["moved", "stopped", "api/a", "api/c"] {
        set(&["limit", name, "4"]);
    }
    set(&["close", "moved", "--reason", "to the other store"]);
    set(&["pause", "stopped", "--reason", "repair", "--for", "1h", "--by", "ann"]);
    let _busy = Holder::start(&store, "busy", "--limit 1");
    let _holder = Holder::start(&store, "api/b", "--limit 1");
    let _waiter = waiter(&store, "api/b", "", (1, 1));
    let Some((serve, browser)) = opened(&store, "") else { return };
    let ranked = ["api/", "moved", "stopped", "busy", "9 idle semaphores"];
    until_names(&browser, &ranked);
    let folds = "return [...document.querySelectorAll('#semaphores td')].filter((cell) => \
        getComputedStyle(cell, '::before').content !== 'none').length";
    assert_eq!(browser.script(folds), 2, "a mark of each group, and no other");
    let notes = "return [...document.querySelectorAll('#semaphores .note')].map((note) => note.innerText)";
    let notes = browser.script(notes);
    assert_eq!(notes[0], "1 of 3 with waiters, first: api/b");
    let closed = notes[1].as_str().unwrap_or_default();
    assert!(closed.starts_with("to the other store, by ") && closed.ends_with(" ago"), "{closed}");
    let paused = notes[2].as_str().unwrap_or_default();
    assert!(paused.starts_with("repair, by ann ") && paused.contains(" ago, for another 5"), "{paused}");
    let tiles =
        "[...document.querySelectorAll('#summary .tile:not([hidden])')].map((tile) => tile.textContent)";
    browser.until(&format!("JSON.stringify({tiles}).includes('2 paused or closed')"));
    let tiles = browser.script(&format!("return {tiles}"));
    assert_eq!(tiles[0], "15 semaphores");
    assert_eq!(tiles[1], "2 busy");
    assert_eq!(tiles[2], "1 with waiters");

    // The threshold of a semaphore decides whether it is counted in the title, and its colour.
    set(&["alert", "api/b", "--wait", "1h"]);
    until_names(&browser, &["moved", "stopped", "api/", "busy", "9 idle semaphores"]);
    browser.until("document.title === 'permits'");
    // The title changes in the background as well.
    browser.script("Object.defineProperty(document, 'hidden', { value: true, configurable: true })");
    set(&["alert", "api/b", "--wait", "1ms"]);
    browser.until("document.title === '(1) permits'");
    browser.script("delete document.hidden");
    let worst = "document.querySelector('#semaphores tr.row').dataset.wait";
    browser.until(&format!("{worst} === '6' && document.title === '(1) permits'"));

    // The parts of the summary limit the list, and the longest wait opens its semaphore.
    browser.click("#summary .stopped");
    until_names(&browser, &["moved", "stopped"]);
    assert_eq!(browser.text("#count"), "2 of 15 semaphores");
    // A view has an address.
    assert_eq!(browser.script("return location.search"), "?search=&part=stopped");
    browser.open(&format!("http://{}/?search=mov&part=stopped", serve.address));
    until_names(&browser, &["moved"]);
    browser.script("location.hash = '#/moved'");
    browser.click("#back");
    browser.press(&format!("/{ESCAPE}"));
    until_names(&browser, &["moved", "stopped"]);
    browser.script("history.back()");
    until_names(&browser, &["moved"]);
    assert_eq!(browser.script("return document.querySelector('#search').value"), "mov");
    browser.open(&format!("http://{}/?part=stopped", serve.address));
    until_names(&browser, &["moved", "stopped"]);
    browser.click("#summary .stopped");
    until_names(&browser, &ranked);
    browser.click("#summary .longest");
    browser.until("document.querySelector('#name').innerText === 'api/b'");
    browser.click("#back");

    // Groups are unfolded by keys and by the pointer, and stay so in this tab.
    browser.press(&format!("{DOWN}{RIGHT}"));
    let unfolded = ["api/", "api/b", "api/a", "api/c", "moved", "stopped", "busy", "9 idle semaphores"];
    until_names(&browser, &unfolded);
    let levels = "return [...document.querySelectorAll('#semaphores tr.row')].slice(0, 2).map((row) => [row.ariaLevel, row.ariaExpanded])";
    assert_eq!(browser.script(levels), json!([["1", "true"], ["2", null]]));
    browser.open(&format!("http://{}/?again", serve.address));
    until_names(&browser, &unfolded);
    browser.click("#semaphores tr.row:last-of-type, #semaphores tr.row:nth-last-child(2)");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 17");

    // Sort by a column, and go back to the rank.
    browser.click("#semaphores th:nth-child(1) button");
    browser.until(&format!("{NAMES}[0] === 'api/' && {NAMES}.includes('busy')"));
    browser.click("#ranked");
    browser.until(&format!("{NAMES}[4] === 'moved'"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_rate_is_that_of_the_time_that_is_known() {
    let store = Local::new();
    let Some((_serve, browser)) = opened(&store, "") else { return };
    // Reads at 0, 3 and 603 s of a semaphore with ten grants in a second.
    let rates = "
        const { Rates } = await import('/page/rate.js');
        const [rates, row] = [new Rates(), (seconds) => ({ name: 'a', grants: 10 * seconds })];
        const began = 1e12;
        rates.read(began);
        return [[0, 3], [3, 603]].map(([from, to]) => {
            rates.add(row(from), row(to), began + from * 1000, began + to * 1000);
            rates.read(began + to * 1000);
            return Math.round(rates.of('a').perSecond);
        });";
    assert_eq!(browser.script(rates), json!([10, 10]), "after the page was opened, and after a gap");
}
