//! [`Semaphore`]: acquisitions and the operations of operators.

use permits::error::AdminError;
use permits::{Change, Changed};
use serde::Deserialize as _;
use serde_json::json;

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

    /// An operation: `declare`, the limit in force; `available`, the number of free units; `inspect`, the
    /// state as JSON, with at most as many holders and waiters each as the argument says; and `change`, which
    /// makes the [`Change`] of the argument, whose times are milliseconds in every language: its result as
    /// JSON.
    ///
    /// # Errors
    /// A failure if the argument, which is JSON, is not valid.
    pub fn call(&self, operation: &str, argument: &str) -> Result<Call, Failure> {
        // By way of a value, whose errors name no line and column of a text that callers do not see.
        let value = || serde_json::from_str(argument).unwrap_or_else(|_| argument.into());
        Ok(match operation {
            "declare" => {
                let reply = self.inner.declare();
                Call::new(async move { reply.await.map(Value::Number) })
            }
            "available" => {
                let reply = self.inner.available();
                Call::new(async move { reply.await.map(Value::Number) })
            }
            "inspect" => {
                let reply = self.inner.inspect_up_to(count("max", 0, &value())?);
                Call::new(async move { reply.await.map(|found| Value::Text(json!(found).to_string())) })
            }
            "change" => {
                let change =
                    Change::deserialize(value()).map_err(|error| Failure::invalid(error.to_string()))?;
                let reply = self.inner.change(change);
                Call::new(async move {
                    let Changed { found, limit, limit_version, .. } = reply.await?;
                    let changed = json!({ "found": found, "limit": limit, "limit_version": limit_version });
                    Ok::<_, AdminError>(Value::Text(changed.to_string()))
                })
            }
            _ => unreachable!("a semaphore has no operation {operation}"),
        })
    }
}
