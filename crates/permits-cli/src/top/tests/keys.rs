//! Effects of keys.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use permits::{AdminError, Inspection, StoreError};

use super::super::commands::Commands;
use super::super::keys::Effect;
use super::super::model::{Model, Note};
use super::super::snapshot::Snapshot;
use super::{detail, opened, overview, press, snapshot, types};
use crate::args::Args;

fn with(modifiers: KeyModifiers, key: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(key), modifiers)
}

/// The screen in each state that takes keys.
fn states(now: Instant) -> Vec<Model> {
    let of_detail = ["", "?", "p", "jr"].map(|keys| (opened(detail(), now), keys));
    let of_overview = ["", "?", "p", "/x"].map(|keys| (overview(&["exports"], now), keys));
    let states = of_detail.into_iter().chain(of_overview).map(|(mut model, keys)| {
        assert_eq!(types(&mut model, keys), None);
        model
    });
    states.collect()
}

/// The commands on the screen, and the message.
fn shown(model: &Model) -> (Vec<String>, String) {
    let (mut commands, mut message) = (Vec::new(), String::new());
    for note in model.notes(Instant::now()) {
        match note {
            Note::Commands(lines) => commands.extend(lines.iter().map(|words| words.join(" "))),
            Note::Message(text) => message = text,
            _ => {}
        }
    }
    (commands, message)
}

#[test]
fn the_commands_are_those_for_the_state_of_the_row() {
    let now = Instant::now();
    let commands = |inspection| shown(&opened(inspection, now)).0;
    let revoke = "permits revoke exports web-1";
    let plain = [
        revoke,
        "permits pause exports --for 10m",
        "permits limit exports 3",
        "permits close exports --reason ''",
    ];
    assert_eq!(commands(detail()), plain);
    let stopped = Inspection { paused: true, pinned: true, closed: Some("moved".into()), ..detail() };
    let undo = [revoke, "permits resume exports", "permits limit exports --unpin", "permits open exports"];
    assert_eq!(commands(stopped), undo);
    assert_eq!(shown(&overview(&["a b", "c"], now)).0[0], "permits pause 'a b' --for 10m");
    assert_eq!(shown(&Model::new("memory:".into(), None, now)).0, [""; 0]);
    let mut unreadable = overview(&["exports"], now);
    let error = AdminError::Store(StoreError::Rejected { reason: "no".into() });
    unreadable.on_snapshot(Snapshot::Rows(vec![("exports".into(), Err(error))]), now);
    assert_eq!(shown(&unreadable).0, ["permits status exports"]);
}

#[test]
fn a_key_shows_its_command_until_the_next_key() {
    let now = Instant::now();
    for (key, command) in [
        ("p", "permits pause exports --for 10m"),
        ("l", "permits limit exports 3"),
        ("u", "permits limit exports --unpin"),
        ("a", "permits alert exports --wait 30s --waiting 100"),
        ("c", "permits close exports --reason ''"),
        ("d", "permits delete exports"),
        ("r", "permits revoke exports web-1"),
        ("jjr", "permits revoke exports web-3"),
    ] {
        let mut model = opened(detail(), now);
        assert_eq!(types(&mut model, key), None);
        let message = "this screen changes nothing: run the command in a shell";
        assert_eq!(shown(&model), (vec![command.to_owned()], message.to_owned()), "{key}");
        types(&mut model, "k");
        assert_eq!((shown(&model).0.len(), shown(&model).1), (4, String::new()), "until the next key");
    }
}

#[test]
fn a_command_names_the_holder_that_is_marked_now() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "jr");
    let mut later = detail();
    later.holders.remove(0);
    model.on_snapshot(snapshot("exports", later), now);
    assert_eq!(shown(&model).0, ["permits revoke exports web-2"]);
}

#[test]
fn no_command_without_a_row_that_was_read() {
    let mut model = Model::new("memory:".into(), Some("exports".into()), Instant::now());
    for keys in ["p", "r"] {
        assert_eq!(types(&mut model, keys), None);
        assert_eq!(shown(&model), (Vec::new(), "not yet: the store has not answered".into()));
    }
    let mut nothing = overview(&[], Instant::now());
    assert_eq!(types(&mut nothing, "pr"), None);
    assert_eq!(shown(&nothing), (Vec::new(), String::new()));
    press(&mut nothing, KeyCode::Enter);
    assert!(nothing.opened.is_none());
    let mut closed = overview(&["exports"], Instant::now());
    types(&mut closed, "r");
    assert_eq!(shown(&closed).1, "open it with Enter, and select a holder or waiter to revoke");
    let mut unused = opened(Inspection::default(), Instant::now());
    types(&mut unused, "r");
    assert_eq!(shown(&unused).1, "it has no holder and no waiter to revoke");
}

#[test]
fn commands_are_for_the_store_of_the_screen_and_show_no_password() {
    let command = |options: &[&str], name: &str| {
        let given = ["permits"].iter().chain(options).chain(&["top"]);
        let args = <Args as clap::Parser>::try_parse_from(given).expect("they are valid");
        let mut model = overview(&[name], Instant::now());
        model.make = Commands::of(&args.common);
        shown(&model).0[0].clone()
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
