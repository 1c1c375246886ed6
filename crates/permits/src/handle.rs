//! A permit as a text, to hand it over to another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::model::KEPT_TOKENS;
use crate::protocol::{
    Grant, Holder, InvalidInput, MAX_COUNTS_MS, Name, PermitTerms, RenewRequest, RequestId, check_lease,
    layout,
};
use crate::sys::percent;

/// A permit on its way from one process to another: printable, without spaces, and valid for one lease.
///
/// Made by [`Permit::hand_over`](crate::Permit::hand_over), turned into a permit again by
/// [`Client::adopt`](crate::Client::adopt). Until then [`Client::renew`](crate::Client::renew) gives it
/// another lease, and [`Client::release`](crate::Client::release) ends it. Any process that has the text can
/// do so: treat it as a secret.
///
/// Once its lease has ended, a handle is gone, and it stays gone when the store has forgotten the idle
/// semaphore. A store that lost its state puts the permit of a handle back only if it knows of the loss:
/// after a restart of the server, and after some of the semaphore's keys have vanished. It does so for one
/// lease, and until it grants another permit of that semaphore. After `FLUSHALL` the handle is gone, while a
/// permit that a client holds is put back, because the client renews it.
///
/// # Examples
/// ```
/// let text = "permits11:exports:web-3%3A41:k3j9xq2m.7:1:15000:1790000000000000:2";
/// let handle: permits::PermitHandle = text.parse()?;
/// assert_eq!(handle.semaphore(), "exports");
/// assert_eq!(handle.to_string(), text);
/// # Ok::<(), permits::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitHandle {
    pub(crate) semaphore: Name,
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    /// The text leaves the label out, and an `at_least` of 0 if nothing follows it.
    pub(crate) terms: PermitTerms,
    pub(crate) grant: Grant,
    /// The last token that the session has used, if it kept the permit and granted it again.
    pub(crate) last_token: Option<u64>,
    /// The units that the grant counts for, if they were corrected. The text does not have them.
    pub(crate) counted: Option<u32>,
}

/// The beginning of a handle. The layout follows.
const MARK: &str = "permits";

impl PermitHandle {
    /// The name of the semaphore.
    pub fn semaphore(&self) -> &str {
        self.semaphore.as_str()
    }

    /// The holder.
    pub fn holder(&self) -> &str {
        self.holder.as_str()
    }

    /// The lease that each renewal gives the permit.
    pub fn lease(&self) -> Duration {
        self.terms.lease()
    }

    /// Corrects the units that the grant counts for, as [`Permit::count`](crate::Permit::count) does, when
    /// you [release](crate::Client::release) the permit by this handle. The text of the handle does not carry
    /// them.
    ///
    /// # Errors
    /// [`InvalidInput::NothingCounts`] if the permit was acquired without
    /// [`at_least`](crate::AcquireOptions::at_least).
    pub fn count(&mut self, units: u32) -> Result<(), InvalidInput> {
        if self.terms.at_least_ms == 0 {
            return Err(InvalidInput::NothingCounts);
        }
        self.counted = Some(units);
        Ok(())
    }

    /// Makes a renewal that comes from no session.
    pub(crate) fn renewal(&self) -> RenewRequest {
        let Self { semaphore: _, holder, request, terms, grant, last_token: _, counted: _ } = self.clone();
        // The handle has the lease that it was handed over with.
        RenewRequest { by_handle: true, ..RenewRequest::new(holder, request, terms, Some(grant)) }
    }
}

impl fmt::Display for PermitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each field is named, so that a new one does not compile until it is in the text, or need not be.
        let Self { semaphore, holder, request, terms, grant: Grant { token, slot }, last_token, counted: _ } =
            self;
        let PermitTerms { weight, lease_ms, at_least_ms, .. } = terms.of_handle();
        let (semaphore, holder) = (Escaped(semaphore.as_str()), Escaped(holder.as_str()));
        write!(f, "{MARK}{}:{semaphore}:{holder}:{request}:{weight}:{lease_ms}:{token}:{slot}", layout())?;
        match last_token {
            Some(last_token) => write!(f, ":{at_least_ms}:{last_token}"),
            None if at_least_ms > 0 => write!(f, ":{at_least_ms}"),
            None => Ok(()),
        }
    }
}

impl FromStr for PermitHandle {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let broken = |reason| InvalidInput::Handle { reason };
        let parts: Vec<&str> = text.trim().split(':').collect();
        let mark = parts.first().and_then(|mark| mark.strip_prefix(MARK)).map(str::parse::<u32>);
        match mark {
            Some(Ok(found)) if found == u32::from(layout()) => {}
            Some(Ok(found)) => return Err(InvalidInput::HandleLayout { found, supported: layout().into() }),
            _ => {
                return Err(broken(
                    "it does not begin with permits and a number, as what `permits acquire` prints does",
                ));
            }
        }
        let [_, semaphore, holder, request, weight, lease, token, slot, ref rest @ ..] = parts[..] else {
            return Err(broken("it has fewer than 8 parts"));
        };
        let unescaped = |text| percent::decode(text).ok_or_else(|| broken("a name in it is malformed"));
        fn number<T: FromStr>(text: &str) -> Result<T, InvalidInput> {
            text.parse().map_err(|_| InvalidInput::Handle { reason: "a number in it is malformed" })
        }
        // The time may be longer than a request may ask for: a set that has waited adds the time of its wait.
        let counts = |at_least_ms| {
            if at_least_ms <= MAX_COUNTS_MS {
                Ok(at_least_ms)
            } else {
                Err(InvalidInput::AtLeast { at_least_ms })
            }
        };
        let (at_least_ms, last_token) = match rest {
            [] => (0, None),
            [at_least] => (counts(number(at_least)?)?, None),
            [at_least, last_token] => (counts(number(at_least)?)?, Some(number(last_token)?)),
            _ => return Err(broken("it has more than 10 parts")),
        };
        let grant = Grant { token: number(token)?, slot: number(slot)? };
        let weight = number(weight)?;
        if weight == 0 {
            return Err(InvalidInput::ZeroWeight);
        }
        let kept = grant.token..grant.token.saturating_add(KEPT_TOKENS);
        if last_token.is_some_and(|last| !kept.contains(&last)) {
            return Err(broken("its last token is not one of its grant"));
        }
        Ok(Self {
            semaphore: Name::new(&unescaped(semaphore)?)?,
            holder: Holder::new(&unescaped(holder)?)?,
            request: RequestId::new(request)?,
            terms: PermitTerms { at_least_ms, ..PermitTerms::new(weight, check_lease(number(lease)?)?) },
            grant,
            last_token,
            counted: None,
        })
    }
}

/// Writes a text with all characters percent-encoded but letters, digits and `._-/`.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/') {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_and_holder_survive_the_text() {
        let handle = PermitHandle {
            semaphore: Name::new("a:b %{}é").expect("valid"),
            holder: Holder::new("h%3A:\u{2028}x").expect("valid"),
            request: RequestId::new("s.1").expect("valid"),
            terms: PermitTerms::new(3, 100),
            grant: Grant { token: 1 << 52, slot: u32::MAX },
            last_token: None,
            counted: None,
        };
        let counting = |at_least_ms| PermitTerms { at_least_ms, ..handle.terms.clone() };
        let counted = [60_000, MAX_COUNTS_MS].map(counting);
        let counted = counted.map(|terms| PermitHandle { terms, ..handle.clone() });
        for handle in counted.into_iter().chain([handle.clone()]) {
            let text = handle.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse(), Ok(handle));
        }
    }

    #[test]
    fn broken_handles_are_refused() {
        let good = "permits11:n:h:s.1:1:100:5:0";
        assert!(good.parse::<PermitHandle>().is_ok());
        for broken in [
            "",
            "permits11",
            "permits1:n:h:s.1:1:100:5:0",
            "permits11::h:s.1:1:100:5:0",
            "permits11:n%2:h:s.1:1:100:5:0",
            "permits11:n%zz:h:s.1:1:100:5:0",
            "permits11:n:h:s 1:1:100:5:0",
            "permits11:n:h:s.1:-1:100:5:0",
            "permits11:n:h:s.1:0:100:5:0",
            "permits11:n:h:s.1:1:99:5:0",
            "permits11:n:h:s.1:1:100:5:4294967296",
            "permits11:n:h:s.1:1:100:5:0:x",
            "permits11:n:h:s.1:1:100:5:0:2147483648",
            "permits11:n:h:s.1:1:100:5:0:1:1",
        ] {
            assert!(broken.parse::<PermitHandle>().is_err(), "{broken}");
        }
    }
}
