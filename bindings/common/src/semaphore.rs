//! [`Semaphore`]: acquisitions and the operations of operators.

use permits::error::AdminError;
use permits::{Change, Changed};
use serde_json::json;

use crate::arguments::{Language, count};
use crate::call::{Call, Value};
use crate::failure::Failure;
use crate::operation::{SemaphoreOperation, named};

/// A named line with a limit.
#[derive(Debug)]
pub struct Semaphore {
    pub(crate) inner: permits::Semaphore,
    pub(crate) language: Language,
}

impl Semaphore {
    /// Acquires a permit. The options of the request are JSON. Returns the call and the holder.
    ///
    /// # Errors
    /// A failure if an option is not valid.
    pub fn acquire(&self, options: Option<&str>) -> Result<(Call, String), Failure> {
        let acquire = self.inner.acquire_with(self.language.request(options)?);
        let holder = acquire.holder().to_owned();
        Ok((acquire.into(), holder))
    }

    /// Runs an operation. `declare`: the result is the limit in force. `available`: the number of free units.
    /// `inspect`: the state as JSON, with at most as many holders and waiters each as the option `max` says.
    /// `change`: makes a [`Change`] from the fields, and the result is JSON. The argument is a JSON object in
    /// the names and units of the language.
    ///
    /// # Errors
    /// A failure if the argument is not valid.
    pub fn call(&self, operation: &str, argument: &str) -> Result<Call, Failure> {
        Ok(match named(operation)? {
            SemaphoreOperation::Declare => {
                let reply = self.inner.declare();
                Call::new(async move { reply.await.map(Value::Number) })
            }
            SemaphoreOperation::Available => {
                let reply = self.inner.available();
                Call::new(async move { reply.await.map(Value::Number) })
            }
            SemaphoreOperation::Inspect => {
                let options = self.language.fields("the options of inspect", argument, &["max"])?;
                let reply = match options.get("max") {
                    Some(max) => self.inner.inspect_up_to(count("max", 0, max)?),
                    None => self.inner.inspect(),
                };
                Call::new(async move { reply.await.map(|found| Value::Text(json!(found).to_string())) })
            }
            SemaphoreOperation::Change => {
                let fields = self.language.fields("the fields of a change", argument, Change::FIELDS)?;
                let reply = self.inner.change(self.language.read(fields)?);
                Call::new(async move {
                    let Changed { found, limit, limit_version, .. } = reply.await?;
                    let changed = json!({ "found": found, "limit": limit, "limit_version": limit_version });
                    Ok::<_, AdminError>(Value::Text(changed.to_string()))
                })
            }
        })
    }
}
