//! The acts of an operator, and the page without the right to change anything.

use super::super::webdriver::{ESCAPE, TAB};
use super::*;
use crate::support::{status, until_counts, waiter};

#[test]
fn an_operator_works_with_the_page() {
    let server = Server::start();
    prepare(&server, "exports");
    let Some((_serve, browser)) = opened_by_operator(&server, "") else { return };

    let holder = Holder::start(&server, "exports", "--limit 1 --holder web/1 --label nightly");
    browser.until(&format!("{}?.innerText.includes('1 / 1')", row("exports")));
    let waiter = waiter(&server, "exports", "--holder web/2", (1, 1));
    browser.until(&format!("{}.item.waiting === 1", row("exports")));

    browser.click("#semaphores tr.row");
    assert_eq!(browser.script("return location.hash"), "#/exports");
    browser.until("document.querySelector('#holders tr.row')?.innerText.includes('web/1')");
    browser.until("document.querySelector('#waiters tr.row')?.innerText.includes('web/2')");
    browser.until("document.querySelector('#held-graph path.curve')");
    assert!(browser.text("#grants-now").starts_with("1 in the last "), "{}", browser.text("#grants-now"));
    browser.until("document.querySelector('#grants-graph rect.grants')");

    // Each act says what it does, and to how many.
    let act = |button: &str, says: &str| {
        browser.click(button);
        let asked = browser.text("#confirm-dialog");
        assert!(asked.contains(says), "{asked}");
    };
    let is = |expression: &str, expected: Value| {
        browser.until(&format!("!document.querySelector('#confirm-dialog').open && {expression}"));
        let state = status(&server, "exports");
        for (field, value) in expected.as_object().expect("fields") {
            assert_eq!(state[field], *value, "{field}");
        }
    };
    let fact = |text: &str| format!("document.querySelector('#facts').innerText.includes({})", json!(text));
    act("#pause", "1 holder keeps its permit, and 1 waiter waits on");
    browser.press(&format!("429{TAB}soon{ENTER}"));
    assert_eq!(
        browser.script("return document.querySelector('#confirm-time').validationMessage"),
        "A time such as 30s, 5m or 2h"
    );
    browser.script("document.querySelector('#confirm-time').value = ''");
    browser.press(&format!("1h0m{ENTER}"));
    is(&fact("PAUSED: 429, by serve by "), json!({ "paused": true, "pause_reason": "429" }));
    assert!(browser.text("#facts").contains(", for another 59 m "), "{}", browser.text("#facts"));
    browser.until("document.querySelector('#changes tr.row')?.innerText.includes('paused')");
    browser.until(
        "document.querySelector('#held-graph path.mark title')?.textContent.startsWith('paused for ')",
    );
    assert!(browser.text("#changes tr.row").contains("serve by "), "{}", browser.text("#changes"));
    act("#resume", "1 waiter");
    browser.press(ENTER);
    is(&format!("!{}", fact("PAUSED")), json!({ "paused": false }));
    assert_eq!(browser.script("return document.querySelector('#delete').disabled"), true);

    for (list, holder, says, reason) in [
        ("waiters", "web/2", "waited for ", "too late"),
        ("holders", "web/1", "held slot 0 for ", "it hangs"),
    ] {
        browser.click(&format!("#{list} tr.row button"));
        let asked = browser.text("#confirm-dialog");
        assert!(asked.contains(&format!("{holder} has {says}")), "{asked}");
        assert_eq!(asked.contains("“nightly”"), list == "holders", "{asked}");
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

    act("#close_line", "0 waiters and all new requests are refused");
    browser.press(&format!("moved to exports-2{ENTER}"));
    is(&fact("CLOSED: moved to exports-2, by serve by "), json!({ "closed": "moved to exports-2" }));
    act("#open_line", "granted or wait again");
    browser.press(ENTER);
    is(&format!("!{}", fact("CLOSED")), json!({ "closed": null }));

    act("#set_limit", "Setting it pins it");
    browser.script("document.querySelector('#confirm-limit').value = ''");
    browser.press(&format!("5{ENTER}"));
    assert_eq!(status(&server, "exports")["limit"], 1, "a mutex stays one unless that is confirmed");
    browser.click("#confirm-several");
    browser.press(ENTER);
    is(&fact("limit 5, pinned"), json!({ "limit": 5 }));
    act("#unpin", "It stays 5");
    browser.press(ENTER);
    is(&format!("!{}", fact("pinned")), json!({ "pinned": false }));
    act("#set_alert", "needs a look beyond these");
    browser.press(&format!("30s{TAB}100{ENTER}"));
    is(
        &fact("alert beyond a wait of 30 s or 100 waiting"),
        json!({ "alert": { "wait_ms": 30_000, "waiting": 100 } }),
    );
    act("#set_alert", "needs a look beyond these");
    assert_eq!(browser.script("return document.querySelector('#confirm-wait').value"), "30s");
    browser.script("document.querySelector('#confirm-wait').value = document.querySelector('#confirm-waiting').value = ''");
    browser.press(ENTER);
    is(&format!("!{}", fact("alert")), json!({ "alert": { "wait_ms": null, "waiting": null } }));
    act("#set_lane", "Limit and floor are set together");
    browser.press(&format!("tenant-7{TAB}3{TAB}1{ENTER}"));
    let lane = json!({ "lane": "tenant-7", "waiting": 0, "held": 0, "limit": 3, "floor": 1, "pinned": true });
    let shown = "document.querySelector('#lanes tr.row')?.innerText.includes('pinned')";
    is(shown, json!({ "lanes": [lane] }));
    act("#set_lane", "With neither, they count again");
    browser.press(&format!("tenant-7{ENTER}"));
    is(&format!("!{shown}"), json!({ "lanes": [] }));
    act("#delete", "forgets its limit");
    browser.press(ENTER);
    browser.until(&fact("No such semaphore"));
    assert_eq!(status(&server, "exports")["limit"], Value::Null);
    assert_eq!(browser.complaints().iter().filter(|line| !line.contains("401")).count(), 0);
}

#[test]
fn a_group_is_changed_after_one_question() {
    let store = Local::new();
    for number in 1..=5 {
        output(&mut permits(&store.url(), ["limit", &format!("api/{number}"), "2"])).ends(0);
    }
    let holder = Holder::start(&store, "api/1", "");
    let Some((_serve, browser)) = opened_by_operator(&store, "") else { return };
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    let choose = |change: &str| {
        browser.click("#semaphores .who > button");
        assert_eq!(browser.text("#confirm-text"), "“api/1”, “api/2”, “api/3” and 2 more");
        browser.script(&format!("document.querySelector('#confirm-act').value = {change:?}"));
        browser.click("#confirm-done");
        browser.until("document.querySelector('#confirm-act') === null && document.querySelector('#confirm-dialog').open");
        browser.text("#confirm-dialog")
    };
    let asked = choose("pause");
    assert!(asked.contains("Pause 5 semaphores?") && asked.contains("“api/1”"), "{asked}");
    browser.press(&format!("deploy{ENTER}"));
    browser.until("document.querySelector('#message').innerText === '5 semaphores: Pause: done'");
    browser.until("document.querySelector('#semaphores .note').innerText.includes('5 paused or closed')");
    for number in 1..=5 {
        assert_eq!(status(&store, &format!("api/{number}"))["pause_reason"], "deploy", "{number}");
    }
    let asked = choose("revoke");
    assert!(asked.contains("1 unit held"), "{asked}");
    let danger = "return document.querySelector('#confirm-done').classList.contains('danger')";
    assert_eq!(browser.script(danger), true);
    // More than are listed at once.
    let more = [(); 4].map(|()| Running::start(&mut run(&store, "api/1", "--weight 2", "true")));
    until_counts(&store, "api/1", (1, 4));
    browser.script(
        "const whole = window.fetch;
        window.fetch = async (path, options) => {
            const reply = await whole(path, options);
            if (!path.startsWith('api/v1/semaphores/') || /(history|change)/.test(path)) return reply;
            const status = await reply.json();
            status.waiters.splice(2);
            return new Response(JSON.stringify(status));
        };",
    );
    browser.press(&format!("gone{ENTER}"));
    browser.until("document.querySelector('#message').innerText === '5 semaphores: Revoke all: done'");
    let holder = holder.finish();
    assert!(holder.code == 76 && holder.stderr.contains("gone"), "{holder:?}");
    for waiter in more {
        let waiter = waiter.finish();
        assert!(waiter.code == 75 && waiter.stderr.contains("gone"), "{waiter:?}");
    }
}

#[test]
fn a_waiter_that_was_granted_while_the_question_was_open_keeps_its_permit() {
    let store = Local::new();
    let first = Holder::start(&store, "exports", "--limit 1");
    let second = Running::start(&mut run(&store, "exports", "--holder web/2", "exec sleep 1000"));
    until_counts(&store, "exports", (1, 1));
    let Some((_serve, browser)) = opened_by_operator(&store, "#/exports") else { return };
    browser.until("document.querySelector('#waiters tr.row')");
    browser.click("#waiters tr.row button");
    first.release();
    until_counts(&store, "exports", (1, 0));
    browser.press(ENTER);
    browser.until("document.querySelector('#message').innerText.includes('holds a permit now')");
    until_counts(&store, "exports", (1, 0));
    drop(second);
}

#[test]
fn a_grant_that_cools_is_revoked_without_the_permit_of_the_same_holder() {
    let store = Local::new();
    output(&mut run(&store, "exports", "--limit 2 --holder web/1 --at-least 1h", "true")).ends(0);
    let holder = Holder::start(&store, "exports", "--holder web/1");
    let Some((_serve, browser)) = opened_by_operator(&store, "#/exports") else { return };
    browser.until("document.querySelectorAll('#holders tr.row').length === 2");
    assert!(browser.text("#holders tr.row ~ tr.row").contains("cooling"));
    browser.click("#holders tr.row ~ tr.row button");
    browser.press(ENTER);
    browser.until("document.querySelectorAll('#holders tr.row').length === 1");
    until_counts(&store, "exports", (1, 0));
    holder.release();
}

/// The page asks for the state of a semaphore before it has a token, and the refusal comes when it has one.
#[test]
fn a_request_that_is_refused_late_asks_for_no_second_token() {
    let store = Local::new();
    let _holder = Holder::start(&store, "exports", "--limit 1");
    let Some((_serve, browser)) = open(Serve::writable(&store), "") else { return };
    browser.until("document.querySelector('#token-dialog').open");
    browser.script(
        "const send = window.fetch;
        window.fetch = async (path, options) => {
          const reply = await send(path, options);
          if (options.headers.Authorization) return reply;
          while (!sessionStorage.getItem('permits.token')) await new Promise((done) => setTimeout(done, 10));
          window.isLate = true;
          return reply;
        };
        location.hash = '#/exports';",
    );
    enter_token(&browser);
    browser.until("window.isLate && document.querySelector('#holders tr.row')");
    assert_eq!(browser.script("return document.querySelector('#token-dialog').open"), false);
}

#[test]
fn a_token_that_no_browser_sends_is_refused() {
    let store = Local::new();
    let Some((_serve, browser)) = open(Serve::writable(&store), "") else { return };
    browser.until("document.querySelector('#token-dialog').open");
    browser.press(&format!("“{TOKEN}”{ENTER}"));
    browser.until("document.querySelector('#token').validity.patternMismatch");
    assert_eq!(browser.script("return document.querySelector('#token-dialog').open"), true);
    browser.script("document.querySelector('#token').value = ' '");
    enter_token(&browser);
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
