//! [`Client`]: connecting, and the operations of a session.

use std::collections::HashSet;

use permits::error::{AcquireAllError, ConnectError};
use permits::{ClientBuilder, Diagnosis, Limit, PermitHandle, Recovery};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use crate::arguments::{Language, argument, count, duration, flag, shown, text};
use crate::call::{Call, Value};
use crate::credentials::Asked;
use crate::failure::Failure;
use crate::operation::{ClientOperation, named};
use crate::semaphore::Semaphore;

/// A session with a store.
#[derive(Debug)]
pub struct Client {
    /// The address of the store, without a password.
    pub store: String,
    language: Language,
    inner: permits::Client,
}

/// The settings of a client, by the names of [`ClientBuilder`]. Names of times end with `_ms`.
const SETTINGS: &[&str] =
    &["prefix", "label", "lease_ms", "keep_ms", "recovery", "max_waiters", "replicas", "store_timeout_ms"];

fn recovery(value: &Json) -> Result<Recovery, Failure> {
    match value.as_str() {
        Some("off") => Ok(Recovery::Off),
        Some("interval") => Ok(Recovery::Interval),
        Some("strict") => Ok(Recovery::Strict),
        _ => Err(Failure::invalid(format!(
            "recovery is \"off\", \"interval\" or \"strict\", not {}",
            shown(value)
        ))),
    }
}

impl Language {
    /// Makes the builder of a client from these settings, a JSON object in the names and units of the
    /// language.
    fn builder(self, url: String, settings: &str, asked: Option<&Asked>) -> Result<ClientBuilder, Failure> {
        let mut builder = permits::Client::builder(url);
        if let Some(asked) = asked {
            builder = asked.by(builder);
        }
        for (field, value) in self.fields("the settings of a client", settings, SETTINGS)? {
            let name = self.option(&field);
            builder = match field.as_str() {
                "prefix" => builder.prefix(text(&name, &value)?),
                "label" => builder.label(text(&name, &value)?),
                "lease_ms" => builder.lease(duration(&value)),
                "keep_ms" => builder.keep(duration(&value)),
                "recovery" => builder.recovery(recovery(&value)?),
                "max_waiters" => builder.max_waiters(count(&name, 0, &value)?),
                "replicas" => builder.replicas(count(&name, 0, &value)?),
                _ => builder.store_timeout(duration(&value)),
            };
        }
        Ok(builder)
    }

    /// Connects to a store. The settings are a JSON object. `program` is the name of the program that the
    /// interpreter runs.
    ///
    /// # Errors
    /// A failure if a setting is not valid.
    pub fn connect(
        self,
        url: String,
        settings: &str,
        program: String,
        asked: Option<&Asked>,
    ) -> Result<Call, Failure> {
        let builder = self.builder(url, settings, asked)?.program(program);
        Ok(Call::new(async move {
            let store = builder.address()?;
            Ok::<_, ConnectError>(Value::Client(store, builder.connect().await?))
        }))
    }

    /// Makes the client of [`Value::Client`].
    pub fn client(self, store: String, inner: permits::Client) -> Client {
        Client { store, language: self, inner }
    }

    /// Diagnoses a store. The result is a text of JSON.
    ///
    /// # Errors
    /// A failure if a setting is not valid.
    pub fn diagnose(self, url: String, settings: &str, asked: Option<&Asked>) -> Result<Call, Failure> {
        let builder = self.builder(url, settings, asked)?;
        Ok(Call::new(async move {
            let found = builder.diagnose().await?;
            Ok::<_, ConnectError>(Value::Text(diagnosis(&found).to_string()))
        }))
    }
}

fn diagnosis(found: &Diagnosis) -> Json {
    let findings = found.findings.iter().map(|finding| {
        json!({
            "subject": finding.subject,
            "severity": finding.severity.to_string(),
            "observed": finding.observed,
            "advice": finding.advice,
        })
    });
    json!({
        "store": found.store,
        "is_healthy": found.is_healthy(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

impl Client {
    /// The semaphore of this name. The limit is JSON; null is the stored limit. The options are a JSON object
    /// in the names and units of the language: `exactly` accepts no other limit, and `keep` sets how long
    /// permits are kept. If `keep` is not there, they are kept as the client does.
    ///
    /// # Errors
    /// A failure if an argument is not valid.
    pub fn semaphore(&self, name: &str, limit: &str, options: &str) -> Result<Semaphore, Failure> {
        let language = self.language;
        let options = language.fields("the options of a semaphore", options, &["exactly", "keep_ms"])?;
        let exactly = options.get("exactly").map_or(Ok(false), |exactly| flag("exactly", exactly))?;
        let limit = Limit::deserialize(argument(limit));
        let limit = match limit.map_err(|error| Failure::invalid(error.to_string()))? {
            Limit::Declared(limit) if exactly => Limit::Exactly(limit),
            _ if exactly => return Err(Failure::invalid("exactly needs a limit".to_owned())),
            limit => limit,
        };
        let semaphore = self.inner.semaphore(name, limit)?;
        let inner = match options.get("keep_ms") {
            Some(idle) => semaphore.keep(duration(idle)),
            None => semaphore,
        };
        Ok(Semaphore { inner, language })
    }

    /// Acquires permits of several semaphores, all or none. Each semaphore has its own options of a request
    /// as JSON, and the options that are common to all.
    ///
    /// # Errors
    /// A failure if an option is not valid.
    pub fn acquire_all<'a>(
        &self,
        requests: impl IntoIterator<Item = (&'a Semaphore, Option<String>)>,
        common: Option<&str>,
    ) -> Result<Call, Failure> {
        let common = self.language.options(common)?;
        let request = |(semaphore, options): (&Semaphore, Option<String>)| {
            let options = self.language.request_with(&common, options.as_deref());
            Ok((semaphore.inner.clone(), options.map_err(|failure| failure.of(semaphore.inner.name()))?))
        };
        let requests = requests.into_iter().map(request).collect::<Result<Vec<_>, Failure>>()?;
        let mut names = HashSet::new();
        if let Some((twice, _)) = requests.iter().find(|(semaphore, _)| !names.insert(semaphore.name())) {
            return Err(AcquireAllError::Twice { semaphore: twice.name().to_owned() }.into());
        }
        Ok(self.inner.acquire_all(requests).into())
    }

    /// Runs an operation of the session: `list`, whose result is the names of all semaphores as JSON, or
    /// `close`. Or an operation on the permit of a handle: `adopt`, or `renew` and `release`, whose result is
    /// false if the store does not have the permit.
    ///
    /// # Errors
    /// A failure if the text is not a handle.
    pub fn call(&self, operation: &str, handle: &str) -> Result<Call, Failure> {
        let client = self.inner.clone();
        let parsed = || handle.parse::<PermitHandle>();
        Ok(match named(operation)? {
            ClientOperation::List => {
                Call::new(
                    async move { client.list().await.map(|names| Value::Text(json!(names).to_string())) },
                )
            }
            ClientOperation::Close => Call::new(async move { client.close().await }),
            ClientOperation::Adopt => {
                let handle = parsed()?;
                Call::new(async move { client.adopt(&handle).await.map(Value::Permit) })
            }
            ClientOperation::Renew => {
                let handle = parsed()?;
                Call::new(async move { client.renew(&handle).await })
            }
            ClientOperation::Release => {
                let handle = parsed()?;
                Call::new(async move { client.release(&handle).await })
            }
        })
    }
}
