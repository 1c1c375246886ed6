//! Requests through the layer: the table of `permits_testkit::requests`, which the tests of every way to make
//! requests walk.

use permits::Client;
use permits_testkit::requests::{Effect, Requests};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Monitor, Server};
use permits_tower::PermitLayer;
use tower::{Layer as _, ServiceExt as _, service_fn};

#[tokio::test]
async fn every_option_arrives_at_the_store() {
    let (server, requests) = (Server::start(), Requests::read());
    let client =
        Client::builder(format!("{}?recovery=off", server.url())).label("").connect().succeeds().await;
    for (number, row) in requests.options.iter().enumerate() {
        // Other rows never leave the client.
        let Effect::Arrives(expected) = &row.effect else { continue };
        for reserves in [false, true] {
            let name = format!("{number}/{reserves}");
            let layer = PermitLayer::until_response(client.named(&name, 9)).options(row.options());
            let inner = service_fn(async |request: u32| Ok::<_, std::convert::Infallible>(request));
            let monitor = Monitor::start(&server);
            if reserves {
                layer.reserve().layer(inner).oneshot(7).await.expect("a unit is free");
            } else {
                layer.layer(inner).oneshot(7).await.expect("a unit is free");
            }
            assert_eq!(Requests::arrived(&monitor.stop(&server), &name), *expected, "{}", row.field);
        }
    }
}
