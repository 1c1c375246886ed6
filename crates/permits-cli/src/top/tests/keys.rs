//! Effects of keys.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use permits::{Alert, Change, Inspection};

use super::super::action::Action;
use super::super::keys::Effect;
use super::super::model::{Model, Prompt};
use super::{detail, opened, overview, press, snapshot, types};

fn act(change: Change) -> Option<Effect> {
    Some(Effect::Do(Action { semaphore: "exports".into(), change }))
}

fn limit(limit: u32) -> Option<Effect> {
    act(Change::SetLimit { limit, if_version: None })
}

fn revoke(holder: &str) -> Option<Effect> {
    act(Change::Revoke { holder: holder.into(), token: None, reason: String::new() })
}

fn with(modifiers: KeyModifiers, key: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(key), modifiers)
}

/// The screen in each state that takes keys.
fn states(now: Instant) -> Vec<Model> {
    let prefixes = ["", "?", "p", "l1", "cx", "r"];
    let of_detail = prefixes.map(|keys| (opened(detail(), now), keys));
    let of_overview = ["", "?", "p", "l", "/x"].map(|keys| (overview(&["exports"], now), keys));
    let states = of_detail.into_iter().chain(of_overview).map(|(mut model, keys)| {
        assert_eq!(types(&mut model, keys), None);
        model
    });
    states.collect()
}

#[test]
fn only_y_confirms() {
    let now = Instant::now();
    for ask in ["d", "r"] {
        for no in [KeyCode::Char('n'), KeyCode::Char('q'), KeyCode::Enter, KeyCode::Esc, KeyCode::Down] {
            let mut model = opened(detail(), now);
            assert_eq!(types(&mut model, ask), None);
            assert!(matches!(model.prompt, Some(Prompt::Confirm(..))));
            assert_eq!(press(&mut model, no), None, "{no:?}");
            assert_eq!((model.prompt, model.pending), (None, None));
        }
    }
    assert_eq!(types(&mut opened(detail(), now), "dy"), act(Change::Delete { unreadable: false }));
    assert_eq!(types(&mut opened(detail(), now), "ry"), revoke("web-1"));
    assert_eq!(types(&mut opened(detail(), now), "jjrY"), revoke("web-3"));
}

#[test]
fn a_pause_has_a_reason_and_a_time_which_may_be_empty() {
    let now = Instant::now();
    let typed = |reason: &str, time: &str| {
        let mut model = opened(detail(), now);
        assert_eq!(types(&mut model, &format!("p{reason}")), None);
        assert_eq!(press(&mut model, KeyCode::Enter), None);
        assert_eq!(types(&mut model, time), None);
        (press(&mut model, KeyCode::Enter), model.message)
    };
    let pause = |time, reason: &str| (act(Change::Pause { time, reason: reason.into() }), None);
    assert_eq!(typed("", ""), pause(None, ""));
    assert_eq!(typed("429 of the API", "30m"), pause(Some(Duration::from_secs(1_800)), "429 of the API"));
    let (effect, message) = typed("deploy", "soon");
    assert!(effect.is_none() && message.is_some_and(|text| text.starts_with("not done: \"exports\": pause")));
    let mut model = opened(detail(), now);
    types(&mut model, "px");
    press(&mut model, KeyCode::Enter);
    assert_eq!((press(&mut model, KeyCode::Esc), model.pending, model.prompt), (None, None, None));
}

#[test]
fn a_line_is_closed_with_a_reason_and_opened_at_once() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    assert_eq!(types(&mut model, "cmoved quickly"), None);
    assert_eq!(press(&mut model, KeyCode::Backspace), None);
    assert_eq!(press(&mut model, KeyCode::Enter), act(Change::CloseLine { reason: "moved quickl".into() }));
    let mut model = opened(detail(), now);
    types(&mut model, "cx");
    assert_eq!((press(&mut model, KeyCode::Esc), model.pending), (None, None));
    let mut closed = opened(Inspection { closed: Some("moved".into()), ..detail() }, now);
    assert_eq!(types(&mut closed, "c"), act(Change::OpenLine));
}

#[test]
fn a_mutex_is_turned_into_a_semaphore_on_request_only() {
    let now = Instant::now();
    let with_limit = |limit| opened(Inspection { limit: Some(limit), ..detail() }, now);
    for (before, typed) in [(1, "1"), (2, "7")] {
        let mut model = with_limit(before);
        types(&mut model, &format!("l{typed}"));
        let expected = limit(typed.parse().expect("a number"));
        assert_eq!(press(&mut model, KeyCode::Enter), expected);
    }
    let mut mutex = with_limit(1);
    types(&mut mutex, "l7");
    assert_eq!(press(&mut mutex, KeyCode::Enter), None);
    let question = r#""exports": set the limit to 7: admit several at once, in place of one? (y/n)"#;
    assert!(super::drawn(&mut mutex, 100, 24, now).iter().any(|row| row == question));
    assert_eq!(types(&mut mutex, "y"), limit(7));
}

#[test]
fn the_answer_applies_to_the_question() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "jr");
    let mut later = detail();
    later.holders.remove(1);
    model.on_snapshot(snapshot("exports", later), now);
    assert_eq!(types(&mut model, "y"), revoke("web-2"));
}

#[test]
fn actions_that_can_be_undone_need_no_confirmation() {
    let now = Instant::now();
    let paused = Inspection { paused: true, ..detail() };
    assert_eq!(types(&mut opened(paused, now), "p"), act(Change::Resume));
    assert_eq!(types(&mut opened(detail(), now), "u"), act(Change::Unpin));
}

#[test]
fn an_alert_is_a_time_a_number_both_or_none() {
    let now = Instant::now();
    let alert = |seconds: Option<u64>, waiting| {
        let alert = Alert::new(seconds.map(Duration::from_secs), waiting).expect("it is in range");
        act(Change::SetAlert(alert))
    };
    let typed = |text: &str| {
        let mut model = opened(detail(), now);
        types(&mut model, "a");
        types(&mut model, text);
        let effect = press(&mut model, KeyCode::Enter);
        (effect, model.message.unwrap_or_default())
    };
    assert_eq!(typed("30s 100").0, alert(Some(30), Some(100)));
    assert_eq!(typed("100").0, alert(None, Some(100)));
    assert_eq!(typed(" 8h").0, alert(Some(28_800), None));
    assert_eq!(typed("").0, alert(None, None));
    for (text, wrong) in
        [("0", "at least 1"), ("soon", "\"exports\": set the alert: "), ("1s 2s", "at most a time")]
    {
        let (effect, message) = typed(text);
        assert!(effect.is_none() && message.contains(wrong), "{message}");
    }
}

#[test]
fn one_action_at_a_time() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "u");
    for key in ["p", "l", "u", "r"] {
        assert_eq!(types(&mut model, key), None);
        assert_eq!(model.prompt, None);
    }
    let action = model.pending.clone().expect("it is in flight");
    model.on_acted(&action, Ok(true));
    assert_eq!(types(&mut model, "u"), act(Change::Unpin));
}

#[test]
fn no_action_without_a_fetched_state() {
    let mut model = Model::new("memory:".into(), Some("exports".into()), Instant::now());
    for keys in ["p", "r"] {
        assert_eq!(types(&mut model, keys), None);
        assert_eq!(model.prompt, None);
    }
    let mut nothing = overview(&[], Instant::now());
    for keys in ["p", "l", "u", "r"] {
        assert_eq!(types(&mut nothing, keys), None);
        assert_eq!(nothing.prompt, None);
    }
    press(&mut nothing, KeyCode::Enter);
    assert!(nothing.opened.is_none());
}

#[test]
fn a_limit_is_a_number_from_1() {
    let now = Instant::now();
    for (typed, expected, message) in [
        ("8", limit(8), None),
        ("-0x08", limit(8), None),
        ("4294967295", limit(u32::MAX), None),
        ("42949672959", limit(u32::MAX), None),
        ("4294967296", None, Some("a limit is at most 4294967295")),
        ("0", None, Some("a limit is at least 1: pause it with p instead")),
        ("000", None, Some("a limit is at least 1: pause it with p instead")),
        ("", None, None),
    ] {
        let mut model = opened(detail(), now);
        types(&mut model, "l");
        assert_eq!(types(&mut model, typed), None);
        assert_eq!(press(&mut model, KeyCode::Enter), expected, "{typed:?}");
        assert_eq!((model.prompt, model.message.as_deref()), (None, message), "{typed:?}");
    }
}

#[test]
fn control_keys_work_in_every_state() {
    let now = Instant::now();
    for (key, expected) in [('c', Effect::Interrupt), ('z', Effect::Suspend)] {
        for mut model in states(now) {
            assert_eq!(model.on_key(with(KeyModifiers::CONTROL, key), now).as_ref(), Some(&expected));
        }
    }
}

#[test]
fn after_escape_q_quits_in_every_state() {
    let now = Instant::now();
    for mut model in states(now) {
        assert_eq!(press(&mut model, KeyCode::Esc), None);
        assert_eq!(types(&mut model, "q"), Some(Effect::Quit));
    }
    // Typed quickly over a slow connection, the two arrive as one key.
    for mut model in states(now) {
        assert_eq!(model.on_key(with(KeyModifiers::ALT, 'q'), now), Some(Effect::Quit));
    }
}

#[test]
fn a_key_release_does_nothing() {
    let mut key = KeyEvent::from(KeyCode::Char('q'));
    key.kind = KeyEventKind::Release;
    assert_eq!(overview(&["exports"], Instant::now()).on_key(key, Instant::now()), None);
}

#[test]
fn a_filter_takes_every_character() {
    let mut model = overview(&["quick", "jpl?", "exports"], Instant::now());
    types(&mut model, "/q");
    assert!(model.shown().eq(["quick"]));
    press(&mut model, KeyCode::Backspace);
    types(&mut model, "jpl?");
    assert!(model.shown().eq(["jpl?"]));
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.selected(), Some("jpl?"));
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.shown().count(), model.selected()), (3, Some("jpl?")));
}
