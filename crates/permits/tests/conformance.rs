//! One suite of behaviours, run over every store and both APIs.
//!
//! What a semaphore does must not depend on where it lives or by which API it is used. So each behaviour is a
//! *case*, written once, in the modules by subject; [`every_case`] lists them. A [`Provider`] says where the
//! semaphore is and how much of it there is, a [`Face`] by which API it is used; `suites` crosses the three, and
//! each combination is a test of its own: `drained_blocking::line::waiters_are_granted_in_order`.
//!
//! A case that needs more than a provider or a face has is there too, as an ignored test that says why.
//! [`no_combination_is_missing`] holds the list against the sources and the tests against the list: a case that
//! nobody listed, or a provider that is not crossed with everything, fails it.

#[path = "conformance/acquiring.rs"]
mod acquiring;
#[path = "conformance/administering.rs"]
mod administering;
#[path = "conformance/closing.rs"]
mod closing;
#[path = "conformance/face.rs"]
mod face;
#[path = "conformance/handing_over.rs"]
mod handing_over;
#[path = "conformance/limits.rs"]
mod limits;
#[path = "conformance/line.rs"]
mod line;
#[path = "conformance/losing.rs"]
mod losing;
#[path = "conformance/scene.rs"]
mod scene;

use std::collections::BTreeSet;
use std::time::Duration;

use face::Face;
use permits_testkit::skip;
use scene::{Provider, Scene};

/// An enum that knows all its variants.
#[macro_export]
macro_rules! listed {
    ($(#[$of_enum:meta])* $visibility:vis enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident,)*
    }) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// All of them.
            $visibility const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

/// The list of the cases, by subject, each with what it needs: `anything` will do, it needs several `units`, or
/// what only the `asynchronous` API has. Hands it to the macro `$to`, behind `$with`.
macro_rules! every_case {
    ($to:ident $with:tt) => {
        $to! { $with
            acquiring {
                a_permit_says_what_it_is: anything,
                a_released_permit_can_be_had_again: anything,
                a_try_on_a_full_one_is_refused_for_now: anything,
                dropped_permits_come_back: anything,
                a_holder_has_one_permit_at_a_time: anything,
                tokens_strictly_increase: anything,
                slots_are_distinct_and_the_lowest_free: units,
                weights_are_units: units,
                a_weight_above_the_limit_is_refused_for_good: anything,
                semaphores_of_other_names_are_apart: anything,
                under_contention_the_limit_holds_and_everybody_is_served: anything,
            }
            line {
                waiters_are_granted_in_order: anything,
                a_release_grants_the_head_and_no_newcomer: anything,
                a_try_does_not_overtake_a_waiter: units,
                a_heavy_head_is_not_overtaken_by_a_light_one: units,
                freed_units_go_to_as_many_as_fit: units,
                a_wait_that_runs_out_leaves_the_line: anything,
                those_behind_one_that_gives_up_move_up: anything,
                a_waiter_keeps_its_place_beyond_its_lease: anything,
                a_full_line_refuses_more: anything,
            }
            limits {
                a_raised_limit_grants_at_once: anything,
                a_lowered_limit_revokes_nobody_and_grants_when_it_fits: units,
                waiters_heavier_than_a_lowered_limit_are_refused: units,
                the_last_declaration_counts: anything,
                a_pinned_limit_ignores_declarations_until_unpinned: anything,
                a_limit_changed_meanwhile_is_a_version_mismatch: anything,
                of_two_changes_at_one_version_one_is_made: anything,
                changes_of_several_sessions_add_up: anything,
                a_limit_is_not_adjusted_out_of_its_range: anything,
                a_refused_request_changes_no_limit: anything,
                a_required_limit_is_refused_where_another_is_in_force: anything,
                without_a_limit_nothing_is_granted: anything,
            }
            administering {
                inspection_shows_who_holds_and_who_waits: units,
                an_inspection_says_how_long_ago_each_was_granted: units,
                labels_and_the_time_in_line_are_shown: anything,
                looking_leaves_nothing_behind: anything,
                a_list_names_what_is_in_use: anything,
                an_inspection_of_none_counts_all: anything,
                a_paused_semaphore_grants_nothing: anything,
                a_revoked_holder_is_told_why: anything,
                a_revoked_waiter_is_told_why: anything,
            }
            losing {
                without_renewal_a_permit_ends_with_its_lease: anything,
                a_late_drop_frees_nobody_elses_permit: anything,
                renewal_keeps_a_permit_for_many_leases: anything,
                an_explicit_renewal_extends: anything,
                a_lost_permit_stops_the_work_it_runs: asynchronous,
                work_that_ends_in_time_has_its_result: asynchronous,
                a_cancellation_token_is_cancelled_by_the_loss: asynchronous,
                a_release_is_no_loss: asynchronous,
            }
            closing {
                closing_ends_permits_and_waits: anything,
                closing_with_nothing_out_leaves_nothing: anything,
                clones_are_one_client: anything,
                permits_outlive_the_client_that_was_dropped: anything,
            }
            handing_over {
                a_permit_handed_over_goes_on_with_another_client: anything,
                what_was_released_cannot_be_adopted: anything,
                a_handle_is_good_once: anything,
                a_handle_that_says_more_than_the_store_is_refused: anything,
                a_handle_is_good_for_one_lease: anything,
                an_adopted_permit_can_be_revoked: anything,
            }
        }
    };
}

/// What a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as they stand in the list of the cases")]
enum Needs {
    anything,
    units,
    asynchronous,
}

impl Needs {
    /// Why a case that needs this cannot be run here, if it cannot.
    fn missing(self, provider: Provider, face: Face) -> Option<&'static str> {
        match self {
            Self::units if !provider.is_roomy() => Some("needs several units"),
            Self::asynchronous if matches!(face, Face::Blocking) => {
                Some("the blocking API has no such method")
            }
            Self::anything | Self::units | Self::asynchronous => None,
        }
    }
}

/// A case in the list.
struct Case {
    subject: &'static str,
    name: &'static str,
    needs: Needs,
}

macro_rules! case_table {
    ([] $($subject:ident { $($case:ident: $needs:ident,)* })*) => {
        const CASES: &[Case] = &[$($(
            Case { subject: stringify!($subject), name: stringify!($case), needs: Needs::$needs },
        )*)*];
    };
}

every_case! { case_table [] }

/// A test that there is: a case, where, by which API, and whether it runs.
struct Combination {
    subject: &'static str,
    name: &'static str,
    provider: Provider,
    face: Face,
    runs: bool,
}

/// One test: run, or ignored with the reason.
macro_rules! test {
    ($subject:ident $case:ident units Cramped $provider:ident $face:ident) => {
        #[test]
        #[ignore = "needs several units"]
        fn $case() {}
    };
    ($subject:ident $case:ident asynchronous $room:ident $provider:ident Blocking) => {
        #[test]
        #[ignore = "the blocking API has no such method"]
        fn $case() {}
    };
    ($subject:ident $case:ident $needs:ident $room:ident $provider:ident $face:ident) => {
        #[test]
        fn $case() {
            crate::run(crate::Provider::$provider, crate::Face::$face, crate::$subject::$case);
        }
    };
}

/// Whether [`test`] runs it.
macro_rules! runs {
    (units Cramped $face:ident) => {
        false
    };
    (asynchronous $room:ident Blocking) => {
        false
    };
    ($needs:ident $room:ident $face:ident) => {
        true
    };
}

/// All cases over one provider and one face.
macro_rules! suite {
    ([$suite:ident $provider:ident $room:ident $face:ident]
        $($subject:ident { $($case:ident: $needs:ident,)* })*
    ) => {
        mod $suite {
            pub(crate) const COMBINATIONS: &[crate::Combination] = &[$($(
                crate::Combination {
                    subject: stringify!($subject),
                    name: stringify!($case),
                    provider: crate::Provider::$provider,
                    face: crate::Face::$face,
                    runs: runs!($needs $room $face),
                },
            )*)*];

            $(mod $subject {
                $(test! { $subject $case $needs $room $provider $face })*
            })*
        }
    };
}

/// The suites: provider, whether it has room for several units, face.
macro_rules! suites {
    ($($suite:ident: $provider:ident $room:ident $face:ident,)*) => {
        $(every_case! { suite [$suite $provider $room $face] })*

        const SUITES: &[&[Combination]] = &[$($suite::COMBINATIONS,)*];
    };
}

suites! {
    memory_async: Memory Roomy Async,
    memory_blocking: Memory Roomy Blocking,
    local_async: Local Roomy Async,
    local_blocking: Local Roomy Blocking,
    redis_async: Redis Roomy Async,
    redis_blocking: Redis Roomy Blocking,
    cluster_async: Cluster Roomy Async,
    cluster_blocking: Cluster Roomy Blocking,
    other_prefix_async: OtherPrefix Roomy Async,
    other_prefix_blocking: OtherPrefix Roomy Blocking,
    mutex_async: Mutex Cramped Async,
    mutex_blocking: Mutex Cramped Blocking,
    drained_async: Drained Cramped Async,
    drained_blocking: Drained Cramped Blocking,
}

/// More than any case should take: one that hangs fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs one case from the laying of its scene to the check of what it left.
fn run(provider: Provider, face: Face, case: impl AsyncFnOnce(&Scene)) {
    // In a cluster permits needs sharded channels.
    if provider == Provider::Cluster && skip::before(7, 0) {
        return;
    }
    let mut scene = Scene::new(provider, face);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let whole = async {
            scene.enter_strangers().await;
            case(&scene).await;
            scene.end().await;
        };
        tokio::time::timeout(TIMEOUT, whole).await.expect("no case hangs");
    });
}

/// The cases that stand in the sources, by subject.
fn cases_in_the_sources() -> BTreeSet<(&'static str, &'static str)> {
    let sources = [
        ("acquiring", include_str!("conformance/acquiring.rs")),
        ("administering", include_str!("conformance/administering.rs")),
        ("closing", include_str!("conformance/closing.rs")),
        ("handing_over", include_str!("conformance/handing_over.rs")),
        ("limits", include_str!("conformance/limits.rs")),
        ("line", include_str!("conformance/line.rs")),
        ("losing", include_str!("conformance/losing.rs")),
    ];
    let name_of = |line: &'static str| line.strip_prefix("pub(crate) async fn ")?.split('(').next();
    let cases = |(subject, source): (&'static str, &'static str)| {
        source.lines().filter_map(name_of).map(move |name| (subject, name))
    };
    sources.into_iter().flat_map(cases).collect()
}

#[test]
fn no_combination_is_missing() {
    let listed: BTreeSet<_> = CASES.iter().map(|case| (case.subject, case.name)).collect();
    assert_eq!(listed, cases_in_the_sources(), "listed (left) and written (right) are the same");
    assert_eq!(listed.len(), CASES.len(), "no case is listed twice");

    let tests: Vec<&Combination> = SUITES.iter().copied().flatten().collect();
    let (mut run, mut skipped) = (0, 0);
    for case in CASES {
        for &provider in Provider::ALL {
            for &face in Face::ALL {
                let what = format!("{}::{} over {provider:?} by {face:?}", case.subject, case.name);
                let mut found = tests.iter().filter(|test| {
                    (test.subject, test.name, test.provider, test.face)
                        == (case.subject, case.name, provider, face)
                });
                let Some(test) = found.next() else { panic!("{what} is missing") };
                assert!(found.next().is_none(), "{what} is there twice");
                match case.needs.missing(provider, face) {
                    None => assert!(test.runs, "{what} is skipped without need"),
                    Some(reason) => assert!(!test.runs, "{what} {reason}, and is run"),
                }
                if test.runs { run += 1 } else { skipped += 1 }
            }
        }
    }
    assert_eq!(tests.len(), run + skipped, "there is nothing else");
    println!("{} cases: {run} combinations run, {skipped} skipped", CASES.len());
}
