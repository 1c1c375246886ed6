//! Sentinels: the start of a set, the replacement of its primary, and the return of a server.

use std::collections::HashSet;

use permits_testkit::{Connection, Resp, Sentinels, Server, wait};

fn set(server: &Server, value: &str) -> Resp {
    server.command(&["SET", "colour", value])
}

fn role(server: &Server) -> String {
    server.info("role").expect("every server has a role")
}

#[test]
fn every_sentinel_knows_the_whole_set_at_the_start() {
    let set = Sentinels::start();
    assert_eq!((set.servers().len(), set.sentinels().len(), set.primary()), (3, 3, 0));
    let roles: Vec<String> = set.servers().iter().map(role).collect();
    assert_eq!(roles, ["master", "slave", "slave"]);
    let hosts: Vec<String> = set.sentinels().iter().map(|it| it.address().to_string()).collect();
    assert_eq!(set.url(), format!("redis+sentinel://{}/service", hosts.join(",")));
    for sentinel in set.sentinels() {
        assert_eq!(sentinel.command(&["SENTINEL", "REPLICAS", "service"]).array().len(), 2);
        assert_eq!(sentinel.command(&["SENTINEL", "SENTINELS", "service"]).array().len(), 2);
        let address = sentinel.command(&["SENTINEL", "get-master-addr-by-name", "service"]);
        assert_eq!(address.array()[1].text(), set.servers()[0].port().to_string());
    }
    let ids: HashSet<String> =
        set.sentinels().iter().map(|it| it.command(&["SENTINEL", "MYID"]).text().to_owned()).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let sentinels = Sentinels::start();
    sentinels.servers()[0].kill();
    let new = sentinels.wait_for_switch(0);
    assert_eq!(set(&sentinels.servers()[new], "blue").text(), "OK");
    assert_eq!(sentinels.primary(), new);

    sentinels.servers()[0].restart();
    sentinels.wait_until_ok();
    assert_eq!(role(&sentinels.servers()[0]), "slave");
    assert_eq!(sentinels.servers()[0].command(&["GET", "colour"]).text(), "blue");
}

#[test]
fn a_paused_primary_is_replaced_and_follows_when_resumed() {
    let sentinels = Sentinels::start();
    sentinels.servers()[0].pause();
    let new = sentinels.wait_for_switch(0);
    sentinels.servers()[0].resume();
    sentinels.wait_until_ok();
    assert_eq!(role(&sentinels.servers()[0]), "slave");
    assert_eq!(sentinels.primary(), new);
}

#[test]
fn a_failover_on_demand_can_be_repeated_at_once() {
    let sentinels = Sentinels::builder().replicas(1).start();
    let mut client = sentinels.servers()[0].connect().expect("it runs");
    assert_eq!(client.call(&["SET", "colour", "blue"]).expect("it answers").text(), "OK");
    assert_eq!(client.call(&["WAIT", "1", "10000"]).expect("it answers").int(), 1);
    assert_eq!(sentinels.failover(), 1);
    assert_eq!(sentinels.servers()[1].command(&["GET", "colour"]).text(), "blue");
    assert_eq!(sentinels.failover(), 0);
    sentinels.wait_until_ok();
    assert_eq!(
        (role(&sentinels.servers()[0]), role(&sentinels.servers()[1])),
        ("master".into(), "slave".into())
    );
}

#[test]
fn two_sentinels_of_three_are_enough_and_the_third_comes_back() {
    let sentinels = Sentinels::start();
    sentinels.sentinels()[0].kill();
    sentinels.servers()[0].kill();
    sentinels.wait_for_switch(0);
    sentinels.sentinels()[0].restart();
    sentinels.servers()[0].restart();
    sentinels.wait_until_ok();
    assert_eq!(role(&sentinels.servers()[0]), "slave", "none takes it for the primary any more");
}

#[test]
fn without_replicas_a_primary_refuses_writes_if_asked_to() {
    let sentinels = Sentinels::builder().min_replicas_to_write(1).start();
    assert_eq!(set(&sentinels.servers()[0], "blue").text(), "OK");
    sentinels.servers()[1].kill();
    sentinels.wait_until_ok();
    assert_eq!(set(&sentinels.servers()[0], "blue").text(), "OK", "one is left");
    sentinels.servers()[2].pause();
    let refused = wait::until(
        std::time::Duration::from_secs(20),
        || matches!(set(&sentinels.servers()[0], "red"), Resp::Error(error) if error.starts_with("NOREPLICAS")),
    );
    assert!(refused);
    sentinels.servers()[2].resume();
    sentinels.wait_until_ok();
    assert_eq!(set(&sentinels.servers()[0], "blue").text(), "OK");
}

#[test]
fn passwords_are_demanded_and_used() {
    let sentinels = Sentinels::builder().password("for data").sentinel_password("for watchers").start();
    let url = sentinels.url();
    assert!(url.starts_with("redis+sentinel://:for%20data@127.0.0.1:"), "{url}");
    assert!(url.ends_with("/service?sentinel_password=for%20watchers"), "{url}");
    for server in sentinels.servers().iter().chain(sentinels.sentinels()) {
        let mut outsider = Connection::connect(server.address()).expect("it runs");
        assert!(outsider.call(&["PING"]).expect("it answers").error().starts_with("NOAUTH"));
    }
    sentinels.servers()[0].kill();
    let new = sentinels.wait_for_switch(0);
    assert_eq!(set(&sentinels.servers()[new], "blue").text(), "OK");
}

#[test]
fn behind_proxies_a_primary_can_be_parted_from_the_rest_and_goes_on() {
    let sentinels = Sentinels::builder().proxied().start();
    let reply = sentinels.sentinels()[0].command(&["SENTINEL", "get-master-addr-by-name", "service"]);
    assert_eq!(reply.array()[1].text(), sentinels.proxy(0).address().port().to_string());

    sentinels.proxy(0).stall(true);
    let new = sentinels.wait_for_switch(0);
    let (old, new) = (&sentinels.servers()[0], &sentinels.servers()[new]);
    assert_eq!(set(old, "red").text(), "OK", "it has not heard of its replacement");
    assert_eq!(set(new, "blue").text(), "OK");

    sentinels.proxy(0).stall(false);
    sentinels.wait_until_ok();
    assert_eq!(old.command(&["GET", "colour"]).text(), "blue", "what it accepted meanwhile is lost");
}

#[test]
fn sizes_and_directives_are_as_asked_for() {
    let set = Sentinels::builder()
        .sentinels(1)
        .quorum(1)
        .replicas(1)
        .append_only()
        .arg("maxmemory", "64mb")
        .start();
    assert_eq!((set.servers().len(), set.sentinels().len()), (2, 1));
    for server in set.servers() {
        assert_eq!(server.info("maxmemory"), Some((64 << 20).to_string()));
        assert_eq!(server.info("aof_enabled").as_deref(), Some("1"));
    }
    set.servers()[0].kill();
    assert_eq!(set.wait_for_switch(0), 1, "one sentinel decides alone");
}
