//! Effects of keys, and the commands for the selected row.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use permits::{AdminError, Inspection, StoreError};

use super::super::commands::Commands;
use super::super::fetch::Snapshot;
use super::super::keys::Effect;
use super::super::model::Model;
use super::{detail, opened, overview, press, snapshot, types};
use crate::args::Args;

fn with(modifiers: KeyModifiers, key: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(key), modifiers)
}

/// The screen in each state that takes keys.
fn states(now: Instant) -> Vec<Model> {
    let of_detail = ["", "?", "j"].map(|keys| (opened(detail(), now), keys));
    let of_overview = ["", "?", "/x"].map(|keys| (overview(&["exports"], now), keys));
    let states = of_detail.into_iter().chain(of_overview).map(|(mut model, keys)| {
        assert_eq!(types(&mut model, keys), None);
        model
    });
    states.collect()
}

fn commands(model: &Model) -> Vec<String> {
    model.commands().iter().map(|words| words.join(" ")).collect()
}

#[test]
fn the_commands_are_those_for_the_state_of_the_row() {
    let now = Instant::now();
    let revoke = "permits revoke exports web-1";
    let plain = [
        revoke,
        "permits pause exports --for 10m",
        "permits limit exports 3",
        "permits close exports --reason ''",
    ];
    assert_eq!(commands(&opened(detail(), now)), plain);
    let stopped = Inspection { paused: true, pinned: true, closed: Some("moved".into()), ..detail() };
    let undo = [revoke, "permits resume exports", "permits limit exports --unpin", "permits open exports"];
    assert_eq!(commands(&opened(stopped, now)), undo);
    assert_eq!(commands(&opened(Inspection::default(), now)).len(), 3, "it has nobody to revoke");
    assert_eq!(commands(&overview(&["a b", "c"], now))[0], "permits pause 'a b' --for 10m");
    assert_eq!(commands(&Model::new("memory:".into(), Some("exports".into()), now)), [""; 0]);
    let mut unreadable = overview(&["exports"], now);
    let error = AdminError::Store(StoreError::Rejected { reason: "no".into() });
    unreadable.on_snapshot(Snapshot::Rows(vec![("exports".into(), Err(error))]), now);
    assert_eq!(commands(&unreadable), ["permits status exports"]);
}

#[test]
fn a_command_names_the_holder_that_is_marked_now() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "j");
    let mut later = detail();
    later.holders.remove(0);
    model.on_snapshot(snapshot("exports", later), now);
    assert_eq!(commands(&model)[0], "permits revoke exports web-2");
    types(&mut model, "j");
    assert_eq!(commands(&model)[0], "permits revoke exports web-3");
}

#[test]
fn commands_are_for_the_store_of_the_screen_and_show_no_password() {
    let command = |options: &[&str], name: &str| {
        let given = ["permits"].iter().chain(options).chain(&["top"]);
        let args = <Args as clap::Parser>::try_parse_from(given).expect("they are valid");
        let mut model = overview(&[name], Instant::now());
        model.make = Commands::of(&args.common);
        commands(&model)[0].clone()
    };
    for (options, name, expected) in [
        (&[][..], "exports", "permits pause exports --for 10m"),
        (&["--prefix", "it's"], "exports", r"permits pause exports --for 10m --prefix 'it'\''s'"),
        (&["--url", "redis://h:1/2"], "exports", "permits pause exports --for 10m --url redis://h:1/2"),
        (&["--url", "redis://u:secret@h/"], "-x", "permits pause --for 10m --url 'redis://***@h/' -- -x"),
    ] {
        assert_eq!(command(options, name), expected);
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
