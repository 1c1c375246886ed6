//! The example `tower_server` on two hosts, with a real store and real connections.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use permits::{Client, Recovery, Semaphore};
use permits_testkit::Server;
use permits_testkit::sound::{Named as _, Succeeds as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::fixture::{settles, within};

#[expect(dead_code, reason = "its main function is the example's")]
#[path = "../../examples/tower_server.rs"]
mod tower_server;

/// Two hosts with the routes of the example, whose bodies the test sends by hand.
struct Hosts {
    addresses: Vec<SocketAddr>,
    bodies: mpsc::UnboundedReceiver<Sender<Bytes>>,
    http: legacy::Client<HttpConnector, Body>,
    clients: Vec<Client>,
    _server: Server,
}

impl Hosts {
    async fn start() -> Self {
        let server = Server::start();
        let (sender, bodies) = mpsc::unbounded_channel();
        let (mut addresses, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let builder = Client::builder(server.url()).recovery(Recovery::Off);
            let client = builder.connect().succeeds().await;
            let sender = sender.clone();
            let export = async move || {
                let (body, receiver) = Channel::new(1);
                sender.send(body).expect("the test receives");
                Body::new(receiver)
            };
            let routes = Router::new().route("/export", get(export)).route("/health", get("healthy"));
            let app = tower_server::limited(routes, &client);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            addresses.push(listener.local_addr().expect("it is bound"));
            tokio::spawn(async { axum::serve(listener, app).await });
            clients.push(client);
        }
        let http = legacy::Client::builder(TokioExecutor::new()).build_http();
        Self { addresses, bodies, http, clients, _server: server }
    }

    async fn get(&self, host: usize, tenant: &str) -> Response {
        self.get_path(host, "/export", tenant).await
    }

    async fn get_path(&self, host: usize, path: &str, tenant: &str) -> Response {
        let uri = format!("http://{}{path}", self.addresses[host]);
        let request = Request::get(uri).header("x-tenant", tenant).body(Body::empty()).expect("valid");
        within(self.http.request(request)).await.expect("the host is up").map(Body::new)
    }

    /// A request that is served, and the sender of its body.
    async fn served(&mut self, host: usize, tenant: &str) -> (Response, Sender<Bytes>) {
        let response = self.get(host, tenant).await;
        assert_eq!(response.status(), StatusCode::OK);
        (response, within(self.bodies.recv()).await.expect("it was served"))
    }

    fn line(&self, tenant: &str) -> Semaphore {
        self.clients[0].named(format!("exports/{tenant}"), 2)
    }
}

#[tokio::test]
async fn a_tenant_has_two_bodies_in_work_on_all_hosts_together() {
    let mut hosts = Hosts::start().await;
    let (first, mut first_body) = hosts.served(0, "acme").await;
    let (second, _second_body) = hosts.served(1, "acme").await;

    for host in [0, 1] {
        let refused = hosts.get(host, "acme").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        let message = refused.collect().await.expect("it is whole").to_bytes();
        assert_eq!(message, "no permit of \"exports/acme\": no permits are free now\n");
    }
    let (other, other_body) = hosts.served(0, "zeta").await;
    settles(&hosts.line("zeta"), 1, 0).await;

    within(first_body.send_data("exported".into())).await.expect("it is received");
    drop(first_body);
    assert_eq!(within(first.collect()).await.expect("it is whole").to_bytes(), "exported");
    settles(&hosts.line("acme"), 1, 0).await;
    let (third, third_body) = hosts.served(0, "acme").await;

    // A receiver that hangs up releases its permit, too.
    drop((second, third, other, third_body, other_body));
    for tenant in ["acme", "zeta"] {
        settles(&hosts.line(tenant), 0, 0).await;
    }
}

#[tokio::test]
async fn a_receiver_sees_that_a_body_which_lost_its_permit_is_not_whole() {
    let mut hosts = Hosts::start().await;
    let (response, mut body) = hosts.served(0, "acme").await;
    within(body.send_data("half".into())).await.expect("it is received");
    let line = hosts.line("acme");
    let holder = line.inspect().succeeds().await.holders.remove(0).holder;
    assert!(line.revoke(&holder, "maintenance").succeeds().await);
    assert!(within(response.collect()).await.is_err(), "the connection ends before the body");
    settles(&line, 0, 0).await;
}

#[tokio::test]
async fn a_closed_line_and_a_name_that_is_not_valid_have_statuses_of_their_own() {
    let hosts = Hosts::start().await;
    hosts.line("acme").close_line("moved").succeeds().await;
    let closed = hosts.get(0, "acme").await;
    assert_eq!(closed.status(), StatusCode::SERVICE_UNAVAILABLE);
    let message = closed.collect().await.expect("it is whole").to_bytes();
    assert_eq!(message, "no permit of \"exports/acme\": the line is closed: moved\n");
    let invalid = hosts.get(1, &"a".repeat(200)).await;
    assert_eq!(invalid.status(), StatusCode::BAD_REQUEST);
    settles(&hosts.line("acme"), 0, 0).await;
}

#[tokio::test]
async fn the_health_check_passes_while_the_lines_of_the_tenant_and_of_all_are_full() {
    let mut hosts = Hosts::start().await;
    let taken = [hosts.served(0, "acme").await, hosts.served(1, "acme").await, hosts.served(0, "zeta").await];

    for (tenant, full) in [("acme", "exports/acme"), ("zeta", "exports")] {
        for host in [0, 1] {
            let refused = hosts.get(host, tenant).await;
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            let message = refused.collect().await.expect("it is whole").to_bytes();
            assert_eq!(message, format!("no permit of {full:?}: no permits are free now\n"));
            let healthy = hosts.get_path(host, "/health", tenant).await;
            assert_eq!(healthy.status(), StatusCode::OK, "host {host}, {tenant}");
        }
    }
    drop(taken);
    for tenant in ["acme", "zeta"] {
        settles(&hosts.line(tenant), 0, 0).await;
    }
}
