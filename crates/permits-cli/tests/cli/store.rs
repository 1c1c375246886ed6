//! A store that is waited for, and the name of the store on terminals.

use permits_testkit::{Server, wait};

use crate::support::{Running, permits};
use crate::terminal::Terminal;
use crate::top::view::View;

#[test]
fn a_terminal_shows_the_store_without_its_password() {
    let server = Server::builder().password("t0p-secret").start();
    let mut terminal = Terminal::start(&mut permits(&server.url(), ["list"]));
    terminal.shows(&format!("permits: store redis://***@{}/", server.address()));
    assert_eq!(terminal.finish(), 0);
    let mut view = View::top(&server, &[]);
    view.shows(&format!("permits top: 0 semaphores by need (redis://***@{}/)", server.address()));
    view.quits();
}

#[test]
fn an_unreachable_store_is_waited_for_and_reported() {
    let server = Server::start();
    let (url, address) = (server.url(), server.address());
    server.kill();
    let waiter = |name: &str, options: &[&str]| {
        let options =
            [&["run", name, "--limit", "1", "--recovery", "off"], options, &["echo", "ran"]].concat();
        Running::start(&mut permits(&url, options))
    };
    let in_time = [waiter("x", &["--wait", "45s"]), waiter("y", &["--store-timeout", "45s", "--no-wait"])];
    let too_late = waiter("x", &["--wait", "1200ms"]).finish();
    too_late.prints(69, "");
    assert!(too_late.stderr.contains(&format!("cannot be reached: {address}")), "{}", too_late.stderr);
    for waiter in &in_time {
        let says = [&address.to_string(), "retrying", "within=45s"];
        let said = wait::until(|| says.iter().all(|text| waiter.stderr().contains(text)));
        assert!(said, "{}", waiter.stderr());
    }
    server.restart();
    for waiter in in_time {
        waiter.finish().prints(0, "ran\n");
    }
}
