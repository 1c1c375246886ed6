//! [`Client`]: connecting, and the operations of a session.

use permits::error::{AdminError, AdoptError, ConnectError, InvalidInput};
use permits::{ClientBuilder, Diagnosis, Limit, PermitHandle, Recovery};
use serde_json::{Value as Json, json};

use crate::arguments::{Language, limit, number, shown, text};
use crate::call::{Call, Value};
use crate::failure::Failure;
use crate::held::Held;
use crate::semaphore::Semaphore;

/// A session with a store.
#[derive(Debug)]
pub struct Client {
    /// The address of the store, without a password.
    pub store: String,
    inner: permits::Client,
}

/// The settings of a client, by the names of [`ClientBuilder`]. Those of times end with `_ms`.
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
    /// The builder of a client with these settings, a JSON object in the names and units of the language.
    fn builder(self, url: String, settings: &str) -> Result<ClientBuilder, Failure> {
        let mut builder = permits::Client::builder(url);
        for (field, value) in self.fields("the settings of a client", settings, SETTINGS)? {
            let name = self.option(field);
            builder = match field {
                "prefix" => builder.prefix(text(&name, &value)?),
                "label" => builder.label(text(&name, &value)?),
                "lease_ms" => builder.lease(self.time(&name, &value)?),
                "keep_ms" => builder.keep(self.time(&name, &value)?),
                "recovery" => builder.recovery(recovery(&value)?),
                "max_waiters" => builder.max_waiters(number(&name, &value)?),
                "replicas" => builder.replicas(number(&name, &value)?),
                _ => builder.store_timeout(self.time(&name, &value)?),
            };
        }
        Ok(builder)
    }

    /// Connects to a store. The settings are a JSON object. `program` is the name of the program that the
    /// interpreter runs.
    ///
    /// # Errors
    /// A failure if a setting is not valid.
    pub fn connect(self, url: String, settings: &str, program: String) -> Result<Call, Failure> {
        let builder = self.builder(url, settings)?.program(program);
        Ok(Call::new(async move {
            let store = builder.address()?;
            Ok::<_, ConnectError>(Value::Client(Client { store, inner: builder.connect().await? }))
        }))
    }

    /// Diagnoses a store: a text of JSON.
    ///
    /// # Errors
    /// A failure if a setting is not valid.
    pub fn diagnose(self, url: String, settings: &str) -> Result<Call, Failure> {
        let builder = self.builder(url, settings)?;
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

fn parsed(handle: &str) -> Result<PermitHandle, InvalidInput> {
    handle.parse()
}

impl Client {
    /// The semaphore of this name. Without a limit: the stored one. With `exactly`, no other limit is
    /// accepted. Without `keep`, in the unit of the language, it keeps permits as the client does.
    ///
    /// # Errors
    /// A failure if an argument is not valid.
    pub fn semaphore(
        &self,
        language: Language,
        name: &str,
        number: Option<f64>,
        exactly: bool,
        keep: Option<f64>,
    ) -> Result<Semaphore, Failure> {
        let limit = match number {
            None if exactly => return Err(Failure::invalid("exactly needs a limit".to_owned())),
            None => Limit::Stored,
            Some(number) if exactly => Limit::Exactly(limit(number)?),
            Some(number) => Limit::Declared(limit(number)?),
        };
        let keep = keep.map(|keep| language.duration("keep", keep)).transpose()?;
        let semaphore = self.inner.semaphore(name, limit)?;
        let inner = match keep {
            Some(idle) => semaphore.keep(idle),
            None => semaphore,
        };
        Ok(Semaphore { inner, language })
    }

    /// Permits of several semaphores, all or none, each with the options of a request as JSON.
    ///
    /// # Errors
    /// A failure if an option is not valid.
    pub fn acquire_all<'a>(
        &self,
        requests: impl IntoIterator<Item = (&'a Semaphore, Option<String>)>,
    ) -> Result<Call, Failure> {
        let request = |(semaphore, options): (&Semaphore, Option<String>)| {
            Ok((semaphore.inner.clone(), semaphore.language.request(options.as_deref())?))
        };
        let requests = requests.into_iter().map(request).collect::<Result<Vec<_>, Failure>>()?;
        Ok(self.inner.acquire_all(requests).into())
    }

    /// The names of all semaphores.
    pub fn list(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { Ok::<_, AdminError>(Value::Names(client.list().await?)) })
    }

    /// Takes over the permit of a handle.
    ///
    /// # Errors
    /// A failure if the text is no handle.
    pub fn adopt(&self, handle: &str) -> Result<Call, Failure> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(
            async move { Ok::<_, AdoptError>(Value::Permit(Held::new(client.adopt(&handle).await?))) },
        ))
    }

    /// Renews the permit of a handle, which stays valid: false if the store does not have it.
    ///
    /// # Errors
    /// A failure if the text is no handle.
    pub fn renew(&self, handle: &str) -> Result<Call, Failure> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(async move { client.renew(&handle).await }))
    }

    /// Releases the permit of a handle: false if the store does not have it.
    ///
    /// # Errors
    /// A failure if the text is no handle.
    pub fn release(&self, handle: &str) -> Result<Call, Failure> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(async move { client.release(&handle).await }))
    }

    /// Releases everything and ends the session.
    pub fn close(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { client.close().await })
    }
}
