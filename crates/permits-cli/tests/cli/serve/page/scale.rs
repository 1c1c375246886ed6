//! Many semaphores, and a long line.

use std::future::poll_fn;
use std::task::Poll;

use permits_testkit::HANGS;
use permits_testkit::sound::Named as _;

use super::*;

/// The number of semaphores, and of requests of one of them. With `PERMITS_PAGE_LONG` as many as the page is
/// made for.
fn sizes() -> (usize, usize) {
    if std::env::var_os("PERMITS_PAGE_LONG").is_some() { (2_000, 100_000) } else { (1_000, 10_000) }
}

/// Collects the tasks of the page that take more than 50 ms.
const OBSERVE: &str = "window.long = []; new PerformanceObserver((list) => window.long.push(...list.getEntries()))\
    .observe({ type: 'longtask' });";

#[test]
fn a_thousand_semaphores_and_ten_thousand_waiters_are_a_few_rows() {
    if without_browser() {
        return;
    }
    let (semaphores, requests) = sizes();
    let server = Server::start();
    prepare(&server, "huge");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // The calls of so many waiters take longer than the default timeout on a busy machine.
    let client = permits::Client::builder(server.url()).store_timeout(10 * HANGS);
    let client = runtime.block_on(client.connect()).expect("the server is up");
    for number in 1..semaphores {
        let semaphore = client.named(format!("s{number:04}"), permits::Limit::Stored);
        runtime.block_on(semaphore.set_limit(3)).expect("it can be set");
    }
    let huge = client.named("huge", 1);
    let _permit = runtime.block_on(huge.acquire()).expect("it is free");
    let mut waiters: Vec<_> = (1..requests).map(|_| Box::pin(huge.acquire())).collect();
    // A request is sent when it is polled for the first time.
    runtime.block_on(poll_fn(|context| {
        assert!(waiters.iter_mut().all(|waiter| waiter.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    }));
    // The queue may take longer to fill on a busy machine than a browser is waited for.
    while runtime.block_on(huge.inspect_up_to(0)).expect("the server is up").waiting < requests as u64 - 1 {
        sleep(Duration::from_millis(100));
    }
    let serve = Serve::start(&server, &[]);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", serve.address));
    browser.script(OBSERVE);
    browser.until(&format!("document.querySelector('#summary .all b').textContent === '{semaphores}'"));
    browser.until(&format!("{}?.item.waiting === {}", row("huge"), requests - 1));
    let rows =
        || browser.script("return document.querySelectorAll('tr.row').length").as_u64().expect("a number");
    assert_eq!(rows(), 2, "the others are idle, and folded");
    browser.click("#semaphores tr.row:nth-child(3)");
    browser.until("document.querySelectorAll('#semaphores tr.row').length > 8");
    browser.script("const list = document.querySelector('#semaphores'); list.scrollTop = list.scrollHeight");
    browser.until(&row(&format!("s{:04}", semaphores - 1)));
    assert!(rows() < 80, "{}", rows());
    browser.press("/");
    browser.press("huge");
    browser.until("document.querySelectorAll('#semaphores tr.row').length === 1");
    browser.press(ENTER);
    let waiting = format!("{} waiting", requests - 1);
    browser.until(&format!("document.querySelector('#waiters th').innerText.includes('{waiting}')"));
    assert!(rows() < 160, "{}", rows());
    let took = "const began = performance.now(); const search = document.querySelector('#search'); search.value = ''; \
        search.dispatchEvent(new Event('input')); document.body.offsetHeight; return performance.now() - began";
    let metrics = serve.read("/metrics").body;
    let read = metrics.lines().find(|line| line.starts_with("permits_store_scrape_duration_seconds "));
    let long = browser.script("return window.long.map((task) => Math.round(task.duration))");
    let took = browser.script(took);
    eprintln!(
        "a search over {semaphores} rows: {took} ms; tasks above 50 ms: {long}; {}",
        read.expect("a metric")
    );
    assert_eq!(browser.complaints(), [""; 0]);
}
