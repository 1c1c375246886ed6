//! The Lua that the ordinary courses of several operations share.

pub(super) const LANE_JOIN: &str = include_str!("../lua/lane_join.lua");
pub(super) const ORDINARY: &str = include_str!("../lua/ordinary.lua");
pub(super) const FINISH_ORDINARY: &str = include_str!("../lua/finish_ordinary.lua");

/// The functions for bounds of lanes. A function takes time to define, so a course defines them only when it
/// needs them.
pub(in crate::script) const BOUNDS: &str =
    concat!(include_str!("../lua/lane_bounds.lua"), "\n", include_str!("../lua/lane_settle.lua"));
