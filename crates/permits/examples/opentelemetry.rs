//! Traces of acquisitions with OpenTelemetry: the span `acquire` is a child of the span of the task that
//! acquires.
//!
//! A program exports to a collector, by the crate `opentelemetry-otlp`. Here the spans stay in memory and are
//! printed.
//!
//! `cargo run -p permits --example opentelemetry`

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use permits::{Client, Semaphore};
use tracing::Instrument as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = InMemorySpanExporter::default();
    let provider = install(&exporter)?;

    let client = Client::connect("memory:").await?;
    let exports = client.semaphore("exports", 1)?;
    serve(&exports).instrument(tracing::info_span!("request", path = "/export")).await?;
    client.close().await?;

    // The events of an acquisition are part of its span. They are emitted by a thread of their own, until the
    // client is closed at the latest.
    provider.force_flush()?;
    for span in exporter.get_finished_spans()? {
        println!("{} {:?}", span.name, span.attributes);
        for event in span.events.iter() {
            println!("    {}", event.name);
        }
    }
    Ok(())
}

/// Exports spans and their events; from `permits`, also events of the level debug.
fn install(exporter: &InMemorySpanExporter) -> Result<SdkTracerProvider, Box<dyn std::error::Error>> {
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let levels = Targets::new().with_default(LevelFilter::INFO).with_target("permits", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("example")).with_filter(levels);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    Ok(provider)
}

async fn serve(exports: &Semaphore) -> Result<(), Box<dyn std::error::Error>> {
    let permit = exports.acquire().await?;
    assert!(exports.try_acquire().await.is_err(), "it is held");
    permit.release().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use opentelemetry::Value;
    use opentelemetry_sdk::trace::SpanData;

    use super::*;

    fn attribute<'a>(span: &'a SpanData, key: &str) -> Option<&'a Value> {
        span.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| &pair.value)
    }

    #[tokio::test]
    async fn an_acquisition_is_a_child_of_the_request_and_has_its_outcome_and_its_events() {
        let exporter = InMemorySpanExporter::default();
        let provider = install(&exporter).expect("there is no other subscriber");
        let client = Client::connect("memory:").await.expect("there is memory");
        let exports = client.semaphore("exports", 1).expect("valid");
        let request = tracing::info_span!("request");
        serve(&exports).instrument(request).await.expect("it is free");
        client.close().await.expect("there is memory");
        provider.force_flush().expect("it exports to memory");

        let spans = exporter.get_finished_spans().expect("it exports to memory");
        let request = spans.iter().find(|span| span.name == "request").expect("it has ended");
        let acquired: Vec<_> = spans.iter().filter(|span| span.name == "acquire").collect();
        let outcome = |span: &&SpanData| attribute(span, "outcome").map(ToString::to_string);
        let mut outcomes: Vec<_> = acquired.iter().filter_map(outcome).collect();
        outcomes.sort();
        assert_eq!(outcomes, ["granted", "no_permits"]);
        for span in acquired {
            assert_eq!(span.parent_span_id, request.span_context.span_id());
            assert_eq!(attribute(span, "semaphore"), Some(&Value::from("exports")));
            assert_eq!(attribute(span, "weight"), Some(&Value::from(1)));
            let events: Vec<&str> = span.events.iter().map(|event| &*event.name).collect();
            let expected =
                if attribute(span, "outcome") == Some(&"granted".into()) { "granted" } else { "refused" };
            assert_eq!(events, [expected]);
        }
    }
}
