//! The `Debug` of the types that programs log.

use std::fmt::Debug;

use permits::{AcquireOptions, Client};
use permits_testkit::sound::{Named as _, Succeeds as _};

/// The longest text of a type, in bytes: a line of a log.
const LINE: usize = 250;

#[track_caller]
fn in_a_line(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    assert!(text.len() <= LINE && !text.contains("Mutex") && !text.contains("Atomic"), "{text}");
    text
}

#[tokio::test]
async fn a_permit_is_shown_by_what_identifies_it_and_its_status() {
    let client = Client::builder("memory:debug").label("job").connect().succeeds().await;
    let semaphore = client.named("s", 4);
    let permit = semaphore.acquire_with(AcquireOptions::new().holder("h").weight(3)).succeeds().await;
    let token = permit.token();
    let shown = |status| {
        format!(
            "Permit {{ semaphore: \"s\", holder: \"h\", token: {token}, slot: 0, weight: 3, status: {status} }}"
        )
    };
    assert_eq!(format!("{permit:?}"), shown("Held"));
    semaphore.revoke("h", "").await.expect("memory does not fail");
    permit.lost().await;
    assert_eq!(format!("{permit:?}"), shown("Lost"));

    assert_eq!(in_a_line(&semaphore), r#"Semaphore { name: "s", limit: Declare(4) }"#);
    assert!(in_a_line(&client).contains(r#"label: Label("job"), lease: 15s"#));
    let all = client.acquire_all([(semaphore.clone(), AcquireOptions::new())]);
    assert_eq!(in_a_line(&all), r#"AcquireAll { semaphore: Some("s"), position: None }"#);
    assert!(in_a_line(&semaphore.acquire()).contains(r#"semaphore: Name("s")"#));
    assert!(in_a_line(&all.succeeds().await).starts_with("PermitSet"));
}
