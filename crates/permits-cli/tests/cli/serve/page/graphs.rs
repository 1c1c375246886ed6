//! The graphs: their reading at one time, and the time that they show.

use super::super::webdriver::{ESCAPE, LEFT, RIGHT};
use super::*;
use crate::support::waiter;

#[test]
fn all_graphs_are_read_at_one_time_by_keyboard_and_by_pointer() {
    if without_browser() {
        return;
    }
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let browser = Browser::start();
    let holder = Holder::start(&store, "exports", "--limit 1");
    let waiter = waiter(&store, "exports", "", (1, 1));
    browser.open(&format!("http://{}/#/exports", serve.address));
    browser.until("document.querySelector('#waiting-now').innerText === '1'");
    drop(holder);
    drop(waiter.finish());
    browser.until("document.querySelector('#wait-graph rect.waits')");
    browser.until("document.querySelector('#wait-now').innerText.startsWith('mean ')");
    browser.until("document.querySelector('#held-now').innerText === '0 of 1'");
    assert!(browser.text("#grants-now").starts_with("2 in the last "), "{}", browser.text("#grants-now"));

    browser.script("document.querySelector('#held-graph').focus()");
    browser.press(&format!("{LEFT}{LEFT}{RIGHT}"));
    let read = |graph: &str| browser.text(&format!("#{graph}-now"));
    let reading = read("held");
    // The time is in the form of the system's language.
    let (time, held) = reading.split_once(": ").expect("a time");
    assert!(["0 of 1", "1 of 1"].contains(&held), "{reading}");
    for graph in ["waiting", "grants", "wait"] {
        assert!(read(graph).starts_with(time), "{}", read(graph));
    }
    let value = browser.script("return document.querySelector('#held-graph').getAttribute('aria-valuetext')");
    assert_eq!(value, reading);
    browser.press(ESCAPE);
    assert_eq!(read("held"), "0 of 1");

    let point = |part: f64| {
        format!(
            "const graph = document.querySelector('#grants-graph'); const box = graph.getBoundingClientRect();
            graph.dispatchEvent(new PointerEvent('pointermove', {{ clientX: box.left + box.width * {part} }}));"
        )
    };
    browser.script(&point(0.05));
    assert!(read("grants").ends_with("no data"), "{}", read("grants"));
    browser.script(&point(1.0));
    assert!(read("grants").contains(" in 2 s"), "{}", read("grants"));
    browser.script("document.querySelector('#grants-graph').dispatchEvent(new PointerEvent('pointerleave'))");
    assert_eq!(read("held"), "0 of 1");

    browser.click("#windows button:nth-child(2)");
    browser.until("document.querySelector('#windows [aria-pressed=true]').innerText === '1 h'");
    browser.until("document.querySelector('#held-now').innerText === '0 of 1'");
    assert_eq!(browser.complaints(), [""; 0]);
}
