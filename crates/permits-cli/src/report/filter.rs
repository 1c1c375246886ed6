//! The events to report: levels, by target.

use tracing::Metadata;
use tracing::level_filters::LevelFilter;

/// The targets of the library begin with this.
const LIBRARY: &str = "permits";

/// Directives, such as `warn,permits::waiting=debug`. The longest target that an event's target begins with
/// decides.
#[derive(Debug)]
pub(crate) struct Filter {
    directives: Vec<(String, LevelFilter)>,
}

impl Filter {
    /// All events from `level` on.
    pub(crate) fn from(level: LevelFilter) -> Self {
        Self { directives: vec![(LIBRARY.to_owned(), level)] }
    }

    /// Excludes the events of this target.
    pub(crate) fn without(mut self, target: &str) -> Self {
        self.directives.push((target.to_owned(), LevelFilter::OFF));
        self
    }

    /// Parses directives.
    ///
    /// # Errors
    /// The part that is no directive.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let directive = |part: &str| {
            let (target, level) = part.split_once('=').unwrap_or((LIBRARY, part));
            // The empty text would be a level, too.
            let is_named = !level.is_empty() && target.starts_with(LIBRARY);
            let level = if is_named { level.parse().ok() } else { None };
            level.map(|level| (target.to_owned(), level)).ok_or_else(|| part.to_owned())
        };
        let directives: Result<Vec<_>, _> = text.split(',').map(str::trim).map(directive).collect();
        directives.map(|directives| Self { directives })
    }

    pub(super) fn shows(&self, event: &Metadata<'_>) -> bool {
        event.target().starts_with(LIBRARY) && *event.level() <= self.level_of(event.target())
    }

    /// The most verbose level of any target.
    pub(super) fn max_level(&self) -> LevelFilter {
        self.directives.iter().map(|(_, level)| *level).max().unwrap_or(LevelFilter::OFF)
    }

    fn level_of(&self, target: &str) -> LevelFilter {
        let of_target = |(named, _): &&(String, LevelFilter)| {
            target.strip_prefix(named.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let longest = self.directives.iter().filter(of_target).max_by_key(|(named, _)| named.len());
        longest.map_or(LevelFilter::OFF, |(_, level)| *level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_target_decides() {
        let filter = Filter::parse("warn, permits::waiting=debug,permits::lost=off").expect("valid");
        assert_eq!(filter.level_of("permits::waiting"), LevelFilter::DEBUG);
        assert_eq!(filter.level_of("permits::lost"), LevelFilter::OFF);
        assert_eq!(filter.level_of("permits::granted"), LevelFilter::WARN);
        assert_eq!(filter.level_of("permits::waiting_longer"), LevelFilter::WARN);
        assert_eq!(filter.max_level(), LevelFilter::DEBUG);
        let only = Filter::parse("permits::waiting=info").expect("valid");
        assert_eq!(only.level_of("permits::granted"), LevelFilter::OFF);
    }

    #[test]
    fn a_part_that_is_no_directive_is_named() {
        for (text, part) in
            [("", ""), ("loud", "loud"), ("info,permits=", "permits="), ("tokio=info", "tokio=info")]
        {
            assert_eq!(Filter::parse(text).expect_err("it is not valid"), part);
        }
    }
}
