//! The limit: declared by programs, changed by operators; and the bounds of lanes that operators pin.

use super::execution::Execution;
use crate::protocol::{
    Answers, ChangeEffect, ChangeOrigin, Declaration, LANE_PINS_MAX, LaneName, LaneOutcome, LanePin,
    LimitChange, LimitOutcome, Refusal,
};

impl Execution<'_> {
    /// The limit by which the command's declaration replaces the stored one, if it does.
    pub(super) fn declared(&self) -> Result<Option<u32>, Refusal> {
        let state = &self.state;
        match self.command.declaration {
            Declaration::Stored if state.limit == 0 => Err(Refusal::NoLimit),
            Declaration::Require(limit) if state.limit != 0 && state.limit != limit => {
                Err(Refusal::LimitMismatch)
            }
            Declaration::Stored => Ok(None),
            Declaration::Declare(limit) => Ok((state.limit != limit && !state.pinned).then_some(limit)),
            Declaration::Fallback(limit) | Declaration::Require(limit) => {
                Ok((state.limit == 0).then_some(limit))
            }
        }
    }

    /// Puts a declared limit in force.
    pub(super) fn replace_limit(&mut self, limit: u32) {
        self.replaced_limit = Some(self.state.limit).filter(|replaced| *replaced > 0);
        self.state.limit = limit;
        self.state.limit_version += 1;
    }

    /// Sets, adjusts or unpins the limit, for an operator.
    pub(super) fn set_limit(
        &mut self,
        origin: &ChangeOrigin,
        change: LimitChange,
        expected_version: Option<u64>,
    ) -> Answers {
        let changed = match self.state.change_made(&origin.request) {
            Some(&(ChangeEffect::Limit { limit, version } | ChangeEffect::Unpin { limit, version })) => {
                LimitOutcome::Done { limit, version }
            }
            _ => self.change_limit(origin, change, expected_version),
        };
        self.promote();
        Answers::SetLimit(changed)
    }

    fn change_limit(
        &mut self,
        origin: &ChangeOrigin,
        change: LimitChange,
        expected_version: Option<u64>,
    ) -> LimitOutcome {
        let state = &mut self.state;
        if expected_version.is_some_and(|version| version != state.limit_version) {
            return LimitOutcome::OtherVersion;
        }
        let (limit, pinned) = match change {
            LimitChange::Set(limit) => (limit, true),
            LimitChange::Unpin => (state.limit, false),
            LimitChange::Adjust(_) if state.limit == 0 => return LimitOutcome::NoLimit,
            LimitChange::Adjust(number) => match u32::try_from(number.saturating_add(state.limit.into())) {
                Ok(limit) if limit > 0 => (limit, true),
                _ => return LimitOutcome::OutOfRange,
            },
        };
        if (state.limit, state.pinned) != (limit, pinned) || expected_version.is_some() {
            (state.limit, state.pinned) = (limit, pinned);
            state.limit_version += 1;
            let version = state.limit_version;
            self.remember(
                origin,
                match pinned {
                    true => ChangeEffect::Limit { limit, version },
                    false => ChangeEffect::Unpin { limit, version },
                },
            );
        }
        LimitOutcome::Done { limit, version: self.state.limit_version }
    }

    /// Pins the bounds of a lane for an operator, or lifts that pin.
    pub(super) fn set_lane(
        &mut self,
        origin: &ChangeOrigin,
        lane: &LaneName,
        pin: Option<LanePin>,
    ) -> Answers {
        let changed = match self.state.change_made(&origin.request) {
            Some(_) => LaneOutcome::Done,
            None => self.change_lane(origin, lane, pin),
        };
        self.promote();
        Answers::SetLane(changed)
    }

    fn change_lane(&mut self, origin: &ChangeOrigin, lane: &LaneName, pin: Option<LanePin>) -> LaneOutcome {
        let state = &mut self.state;
        let found = state.lanes.bounded().get(lane).filter(|bounded| bounded.pinned);
        let before = found.map(|bounded| LanePin { limit: bounded.limit, floor: bounded.floor });
        if pin.is_some_and(|pin| state.limit > 0 && pin.floor > state.limit) {
            return LaneOutcome::FloorAboveLimit;
        }
        if pin.is_some() && before.is_none() && state.lanes.pins() >= LANE_PINS_MAX as usize {
            return LaneOutcome::TooMany;
        }
        if before != pin {
            state.pin_lane(lane, pin);
            self.remember(origin, ChangeEffect::Lane { lane: lane.clone(), pin });
        }
        LaneOutcome::Done
    }
}
