//! The settings of a semaphore, which operators change: the limit, the pause, the line, the alert, and the
//! bounds of lanes.
//!
//! A change whose request is remembered was made before, so it gets its earlier answer and has no second
//! effect. Any other change is made now, and if it has an effect, the store remembers it.

use std::sync::Arc;

use super::execution::Execution;
use super::state::PAUSED;
use crate::protocol::{
    Alert, Answers, ChangeEffect, ChangeOrigin, LANE_PINS_MAX, LaneName, LanePin, LimitChange, Pause,
    SetOutcome, Setting,
};

/// The effect of a change, if it has one; or why it is refused.
type Change = Result<Option<ChangeEffect>, SetOutcome>;

impl Execution<'_> {
    /// Changes a setting for an operator.
    pub(super) fn set(&mut self, origin: &ChangeOrigin, setting: &Setting) -> Answers {
        let outcome = match self.state.change_made(&origin.request) {
            Some(&(ChangeEffect::Limit { limit, version } | ChangeEffect::Unpin { limit, version })) => {
                SetOutcome::Done { limit, version }
            }
            Some(_) => self.done(),
            None => match self.change(setting) {
                Ok(effect) => {
                    if let Some(effect) = effect {
                        self.remember(origin, effect);
                    }
                    self.done()
                }
                Err(refused) => refused,
            },
        };
        self.promote();
        Answers::Set(outcome)
    }

    fn done(&self) -> SetOutcome {
        SetOutcome::Done { limit: self.state.limit, version: self.state.limit_version }
    }

    fn change(&mut self, setting: &Setting) -> Change {
        match setting {
            Setting::Limit { change, expected_version } => self.change_limit(*change, *expected_version),
            Setting::Pause(pause) => Ok(self.change_pause(pause.as_ref())),
            Setting::Line(reason) => Ok(self.change_line(reason.as_ref())),
            Setting::Alert(alert) => Ok(self.change_alert(*alert)),
            Setting::Lane { lane, pin } => self.change_lane(lane, *pin),
        }
    }

    fn change_limit(&mut self, change: LimitChange, expected_version: Option<u64>) -> Change {
        let state = &mut self.state;
        if expected_version.is_some_and(|version| version != state.limit_version) {
            return Err(SetOutcome::OtherVersion);
        }
        let (limit, pinned) = match change {
            LimitChange::Set(limit) => (limit, true),
            LimitChange::Unpin => (state.limit, false),
            LimitChange::Adjust(_) if state.limit == 0 => return Err(SetOutcome::NoLimit),
            LimitChange::Adjust(number) => match u32::try_from(number.saturating_add(state.limit.into())) {
                Ok(limit) if limit > 0 => (limit, true),
                _ => return Err(SetOutcome::OutOfRange),
            },
        };
        if (state.limit, state.pinned) == (limit, pinned) && expected_version.is_none() {
            return Ok(None);
        }
        (state.limit, state.pinned) = (limit, pinned);
        state.limit_version += 1;
        let version = state.limit_version;
        Ok(Some(match pinned {
            true => ChangeEffect::Limit { limit, version },
            false => ChangeEffect::Unpin { limit, version },
        }))
    }

    /// Stops or resumes granting. If there are two pauses, the later end counts.
    fn change_pause(&mut self, pause: Option<&Pause>) -> Option<ChangeEffect> {
        let until_ms = pause.map_or(0, |pause| pause.for_ms.map_or(PAUSED, |for_ms| self.now_ms + for_ms));
        let state = &mut self.state;
        let has_effect = match pause {
            None => state.is_paused(),
            Some(_) if until_ms != state.paused_until_ms => until_ms > state.paused_until_ms,
            Some(pause) => *state.pause_reason() != *pause.reason,
        };
        if !has_effect {
            return None;
        }
        state.paused_until_ms = until_ms;
        // A pause keeps the state from expiring. A pause that an operator ends early no longer does so for
        // the rest of its time.
        state.expires_ms = state.expires_ms.min(self.now_ms + 4 * state.lease_max_ms);
        if let Some(ends_ms) = state.pause_ends_ms() {
            state.expires_ms = state.expires_ms.max(ends_ms);
            self.turn_is_new = true;
        }
        let paused = |pause: &Pause| ChangeEffect::Pause { until_ms, reason: pause.reason.clone() };
        Some(pause.map_or(ChangeEffect::Resume, paused))
    }

    fn change_line(&mut self, reason: Option<&Arc<str>>) -> Option<ChangeEffect> {
        let has_effect = self.state.closed.as_ref() != reason;
        self.state.closed = reason.cloned();
        let effect = reason.map_or(ChangeEffect::Open, |reason| ChangeEffect::Close(reason.clone()));
        has_effect.then_some(effect)
    }

    fn change_alert(&mut self, alert: Alert) -> Option<ChangeEffect> {
        let before = std::mem::replace(&mut self.state.alert, alert);
        (before != alert).then_some(ChangeEffect::Alert(alert))
    }

    fn change_lane(&mut self, lane: &LaneName, pin: Option<LanePin>) -> Change {
        let state = &mut self.state;
        let found = state.lanes.bounded().get(lane).filter(|bounded| bounded.pinned);
        let before = found.map(|bounded| LanePin { limit: bounded.limit, floor: bounded.floor });
        if pin.is_some_and(|pin| state.limit > 0 && pin.floor > state.limit) {
            return Err(SetOutcome::FloorAboveLimit);
        }
        if pin.is_some() && before.is_none() && state.lanes.pins() >= LANE_PINS_MAX as usize {
            return Err(SetOutcome::TooManyPins);
        }
        if before == pin {
            return Ok(None);
        }
        state.pin_lane(lane, pin);
        Ok(Some(ChangeEffect::Lane { lane: lane.clone(), pin }))
    }
}
