//! Exit codes, on which scripts rely.
//!
//! A number comes from `sysexits.h` where that has one, and from the shell where a shell has one. A failure
//! is sorted by its remedy: check the name (1, 66), correct the call (64), see to the store (69), retry later
//! (75), or find out what the command did without a permit (76).

use std::io;

use permits::{AcquireError, AdminError, ConnectError, InvalidInput};
use serde::Serialize;
use serde_json::{Value, json};

use crate::clock::milliseconds;
use crate::{report, stdout, text};

/// Success.
pub(crate) const SUCCESS: u8 = 0;
/// `revoke` found no such holder or waiter; or the question before a change to several semaphores was not
/// answered with yes.
pub(crate) const NO_MATCH: u8 = 1;
/// `doctor` has found a problem.
pub(crate) const UNHEALTHY: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 64;
/// No program has used the semaphore lately (`status`, `limit`, `lane`, `alert`, `delete`, `revoke`), or no
/// name begins with the prefix of `--under`.
pub(crate) const UNKNOWN: u8 = 66;
/// The store cannot be reached, denies access, or is not supported.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The system refuses something that is needed, such as a thread.
pub(crate) const SYSTEM: u8 = 71;
/// Not now: there was no permit in time (`-E N` replaces it by N if others have the units), the semaphore is
/// in use (`delete`), or `revoke --all` has left some.
pub(crate) const NOT_NOW: u8 = 75;
/// The permit was lost. The command was ended, or may have run without a permit for a moment.
pub(crate) const LOST: u8 = 76;
/// The command was found and cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit code of a process that ended by `signal`, as in a shell.
pub(crate) fn from_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A failure: an exit code and a message for standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// An object of the values that the message has, for lines that are JSON.
    pub(crate) fields: Value,
    /// Others hold the units, or wait for them. Every other failure needs a person.
    pub(crate) is_taken: bool,
    /// Nothing is printed of it.
    pub(crate) is_quiet: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fields: json!({}), is_taken: false, is_quiet: false }
    }

    /// Adds values that the message has.
    pub(crate) fn with(mut self, fields: Value) -> Self {
        self.fields = report::joined(self.fields, &fields);
        self
    }

    /// Reports the failure, unless it is quiet.
    pub(crate) fn report(self) -> u8 {
        let code = self.code;
        let Self { message, fields, is_quiet, .. } = self.with(json!({ "exit_code": code }));
        if !is_quiet {
            report::say_failure(message, fields);
        }
        code
    }

    pub(crate) fn system(error: io::Error) -> Self {
        Self::new(SYSTEM, format!("the system refuses: {error}"))
    }

    /// As [`Self::system`], where the call that it refuses is known.
    pub(crate) fn call(call: &str, error: &io::Error) -> Self {
        let mut message = format!("the system refuses {call}: {error}");
        if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) {
            message += ". A seccomp filter may be the reason, as of an old container runtime";
        }
        Self::new(SYSTEM, message)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match error {
            ConnectError::UnknownScheme { .. }
            | ConnectError::MissingFeature { .. }
            | ConnectError::Url { .. }
            | ConnectError::Invalid(_) => USAGE,
            ConnectError::Thread { .. } | ConnectError::Entropy { .. } => SYSTEM,
            _ => UNAVAILABLE,
        };
        Self::new(code, report::with_causes(&error))
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::new(USAGE, error.to_string())
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let code = match error {
            AdminError::Invalid(_)
            | AdminError::NoLimit { .. }
            | AdminError::LimitMismatch { .. }
            | AdminError::LimitOutOfRange { .. }
            | AdminError::TooManyPins { .. } => USAGE,
            AdminError::VersionMismatch { .. } | AdminError::InUse { .. } | AdminError::Recovering { .. } => {
                NOT_NOW
            }
            _ => UNAVAILABLE,
        };
        Self::new(code, report::with_causes(&error))
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let is_other = matches!(error, AcquireError::NotReplicated { .. } | AcquireError::Superseded { .. });
        let is_taken = error.is_not_now() && !error.stands_still() && !is_other;
        let code = match error {
            AcquireError::ExceedsLimit { .. }
            | AcquireError::ExceedsLaneLimit { .. }
            | AcquireError::NoLimit { .. }
            | AcquireError::LimitMismatch { .. }
            | AcquireError::Invalid(_) => USAGE,
            // An operator removed the waiter: a retry may succeed.
            AcquireError::Revoked { .. } => NOT_NOW,
            ref error if error.is_not_now() => NOT_NOW,
            _ => UNAVAILABLE,
        };
        let mut fields = json!({});
        if error.stands_still() {
            fields["stands_still"] = true.into();
        }
        if let Some(time) = error.retry_after() {
            fields["retry_after_ms"] = milliseconds(time).into();
        }
        Self { is_taken, ..Self::new(code, report::with_causes(&error)).with(fields) }
    }
}

/// Prints a line of JSON on standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(SYSTEM, format!("cannot write JSON: {error}")))?;
    Ok(print(&(text + "\n")))
}

/// Prints lines with texts of the store, which any program may have written, so that a terminal shows all of
/// them.
pub(crate) fn print_lines(lines: &str) -> u8 {
    print(lines.split('\n').map(text::printable).collect::<Vec<_>>().join("\n"))
}

/// Prints on standard output, after what was reported before, so that a terminal shows both in order. A
/// closed pipe is no failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> u8 {
    report::flush();
    match stdout::write(text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            report::say(format_args!("cannot write to standard output: {error}"));
            SYSTEM
        }
        _ => SUCCESS,
    }
}
