//! [`Semaphore`]: acquisitions and the operations of operators.

use permits::Change;
use permits::error::AdminError;

use crate::arguments::{Language, count};
use crate::call::{Call, Value};
use crate::failure::Failure;

/// A named line with a limit.
#[derive(Debug)]
pub struct Semaphore {
    pub(crate) inner: permits::Semaphore,
    pub(crate) language: Language,
}

impl Semaphore {
    /// An acquisition with the options of a request as JSON, and its holder. With `now`, it does not wait.
    ///
    /// # Errors
    /// A failure if an option is not valid.
    pub fn acquire(&self, options: Option<&str>, now: bool) -> Result<(Call, String), Failure> {
        let options = self.language.request(options)?;
        let acquire = self.inner.acquire_with(if now { options.no_wait() } else { options });
        let holder = acquire.holder().to_owned();
        Ok((acquire.into(), holder))
    }

    /// Makes a change: the JSON of [`Change`], whose times are milliseconds in every language.
    ///
    /// # Errors
    /// A failure if it is not valid.
    pub fn change(&self, change: &str) -> Result<Call, Failure> {
        // By way of a value, whose errors name no line and column of a text that callers do not see.
        let change: Change = serde_json::from_str(change)
            .and_then(serde_json::from_value)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let reply = self.inner.change(change);
        Ok(Call::new(async move { Ok::<_, AdminError>(Value::Changed(reply.await?)) }))
    }

    /// Declares the limit: the limit in force.
    pub fn declare(&self) -> Call {
        let reply = self.inner.declare();
        Call::new(async move { Ok::<_, AdminError>(Value::Number(reply.await?)) })
    }

    /// The number of units that are free.
    pub fn available(&self) -> Call {
        let reply = self.inner.available();
        Call::new(async move { Ok::<_, AdminError>(Value::Number(reply.await?)) })
    }

    /// Inspects it, with at most `max` holders and waiters each: JSON.
    ///
    /// # Errors
    /// A failure if the number is out of range.
    pub fn inspect(&self, max: f64) -> Result<Call, Failure> {
        let reply = self.inner.inspect_up_to(count("max", 0, max)?);
        Ok(Call::new(async move {
            let found = reply.await?;
            let json = serde_json::to_string(&found).expect("numbers, texts and lists of them are JSON");
            Ok::<_, AdminError>(Value::Text(json))
        }))
    }
}
