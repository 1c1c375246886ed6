//! The pace at which a limit lets the bytes of one direction pass.
//!
//! It cuts the bytes into pieces, each due when the one before it has had its time. A piece is small, so that
//! the other side sees a slow connection and not a silent one.

use std::time::Duration;

use tokio::time::Instant;

/// The pieces in a second.
const PIECES_PER_SECOND: u32 = 50;

/// The time at which the next piece may go, by the limit: after the time of the last one.
#[derive(Default)]
pub(super) struct Pace {
    last: Option<(Instant, usize)>,
}

impl Pace {
    /// The earliest instant from `earliest` on, by the present limit, so that a change applies at once. Bytes
    /// that went out before under a higher limit count as one piece of the present one.
    pub(super) fn due(&self, earliest: Instant, limit: u32) -> Instant {
        let Some((began, length)) = self.last.filter(|_| limit > 0) else {
            return earliest;
        };
        let length = length.min(Self::longest(limit));
        earliest.max(began + Duration::from_secs_f64(length as f64 / f64::from(limit)))
    }

    /// The piece of `bytes` that goes now.
    pub(super) fn piece<'a>(&mut self, bytes: &'a [u8], limit: u32) -> &'a [u8] {
        let length = if limit == 0 { bytes.len() } else { bytes.len().min(Self::longest(limit)) };
        self.last = Some((Instant::now(), length));
        &bytes[..length]
    }

    fn longest(limit: u32) -> usize {
        usize::try_from(limit.div_ceil(PIECES_PER_SECOND)).unwrap_or(usize::MAX)
    }
}
